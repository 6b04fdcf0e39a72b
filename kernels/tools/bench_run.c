/* bench_run.c: see bench_run.h. */
#include "kernels/tools/bench_run.h"

#include "kernels/base/fail.h"
#include "kernels/kv.h"
#include "kernels/model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct bench_run {
    const struct model *model;
    struct bench_sizes sizes;
    struct backend *backend;
    uint32_t length, slot_pages;  /* positions and pages of a slot */
    uint32_t *pages, *tokens;     /* [slots][slot_pages], [slots][length] */
    struct sampler_params params; /* greedy */
    struct pass_sequence sequences[BENCH_MAX_SLOTS];
    uint32_t base[BENCH_MAX_SLOTS]; /* tokens that a slot's recurrent state holds */
    struct row *rows;               /* [max_rows] */
    struct row_result *results;     /* [max_rows] */
    uint32_t max_rows;
    uint64_t expert_bytes; /* up to the last bench_run_expert_bytes */
    double start_s;        /* time within backend_ops.start during the last decode */
    char error[256];
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int run_pass(struct bench_run *r, uint32_t n_rows, uint32_t n_sequences)
{
    const enum pass_kind kind = r->sizes.drafts ? PASS_FAST : PASS_CANONICAL;
    struct pass pass = {kind, n_rows, r->rows, r->sequences, r->results, n_sequences};
    double begin = seconds();
    int rc = r->sizes.ops->start(r->backend, &pass);
    r->start_s += seconds() - begin;
    if (rc || r->sizes.ops->finish(r->backend))
        return fail(r->error, sizeof(r->error), -EIO, "%s", r->sizes.ops->error(r->backend));
    for (uint32_t i = 0; i < n_rows; i++)
        if (r->results[i].status)
            return fail(r->error, sizeof(r->error), -EDOM,
                        "the model's logits are not finite at position %u", r->rows[i].position);
    return 0;
}

static uint32_t *tokens_of(struct bench_run *r, uint32_t slot)
{
    return r->tokens + (size_t)slot * r->length;
}

/* The next `n` rows of a slot begin at `first`. A prompt's are folded into its state, which is kept at
 * the end, where decoding and windows begin any number of times; what comes then is as in the daemon. */
static void carry_state(struct bench_run *r, uint32_t slot, uint32_t first, uint32_t n)
{
    const uint32_t end = r->sizes.prompt, kept = r->sizes.slots + slot;
    struct pass_state *state = &r->sequences[slot].state;
    uint32_t recorded = first < end ? 0 : n < BACKEND_STATE_RECORDS ? n : BACKEND_STATE_RECORDS;
    if (r->model->n_recurrent == 0)
        return;
    *state = (struct pass_state){.from = first == 0     ? BACKEND_STATE_ZERO
                                         : first == end ? (int32_t)kept
                                                        : (int32_t)slot,
                                 .own = (int32_t)slot,
                                 .apply = first == 0 || first == end ? 0 : first - r->base[slot],
                                 .commit = n - recorded};
    if (first < end && first + n == end) {
        state->keep[0].position = end;
        state->keep[0].id = (int32_t)kept;
        state->n_keep = 1;
    }
    r->base[slot] = first + state->commit;
}

double bench_run_prefill(struct bench_run *r, uint32_t slot)
{
    uint32_t *tokens = tokens_of(r, slot), n = r->sizes.prompt, rows = 0;
    double begin = seconds();
    for (uint32_t at = 0; at < n; at += rows) {
        rows = n - at < r->sizes.rows ? n - at : r->sizes.rows;
        for (uint32_t i = 0; i < rows; i++)
            r->rows[i] =
                (struct row){slot, at + i, tokens[at + i], at + i + 1 == n ? ROW_SAMPLE : 0, NULL};
        carry_state(r, slot, at, rows);
        if (run_pass(r, rows, r->sizes.slots))
            return -1;
    }
    tokens[n] = r->results[rows - 1].sample.token;
    return seconds() - begin;
}

double bench_run_decode(struct bench_run *r, uint32_t slots, bench_pause *pause, void *context)
{
    double spent = 0;
    r->start_s = 0;
    for (uint32_t i = 0; i < r->sizes.tokens; i++) {
        const double begin = seconds();
        uint32_t position = r->sizes.prompt + i;
        for (uint32_t s = 0; s < slots; s++) {
            r->rows[s] = (struct row){s, position, tokens_of(r, s)[position], ROW_SAMPLE, NULL};
            carry_state(r, s, position, 1);
        }
        if (run_pass(r, slots, slots))
            return -1;
        for (uint32_t s = 0; s < slots; s++)
            tokens_of(r, s)[position + 1] = r->results[s].sample.token;
        spent += seconds() - begin;
        if (pause)
            pause(context);
    }
    return spent;
}

double bench_run_start(const struct bench_run *r)
{
    return r->start_s / r->sizes.tokens;
}

