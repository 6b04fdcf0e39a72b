/* The pass contract on the CUDA backend, the next-token layer (backend.h, PASS_MTP): its drafts are the CPU's, bit by bit, wherever
 * the hidden row before them lies: in the pass, in a record, in a state, in one that was kept; and no other row depends on it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"

/* A text that ends with a page, so that drafts begin one, and another beside it. */
enum {
    TEXT = 64,
    SHORT = 7,
    DRAFTS = 3,
    ROWS = TEXT + SHORT,
    SEEN = 2 * (2 * DRAFTS + 4 + DRAFTS + 1)
};

/* What the passes of one backend gave: of each the rows that both texts end with. */
struct seen {
    int rc;
    uint32_t n; /* rows so far */
    int32_t status[SEEN];
    enum pass_kind kind[SEEN];
    float *logits; /* [..][n_vocab] */
};

struct drafting {
    const struct subject *s;
    const struct backend_ops *ops;
    struct backend *b;
    struct seen *seen;
    uint32_t pages[2][3];
};

/* Rows of both texts, of text i from at[i] on n; the last `wanted` of each are compared. */
static void run_pass(struct drafting *d, enum pass_kind kind, const uint32_t at[2],
                     const uint32_t n[2], uint32_t wanted, const struct pass_state state[2])
{
    struct mixed x = {.n = 0};
    struct seen *seen = d->seen;
    const size_t vocab = d->s->model->n_vocab;
    for (uint32_t i = 0; i < 2; i++) {
        x.sequences[i] = (struct pass_sequence){.pages = d->pages[i], .state = state[i]};
        add_rows(&x, i, d->s->tokens + 100 * i, at[i], n[i], 0);
        for (uint32_t r = x.n - wanted; r < x.n; r++) {
            x.rows[r].wants = ROW_LOGITS;
            x.results[r].logits = seen->logits + (seen->n + r - (x.n - wanted)) * vocab;
        }
        seen->n += wanted;
    }
    const struct pass pass = {kind, x.n, x.rows, x.sequences, x.results, 2};
    seen->rc = seen->rc ? seen->rc : d->ops->start(d->b, &pass);
    seen->rc = seen->rc ? seen->rc : d->ops->finish(d->b);
    for (uint32_t i = 0, r = 0; i < 2; i++) {
        r += n[i];
        for (uint32_t k = 0; k < wanted; k++) {
            const uint32_t to = seen->n - (2 - i) * wanted + k;
            seen->status[to] = x.results[r - wanted + k].status;
            seen->kind[to] = kind;
        }
    }
}

/* Drafts of both texts, the first one at these positions, after so many records. */
static void draft(struct drafting *d, const uint32_t at[2], uint32_t records, const int32_t id[2])
{
    for (uint32_t i = 0; i < DRAFTS; i++) {
        const struct pass_state state[2] = {{.from = id[0], .own = id[0], .replay = records + i},
                                            {.from = id[1], .own = id[1], .replay = records + i}};
        run_pass(d, PASS_MTP, (const uint32_t[]){at[0] + i, at[1] + i}, (const uint32_t[]){1, 1}, 1,
                 state);
    }
}

/* A text and drafts after it, the drafts verified, others after them; then the states go on as others, and one is kept. */
static void run_drafting(struct drafting *d)
{
    const uint32_t all = DRAFTS + 1, at[2] = {TEXT, SHORT};
    run_pass(
        d, PASS_CANONICAL, (const uint32_t[]){0, 0}, at, 1,
        (const struct pass_state[]){{.from = BACKEND_STATE_ZERO, .own = 0, .commit = TEXT - 1},
                                    {.from = BACKEND_STATE_ZERO, .own = 1, .commit = SHORT - 1}});
    draft(d, at, 1, (const int32_t[]){0, 1});
    run_pass(d, PASS_CANONICAL, at, (const uint32_t[]){all, all}, all,
             (const struct pass_state[]){{.from = 0, .own = 0, .apply = 1},
                                         {.from = 1, .own = 1, .apply = 1}});
    draft(d, (const uint32_t[]){TEXT + all, SHORT + all}, all, (const int32_t[]){0, 1});
    run_pass(
        d, PASS_CANONICAL, (const uint32_t[]){TEXT + 2, SHORT + 2}, (const uint32_t[]){1, 1}, 1,
        (const struct pass_state[]){
            {.from = 0, .own = 2, .apply = 2, .commit = 1, .n_keep = 1, .keep = {{TEXT + 1, 3}}},
            {.from = 1, .own = 4, .apply = 1, .replay = 1}});
    run_pass(
        d, PASS_MTP, (const uint32_t[]){TEXT + 3, SHORT + 3}, (const uint32_t[]){1, 1}, 1,
        (const struct pass_state[]){{.from = 2, .own = 2}, {.from = 4, .own = 4, .replay = 2}});
    run_pass(d, PASS_MTP, (const uint32_t[]){TEXT + 1, SHORT + 1}, (const uint32_t[]){1, 1}, 1,
             (const struct pass_state[]){{.from = 3, .own = 3}, {.from = 4, .own = 4}});
}

