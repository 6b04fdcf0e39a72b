/*
 * Costly grammars: deep, ambiguous, with many parses. Exceeding a limit fails that answer only,
 * and does not depend on earlier answers.
 */
#include "tests/run_suite.h"
#include "tests/rig/grammar_masks.h"
#include "tests/rig/grammar_whole.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stack deeper than any real text: states are freed meanwhile, and the brackets close in
 * order. */
START_TEST(deep_nesting_is_accepted)
{
    struct grammar *g = open_grammar(
        bytes_vocab, "root ::= \"a\" root \"x\" | \"b\" root \"y\" | \"c\" root \"z\" | \".\"");
    struct grammar_run run;
    static char answer[100000];
    uint32_t state = 7, n = 0;
    grammar_begin(g, false, &run);
    for (; n < sizeof(answer); n++) {
        answer[n] = (char)('a' + next_random(&state) % 3);
        ck_assert_int_eq(grammar_accept(&run, (uint8_t)answer[n]), 0);
        ck_assert_uint_eq(mask_of(&run, 0, 0).n_allowed, 4);
        grammar_release(g);
    }
    ck_assert_int_eq(grammar_accept(&run, '.'), 0);
    for (; n > 0; n--) {
        struct grammar_mask mask = mask_of(&run, 0, 0);
        uint8_t want = (uint8_t)(answer[n - 1] - 'a' + 'x');
        ck_assert(mask.n_allowed == 1 && has(mask.bits, want));
        ck_assert_int_eq(grammar_accept(&run, want), 0);
        grammar_release(g);
    }
    ck_assert(grammar_must_end(&run));
    ck_assert_uint_gt(g->states.n_sweeps, 0);
    ck_assert_uint_lt(grammar_memory(g), 3 * GRAMMAR_BYTES_MAX);
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

START_TEST(a_stack_too_deep_fails_that_answer_only)
{
    struct grammar *g = open_grammar(bytes_vocab, "root ::= \"(\" root \")\" | \"x\"");
    struct grammar_run run;
    int rc = 0;
    uint32_t n = 0;
    grammar_begin(g, false, &run);
    for (; rc == 0 && n < 10000000; n++)
        rc = grammar_accept(&run, '(');
    ck_assert_int_eq(rc, -E2BIG);
    ck_assert_uint_gt(n, 20000);
    grammar_end(&run);
    grammar_begin(g, false, &run); /* the next answer works */
    ck_assert_int_eq(grammar_accept(&run, '('), 0);
    ck_assert_uint_eq(mask_of(&run, 0, 0).n_allowed, 2);
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* Accepts `byte` until it is refused, with a mask now and then. Returns how often it was
 * accepted. */
static uint32_t dig(struct grammar_run *run, uint8_t byte, uint32_t most)
{
    uint32_t n = 0;
    int rc = 0;
    for (; rc == 0 && n < most; n++) {
        if (n % 64 == 0) {
            grammar_release(run->grammar);
            (void)mask_of(run, 0, 0);
        }
        rc = grammar_accept(run, byte);
    }
    ck_assert(rc == 0 || rc == -E2BIG);
    return rc == 0 ? n : n - 1;
}

START_TEST(the_depth_limit_ignores_other_answers)
{
    static const char text[] = "root ::= \"[\" root \"]\" | \"{\" root \"}\" | \"x\"";
    struct grammar *g = open_grammar(bytes_vocab, text);
    struct grammar_run run, other;
    grammar_begin(g, false, &run);
    const uint32_t alone = dig(&run, '[', UINT32_MAX);
    grammar_end(&run);
    grammar_begin(g, false, &other); /* after an answer that ended, beside one that goes on */
    ck_assert_uint_eq(dig(&other, '{', alone / 3 * 2), alone / 3 * 2);
    grammar_begin(g, false, &run);
    ck_assert_uint_eq(dig(&run, '[', UINT32_MAX), alone);
    grammar_end(&run);
    ck_assert_uint_eq(dig(&other, '{', UINT32_MAX), alone - alone / 3 * 2);
    grammar_end(&other);
    grammar_close(g);
}
END_TEST

/* States get other numbers when they are swept for a mask, which is kept under the one that its
 * state has then. */
START_TEST(a_mask_is_kept_for_its_state_after_a_sweep)
{
    static const char text[] = "root ::= \"[\" root \"]\" | \"{\" root \"}\" | \"x\"";
    struct grammar *g = open_grammar(bytes_vocab, text);
    struct grammar_run run;
    int rc = 0;
    grammar_begin(g, false, &run);
    for (uint32_t n = 0; rc == 0; n++) {
        if (n % 8 == 0) {
            grammar_release(g);
            (void)mask_of(&run, 0, 0);
            for (uint32_t i = 0; i < g->n_masks; i++)
                ck_assert(g->masks[i].state == GRAMMAR_NONE ||
                          g->masks[i].state < g->states.sets.n);
        }
        rc = grammar_accept(&run, '[');
    }
    ck_assert_int_eq(rc, -E2BIG);
    ck_assert_uint_gt(g->states.n_sweeps, 0);
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* Answers of many slots need more than the limit together: a sweep looks at all that they need. */
START_TEST(sweeps_beside_many_answers_are_seldom_and_paid)
{
    enum { RUNS = 24, DEEP = 60000 };
    static struct grammar_run runs[RUNS];
    struct grammar *g =
        open_grammar(bytes_vocab, "root ::= \"a\" root \"x\" | \"b\" root \"y\" | \".\"");
    int64_t cost = 0;
    uint32_t n_sweeps = 0;
    for (uint32_t i = 0; i < RUNS; i++) {
        n_sweeps = g->states.n_sweeps;
        grammar_begin(g, false, &runs[i]);
        for (uint32_t n = 0; n < DEEP; n++) /* each has nodes of its own after five bytes */
            ck_assert_int_eq(grammar_accept(&runs[i], (uint8_t)(n < 5 ? 'a' + (i >> n & 1) : 'a')),
                             0);
    }
    ck_assert_uint_le(g->states.n_sweeps - n_sweeps, 2);
    ck_assert_int_eq(grammar_sweep(g, &cost), 0);
    ck_assert_uint_ge(grammar_nodes_bytes(g), 32u << 20);
    ck_assert_int_ge(cost, 32 * GRAMMAR_MILLISECOND);
    for (uint32_t i = 0; i < RUNS; i++)
        grammar_end(&runs[i]);
    ck_assert_int_eq(grammar_sweep(g, &cost), 0);
    ck_assert_uint_eq(g->states.limit, GRAMMAR_BYTES_MAX);
    grammar_close(g);
}
END_TEST

enum { WALK_MOST = 300 };

/* A random answer, or `tokens` again: where and how it ended, and how many tokens its masks
 * allowed. */
struct path {
    uint8_t tokens[WALK_MOST];
    uint32_t n, n_allowed;
    int end;
};

static void walk(struct grammar *g, uint32_t *state, uint32_t most, uint8_t often,
                 const uint8_t *tokens, struct path *ret)
{
    struct grammar_run run;
    *ret = (struct path){0};
    grammar_begin(g, false, &run);
    while (ret->end == 0 && ret->n < most) {
        const uint8_t seldom = (uint8_t)('a' + 'b' - often);
        uint8_t sample = tokens ? tokens[ret->n] : next_random(state) % 8 == 0 ? seldom : often;
        struct grammar_mask mask = mask_of(&run, 0, 0);
        if (mask.bits == NULL) {
            ret->end = -E2BIG;
            break;
        }
        ret->n_allowed += mask.n_allowed;
        sample = has(mask.bits, sample) || tokens ? sample : (uint8_t)('a' + 'b' - sample);
        ret->end = grammar_accept(&run, sample);
        ret->tokens[ret->n] = sample;
        ret->n += ret->end == 0;
        grammar_release(g);
    }
    grammar_end(&run);
}

START_TEST(the_ambiguity_limit_ignores_other_answers)
{
    static const char *const grammars[] = {
        "root ::= r \"c\"\nr ::= \"a\" | \"b\" ([ab] r)? \"a\" | \"b\" (r r){0,30}",
        "root ::= r \"c\"\nr ::= \"a\" | \"b\" \"b\" r q | \"b\" \"a\" r \"b\" | \"b\" [ab]? [ab]\n"
        "q ::= \"b\" q | \"b\" [ab] r \"b\"* [ab] | \"b\" [ab]* r \"b\" \"b\"",
        "root ::= r \"c\"\nr ::= \"a\" r | \"b\" [ab] r? | \"a\" r? r | \"a\" r (\"b\" \"b\" | r "
        "r)",
    };
    uint32_t state = (uint32_t)_i + 1, n_wide = 0;
    for (int seed = 0; seed < 12; seed++) {
        struct path cold, warm, other;
        const uint8_t often = seed % 2 ? 'a' : 'b';
        struct grammar *g = open_grammar(bytes_vocab, grammars[_i]);
        walk(g, &state, WALK_MOST, often, NULL, &cold);
        grammar_close(g);
        g = open_grammar(bytes_vocab, grammars[_i]);
        for (int i = 0; i < 3; i++)
            walk(g, &state, next_random(&state) % WALK_MOST, often, NULL, &other);
        walk(g, &state, WALK_MOST, often, cold.tokens, &warm);
        grammar_close(g);
        ck_assert_msg(warm.n == cold.n && warm.end == cold.end && warm.n_allowed == cold.n_allowed,
                      "seed %d: alone %d at %u, after others %d at %u", seed, cold.end, cold.n,
                      warm.end, warm.n);
        n_wide += cold.end == -E2BIG;
    }
    ck_assert_uint_gt(n_wide, 0);
}
END_TEST

/* Ambiguous grammars: the number of parses doubles with each byte, the state must not. */
START_TEST(ambiguous_parses_share_states)
{
    static const char *const grammars[] = {
        "root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"a\"",
        "root ::= s\ns ::= \"a\" s s | \"a\" s | \"a\"",
        "root ::= (\"a\" | \"a\")* | (\"a\" \"a\"?)* | a\na ::= \"a\" a? | \"aa\" a?",
        "root ::= r1 \"x\" | r1 \"y\"\nr1 ::= r2 \"x\" | r2 \"y\"\nr2 ::= r3 \"x\" | r3 \"y\"\n"
        "r3 ::= r4 \"x\" | r4 \"y\"\nr4 ::= r5 \"x\" | r5 \"y\"\nr5 ::= r6 \"x\" | r6 \"y\"\n"
        "r6 ::= r7 \"x\" | r7 \"y\"\nr7 ::= r8 \"x\" | r8 \"y\"\nr8 ::= \"a\"+ r9 | \"a\"+ r9\n"
        "r9 ::= \"a\"*",
    };
    for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++) {
        struct grammar *g = open_grammar(bytes_vocab, grammars[i]);
        struct grammar_run run;
        grammar_begin(g, false, &run);
        for (int k = 0; k < 300; k++) {
            ck_assert(has(mask_of(&run, 0, 0).bits, 'a'));
            ck_assert_int_eq(grammar_accept(&run, 'a'), 0);
            grammar_release(g);
        }
        ck_assert(grammar_may_end(&run) == (i == 1 || i == 2));
        grammar_end(&run);
        grammar_close(g);
    }
}
END_TEST

START_TEST(too_many_parses_fail_that_answer_only)
{
    char text[4096];
    struct grammar *g;
    struct grammar_run run;
    struct grammar_mask mask;
    int rc = 0, n = 0;
    snprintf(text, sizeof(text), "root ::= (\"a\"? \"b\"? \"c\"? \"d\"?){0,1200}");
    ck_assert_int_eq(grammar_open(bytes_vocab, text, strlen(text), &g, text, sizeof(text)), 0);
    grammar_begin(g, false, &run);
    for (; n < 3000 && rc == 0; n++) {
        int64_t budget = INT64_MAX;
        rc = grammar_mask(&run, 0, &budget, &mask);
        rc = rc < 0 ? rc : grammar_accept(&run, 'a');
        grammar_release(g);
    }
    ck_assert_msg(rc == -E2BIG || rc == -EPERM, "%d after %d", rc, n);
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* Parses of `x` that differ only in what must follow, more than the limit. */
static char *make_wide(const char *root)
{
    enum { WAYS = 1500 };
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    fprintf(f, "root ::= %s\nx ::= \"aaa\" y0", root);
    for (int i = 1; i < WAYS; i++)
        fprintf(f, " | \"aaa\" y%d", i);
    for (int i = 0; i < WAYS; i++)
        fprintf(f, "\ny%d ::= \"%c\" | \"a%c\" y%d | [a-c] \"%d\"", i, 'a' + i % 26,
                'a' + i / 26 % 26, i, i);
    ck_assert_int_eq(fclose(f), 0);
    return text;
}

/* A mask that is composed of others must not use one that hit the limit. */
START_TEST(an_unfinished_inner_mask_gives_no_mask)
{
    static const char *const roots[] = {"\"(\" x", "\"(\" x \")\"", "\"(\" (x \")\" | x \"]\")"};
    static const struct grammar_token tokens[] = {{.bytes = "(", .n_bytes = 1},
                                                  {.bytes = ")", .n_bytes = 1},
                                                  {.bytes = "a", .n_bytes = 1},
                                                  {.bytes = "aaaa", .n_bytes = 4},
                                                  {.bytes = "aaaaa", .n_bytes = 5},
                                                  {.bytes = "aaab", .n_bytes = 4},
                                                  {.bytes = "</s>", .n_bytes = 4, .is_end = true}};
    struct grammar_vocab *v;
    ck_assert_int_eq(grammar_vocab_open(tokens, 7, 7, &v), 0);
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        char *text = make_wide(roots[i]);
        struct grammar *g = open_grammar(v, text);
        struct grammar_run run;
        grammar_begin(g, false, &run);
        ck_assert_int_eq(grammar_accept(&run, 0), 0);
        ck_assert_msg(mask_of(&run, 0, 0).bits == NULL, "%s: half a mask", roots[i]);
        grammar_end(&run);
        grammar_close(g);
        free(text);
    }
    grammar_vocab_close(v);
}
END_TEST

/* A costly mask: whether it is completed must depend neither on the pieces nor on states left by
 * earlier answers. */
START_TEST(a_costly_mask_ignores_pieces_and_earlier_states)
{
    enum { LETTERS = 26, RULES = 210, TOKENS = LETTERS * LETTERS * LETTERS };
    static struct grammar_token tokens[TOKENS];
    static char bytes[TOKENS][3];
    char *text = NULL;
    size_t n_text = 0;
    struct grammar_vocab *v;
    for (int i = 0; i < TOKENS; i++) {
        bytes[i][0] = (char)('a' + i / LETTERS / LETTERS);
        bytes[i][1] = (char)('a' + i / LETTERS % LETTERS);
        bytes[i][2] = (char)('a' + i % LETTERS);
        tokens[i] = (struct grammar_token){.bytes = bytes[i], .n_bytes = 3};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, TOKENS, TOKENS, &v), 0);
    FILE *f = open_memstream(&text, &n_text);
    fprintf(f, "root ::= \"aaa\" (\"a\" p0"); /* two letters are part of the state: many states */
    for (int i = 1; i < LETTERS; i++)
        fprintf(f, " | \"%c\" p%d", 'a' + i, i);
    fprintf(f, ")");
    for (int i = 0; i < LETTERS; i++) {
        fprintf(f, "\np%d ::= \"a\" q0 \"%c\"", i, 'a' + i);
        for (int k = 1; k < LETTERS; k++)
            fprintf(f, " | \"%c\" q0 \"%c\"", 'a' + k, 'a' + i);
    }
    for (int i = 0; i < RULES; i++)
        fprintf(f, "\nq%d ::= q%d? [a-z]", i, i + 1);
    fprintf(f, "\nq%d ::= [a-z]", RULES);
    ck_assert_int_eq(fclose(f), 0);
    for (int warm = 0; warm < 2; warm++)
        for (int64_t piece = 0; piece <= 100000; piece += 50000) {
            struct grammar *g = open_grammar(v, text);
            struct grammar_run run;
            for (uint32_t i = 0; warm && i < TOKENS; i += LETTERS) {
                grammar_begin(g, false, &run);
                ck_assert_int_eq(grammar_accept(&run, 0), 0);
                ck_assert_int_eq(grammar_accept(&run, i), 0);
                grammar_end(&run);
            }
            grammar_begin(g, false, &run);
            ck_assert_int_eq(grammar_accept(&run, 0), 0);
            struct grammar_mask mask = mask_of(&run, 0, piece);
            ck_assert_msg(mask.bits && mask.n_allowed == TOKENS, "warm %d, piece %lld", warm,
                          (long long)piece);
            grammar_end(&run);
            grammar_close(g);
        }
    free(text);
    grammar_vocab_close(v);
}
END_TEST

/* Ways that lead nowhere, tried at every byte: a step that follows more than `BEGUN_MAX` ops of
 * these is refused, and says so. */
START_TEST(a_step_follows_a_bounded_number_of_ops)
{
    enum { LEAST = 1000, MOST = 200000 };
    for (uint32_t n = LEAST; n <= MOST; n += MOST - LEAST) {
        char *text = calloc(1, n + 100u);
        int at = sprintf(text, "root ::= \"a\" e \"b\"\ne ::= \"x\"");
        memset(text + at, '|', n);
        struct grammar *g = open_grammar(bytes_vocab, text);
        struct grammar_run run;
        int64_t budget = INT64_MAX;
        grammar_begin(g, false, &run);
        ck_assert_int_eq(grammar_follow(&run, 'a', &budget), n == LEAST ? 0 : -E2BIG);
        ck_assert_int_gt(budget, INT64_MAX - GRAMMAR_MILLISECOND);
        grammar_end(&run);
        grammar_close(g);
        free(text);
    }
}
END_TEST

/* What the second byte takes of a budget, where the rule that it ends was called from `n` places.
 */
static int64_t cost_of_calls(uint32_t n)
{
    static char text[16384];
    int64_t budget = INT64_MAX;
    struct grammar_run run;
    char *end = text + sprintf(text, "s ::= \"a\" t\nt ::= \"b\" u\nu ::= \"c\"\nroot ::= s \".\"");
    for (uint32_t i = 1; i < n; i++)
        end += sprintf(end, "|s \"%u\"", i % 10);
    struct grammar *g = open_grammar(bytes_vocab, text);
    grammar_begin(g, false, &run);
    ck_assert_int_eq(grammar_follow(&run, 'a', &budget), 0);
    budget = INT64_MAX;
    ck_assert_int_eq(grammar_follow(&run, 'b', &budget), 0);
    grammar_end(&run);
    grammar_close(g);
    return INT64_MAX - budget;
}

/* A rule at whose end another one is called hands all places on that it was called from: a budget
 * pays for each of them. */
START_TEST(places_that_are_handed_on_are_paid)
{
    const int64_t one = cost_of_calls(1);
    ck_assert_int_lt(one, 100);
    ck_assert_int_ge(cost_of_calls(1000), 1000 + one);
}
END_TEST

/* Where a rule ends that was begun at each depth of a stack, all of its nodes are united, and so are
 * those below them: what is too much is found out before it is done. */
START_TEST(unions_of_a_deep_stack_are_bounded)
{
    enum { DEPTH = 100 };
    const int ways = _i == 0 ? 10 : 1300;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    fprintf(f, "root ::= s\nz ::= \"z\"\nh ::= w0 z \"q\"\ns ::= h");
    for (int i = 0; i < ways; i++)
        fprintf(f, "|\"(\" s \"a\"");
    for (int i = 0; i < DEPTH; i++)
        fprintf(f, "\nw%d ::= \"(\" w%d | \"x\"", i, i + 1);
    fprintf(f, "\nw%d ::= \"x\"", DEPTH);
    ck_assert_int_eq(fclose(f), 0);
    struct grammar *g = open_grammar(bytes_vocab, text);
    struct grammar_run run;
    int64_t budget = INT64_MAX;
    grammar_begin(g, false, &run);
    for (int i = 0; i < DEPTH; i++)
        ck_assert_int_eq(grammar_accept(&run, '('), 0);
    ck_assert_int_eq(grammar_follow(&run, 'x', &budget), 0);
    ck_assert_int_gt(budget, INT64_MAX - 4 * GRAMMAR_MILLISECOND);
    ck_assert_uint_lt(g->states.merge.room, 1 << 17);
    if (ways == 10) { /* it is followed all the same */
        ck_assert_int_eq(grammar_accept(&run, 'z'), 0);
        ck_assert_int_eq(grammar_accept(&run, 'q'), 0);
        ck_assert_uint_eq(mask_of(&run, 0, 0).n_allowed,
                          2); /* or the end: the first was begun there */
        ck_assert(has(mask_of(&run, 0, 0).bits, 'a'));
    }
    grammar_end(&run);
    grammar_close(g);
    free(text);
}
END_TEST

/* A rule that is called twice is at the same places after `y` and `yy`: each of these takes all nodes
 * together that it was called on. */
START_TEST(nodes_that_a_step_takes_together_are_bounded)
{
    for (int ways = 60; ways <= 900; ways *= 15) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *f = open_memstream(&text, &bytes);
        fprintf(f, "root ::= s\nr ::= (\"yy\" | \"y\") (\"0\"");
        for (int i = 1; i < 500; i++)
            fprintf(f, "|\"%d\"", i % 10);
        fprintf(f, ")\ns ::= r");
        for (int i = 0; i < ways; i++)
            fprintf(f, "|r \"a\"|\"y\" r \"b\"");
        ck_assert_int_eq(fclose(f), 0);
        struct grammar *g = open_grammar(bytes_vocab, text);
        struct grammar_run run;
        int64_t budget = INT64_MAX;
        grammar_begin(g, false, &run);
        ck_assert_int_eq(grammar_accept(&run, 'y'), 0);
        ck_assert_int_eq(grammar_follow(&run, 'y', &budget), ways == 60 ? 0 : -E2BIG);
        ck_assert_int_gt(budget, INT64_MAX - 8 * GRAMMAR_MILLISECOND);
        grammar_end(&run);
        grammar_close(g);
        free(text);
    }
}
END_TEST

