/* The pass contract on the CUDA backend, recurrent layers (backend.h, struct pass_state): however a text's rows are divided into
 * passes, into rows that are folded in and rows that are recorded first, whatever drafts were rejected between them, its logits
 * are the CPU's of one pass over the whole text. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"
#include "tests/rig/every_type.h"
#include "tests/rig/state_walk.h"

static struct tiny_model hybrid(uint32_t type)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.arch = "qwen35";
    return shape;
}

/* ---- a text ---------------------------------------------------------------------------------- */

/* Every type's matmul is another test's, and a recurrent layer's own operations do not depend on it: the simulator takes a
 * quantized one, a float one and a mixture. */
void recurrent_layers_of_every_type_give_the_same_bits(void)
{
    static const uint32_t types[] = {WRITTEN_TYPES, FLOAT_TYPES, TINY_MIXED, TINY_MIXED_K};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct tiny_model shape = hybrid(types[i]);
        struct subject s;
        char what[48];
        if (simulated() && types[i] != QUANT_Q8_0 && types[i] != QUANT_F16 &&
            types[i] != TINY_MIXED_K)
            continue;
        snprintf(what, sizeof(what), "recurrent layers of type %u", types[i]);
        shape.arch = (const char *const[]){"qwen35", "qwen35moe", "qwen3next"}[i % 3];
        shape.delta_v = 64; /* whole blocks of every type */
        shape.kv_q8_0 = i % 3 == 0;
        shape.seed = 1100 + i;
        subject_init(&s, &shape, 40);
        check_sizes(&s, (uint32_t[]){i % 2 ? 13 : 1, 40, 0}, i, what);
        subject_fini(&s);
    }
}

/* Heads of one block of columns, of several, of a part of one; keys of one value, and of the most; a pass that has no graph. */
void recurrent_layers_of_odd_shapes_give_the_same_bits(void)
{
    static const struct {
        uint32_t k, v, type;
    } shapes[] = {{16, 32, QUANT_Q8_0}, {128, 128, QUANT_Q8_0}, {256, 256, QUANT_F32},
                  {7, 3, QUANT_F32},    {1, 33, QUANT_F16},     {129, 100, QUANT_BF16}};
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct tiny_model shape = hybrid(shapes[i].type);
        struct subject s;
        char what[48];
        snprintf(what, sizeof(what), "recurrent heads of %u and %u", shapes[i].k, shapes[i].v);
        shape.delta_k = shapes[i].k;
        shape.delta_v = shapes[i].v;
        shape.seed = 1150 + i;
        subject_init(&s, &shape, 71);
        check_sizes(&s, (uint32_t[]){6, 70, 0}, i, what);
        subject_fini(&s);
    }
}

/* Fewer channels than an item of the convolution takes, and more; passes without a graph. */
void short_convolutions_give_the_same_bits(void)
{
    static const struct {
        const char *arch;
        uint32_t type, n_embd;
    } shapes[] = {{"lfm2", QUANT_Q8_0, 64},
                  {"lfm2", QUANT_BF16, 328},
                  {"lfm2moe", QUANT_F16, 64},
                  {"lfm2moe", QUANT_Q8_0, 288}};
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct tiny_model shape = hybrid(shapes[i].type);
        struct subject s;
        shape.arch = shapes[i].arch;
        shape.n_embd = shapes[i].n_embd;
        shape.n_layer = 3;
        shape.seed = 1180 + i;
        subject_init(&s, &shape, 71);
        check_sizes(&s, (uint32_t[]){i % 2 ? 1 : 6, 70, 0}, i, shape.arch);
        subject_fini(&s);
    }
}

/* Heads of one block of columns, and of a part; with a bias of the convolution and without; experts; passes without a graph. */
void mamba_layers_give_the_same_bits(void)
{
    static const struct {
        const char *arch;
        uint32_t type, k, v;
    } shapes[] = {{"granitehybrid", QUANT_Q8_0, 128, 64},
                  {"granitehybrid", QUANT_BF16, 7, 33},
                  {"granite-h-moe", QUANT_F16, 16, 32},
                  {"granite-h-moe", QUANT_Q8_0, 256, 8}};
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct tiny_model shape = hybrid(shapes[i].type);
        struct subject s;
        tiny_model_as(&shape, shapes[i].arch);
        shape.delta_k = shapes[i].k;
        shape.delta_v = shapes[i].v;
        shape.n_layer = 3;
        shape.seed = 1190 + i;
        subject_init(&s, &shape, 71);
        check_sizes(&s, (uint32_t[]){i % 2 ? 1 : 6, 70, 0}, i, shapes[i].arch);
        subject_fini(&s);
    }
}

/* ---- a random walk --------------------------------------------------------------------------- */

