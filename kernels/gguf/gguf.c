/* gguf.c: opens, maps, reads and closes the file. See gguf.h. */
#include "kernels/gguf/gguf_impl.h"

#include "kernels/base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int gguf_open_memory(const void *data, size_t bytes, struct gguf **ret_gguf, char *err,
                     size_t err_bytes)
{
    struct gguf *g = calloc(1, sizeof(*g));
    if (!g)
        return fail(err, err_bytes, -ENOMEM, "not enough memory to open the file");
    g->data = data;
    g->bytes = bytes;
    int rc = gguf_parse(g, err, err_bytes);
    if (rc) {
        gguf_close(g);
        return rc;
    }
    *ret_gguf = g;
    return 0;
}

/* Maps a regular, non-empty file. */
static int map_file(int fd, struct stat *st, void **ret_data, size_t *ret_bytes, char *err,
                    size_t err_bytes)
{
    if (fstat(fd, st) < 0)
        return fail(err, err_bytes, -errno, "cannot read its size: %s", strerror(errno));
    if (!S_ISREG(st->st_mode))
        return fail(err, err_bytes, -EINVAL, "not a regular file");
    if (st->st_size == 0)
        return fail(err, err_bytes, -EBADMSG, "not a GGUF file: it is empty");
    *ret_bytes = (size_t)st->st_size;
    *ret_data = mmap(NULL, *ret_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (*ret_data == MAP_FAILED)
        return fail(err, err_bytes, -errno, "cannot map %zu bytes: %s", *ret_bytes,
                    strerror(errno));
    return 0;
}

static uint64_t time_ns(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* O_NONBLOCK: opening a pipe must not block. */
int gguf_open(const char *path, struct gguf **ret_gguf, char *err, size_t err_bytes)
{
    void *data = NULL;
    size_t bytes = 0;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail(err, err_bytes, -errno, "cannot open: %s", strerror(errno));
    int rc = map_file(fd, &st, &data, &bytes, err, err_bytes);
    if (rc)
        goto out_close_fd;
    rc = gguf_open_memory(data, bytes, ret_gguf, err, err_bytes);
    if (rc)
        goto out_unmap;
    (*ret_gguf)->mapping = data;
    (*ret_gguf)->fd = fd;
    (*ret_gguf)->changed_ns[0] = time_ns(st.st_mtim);
    (*ret_gguf)->changed_ns[1] = time_ns(st.st_ctim);
    return 0;

out_unmap:
    munmap(data, bytes);
out_close_fd:
    close(fd);
    return rc;
}

/* The part that holds the data. */
static const struct gguf *part_of(const struct gguf *gguf, const void *data)
{
    const uintptr_t at = (uintptr_t)data;
    while (gguf->next && !(at >= (uintptr_t)gguf->data && at - (uintptr_t)gguf->data < gguf->bytes))
        gguf = gguf->next;
    return gguf;
}

void gguf_drop_reads(struct gguf *gguf)
{
    for (; gguf; gguf = gguf->next)
        gguf->drops = true;
}

/* The kernel drops whole folios alone, which may be as large as a huge page and lie across reads: a
 * read drops what is left of the one before it, too. */
static void drop_read(const struct gguf *gguf, size_t at, size_t bytes)
{
    const size_t folio = 2 << 20, begin = at / folio * folio;
    if (gguf->drops)
        posix_fadvise(gguf->fd, (off_t)begin, (off_t)(at + bytes - begin), POSIX_FADV_DONTNEED);
}

int gguf_read(const struct gguf *gguf, const void *data, size_t bytes, void *to)
{
    gguf = part_of(gguf, data);
    size_t at = (size_t)((const uint8_t *)data - gguf->data);
    if (!gguf->mapping) {
        memcpy(to, data, bytes);
        return 0;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(gguf->fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    drop_read(gguf, at, bytes);
    return 0;
}

void gguf_close_file(struct gguf *gguf)
{
    for (; gguf; gguf = gguf->next) {
        if (gguf->mapping && gguf->fd >= 0)
            close(gguf->fd);
        gguf->fd = -1;
    }
}

void gguf_drop_pages(const struct gguf *gguf)
{
    for (; gguf; gguf = gguf->next)
        if (gguf->mapping)
            madvise(gguf->mapping, gguf->bytes, MADV_DONTNEED);
}

void gguf_drop_range(const struct gguf *gguf, const void *data, size_t bytes)
{
    gguf = part_of(gguf, data);
    const uintptr_t page = 4096, file = (uintptr_t)gguf->mapping;
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (gguf->mapping && begin >= file && begin < end && end <= file + gguf->bytes)
        madvise((uint8_t *)gguf->mapping + (begin - file), end - begin, MADV_DONTNEED);
}

void gguf_close(struct gguf *gguf)
{
    if (!gguf)
        return;
    gguf_close_file(gguf);
    for (struct gguf *next; gguf; gguf = next) {
        next = gguf->next;
        if (gguf->mapping)
            munmap(gguf->mapping, gguf->bytes);
        free(gguf->keys);
        free(gguf->tensors);
        free(gguf->keys_by_name);
        free(gguf->tensors_by_name);
        free(gguf);
    }
}
