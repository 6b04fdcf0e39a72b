/* files.c: see files.h. */
#include "daemon/store/files.h"

#include "daemon/log.h"
#include "daemon/overflow_uid.h"
#include "kernels/base/fail.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- steps ------------------------------------------------------------------------------------- */

static size_t may_write(const struct files *files, size_t bytes)
{
    if (!files->cut)
        return bytes;
    size_t may = bytes < *files->cut ? bytes : (size_t)*files->cut;
    *files->cut -= may;
    return may;
}

bool files_may(const struct files *files)
{
    return may_write(files, 1) == 1;
}

int files_read(int fd, void *data, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (uint8_t *)data + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -ENODATA;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int files_write(const struct files *files, int fd, const void *data, size_t bytes, uint64_t at)
{
    const size_t may = may_write(files, bytes);
    for (size_t done = 0; done < may;) {
        ssize_t n = pwrite(fd, (const uint8_t *)data + done, may - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

const char *files_why(int rc)
{
    switch (rc) {
    case -EBADMSG:
        return "damaged, or of another version";
    case -EPERM:
    case -ELOOP:
    case -ENOTDIR:
        return "it is not hearthd's alone: make it its user's, a file mode 0600, a folder 0700, no "
               "link; or remove it";
    case -ENOENT:
        return "it was removed: restart hearthd, which begins anew";
    default:
        return strerror(-rc);
    }
}

/* ---- opening ----------------------------------------------------------------------------------- */

int files_say(int rc, const char *path, const char *in, char *err, size_t err_bytes)
{
    const char *slash = *in ? "/" : "";
    if (rc == -EPERM || (*in && (rc == -ELOOP || rc == -ENOTDIR)))
        return fail(err, err_bytes, rc,
                    "%s%s%s is not hearthd's alone: make it its user's, a folder mode 0700 (chmod "
                    "700), a file 0600, no link",
                    path, slash, in);
    if (rc == -ELOOP)
        return fail(err, err_bytes, rc, "%s is a link: give the folder itself", path);
    if (rc == -EBUSY)
        return fail(err, err_bytes, rc, "another hearthd uses %s for this model", path);
    return fail(err, err_bytes, rc, "%s%s%s: %s: give a folder that hearthd can make and write to",
                path, slash, in, strerror(-rc));
}

/* The model's name, for `hearth store`. The time of change says when it was used last. */
static int write_name(int fd, const char *name)
{
    char line[STORE_FOLDER_MODEL_TEXT + 1];
    int n = snprintf(line, sizeof(line), "%.*s\n", STORE_FOLDER_MODEL_TEXT - 1, name);
    if (pwrite(fd, line, (size_t)n, 0) != n || ftruncate(fd, n) < 0)
        return -errno;
    return 0;
}

static int punch(int fd, uint64_t at, uint64_t bytes)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes) < 0
               ? -errno
               : 0;
}

static void name_model(const uint8_t seed[16], char ret[STORE_FOLDER_NAME])
{
    for (int i = 0; i < 16; i++)
        snprintf(ret + 2 * i, 3, "%02x", seed[i]);
}

int files_open(struct files *files, const char *path, const uint8_t seed[16], const char *model,
               char *err, size_t err_bytes)
{
    *files = (struct files){.model_folder = -1, .lock = -1};
    memcpy(files->seed, seed, sizeof(files->seed));
    name_model(seed, files->model);
    char name[2 * STORE_FOLDER_NAME];
    int rc = files->folder = store_folder_open(path, true, false);
    if (rc < 0)
        return files_say(rc, path, "", err, err_bytes);
    rc = files->model_folder = store_folder_enter(files->folder, files->model, true);
    if (rc < 0)
        return files_say(rc, path, files->model, err, err_bytes);
    snprintf(name, sizeof(name), "%s/model", files->model);
    rc = files->lock = store_folder_lock(files->model_folder, true);
    if (rc < 0)
        return files_say(rc, path, name, err, err_bytes);
    if (punch(files->lock, STORE_FILE_BLOCK, STORE_FILE_BLOCK) == -EOPNOTSUPP)
        return fail(err, err_bytes, -EOPNOTSUPP,
                    "the file system of %s cannot free parts of files: give a folder on another "
                    "one",
                    path);
    rc = write_name(files->lock, model);
    return rc < 0 ? files_say(rc, path, name, err, err_bytes) : 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void files_close(struct files *files)
{
    for (uint32_t i = 0; i < files->n_segments; i++)
        close_fd(&files->segments[i].fd);
    free(files->segments);
    close_fd(&files->lock);
    close_fd(&files->model_folder);
    close_fd(&files->folder);
    files->segments = NULL;
    files->n_segments = 0;
}

/* ---- segments ---------------------------------------------------------------------------------- */

static int open_segment(const struct files *files, uid_t uid, uint32_t number, int flags)
{
    char user[STORE_FOLDER_NAME], name[STORE_FOLDER_NAME];
    snprintf(user, sizeof(user), "%u", uid);
    store_folder_segment_name(number, name);
    int folder = store_folder_enter(files->model_folder, user, (flags & O_CREAT) != 0);
    if (folder < 0)
        return folder;
    int fd = store_folder_file(folder, name, flags);
    close(folder);
    return fd;
}

static void remove_segment(struct files *files, struct files_segment *s)
{
    char user[STORE_FOLDER_NAME], name[STORE_FOLDER_NAME];
    if (s->fd < 0 || !files_may(files))
        return;
    close_fd(&s->fd);
    snprintf(user, sizeof(user), "%u", s->uid);
    store_folder_segment_name(s->number, name);
    int folder = store_folder_enter(files->model_folder, user, false);
    if (folder < 0)
        return;
    unlinkat(folder, name, 0);
    close(folder);
}

int files_need(struct files *files, uint32_t segment, uint32_t number, uid_t uid,
               enum store_class class)
{
    struct files_segment *s = &files->segments[segment];
    struct stat st;
    if (s->fd >= 0)
        return fstat(s->fd, &st) < 0 ? -errno : st.st_nlink == 0 ? -ENOENT : 0;
    *s = (struct files_segment){.fd = -1, .number = number, .uid = uid};
    format_header(&s->header, files->seed, class, uid, files->class_bytes[class]);
    if (!files_may(files))
        return 0;
    int fd = open_segment(files, uid, number, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    s->fd = fd;
    int rc = files_write(files, fd, &s->header, sizeof(s->header), 0);
    if (rc < 0) /* of what follows it nothing would be found again */
        remove_segment(files, s);
    return rc;
}

static void erase_slot(const struct files *files, const struct files_segment *s, uint32_t slot)
{
    static const struct store_file_entry none;
    if (s->fd < 0)
        return;
    files_write(files, s->fd, &none, sizeof(none), format_entry_at(slot));
    if (files_may(files))
        punch(s->fd, format_slot_at(&s->header, slot), s->header.slot_bytes);
}

void files_let_go(struct files *files, const struct index_gone *gone)
{
    if (gone->kind == GONE_SLOT)
        erase_slot(files, &files->segments[gone->id], gone->slot);
    else if (gone->kind == GONE_SEGMENT)
        remove_segment(files, &files->segments[gone->id]);
    else if (files_may(files)) {
        const char *model = files->others[gone->id].model;
        int folder = store_folder_enter(files->folder, model, false);
        int lock = folder < 0 ? folder : store_folder_lock(folder, false);
        if (lock != -EBUSY)
            store_folder_clear_model(files->folder, model);
        close_fd(&lock);
        close_fd(&folder);
    }
}

/* ---- finding what is there --------------------------------------------------------------------- */

struct load {
    struct files *files;
    struct store_index *index;
    struct store_file_entry *entries; /* of a segment */
    uid_t uid;
};

/* Returns 0 or -errno: they could not be read. Those that the file ends before are free. */
static int load_entries(const struct load *l, struct files_segment *s, uint32_t segment,
                        uint64_t file_bytes)
{
    const uint32_t n = s->header.n_slots;
    memset(l->entries, 0, n * sizeof(*l->entries));
    int rc = files_read(s->fd, l->entries, n * sizeof(*l->entries), format_entry_at(0));
    if (rc < 0 && rc != -ENODATA)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        const struct store_file_entry *entry = &l->entries[i];
        struct store_text text;
        bool is_whole = format_slot_at(&s->header, i) + s->header.payload_bytes <= file_bytes &&
                        format_read(entry, &s->header, &text);
        if (!is_whole || !index_load(l->index, segment, i, &text, entry->cost_ns, entry->inflation,
                                     entry->payload))
            l->entries[i].used = 0;
    }
    return 0;
}

/* What a stop left in the middle takes space that is not counted. */
static void free_rest(const struct load *l, const struct files_segment *s, uint32_t segment,
                      uint64_t blocks)
{
    const uint64_t n = l->index->segments[segment].n_taken;
    if (blocks * 512 <= n * s->header.slot_bytes + s->header.slots_at)
        return;
    for (uint32_t i = 0; i < s->header.n_slots; i++)
        if (!l->entries[i].used)
            erase_slot(l->files, s, i);
}

/* The descriptor of a file of our name, whose header is as it has to be. */
static int open_found(const struct load *l, int folder, const char *name,
                      struct store_file_header *ret, struct stat *st)
{
    struct store_file_header found;
    int fd = store_folder_file(folder, name, O_RDWR);
    if (fd < 0)
        return fd;
    int rc = fstat(fd, st) < 0 ? -errno : files_read(fd, &found, sizeof(found), 0);
    if (rc == 0 && (found.class >= STORE_CLASSES || l->files->class_bytes[found.class] == 0))
        rc = -EBADMSG;
    if (rc == 0) {
        format_header(ret, l->files->seed, found.class, l->uid, l->files->class_bytes[found.class]);
        rc = memcmp(ret, &found, sizeof(found)) != 0 ? -EBADMSG : 0;
    }
    if (rc == 0)
        return fd;
    close(fd);
    return rc == -ENODATA ? -EBADMSG : rc;
}

static int load_segment(void *context, int folder, const char *name)
{
    const struct load *l = context;
    struct files_segment found = {.uid = l->uid};
    struct stat st;
    if (!store_folder_is_segment(name, &found.number))
        return 0;
    if (found.number >= l->index->next_number)
        l->index->next_number = found.number + 1;
    found.fd = open_found(l, folder, name, &found.header, &st);
    if (found.fd == -EBADMSG) {
        log_warning("store: %s/%u/%s is damaged, or of another version: removed", l->files->model,
                    l->uid, name);
        unlinkat(folder, name, 0);
    } else if (found.fd < 0) {
        log_warning("store: %s/%u/%s is not used: %s", l->files->model, l->uid, name,
                    files_why(found.fd));
    }
    if (found.fd < 0)
        return 0;
    uint32_t segment = index_segment(l->index, l->uid, found.header.class, found.number);
    if (segment == STORE_NONE) {
        log_warning("store: there are more files than --kv-store-bytes allows: %s/%u/%s is removed",
                    l->files->model, l->uid, name);
        close(found.fd);
        unlinkat(folder, name, 0);
        return 0;
    }
    l->files->segments[segment] = found;
    int rc = load_entries(l, &l->files->segments[segment], segment, (uint64_t)st.st_size);
    if (rc < 0) { /* not damaged: the next start may read it */
        log_warning("store: %s/%u/%s is not used: %s", l->files->model, l->uid, name,
                    files_why(rc));
        close_fd(&l->files->segments[segment].fd);
        return 0;
    }
    free_rest(l, &found, segment, (uint64_t)st.st_blocks);
    index_loaded(l->index, segment);
    if (l->index->n_gone > 0)
        files_let_go(l->files, &l->index->gone[0]);
    return 0;
}

static int load_user(void *context, int folder, const char *name)
{
    struct load *l = context;
    if (!store_folder_is_user(name, &l->uid))
        return 0;
    if (!overflow_uid_shares(l->uid)) {
        store_folder_clear_user(folder, name);
        return 0;
    }
    int user = store_folder_enter(folder, name, false);
    if (user < 0) {
        log_warning("store: %s/%s is not used: %s", l->files->model, name, files_why(user));
        return 0;
    }
    int rc = store_folder_list(user, load_segment, l);
    close(user);
    return rc;
}

/* ---- other models ------------------------------------------------------------------------------ */

static int add_user(void *context, int folder, const char *name)
{
    uint64_t *bytes = context, more;
    uid_t uid;
    int user = store_folder_is_user(name, &uid) ? store_folder_enter(folder, name, false) : -1;
    if (user < 0)
        return 0;
    if (store_folder_bytes(user, &more) == 0)
        *bytes += more;
    close(user);
    return 0;
}

/* A model that a running daemon serves counts for that one. */
static int add_other(void *context, int folder, const char *name)
{
    struct files *files = context;
    struct files_other other = {0};
    struct stat st;
    if (!store_folder_is_model(name) || !strcmp(name, files->model) ||
        files->n_others == INDEX_MODELS)
        return 0;
    int model = store_folder_enter(folder, name, false);
    if (model >= 0 && !store_folder_is_locked(model)) {
        snprintf(other.model, sizeof(other.model), "%s", name);
        if (fstatat(model, "model", &st, AT_SYMLINK_NOFOLLOW) == 0)
            other.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        store_folder_list(model, add_user, &other.bytes);
        files->others[files->n_others++] = other;
    }
    close_fd(&model);
    return 0;
}

static int by_use(const void *a, const void *b)
{
    const struct files_other *x = a, *y = b;
    return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

/* ------------------------------------------------------------------------------------------------ */

static size_t most_slots(const struct files *files)
{
    size_t most = 1;
    for (int i = 0; i < STORE_CLASSES; i++)
        if (files->class_bytes[i] && format_slots(files->class_bytes[i]) > most)
            most = format_slots(files->class_bytes[i]);
    return most;
}

int files_load(struct files *files, struct store_index *index)
{
    struct load l = {.files = files, .index = index};
    bool more = true;
    files->segments = calloc(index->n_segments, sizeof(*files->segments));
    l.entries = calloc(most_slots(files), sizeof(*l.entries));
    if (!files->segments || !l.entries) {
        free(l.entries);
        return -ENOMEM;
    }
    files->n_segments = index->n_segments;
    for (uint32_t i = 0; i < files->n_segments; i++)
        files->segments[i].fd = -1;
    store_folder_list(files->folder, add_other, files);
    qsort(files->others, files->n_others, sizeof(*files->others), by_use);
    for (uint32_t i = 0; i < files->n_others; i++)
        index_other(index, files->others[i].bytes);
    int rc = store_folder_list(files->model_folder, load_user, &l);
    free(l.entries);
    while (more) {
        more = index_shrink(index);
        for (uint32_t i = 0; i < index->n_gone; i++)
            files_let_go(files, &index->gone[i]);
    }
    if (index->evicted > 0 || index->next_other > 0)
        log_info("store: %llu records and %u folders of other models gave way to --kv-store-bytes",
                 (unsigned long long)index->evicted, index->next_other);
    return rc;
}
