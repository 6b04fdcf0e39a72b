/*
 * What a grammar allows: masks and runs against the definition (grammar_reference.h), on many
 * grammars and vocabularies; in pieces; over many states; and grammars made to cost much.
 */
#include "client/hearth.h"
#include "kernels/grammar_impl.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/unit/grammar_reference.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { END = 256, BYTES_VOCAB = 257 }; /* a token a byte, and an end */

static struct grammar_vocab *bytes_vocab;

static void setup(void)
{
    static char bytes[256];
    struct grammar_token tokens[BYTES_VOCAB] = {[END] = {"</s>", 4, true}};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token){bytes + i, 1, false};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, BYTES_VOCAB, BYTES_VOCAB, &bytes_vocab), 0);
}

static void teardown(void)
{
    grammar_vocab_close(bytes_vocab);
}

static struct grammar *open_grammar(const struct grammar_vocab *v, const char *text)
{
    struct grammar *g = NULL;
    char err[300] = "";
    ck_assert_msg(grammar_open(v, text, strlen(text), &g, err, sizeof(err)) == 0, "%s", err);
    return g;
}

static bool has(const uint64_t *bits, uint32_t id)
{
    return (bits[id >> 6] >> (id & 63) & 1) != 0;
}

/* The mask behind `draft` drafts, made in pieces of `piece` (0: at once). Its bits are NULL where the
 * grammar is too wide. */
static struct grammar_mask mask_of(struct grammar_run *run, uint32_t draft, int64_t piece)
{
    struct grammar_mask mask;
    for (uint32_t calls = 0; calls < 10000000; calls++) {
        int64_t budget = piece ? piece : INT64_MAX;
        int rc = grammar_mask(run, draft, &budget, &mask);
        if (rc == 1)
            return mask;
        if (rc == -E2BIG)
            return (struct grammar_mask){.bits = NULL};
        ck_assert_int_eq(rc, 0);
        ck_assert(piece && budget <= 0);
    }
    ck_abort_msg("the mask is never made");
}

/* Is the whole text a sentence? Each byte must be in the mask exactly when it is accepted. */
static bool is_sentence(struct grammar *g, const char *text, size_t bytes)
{
    struct grammar_run run;
    bool ok = true;
    grammar_begin(g, false, &run);
    for (size_t i = 0; i < bytes && ok; i++) {
        bool allowed = has(mask_of(&run, 0, 0).bits, (uint8_t)text[i]);
        ok = grammar_accept(&run, (uint8_t)text[i]) == 0;
        ck_assert(ok == allowed);
        grammar_release(g);
    }
    ok = ok && grammar_may_end(&run);
    if (ok) {
        ck_assert(has(mask_of(&run, 0, 0).bits, END));
        ck_assert_int_eq(grammar_accept(&run, END), 0);
    }
    grammar_end(&run);
    return ok;
}

/* ---- the vectors of llama.cpp ---------------------------------------------------------------- */

START_TEST(vectors_agree)
{
    const char *folder = getenv("HEARTH_TESTDATA");
    char path[4096], err[300];
    size_t i, k, n = 0;
    json_t *one, *text;
    if (!folder) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return;
    }
    snprintf(path, sizeof(path), "%s/vectors/grammar_integration.llama.cpp.json", folder);
    json_t *file = json_load_file(path, 0, NULL);
    ck_assert_msg(file != NULL, "%s", path);
    json_array_foreach(json_object_get(file, "cases"), i, one)
    {
        static char made[1 << 16];
        struct grammar *g;
        const char *source = json_string_value(json_object_get(one, "source"));
        if (!strcmp(json_string_value(json_object_get(one, "kind")), "schema")) {
            int64_t bytes =
                hearth_schema(source, strlen(source), made, sizeof(made), err, sizeof(err));
            ck_assert_msg(bytes > 0 && bytes < (int64_t)sizeof(made), "case %zu: %s", i, err);
            source = made;
        }
        ck_assert_msg(grammar_open(bytes_vocab, source, strlen(source), &g, err, 300) == 0,
                      "case %zu: %s", i, err);
        for (int pass = 0; pass < 2; pass++) {
            json_array_foreach(json_object_get(one, pass ? "pass" : "fail"), k, text)
            {
                bool is = is_sentence(g, json_string_value(text), json_string_length(text));
                ck_assert_msg(is == pass, "case %zu: '%s'", i, json_string_value(text));
                n++;
            }
        }
        grammar_close(g);
    }
    json_decref(file);
    ck_assert_uint_ge(n, 350);
}
END_TEST

