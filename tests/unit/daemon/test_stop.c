/*
 * The stop matcher: every text at every place, for any split into tokens, against the definition
 * (a search in the whole answer).
 */
#include "daemon/policy/stop.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct stop stop;

/* The shortest prefix of `bytes` that ends with one of the texts; n + 1: none does. */
static size_t first_end(const char *bytes, size_t n, const struct stop_text *texts, size_t n_texts)
{
    for (size_t end = 1; end <= n; end++)
        for (size_t i = 0; i < n_texts; i++)
            if (texts[i].n_bytes <= end &&
                !memcmp(bytes + end - texts[i].n_bytes, texts[i].bytes, texts[i].n_bytes))
                return end;
    return n + 1;
}

/* Feeds `bytes` in pieces of `piece`. Returns how many were fed when it stopped; n + 1: never. */
static size_t feed(const char *bytes, size_t n, size_t piece)
{
    for (size_t at = 0; at < n; at += piece) {
        size_t here = n - at < piece ? n - at : piece;
        if (stop_feed(&stop, bytes + at, here))
            return at + here;
    }
    return n + 1;
}

static void same_as_defined(const char *bytes, size_t n, const struct stop_text *texts,
                            size_t n_texts)
{
    size_t end = first_end(bytes, n, texts, n_texts);

    for (size_t piece = 1; piece <= 7; piece++) {
        stop_init(&stop, texts, n_texts);
        size_t whole =
            (end + piece - 1) / piece * piece; /* the end of the token that completes it */
        size_t want = end > n ? n + 1 : whole < n ? whole : n;
        ck_assert_uint_eq(feed(bytes, n, piece), want);
    }
}

START_TEST(without_texts_nothing_stops)
{
    stop_init(&stop, NULL, 0);
    ck_assert(!stop_feed(&stop, "anything", 8));
    ck_assert(!stop_feed(&stop, "", 0));
}
END_TEST

START_TEST(one_byte_stops)
{
    struct stop_text text = {"\n", 1};

    same_as_defined("abc\ndef", 7, &text, 1);
    same_as_defined("\n", 1, &text, 1);
    same_as_defined("", 0, &text, 1);
}
END_TEST

START_TEST(a_text_that_overlaps_itself_is_found)
{
    struct stop_text texts[] = {{"aab", 3}, {"abab", 4}, {"aaaa", 4}};

    same_as_defined("aaaab", 5, texts, 1);
    same_as_defined("aabab", 5, texts + 1, 1);
    same_as_defined("ababab", 6, texts + 1, 1);
    same_as_defined("aaabaaaa", 8, texts + 2, 1);
}
END_TEST

START_TEST(the_first_of_several_texts_wins)
{
    struct stop_text texts[] = {{"defg", 4}, {"bc", 2}, {"zzz", 3}};

    same_as_defined("abcdefg", 7, texts, 3);
    same_as_defined("abdefg", 6, texts, 3);
    same_as_defined("abdefzz", 7, texts, 3);
}
END_TEST

START_TEST(zero_bytes_are_bytes)
{
    struct stop_text text = {"\0\0x", 3};

    same_as_defined("a\0\0\0x", 5, &text, 1);
    same_as_defined("a\0x\0x", 5, &text, 1);
}
END_TEST

START_TEST(the_longest_text_is_found_whole)
{
    static char longest[STOP_TEXT_BYTES_MAX], bytes[3 * STOP_TEXT_BYTES_MAX];
    struct stop_text text = {longest, sizeof(longest)};

    memset(longest, 'x', sizeof(longest));
    longest[0] = 'y';
    memset(bytes, 'x', sizeof(bytes));
    bytes[100] = 'y';
    bytes[200] = 'y';
    same_as_defined(bytes, sizeof(bytes), &text, 1);
}
END_TEST

/* Random bytes of a small alphabet, random texts: equal to the definition. */
START_TEST(matches_equal_a_search_in_the_whole_answer)
{
    uint64_t state = (uint64_t)_i + 3;
    char bytes[80], pool[5][6];
    struct stop_text texts[5];

    for (int round = 0; round < 300; round++) {
        size_t n_texts = 1 + (size_t)(state >> 60) % 5;
        for (size_t i = 0; i < n_texts; i++) {
            for (size_t k = 0; k < sizeof(pool[i]); k++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                pool[i][k] = (char)('a' + (state >> 40) % 3);
            }
            texts[i] = (struct stop_text){pool[i], 2 + (size_t)(state >> 50) % 5};
        }
        for (size_t k = 0; k < sizeof(bytes); k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (char)('a' + (state >> 40) % 3);
        }
        same_as_defined(bytes, sizeof(bytes), texts, n_texts);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stop");
    TCase *t = tcase_create("stop");

    tcase_add_test(t, without_texts_nothing_stops);
    tcase_add_test(t, one_byte_stops);
    tcase_add_test(t, a_text_that_overlaps_itself_is_found);
    tcase_add_test(t, the_first_of_several_texts_wins);
    tcase_add_test(t, zero_bytes_are_bytes);
    tcase_add_test(t, the_longest_text_is_found_whole);
    tcase_add_loop_test(t, matches_equal_a_search_in_the_whole_answer, 0, 5);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
