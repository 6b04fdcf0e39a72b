/*
 * Masks against the definition (grammar_reference.h): random grammars over random vocabularies,
 * masks computed at once and in pieces, with states freed in between.
 */
#include "tests/run_suite.h"
#include "tests/rig/grammar_masks.h"
#include "tests/rig/grammar_whole.h"
#include "tests/rig/grammar_reference.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

struct token_text {
    char bytes[1024];
    size_t n;
};

static void add(struct token_text *t, const char *what)
{
    size_t n = strlen(what);
    ck_assert_uint_lt(t->n + n, sizeof(t->bytes));
    memcpy(t->bytes + t->n, what, n + 1);
    t->n += n;
}

static void random_item(struct token_text *t, uint32_t *state, uint32_t depth);

static void random_choice(struct token_text *t, uint32_t *state, uint32_t depth)
{
    for (uint32_t n = next_random(state) % 3 + 1; n > 0; n--) {
        for (uint32_t k = next_random(state) % 3 + (depth > 0); k > 0; k--)
            random_item(t, state, depth);
        if (n > 1)
            add(t, "| ");
    }
}

static void random_item(struct token_text *t, uint32_t *state, uint32_t depth)
{
    static const char *const simple[] = {"\"a\"",
                                         "\"b\"",
                                         "\"ab\"",
                                         "\"ba\"",
                                         "\"\xc3\xa9\"",
                                         "\"\xe6\xbc\xa2\"",
                                         "[ab]",
                                         "[^a]",
                                         "[a\xc3\xa9-\xc3\xab]",
                                         ".",
                                         "\"\"",
                                         "r1",
                                         "r2",
                                         "r3",
                                         "[\xe6\xbc\xa0-\xe6\xbc\xb0"
                                         "b]",
                                         "\"\\\"\"",
                                         "[^\\\"\\\\]",
                                         "r1"};
    static const char *const operators[] = {"*",     "+",      "?",       "{2}",
                                            "{1,3}", "{0,40}", "{18,25}", "{2,}"};
    if (depth < 3 && next_random(state) % 5 == 0 && t->n < 600) {
        add(t, "(");
        random_choice(t, state, depth + 1);
        add(t, ")");
    } else {
        add(t, simple[next_random(state) % (sizeof(simple) / sizeof(simple[0]))]);
    }
    if (next_random(state) % 4 == 0)
        add(t, operators[next_random(state) % 8]);
    add(t, " ");
}

static void random_grammar(struct token_text *t, uint32_t *state)
{
    static const char *const heads[] = {"root ::= ", "\nr1 ::= ", "\nr2 ::= ", "\nr3 ::= "};
    t->n = 0;
    for (int i = 0; i < 4; i++) {
        add(t, heads[i]);
        random_choice(t, state, 0);
    }
}

enum { SMALL_VOCAB = 150 };

/* Tokens of pieces of the characters that random grammars use; some twice, some long, some that are
 * not text, two end tokens; then ids without a token. */
static struct grammar_vocab *random_vocab(uint32_t *state, struct token_text *texts)
{
    static const char pieces[] = "aabb\xc3\xa9\xe6\xbc\xa2\"\\";
    struct grammar_token tokens[SMALL_VOCAB];
    struct grammar_vocab *v = NULL;
    for (uint32_t i = 0; i < SMALL_VOCAB; i++) {
        texts[i].n = 0;
        uint32_t n = i < 16 ? 1 : next_random(state) % (i % 10 == 0 ? 24 : 6);
        for (uint32_t k = 0; k < n; k++)
            texts[i].bytes[texts[i].n++] = i < 11 ? pieces[i] : pieces[next_random(state) % 11];
        if (i % 10 == 1 && n > 0)
            for (texts[i].n = 0; texts[i].n < n * 4;)
                texts[i].bytes[texts[i].n++] = 'a';
        tokens[i] = (struct grammar_token){
            .bytes = texts[i].bytes, .n_bytes = (uint32_t)texts[i].n, .is_end = i % 60 == 59};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, SMALL_VOCAB, SMALL_VOCAB + 70, &v), 0);
    return v;
}

