/*
 * Grammars that compile and grammars that do not, each error with line and column. What a
 * grammar means is tested in test_grammar.c.
 */
#include "daemon/grammar/grammar_impl.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct grammar_vocab *vocab;

static void setup(void)
{
    static char bytes[256];
    struct grammar_token tokens[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token){.bytes = bytes + i, .n_bytes = 1};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, 256, 256, &vocab), 0);
}

static void teardown(void)
{
    grammar_vocab_close(vocab);
}

static int try_text(const char *text, size_t bytes, char *err, size_t err_bytes)
{
    struct grammar *g = NULL;
    char *exact = malloc(bytes ? bytes : 1); /* a sanitizer sees a read past the end */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, text, bytes);
    int rc = grammar_open(vocab, exact, bytes, &g, err, err_bytes);
    grammar_close(g);
    free(exact);
    return rc;
}

static void compiles(const char *text)
{
    char err[300] = "";
    ck_assert_msg(try_text(text, strlen(text), err, sizeof(err)) == 0, "'%s': %s", text, err);
}

static void fails(const char *text, const char *line)
{
    char err[300] = "";
    ck_assert_msg(try_text(text, strlen(text), err, sizeof(err)) == -EINVAL, "'%s' compiles", text);
    ck_assert_msg(!strncmp(err, line, strlen(line)), "'%s': '%s', not '%s'", text, err, line);
    ck_assert_ptr_null(strchr(err, '\n'));
}

