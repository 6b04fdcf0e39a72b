/*
 * Marks of an answer: where its grammar binds, what stands in thoughts, and limits of thoughts; for
 * any split into tokens.
 */
#include "daemon/policy/marks.h"
#include "tests/run_suite.h"

#include <check.h>
#include <string.h>

static struct params params;
static struct params_mark list[PARAMS_MARKS_MAX];
static struct marks marks;
static const uint32_t closing[] = {70, 71, 72};

static struct params_mark *add(enum params_mark_kind kind, const char *text)
{
    struct params_mark *mark = &list[params.n_marks++];
    *mark = (struct params_mark){.kind = (uint16_t)kind, .bytes = (uint16_t)strlen(text)};
    memcpy(mark->text, text, mark->bytes);
    return mark;
}

static struct params_mark *add_thought(void)
{
    struct params_mark *thought = add(PARAMS_MARK_THOUGHT, "<think>");
    thought->tokens = PARAMS_NO_LIMIT;
    add(PARAMS_MARK_THOUGHT_END, "</think>");
    return thought;
}

static void setup(void)
{
    memset(list, 0, sizeof(list));
    params_default(&params);
    params.marks = list;
    params.grammar_bytes = 1;
}

/* Feeds `text` in tokens of `piece` bytes. Returns where the grammar binds, -1: nowhere. */
static int binds_at(const char *text, size_t piece)
{
    size_t n = strlen(text);
    marks_begin(&marks, &params);
    if (marks.where == MARKS_BOUND)
        return 0;
    for (size_t at = 0; at < n; at += piece) {
        size_t here = n - at < piece ? n - at : piece;
        size_t rest = marks_accept(&marks, text + at, here);
        if (marks.where == MARKS_BOUND)
            return (int)(at + here - rest);
    }
    return -1;
}

static void bind(const char *text, int want)
{
    for (size_t piece = 1; piece <= strlen(text); piece++)
        ck_assert_msg(binds_at(text, piece) == want, "'%s' in pieces of %zu: %d and not %d", text,
                      piece, binds_at(text, piece), want);
}

START_TEST(a_grammar_without_marks_binds_from_the_start)
{
    bind("anything", 0);
    params.grammar_bytes = 0;
    bind("anything", -1);
}
END_TEST

START_TEST(a_grammar_binds_after_the_mark_of_a_call)
{
    add(PARAMS_MARK_CALL, "<tool_call>");
    add(PARAMS_MARK_CALL, "[CALL]");
    bind("text <tool_call>{", 16);
    bind("text [CALL]{<tool_call>", 11);
    bind("<tool_call", -1);
    bind("<tool_<tool_call>", 17);
}
END_TEST

START_TEST(a_mark_in_a_thought_is_none)
{
    add_thought();
    add(PARAMS_MARK_CALL, "<tool_call>");
    bind("<think>a <tool_call> is</think>b<tool_call>", 43);
    bind("a</think><tool_call>", 20);
    list[0].open = 1;
    bind("a <tool_call> is</think><tool_call>", 35);
    bind("a <tool_call> is<think>", -1);
}
END_TEST

START_TEST(without_a_mark_a_grammar_binds_after_an_open_thought)
{
    add_thought()->open = 1;
    bind("I think</think>{", 15);
    list[0].open = 0;
    bind("<think>", 0);
}
END_TEST

START_TEST(a_thought_at_its_limit_is_closed_token_by_token)
{
    struct params_mark *thought = add_thought();
    thought->open = 1;
    thought->tokens = 2;
    params.n_closing = 3;
    params.closing = closing;
    add(PARAMS_MARK_CALL, "[CALL]");
    marks_begin(&marks, &params);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(marks_forced(&marks), MARKS_NO_TOKEN);
        marks_accept(&marks, "word", 4);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(marks_forced(&marks), closing[i]);
        marks_accept(&marks, "[CALL]", 6); /* whatever they spell */
    }
    ck_assert_uint_eq(marks_forced(&marks), MARKS_NO_TOKEN);
    ck_assert_int_eq(marks.where, MARKS_CONTENT);
    marks_accept(&marks, "<think>", 7); /* another one */
    ck_assert_uint_eq(marks_forced(&marks), MARKS_NO_TOKEN);
    marks_accept(&marks, "a", 1);
    marks_accept(&marks, "b", 1);
    ck_assert_uint_eq(marks_forced(&marks), closing[0]);
}
END_TEST

START_TEST(a_limit_of_none_closes_at_once_and_then_the_grammar_binds)
{
    struct params_mark *thought = add_thought();
    thought->open = 1;
    thought->tokens = 0;
    params.n_closing = 1;
    params.closing = closing;
    marks_begin(&marks, &params);
    ck_assert_uint_eq(marks_forced(&marks), closing[0]);
    ck_assert_uint_eq(marks_accept(&marks, "</think>\n", 9), 0);
    ck_assert_int_eq(marks.where, MARKS_BOUND);
}
END_TEST

START_TEST(a_thought_that_ends_in_time_is_left_alone)
{
    struct params_mark *thought = add_thought();
    thought->tokens = 1;
    params.n_closing = 1;
    params.closing = closing;
    params.grammar_bytes = 0;
    marks_begin(&marks, &params);
    marks_accept(&marks, "<think>", 7);
    marks_accept(&marks, "</think>", 8);
    for (int i = 0; i < 9; i++) {
        ck_assert_uint_eq(marks_forced(&marks), MARKS_NO_TOKEN);
        marks_accept(&marks, "x", 1);
    }
}
END_TEST

START_TEST(after_a_call_that_is_none_the_next_mark_counts)
{
    add(PARAMS_MARK_CALL, "[CALL]");
    ck_assert_int_eq(binds_at("[CALL]", 3), 6);
    marks_reject(&marks);
    ck_assert_uint_eq(marks_accept(&marks, "x[CALL]yz", 9), 2);
    ck_assert_int_eq(marks.where, MARKS_BOUND);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("marks");
    TCase *t = tcase_create("marks");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_grammar_without_marks_binds_from_the_start);
    tcase_add_test(t, a_grammar_binds_after_the_mark_of_a_call);
    tcase_add_test(t, a_mark_in_a_thought_is_none);
    tcase_add_test(t, without_a_mark_a_grammar_binds_after_an_open_thought);
    tcase_add_test(t, a_thought_at_its_limit_is_closed_token_by_token);
    tcase_add_test(t, a_limit_of_none_closes_at_once_and_then_the_grammar_binds);
    tcase_add_test(t, a_thought_that_ends_in_time_is_left_alone);
    tcase_add_test(t, after_a_call_that_is_none_the_next_mark_counts);
    suite_add_tcase(s, t);
    return run_suite(s);
}
