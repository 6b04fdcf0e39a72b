/* weights_cache.c: finds, maps, checks and writes the file of a model's weights. */
#include "daemon/model/weights_cache.h"

#include "daemon/log.h"
#include "ipc/folder.h"
#include "kernels/base/fail.h"
#include "kernels/base/hash128.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HUGE_BYTES = 2 << 20,
    PIECE_BYTES = 4 << 20,  /* read or written at once: whole huge pages of the page cache */
    FLUSH_BYTES = 64 << 20, /* most that waits to be written to the disk */
};

static const char MAGIC[16] = "hearth weights";

/* ---- the header ------------------------------------------------------------------------------ */

static size_t hashes_bytes(const struct weights_header *h)
{
    return h->n_tensors * 16;
}

static size_t file_bytes(const struct weights_header *h)
{
    return h->image_at + h->image_bytes;
}

/* Hashes what tells the model from others without its data: the keys and lists of tensors of all parts;
 * and their sizes and times of change, which stay while the data does. */
static void identify(const struct gguf *part, uint8_t ret_model[16], uint8_t ret_files[16])
{
    struct hash128 model, files;
    hash128_init(&model);
    hash128_init(&files);
    for (; part; part = part->next) {
        hash128_update(&model, part->data, part->header_bytes);
        hash128_update(&files, &part->bytes, sizeof(part->bytes));
        hash128_update(&files, part->changed_ns, sizeof(part->changed_ns));
    }
    hash128_final(&model, ret_model);
    hash128_final(&files, ret_files);
}

static void header_hash(const struct weights_header *h, const uint8_t *hashes, uint8_t ret[16])
{
    struct hash128 hash;
    hash128_init(&hash);
    hash128_update(&hash, h, offsetof(struct weights_header, hash));
    hash128_update(&hash, hashes, hashes_bytes(h));
    hash128_final(&hash, ret);
}