/* The mask after `answer` must agree with the definition on each token. */
static void compare_mask(struct reference *r, const struct grammar_mask *mask,
                         const struct token_text *texts, const struct token_text *answer,
                         const char *grammar)
{
    char whole[REFERENCE_BYTES_MAX];
    bool ends;
    uint32_t n = 0;
    ck_assert(reference_match(r, answer->bytes, (uint32_t)answer->n, &ends));
    for (uint32_t id = 0; id < SMALL_VOCAB + 70; id++) {
        bool want = false, ignored;
        n += has(mask->bits, id);
        if (id < SMALL_VOCAB && id % 60 == 59) {
            want = ends;
        } else if (id < SMALL_VOCAB && texts[id].n > 0) {
            ck_assert_uint_le(answer->n + texts[id].n, REFERENCE_BYTES_MAX);
            memcpy(whole, answer->bytes, answer->n);
            memcpy(whole + answer->n, texts[id].bytes, texts[id].n);
            want = reference_match(r, whole, (uint32_t)(answer->n + texts[id].n), &ignored);
        }
        ck_assert_msg(has(mask->bits, id) == want, "%s\nafter '%.*s' token %u '%.*s' is %s",
                      grammar, (int)answer->n, answer->bytes, id,
                      id < SMALL_VOCAB ? (int)texts[id].n : 0,
                      id < SMALL_VOCAB ? texts[id].bytes : "", want ? "missing" : "allowed");
    }
    ck_assert_uint_eq(n, mask->n_allowed);
}

static uint32_t n_wide; /* answers that ended with too many parses */

/* Follows one random answer and compares every mask. Returns how many were compared. */
static uint32_t follow(struct grammar *g, struct reference *r, const struct token_text *texts,
                       uint32_t *state, const char *grammar)
{
    struct grammar_run run;
    struct token_text answer = {.n = 0};
    uint32_t n = 0;
    grammar_begin(g, false, &run);
    for (; answer.n < 30; n++) {
        int64_t piece = next_random(state) % 3 == 0 ? 1 + next_random(state) % 40 : 0;
        struct grammar_mask mask = mask_of(&run, 0, piece);
        if (mask.bits == NULL) {
            n_wide++;
            break;
        }
        compare_mask(r, &mask, texts, &answer, grammar);
        if (mask.n_allowed == 0)
            break;
        uint32_t id = random_allowed(&mask, state);
        ck_assert_int_eq(grammar_accept(&run, id), 0);
        if (id % 60 == 59)
            break;
        memcpy(answer.bytes + answer.n, texts[id].bytes, texts[id].n);
        answer.n += texts[id].n;
        if (next_random(state) % 8 == 0)
            grammar_release(g);
        if (next_random(state) % 16 == 0)
            ck_assert_int_eq(grammar_sweep(g, &(int64_t){0}), 0);
    }
    grammar_end(&run);
    return n;
}

START_TEST(masks_equal_the_definition)
{
    static struct token_text texts[SMALL_VOCAB], grammar;
    uint32_t compiled = 0, masks = 0, state = 1;
    char err[300];
    for (uint32_t seed = 0; seed < 3000; seed++) {
        struct reference r;
        struct grammar *g;
        random_grammar(&grammar, &state);
        struct grammar_vocab *v = random_vocab(&state, texts);
        if (grammar_open(v, grammar.bytes, grammar.n, &g, err, sizeof(err)) == 0) {
            ck_assert_int_eq(reference_open(&r, grammar.bytes, grammar.n), 0);
            compiled++;
            for (int i = 0; i < 4; i++)
                masks += follow(g, &r, texts, &state, grammar.bytes);
            reference_close(&r);
            grammar_close(g);
        }
        grammar_vocab_close(v);
    }
    fprintf(stderr, "%u grammars, %u masks, %u answers too wide\n", compiled, masks, n_wide);
    ck_assert_uint_lt(n_wide, compiled / 20);
    ck_assert_uint_gt(compiled, 400);
    ck_assert_uint_gt(masks, 8000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar_definition");
    TCase *tests = tcase_create("grammar");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, masks_equal_the_definition);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
