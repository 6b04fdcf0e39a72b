/* A CPU pass takes rows of several sequences: none changes a bit of another, nor do rewritten
 * positions, reused pages or other instances. */
#include <check.h>
#include <stdlib.h>

#include "tests/run_suite.h"
#include "tests/rig/expected.h"

enum { OTHERS = EXPECTED_SEQUENCES - 1 };

/* A sequence is checked while others decode and prefill in the same passes, before, after and
 * between its rows. */
START_TEST(other_sequences_never_change_a_bit)
{
    struct tiny_model shape = tiny_model_default(expected_type(_i));
    struct expected e;
    shape.kv_q8_0 = expected_q8_0(_i);
    shape.sinks = _i % 2;
    expected_open(&e, &shape, NULL, 90);
    uint32_t tokens[OTHERS][EXPECTED_TOKENS], pages[EXPECTED_PAGES], n_vocab = e.m.model->n_vocab;
    uint64_t seed = 5;
    expected_page_ids(11, pages);
    for (uint32_t i = 0; i < OTHERS; i++)
        expected_random_tokens(40 + i, e.m.model, tokens[i], EXPECTED_TOKENS);
    float *got = help_memory((size_t)e.n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&e.m, NULL, 2, 256, EXPECTED_PAGES);
    uint32_t done[OTHERS] = {0}, position = 0;
    while (position < e.n) {
        struct expected_rows x = {.n = 0};
        uint32_t mine = 1 + (uint32_t)(help_random(&seed) % 9);
        mine = mine < e.n - position ? mine : e.n - position;
        for (uint32_t s = 0; s <= OTHERS; s++)
            x.sequences[s].pages = pages + 10 * s;
        uint32_t first = (uint32_t)(help_random(&seed) % (OTHERS + 1));
        for (uint32_t turn = 0; turn <= OTHERS; turn++) {
            uint32_t s = (first + turn) % (OTHERS + 1);
            if (s == 0) {
                /* Two rows or more are split by a row of another sequence. */
                expected_add(&x, 0, e.tokens, position, mine, ROW_LOGITS);
                continue;
            }
            uint32_t count = (uint32_t)(help_random(&seed) % 8);
            expected_add(&x, s, tokens[s - 1], done[s - 1], count, 0);
            done[s - 1] += count;
        }
        for (uint32_t r = 0; r < x.n; r++) {
            if (x.rows[r].sequence == 0)
                x.results[r].logits = got + (size_t)x.rows[r].position * n_vocab;
        }
        expected_run(b, PASS_CANONICAL, &x, 1 + OTHERS);
        position += mine;
    }
    expected_same(&e, got, "with other sequences around");
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

/* Rows of two sequences lie alternately in the pass. */
START_TEST(interleaved_rows_give_the_same_bits)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct expected e;
    expected_open(&e, &shape, NULL, 64);
    uint32_t n_vocab = e.m.model->n_vocab;
    float *got = help_memory((size_t)e.n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&e.m, NULL, 2, 256, EXPECTED_PAGES);
    struct expected_rows x = {.n = 0};
    x.sequences[0].pages = e.pages;
    x.sequences[1].pages = e.pages + 20;
    for (uint32_t i = 0; i < e.n; i++) {
        x.results[x.n].logits = got + (size_t)i * n_vocab;
        expected_add(&x, 0, e.tokens, i, 1, ROW_LOGITS);
        expected_add(&x, 1, e.tokens, i, 1, 0);
    }
    expected_run(b, PASS_CANONICAL, &x, 2);
    expected_same(&e, got, "interleaved");
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

/* Verification rewrites positions that rejected drafts wrote: only the last write counts. */
START_TEST(rewritten_positions_leave_no_trace)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct expected e;
    expected_open(&e, &shape, NULL, 80);
    uint32_t n_vocab = e.m.model->n_vocab, wrong[EXPECTED_TOKENS];
    float *got = help_memory((size_t)e.n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&e.m, NULL, 1, 128, EXPECTED_PAGES);
    expected_random_tokens(77, e.m.model, wrong, EXPECTED_TOKENS);
    struct pass_sequence sequence = {.pages = e.pages};
    for (uint32_t position = 0; position < e.n; position += 4) {
        struct expected_rows x = {.n = 0};
        expected_add(&x, 0, wrong, position, 11, 0); /* drafts, all rejected */
        struct pass pass = {PASS_FAST, x.n, x.rows, &sequence, x.results, 1};
        help_pass(b, &pass);
        x = (struct expected_rows){.n = 0};
        expected_add(&x, 0, e.tokens, position, 4, ROW_LOGITS);
        for (uint32_t i = 0; i < 4; i++)
            x.results[i].logits = got + (size_t)(position + i) * n_vocab;
        pass = (struct pass){PASS_CANONICAL, x.n, x.rows, &sequence, x.results, 1};
        help_pass(b, &pass);
    }
    expected_same(&e, got, "after rejected drafts");
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

START_TEST(two_instances_do_not_disturb_each_other)
{
    struct tiny_model one = tiny_model_default(QUANT_Q4_0), two = tiny_model_default(QUANT_F32);
    struct expected a, b;
    two.n_layer = 3;
    expected_open(&a, &one, NULL, 40);
    expected_open(&b, &two, NULL, 40);
    struct backend *ba = help_backend(&a.m, NULL, 2, 64, EXPECTED_PAGES);
    struct backend *bb = help_backend(&b.m, NULL, 1, 64, EXPECTED_PAGES);
    float *got = help_memory((size_t)40 * 320 * sizeof(float));
    for (int i = 0; i < 3; i++) {
        help_logits(ba, a.m.model, a.tokens, 40, 5, a.pages, got);
        expected_same(&a, got, "first instance");
        help_logits(bb, b.m.model, b.tokens, 40, 9, b.pages, got);
        expected_same(&b, got, "second instance");
    }
    backend_cpu.close(ba);
    backend_cpu.close(bb);
    free(got);
    expected_close(&a);
    expected_close(&b);
}
END_TEST

START_TEST(a_released_page_can_be_used_again)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct expected e;
    expected_open(&e, &shape, NULL, 80);
    struct backend *b = help_backend(&e.m, NULL, 1, 80, EXPECTED_PAGES);
    float *got = help_memory((size_t)80 * 320 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        help_logits(b, e.m.model, e.tokens, 80, 32, e.pages, got);
        expected_same(&e, got, "after release");
        for (uint32_t p = 0; p < 3; p++)
            backend_cpu.release_page(b, PAGES_FULL, e.pages[p]);
    }
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

/* ---- window pages ------------------------------------------------------------------------------- */

/* Logits of all rows, in passes of `chunk`. Window pages are used again as soon as no window reaches
 * them: as many as one pass needs. */
static void logits_in_windows(const struct expected *e, uint32_t chunk, const char *isa,
                              float *logits)
{
    const uint32_t window = kv_window(e->m.model), n_windows = kv_pages(window + chunk) + 1;
    struct backend_limits limits = {.rows = chunk,
                                    .samples = chunk,
                                    .pages = EXPECTED_PAGES,
                                    .window_pages = n_windows,
                                    .context = e->m.model->n_context,
                                    .threads = 2,
                                    .kv_q8_0 = e->m.kv_q8_0,
                                    .isa = isa};
    struct backend *b;
    struct backend_info info;
    uint32_t windows[EXPECTED_PAGES];
    char err[256] = "";
    ck_assert_msg(backend_cpu.open(e->m.model, &limits, &b, err, sizeof(err)) == 0, "%s", err);
    backend_cpu.describe(b, &info);
    ck_assert_uint_gt(info.window_page_bytes, 0);
    ck_assert_uint_eq(info.kv_bytes,
                      EXPECTED_PAGES * info.page_bytes + n_windows * info.window_page_bytes);
    for (uint32_t at = 0; at < e->n; at += chunk) {
        struct expected_rows x = {.n = 0};
        const uint32_t n = e->n - at < chunk ? e->n - at : chunk;
        for (uint32_t i = 0; i < EXPECTED_PAGES; i++)
            windows[i] = i < kv_window_begin(window, at) ? UINT32_MAX : i % n_windows;
        expected_add(&x, 0, e->tokens, at, n, ROW_LOGITS);
        x.sequences[0] = (struct pass_sequence){.pages = e->pages, .window_pages = windows};
        for (uint32_t i = 0; i < n; i++)
            x.results[i].logits = logits + (size_t)(at + i) * e->m.model->n_vocab;
        expected_run(b, PASS_CANONICAL, &x, 1);
    }
    backend_cpu.close(b);
}

/* Layers in windows keep their KV in pages of their own, of which there are only as many as windows
 * and one pass need: the bits are those of one page for all layers. */
START_TEST(window_pages_give_the_same_bits)
{
    static const uint32_t chunks[] = {1, 9, 40, 100}, windows[] = {1, 20, 32, 33, 75};
    static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
    const uint32_t types[] = {QUANT_Q8_0, QUANT_F32, QUANT_F16};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        struct tiny_model shape = tiny_model_default(types[_i % 3]);
        struct expected e;
        shape.n_layer = 3;
        tiny_model_as(&shape, i % 2 == 0 ? "gemma3" : "gemma4-inputs");
        shape.window = windows[i];
        shape.v_dim = i == 2 ? 32 : 0;
        shape.sinks = i == 3;
        shape.kv_q8_0 = _i >= 3;
        expected_open(&e, &shape, NULL, 150);
        float *got = help_memory((size_t)e.n * e.m.model->n_vocab * sizeof(float));
        for (size_t k = 0; k < sizeof(chunks) / sizeof(chunks[0]); k++) {
            const char *isa = isas[(i + k) % 4];
            logits_in_windows(&e, chunks[k], help_has_isa(isa) ? isa : "ref", got);
            expected_same(&e, got, "in window pages");
        }
        free(got);
        expected_close(&e);
    }
}
END_TEST

