/* disk: the models on this disk: which one a name means, and what it needs, found by a thread of its
 * own (client/models/), since folders and files may be slow. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_DISK_H
#define HEARTH_CLIENT_HTTP_DISK_H

#include "client/http/fail.h"
#include "client/http/worker.h"
#include "client/models/models.h"

#include <jansson.h>
#include <stdbool.h>

enum { DISK_NAME_BYTES = 256 };

struct disk {
    struct worker worker;
    struct models models; /* the worker's own, as is what follows */
    uint64_t looked_ns;
};

/* What a model needs under a budget: its weights, and for KV a quarter of what the budget leaves
 * beside them, or less, where its slots cannot fill that, but no less than a text needs. */
struct disk_needs {
    struct task task;
    struct disk *disk;
    char name[DISK_NAME_BYTES]; /* in */
    uint64_t budget_bytes;      /* in */
    uint64_t bytes, kv_bytes;
    struct fail fail; /* fail.status 0: it can be served */
};

/* Returns 0 or -errno. */
int disk_open(struct disk *d, struct reactor *loop);
void disk_close(struct disk *d);

/* Is there a model of this name? Then `name` becomes the one that hearth serve takes. On the worker's
 * thread, by a task of the caller. */
bool disk_find(struct disk *d, char name[DISK_NAME_BYTES]);

/* All models, as a JSON array that the caller owns: `name` and the file's `bytes`. Called on the
 * worker's thread, from a task. */
json_t *disk_list(struct disk *d);

/* Measures in the worker; then q->task.done is called. */
void disk_measure(struct disk *d, struct disk_needs *q);

#endif
