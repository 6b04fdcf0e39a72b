/* Pages and states that are copied out and in (backend.h, read_page and write_page): rows after them
 * have the bits that they have after the rows themselves, in another instance, at other ids, with
 * another instruction set. */
#include <check.h>
#include <stdlib.h>

#include "kernels/kv.h"
#include "tests/run_suite.h"
#include "tests/rig/every_type.h"
#include "tests/rig/expected.h"

enum { CUT = 96, TOKENS = 150, WINDOW_PAGES = 8, STATES = 4 };

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

/* In blocks whose ends a sanitizer watches: read_page writes its bytes and no more. */
static void carry(const struct place *from, uint32_t from_id, const struct place *to,
                  uint32_t to_id, enum copy_class class)
{
    struct backend_info info;
    backend_cpu.describe(from->b, &info);
    const size_t bytes = backend_copy_bytes(&info, class);
    uint8_t *copy = malloc(bytes);
    ck_assert(bytes > 0 && copy);
    ck_assert_int_eq(backend_cpu.read_page(from->b, class, from_id, copy), 0);
    ck_assert_int_eq(backend_cpu.write_page(to->b, class, to_id, copy), 0);
    free(copy);
}

/* The first half of a text is computed here, the second one there. */
static void check(const struct tiny_model *shape, const char *here, const char *there, bool windows)
{
    struct expected e;
    expected_open(&e, shape, here, TOKENS);
    struct place a = {.b = open_instance(&e, here, windows), .state = 1};
    struct place b = {.b = open_instance(&e, there, windows), .state = 3};
    const uint32_t n_vocab = e.m.model->n_vocab, cut = CUT / KV_PAGE_POSITIONS;
    float *got = help_memory((size_t)TOKENS * n_vocab * sizeof(float));
    for (uint32_t i = 0; i < EXPECTED_PAGES; i++) {
        a.pages[i] = i;
        b.pages[i] = EXPECTED_PAGES - 1 - i;
        a.windows[i] = i % WINDOW_PAGES;
        b.windows[i] = (i + 3) % WINDOW_PAGES;
    }
    compute(&a, &e, 0, CUT, got);
    for (uint32_t i = 0; i < cut; i++)
        carry(&a, a.pages[i], &b, b.pages[i], COPY_PAGE);
    for (uint32_t i = windows ? kv_window_begin(kv_window(e.m.model), CUT) : cut; i < cut; i++)
        carry(&a, a.windows[i], &b, b.windows[i], COPY_WINDOW_PAGE);
    if (e.m.model->n_recurrent > 0)
        carry(&a, (uint32_t)a.state, &b, (uint32_t)b.state, COPY_STATE);
    compute(&b, &e, CUT, TOKENS, got + (size_t)CUT * n_vocab);
    expected_same(&e, got, here);
    backend_cpu.close(a.b);
    backend_cpu.close(b.b);
    free(got);
    expected_close(&e);
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
    tcase_add_loop_test(tc, window_pages_and_states_are_carried, 0, N_ARCHS);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
