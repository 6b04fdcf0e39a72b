/* loaded_model.c: loads GGUF -> model and vocabulary -> backend, with limits derived from the
 * options. */
#include "daemon/model/available_memory.h"
#include "daemon/model/loaded_model_impl.h"

#include "daemon/model/progress.h"

#include "ipc/layout.h"
#include "kernels/base/fail.h"
#include "kernels/kv.h"
#include "kernels/state.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies a GGUF string, cut to fit, with a terminating zero. */
static void copy_string(char *to, size_t to_bytes, const struct gguf_string *from)
{
    size_t n = from->bytes < to_bytes - 1 ? from->bytes : to_bytes - 1;
    if (n)
        memcpy(to, from->data, n);
    to[n] = 0;
}

/* The name shown to clients: the one in the file, else the last part of the path. */
static void take_name(struct loaded_model *loaded, const char *path)
{
    const char *slash = strrchr(path, '/');
    copy_string(loaded->name, sizeof(loaded->name), &loaded->model->name);
    if (!loaded->name[0])
        snprintf(loaded->name, sizeof(loaded->name), "%s", slash ? slash + 1 : path);
    for (char *c = loaded->name; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

int loaded_model_open_file(struct loaded_model *loaded, const char *path, char *err,
                           size_t err_bytes)
{
    char line[512];
    int rc = gguf_open_parts(path, &loaded->gguf, line, sizeof(line));
    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", path, line);
    return rc == -EINVAL ? -EBADMSG
                         : rc; /* -EINVAL is reserved for options; a directory cannot be a model */
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

/* Tokens that are in the vocabulary for the model's input alone: it was not trained to write them. */
static int read_suppressed(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    static const char NAME[] = "tokenizer.ggml.suppress_tokens";
    enum { MOST = 1024 };
    const uint32_t n_vocab = loaded->model->n_vocab;
    struct gguf_array array = {0};
    const int rc = gguf_array(loaded->gguf, NAME, &array);
    if (rc == -ENOENT)
        return 0;
    if (rc || array.type > GGUF_I32 || array.count > MOST) {
        snprintf(err, err_bytes, "malformed: %s must be at most %d whole numbers", NAME, MOST);
        return -EBADMSG;
    }
    loaded->suppressed = calloc(array.count + 1, sizeof(*loaded->suppressed));
    if (!loaded->suppressed) {
        snprintf(err, err_bytes, "not enough memory for %s", NAME);
        return -ENOMEM;
    }
    for (; loaded->n_suppressed < array.count; loaded->n_suppressed++) {
        const int64_t id = gguf_array_i64(&array, loaded->n_suppressed);
        if (id < 0 || id >= n_vocab) {
            snprintf(err, err_bytes, "malformed: %s holds %lld, must be 0 to %u", NAME,
                     (long long)id, n_vocab - 1);
            return -EBADMSG;
        }
        loaded->suppressed[loaded->n_suppressed] = (uint32_t)id;
    }
    return 0;
}

int loaded_model_open_model(struct loaded_model *loaded, const char *path, const char *rope_scaling,
                            char *err, size_t err_bytes)
{
    char line[512];
    int rc = model_open_scaled(loaded->gguf, rope_scaling, &loaded->model, line, sizeof(line));
    loaded->path = path;
    if (rc == 0)
        rc = read_suppressed(loaded, line, sizeof(line));
    if (rc == 0)
        rc = loaded_model_start_vocab(loaded, line, sizeof(line));
    if (rc < 0) {
        snprintf(err, err_bytes, "%s: %s", path, line);
        return rc;
    }
    take_name(loaded, path);
    return 0;
}

int loaded_model_open_draft(struct loaded_model *loaded, const struct config *config, char *err,
                            size_t err_bytes)
{
    char line[512];
    if (!config->draft)
        return 0;
    loaded->draft = calloc(1, sizeof(*loaded->draft));
    if (!loaded->draft) {
        snprintf(err, err_bytes, "not enough memory for the draft model");
        return -ENOMEM;
    }
    loaded->draft->without_grammars = true;
    int rc = loaded_model_open_file(loaded->draft, config->draft, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_open_model(loaded->draft, config->draft, NULL, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_finish_vocab(loaded, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_finish_vocab(loaded->draft, err, err_bytes);
    if (rc < 0)
        return rc;
    rc = loaded_model_compare_vocab(&loaded->vocab, &loaded->draft->vocab, line, sizeof(line));
    if (rc == 0 && loaded->draft->model->n_vocab != loaded->model->n_vocab) {
        snprintf(line, sizeof(line), "the draft model's output has %u tokens, the model's has %u",
                 loaded->draft->model->n_vocab, loaded->model->n_vocab);
        rc = -ENOTSUP;
    }
    if (rc == 0 && loaded->draft->model->n_recurrent > 0) {
        snprintf(line, sizeof(line), "a draft model may not have recurrent layers: take another");
        rc = -ENOTSUP;
    }
    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", config->draft, line);
    loaded_model_close_vocab(loaded->draft); /* only needed for the comparison */
    return rc;
}

/* Bytes of the tensors that passes read. */
static uint64_t file_bytes(const struct model *model)
{
    return model->tensor_bytes + (model->mtp ? model->mtp->bytes : 0);
}

/* About what an instance takes beside KV: weights as the device has them, the shadow's 18 bytes for
 * 32 of them, and a pass's buffers, f32 and as blocks of int8. */
static uint64_t instance_bytes(const struct backend_ops *ops, const struct model *model,
                               const struct backend_limits *limits)
{
    uint64_t bytes = file_bytes(model) + (limits->shadow ? model->n_params / 32 * 18 : 0);
    bytes += ops->added_bytes ? ops->added_bytes(model, limits) : 0;
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        bytes +=
            (i == BUFFER_LOGITS ? limits->samples : layer_ops_rows(&model->ops, i, limits->rows)) *
            (uint64_t)model->ops.width[i] * 5;
    return bytes;
}

/* What pages take: on the device, including the draft model's, whose instance has as many. */
static void find_pages(const struct loaded_model *loaded, struct budget_facts *facts)
{
    const bool q8_0 = loaded->limits.kv_q8_0;
    const uint32_t window = kv_window(loaded->model);
    struct kv_geometry kv;
    kv_geometry_init(&kv, loaded->model, q8_0, true);
    facts->page = kv.page_bytes[PAGES_FULL] + kv.page_bytes[PAGES_WINDOW];
    if (window > 0 && kv.page_bytes[PAGES_FULL] > 0) {
        facts->window = kv.page_bytes[PAGES_WINDOW];
        facts->pass = kv_pages(window + loaded->limits.rows) + 1;
    }
    if (!loaded->draft)
        return;
    kv_geometry_init(&kv, loaded->draft->model, q8_0, false);
    facts->page += kv.page_bytes[PAGES_FULL];
}

/* What a sequence's recurrent state takes, with its records. */
static uint64_t find_state(const struct model *model)
{
    struct state_geometry state;
    state_geometry_init(&state, model);
    return state.state_bytes + state.record_bytes;
}

/* Bytes of the file's tensors, and the draft's. */
static uint64_t tensor_bytes(const struct loaded_model *loaded)
{
    return file_bytes(loaded->model) + (loaded->draft ? file_bytes(loaded->draft->model) : 0);
}

static void drop_reads(struct loaded_model *loaded)
{
    gguf_drop_reads(loaded->gguf);
    if (loaded->draft)
        gguf_drop_reads(loaded->draft->gguf);
}

/* Bytes of weights that a device leaves to the host where they do not fit (backend_limits.gpu_bytes). */
static uint64_t expert_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model->n_layer; i++)
        for (uint32_t t = MODEL_FFN_GATE_EXPS; t <= MODEL_FFN_DOWN_EXPS; t++)
            bytes += model->layers[i].tensor[t].data ? model->layers[i].tensor[t].bytes : 0;
    return bytes;
}

/* About what the draft model's instance takes. */
static uint64_t draft_bytes(const struct loaded_model *loaded, uint32_t pages)
{
    struct kv_geometry kv;
    if (!loaded->draft)
        return 0;
    kv_geometry_init(&kv, loaded->draft->model, loaded->limits.kv_q8_0, false);
    return instance_bytes(loaded->ops, loaded->draft->model, &loaded->limits) +
           (uint64_t)pages * kv.page_bytes[PAGES_FULL];
}

/* Of the device's memory: what --gpu-bytes says; where a draft model comes after experts, which take all that they get, what
 * it leaves. 0: all. */
static uint64_t choose_gpu_bytes(const struct loaded_model *loaded, const struct config *config,
                                 uint32_t pages)
{
    const uint64_t draft = draft_bytes(loaded, pages), available = loaded->facts.available;
    if (!loaded->device.free_bytes ||
        (config->gpu_bytes == 0 && (draft == 0 || loaded->model->ops.n_expert == 0)))
        return 0;
    return available > draft ? available - draft : 1;
}

/* Bytes that can be had where the model runs. */
static uint64_t find_available(const struct loaded_model *loaded, const struct config *config)
{
    const uint64_t free_bytes = loaded->device.free_bytes, most = config->gpu_bytes;
    return free_bytes == 0                 ? available_memory("")
           : most > 0 && most < free_bytes ? most
                                           : free_bytes;
}

/* Chooses the context and the number of KV pages, the draft model's included. */
static int choose_budget(struct loaded_model *loaded, const struct config *config, char *err,
                         size_t err_bytes)
{
    const uint32_t longest = loaded->model->n_context;
    struct budget chosen;
    struct budget_facts *facts = &loaded->facts;
    *facts = (struct budget_facts){
        .available = find_available(loaded, config),
        .loaded = instance_bytes(loaded->ops, loaded->model, &loaded->limits),
        .positions = KV_PAGE_POSITIONS,
        .model_context = longest < LIMIT_CONTEXT_MAX ? longest : LIMIT_CONTEXT_MAX,
        .context = (uint32_t)config->context,
        .kv_bytes = config->kv_bytes,
        .slots = config->slots,
        .state = find_state(loaded->model),
        .experts = loaded->device.free_bytes ? expert_bytes(loaded->model) : 0,
    };
    find_pages(loaded, facts);
    if (loaded->draft)
        facts->loaded += instance_bytes(loaded->ops, loaded->draft->model, &loaded->limits);
    if (loaded->model->n_recurrent == loaded->model->n_layer && !loaded->model->mtp)
        return fail(err, err_bytes, -ENOTSUP,
                    "a model of recurrent layers alone is not supported: serve another one");
    budget_leave_out(facts);
    int rc = budget_choose(facts, &chosen, err, err_bytes);
    if (rc < 0)
        return rc;
    if (facts->loaded + tensor_bytes(loaded) > available_memory(""))
        drop_reads(loaded);
    loaded->limits.context = chosen.context;
    loaded->limits.pages = chosen.pages;
    loaded->limits.window_pages = chosen.window_pages;
    loaded->limits.states = chosen.states;
    loaded->limits.gpu_bytes = choose_gpu_bytes(loaded, config, chosen.pages);
    return 0;
}

/* --isa and --shadow exist only on the CPU, so --device auto means cpu when either is given. */
static int choose_device(struct loaded_model *loaded, const struct config *config, char *err,
                         size_t err_bytes)
{
    enum device_wanted wanted = DEVICE_AUTO;
    char name[16];
    config_choice("device", config->device, name, sizeof(name));
    device_parse(name, &wanted);
    if (wanted == DEVICE_AUTO && (config->isa != 0 || config->shadow == 1))
        wanted = DEVICE_CPU;
    int rc = device_choose(wanted, &loaded->device, err, err_bytes);
    loaded->ops = loaded->device.ops;
    return rc < 0 ? rc : loaded->ops->probe(err, err_bytes);
}

static int open_instance(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    if (loaded->weights_dir && loaded->ops->layout)
        loaded->limits.image =
            weights_cache_open(&loaded->weights, loaded->weights_dir, loaded->model,
                               loaded->ops->layout, &loaded->limits.image_bytes);
    int rc = loaded->ops->open(loaded->model, &loaded->limits, &loaded->backend, err, err_bytes);
    if (rc < 0)
        return rc;
    loaded->ops->describe(loaded->backend, &loaded->info);
    if (!loaded->info.image)
        weights_cache_close(&loaded->weights);
    return 0;
}

/* Opens the draft model on the same device, with KV for as many positions as the model has; its
 * context may be shorter. */
static int open_draft_instance(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    struct loaded_model *draft = loaded->draft;
    char line[512];
    if (!draft)
        return 0;
    draft->ops = loaded->ops;
    draft->weights_dir = loaded->weights_dir;
    draft->limits = loaded->limits;
    draft->limits.shadow = false;
    draft->limits.window_pages = 0; /* it keeps whole pages (draft_kv.h) */
    draft->limits.states = 0;
    draft->limits.gpu_bytes = 0; /* what is left */
    draft->limits.drafts = true;
    if (draft->limits.context > draft->model->n_context)
        draft->limits.context = draft->model->n_context;
    int rc = open_instance(draft, line, sizeof(line));
    if (rc < 0)
        snprintf(err, err_bytes, "the draft model: %s", line);
    return rc;
}

/* auto: where canonical passes would be chains of float sums, which tensor cores cannot make; quantized models are as fast in
 * portable numerics. */
static bool choose_native(const struct loaded_model *loaded, const struct config *config)
{
    enum { AUTO, PORTABLE, NATIVE };
    if (config->numerics != AUTO)
        return config->numerics == NATIVE;
    return loaded->ops != &backend_cpu && !model_portable(loaded->model) &&
           !model_kv_f32(loaded->model);
}

static int open_on_device(struct loaded_model *loaded, const struct config *config, char *err,
                          size_t err_bytes)
{
    loaded->limits.native = choose_native(loaded, config);
    int rc = open_instance(loaded, err, err_bytes);
    return rc < 0 ? rc : open_draft_instance(loaded, err, err_bytes);
}

static void close_instances(struct loaded_model *loaded)
{
    weights_cache_stop(&loaded->weights, NULL, 0); /* it may read the instance's weights */
    if (loaded->ops && loaded->backend)
        loaded->ops->close(loaded->backend);
    loaded->backend = NULL;
    weights_cache_close(&loaded->weights);
    if (loaded->draft)
        close_instances(loaded->draft);
}

int loaded_model_plan(struct loaded_model *loaded, const struct config *config, char *err,
                      size_t err_bytes)
{
    static const char *const isas[] = {NULL, "ref", "avx2", "avxvnni", "avx512"};
    struct backend_limits *limits = &loaded->limits;
    int rc = choose_device(loaded, config, err, err_bytes);
    if (rc < 0)
        return rc;
    loaded->weights_dir = config->weights_cache;
    limits->rows = (uint32_t)config->rows;
    limits->samples = limits->rows < 64 ? limits->rows : 64;
    limits->threads = choose_threads(config);
    limits->isa = isas[config->isa];
    limits->shadow = config->shadow == 1;
    limits->kv_q8_0 = config->kv_type == 1;
    return choose_budget(loaded, config, err, err_bytes);
}

static int open_backend(struct loaded_model *loaded, const struct config *config, char *err,
                        size_t err_bytes)
{
    int rc = loaded_model_plan(loaded, config, err, err_bytes);
    if (rc < 0)
        return rc;
    rc = open_on_device(loaded, config, err, err_bytes);
    /* With --device auto: the model does not fit the GPU or cannot run there, or the plugin has no
     * code for it. Use the CPU. */
    if ((rc == -ENOMEM || rc == -ENOTSUP || rc == -EIO) && loaded->device.ops != &backend_cpu &&
        config->device == 0) {
        close_instances(loaded);
        device_choose(DEVICE_CPU, &loaded->device, err, err_bytes);
        snprintf(loaded->device.why, sizeof(loaded->device.why), "device cpu: %.200s", err);
        err[0] = 0; /* logged here: must not show up in a later failure */
        loaded->ops = loaded->device.ops;
        rc = choose_budget(loaded, config, err, err_bytes);
        if (rc == 0)
            rc = open_on_device(loaded, config, err, err_bytes);
    }
    return rc;
}

/* The weights are in the backend now: the file's pages can go. */
static void leave_file(struct loaded_model *loaded)
{
    gguf_close_file(loaded->gguf);
    gguf_drop_pages(loaded->gguf);
}

/* The fingerprint comes last: a backend that read the weights has hashed them, too. */
int loaded_model_open_backend(struct loaded_model *loaded, const struct config *config, char *err,
                              size_t err_bytes)
{
    struct progress progress;
    progress_start(&progress, loaded->name, tensor_bytes(loaded), 1000000000);
    loaded->limits.loaded = &progress.loaded;
    int rc = open_backend(loaded, config, err, err_bytes);
    loaded->limits.loaded = NULL;
    progress_stop(&progress);
    int vocab_rc =
        loaded_model_finish_vocab(loaded, err, err_bytes); /* its error line replaces the other */
    if (vocab_rc < 0 || rc < 0)
        return vocab_rc < 0 ? vocab_rc : rc;
    rc = model_fingerprint(loaded->model, loaded->limits.threads, loaded->fingerprint);
    if (rc < 0)
        snprintf(err, err_bytes, "cannot fingerprint the model: %s", strerror(-rc));
    leave_file(loaded);
    if (loaded->draft)
        leave_file(loaded->draft);
    return rc;
}

int loaded_model_check_weights(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    int rc = weights_cache_check(&loaded->weights, err, err_bytes);
    return rc || !loaded->draft ? rc : loaded_model_check_weights(loaded->draft, err, err_bytes);
}

void loaded_model_watch_weights(struct loaded_model *loaded, void (*on_damage)(void))
{
    weights_cache_watch(&loaded->weights, on_damage);
    if (loaded->draft)
        loaded_model_watch_weights(loaded->draft, on_damage);
}

void loaded_model_keep_weights(struct loaded_model *loaded)
{
    if (loaded->weights_dir)
        weights_cache_write(&loaded->weights, loaded->info.image, loaded->info.image_bytes);
    if (loaded->draft)
        loaded_model_keep_weights(loaded->draft);
}

int loaded_model_stop_weights(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    int rc = weights_cache_stop(&loaded->weights, err, err_bytes);
    return rc || !loaded->draft ? rc : loaded_model_stop_weights(loaded->draft, err, err_bytes);
}

void loaded_model_close(struct loaded_model *loaded)
{
    loaded_model_finish_vocab(loaded, NULL, 0);
    close_instances(loaded);
    if (loaded->draft) {
        loaded_model_close(loaded->draft);
        free(loaded->draft);
    }
    loaded_model_close_vocab(loaded);
    free(loaded->suppressed);
    model_close(loaded->model);
    gguf_close(loaded->gguf);
    memset(loaded, 0, sizeof(*loaded));
}