/* ---- samples ------------------------------------------------------------------------------------
 */

START_TEST(a_row_samples_from_its_own_logits)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct expected e;
    expected_open(&e, &shape, NULL, 40);
    struct backend *b = help_backend(&e.m, NULL, 2, 40, EXPECTED_PAGES);
    struct sampler_params params;
    sampler_params_init(&params);
    params.logprobs = true;
    params.n_top = 3;
    struct expected_rows x = {.n = 0};
    x.sequences[0] = (struct pass_sequence){
        .pages = e.pages, .tokens = e.tokens, .prompt_length = 10, .sampler = &params};
    expected_add(&x, 0, e.tokens, 0, 40, ROW_SAMPLE);
    x.rows[7].wants = 0;
    expected_run(b, PASS_CANONICAL, &x, 1);
    for (uint32_t r = 10; r < 40; r++) {
        uint32_t best = 0;
        const float *logits = e.logits + (size_t)r * 320;
        for (uint32_t i = 1; i < 320; i++)
            best = logits[i] > logits[best] ? i : best;
        ck_assert_int_eq(x.results[r].status, 0);
        ck_assert_uint_eq(x.results[r].sample.token, best);
        ck_assert_uint_eq(x.results[r].sample.n_top, 3);
        ck_assert_uint_eq(x.results[r].sample.top[0].id, best);
    }
    backend_cpu.close(b);
    expected_close(&e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_sequences");
    TCase *tcase = tcase_create("sequences");
    tcase_add_loop_test(tcase, other_sequences_never_change_a_bit, 0, 2 * EXPECTED_TYPES);
    tcase_add_test(tcase, interleaved_rows_give_the_same_bits);
    tcase_add_test(tcase, rewritten_positions_leave_no_trace);
    tcase_add_test(tcase, two_instances_do_not_disturb_each_other);
    tcase_add_test(tcase, a_released_page_can_be_used_again);
    tcase_add_test(tcase, a_row_samples_from_its_own_logits);
    tcase_add_loop_test(tcase, window_pages_give_the_same_bits, 0, 6);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