START_TEST(every_construct_of_the_dialect_compiles)
{
    static const char *const texts[] = {
        "root ::= \"a\"",
        "root ::=", /* the empty sentence */
        "root ::= \"\"\n\n\n",
        "# a comment\nroot ::= \"a\" # another\n# the last",
        "root ::= a b-c d_1\na ::= \"a\"\r\nb-c::=\"b\"\n\td_1 ::= \"d\"",
        "root ::= (\n  \"a\"\n  |\n  \"b\" # here\n)\n",
        "root ::=\n  \"a\" |\n  \"b\"",
        "root ::= \"a\"\n  | \"b\"\n  # between\n  | \"c\"\nx ::= \"d\"",
        "root ::= [a-z] [^a-z] [^\\]\\\\] [-a] [a-] [\\x41-\\u00e9\\U0001F600] . [^]",
        "root ::= \"\\x41\\u00e9\\U0001F600\\n\\r\\t\\\"\\\\\\[\\]\"",
        "root ::= \"a\"* \"b\"+ \"c\"? \"d\"{3} \"e\"{3,} \"f\"{3,5} \"g\"{,5} \"h\"{0} \"i\"{ 1 , "
        "2 }",
        "root ::= (\"a\"*)* (\"b\"?)+ (\"\")* ((\"c\"{2}){3}){4}",
        "root ::= x? root-2\nx ::= \"x\" x | \"y\"\nroot-2 ::= \"z\" root-2 |",
        "root ::= \"a\" root \"b\" | \"c\"",
        "root ::= \"\xc3\xa9\xe6\xbc\xa2\" [\xc3\xa0-\xc3\xbf] \"\xf0\x9f\x98\x80\"",
        "root ::= [\\x00-\\x1f\\U00010000-\\U0010ffff]",
        "root ::= \"a\" | loop\nloop ::= \"x\" loop", /* one of two alternatives ends */
        "root ::= a a a\na ::= \"a\"{0,3000}",
        "root ::= (((\"a\"{1000}){1000}){1000}){1000}", /* copies of a rule, not of its body */
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        compiles(texts[i]);
}
END_TEST

START_TEST(errors_name_line_and_column)
{
    static const struct {
        const char *text, *line;
    } rows[] = {
        {"", "grammar line 1, column 1: missing rule 'root'"},
        {"# nothing\n", "grammar line 1, column 1: missing rule 'root'"},
        {"start ::= \"a\"", "grammar line 1, column 1: missing rule 'root'"},
        {"root ::= \"a\" nope", "grammar line 1, column 14: rule nope is not defined"},
        {"root ::= \"a\"\nx ::= (\n \"b\" |\n  nope)",
         "grammar line 4, column 3: rule nope is not defined"},
        {"root = \"a\"", "grammar line 1, column 6: expected ::="},
        {"root\n::= \"a\"", "grammar line 1, column 5: expected ::="},
        {"root ::= \"a\"\nroot ::= \"b\"",
         "grammar line 2, column 1: rule root is already defined"},
        {"root ::= <a", "grammar line 1, column 10: expected a token: <[id]>"},
        {"root ::= <[", "grammar line 1, column 12: expected a number"},
        {"root ::= <[1", "grammar line 1, column 10: this token is not closed"},
        {"root ::= <[1]", "grammar line 1, column 10: this token is not closed"},
        {"root ::= <[1000001]>", "grammar line 1, column 12: a token above 1000000"},
        {"root ::= \"a", "grammar line 1, column 10: this literal is not closed"},
        {"root ::= \"a\\", "grammar line 1, column 10: this literal is not closed"},
        {"root ::= [a", "grammar line 1, column 10: this class is not closed"},
        {"root ::= [a-", "grammar line 1, column 10: this class is not closed"},
        {"root ::= []", "grammar line 1, column 10: this class contains no character"},
        {"root ::= [z-a]", "grammar line 1, column 11: this range ends before it begins"},
        {"root ::= \"\\q\"", "grammar line 1, column 11: unknown escape"},
        {"root ::= \"\\x4\"", "grammar line 1, column 13: expected 2 hex digits"},
        {"root ::= \"\\u12g4\"", "grammar line 1, column 13: expected 4 hex digits"},
        {"root ::= \"\\U00110000\"",
         "grammar line 1, column 13: 110000 is not a Unicode code point"},
        {"root ::= \"\\ud800\"", "grammar line 1, column 13: d800 is not a Unicode code point"},
        {"root ::= \"\xc3\"", "grammar line 1, column 11: invalid UTF-8"},
        {"root ::= \"\xc0\x80\"", "grammar line 1, column 11: invalid UTF-8"},
        {"root ::= \"\xed\xa0\x80\"", "grammar line 1, column 11: invalid UTF-8"},
        {"root ::= (\"a\"", "grammar line 1, column 10: this parenthesis is not closed"},
        {"root ::= (\"a\" ]", "grammar line 1, column 15: unexpected text: expected )"},
        {"root ::= \"a\" )", "grammar line 1, column 14: unexpected text"},
        {"root ::= \"a\" ::=", "grammar line 1, column 14: unexpected text"},
        {"root ::= \"a\"\n)", "grammar line 2, column 1: expected the name of a rule"},
        {"root ::= *", "grammar line 1, column 10: there is nothing before * to repeat"},
        {"root ::= (| +)", "grammar line 1, column 13: there is nothing before + to repeat"},
        {"root ::= {3}", "grammar line 1, column 10: there is nothing before { to repeat"},
        {"root ::= \"a\"{", "grammar line 1, column 14: expected a number"},
        {"root ::= \"a\"{3", "grammar line 1, column 13: this repetition is not closed"},
        {"root ::= \"a\"{3,2}",
         "grammar line 1, column 13: a repetition of at least 3 but at most 2"},
        {"root ::= \"a\"{99999999999999999999}",
         "grammar line 1, column 14: a repetition count above"},
        {"root ::= \"a\"{1000000}", "grammar line 1, column 10: the grammar is too large here"},
        {"root ::= (((\"\"{1000}){1000}){1000}){1000}", "grammar line 1, column"},
        {"root ::= root \"a\" | \"b\"", "grammar line 1, column 1: rule root begins with itself"},
        {"root ::= \"x\" a\na ::= b\nb ::= c? a",
         "grammar line 3, column 7: rule c is not defined"},
        {"root ::= \"x\" a\na ::= b\nb ::= c? a\nc ::= \"c\"",
         "grammar line 2, column 1: rule a begins"},
        {"root ::= \"x\" a\n\na ::= \"\" a \"y\" | \"z\"",
         "grammar line 3, column 1: rule a begins with itself"},
        {"root ::= \"x\" root", "grammar line 1, column 1: rule root matches no finite text"},
        {"\n root ::= a\na ::= \"x\" b\nb ::= \"y\" a",
         "grammar line 2, column 2: rule root matches no finite"},
        {"\xc3\xa9 ::= \"x\"", "grammar line 1, column 1: expected the name of a rule"},
        {"root ::= \"\xc3\xa9\xc3\xa9\" ]", "grammar line 1, column 15: unexpected text"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fails(rows[i].text, rows[i].line);
}
END_TEST

START_TEST(a_byte_0_is_refused)
{
    char err[300];
    ck_assert_int_eq(try_text("root ::= \"a\0b\"", 14, err, sizeof(err)), -EINVAL);
    ck_assert_str_eq(err,
                     "grammar line 1, column 12: a zero byte: write \\x00 in a literal or class");
}
END_TEST

/* Every prefix of a good grammar, and every byte of it changed: an error or a grammar, never a
 * crash. */
START_TEST(damaged_grammars_compile_or_are_refused)
{
    static const char text[] = "root ::= (a | [^\"x-z\\u00e9] \"\\n\\x41\xc3\xa9\"{2,3})* . # end\n"
                               "a ::= \"b\"? (\"c\"+ | a-2)\r\na-2 ::= [0-9]{,4}\n";
    char copy[sizeof(text)], err[300];
    for (size_t n = 0; n < sizeof(text); n++)
        (void)try_text(text, n, err, sizeof(err));
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        for (int byte = 0; byte < 256; byte++) {
            memcpy(copy, text, sizeof(text));
            copy[i] = (char)byte;
            err[0] = 0;
            if (try_text(copy, sizeof(text) - 1, err, sizeof(err)) < 0)
                ck_assert_msg(!strncmp(err, "grammar line ", 13), "%s", err);
        }
}
END_TEST

static void repeat_text(char *to, const char *what, size_t n)
{
    *to = 0;
    for (size_t i = 0, bytes = strlen(what); i < n; i++, to += bytes)
        memcpy(to, what, bytes + 1);
}

/* 64 KiB of one construct. A limit refuses it in one line, or it compiles; either way well within
 * the time limit of a test. */
START_TEST(hostile_grammars_cost_little)
{
    static const char *const pieces[] = {
        "(",
        "(((\"a\"){2}){2}",
        "[a-z]",
        "\"a\"*",
        "a|",
        "root ::= ",
        "\n",
        "#",
        "[^\\u1234]",
        "\"\"{9}",
        ".",
        "\"\xf0\x9f\x98\x80\"",
        "x ",
        ".{9}",
        "(\"a\"|\"b\")",
        "(\"\")*",
        "|",
        "\"a\"?",
    };
    char *text = malloc(1 << 17), err[300];
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        static const char head[] = "x ::= \"x\"\nroot ::= \"y\" ";
        memcpy(text, head, sizeof(head));
        repeat_text(text + sizeof(head) - 1, pieces[i], 65000 / strlen(pieces[i]));
        int rc = try_text(text, strlen(text), err, sizeof(err));
        ck_assert_msg(rc == 0 || rc == -EINVAL, "%d", rc);
    }
    free(text);
}
END_TEST

/* Chains of rules in the worst order for a non-linear algorithm. */
START_TEST(many_rules_in_any_order_are_compiled)
{
    char *text = malloc(1 << 20), err[300];
    ck_assert_ptr_nonnull(text);
    for (int form = 0; form < 3; form++) {
        size_t n = 0;
        int last = form == 2 ? 1999 : 7999; /* form 2: each is an alternative at the start */
        for (int i = 0; i <= last; i++) {
            int k = form == 1 ? last - i : i;
            n += (size_t)sprintf(text + n, "r%d ::= ", k);
            n += (size_t)(k == last
                              ? sprintf(text + n, "\"x\"\n")
                              : sprintf(text + n, "%sr%d\n", form == 2 ? "\"y\"? " : "", k + 1));
        }
        n += (size_t)sprintf(text + n, "root ::= r0");
        ck_assert_msg(try_text(text, n, err, sizeof(err)) == 0, "%s", err);
    }
    free(text);
}
END_TEST

enum { NAME_BYTES = 6, TRIED = 8192, SENT = 512, REGION = 128 };

static void add_rule(char **end, const char *name)
{
    *end += sprintf(*end, "%s::=\"x\"\n", name);
}

static void parse_all(const char *text, struct ast_tree *ret)
{
    char err[256];
    ck_assert_int_eq(grammar_parse(text, strlen(text), ret, err, sizeof(err)), 0);
}

/* The most places in a row of the table of names that are taken: a look-up may have to pass all. */
static uint32_t longest_run(const struct ast_tree *t)
{
    uint32_t run = 0, longest = 0;
    for (uint32_t i = 0; i < t->n_names; i++) {
        run = t->names[i] ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Of many names those that fell together when they were tried: a grammar with many mentions of
 * these would keep the compiler for a long time, if they did so each time. */
START_TEST(names_that_a_client_has_tried_fall_apart)
{
    static char tried[32 * TRIED], sent[32 * SENT];
    char name[NAME_BYTES + 1], *of_tried = tried, *of_sent = sent;
    struct ast_tree t;
    uint32_t n = 0;

    add_rule(&of_tried, "root");
    add_rule(&of_sent, "root");
    for (uint32_t i = 0; i < TRIED; i++) {
        snprintf(name, sizeof(name), "a%05u", i % 100000);
        add_rule(&of_tried, name);
    }
    parse_all(tried, &t);
    for (uint32_t i = 0; i < t.n_names && n < SENT; i++) {
        if (t.names[i] < 2 || i % (4 * SENT) >= REGION)
            continue;
        memcpy(name, tried + t.rules[t.names[i] - 1].name_at, NAME_BYTES);
        name[NAME_BYTES] = 0;
        add_rule(&of_sent, name);
        n++;
    }
    grammar_tree_free(&t);
    ck_assert_uint_gt(n, SENT / 2);
    parse_all(sent, &t);
    ck_assert_uint_lt(longest_run(&t), REGION / 2);
    grammar_tree_free(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar_parse");
    TCase *tests = tcase_create("parse");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_construct_of_the_dialect_compiles);
    tcase_add_test(tests, errors_name_line_and_column);
    tcase_add_test(tests, a_byte_0_is_refused);
    tcase_add_test(tests, damaged_grammars_compile_or_are_refused);
    tcase_add_test(tests, hostile_grammars_cost_little);
    tcase_add_test(tests, many_rules_in_any_order_are_compiled);
    tcase_add_test(tests, names_that_a_client_has_tried_fall_apart);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
