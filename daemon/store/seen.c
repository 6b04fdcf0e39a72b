/* seen.c: see seen.h. */
#include "daemon/store/seen.h"

#include "kernels/base/hash128.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(((struct store_index *)0)->seen) ==
                   sizeof(((struct store_file_seen *)0)->texts),
               "the file has what the index has");

/* Magic, seed and hash, which follow from the rest. */
static void seal(const struct files *files, struct store_file_seen *image)
{
    memcpy(image->magic, STORE_FILE_SEEN_MAGIC, sizeof(STORE_FILE_SEEN_MAGIC));
    memcpy(image->seed, files->seed, sizeof(image->seed));
    hash128(image, offsetof(struct store_file_seen, hash), image->hash);
}

void seen_save(const struct files *files, const struct store_index *index)
{
    static struct store_file_seen image;
    int fd = files_may(files)
                 ? store_folder_file(files->model_folder, STORE_FOLDER_SEEN, O_WRONLY | O_CREAT)
                 : -1;
    if (fd < 0)
        return;
    memcpy(image.texts, index->seen, sizeof(image.texts));
    seal(files, &image);
    files_write(files, fd, &image, sizeof(image), 0);
    close(fd);
}

void seen_load(const struct files *files, struct store_index *index)
{
    static struct store_file_seen found, wanted;
    int fd = store_folder_file(files->model_folder, STORE_FOLDER_SEEN, O_RDONLY);
    if (fd < 0)
        return;
    if (files_read(fd, &found, sizeof(found), 0) == 0) {
        memcpy(wanted.texts, found.texts, sizeof(wanted.texts));
        seal(files, &wanted);
        if (!memcmp(&wanted, &found, sizeof(found)))
            memcpy(index->seen, found.texts, sizeof(index->seen));
    }
    close(fd);
}
