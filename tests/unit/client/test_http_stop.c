/* The stop text that ended an answer is found in its bytes. */
#include <check.h>
#include <string.h>

#include "client/http/stop_word.h"
#include "tests/rig/client_fixture.h"
#include "tests/run_suite.h"

static const char *const stops[] = {"nowhere", "</s>", "upon"};

static void setup(void)
{
    fixture_setup();
    connect_with(1, 0);
}

/* Which of these ended the text, of whose tokens `shown` is a mark that is shown. */
static const char *found(const char *text, uint32_t shown)
{
    uint32_t ids[32];
    const struct hearth_request q = {
        .stops = stops, .n_stops = 3, .shown_tokens = &shown, .n_shown_tokens = 1};
    const int64_t n = hearth_tokenize(h, text, strlen(text), HEARTH_SPECIAL, ids, 32);
    ck_assert_int_gt(n, 1);
    return stop_word_find(h, &q, &(struct hearth_result){.ids = ids, .n_ids = (uint32_t)n});
}

static uint32_t end_token(void)
{
    uint32_t ids[4];
    ck_assert_int_eq(hearth_tokenize(h, "</s>", 4, HEARTH_SPECIAL, ids, 4), 1);
    return ids[0];
}

START_TEST(the_first_of_the_stop_texts_is_named)
{
    ck_assert_str_eq(found("Once upon a", UINT32_MAX), "upon");
    ck_assert_ptr_null(found("Once a", UINT32_MAX));
}
END_TEST

START_TEST(a_mark_that_is_shown_is_a_stop_text_too)
{
    const uint32_t end = end_token();
    ck_assert_str_eq(found("Once</s>", end), "</s>");
    ck_assert_str_eq(found("Once</s>upon", end), "</s>");
    ck_assert_str_eq(found("Once</s>upon", UINT32_MAX), "upon");
    ck_assert_ptr_null(found("Once</s>", UINT32_MAX));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_stop");
    TCase *tcase = tcase_create("http_stop");
    tcase_add_checked_fixture(tcase, setup, fixture_teardown);
    tcase_add_test(tcase, the_first_of_the_stop_texts_is_named);
    tcase_add_test(tcase, a_mark_that_is_shown_is_a_stop_text_too);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