static void see(struct subject *s, const struct backend_ops *ops, struct seen *ret)
{
    struct drafting d = {
        s, ops, subject_open(s, ops, ROWS, SUBJECT_PAGES), ret, {{5, 0, 3}, {4, 1, 2}}};
    *ret = (struct seen){.logits = subject_floats(s, SEEN)};
    run_drafting(&d);
    ops->close(d.b);
}

/* Compares the passes of the device with the CPU's; of a device in native numerics, whose KV is its own, two instances. */
static void check_drafts(struct subject *s, bool native, int32_t of_drafts, const char *what)
{
    struct seen want, got;
    uint32_t wrong = 0;
    s->native = native;
    see(s, native ? &s->device : &backend_cpu, &want);
    see(s, &s->device, &got);
    const size_t vocab = s->model->n_vocab, all = want.n * vocab,
                 at = subject_differs(want.logits, got.logits, all);
    for (uint32_t i = 0; i < want.n; i++)
        wrong += want.status[i] != got.status[i] ||
                 want.status[i] != (want.kind[i] == PASS_MTP ? of_drafts : 0);
    free(want.logits);
    free(got.logits);
    EXPECT(want.rc == 0 && got.rc == 0 && want.n == got.n, "%s: %d, %d", what, want.rc, got.rc);
    EXPECT(wrong == 0 && at == all, "%s: %u states, row %zu of %u", what, wrong, at / vocab,
           want.n);
}

static void subject_of(struct subject *s, const char *arch, uint32_t type, uint64_t seed)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.arch = arch;
    shape.n_draft = 1;
    shape.seed = seed;
    shape.kv_q8_0 = type == TINY_MIXED_K;
    subject_init(s, &shape, 1);
    subject_random_tokens(seed, s->model, s->tokens, SUBJECT_TOKENS);
}

void drafts_of_the_next_token_layer_are_the_cpus(void)
{
    static const char *const archs[] = {"qwen35", "qwen35moe", "qwen3next", "qwen35moe"};
    static const uint32_t types[] = {QUANT_Q8_0, QUANT_F16, QUANT_F32, TINY_MIXED_K};
    for (uint32_t i = 0; i < 4; i++) {
        struct subject s;
        subject_of(&s, archs[i], types[i], 1300 + i);
        check_drafts(&s, false, 0, archs[i]);
        subject_fini(&s);
    }
}

void native_drafts_of_the_next_token_layer_are_always_the_same(void)
{
    struct subject s;
    subject_of(&s, "qwen35", QUANT_F16, 1310);
    check_drafts(&s, true, 0, "native");
    subject_fini(&s);
}

/* A weight that is not finite: of the token's norm, of K, which is not appended, and after attention. */
void a_poisoned_draft_poisons_no_other_row(void)
{
    static const enum model_layer_tensor where[] = {MODEL_MTP_TOKEN_NORM, MODEL_ATTN_K,
                                                    MODEL_FFN_DOWN};
    const float bad = NAN;
    for (uint32_t i = 0; i < 3; i++) {
        struct subject s;
        subject_of(&s, "qwen35", QUANT_F32, 1320 + i);
        const struct model_tensor *t = &s.model->mtp->layer.tensor[where[i]];
        memcpy(s.file + (t->data - s.file), &bad, sizeof(bad));
        check_drafts(&s, false, -EDOM, "poison");
        subject_fini(&s);
    }
}

/* A draft model's is not run. */
void a_draft_model_has_no_next_token_layer(void)
{
    const uint32_t page = 0;
    const struct row row = {.token = 5};
    const struct pass_sequence sequence = {.pages = &page};
    struct row_result result = {0};
    const struct pass pass = {PASS_MTP, 1, &row, &sequence, &result, 1};
    struct backend_info info[2];
    struct subject s;
    subject_of(&s, "qwen35", QUANT_F16, 1330);
    s.device.describe(subject_backend(&s), &info[0]);
    s.drafts = true;
    struct backend *b = subject_open(&s, &s.device, 4, SUBJECT_PAGES);
    s.device.describe(b, &info[1]);
    const int rc = s.device.start(b, &pass);
    const bool told = strstr(s.device.error(b), "a draft model's next-token layer") != NULL;
    s.device.close(b);
    subject_fini(&s);
    EXPECT(info[0].mtp && !info[1].mtp && rc == -EINVAL && told, "%d, %d: %d", info[0].mtp,
           info[1].mtp, rc);
}