struct walk {
    struct subject s[WALK_TEXTS]; /* of one model, other tokens */
    struct walk_text text[WALK_TEXTS];
    struct backend *b;
    uint64_t random;
    uint32_t pages[SUBJECT_PAGES];
    float *logits; /* [WALK_ROWS][n_vocab] */
};

struct walk_pass {
    struct walk_plan plan[WALK_TEXTS];
    struct pass_sequence sequences[WALK_TEXTS];
    struct row rows[WALK_ROWS];
    struct row_result results[WALK_ROWS];
    uint32_t done[WALK_TEXTS], n;
};

/* Rows of each text in turns. */
static void make_pass(struct walk *w, struct walk_pass *x)
{
    const size_t vocab = w->s[0].model->n_vocab;
    uint32_t left = 0;
    *x = (struct walk_pass){.n = 0};
    for (uint32_t i = 0; i < WALK_TEXTS; i++) {
        x->plan[i] = walk_choose(&w->random, &w->text[i]);
        x->sequences[i] =
            (struct pass_sequence){.pages = w->pages + i * WALK_PAGES, .state = x->plan[i].state};
        left += x->plan[i].good + x->plan[i].drafts;
    }
    while (left > 0) {
        const uint32_t i = walk_below(&w->random, WALK_TEXTS), at = x->done[i],
                       n = x->plan[i].good + x->plan[i].drafts, position = x->plan[i].first + at;
        if (at == n)
            continue;
        const uint32_t token = at < x->plan[i].good ? w->s[i].tokens[position]
                                                    : walk_below(&w->random, (uint32_t)vocab);
        x->results[x->n].logits = w->logits + x->n * vocab;
        x->rows[x->n++] = (struct row){i, position, token, ROW_LOGITS, NULL};
        x->done[i]++;
        left--;
    }
}

/* Rows of the texts' own tokens that are not the CPU's. */
static uint32_t wrong_rows(const struct walk *w, const struct walk_pass *x)
{
    const size_t vocab = w->s[0].model->n_vocab;
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < x->n; r++) {
        const uint32_t i = x->rows[r].sequence, position = x->rows[r].position;
        if (position < x->plan[i].first + x->plan[i].good)
            wrong +=
                x->results[r].status != 0 || subject_differs(w->s[i].logits + position * vocab,
                                                             x->results[r].logits, vocab) != vocab;
    }
    return wrong;
}

static void check_walk(struct walk *w, uint32_t steps)
{
    struct walk_pass *x = malloc(sizeof(*x));
    uint32_t wrong = 0, step = 0, rows = 0;
    int rc = x ? 0 : -ENOMEM;
    for (; step < steps && rc == 0 && wrong == 0; step++) {
        make_pass(w, x);
        const struct pass pass = {walk_below(&w->random, 4) > 0 ? PASS_CANONICAL : PASS_FAST,
                                  x->n,
                                  x->rows,
                                  x->sequences,
                                  x->results,
                                  WALK_TEXTS};
        rc = x->n == 0 ? 0 : w->s[0].device.start(w->b, &pass);
        rc = rc || x->n == 0 ? rc : w->s[0].device.finish(w->b);
        wrong = rc ? 0 : wrong_rows(w, x);
        rows += x->n;
        for (uint32_t i = 0; i < WALK_TEXTS; i++)
            if (x->done[i] > 0)
                walk_done(&w->text[i], &x->plan[i]);
    }
    free(x);
    EXPECT(rc == 0 && wrong == 0, "pass %u: %d, %u wrong rows", step, rc, wrong);
    EXPECT(rows > steps, "%u passes had %u rows", steps, rows);
}

void every_division_of_a_text_gives_the_same_bits(void)
{
    static const uint32_t types[] = {QUANT_F32, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0};
    static const char *const archs[] = {"qwen35", "qwen35", "lfm2", "granitehybrid"};
    for (uint32_t i = 0; i < 4; i++) {
        struct tiny_model shape = hybrid(types[i]);
        struct walk w = {.random = 700 + i};
        shape.arch = archs[i];
        shape.delta_k = i ? 16 : 0;
        shape.n_vocab = TINY_MIN_VOCAB;
        for (uint32_t t = 0; t < WALK_TEXTS; t++) {
            subject_init(&w.s[t], &shape, WALK_TOKENS);
            subject_random_tokens(720 + 2 * i + t, w.s[t].model, w.s[t].tokens, WALK_TOKENS);
            subject_expect(&w.s[t]);
            w.text[t].index = t;
        }
        subject_pages(i, w.pages);
        w.b = subject_open(&w.s[0], &w.s[0].device, WALK_ROWS, SUBJECT_PAGES);
        w.logits = subject_floats(&w.s[0], WALK_ROWS);
        check_walk(&w, 60);
        w.s[0].device.close(w.b);
        for (uint32_t t = 0; t < WALK_TEXTS; t++)
            subject_fini(&w.s[t]);
        free(w.logits);
    }
}

