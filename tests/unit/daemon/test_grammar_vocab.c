/*
 * Tokens in a trie: sorted by their bytes, each prefix once. Masks over the vocabularies of real
 * models agree with each token checked alone, byte by byte. What the bytes mean is tested in
 * test_grammar.c.
 */
#include "daemon/model/loaded_model.h"
#include "tests/run_suite.h"
#include "tests/rig/grammar_masks.h"
#include "tests/rig/grammar_whole.h"
#include "tests/rig/vocab_file.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 4000, MOST_BYTES = 24 };

/* Texts of few letters, so that many share their first eight bytes; zero bytes, duplicates, empty
 * texts. */
static void random_tokens(struct grammar_token *tokens, char (*texts)[MOST_BYTES])
{
    static const char letters[] = {0, 'a', (char)0xfe};
    uint32_t state = 11;
    for (uint32_t i = 0; i < TOKENS; i++) {
        const uint32_t n = random_below(&state, MOST_BYTES + 1);
        const uint32_t same = random_below(&state, 12);
        for (uint32_t k = 0; k < n; k++)
            texts[i][k] = k < same ? 'a' : letters[random_below(&state, 3)];
        tokens[i] = (struct grammar_token){.bytes = texts[i], .n_bytes = n, .is_end = i % 97 == 0};
    }
}

static bool in_order(const struct grammar_token *a, const struct grammar_token *b, bool ids)
{
    const int order = memcmp(a->bytes, b->bytes, a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes);
    return order != 0 ? order < 0 : a->n_bytes != b->n_bytes ? a->n_bytes < b->n_bytes : ids;
}

/* Every token longer than this many bytes is in the trie, in order; each node lies on its first
 * token's path, and the number of nodes is minimal. */
static void check_trie(const struct grammar_trie *t, const struct grammar_token *tokens,
                       uint32_t above)
{
    uint32_t n = 0, nodes = 0;
    char path[MOST_BYTES];
    for (uint32_t i = 0; i < TOKENS; i++)
        n += !tokens[i].is_end && tokens[i].n_bytes > above;
    ck_assert_uint_eq(t->n_tokens, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct grammar_token *token = &tokens[t->ids[i]],
                                   *before = &tokens[t->ids[i - (i > 0)]];
        uint32_t common = 0;
        ck_assert(!token->is_end && token->n_bytes > above);
        ck_assert(i == 0 || in_order(before, token, t->ids[i - 1] < t->ids[i]));
        while (i > 0 && common < before->n_bytes && before->bytes[common] == token->bytes[common])
            common++;
        nodes += token->n_bytes - common;
    }
    ck_assert_uint_eq(t->n_nodes, nodes);
    for (uint32_t node = 0; node < nodes; node++) {
        path[t->depth[node] - 1] = (char)t->byte[node];
        ck_assert_mem_eq(tokens[t->ids[t->first[node]]].bytes, path, t->depth[node]);
    }
}

START_TEST(tokens_are_sorted_by_their_bytes)
{
    static struct grammar_token tokens[TOKENS];
    static char texts[TOKENS][MOST_BYTES];
    struct grammar_vocab *v;
    random_tokens(tokens, texts);
    ck_assert_int_eq(grammar_vocab_open(tokens, TOKENS, TOKENS + 3, &v), 0);
    check_trie(&v->all, tokens, 0);
    check_trie(&v->long_tokens, tokens, GRAMMAR_SHORT);
    grammar_vocab_close(v);
}
END_TEST

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

/* A random answer, its masks computed at once and in pieces. */
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

START_TEST(masks_of_real_vocabularies_equal_each_token_alone)
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
        ck_assert_int_eq(loaded_vocab_of_grammars(&vocab, vocab.n_tokens + 5, &v), 0);
        for (uint32_t id = 0; id < vocab.n_tokens; id++) /* a control token is not text */
            ck_assert(!vocab_is_control(&vocab, id) || v->at[id] == v->at[id + 1] ||
                      v->text[v->at[id]] == GRAMMAR_CONTROL);
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
    tcase_add_test(tests, tokens_are_sorted_by_their_bytes);
    tcase_add_test(tests, masks_of_real_vocabularies_equal_each_token_alone);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