/* ---- grammars that people write -------------------------------------------------------------- */

static const char json_grammar[] =
    "root ::= ws value\n"
    "value ::= (object | array | string | number | \"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\n"
    "pair ::= string ws \":\" ws value\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\"\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
    "[0-9a-fA-F]{4}))* "
    "\"\\\"\"\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)?\n"
    "ws ::= [ \\t\\n\\r]*\n";

static const char arithmetic[] = "root ::= (expr \"=\" ws term \"\\n\")+\n"
                                 "expr ::= term ([-+*/] ws term)*\n"
                                 "term ::= ident | num | \"(\" ws expr \")\" ws\n"
                                 "ident ::= [a-z] [a-z0-9_]* ws\n"
                                 "num ::= [0-9]+ ws\n"
                                 "ws ::= [ \\t\\n]*\n";

static const char chess[] =
    "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
    "move ::= (pawn | piece | castle) [+#]?\n"
    "piece ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
    "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\n"
    "castle ::= \"O-O\" \"-O\"?\n";

/* A part of C: precedence by a chain of rules, statements, blocks. */
static const char c_like[] =
    "root ::= (decl)*\n"
    "decl ::= type \" \" name \"(\" (type \" \" name (\", \" type \" \" name)*)? \") {\" nl stmt* "
    "\"}\" nl\n"
    "type ::= \"int\" | \"float\" | \"char\"\n"
    "name ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
    "stmt ::= \" \"* (type \" \" name \" = \" or | name \" = \" or | \"return \" or) \";\" nl |\n"
    "  \" \"* \"if (\" or \") {\" nl stmt* \" \"* \"}\" nl |\n"
    "  \" \"* \"//\" [^\\n]* nl\n"
    "or ::= and \" || \" or | and\n"
    "and ::= equal \" && \" and | equal\n"
    "equal ::= sum \" == \" equal | sum \" != \" equal | sum\n"
    "sum ::= product \" + \" sum | product \" - \" sum | product\n"
    "product ::= unary \" * \" product | unary \" / \" product | unary\n"
    "unary ::= \"-\" unary | \"!\" unary | primary\n"
    "primary ::= name | name \"(\" (or (\", \" or)*)? \")\" | [0-9]+ | \"(\" or \")\"\n"
    "nl ::= \"\\n\"\n";

static const char list[] = "root ::= item+\n"
                           "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n";

struct sample {
    const char *grammar, *yes[8], *no[8];
};

