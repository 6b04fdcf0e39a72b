/* The pass contract on the CUDA backend, pages and states that are copied out and in (backend.h, read_page and write_page): a text
 * goes on on the device after pages of the CPU, and on the CPU after pages of the device, with the CPU's logits. */
#include <stdlib.h>

#include "kernels/kv.h"
#include "tests/gpu/contract.h"
#include "tests/rig/every_type.h"

enum { CUT = 64, PART = 75, TOKENS = 90, WINDOW_PAGES = 6, STATES = 4 };

/* A text in an instance: where its pages are, and its state. */
struct place {
    const struct backend_ops *ops;
    struct backend *b;
    uint32_t pages[SUBJECT_PAGES], windows[SUBJECT_PAGES];
    int32_t state;
};

static int open_place(const struct subject *s, const struct backend_ops *ops, bool windows,
                      uint64_t seed, struct place *ret)
{
    const struct backend_limits limits = {.rows = PART,
                                          .samples = PART,
                                          .pages = SUBJECT_PAGES,
                                          .window_pages = windows ? WINDOW_PAGES : 0,
                                          .states = s->model->n_recurrent > 0 ? STATES : 0,
                                          .context = s->model->n_context,
                                          .threads = 2,
                                          .kv_q8_0 = s->kv_q8_0};
    char err[256];
    *ret = (struct place){.ops = ops, .state = (int32_t)seed};
    subject_pages(seed, ret->pages);
    for (uint32_t i = 0; i < SUBJECT_PAGES; i++)
        ret->windows[i] = (uint32_t)(i + seed) % WINDOW_PAGES;
    return ops->open(s->model, &limits, &ret->b, err, sizeof(err));
}

/* Positions [from, to) in one pass; logits [to - from][n_vocab]. Returns 0 or an error. */
static int compute(const struct place *place, const struct subject *s, uint32_t from, uint32_t to,
                   float *logits)
{
    struct row rows[PART] = {0};
    struct row_result results[PART] = {0};
    const struct pass_sequence sequence = {
        .pages = place->pages,
        .window_pages = place->windows,
        .state = {.from = from ? place->state : BACKEND_STATE_ZERO,
                  .own = place->state,
                  .commit = to - from},
    };
    const struct pass pass = {PASS_CANONICAL, to - from, rows, &sequence, results, 1};
    for (uint32_t i = 0; i < pass.n_rows; i++) {
        rows[i] =
            (struct row){.position = from + i, .token = s->tokens[from + i], .wants = ROW_LOGITS};
        results[i].logits = logits + (size_t)i * s->model->n_vocab;
    }
    const int rc = place->ops->start(place->b, &pass);
    return rc ? rc : place->ops->finish(place->b);
}

static int carry(const struct place *from, uint32_t from_id, const struct place *to, uint32_t to_id,
                 enum copy_class class, uint32_t positions)
{
    struct backend_info info;
    from->ops->describe(from->b, &info);
    void *copy = malloc(backend_copy_bytes(&info, class));
    int rc = copy ? from->ops->read_page(from->b, class, from_id, positions, copy) : -1;
    if (rc == 0)
        rc = to->ops->write_page(to->b, class, to_id, copy);
    free(copy);
    return rc;
}

/* Of page `i`, in a text of `n`. */
static uint32_t positions_in(uint32_t i, uint32_t n)
{
    const uint32_t left = n - i * KV_PAGE_POSITIONS;
    return left < KV_PAGE_POSITIONS ? left : KV_PAGE_POSITIONS;
}

/* All that a text needs after its first `at` tokens. */
static int carry_all(const struct subject *s, const struct place *from, const struct place *to,
                     bool windows, uint32_t at)
{
    const uint32_t n = kv_pages(at);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = carry(from, from->pages[i], to, to->pages[i], COPY_PAGE, positions_in(i, at));
    for (uint32_t i = windows ? kv_window_begin(kv_window(s->model), at) : n; i < n && rc == 0; i++)
        rc = carry(from, from->windows[i], to, to->windows[i], COPY_WINDOW_PAGE,
                   positions_in(i, at));
    if (rc == 0 && s->model->n_recurrent > 0)
        rc = carry(from, (uint32_t)from->state, to, (uint32_t)to->state, COPY_STATE, 0);
    return rc;
}

static void check_way(const struct subject *s, const struct backend_ops *here,
                      const struct backend_ops *there, bool windows, uint32_t cut, const char *what)
{
    struct place a = {0}, b = {0};
    const size_t n_vocab = s->model->n_vocab, half = (size_t)(TOKENS - cut) * n_vocab;
    float *got = subject_floats(s, PART);
    int rc = open_place(s, here, windows, 1, &a);
    if (rc == 0)
        rc = open_place(s, there, windows, 2, &b);
    if (rc == 0)
        rc = compute(&a, s, 0, cut, got);
    if (rc == 0)
        rc = carry_all(s, &a, &b, windows, cut);
    if (rc == 0)
        rc = compute(&b, s, cut, TOKENS, got);
    const size_t at = subject_differs(s->logits + cut * n_vocab, got, half);
    here->close(a.b);
    there->close(b.b);
    free(got);
    EXPECT(rc == 0, "%s, from %s to %s: error %d", what, here->name, there->name, rc);
    EXPECT(at == half, "%s, from %s to %s: row %zu differs", what, here->name, there->name,
           cut + at / n_vocab);
}

void pages_are_those_of_the_cpu(void)
{
    static const struct {
        const char *arch;
        uint32_t type;
        bool q8_0, windows;
    } kinds[] = {
        {"llama", QUANT_F32, false, false},   {"llama", QUANT_Q8_0, false, false},
        {"llama", QUANT_Q4_0, true, false},   {"gemma3", QUANT_F32, false, true},
        {"gemma4", QUANT_Q8_0, false, true},  {"gemma3", QUANT_Q8_0, true, true},
        {"qwen35", QUANT_Q8_0, false, false}, {"qwen3next", QUANT_F16, true, false},
    };
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct tiny_model shape = tiny_model_default(kinds[i].type);
        struct subject s;
        shape.arch = kinds[i].arch;
        shape.kv_q8_0 = kinds[i].q8_0;
        shape.seed = 1300 + i;
        subject_init(&s, &shape, TOKENS);
        for (uint32_t cut = CUT; cut <= PART; cut += PART - CUT) { /* after a page, in one */
            check_way(&s, &backend_cpu, &s.device, kinds[i].windows, cut, kinds[i].arch);
            check_way(&s, &s.device, &backend_cpu, kinds[i].windows, cut, kinds[i].arch);
        }
        subject_fini(&s);
    }
}