static uint32_t count_known(const struct grammar *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->states.nodes.n; i++)
        n += g->states.nodes.sets[i].same[1] != GRAMMAR_NONE;
    return n;
}

/* What allows the same tokens, where a grammar counts, is found for each place of a deep stack: a
 * budget pays for them, and where none is left they wait. */
START_TEST(equivalents_of_a_deep_stack_are_paid)
{
    enum { DEPTH = 5000 };
    struct grammar *g = open_grammar(bytes_vocab, "root ::= \"(\" root \")\" | [a-z]{1,200}");
    struct grammar_run run;
    struct grammar_mask mask;
    int64_t budget = 0;
    grammar_begin(g, false, &run);
    for (uint32_t i = 0; i < DEPTH; i++)
        ck_assert_int_eq(grammar_accept(&run, '('), 0);
    ck_assert_int_eq(grammar_mask(&run, 0, &budget, &mask), 0);
    ck_assert_uint_eq(count_known(g), 0);
    budget = 1;
    ck_assert_int_eq(grammar_mask(&run, 0, &budget, &mask), 0);
    ck_assert_uint_gt(count_known(g), DEPTH);
    ck_assert_int_lt(budget, -DEPTH);
    ck_assert_uint_eq(mask_of(&run, 0, 1).n_allowed, 27);
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* They take as much as the stack does: there is room for them beside other answers, too. */
START_TEST(equivalents_of_a_deep_stack_fit_beside_other_answers)
{
    enum { RUNS = 3, DEPTH = 60000 };
    static struct grammar_run runs[RUNS];
    struct grammar *g = open_grammar(
        bytes_vocab, "root ::= \"(\" i{200} \")\" | \"[\" i{200} \"]\" | \"x\"\ni ::= root");
    for (uint32_t i = 0; i < RUNS; i++) {
        grammar_begin(g, false, &runs[i]);
        for (uint32_t n = 0; n < DEPTH; n++) {
            ck_assert_int_eq(grammar_accept(&runs[i], n < 5 && (i >> n & 1) ? '[' : '('), 0);
            ck_assert_int_eq(grammar_accept(&runs[i], 'x'), 0);
        }
    }
    for (uint32_t i = 0; i < RUNS; i++) {
        ck_assert_uint_eq(mask_of(&runs[i], 0, 0).n_allowed, 3);
        grammar_release(g);
        grammar_end(&runs[i]);
    }
    ck_assert_uint_lt(grammar_memory(g), 5 * GRAMMAR_BYTES_MAX);
    grammar_close(g);
}
END_TEST

/* Whoever writes a grammar may choose what frames its states have: which of them fall together is
 * not the same in another grammar, though it has the same text. */
START_TEST(frames_that_a_client_has_tried_fall_apart)
{
    enum { SLOTS = 1024, SENT = 16 };
    struct grammar *tried = open_grammar(bytes_vocab, "root ::= \"a\"");
    struct grammar *g = open_grammar(bytes_vocab, "root ::= \"a\"");
    uint32_t n[SLOTS] = {0}, sent = 0;

    for (uint32_t op = 0; sent < SENT; op++) {
        const struct stack_frame f = {op, 1};
        if (frames_hash(tried->states.key, &f, 1) % SLOTS != 0)
            continue;
        ck_assert_uint_lt(++n[frames_hash(g->states.key, &f, 1) % SLOTS], SENT / 2);
        sent++;
    }
    grammar_close(tried);
    grammar_close(g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar_limits");
    TCase *tests = tcase_create("grammar");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, deep_nesting_is_accepted);
    tcase_add_test(tests, a_stack_too_deep_fails_that_answer_only);
    tcase_add_test(tests, a_mask_is_kept_for_its_state_after_a_sweep);
    tcase_add_test(tests, sweeps_beside_many_answers_are_seldom_and_paid);
    tcase_add_test(tests, the_depth_limit_ignores_other_answers);
    tcase_add_loop_test(tests, the_ambiguity_limit_ignores_other_answers, 0, 3);
    tcase_add_test(tests, ambiguous_parses_share_states);
    tcase_add_test(tests, too_many_parses_fail_that_answer_only);
    tcase_add_test(tests, an_unfinished_inner_mask_gives_no_mask);
    tcase_add_test(tests, a_costly_mask_ignores_pieces_and_earlier_states);
    tcase_add_test(tests, a_step_follows_a_bounded_number_of_ops);
    tcase_add_test(tests, places_that_are_handed_on_are_paid);
    tcase_add_loop_test(tests, unions_of_a_deep_stack_are_bounded, 0, 2);
    tcase_add_test(tests, nodes_that_a_step_takes_together_are_bounded);
    tcase_add_test(tests, equivalents_of_a_deep_stack_are_paid);
    tcase_add_test(tests, equivalents_of_a_deep_stack_fit_beside_other_answers);
    tcase_add_test(tests, frames_that_a_client_has_tried_fall_apart);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
