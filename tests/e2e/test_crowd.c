/* 256 clients on a pool of KV pages for three requests, eight of them with large requests: all get
 * the tokens they get alone, and a client without a free slot is refused at once. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { CLIENTS = 256, LARGE = 8, ROUNDS = 3, LARGE_PROMPT = 400, OUTPUT_MAX = 100 };

struct answer {
    uint32_t n, ids[OUTPUT_MAX];
};

static struct harness daemon_;
static struct hearth *clients[CLIENTS];

static void submit(struct hearth *h, bool large)
{
    struct hearth_request request;
    uint32_t prompt[LARGE_PROMPT];

    for (uint32_t i = 0; i < LARGE_PROMPT; i++)
        prompt[i] = 3 + i * 7 % 250;
    hearth_request_init(&request, sizeof(request));
    request.tokens = prompt;
    request.n_tokens = large ? LARGE_PROMPT : 3;
    request.max_tokens = large ? OUTPUT_MAX : 20;
    request.temperature = 0.9f;
    request.seed = 8;
    ck_assert_msg(hearth_submit(h, 0, &request) == 0, "%s", hearth_error(h));
}

static struct answer take(struct hearth *h)
{
    const struct hearth_event *event;
    struct answer answer = {0};

    do {
        ck_assert_msg(hearth_next(h, 0, &event, 120000) == 1, "%s", hearth_error(h));
        for (uint32_t i = 0; i < event->n_tokens; i++)
            answer.ids[answer.n++] = event->tokens[i];
    } while (event->kind != HEARTH_DONE);
    ck_assert_msg(event->result->reason != HEARTH_ERROR, "%s", event->result->error_text);
    return answer;
}

static void check_busy(void)
{
    struct hearth_options options;
    struct hearth *h;
    char err[256];

    hearth_options_init(&options, sizeof(options));
    ck_assert_int_eq(hearth_connect(daemon_.socket, &options, &h, err, sizeof(err)), -EBUSY);
    ck_assert_ptr_nonnull(strstr(err, "try again"));
}

START_TEST(many_clients_beside_large_requests_are_served)
{
    static const char *const arguments[] = {"--slots",    "256",  "--clients", "260",
                                            "--threads",  "1",    "--context", "512",
                                            "--kv-bytes", "400K", NULL};
    struct rlimit files;
    struct answer alone[2], got;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    harness_start(&daemon_, harness_tiny_model(), arguments);
    ck_assert_int_lt(harness_counter(&daemon_, "pages_total"), LARGE * 16);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = harness_connect(&daemon_, 1, NULL);
    for (int i = 0; i < 2; i++) {
        submit(clients[i], i == 0);
        alone[i] = take(clients[i]);
    }
    check_busy();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++)
            submit(clients[i], i < LARGE);
        check_busy();
        for (int i = CLIENTS - 1; i >= 0; i--) {
            got = take(clients[i]);
            ck_assert_msg(!memcmp(&got, &alone[i >= LARGE], sizeof(got)), "client %d", i);
        }
    }
    ck_assert_int_gt(harness_counter(&daemon_, "evictions"), 0);
    for (int i = 0; i < CLIENTS; i++)
        hearth_close(clients[i]);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    harness_check_pages(&daemon_);
    ck_assert_int_eq(harness_counter(&daemon_, "rescans_found"), 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crowd");
    TCase *tcase = tcase_create("crowd");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, many_clients_beside_large_requests_are_served);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
