/* The text of an answer as it arrives: stop texts, held-back beginnings, whole characters. */
#include "client/lib/answer.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct answer answer;

static void setup(void)
{
    memset(&answer, 0, sizeof(answer));
}

static void teardown(void)
{
    answer_fini(&answer);
}

static void start(const char *const *stops, uint32_t n)
{
    ck_assert_int_eq(answer_start(&answer, stops, n, 0), 0);
}

/* Feeds one token's bytes and says what text came out of it. */
static const char *feed(const char *bytes)
{
    answer_take(&answer);
    ck_assert_int_eq(answer_feed(&answer, bytes, strlen(bytes)), 0);
    return answer.text.bytes ? answer.text.data : "";
}

static const char *finish(void)
{
    answer_take(&answer);
    ck_assert_int_eq(answer_finish(&answer), 0);
    return answer.text.bytes ? answer.text.data : "";
}

START_TEST(text_without_stops_passes_at_once)
{
    start(NULL, 0);
    ck_assert_str_eq(feed("def "), "def ");
    ck_assert_str_eq(feed("f(x):\n"), "f(x):\n");
    ck_assert_str_eq(finish(), "");
}
END_TEST

START_TEST(a_prefix_of_a_stop_text_is_held_until_it_cannot_match)
{
    start((const char *[]){"END"}, 1);
    ck_assert_str_eq(feed("a E"), "a ");
    ck_assert_str_eq(feed("N"), "");
    ck_assert_str_eq(feed("x"), "ENx");
    ck_assert_int_eq(answer.ended, 0);
}
END_TEST

START_TEST(a_stop_over_several_tokens_is_cut_with_what_follows)
{
    start((const char *[]){"END"}, 1);
    ck_assert_str_eq(feed("one E"), "one ");
    ck_assert_str_eq(feed("ND two"), "");
    ck_assert_int_eq(answer.ended, 1);
    ck_assert_str_eq(feed("three"), "");
    ck_assert_str_eq(finish(), "");
}
END_TEST

START_TEST(a_stop_inside_one_token_is_cut)
{
    start((const char *[]){"\n\n"}, 1);
    ck_assert_str_eq(feed("x\n\ny"), "x");
    ck_assert_int_eq(answer.ended, 1);
}
END_TEST

START_TEST(held_text_comes_at_the_end_when_no_stop_did)
{
    start((const char *[]){"</s>"}, 1);
    ck_assert_str_eq(feed("a</"), "a");
    ck_assert_str_eq(finish(), "</");
}
END_TEST

START_TEST(the_stop_text_that_begins_first_wins)
{
    start((const char *[]){"cd", "bcd"}, 2);
    ck_assert_str_eq(feed("abcd"), "a");
}
END_TEST

START_TEST(a_stop_that_overlaps_itself_is_found)
{
    start((const char *[]){"aab"}, 1);
    ck_assert_str_eq(feed("a"), "");
    ck_assert_str_eq(feed("a"), "");
    ck_assert_str_eq(feed("a"), "a");
    ck_assert_str_eq(feed("b!"), "");
    ck_assert_int_eq(answer.ended, 1);
}
END_TEST

START_TEST(characters_are_given_out_whole)
{
    start(NULL, 0);
    ck_assert_str_eq(feed("\xe2\x82"), "");
    ck_assert_str_eq(feed("\xac!"), "\xe2\x82\xac!");
    ck_assert_str_eq(feed("\xf0\x9f\x94"), "");
    ck_assert_str_eq(finish(), "\xef\xbf\xbd");
}
END_TEST

START_TEST(invalid_utf8_is_replaced)
{
    start(NULL, 0);
    ck_assert_str_eq(feed("a\xff\xfe"), "a\xef\xbf\xbd\xef\xbf\xbd");
    ck_assert_str_eq(feed("\xe2"), "");
    ck_assert_str_eq(feed("b"), "\xef\xbf\xbd"
                                "b");
}
END_TEST

START_TEST(half_a_character_before_a_stop_is_replaced_not_kept)
{
    start((const char *[]){"STOP"}, 1);
    ck_assert_str_eq(feed("\xe2\x82STOP"), "\xef\xbf\xbd");
    ck_assert_int_eq(answer.ended, 1);
}
END_TEST

START_TEST(a_stop_of_one_part_of_a_character_is_found)
{
    start((const char *[]){"\xac"}, 1);
    ck_assert_str_eq(feed("x\xe2\x82"), "x");
    ck_assert_str_eq(feed("\xac"), "\xef\xbf\xbd");
    ck_assert_int_eq(answer.ended, 1);
}
END_TEST

START_TEST(the_tokenizers_space_is_dropped_once)
{
    ck_assert_int_eq(answer_start(&answer, NULL, 0, 1), 0);
    ck_assert_str_eq(feed(" Once"), "Once");
    ck_assert_str_eq(feed(" upon"), " upon");
    ck_assert_int_eq(answer_start(&answer, NULL, 0, 1), 0);
    ck_assert_str_eq(feed("\nOnce"), "\nOnce");
    ck_assert_str_eq(feed(" upon"), " upon");
}
END_TEST

START_TEST(a_stop_may_begin_with_the_dropped_space)
{
    const char *stops[] = {" Once"};
    ck_assert_int_eq(answer_start(&answer, stops, 1, 1), 0);
    ck_assert_str_eq(feed(" Once"), "");
    ck_assert_int_eq(answer.ended, 1);
}
END_TEST

/* What comes out is the same however the bytes are cut into tokens. */
START_TEST(cutting_makes_no_difference)
{
    static const char text[] = "ab \xe2\x82\xac </ </s <\xff end</s>rest";
    static const char expected[] = "ab \xe2\x82\xac </ </s <\xef\xbf\xbd end";
    const char *stops[] = {"</s>", "zz"};
    unsigned random = 12345;
    for (int round = 0; round < 500; round++) {
        char out[200] = "";
        start(stops, 2);
        for (size_t at = 0; at < sizeof(text) - 1;) {
            random = random * 1103515245u + 12345u;
            size_t n = 1 + (random >> 16) % 4;
            if (n > sizeof(text) - 1 - at)
                n = sizeof(text) - 1 - at;
            char piece[8] = "";
            memcpy(piece, text + at, n);
            strcat(out, feed(piece));
            at += n;
        }
        strcat(out, finish());
        ck_assert_msg(strcmp(out, expected) == 0, "round %d: '%s'", round, out);
        ck_assert_int_eq(answer.ended, 1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_answer");
    TCase *t = tcase_create("answer");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, text_without_stops_passes_at_once);
    tcase_add_test(t, a_prefix_of_a_stop_text_is_held_until_it_cannot_match);
    tcase_add_test(t, a_stop_over_several_tokens_is_cut_with_what_follows);
    tcase_add_test(t, a_stop_inside_one_token_is_cut);
    tcase_add_test(t, held_text_comes_at_the_end_when_no_stop_did);
    tcase_add_test(t, the_stop_text_that_begins_first_wins);
    tcase_add_test(t, a_stop_that_overlaps_itself_is_found);
    tcase_add_test(t, characters_are_given_out_whole);
    tcase_add_test(t, invalid_utf8_is_replaced);
    tcase_add_test(t, half_a_character_before_a_stop_is_replaced_not_kept);
    tcase_add_test(t, a_stop_of_one_part_of_a_character_is_found);
    tcase_add_test(t, the_tokenizers_space_is_dropped_once);
    tcase_add_test(t, a_stop_may_begin_with_the_dropped_space);
    tcase_add_test(t, cutting_makes_no_difference);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
