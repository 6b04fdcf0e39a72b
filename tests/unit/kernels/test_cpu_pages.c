/* Pages and states that are copied out and in (backend.h, read_page and write_page): rows after them
 * have the bits that they have after the rows themselves, in another instance, at other ids, with
 * another instruction set. */
#include <check.h>
#include <stdlib.h>

#include "kernels/kv.h"
#include "tests/run_suite.h"
#include "tests/rig/every_type.h"
#include "tests/rig/expected.h"

enum { CUT = 96, PART = 105, TOKENS = 150, WINDOW_PAGES = 8, STATES = 4 };

static struct backend *open_instance(const struct expected *e, const char *isa, bool windows)
{
    const struct backend_limits limits = {.rows = TOKENS,
                                          .samples = TOKENS,
                                          .pages = EXPECTED_PAGES,
                                          .window_pages = windows ? WINDOW_PAGES : 0,
                                          .states = e->m.model->n_recurrent > 0 ? STATES : 0,
                                          .context = e->m.model->n_context,
                                          .threads = 2,
                                          .kv_q8_0 = e->m.kv_q8_0,
                                          .isa = isa};
    struct backend *b;
    char err[256] = "";
    ck_assert_msg(backend_cpu.open(e->m.model, &limits, &b, err, sizeof(err)) == 0, "%s", err);
    return b;
}

/* A text in an instance: where its pages are, and its state. */
struct place {
    struct backend *b;
    uint32_t pages[EXPECTED_PAGES], windows[EXPECTED_PAGES];
    int32_t state;
};

/* Positions [from, to) in one pass; logits [to - from][n_vocab]. */
static void compute(const struct place *place, const struct expected *e, uint32_t from, uint32_t to,
                    float *logits)
{
    struct expected_rows x = {.n = 0};
    x.sequences[0] = (struct pass_sequence){
        .pages = place->pages,
        .window_pages = place->windows,
        .state = {.from = from ? place->state : BACKEND_STATE_ZERO,
                  .own = place->state,
                  .commit = to - from},
    };
    expected_add(&x, 0, e->tokens, from, to - from, ROW_LOGITS);
    for (uint32_t i = 0; i < x.n; i++)
        x.results[i].logits = logits + (size_t)i * e->m.model->n_vocab;
    expected_run(place->b, PASS_CANONICAL, &x, 1);
}

/* In a block whose ends a sanitizer watches: read_page writes its bytes and no more. */
static uint8_t *copy_of(const struct place *place, uint32_t id, enum copy_class class,
                        uint32_t positions, size_t *ret_bytes)
{
    struct backend_info info;
    backend_cpu.describe(place->b, &info);
    *ret_bytes = backend_copy_bytes(&info, class);
    uint8_t *copy = malloc(*ret_bytes);
    ck_assert(*ret_bytes > 0 && copy);
    ck_assert_int_eq(backend_cpu.read_page(place->b, class, id, positions, copy), 0);
    return copy;
}

static void carry(const struct place *from, uint32_t from_id, const struct place *to,
                  uint32_t to_id, enum copy_class class, uint32_t positions)
{
    size_t bytes;
    uint8_t *copy = copy_of(from, from_id, class, positions, &bytes);
    ck_assert_int_eq(backend_cpu.write_page(to->b, class, to_id, copy), 0);
    free(copy);
}

/* Of page `i`, in a text of `n`. */
static uint32_t positions_in(uint32_t i, uint32_t n)
{
    const uint32_t left = n - i * KV_PAGE_POSITIONS;
    return left < KV_PAGE_POSITIONS ? left : KV_PAGE_POSITIONS;
}

/* Tokens [0, at) of a text are computed here, the others there. */
static void check_at(const struct tiny_model *shape, const char *here, const char *there,
                     bool windows, uint32_t at)
{
    struct expected e;
    expected_open(&e, shape, here, TOKENS);
    struct place a = {.b = open_instance(&e, here, windows), .state = 1};
    struct place b = {.b = open_instance(&e, there, windows), .state = 3};
    const uint32_t n_vocab = e.m.model->n_vocab, n = kv_pages(at);
    float *got = help_memory((size_t)TOKENS * n_vocab * sizeof(float));
    for (uint32_t i = 0; i < EXPECTED_PAGES; i++) {
        a.pages[i] = i;
        b.pages[i] = EXPECTED_PAGES - 1 - i;
        a.windows[i] = i % WINDOW_PAGES;
        b.windows[i] = (i + 3) % WINDOW_PAGES;
    }
    compute(&a, &e, 0, at, got);
    for (uint32_t i = 0; i < n; i++)
        carry(&a, a.pages[i], &b, b.pages[i], COPY_PAGE, positions_in(i, at));
    for (uint32_t i = windows ? kv_window_begin(kv_window(e.m.model), at) : n; i < n; i++)
        carry(&a, a.windows[i], &b, b.windows[i], COPY_WINDOW_PAGE, positions_in(i, at));
    if (e.m.model->n_recurrent > 0)
        carry(&a, (uint32_t)a.state, &b, (uint32_t)b.state, COPY_STATE, 0);
    compute(&b, &e, at, TOKENS, got + (size_t)at * n_vocab);
    expected_same(&e, got, here);
    backend_cpu.close(a.b);
    backend_cpu.close(b.b);
    free(got);
    expected_close(&e);
}