double bench_run_window(struct bench_run *r, uint32_t rows)
{
    uint32_t first = r->sizes.prompt;
    for (uint32_t i = 0; i < rows; i++)
        r->rows[i] = (struct row){0, first + i, tokens_of(r, 0)[first + i], ROW_SAMPLE, NULL};
    carry_state(r, 0, first, rows);
    double begin = seconds();
    if (run_pass(r, rows, r->sizes.slots))
        return -1;
    return seconds() - begin;
}

uint64_t bench_run_weight_bytes(const struct bench_run *r)
{
    const struct model *m = r->model;
    /* An untied embedding is read one row at a time, so it does not count. */
    uint64_t bytes = m->tensor_bytes - (m->tied ? 0 : m->global[MODEL_TOKEN_EMBD].bytes);
    for (uint32_t i = 0; i < m->n_layer; i++)
        for (int t = MODEL_FFN_GATE_EXPS; t <= MODEL_FFN_DOWN_EXPS; t++)
            bytes -= m->layers[i].tensor[t].bytes;
    return bytes;
}

uint64_t bench_run_expert_bytes(struct bench_run *r)
{
    struct backend_info info;
    r->sizes.ops->describe(r->backend, &info);
    const uint64_t before = r->expert_bytes;
    r->expert_bytes = info.expert_bytes;
    return info.expert_bytes - before;
}

uint64_t bench_run_kv_bytes(const struct bench_run *r)
{
    struct backend_info info;
    r->sizes.ops->describe(r->backend, &info);
    uint64_t positions = r->sizes.prompt + (r->sizes.tokens + 1) / 2;
    return info.page_bytes / BACKEND_PAGE_POSITIONS * positions + info.state_bytes;
}

void bench_run_describe(const struct bench_run *r, struct backend_info *ret_info)
{
    r->sizes.ops->describe(r->backend, ret_info);
}

const char *bench_run_error(const struct bench_run *r)
{
    return r->error;
}

/* Prompts of varied tokens, the same in every run. */
static void fill_sequences(struct bench_run *r)
{
    uint64_t seed = 1;
    for (uint32_t i = 0; i < r->sizes.slots * r->slot_pages; i++)
        r->pages[i] = i;
    for (uint32_t i = 0; i < r->sizes.slots * r->length; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        r->tokens[i] = (uint32_t)((seed >> 33) % r->model->n_vocab);
    }
    for (uint32_t s = 0; s < r->sizes.slots; s++)
        r->sequences[s] = (struct pass_sequence){.pages = r->pages + (size_t)s * r->slot_pages,
                                                 .tokens = tokens_of(r, s),
                                                 .prompt_length = r->sizes.prompt,
                                                 .sampler = &r->params};
}

static int open_parts(struct bench_run *r, char *err, size_t err_bytes)
{
    const struct bench_sizes *s = &r->sizes;
    r->length = s->prompt + (s->tokens > BENCH_MAX_WINDOW ? s->tokens : BENCH_MAX_WINDOW) + 1;
    r->slot_pages = kv_pages(r->length);
    r->max_rows = s->rows < s->prompt ? s->rows : s->prompt;
    r->max_rows = r->max_rows > BENCH_MAX_SLOTS ? r->max_rows : BENCH_MAX_SLOTS;
    r->pages = calloc((size_t)s->slots * r->slot_pages, sizeof(*r->pages));
    r->tokens = calloc((size_t)s->slots * r->length, sizeof(*r->tokens));
    r->rows = calloc(r->max_rows, sizeof(*r->rows));
    r->results = calloc(r->max_rows, sizeof(*r->results));
    if (!r->pages || !r->tokens || !r->rows || !r->results)
        return fail(err, err_bytes, -ENOMEM, "not enough memory");
    sampler_params_init(&r->params);
    fill_sequences(r);
    struct backend_limits limits = {
        .rows = r->max_rows,
        .samples = s->slots > BENCH_MAX_WINDOW ? s->slots : BENCH_MAX_WINDOW,
        .pages = s->slots * r->slot_pages,
        .states = r->model->n_recurrent ? 2 * s->slots : 0,
        .context = r->length,
        .threads = s->threads,
        .kv_q8_0 = s->kv_q8_0,
        .native = s->native,
        .drafts = s->drafts,
        .gpu_bytes = s->gpu_bytes,
        .isa = s->isa,
    };
    return s->ops->open(r->model, &limits, &r->backend, err, err_bytes);
}

int bench_run_open(const struct model *model, const struct bench_sizes *sizes,
                   struct bench_run **ret_run, char *err, size_t err_bytes)
{
    struct bench_run *r = calloc(1, sizeof(*r));
    if (!r)
        return fail(err, err_bytes, -ENOMEM, "not enough memory");
    r->model = model;
    r->sizes = *sizes;
    int rc = open_parts(r, err, err_bytes);
    if (rc)
        bench_run_close(r);
    else
        *ret_run = r;
    return rc;
}

void bench_run_close(struct bench_run *r)
{
    if (!r)
        return;
    if (r->backend)
        r->sizes.ops->close(r->backend);
    free(r->pages);
    free(r->tokens);
    free(r->rows);
    free(r->results);
    free(r);
}