/* ---- what a state does ----------------------------------------------------------------------- */

/* Rows [position, position + n) of tokens, in an own state of one sequence. Logits into `got`. */
static int run_state(struct subject *s, struct backend *b, const uint32_t *tokens,
                     uint32_t position, uint32_t n, struct pass_state state, struct mixed *x,
                     float *got)
{
    static const uint32_t pages[] = {0, 1, 2};
    *x = (struct mixed){.n = 0};
    x->sequences[0] = (struct pass_sequence){.pages = pages, .state = state};
    for (uint32_t i = 0; i < n; i++)
        x->results[i].logits = got + (size_t)i * s->model->n_vocab;
    add_rows(x, 0, tokens, position, n, ROW_LOGITS);
    const struct pass pass = {PASS_CANONICAL, x->n, x->rows, x->sequences, x->results, 1};
    const int rc = s->device.start(b, &pass);
    return rc ? rc : s->device.finish(b);
}

/* Two texts begin at the same state, in one pass, and at a kept one. */
void texts_that_share_a_state_give_the_same_bits(void)
{
    struct tiny_model shape = hybrid(QUANT_Q8_0);
    struct subject s;
    struct mixed x;
    static const uint32_t pages[][3] = {{0, 1, 2}, {0, 3, 4}, {0, 5, 6}};
    shape.n_vocab = TINY_MIN_VOCAB;
    subject_init(&s, &shape, 48);
    const size_t vocab = s.model->n_vocab;
    float *got = subject_floats(&s, 48), *other = subject_floats(&s, 48);
    struct backend *b = subject_open(&s, &s.device, 48, SUBJECT_PAGES);
    int rc = run_state(
        &s, b, s.tokens, 0, 36,
        (struct pass_state){
            .from = BACKEND_STATE_ZERO, .own = 1, .commit = 36, .n_keep = 1, .keep = {{32, 0}}},
        &x, got);
    x = (struct mixed){.n = 0};
    for (uint32_t i = 0; i < 2; i++) {
        x.sequences[i] = (struct pass_sequence){
            .pages = pages[1 + i],
            .state = {.from = 0, .own = 2 + (int32_t)i, .commit = i ? 16 : 3}};
        for (uint32_t r = 0; r < 16; r++)
            x.results[x.n + r].logits = (i ? other : got) + (32 + r) * vocab;
        add_rows(&x, i, s.tokens, 32, 16, ROW_LOGITS);
    }
    rc = rc ? rc : run_mixed(&s, b, &x, PASS_CANONICAL);
    memcpy(other, got, 32 * vocab * sizeof(float));
    const size_t all = 48 * vocab, at = subject_differs(s.logits, got, all),
                 at_other = subject_differs(s.logits, other, all);
    s.device.close(b);
    free(got);
    free(other);
    subject_fini(&s);
    EXPECT(rc == 0 && at == all && at_other == all, "%d: row %zu, row %zu", rc, at / vocab,
           at_other / vocab);
}

void states_are_described(void)
{
    struct tiny_model shape = hybrid(QUANT_F32);
    struct subject s;
    struct backend_info info, cpu;
    subject_init(&s, &shape, 4);
    struct backend *b = subject_open(&s, &backend_cpu, 4, SUBJECT_PAGES);
    s.device.describe(subject_backend(&s), &info);
    backend_cpu.describe(b, &cpu);
    backend_cpu.close(b);
    subject_fini(&s);
    EXPECT(info.state_bytes == cpu.state_bytes && info.record_bytes == cpu.record_bytes &&
               info.state_bytes > 0,
           "%zu, %zu bytes", info.state_bytes, info.record_bytes);
}

/* ---- poison ---------------------------------------------------------------------------------- */

/* Token 5 has an infinite value, of 4 rows before which one is folded in: three are poisoned. */
static int run_poisoned(struct subject *s, struct backend *b, struct mixed *x, float *got,
                        struct pass_state state, uint32_t position, uint32_t n)
{
    const uint32_t tokens[] = {9, 8, 7, 5, 6};
    int rc = run_state(s, b, tokens, position, n, state, x, got);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = x->results[i].status == (position + i < 3 ? 0 : -EDOM) ? 0 : -EBADMSG;
    return rc;
}

/* A poisoned row that is recorded leaves the state and earlier records alone; one that is folded in spoils its own state, and no
 * state that was kept before it. */