/* At the end of a page, and in the middle of one. */
static void check(const struct tiny_model *shape, const char *here, const char *there, bool windows)
{
    check_at(shape, here, there, windows, CUT);
    check_at(shape, here, there, windows, PART);
}

/* Every KV type: of F32 layers f32, of others f16, and q8_0. */
START_TEST(pages_of_every_type_are_carried)
{
    struct tiny_model shape = tiny_model_default(expected_type(_i));
    shape.kv_q8_0 = expected_q8_0(_i);
    shape.seed = 40 + (uint64_t)_i;
    FOR_ISAS(isa)
    check(&shape, _i % 2 ? "ref" : isa->name, _i % 2 ? isa->name : "ref", false);
    check(&shape, "ref", "ref", false);
}
END_TEST

/* A page may hold more, and what its memory held before: of others. */
START_TEST(positions_that_are_not_asked_for_are_zeros)
{
    struct tiny_model shape = tiny_model_default(expected_type(_i));
    struct expected e;
    size_t bytes;
    shape.kv_q8_0 = expected_q8_0(_i);
    shape.seed = 80 + (uint64_t)_i;
    expected_open(&e, &shape, "ref", TOKENS);
    struct place a = {.b = open_instance(&e, "ref", false), .state = 1};
    const uint32_t id = PART / KV_PAGE_POSITIONS, some = PART % KV_PAGE_POSITIONS;
    float *logits = help_memory((size_t)TOKENS * e.m.model->n_vocab * sizeof(float));
    for (uint32_t i = 0; i < EXPECTED_PAGES; i++)
        a.pages[i] = i;
    compute(&a, &e, 0, PART, logits); /* into memory of zeros */
    uint8_t *all = copy_of(&a, id, COPY_PAGE, KV_PAGE_POSITIONS, &bytes);
    uint8_t *part = copy_of(&a, id, COPY_PAGE, some, &bytes);
    ck_assert_mem_eq(part, all, bytes);
    free(all);
    compute(&a, &e, PART, TOKENS, logits);
    all = copy_of(&a, id, COPY_PAGE, KV_PAGE_POSITIONS, &bytes);
    uint8_t *again = copy_of(&a, id, COPY_PAGE, some, &bytes);
    ck_assert_mem_eq(again, part, bytes);
    ck_assert_mem_ne(again, all, bytes);
    free(all);
    free(part);
    free(again);
    free(logits);
    backend_cpu.close(a.b);
    expected_close(&e);
}
END_TEST

static const char *const archs[] = {"gemma3", "gemma4",    "gpt-oss",  "gemma4-all",
                                    "qwen35", "qwen35moe", "qwen3next"};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

/* Window pages where there are windows; states, also those with a hidden row, where there are
 * recurrent layers. */
START_TEST(window_pages_and_states_are_carried)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    tiny_model_as(&shape, archs[_i]);
    shape.seed = 60 + (uint64_t)_i;
    if (_i == 4)
        shape.n_draft = 1;
    for (int q8_0 = 0; q8_0 < 2; q8_0++) {
        shape.kv_q8_0 = q8_0;
        FOR_ISAS(isa)
        check(&shape, "ref", isa->name, _i < 4);
        check(&shape, "ref", "ref", _i < 4);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_pages");
    TCase *tc = tcase_create("pages");
    help_say_missing_isas();
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, pages_of_every_type_are_carried, 0, 2 * EXPECTED_TYPES);
    tcase_add_loop_test(tc, positions_that_are_not_asked_for_are_zeros, 0, 2 * EXPECTED_TYPES);
    tcase_add_loop_test(tc, window_pages_and_states_are_carried, 0, N_ARCHS);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