static const struct sample samples[] = {
    {json_grammar,
     {"{}", " [1,-2.5e+3 , \"a\\u00E9\\n\xe6\xbc\xa2\"]", "{\"a\":{\"b\":[[[]]]},\"c\":null} ",
      "0"},
     {"{", "[1,]", "01", "{\"a\" 1}", "\"\n\"", "\"\\x\"", "nul", "1."}},
    {arithmetic,
     {"1=2\n", "(a+b)*c1 - 3/ x = 4\n", "a=1\nb =2\n"},
     {"", "1=", "=1\n", "(1=1\n", "1+=1\n", "A=1\n"}},
    {chess,
     {"1. e4 e5\n2. Nf3 Nc6\n", "1. exd5 O-O-O+\n10. e8=Q# Raxb1\n"},
     {"1. e4 e5\n", "1. e9 e5\n2. a1 a1\n", "2. e4 e5\n", "1. e4 e5\n2. e4\n"}},
    {c_like,
     {"", "int f() {\nreturn -!(a + 1) * b || c(d, 2) && 1 == 2;\n}\n",
      "char g(int a, float b) {\n  if (a) {\n    // x\n  }\n}\n"},
     {"int f() {", "int f() {\nreturn;\n}\n", "void f() {\n}\n", "int f() {\nreturn a b;\n}\n"}},
    {list,
     {"- a\n", "- \xc3\xa9t\xc3\xa9\n- \xf0\x9f\x98\x80 b\n"},
     {"", "- \n", "-a\n", "- a", "- a\r\n", "- \xc2\x85\n", "- \xe2\x80\xa8\n", "- \xc3\n"}},
    {"root ::= \"a\"{2,4} (\"b\"{2}){2,} \"c\"{,1}",
     {"aabbbb", "aaaabbbbbbc"},
     {"abbbb", "aaaaabbbb", "aabbb", "aabbbbb", "aabbbbcc"}},
    {"root ::= (\"\"{3} | \"a\"? \"b\"*)* \"c\"", {"c", "abbac", "bbbc", "aac"}, {"", "ab", "cc"}},
    {"root ::= a | ab \"c\"\na ::= \"x\" a? \"y\"\nab ::= \"x\" ab? \"y\" \"\"",
     {"xy", "xxyy", "xyc", "xxxyyyc"},
     {"x", "xyy", "xxy", "xycc"}},
    {"root ::= . \"|\" [^] \"|\" [\xce\xb1-\xcf\x89\xf0\x9f\x98\x80-\xf0\x9f\x99\x8f]",
     {"\n|\xe6\xbc\xa2|\xce\xb2", "\xf4\x8f\xbf\xbf|x|\xf0\x9f\x98\x81"},
     {"||", "\x80|x|\xce\xb2", "\xed\xa0\x80|x|\xce\xb2", "\xf4\x90\x80\x80|x|\xce\xb2",
      "\xc0\x80|x|\xce\xb2", "a|b|c", "a|b|\xf0\x9f\x99\x90"}},
};

START_TEST(sentences_of_known_grammars)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct grammar *g = open_grammar(bytes_vocab, samples[i].grammar);
        for (int k = 0; k < 8 && samples[i].yes[k]; k++)
            ck_assert_msg(is_sentence(g, samples[i].yes[k], strlen(samples[i].yes[k])),
                          "grammar %zu: '%s' is refused", i, samples[i].yes[k]);
        for (int k = 0; k < 8 && samples[i].no[k]; k++)
            ck_assert_msg(!is_sentence(g, samples[i].no[k], strlen(samples[i].no[k])),
                          "grammar %zu: '%s' is accepted", i, samples[i].no[k]);
        grammar_close(g);
    }
}
END_TEST

/* ---- random grammars, random vocabularies ---------------------------------------------------- */

struct text {
    char bytes[1024];
    size_t n;
};

static void add(struct text *t, const char *what)
{
    size_t n = strlen(what);
    ck_assert_uint_lt(t->n + n, sizeof(t->bytes));
    memcpy(t->bytes + t->n, what, n + 1);
    t->n += n;
}

static void random_item(struct text *t, uint32_t *state, uint32_t depth);

static void random_choice(struct text *t, uint32_t *state, uint32_t depth)
{
    for (uint32_t n = next_random(state) % 3 + 1; n > 0; n--) {
        for (uint32_t k = next_random(state) % 3 + (depth > 0); k > 0; k--)
            random_item(t, state, depth);
        if (n > 1)
            add(t, "| ");
    }
}

static void random_item(struct text *t, uint32_t *state, uint32_t depth)
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

static void random_grammar(struct text *t, uint32_t *state)
{
    static const char *const heads[] = {"root ::= ", "\nr1 ::= ", "\nr2 ::= ", "\nr3 ::= "};
    t->n = 0;
    for (int i = 0; i < 4; i++) {
        add(t, heads[i]);
        random_choice(t, state, 0);
    }
}

enum { SMALL_VOCAB = 150 };

/* Tokens of pieces of the characters that random grammars speak of; some twice, some long, some
 * that are no text, two ends; ids behind them that no token has. */
static struct grammar_vocab *random_vocab(uint32_t *state, struct text *texts)
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
        tokens[i] = (struct grammar_token){texts[i].bytes, (uint32_t)texts[i].n, i % 60 == 59};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, SMALL_VOCAB, SMALL_VOCAB + 70, &v), 0);
    return v;
}