/* All that is known before the weights are. */
static void header_init(struct weights_header *h, const struct model *model, const char *layout)
{
    const size_t n = gguf_n_tensors(model->gguf);
    *h = (struct weights_header){.n_tensors = n};
    memcpy(h->magic, MAGIC, sizeof(MAGIC));
    snprintf(h->version, sizeof(h->version), "%s", HEARTH_VERSION);
    snprintf(h->layout, sizeof(h->layout), "%s", layout);
    identify(model->gguf, h->model, h->files);
    h->image_at = (sizeof(*h) + hashes_bytes(h) + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

/* Why a file with this header, and these hashes, is not the one that is wanted; NULL: it is. */
static const char *header_differs(const struct weights_header *h, const uint8_t *hashes,
                                  const struct weights_header *want)
{
    uint8_t hash[16];
    if (memcmp(h->magic, want->magic, sizeof(h->magic)) != 0)
        return "it holds no weights";
    if (memcmp(h->version, want->version, sizeof(h->version)) != 0)
        return "it is of another version of hearth";
    if (memcmp(h->layout, want->layout, sizeof(h->layout)) != 0)
        return "it is for another instruction set";
    if (memcmp(h->model, want->model, sizeof(h->model)) != 0 || h->n_tensors != want->n_tensors)
        return "it is of another model";
    if (memcmp(h->files, want->files, sizeof(h->files)) != 0)
        return "the model's file has changed";
    header_hash(h, hashes, hash);
    if (memcmp(h->hash, hash, sizeof(hash)) != 0 || h->image_at != want->image_at)
        return "it is damaged";
    return NULL;
}

/* ---- finding it ------------------------------------------------------------------------------ */

static bool only_ours(const struct stat *st)
{
    return st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Returns why the folder cannot be used, or NULL. */
static const char *open_folder(struct weights_cache *c)
{
    struct stat st;
    folder_make(c->path); /* if that fails, so does the open */
    c->dir_fd = open(c->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (c->dir_fd < 0)
        return strerror(errno);
    if (fstat(c->dir_fd, &st) == 0 && only_ours(&st))
        return NULL;
    close(c->dir_fd);
    c->dir_fd = -1;
    return "it belongs to another user, or others may write to it";
}

/* Returns 0; -EBADMSG: the file ends before; or -errno. */
static int read_all(int fd, void *to, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (n == 0)
            return -EBADMSG;
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Reads and compares the header. Returns why the file cannot be used, or NULL; the header and hashes
 * [n_tensors][16] are the file's then. */
static const char *read_header(int fd, struct weights_header *h, uint8_t *hashes)
{
    struct weights_header found;
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !only_ours(&st))
        return "it is not a file that only this user writes to";
    int rc = read_all(fd, &found, sizeof(found), 0);
    if (rc == 0)
        rc = read_all(fd, hashes, hashes_bytes(h), sizeof(found));
    if (rc < 0)
        return rc == -EBADMSG ? "it is too short" : strerror(-rc);
    const char *why = header_differs(&found, hashes, h);
    if (!why && (uint64_t)st.st_size != file_bytes(&found))
        why = "it is too short";
    if (!why)
        *h = found;
    return why;
}

/* Opens the file and notes the hashes in it; one of zeros was not known. Returns why it cannot be
 * used, or NULL. */
static const char *open_file(struct weights_cache *c)
{
    static const uint8_t unknown[16];
    uint8_t *hashes = malloc(hashes_bytes(&c->header));
    const char *why = "no memory";
    c->fd = openat(c->dir_fd, c->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (c->fd < 0)
        why = errno == ENOENT ? "there is none" : strerror(errno);
    else if (hashes)
        why = read_header(c->fd, &c->header, hashes);
    for (uint64_t i = 0; i < c->header.n_tensors && !why; i++) {
        memcpy(c->model->hashes[i].bytes, hashes + 16 * i, 16);
        c->model->hashes[i].known = memcmp(hashes + 16 * i, unknown, sizeof(unknown)) != 0;
    }
    if (why && c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
    free(hashes);
    return why;
}

static const char *map_file(struct weights_cache *c)
{
    const char *why = open_file(c);
    if (why)
        return why;
    const size_t bytes = file_bytes(&c->header);
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, c->fd, 0);
    if (mapping == MAP_FAILED)
        return strerror(errno);
    madvise(mapping, bytes, MADV_HUGEPAGE); /* for speed only: failure is harmless */
    c->mapping = mapping;
    return NULL;
}

const void *weights_cache_open(struct weights_cache *c, const char *path, const struct model *model,
                               const char *layout, size_t *ret_bytes)
{
    char hex[MODEL_FINGERPRINT_TEXT];
    const char *why;
    *c = (struct weights_cache){.model = model, .path = path, .dir_fd = -1, .fd = -1};
    header_init(&c->header, model, layout);
    model_fingerprint_text(c->header.model, hex);
    snprintf(c->name, sizeof(c->name), "%s.weights", hex);
    snprintf(c->temporary, sizeof(c->temporary), "%s.tmp", hex);
    *ret_bytes = 0;
    if ((why = open_folder(c)) != NULL)
        log_warning("weights cache: %s cannot be used: %s: starting without", path, why);
    else
        why = map_file(c);
    if (why) {
        snprintf(c->why, sizeof(c->why), "%s", why);
        return NULL;
    }
    *ret_bytes = c->header.image_bytes;
    return c->mapping + c->header.image_at;
}

void weights_cache_describe(const struct weights_cache *c, char *text, size_t text_bytes)
{
    if (!c->path)
        snprintf(text, text_bytes,
                 "weights cache: not used: it is for weights that the CPU repacks");
    else if (c->mapping)
        snprintf(text, text_bytes, "weights cache: %s/%s is used, %zu MiB", c->path, c->name,
                 (size_t)c->header.image_bytes >> 20);
    else
        snprintf(text, text_bytes, "weights cache: %s/%s is not used: %s", c->path, c->name,
                 c->why);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* For the calling thread. Not the lowest priority, which gets nothing done beside a few builds. The
 * kernel derives the priority of its reads and writes from this. */
static void work_in_background(void)
{
    setpriority(PRIO_PROCESS, 0, 10);
}

static void start_thread(struct weights_cache *c, void *(*run)(void *))
{
    const int rc = pthread_create(&c->thread, NULL, run, c);
    c->running = rc == 0;
    if (rc)
        log_warning("weights cache: cannot start a thread: %s", strerror(rc));
}

void weights_cache_wait(struct weights_cache *c)
{
    if (c->running)
        pthread_join(c->thread, NULL);
    c->running = false;
}

int weights_cache_stop(struct weights_cache *c, char *err, size_t err_bytes)
{
    c->stop = true;
    weights_cache_wait(c);
    return c->damage ? fail(err, err_bytes, c->damage, "%s", c->line) : 0;
}

void weights_cache_close(struct weights_cache *c)
{
    if (!c->path)
        return;
    weights_cache_stop(c, NULL, 0);
    if (c->mapping)
        munmap(c->mapping, file_bytes(&c->header));
    if (c->fd >= 0)
        close(c->fd);
    if (c->dir_fd >= 0)
        close(c->dir_fd);
    c->mapping = NULL;
    c->path = NULL;
}

/* ---- checking what is used ------------------------------------------------------------------- */

/* Whether the name is the file's of the descriptor. */
static bool is_named(const struct weights_cache *c, int fd, const char *name)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && fstatat(c->dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

/* -ECANCELED: stopped; -EBADMSG: it ends too early; other errors say nothing about its contents. */
static int hash_image(struct weights_cache *c, uint8_t ret[16])
{
    uint8_t *piece = malloc(PIECE_BYTES);
    struct hash128 hash;
    int rc = piece ? 0 : -ENOMEM;
    hash128_init(&hash);
    for (size_t at = 0; at < c->header.image_bytes && !rc; at += PIECE_BYTES) {
        const size_t left = c->header.image_bytes - at, n = left < PIECE_BYTES ? left : PIECE_BYTES;
        rc = c->stop ? -ECANCELED : read_all(c->fd, piece, n, c->header.image_at + at);
        if (!rc)
            hash128_update(&hash, piece, n);
    }
    hash128_final(&hash, ret);
    free(piece);
    return rc;
}

int weights_cache_check(struct weights_cache *c, char *err, size_t err_bytes)
{
    uint8_t hash[16];
    int rc = c->mapping ? hash_image(c, hash) : -ECANCELED;
    if (rc == 0 && memcmp(hash, c->header.image_hash, sizeof(hash)) != 0)
        rc = -EBADMSG;
    if (rc == 0 || rc == -ECANCELED)
        return 0;
    if (rc != -EBADMSG)
        return fail(err, err_bytes, rc, "the weights in %s/%s cannot be checked: %s", c->path,
                    c->name, strerror(-rc));
    if (is_named(c, c->fd, c->name))
        unlinkat(c->dir_fd, c->name, 0);
    return fail(
        err, err_bytes, rc,
        "the weights in %s/%s are damaged, so answers since the start may be wrong: the file "
        "was removed, start hearthd again",
        c->path, c->name);
}

static void *check_thread(void *arg)
{
    struct weights_cache *c = arg;
    work_in_background();
    const int rc = weights_cache_check(c, c->line, sizeof(c->line));
    if (rc == -EBADMSG) {
        c->damage = rc;
        c->on_damage();
    } else if (rc) {
        log_warning("weights cache: %s", c->line);
    }
    return NULL;
}

void weights_cache_watch(struct weights_cache *c, void (*on_damage)(void))
{
    c->on_damage = on_damage;
    if (c->mapping)
        start_thread(c, check_thread);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_all(int fd, const void *from, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const uint8_t *)from + done, bytes - done, (off_t)(at + done));
        if (n < 0)
            return -errno;
        done += (size_t)n;
    }
    return 0;
}

/* Writes the image and sets its hash. It waits for the disk from time to time, so that memory does not
 * fill with pages that are still to be written. */
static int write_image(struct weights_cache *c, int fd)
{
    struct hash128 hash;
    int rc = 0;
    hash128_init(&hash);
    for (size_t at = 0; at < c->header.image_bytes && !rc; at += PIECE_BYTES) {
        const size_t left = c->header.image_bytes - at, n = left < PIECE_BYTES ? left : PIECE_BYTES;
        hash128_update(&hash, c->image + at, n);
        rc = c->stop ? -ECANCELED : write_all(fd, c->image + at, n, c->header.image_at + at);
        if (!rc && at % FLUSH_BYTES == 0 && fdatasync(fd) < 0)
            rc = -errno;
    }
    hash128_final(&hash, c->header.image_hash);
    return rc;
}

static int write_header(struct weights_cache *c, int fd)
{
    struct weights_header *h = &c->header;
    uint8_t *hashes = malloc(hashes_bytes(h));
    if (!hashes)
        return -ENOMEM;
    for (uint64_t i = 0; i < h->n_tensors; i++)
        memcpy(hashes + 16 * i, c->model->hashes[i].bytes, 16);
    header_hash(h, hashes, h->hash);
    int rc = write_all(fd, h, sizeof(*h), 0);
    if (!rc)
        rc = write_all(fd, hashes, hashes_bytes(h), sizeof(*h));
    free(hashes);
    return rc;
}

/* A full disk is noticed before anything is written, where the file system can reserve. */
static int write_file(struct weights_cache *c, int fd)
{
    int rc = ftruncate(fd, 0) < 0 ? -errno : 0;
    if (!rc && fallocate(fd, 0, 0, (off_t)file_bytes(&c->header)) < 0 && errno != EOPNOTSUPP)
        rc = -errno;
    if (!rc)
        rc = write_image(c, fd);
    if (!rc)
        rc = write_header(c, fd);
    if (!rc && (fsync(fd) < 0 || renameat(c->dir_fd, c->temporary, c->dir_fd, c->name) < 0 ||
                fsync(c->dir_fd) < 0))
        rc = -errno;
    if (rc)
        unlinkat(c->dir_fd, c->temporary, 0);
    return rc;
}

/* Opens the temporary file, locked. Returns it, or -EWOULDBLOCK: another daemon writes it, or did so just
 * now and has renamed it. */
static int open_temporary(const struct weights_cache *c)
{
    struct stat st;
    int rc = 0, fd = openat(c->dir_fd, c->temporary,
                            O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0)
        rc = -errno;
    else if (!is_named(c, fd, c->temporary))
        rc = -EWOULDBLOCK;
    else if (!S_ISREG(st.st_mode) || !only_ours(&st))
        rc = -EPERM;
    if (!rc)
        return fd;
    if (fd >= 0)
        close(fd);
    return rc;
}

static void *write_thread(void *arg)
{
    struct weights_cache *c = arg;
    work_in_background();
    int fd = open_temporary(c), rc = fd < 0 ? fd : 0;
    if (rc == 0 && !open_file(c)) { /* another daemon was faster */
        unlinkat(c->dir_fd, c->temporary, 0);
        rc = -EWOULDBLOCK;
    }
    if (rc == 0)
        rc = write_file(c, fd);
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        log_info("weights cache: %s/%s was written, %zu MiB", c->path, c->name,
                 (size_t)c->header.image_bytes >> 20);
    else if (rc == -EWOULDBLOCK)
        log_info("weights cache: another hearthd writes %s/%s, or just did", c->path, c->name);
    else if (rc != -ECANCELED)
        log_warning("weights cache: cannot write %s/%s: %s", c->path, c->name, strerror(-rc));
    return NULL;
}

void weights_cache_write(struct weights_cache *c, const void *image, size_t bytes)
{
    if (c->mapping || c->dir_fd < 0 || !image || c->image)
        return;
    c->image = image;
    c->header.image_bytes = bytes;
    start_thread(c, write_thread);
}
