/* scan: GGUF files below a folder. */
#include "client/models/scan.h"

#include "client/base/printable.h"

#include <errno.h>
#include <fts.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_DEPTH = 6,
    MAX_FILES = 4096,
    PART_BYTES = sizeof("-00001-of-00001") - 1,
};

static const char suffix[] = ".gguf";

/* A copy for terminals, which names reach. NULL without memory. */
static char *copy_printable(const char *text, size_t bytes)
{
    char *copy = strndup(text, bytes);
    if (copy)
        printable_mask(copy);
    return copy;
}

static bool is_known(const struct models *models, const struct stat *st)
{
    for (size_t i = 0; i < models->n; i++)
        if (models->files[i].inode == st->st_ino && models->files[i].device == st->st_dev)
            return true;
    return false;
}

int scan_add(struct models *models, const char *source, const char *folder, const char *name,
             size_t name_bytes, const char *path)
{
    struct stat st;
    if (models->n == MAX_FILES || stat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
        is_known(models, &st))
        return 0;
    struct model_file *files = realloc(models->files, (models->n + 1) * sizeof(*files));
    if (!files)
        return -ENOMEM;
    models->files = files;
    struct model_file *file = &files[models->n++];
    *file = (struct model_file){
        .name = copy_printable(name, name_bytes),
        .path = strdup(path),
        .folder = copy_printable(folder, strlen(folder)),
        .source = source,
        .bytes = (uint64_t)st.st_size,
        .device = st.st_dev,
        .inode = st.st_ino,
    };
    return file->name && file->path && file->folder ? 0 : -ENOMEM;
}

/* The number of parts that a name without `.gguf` ends with, and that of this one; 0: in one piece. */
static unsigned part_of(const char *stem, size_t bytes, unsigned *ret_part)
{
    unsigned part, parts;
    int end = 0;
    if (bytes <= PART_BYTES ||
        sscanf(stem + bytes - PART_BYTES, "-%5u-of-%5u%n", &part, &parts, &end) != 2 ||
        end != PART_BYTES)
        return 0;
    *ret_part = part;
    return parts;
}

size_t models_stem(const char *file)
{
    const size_t end = strlen(suffix);
    size_t bytes = strlen(file);
    unsigned part;
    if (bytes > end && strcasecmp(file + bytes - end, suffix) == 0)
        bytes -= end;
    return part_of(file, bytes, &part) ? bytes - PART_BYTES : bytes;
}

/* Adds the sizes of parts 2 to `parts` of the model added last, as far as they are there. */
static void add_parts(struct models *models, const char *path, unsigned parts)
{
    const size_t stem = strlen(path) - strlen(suffix) - PART_BYTES;
    char *part = malloc(strlen(path) + 32);
    struct stat st;
    for (unsigned i = 2; part && i <= parts; i++) {
        sprintf(part, "%.*s-%05u-of-%05u%s", (int)stem, path, i, parts, suffix);
        if (stat(part, &st) < 0)
            break;
        models->files[models->n - 1].bytes += (uint64_t)st.st_size;
    }
    free(part);
}

/* What tells models of one name apart, [bytes] of the path below the root: PUBLISHER/REPOSITORY, of
 * Hugging Face's `models--PUBLISHER--REPOSITORY`; else the folder. */
static void name_folder(const char *below, size_t bytes, char *ret, size_t ret_bytes)
{
    static const char prefix[] = "models--";
    const char *slash = memchr(below, '/', bytes);
    const bool is_repository = strncmp(below, prefix, strlen(prefix)) == 0 && slash;
    if (is_repository) {
        below += strlen(prefix);
        bytes = (size_t)(slash - below);
    }
    snprintf(ret, ret_bytes, "%.*s", (int)bytes, below);
    for (char *dashes = ret; is_repository && (dashes = strstr(dashes, "--"));) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
}

/* `root_bytes`: length of the part of the path that is the root, or more where the root is the
 * file. */
static int add_gguf(struct models *models, const char *source, const FTSENT *entry,
                    size_t root_bytes)
{
    const size_t below = entry->fts_pathlen > root_bytes ? entry->fts_pathlen - root_bytes : 0;
    const size_t folder_bytes = below > entry->fts_namelen ? below - entry->fts_namelen - 1 : 0;
    char folder[512];
    const size_t stem = entry->fts_namelen - strlen(suffix);
    unsigned part = 1;
    const unsigned parts = part_of(entry->fts_name, stem, &part);
    if (part != 1 || strncasecmp(entry->fts_name, "mmproj", strlen("mmproj")) == 0)
        return 0;
    if (folder_bytes > 0)
        name_folder(entry->fts_path + root_bytes, folder_bytes, folder, sizeof(folder));
    else
        snprintf(folder, sizeof(folder), "%s", source);
    const size_t before = models->n;
    int rc = scan_add(models, source, folder, entry->fts_name, models_stem(entry->fts_name),
                      entry->fts_path);
    if (rc == 0 && models->n > before && parts)
        add_parts(models, entry->fts_path, parts);
    return rc;
}

static bool ends_as_gguf(const FTSENT *entry)
{
    return entry->fts_namelen > strlen(suffix) &&
           strcasecmp(entry->fts_name + entry->fts_namelen - strlen(suffix), suffix) == 0;
}

/* ---- folders that were read ------------------------------------------------------------------ */

struct folder {
    dev_t device;
    ino_t inode;
    int level; /* the least at which it was read */
};

static int compare_folders(const void *a, const void *b)
{
    const struct folder *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->inode < y->inode ? -1 : x->inode > y->inode;
}

bool scan_enters(void **folders, FTS *tree, FTSENT *entry, int most)
{
    const struct folder key = {entry->fts_statp->st_dev, entry->fts_statp->st_ino,
                               entry->fts_level};
    struct folder *known = NULL, **at = tfind(&key, folders, compare_folders);
    bool enters = entry->fts_level < most && (!at || key.level < (*at)->level);
    if (enters && at) {
        (*at)->level = key.level;
    } else if (enters) {
        known = malloc(sizeof(*known));
        enters = known != NULL;
        if (known)
            *known = key;
        if (known && !tsearch(known, folders, compare_folders)) {
            free(known);
            enters = false;
        }
    }
    if (!enters)
        fts_set(tree, entry, FTS_SKIP);
    return enters;
}

int scan_folder(struct models *models, const char *source, const char *root)
{
    char *const roots[] = {(char *)root, NULL};
    const size_t length = strlen(root), root_bytes = length + (root[length - 1] != '/');
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;
    void *folders = NULL;
    int rc = tree || errno != ENOMEM ? 0 : -ENOMEM;
    while (tree && rc == 0 && (entry = fts_read(tree))) {
        if (entry->fts_info == FTS_D)
            (void)scan_enters(&folders, tree, entry, MAX_DEPTH);
        else if (entry->fts_info == FTS_F && ends_as_gguf(entry))
            rc = add_gguf(models, source, entry, root_bytes);
    }
    if (tree)
        fts_close(tree);
    tdestroy(folders, free);
    return rc;
}