/* The mask after `answer` must be what the definition says of each token. */
static void compare_mask(struct reference *r, const struct grammar_mask *mask,
                         const struct text *texts, const struct text *answer, const char *grammar)
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

static uint32_t random_allowed(const struct grammar_mask *mask, uint32_t *state)
{
    uint32_t skip = next_random(state) % mask->n_allowed;
    for (uint32_t id = 0;; id++)
        if (has(mask->bits, id) && skip-- == 0)
            return id;
}

static uint32_t n_wide; /* answers that ended because the grammar was too wide */

/* Follows one random answer with every mask compared. Returns how many were. */
static uint32_t follow(struct grammar *g, struct reference *r, const struct text *texts,
                       uint32_t *state, const char *grammar)
{
    struct grammar_run run;
    struct text answer = {.n = 0};
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
            ck_assert_int_eq(grammar_sweep(g), 0);
    }
    grammar_end(&run);
    return n;
}

START_TEST(masks_are_what_the_definition_says)
{
    static struct text texts[SMALL_VOCAB], grammar;
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
            if (getenv("GT"))
                fprintf(stderr, "%s\n", grammar.bytes);
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

/* ---- runs ------------------------------------------------------------------------------------ */

START_TEST(drafts_come_and_go)
{
    struct grammar *g = open_grammar(bytes_vocab, json_grammar);
    struct grammar_run run, other;
    grammar_begin(g, false, &run);
    grammar_begin(g, false, &other);
    static const char drafts[] = "{\"a\":[1,2";
    for (size_t i = 0; i < strlen(drafts); i++)
        ck_assert_int_eq(grammar_draft(&run, (uint8_t)drafts[i]), 0);
    ck_assert_int_eq(grammar_draft(&run, '}'), -EPERM);
    ck_assert_int_eq(grammar_draft(&run, END), -EPERM);
    ck_assert(has(mask_of(&run, 9, 0).bits, ']') && !has(mask_of(&run, 9, 0).bits, '}'));
    ck_assert(has(mask_of(&run, 1, 0).bits, '}') && has(mask_of(&run, 0, 0).bits, '['));
    grammar_keep(&run, 2); /* {" */
    ck_assert(has(mask_of(&run, 2, 0).bits, 'z'));
    ck_assert_int_eq(grammar_accept(&run, '{'), 0);
    ck_assert_uint_eq(run.n_drafts, 0);
    ck_assert_int_eq(grammar_accept(&run, 'x'), -EPERM); /* and stays where it was */
    ck_assert_int_eq(grammar_accept(&run, END), -EPERM);
    ck_assert_int_eq(grammar_accept(&run, '}'), 0);
    ck_assert(grammar_may_end(&run) && !grammar_must_end(&run)); /* blanks may follow */
    ck_assert(!grammar_may_end(&other));
    for (uint32_t i = 0; i < GRAMMAR_DRAFTS_MAX; i++)
        ck_assert_int_eq(grammar_draft(&other, '['), 0);
    ck_assert_int_eq(grammar_draft(&other, '['), -ENOSPC);
    grammar_end(&run);
    grammar_end(&other);
    grammar_close(g);
}
END_TEST

START_TEST(an_answer_ends_where_nothing_may_follow)
{
    struct grammar *g = open_grammar(bytes_vocab, "root ::= \"ab\" \"c\"?");
    struct grammar_run run;
    grammar_begin(g, false, &run);
    ck_assert(!grammar_may_end(&run));
    grammar_accept(&run, 'a');
    grammar_accept(&run, 'b');
    ck_assert(grammar_may_end(&run) && !grammar_must_end(&run));
    ck_assert_uint_eq(mask_of(&run, 0, 0).n_allowed, 2);
    grammar_accept(&run, 'c');
    ck_assert(grammar_must_end(&run));
    ck_assert_uint_eq(mask_of(&run, 0, 0).n_allowed, 1);
    grammar_end(&run);
    grammar_close(g);
    g = open_grammar(bytes_vocab, "root ::=");
    grammar_begin(g, false, &run);
    ck_assert(grammar_must_end(&run));
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* The space that a tokenizer puts before a text is no part of it, wherever the grammar wants one. */
START_TEST(a_first_space_can_be_dropped)
{
    static const char *const texts[] = {" a", "a", " ", "  a", " b"};
    struct grammar_token tokens[5];
    struct grammar_vocab *v;
    struct grammar_run run;
    for (int i = 0; i < 5; i++)
        tokens[i] = (struct grammar_token){texts[i], (uint32_t)strlen(texts[i]), false};
    ck_assert_int_eq(grammar_vocab_open(tokens, 5, 5, &v), 0);
    struct grammar *g = open_grammar(v, "root ::= \"a\"+");
    grammar_begin(g, true, &run);
    ck_assert_uint_eq(mask_of(&run, 0, 0).bits[0], 0x7); /* " a", "a", " " */
    ck_assert_int_eq(grammar_accept(&run, 2), 0);
    ck_assert_uint_eq(mask_of(&run, 0, 0).bits[0], 0x2);
    grammar_end(&run);
    grammar_begin(g, false, &run);
    ck_assert_uint_eq(mask_of(&run, 0, 0).bits[0], 0x2);
    grammar_end(&run);
    grammar_close(g);
    g = open_grammar(v, "root ::= \" \"? \"a\"");
    grammar_begin(g, true, &run);
    ck_assert_uint_eq(mask_of(&run, 0, 0).bits[0], 0xf); /* the first space is always dropped */
    grammar_end(&run);
    grammar_close(g);
    grammar_vocab_close(v);
}
END_TEST

/* ---- much ------------------------------------------------------------------------------------ */

/* A stack deeper than anybody writes: states are swept, and the way back is the way there. */
START_TEST(deep_nesting_is_followed)
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

START_TEST(too_deep_is_an_error_and_no_more)
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
    grammar_begin(g, false, &run); /* the next answer is served */
    ck_assert_int_eq(grammar_accept(&run, '('), 0);
    ck_assert_uint_eq(mask_of(&run, 0, 0).n_allowed, 2);
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* Ambiguous in every way: the number of ways doubles with each byte, the state does not. */
START_TEST(ambiguity_is_shared)
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

START_TEST(too_wide_is_an_error_and_no_more)
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

/* Ways through `x` that differ only in what they remember, more than can be followed. */
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

/* Where a mask is put together from others, none of them may be one that could not be finished. */
START_TEST(too_wide_within_something_is_no_half_mask)
{
    static const char *const roots[] = {"\"(\" x", "\"(\" x \")\"", "\"(\" (x \")\" | x \"]\")"};
    static const struct grammar_token tokens[] = {
        {"(", 1, false},     {")", 1, false},    {"a", 1, false},  {"aaaa", 4, false},
        {"aaaaa", 5, false}, {"aaab", 4, false}, {"</s>", 4, true}};
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

/* A mask that takes long: whether it is made must depend neither on the pieces nor on the states
 * that another answer made before. */
START_TEST(a_dear_mask_is_made_or_not_whatever_was_before)
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
        tokens[i] = (struct grammar_token){bytes[i], 3, false};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, TOKENS, TOKENS, &v), 0);
    FILE *f = open_memstream(&text, &n_text);
    fprintf(f, "root ::= \"aaa\" (\"a\" p0"); /* two letters are remembered: many states */
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

int main(void)
{
    Suite *suite = suite_create("grammar");
    TCase *tests = tcase_create("grammar");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, vectors_agree);
    tcase_add_test(tests, sentences_of_known_grammars);
    tcase_add_test(tests, masks_are_what_the_definition_says);
    tcase_add_test(tests, drafts_come_and_go);
    tcase_add_test(tests, an_answer_ends_where_nothing_may_follow);
    tcase_add_test(tests, a_first_space_can_be_dropped);
    tcase_add_test(tests, deep_nesting_is_followed);
    tcase_add_test(tests, too_deep_is_an_error_and_no_more);
    tcase_add_test(tests, ambiguity_is_shared);
    tcase_add_test(tests, too_wide_is_an_error_and_no_more);
    tcase_add_test(tests, too_wide_within_something_is_no_half_mask);
    tcase_add_test(tests, a_dear_mask_is_made_or_not_whatever_was_before);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
