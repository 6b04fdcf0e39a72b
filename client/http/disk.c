/* disk: see disk.h. */
#include "client/http/disk.h"

#include "client/http/served.h"
#include "client/models/describe.h"
#include "ipc/bell.h"

#include <inttypes.h>
#include <string.h>

/* For so long the list of files is taken for right: a program that asks with a name that no model
 * has, at each keystroke, does not make the disk be searched each time. */
#define LOOK_AGAIN_NS 5000000000ull

int disk_open(struct disk *d, struct reactor *loop)
{
    *d = (struct disk){0};
    return worker_open(&d->worker, loop, NULL);
}

void disk_close(struct disk *d)
{
    worker_close(&d->worker);
    models_fini(&d->models);
}

static void look(struct disk *d)
{
    uint64_t now = bell_now_ns();
    if (d->looked_ns && now - d->looked_ns < LOOK_AGAIN_NS)
        return;
    models_fini(&d->models);
    (void)models_find(&d->models); /* without memory: those that were found */
    d->looked_ns = now;
}

static const struct model_file *find_exactly(const struct disk *d, const char *name, size_t bytes)
{
    for (size_t i = 0; i < d->models.n; i++)
        if (strncasecmp(d->models.files[i].name, name, bytes) == 0 &&
            !d->models.files[i].name[bytes])
            return &d->models.files[i];
    return NULL;
}

/* The file of that name, or NULL. */
static const struct model_file *find(struct disk *d, const char *name)
{
    static const char tag[] = ":latest"; /* Ollama's clients add it */
    const size_t bytes = strlen(name), tail = sizeof(tag) - 1;
    look(d);
    const struct model_file *file = find_exactly(d, name, bytes);
    if (!file && bytes > tail && strcasecmp(name + bytes - tail, tag) == 0)
        file = find_exactly(d, name, bytes - tail);
    if (file)
        return file; /* before one whose name is only much like it */
    for (size_t i = 0; i < d->models.n; i++)
        if (served_is_same(d->models.files[i].name, name))
            return &d->models.files[i];
    return NULL;
}

json_t *disk_list(struct disk *d)
{
    json_t *list = json_array();
    look(d);
    for (size_t i = 0; i < d->models.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "name", d->models.files[i].name,
                                              "bytes", (json_int_t)d->models.files[i].bytes));
    return list;
}

bool disk_find(struct disk *d, char name[DISK_NAME_BYTES])
{
    const struct model_file *file = find(d, name);
    if (!file || strlen(file->name) >= DISK_NAME_BYTES)
        return false;
    snprintf(name, DISK_NAME_BYTES, "%s", file->name);
    return true;
}

static void fail_too_large(struct disk_needs *q, uint64_t bytes)
{
    fail_set(&q->fail, 503, FAIL_UNAVAILABLE,
             "%.120s needs %" PRIu64 " MiB, more than --budget, %" PRIu64
             " MiB: give a larger one, or take a smaller model",
             q->name, (bytes >> 20) + 1, q->budget_bytes >> 20);
}

static int describe(struct disk_needs *q, const char *path, const char *kv_bytes,
                    struct description *ret)
{
    const struct description_wish wish = {.kv_bytes = kv_bytes};
    char hearthd[PATH_MAX], err[PATH_MAX + 128];
    int rc = describe_find_own("hearthd", hearthd);
    if (rc)
        fail_set(&q->fail, 503, FAIL_UNAVAILABLE,
                 "hearthd is neither in the folder of hearth-http nor in $PATH: install it");
    else if ((rc = describe_file(hearthd, path, &wish, ret, err, sizeof(err))) < 0)
        fail_set(&q->fail, 503, FAIL_UNAVAILABLE, "%s", err);
    else if (ret->refused[0])
        rc = fail_set(&q->fail, 501, FAIL_NOT_SUPPORTED, "%.120s is not served: %s", q->name,
                      ret->refused);
    return rc;
}

static void measure(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct disk_needs *q = (struct disk_needs *)t; /* its first member */
    const struct model_file *file = find(q->disk, q->name);
    struct description all, some;
    char kv_text[32];
    (void)h, (void)rc, (void)err;
    if (!file) {
        fail_set(&q->fail, 404, FAIL_NOT_FOUND,
                 "no model '%.120s' lies on this disk: hearth models lists those that do", q->name);
        return;
    }
    if (describe(q, file->path, NULL, &all) < 0)
        return;
    uint64_t weights = all.needs_bytes - all.kv_bytes;
    if (weights >= q->budget_bytes) {
        fail_too_large(q, weights);
        return;
    }
    q->kv_bytes = (q->budget_bytes - weights) / 4;
    if (q->kv_bytes < all.least_kv_bytes)
        q->kv_bytes = all.least_kv_bytes;
    if (q->kv_bytes > all.kv_bytes)
        q->kv_bytes = all.kv_bytes;
    snprintf(kv_text, sizeof(kv_text), "%" PRIu64, q->kv_bytes);
    if (describe(q, file->path, kv_text, &some) < 0)
        return;
    q->bytes = some.needs_bytes;
    if (q->bytes > q->budget_bytes)
        fail_too_large(q, q->bytes);
}

void disk_measure(struct disk *d, struct disk_needs *q)
{
    q->disk = d;
    q->task.work = measure;
    q->task.alone = true;
    worker_give(&d->worker, &q->task);
}
