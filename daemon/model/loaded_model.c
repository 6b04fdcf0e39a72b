/* Loading: GGUF -> model and vocabulary -> backend, with limits worked out from the options. */
#include "daemon/model/loaded_model_impl.h"

#include "ipc/layout.h"
#include "kernels/kv.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies a GGUF string, cut to fit, with a terminating zero. */
static void copy_string(char *to, size_t to_bytes, const struct gguf_string *from)
{
    size_t n = from->bytes < to_bytes - 1 ? from->bytes : to_bytes - 1;

    if (n)
        memcpy(to, from->data, n);
    to[n] = 0;
}

/* What clients are shown: the file's own name for the model, else the path's last part. */
static void take_name(struct resident *resident, const char *path)
{
    const char *slash = strrchr(path, '/');

    copy_string(resident->name, sizeof(resident->name), &resident->model->name);
    if (!resident->name[0])
        snprintf(resident->name, sizeof(resident->name), "%s", slash ? slash + 1 : path);
    for (char *c = resident->name; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

int resident_open_file(struct resident *resident, const char *path, char *err, size_t err_bytes)
{
    char line[512];
    int rc = gguf_open(path, &resident->gguf, line, sizeof(line));

    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", path, line);
    return rc == -EINVAL ? -EBADMSG : rc; /* -EINVAL is for options; a folder is no model */
}

static uint32_t core_count(void)
{
    cpu_set_t cores;

    if (sched_getaffinity(0, sizeof(cores), &cores) < 0)
        return 1;
    return (uint32_t)CPU_COUNT(&cores);
}

static uint32_t choose_threads(const struct config *config)
{
    return config->threads ? (uint32_t)config->threads : core_count();
}

int resident_open_model(struct resident *resident, const char *path, char *err, size_t err_bytes)
{
    char line[512];
    int rc = model_open(resident->gguf, &resident->model, line, sizeof(line));

    resident->path = path;
    if (rc == 0)
        rc = resident_start_vocab(resident, line, sizeof(line));
    if (rc < 0) {
        snprintf(err, err_bytes, "%s: %s", path, line);
        return rc;
    }
    take_name(resident, path);
    return 0;
}

int resident_open_draft(struct resident *resident, const struct config *config, char *err,
                        size_t err_bytes)
{
    char line[512];

    if (!config->draft)
        return 0;
    resident->draft = calloc(1, sizeof(*resident->draft));
    if (!resident->draft) {
        snprintf(err, err_bytes, "not enough memory for the draft model");
        return -ENOMEM;
    }
    int rc = resident_open_file(resident->draft, config->draft, err, err_bytes);
    if (rc == 0)
        rc = resident_open_model(resident->draft, config->draft, err, err_bytes);
    if (rc == 0)
        rc = resident_finish_vocab(resident, err, err_bytes);
    if (rc == 0)
        rc = resident_finish_vocab(resident->draft, err, err_bytes);
    if (rc < 0)
        return rc;
    rc = resident_compare_vocab(&resident->vocab, &resident->draft->vocab, line, sizeof(line));
    if (rc == 0 && resident->draft->model->n_vocab != resident->model->n_vocab) {
        snprintf(line, sizeof(line), "the draft model's output has %u tokens, the model's has %u",
                 resident->draft->model->n_vocab, resident->model->n_vocab);
        rc = -ENOTSUP;
    }
    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", config->draft, line);
    resident_close_vocab(resident->draft); /* it was there to be compared */
    return rc;
}

/* What KV may take where nobody says: a quarter of the machine's memory, or three quarters of what the
 * weights leave of a GPU's. */
static uint64_t kv_share(const struct resident *resident)
{
    uint64_t weights = resident->model->tensor_bytes, room = resident->device.free_bytes;

    if (resident->draft)
        weights += resident->draft->model->tensor_bytes;
    if (room > 0)
        return room > weights ? (room - weights) / 4 * 3 : 0;
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
}

/* Bytes of a page on the device: the draft model's instance has as many as the model's. */
static uint64_t page_bytes(const struct resident *resident)
{
    const bool q8_0 = resident->limits.kv_q8_0;
    struct kv_geometry own, draft = {0};

    kv_geometry_init(&own, resident->model, q8_0);
    if (resident->draft)
        kv_geometry_init(&draft, resident->draft->model, q8_0);
    return own.page_bytes + draft.page_bytes;
}

/* Pages: what all slots need at most, within kv_share or --kv-bytes; never less than one whole
 * context, so that every request that fits the context can run. The draft model's KV is part of it. */
static int choose_pages(struct resident *resident, const struct config *config, char *err,
                        size_t err_bytes)
{
    const uint64_t one = kv_pages(resident->limits.context), page = page_bytes(resident);
    uint64_t budget = config->kv_bytes;

    if (!budget) {
        budget = kv_share(resident);
        if (budget < one * page)
            budget = one * page;
        if (budget > config->slots * one * page)
            budget = config->slots * one * page;
    }
    const uint64_t most = UINT32_MAX / KV_PAGE_POSITIONS, pages = budget / page;
    if (pages > most) {
        snprintf(err, err_bytes,
                 "kv-bytes %llu holds %llu pages, at most %llu can be: give at most %llu",
                 (unsigned long long)budget, (unsigned long long)pages, (unsigned long long)most,
                 (unsigned long long)most * page);
        return -EINVAL;
    }
    if (pages < one) {
        snprintf(err, err_bytes,
                 "kv-bytes %llu holds %llu pages, a context of %u needs %llu: give at least %llu",
                 (unsigned long long)budget, (unsigned long long)pages, resident->limits.context,
                 (unsigned long long)one, (unsigned long long)one * page);
        return -EINVAL;
    }
    resident->limits.pages = (uint32_t)pages;
    return 0;
}

/* --isa and --shadow are of the CPU: who asks for one does not mean a GPU by auto. */
static int choose_device(struct resident *resident, const struct config *config, char *err,
                         size_t err_bytes)
{
    enum device_wanted wanted = DEVICE_AUTO;
    char name[16];

    config_choice("device", config->device, name, sizeof(name));
    device_parse(name, &wanted);
    if (wanted == DEVICE_AUTO && (config->isa != 0 || config->shadow == 1))
        wanted = DEVICE_CPU;
    int rc = device_choose(wanted, &resident->device, err, err_bytes);
    resident->ops = resident->device.ops;
    return rc < 0 ? rc : resident->ops->probe(err, err_bytes);
}

static int open_instance(struct resident *resident, char *err, size_t err_bytes)
{
    int rc =
        resident->ops->open(resident->model, &resident->limits, &resident->backend, err, err_bytes);

    if (rc == 0)
        resident->ops->describe(resident->backend, &resident->info);
    return rc;
}

/* The draft model on the same device, with KV for as many positions as the model has, in a context
 * of its own that may be shorter. */
static int open_draft_instance(struct resident *resident, char *err, size_t err_bytes)
{
    struct resident *draft = resident->draft;
    char line[512];

    if (!draft)
        return 0;
    draft->ops = resident->ops;
    draft->limits = resident->limits;
    draft->limits.shadow = false;
    draft->limits.drafts = true;
    if (draft->limits.context > draft->model->n_context)
        draft->limits.context = draft->model->n_context;
    int rc = open_instance(draft, line, sizeof(line));
    if (rc < 0)
        snprintf(err, err_bytes, "the draft model: %s", line);
    return rc;
}

static int open_on_device(struct resident *resident, const struct config *config, char *err,
                          size_t err_bytes)
{
    int rc = choose_pages(resident, config, err, err_bytes);

    if (rc == 0)
        rc = open_instance(resident, err, err_bytes);
    return rc < 0 ? rc : open_draft_instance(resident, err, err_bytes);
}

static void close_instances(struct resident *resident)
{
    if (resident->ops && resident->backend)
        resident->ops->close(resident->backend);
    resident->backend = NULL;
    if (resident->draft)
        close_instances(resident->draft);
}

static int open_backend(struct resident *resident, const struct config *config, char *err,
                        size_t err_bytes)
{
    static const char *const isas[] = {NULL, "ref", "avx2", "avxvnni", "avx512"};
    struct backend_limits *limits = &resident->limits;
    int rc = choose_device(resident, config, err, err_bytes);

    if (rc < 0)
        return rc;
    limits->rows = (uint32_t)config->rows;
    limits->picks = limits->rows < 64 ? limits->rows : 64;
    limits->context = config->context ? (uint32_t)config->context : resident->model->n_context;
    if (limits->context > LIMIT_CONTEXT_MAX)
        limits->context = LIMIT_CONTEXT_MAX;
    limits->threads = choose_threads(config);
    limits->isa = isas[config->isa];
    limits->shadow = config->shadow == 1;
    limits->kv_q8_0 = config->kv_type == 1;
    limits->native = config->numerics == 1;
    rc = open_on_device(resident, config, err, err_bytes);
    /* Nobody asked for the GPU by name, and the model does not fit it or cannot run there, or the
     * plugin has no code for it. */
    if ((rc == -ENOMEM || rc == -ENOTSUP || rc == -EIO) && resident->device.ops != &backend_cpu &&
        config->device == 0) {
        close_instances(resident);
        device_choose(DEVICE_CPU, &resident->device, err, err_bytes);
        snprintf(resident->device.why, sizeof(resident->device.why), "device cpu: %.200s", err);
        err[0] = 0; /* told there: no reason of what may fail from here on */
        resident->ops = resident->device.ops;
        rc = open_on_device(resident, config, err, err_bytes);
    }
    return rc;
}

/* The weights are in the backend now. */
static void leave_file(struct resident *resident)
{
    gguf_close_file(resident->gguf);
    gguf_drop_pages(resident->gguf);
}

/* The fingerprint last: a backend that read the weights has hashed them, too. */
int resident_open_backend(struct resident *resident, const struct config *config, char *err,
                          size_t err_bytes)
{
    int rc = open_backend(resident, config, err, err_bytes);
    int vocab_rc =
        resident_finish_vocab(resident, err, err_bytes); /* its line goes over the other */

    if (vocab_rc < 0 || rc < 0)
        return vocab_rc < 0 ? vocab_rc : rc;
    rc = model_fingerprint(resident->model, resident->limits.threads, resident->fingerprint);
    if (rc < 0)
        snprintf(err, err_bytes, "cannot fingerprint the model: %s", strerror(-rc));
    leave_file(resident);
    if (resident->draft)
        leave_file(resident->draft);
    return rc;
}

void resident_close(struct resident *resident)
{
    resident_finish_vocab(resident, NULL, 0);
    close_instances(resident);
    if (resident->draft) {
        resident_close(resident->draft);
        free(resident->draft);
    }
    resident_close_vocab(resident);
    model_close(resident->model);
    gguf_close(resident->gguf);
    memset(resident, 0, sizeof(*resident));
}
