/* The library where memory runs out: a request that fails leaves the one that runs alone, and no
 * part of an answer is lost without a word. */
#include <stdlib.h>
#include <string.h>

static int n_left = -1; /* the allocation that fails, and all after it; below 0: none */

static int is_scarce(void)
{
    n_left -= n_left > 0;
    return n_left == 0;
}

static void *scarce_malloc(size_t bytes)
{
    return is_scarce() ? NULL : malloc(bytes);
}

static void *scarce_calloc(size_t n, size_t bytes)
{
    return is_scarce() ? NULL : calloc(n, bytes);
}

static void *scarce_realloc(void *p, size_t bytes)
{
    return is_scarce() ? NULL : realloc(p, bytes);
}

static char *scarce_strdup(const char *text)
{
    return is_scarce() ? NULL : strdup(text);
}

#undef strdup
#define malloc scarce_malloc
#define calloc scarce_calloc
#define realloc scarce_realloc
#define strdup scarce_strdup
#include "client/base/buffer.c"
#include "client/lib/answer.c"
#include "client/lib/runs.c"
#include "client/lib/submit.c"
#include "client/tokenizer/token_list.c"
#undef malloc
#undef calloc
#undef realloc
#undef strdup
#include "tests/rig/client_fixture.h"
#include "tests/run_suite.h"

#include <check.h>

static void teardown(void)
{
    n_left = -1;
    fixture_teardown();
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Its stop texts and tokens cut the answer that runs, also after another request was refused. */
START_TEST(a_request_that_fails_leaves_the_one_before_alone)
{
    static const char *const stops[] = {"END"}, *const others[] = {"x", "y"};
    static const uint32_t stop_tokens[] = {FAKE_BYTE + 'z'};
    connect_with(1, 0);
    struct hearth_request r = text_request("Once");
    r.stops = stops;
    r.n_stops = 1;
    uint32_t g = submit_request(&r).generation;
    fake_bytes(&fake, 0, g, 3, "abE");
    ck_assert_str_eq(next(0)->text, "ab");
    r.stops = others;
    r.n_stops = 2;
    r.stop_tokens = stop_tokens;
    r.n_stop_tokens = 1;
    r.tokens = prompt;
    r.n_tokens = 3;
    for (int n = 1; n <= 4; n++) { /* the n-th one fails */
        n_left = n;
        ck_assert_int_eq(hearth_submit(h, 0, &r), -ENOMEM);
    }
    n_left = -1;
    fake_bytes(&fake, 0, g, 6, "ND");
    ck_assert_str_eq(next(0)->text, "");
    fake_done(&fake, 0, g, DONE_STOP, 5);
    ck_assert_str_eq(next(0)->result->error_text, "");
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
}
END_TEST

/* ---- answers --------------------------------------------------------------------------------- */

static const char whole[] = "an answer of some tokens, and its end";

/* Reads to the end, with memory again once some failed. Returns the text and the end's error. */
static const char *hear(int *ret_error)
{
    static char text[256];
    const struct hearth_event *e;
    uint32_t n_ids = 0;
    text[0] = 0;
    for (;;) {
        int rc = hearth_next(h, 0, &e, 0);
        n_left = rc ? -1 : n_left;
        if (rc != 1)
            continue;
        ck_assert_uint_eq(e->position, 3 + n_ids);
        n_ids += e->n_tokens;
        strcat(text, e->text);
        if (!e->result)
            continue;
        ck_assert_uint_eq(e->result->n_ids, n_ids);
        *ret_error = e->result->error;
        return text;
    }
}

/* Whichever allocation fails: the answer is whole, or its end says that it is not, and the daemon
 * is told. */
START_TEST(an_answer_is_whole_or_ends_with_an_error)
{
    int error = 1;
    connect_with(1, 0);
    struct hearth_request r = text_request("Once");
    r.tokens = prompt;
    r.n_tokens = 3;
    r.logprobs = _i & 1 ? 0 : -1;
    uint32_t g = submit_request(&r).generation;
    for (uint32_t i = 0; i < sizeof(whole) - 1; i++) {
        const struct event_logprob head = {.token = FAKE_BYTE + (uint32_t)(unsigned char)whole[i]};
        if (_i & 1)
            ck_assert_int_eq(event_put_logprob(&fake.events[0], g, 3 + i, &head, NULL), 0);
        else
            fake_tokens(&fake, 0, g, 3 + i, &head.token, 1);
    }
    fake_done(&fake, 0, g, DONE_EOS, sizeof(whole) - 1);
    n_left = 1 + _i / 2;
    const char *text = hear(&error);
    uint32_t now = atomic_load(&segment_up_slot(&fake.segment, 0)->generation);
    ck_assert_str_eq(text, error ? "" : whole);
    ck_assert_int_eq(error, now == g ? 0 : -ENOMEM);
    ck_assert_int_eq(now == g, _i / 2 >= (_i & 1 ? 6 : 3)); /* so many allocations */
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_memory");
    TCase *tcase = tcase_create("client_memory");
    tcase_add_checked_fixture(tcase, fixture_setup, teardown);
    tcase_add_test(tcase, a_request_that_fails_leaves_the_one_before_alone);
    tcase_add_loop_test(tcase, an_answer_is_whole_or_ends_with_an_error, 0, 14);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
