/* slots.c: see slots.h. */
#include "daemon/store/slots.h"

#include "daemon/log.h"
#include "daemon/overflow_uid.h"
#include "kernels/base/hash128.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH = 16, FILE_BYTES = 256 << 20 };

static void fill_header(struct slots_header *ret, const struct files *files, uid_t uid, uint32_t n)
{
    *ret = (struct slots_header){
        .magic = SLOTS_MAGIC, .version = STORE_FILE_VERSION, .uid = uid, .n = n};
    memcpy(ret->seed, files->seed, sizeof(ret->seed));
}

/* ---- saving ------------------------------------------------------------------------------------ */

struct save {
    struct files *files;
    const struct store_slot *slots; /* [n] of all users */
    uint32_t n;
    int rc;
};

/* How many slots the user has; *ret: bytes of their file. */
static uint32_t count(const struct save *s, uid_t uid, size_t *ret)
{
    uint32_t found = 0;
    *ret = sizeof(struct slots_header) + HASH;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->slots[i].uid != uid)
            continue;
        found++;
        *ret += sizeof(struct slots_row) + s->slots[i].n_tokens * sizeof(uint32_t);
    }
    return found;
}

/* PRECOND: image has room for the user's `n` slots. */
static void fill_image(const struct save *s, uid_t uid, uint32_t n, uint8_t *image, size_t bytes)
{
    struct slots_header header;
    fill_header(&header, s->files, uid, n);
    memcpy(image, &header, sizeof(header));
    uint8_t *row_at = image + sizeof(header), *tokens_at = row_at + n * sizeof(struct slots_row);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct store_slot *slot = &s->slots[i];
        struct slots_row row = {.n_tokens = slot->n_tokens};
        if (slot->uid != uid)
            continue;
        snprintf(row.name, sizeof(row.name), "%s", slot->name);
        memcpy(row_at, &row, sizeof(row));
        row_at += sizeof(row);
        if (slot->n_tokens > 0)
            memcpy(tokens_at, slot->tokens, slot->n_tokens * sizeof(uint32_t));
        tokens_at += slot->n_tokens * sizeof(uint32_t);
    }
    hash128(image, bytes - HASH, image + bytes - HASH);
}

static int replace(const struct files *files, int folder, const void *image, size_t bytes)
{
    unlinkat(folder, "slots.tmp", 0);
    int fd = store_folder_file(folder, "slots.tmp", O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    int rc = files_write(files, fd, image, bytes, 0);
    if (rc == 0 && fdatasync(fd) < 0)
        rc = -errno;
    close(fd);
    if (rc == 0 && files_may(files) && renameat(folder, "slots.tmp", folder, "slots") < 0)
        rc = -errno;
    if (rc < 0)
        unlinkat(folder, "slots.tmp", 0);
    return rc;
}

static int save_user(const struct save *s, uid_t uid)
{
    char user[STORE_FOLDER_NAME];
    size_t bytes;
    const uint32_t n = count(s, uid, &bytes);
    if (bytes > FILE_BYTES)
        return -EFBIG;
    uint8_t *image = malloc(bytes);
    if (!image)
        return -ENOMEM;
    fill_image(s, uid, n, image, bytes);
    snprintf(user, sizeof(user), "%u", uid);
    int folder = store_folder_enter(s->files->model_folder, user, true), rc = folder;
    if (folder >= 0) {
        rc = replace(s->files, folder, image, bytes);
        close(folder);
    }
    free(image);
    return rc;
}

/* A user's file from before, if the user has no slots now: unless it may not have been read. */
static int remove_old(void *context, int model_folder, const char *name)
{
    struct save *s = context;
    size_t bytes;
    uid_t uid;
    if (s->files->slots_unread || !store_folder_is_user(name, &uid) || count(s, uid, &bytes) > 0)
        return 0;
    int folder = store_folder_enter(model_folder, name, false);
    if (folder < 0)
        return 0;
    if (files_may(s->files))
        unlinkat(folder, "slots", 0);
    close(folder);
    return 0;
}

int slots_save(struct files *files, const struct store_slot *slots, uint32_t n)
{
    struct save s = {.files = files, .slots = slots, .n = n};
    int rc = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = 0;
        while (slots[first].uid != slots[i].uid)
            first++;
        if (first < i || !overflow_uid_shares(slots[i].uid))
            continue;
        int saved = save_user(&s, slots[i].uid);
        rc = rc ? rc : saved;
    }
    store_folder_list(files->model_folder, remove_old, &s);
    return rc;
}

