/* `hearth chat`: what becomes part of a conversation where memory runs out. */
#include "client/base/buffer.h"

static bool is_scarce;

static void add_or_fail(struct buffer *b, const void *data, size_t bytes)
{
    if (is_scarce)
        b->failed = true;
    else
        buffer_add(b, data, bytes);
}

#define buffer_add add_or_fail
#include "client/cli/chat_talk.c"
#undef buffer_add
#include "client/cli/chat_parts.c"
#include "client/cli/chat_tools.c"
#include "client/cli/chat_tools_run.c"
#include "client/cli/json.c"
#include "client/cli/options.c"
#include "client/cli/show.c"
#include "client/cli/util.c"
#include "tests/rig/client_fixture.h"
#include "tests/run_suite.h"

#include <check.h>

int chat_line_interrupted(void)
{
    return 0;
}

/* The text is kept beside what is written: without a part of it the model, and who saves the
 * conversation, would take half of an answer for all of it. */
START_TEST(an_answer_that_was_not_kept_whole_is_none)
{
    struct cli_options o = {0};
    struct talk t = {.options = &o, .messages = json_array()};
    struct answering a = {.talk = &t};
    struct cli_ids ids = {0};
    connect_with(1, 0);
    t.hearth = h;
    const uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "half of it");
    fake_done(&fake, 0, g, DONE_EOS, 10);
    is_scarce = _i == 1;
    ck_assert_int_eq(stream(&a, &ids), _i ? CLI_SYSTEM : CLI_OK);
    is_scarce = false;
    ck_assert_uint_eq(json_array_size(t.messages), _i ? 0 : 1);
    buffer_fini(&a.text);
    free(ids.items);
    t.hearth = NULL; /* the fixture's */
    talk_close(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_talk");
    TCase *tcase = tcase_create("client_cli_talk");
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tcase, an_answer_that_was_not_kept_whole_is_none, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
