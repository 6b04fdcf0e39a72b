/*
 * Masks over the vocabularies of real models: each token by itself, byte by byte, is what the mask
 * says. What the bytes mean is tested in test_grammar.c.
 */
#include "daemon/grammars.h"
#include "tests/run_suite.h"
#include "tests/unit/grammar_masks.h"
#include "tests/unit/vocab_file.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compare_all(struct grammar_run *run, const struct grammar_mask *mask)
{
    const struct grammar_vocab *v = run->grammar->vocab;
    uint32_t n = grammar_may_end(run) ? v->n_ends : 0;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        if (v->at[id] == v->at[id + 1])
            continue;
        bool want = grammar_draft(run, id) == 0;
        grammar_keep(run, 0);
        n += want;
        ck_assert_msg(has(mask->bits, id) == want, "token %u", id);
    }
    ck_assert_uint_eq(n, mask->n_allowed);
}

/* A random answer, its masks made at once and in pieces. */
static void follow(struct grammar *g, uint32_t *state)
{
    const struct grammar_vocab *v = g->vocab;
    struct grammar_run run;
    struct grammar_mask mask;
    grammar_begin(g, false, &run);
    for (int step = 0; step < 8; step++) {
        int64_t budget;
        do
            budget = step % 2 ? 1000 : INT64_MAX;
        while (grammar_mask(&run, 0, &budget, &mask) == 0);
        compare_all(&run, &mask);
        uint32_t id = random_allowed(&mask, state);
        if (v->at[id] == v->at[id + 1])
            break; /* the end */
        ck_assert_int_eq(grammar_accept(&run, id), 0);
        grammar_release(g);
    }
    grammar_end(&run);
}

START_TEST(masks_of_real_vocabularies)
{
    static const char *const names[] = {"qwen2", "llama-spm", "gpt-2", "phi-3", "starcoder"};
    static const char *const texts[] = {
        "root ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\npair ::= string \":\" ws value\n"
        "value ::= root | string | [0-9]+ | \"[\" ws (value (\",\" ws value)*)? \"]\"\n"
        "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nrt])* \"\\\"\"\nws ::= [ "
        "\\n]*",
        "root ::= \"\\\"\" [^\"\\n]{0,40} \"\\\"\" [a-z]{20,200}",
        "root ::= (word (\" \" | \"\\n\"))+\nword ::= [A-Z]? [a-z]+ | [\\u4e00-\\u9fff]{2} | "
        "[0-9]{3}",
    };
    const char *folder = getenv("HEARTH_TESTDATA");
    uint32_t state = 3;
    char path[4096], err[300];
    if (!folder) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct vocab vocab;
        struct grammar_vocab *v;
        snprintf(path, sizeof(path), "%s/tokenizers/ggml-vocab-%s.gguf", folder, names[i]);
        size_t bytes;
        void *block = vocab_file_build(path, &bytes);
        ck_assert_int_eq(vocab_open(block, bytes, &vocab, err, sizeof(err)), 0);
        ck_assert_int_eq(grammars_vocab_open(&vocab, vocab.n_tokens + 5, &v), 0);
        for (uint32_t id = 0; id < vocab.n_tokens; id++) /* a control token is no text */
            ck_assert(!vocab_is_control(&vocab, id) || v->at[id] == v->at[id + 1]);
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            struct grammar *g;
            ck_assert_msg(grammar_open(v, texts[k], strlen(texts[k]), &g, err, sizeof(err)) == 0,
                          "%s", err);
            follow(g, &state);
            grammar_close(g);
        }
        grammar_vocab_close(v);
        free(block);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar_vocab");
    TCase *tests = tcase_create("vocab");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, masks_of_real_vocabularies);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
