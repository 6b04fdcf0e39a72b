/*
 * What a grammar allows: the sentences of typical grammars, and the state of an answer with
 * drafts, up to its end. Masks against the definition are in test_grammar_definition.c, costly
 * grammars in test_grammar_limits.c.
 */
#include "client/hearth.h"
#include "tests/run_suite.h"
#include "tests/rig/grammar_masks.h"
#include "tests/rig/grammar_whole.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

START_TEST(llama_cpp_vectors_agree)
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
    json_array_foreach(json_object_get(file, "cases"), i, one) {
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
            json_array_foreach(json_object_get(one, pass ? "pass" : "fail"), k, text) {
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

/* ---- typical grammars ------------------------------------------------------------------------ */

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

struct sentences {
    const char *grammar, *yes[8], *no[8];
};

static const struct sentences samples[] = {
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

START_TEST(sentences_of_known_grammars_are_accepted)
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

/* ---- runs ------------------------------------------------------------------------------------ */

START_TEST(drafts_are_kept_and_dropped)
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
    ck_assert_int_eq(grammar_accept(&run, 'x'), -EPERM); /* and the state is unchanged */
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

START_TEST(an_answer_ends_when_nothing_may_follow)
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

/* The space that a tokenizer puts before a text is not part of it, whatever the grammar expects. */
START_TEST(a_first_space_can_be_dropped)
{
    static const char *const texts[] = {" a", "a", " ", "  a", " b"};
    struct grammar_token tokens[5];
    struct grammar_vocab *v;
    struct grammar_run run;
    for (int i = 0; i < 5; i++)
        tokens[i] =
            (struct grammar_token){.bytes = texts[i], .n_bytes = (uint32_t)strlen(texts[i])};
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

/* A control token follows only where the grammar names it; no other token spells it. */
START_TEST(a_control_token_follows_where_it_is_named)
{
    static const struct grammar_token tokens[] = {
        {.bytes = "a", .n_bytes = 1},         {.bytes = "<x>", .n_bytes = 3, .is_control = true},
        {.bytes = "<x>", .n_bytes = 3},       {.bytes = "<y>", .n_bytes = 3, .is_control = true},
        {.bytes = "\xff", .n_bytes = 1},      {.bytes = "\0", .n_bytes = 1},
        {.bytes = "a\xff\0\0", .n_bytes = 4},
    };
    struct grammar_vocab *v;
    struct grammar_run run;
    ck_assert_int_eq(grammar_vocab_open(tokens, 7, 7, &v), 0);
    struct grammar *g = open_grammar(v, "root ::= .* <[1]> ( <[3]> | \"<x>\" )");
    grammar_begin(g, false, &run);
    ck_assert_uint_eq(mask_of(&run, 0, 0).bits[0], 0x27); /* a, <[1]>, the text <x>, \0 */
    ck_assert_int_eq(grammar_draft(&run, 0), 0);
    ck_assert_int_eq(grammar_draft(&run, 1), 0);
    ck_assert_int_eq(grammar_draft(&run, 1), -EPERM);
    ck_assert_uint_eq(mask_of(&run, 2, 0).bits[0], 0xc); /* the text <x>, <[3]> */
    ck_assert_int_eq(grammar_accept(&run, 1), 0);
    ck_assert_int_eq(grammar_accept(&run, 3), 0);
    ck_assert(grammar_must_end(&run));
    grammar_end(&run);
    grammar_close(g);
    grammar_vocab_close(v);
}
END_TEST

START_TEST(a_run_follows_text_that_is_not_a_token)
{
    struct grammar_run run;
    int64_t budget = 1000000;
    struct grammar *g = open_grammar(bytes_vocab, "root ::= \"abc\"");
    grammar_begin(g, false, &run);
    ck_assert_int_eq(grammar_follow_text(&run, "ax", 2, &budget), -EPERM);
    ck_assert_int_eq(grammar_follow_text(&run, "", 0, &budget), 0);
    ck_assert_int_eq(grammar_follow_text(&run, "ab", 2, &budget), 0);
    ck_assert_int_eq(grammar_accept(&run, 'c'), 0);
    ck_assert(grammar_must_end(&run));
    grammar_end(&run);
    grammar_close(g);
}
END_TEST

/* A long token, followed a byte at a time, beside another answer and while states are swept, or at
 * once: the same. One that is refused at its end changes nothing. */
START_TEST(a_token_is_followed_in_pieces)
{
    static char as[64], wrong[65];
    static const struct grammar_token tokens[] = {{.bytes = as, .n_bytes = sizeof(as)},
                                                  {.bytes = wrong, .n_bytes = sizeof(wrong)},
                                                  {.bytes = "a", .n_bytes = 1},
                                                  {.bytes = "b", .n_bytes = 1}};
    struct grammar_vocab *v;
    memset(as, 'a', sizeof(as));
    memset(wrong, 'a', sizeof(wrong) - 1);
    wrong[sizeof(wrong) - 1] = 'z';
    ck_assert_int_eq(grammar_vocab_open(tokens, 4, 4, &v), 0);
    for (int64_t piece = 1; piece < 3; piece++) {
        struct grammar *g = open_grammar(v, "root ::= (\"a\" | \"a\" x){65} \"b\"\nx ::= \"b\" x?");
        struct grammar_run run, other;
        grammar_begin(g, false, &run);
        grammar_begin(g, false, &other);
        for (uint32_t token = 2; token-- > 0;) { /* the wrong one first */
            int pieces = 0, rc = -EAGAIN;
            for (; rc == -EAGAIN; pieces++) {
                int64_t budget = piece == 2 ? INT64_MAX : piece;
                rc = grammar_follow(&run, token, &budget);
                ck_assert_int_eq(grammar_sweep(g, &(int64_t){0}), 0);
                ck_assert_int_eq(grammar_accept(&other, 2), pieces < 65 ? 0 : -EPERM);
            }
            ck_assert_int_eq(rc, token == 1 ? -EPERM : 0);
            ck_assert_int_eq(pieces, piece == 2 ? 1 : token == 1 ? 65 : 64);
            grammar_end(&other);
            grammar_begin(g, false, &other);
        }
        ck_assert_int_eq(grammar_draft(&run, 2), 0);
        ck_assert_int_eq(grammar_draft(&run, 3), 0);
        grammar_agree(&run); /* the second one is the first now */
        ck_assert_uint_eq(run.n_drafts, 1);
        ck_assert_uint_eq(mask_of(&run, 0, 0).bits[0], 8);
        grammar_agree(&run);
        ck_assert(grammar_may_end(&run));
        grammar_end(&run);
        grammar_end(&other);
        grammar_close(g);
    }
    grammar_vocab_close(v);
}
END_TEST

/* A draft that costs too much is none. */
START_TEST(drafts_have_a_budget)
{
    static const struct grammar_token tokens[] = {{.bytes = "aaaa", .n_bytes = 4},
                                                  {.bytes = "a", .n_bytes = 1}};
    struct grammar_vocab *v;
    struct grammar_run run;
    int64_t budget = 3;
    ck_assert_int_eq(grammar_vocab_open(tokens, 2, 2, &v), 0);
    struct grammar *g = open_grammar(v, "root ::= \"a\"{9}");
    grammar_begin(g, false, &run);
    ck_assert_int_eq(grammar_draft_within(&run, 0, &budget), -EAGAIN);
    ck_assert_int_le(budget, 0);
    ck_assert_uint_eq(run.n_drafts, 0);
    budget = 1000;
    ck_assert_int_eq(grammar_draft_within(&run, 0, &budget), 0);
    ck_assert_int_eq(grammar_draft_within(&run, 0, &budget), 0);
    ck_assert_int_gt(budget, 0);
    grammar_agree(&run);
    grammar_agree(&run);
    ck_assert_int_eq(grammar_accept(&run, 1), 0);
    ck_assert(grammar_must_end(&run));
    grammar_end(&run);
    grammar_close(g);
    grammar_vocab_close(v);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar");
    TCase *tests = tcase_create("grammar");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, llama_cpp_vectors_agree);
    tcase_add_test(tests, sentences_of_known_grammars_are_accepted);
    tcase_add_test(tests, drafts_are_kept_and_dropped);
    tcase_add_test(tests, an_answer_ends_when_nothing_may_follow);
    tcase_add_test(tests, a_first_space_can_be_dropped);
    tcase_add_test(tests, a_control_token_follows_where_it_is_named);
    tcase_add_test(tests, a_run_follows_text_that_is_not_a_token);
    tcase_add_test(tests, a_token_is_followed_in_pieces);
    tcase_add_test(tests, drafts_have_a_budget);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