void a_poisoned_row_spoils_its_own_state_alone(void)
{
    struct tiny_model shape = hybrid(QUANT_F32);
    const uint32_t clean[] = {9, 8, 7, 4, 6};
    struct subject s;
    struct mixed x;
    shape.untied = true;
    subject_init(&s, &shape, 5);
    subject_set_embedding(&s, 5, INFINITY);
    memcpy(s.tokens, clean, sizeof(clean));
    subject_expect(&s);
    const size_t vocab = s.model->n_vocab;
    float *got = subject_floats(&s, 5);
    struct backend *b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    uint32_t wrong = 0;
    int rc = run_poisoned(&s, b, &x, got,
                          (struct pass_state){.from = BACKEND_STATE_ZERO, .commit = 2}, 0, 5);
    rc = rc ? rc
            : run_state(&s, b, clean, 3, 2, (struct pass_state){.from = 0, .apply = 1, .commit = 2},
                        &x, got);
    wrong += subject_differs(s.logits + 3 * vocab, got, 2 * vocab) != 2 * vocab;
    rc = rc ? rc
            : run_poisoned(&s, b, &x, got,
                           (struct pass_state){.from = BACKEND_STATE_ZERO, .own = 2, .commit = 2},
                           0, 2);
    rc = rc ? rc
            : run_poisoned(&s, b, &x, got,
                           (struct pass_state){
                               .from = 2, .own = 3, .commit = 3, .n_keep = 1, .keep = {{3, 4}}},
                           2, 3);
    rc = rc ? rc
            : run_state(&s, b, clean, 3, 2, (struct pass_state){.from = 4, .commit = 1}, &x, got);
    wrong += subject_differs(s.logits + 3 * vocab, got, 2 * vocab) != 2 * vocab;
    rc = rc ? rc
            : run_state(&s, b, clean, 2, 3, (struct pass_state){.from = 2, .own = 2, .commit = 1},
                        &x, got);
    wrong += subject_differs(s.logits + 2 * vocab, got, 3 * vocab) != 3 * vocab;
    s.device.close(b);
    free(got);
    subject_fini(&s);
    EXPECT(rc == 0 && wrong == 0, "%d, %u of three are wrong", rc, wrong);
}

/* A number of a recurrent layer's own tensors, or of a gate, that is not finite poisons the rows at that layer. */
void a_nonfinite_number_of_a_recurrent_layer_poisons_it(void)
{
    static const struct {
        uint32_t layer, tensor;
    } at[] = {{2, MODEL_DELTA_QKV},   {2, MODEL_DELTA_Z},    {2, MODEL_DELTA_BETA},
              {2, MODEL_DELTA_ALPHA}, {2, MODEL_DELTA_CONV}, {2, MODEL_DELTA_A},
              {2, MODEL_DELTA_DT},    {2, MODEL_DELTA_NORM}, {2, MODEL_DELTA_OUT},
              {1, MODEL_ATTN_Q}};
    const uint32_t tokens[] = {9, 8, 7};
    const float bad = NAN;
    for (uint32_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        struct tiny_model shape = hybrid(QUANT_F32);
        struct subject s;
        struct mixed x;
        uint32_t wrong = 0;
        shape.n_layer = 4;
        shape.n_vocab = TINY_MIN_VOCAB;
        subject_init(&s, &shape, 3);
        const struct model_tensor *t = &s.model->layers[at[i].layer].tensor[at[i].tensor];
        const uint64_t last = t->bytes - sizeof(bad); /* of a query: in its gate */
        memcpy(subject_bytes(&s, at[i].layer, at[i].tensor) + last, &bad, sizeof(bad));
        float *got = subject_floats(&s, 3);
        const int rc =
            run_state(&s, subject_backend(&s), tokens, 0, 3,
                      (struct pass_state){.from = BACKEND_STATE_ZERO, .commit = 1}, &x, got);
        for (uint32_t r = 0; r < 3; r++)
            wrong += x.results[r].status != -EDOM || x.results[r].layer != at[i].layer;
        free(got);
        subject_fini(&s);
        EXPECT(rc == 0 && wrong == 0, "tensor %u: %d, %u rows", at[i].tensor, rc, wrong);
    }
}

void native_recurrent_layers_do_not_depend_on_their_pass(void)
{
    static const uint32_t types[] = {QUANT_F16, QUANT_Q8_0};
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_model shape = hybrid(types[i]);
        struct subject s;
        shape.arch = i ? "qwen35moe" : "qwen35";
        subject_init(&s, &shape, 70);
        check_near(subject_go_native(&s, simulated() ? 70 : 1), bound_of(types[i]), shape.arch);
        check_sizes(&s, (uint32_t[]){9, 1, 70, 0}, 3, "native recurrent layers");
        subject_fini(&s);
    }
}
