/*
 * files: the folder of a store and its segments, as descriptors.
 *
 * The main thread while the store is opened and closed, the store's thread meanwhile. Blocks. Owns all
 * descriptors; a segment's is opened when the store is, or when its first record is written. Errors are
 * -errno; a segment that cannot be used is named in a line of the log.
 */
#ifndef HEARTH_DAEMON_STORE_FILES_H
#define HEARTH_DAEMON_STORE_FILES_H

#include "daemon/store/format.h"
#include "daemon/store/index.h"
#include "ipc/store_folder.h"

struct files_segment {
    int fd; /* -1: the file does not exist, or not yet */
    uint32_t number;
    uid_t uid;
    struct store_file_header header;
};

struct files_other {
    char model[STORE_FOLDER_NAME];
    uint64_t bytes;
    int64_t used_ns; /* when its daemon started */
};

struct files {
    int folder, model_folder, lock;
    uint8_t seed[16];
    char model[STORE_FOLDER_NAME];
    size_t class_bytes[STORE_CLASSES];
    struct files_segment *segments;          /* [n_segments], as the index has them */
    struct files_other others[INDEX_MODELS]; /* [n_others], the least recently used first */
    uint32_t n_segments, n_others;
    bool slots_unread; /* a user's named slots could not be read: the next start may (slots.h) */
    /* Tests: bytes that are still written, and as many steps that are still done; then all is as if the
     * machine had stopped, but reported as done. NULL: no such end. */
    uint64_t *cut;
};

/* Opens and locks the folders: for the model of `seed`, called `model`. Returns 0; or with one line -EBUSY,
 * -EPERM, -ELOOP, -EOPNOTSUPP, -errno. Call files_close in either case. */
int files_open(struct files *files, const char *path, const uint8_t seed[16], const char *model,
               char *err, size_t err_bytes);

/* Returns rc with that line: about the folder, or `in` it. */
int files_say(int rc, const char *path, const char *in, char *err, size_t err_bytes);
void files_close(struct files *files);

/* Fills the index, which has n_segments, with what is there; what cannot be believed is removed. -ENOMEM. */
int files_load(struct files *files, struct store_index *index);

/* The segment's file, made with its header if there is none. Returns 0 or -errno; -ENOENT: it, or a folder that
 * it is to be made in, was removed. */
int files_need(struct files *files, uint32_t segment, uint32_t number, uid_t uid,
               enum store_class class);

/* Reads or writes all of it. Returns 0; -ENODATA: the file ends before; -errno. */
int files_read(int fd, void *data, size_t bytes, uint64_t at);
int files_write(const struct files *files, int fd, const void *data, size_t bytes, uint64_t at);

/* Does what the index has let go of. */
void files_let_go(struct files *files, const struct index_gone *gone);

/* Why a file or folder of the store is not used or written, and what to do, for a line of the log. */
const char *files_why(int rc);

/* May the next step be done? (files.cut) */
bool files_may(const struct files *files);

#endif
