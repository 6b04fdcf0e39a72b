/* weights_cache.h: keeps the weights of a model, as its backend lays them out, in a file of a folder,
 * and maps that file at the next start (--weights-cache DIR).
 *
 *   NAME.weights   NAME: the hash of the model's keys and list of tensors
 *     0              struct weights_header
 *     ...            [n_tensors][16] hashes of the tensors' data, for the model's fingerprint; zeros
 *                    where none was known, as of some of a draft model's
 *     image_at       [image_bytes] the image (backend_info.image), from a multiple of 2 MiB on, so that
 *                    huge pages can map it
 *   NAME.tmp       the same while it is written. Its writer holds a lock on it: one daemon at a time.
 *                    One that was left behind by a killed writer is overwritten by the next.
 *
 * A file is used if its header says that it was made by this version of hearth, for this layout, from
 * the model's files with their present sizes and times of change. Whether its contents are those that
 * were written is found out by a thread of low priority that reads it once. A file that cannot be used
 * is replaced after the first answer, by another thread of low priority. Nothing removes files of
 * models that are not served any more.
 *
 * The file is never written to once it has its name, only replaced; if someone cuts it off while it is
 * mapped, SIGBUS ends the daemon.
 *
 * The folder and the file must belong to our user, and no other user may write to them: they replace
 * the model. What goes wrong with either is one line of the log; the daemon then works without.
 *
 * Main thread, which is the control thread. Owns its threads, descriptors and the mapping. */
#ifndef HEARTH_DAEMON_MODEL_WEIGHTS_CACHE_H
#define HEARTH_DAEMON_MODEL_WEIGHTS_CACHE_H

#include "kernels/model/model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weights_header {
    char magic[16];
    char version[32];             /* of hearth */
    char layout[32];              /* backend_ops.layout */
    uint8_t model[16], files[16]; /* hashes of its keys and list of tensors; of its files' sizes and
                                     times of change */
    uint64_t n_tensors, image_at, image_bytes;
    uint8_t image_hash[16];
    uint8_t hash[16]; /* of all above, and of the tensors' hashes */
};

struct weights_cache {
    const struct model *model;
    const char *path;             /* of the folder; NULL: not opened */
    char name[48], temporary[48]; /* of the files */
    int dir_fd, fd;               /* -1: the folder, or the file, cannot be used */
    char why[160];                /* why not: the end of a sentence */
    struct weights_header header; /* of the file that is used, or that is to be written */
    uint8_t *mapping;             /* of the file that is used, or NULL */
    const uint8_t *image;         /* [header.image_bytes] to be written */
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    void (*on_damage)(void);
    int damage; /* -EBADMSG: the thread found it damaged, with its line */
    char line[512];
};

/* Looks for the model's weights in the folder `path`, which is made if it does not exist; both must
 * stay valid. If they are there, notes the hashes of tensors that it holds and returns the
 * image, [*ret_bytes], valid until the close; else NULL. Logs a warning if the folder cannot be used. */
const void *weights_cache_open(struct weights_cache *cache, const char *path,
                               const struct model *model, const char *layout, size_t *ret_bytes);

/* One line: whether the file is used, and why not. Also of a cache that was closed, because the instance
 * has no image. */
void weights_cache_describe(const struct weights_cache *cache, char *text, size_t text_bytes);

/* Reads all of the file, if one is used. Returns 0; or with a line -EBADMSG: it was damaged, and is
 * removed; another error: it could not be read, and stays. */
int weights_cache_check(struct weights_cache *cache, char *err, size_t err_bytes);

/* The same on a thread, which calls on_damage, and only logs that it could not read;
 * weights_cache_stop returns what it found. */
void weights_cache_watch(struct weights_cache *cache, void (*on_damage)(void));

/* Where no file is used, begins to write one, on a thread; the image [bytes] must stay valid until
 * weights_cache_stop. What hashes of tensors are known then is kept beside it. */
void weights_cache_write(struct weights_cache *cache, const void *image, size_t bytes);

/* Ends the thread, if there is one; a file that is not complete is removed. Returns 0, or the error of
 * a check with its line. */
int weights_cache_stop(struct weights_cache *cache, char *err, size_t err_bytes);

/* Waits for the thread to end by itself, for tests. */
void weights_cache_wait(struct weights_cache *cache);

/* Stops, and unmaps the image. Also after a failed open, and twice. */
void weights_cache_close(struct weights_cache *cache);

#endif