/* ---- loading ----------------------------------------------------------------------------------- */

struct loading {
    struct files *files;
    void (*each)(void *context, const struct store_slot *slot);
    void *context;
};

/* All of the file, [*ret_bytes]; NULL with -ENOENT, -EBADMSG, -errno in *ret_rc. */
static uint8_t *read_file(int folder, size_t *ret_bytes, int *ret_rc)
{
    struct stat st;
    uint8_t *image = NULL;
    int fd = store_folder_file(folder, "slots", O_RDONLY), rc = fd;
    if (fd < 0) {
        *ret_rc = rc;
        return NULL;
    }
    rc = fstat(fd, &st) < 0 ? -errno : 0;
    *ret_bytes = rc == 0 ? (size_t)st.st_size : 0;
    if (rc == 0 && (*ret_bytes < sizeof(struct slots_header) + HASH || *ret_bytes > FILE_BYTES))
        rc = -EBADMSG;
    if (rc == 0)
        rc = (image = malloc(*ret_bytes)) ? files_read(fd, image, *ret_bytes, 0) : -ENOMEM;
    close(fd);
    *ret_rc = rc;
    if (rc == 0)
        return image;
    free(image);
    return NULL;
}

/* Is the image whole, of this store and user? Its rows and tokens end where it does. */
static bool is_whole(const struct files *files, uid_t uid, const uint8_t *image, size_t bytes)
{
    struct slots_header header, want;
    struct slots_row row;
    uint8_t hash[HASH];
    memcpy(&header, image, sizeof(header));
    fill_header(&want, files, uid, header.n);
    hash128(image, bytes - HASH, hash);
    if (memcmp(&header, &want, sizeof(want)) != 0 ||
        memcmp(hash, image + bytes - HASH, HASH) != 0 || header.n > bytes / sizeof(row))
        return false;
    uint64_t need = sizeof(header) + header.n * sizeof(row) + HASH;
    for (uint32_t i = 0; i < header.n && need <= bytes; i++) {
        memcpy(&row, image + sizeof(header) + i * sizeof(row), sizeof(row));
        need += row.n_tokens * (uint64_t)sizeof(uint32_t);
        if (row.name[0] == 0 || memchr(row.name, 0, sizeof(row.name)) == NULL)
            return false;
    }
    return need == bytes;
}

/* PRECOND: is_whole. */
static void give(const struct loading *l, uid_t uid, const uint8_t *image)
{
    struct slots_header header;
    struct slots_row row;
    memcpy(&header, image, sizeof(header));
    const uint8_t *tokens = image + sizeof(header) + header.n * sizeof(row);
    for (uint32_t i = 0; i < header.n; i++) {
        struct store_slot slot = {.uid = uid};
        memcpy(&row, image + sizeof(header) + i * sizeof(row), sizeof(row));
        memcpy(slot.name, row.name, sizeof(slot.name));
        slot.n_tokens = row.n_tokens;
        slot.tokens = (const uint32_t *)(const void *)tokens; /* all before it are words */
        l->each(l->context, &slot);
        tokens += row.n_tokens * sizeof(uint32_t);
    }
}

static int load_user(void *context, int model_folder, const char *name)
{
    const struct loading *l = context;
    size_t bytes;
    uid_t uid;
    int rc = -ENOENT;
    if (!store_folder_is_user(name, &uid) || !overflow_uid_shares(uid))
        return 0;
    int folder = store_folder_enter(model_folder, name, false);
    if (folder < 0)
        return 0;
    uint8_t *image = read_file(folder, &bytes, &rc);
    close(folder);
    l->files->slots_unread |= rc < 0 && rc != -ENOENT && rc != -EBADMSG;
    if (image && is_whole(l->files, uid, image, bytes))
        give(l, uid, image);
    else if (image || (rc != -ENOENT && rc != -ENOMEM))
        log_warning("store: %s/%s/slots is not used: %s", l->files->model, name,
                    files_why(image ? -EBADMSG : rc));
    free(image);
    return rc == -ENOMEM ? rc : 0;
}

int slots_load(struct files *files, void (*each)(void *context, const struct store_slot *slot),
               void *context)
{
    struct loading l = {.files = files, .each = each, .context = context};
    return store_folder_list(files->model_folder, load_user, &l);
}
