/* hearth-http with more requests than slots: which wait, how many, and how the rest are refused. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

START_TEST(the_queue_of_requests_is_bounded)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--slots", "1", "--queue", "2", NULL});
    int running = rig_send_forever(",\"stream\":true"),
        waiting[2]; /* not read, so it does not end */
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 1), 1);
    for (int i = 0; i < 2; i++) {
        waiting[i] = gateway_connect(&rig_gate);
        http_send(waiting[i], "POST", "/completion", "", "{\"prompt\":\"x\",\"n_predict\":2}");
        gateway_wait_metric(&rig_gate, "hearth_http_queued", i + 1);
    }
    struct http_answer a = http_ask(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}");
    ck_assert_int_eq(a.status, 503);
    ck_assert_ptr_nonnull(strstr(a.headers, "Retry-After:"));
    ck_assert_ptr_nonnull(strstr(a.body, "unavailable_error"));
    http_answer_fini(&a);
    a = http_ask(&rig_gate, "/slots?fail_on_no_slot=1", NULL);
    ck_assert_int_eq(a.status, 503);
    http_answer_fini(&a);
    close(waiting[0]); /* a request whose client leaves the queue is forgotten */
    gateway_wait_metric(&rig_gate, "hearth_http_queued", 1);
    close(running);
    a = http_receive(waiting[1]);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    close(waiting[1]);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 2), 2);
}
END_TEST

/* Each dialect says so in its own words, at once. */
START_TEST(a_full_gateway_is_said_in_each_dialect)
{
    static const struct {
        const char *path, *body, *where, *word;
    } full[] = {
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
         "error/type", "unavailable_error"},
        {"/v1/messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true}",
         "error/type", "overloaded_error"},
        {"/v1/responses", "{\"input\":\"x\",\"stream\":true}", "error/code",
         "server_is_overloaded"},
        {"/api/chat", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
         "error", "all 1 slots are busy and 1 requests wait already: try again in a moment"},
    };
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(
        &rig_gate, &rig_daemon, false,
        (const char *const[]){"--slots", "1", "--queue", "1", "--chat-template", "chatml", NULL});
    int running = rig_send_forever(",\"stream\":true"), waiting = gateway_connect(&rig_gate);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 1), 1);
    http_send(waiting, "POST", "/completion", "", "{\"prompt\":\"x\",\"n_predict\":2}");
    gateway_wait_metric(&rig_gate, "hearth_http_queued", 1);
    for (size_t i = 0; i < sizeof(full) / sizeof(full[0]); i++) {
        struct http_answer a = http_ask(&rig_gate, full[i].path, full[i].body);
        json_t *o = json_loads(a.body, 0, NULL);
        ck_assert_int_eq(a.status, 503);
        ck_assert_ptr_nonnull(strstr(a.headers, "Retry-After:"));
        ck_assert_str_eq(json_text(o, full[i].where), full[i].word);
        json_decref(o);
        http_answer_fini(&a);
    }
    close(running);
    close(waiting);
}
END_TEST

/* While all slots run endless answers, a request that waits does not begin. */
START_TEST(an_invalid_request_is_refused_without_queueing)
{
    static const char *const wrong[][2] = {
        {"{\"prompt\":\"x\",\"logit_bias\":[[99999999,1]]}", "logit bias: token 99999999"},
        {"{\"prompt\":[\"x\",\"y\"],\"logit_bias\":[[99999999,1]]}", "token 99999999"},
        {"{\"prompt\":\"x\",\"logit_bias\":[[99999999,1]],\"stream\":true}", "token 99999999"}};
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--slots", "2", "--queue", "1", NULL});
    int running[2];
    for (int i = 0; i < 2; i++)
        running[i] = rig_send_forever(",\"stream\":true");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 2), 2);
    for (int full = 0; full < 2; full++) { /* the queue is empty, then full */
        int waiting = full ? gateway_connect(&rig_gate) : -1;
        if (full)
            http_send(waiting, "POST", "/completion", "", "{\"prompt\":\"x\",\"n_predict\":2}");
        gateway_wait_metric(&rig_gate, "hearth_http_queued", full);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            json_t *o = http_json(&rig_gate, "/completion", wrong[i][0], 400);
            ck_assert_str_eq(json_text(o, "error/type"), "invalid_request_error");
            ck_assert_msg(strstr(json_text(o, "error/message"), wrong[i][1]) != NULL, "%s",
                          json_text(o, "error/message"));
            json_decref(o);
        }
        gateway_wait_metric(&rig_gate, "hearth_http_running", 2);
        gateway_wait_metric(&rig_gate, "hearth_http_queued", full);
        if (full) {
            ck_assert(!rig_has_answer(waiting));
            close(waiting);
        }
    }
    close(running[0]);
    close(running[1]);
}
END_TEST

START_TEST(a_grammar_too_large_is_not_called_a_context_too_small)
{
    enum { BYTES = 3 << 20 };
    char *body = malloc(BYTES + 100);
    char *at = stpcpy(body, "{\"prompt\":\"x\",\"grammar\":\"root ::= ");
    memset(at, 'a', BYTES);
    strcpy(at + BYTES, "\"}");
    json_t *o = http_json(&rig_gate, "/completion", body, 400);
    ck_assert_str_eq(json_text(o, "error/type"), "invalid_request_error");
    ck_assert_msg(strstr(json_text(o, "error/message"), "a grammar of ") != NULL, "%s",
                  json_text(o, "error/message"));
    json_decref(o);
    free(body);
}
END_TEST

/* While another client holds the daemon's other slots, the gateway's own serve all requests; when it
 * has no slot, it says so. */
START_TEST(waiting_for_slots_of_other_clients_ends)
{
    static const char two[] = "{\"prompt\":\"x\",\"n_predict\":2}";
    int waiting[2];
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    ck_assert_int_eq(harness_stop(&rig_daemon), 0);
    harness_start(&rig_daemon, "daemon/models/hearth-code-5m-f16.gguf",
                  (const char *const[]){"--context", "16384", "--slots", "2", NULL});
    struct hearth *one = harness_connect(&rig_daemon, 1, NULL);
    struct hearth *other = harness_connect(&rig_daemon, 1, NULL);
    gateway_start(&rig_gate, &rig_daemon, false, (const char *const[]){"--queue", "2", NULL});
    struct http_answer a = http_ask(&rig_gate, "/completion", two);
    ck_assert_int_eq(a.status, 503);
    ck_assert_ptr_nonnull(strstr(a.headers, "Retry-After:"));
    ck_assert_ptr_nonnull(strstr(a.body, "slots"));
    http_answer_fini(&a);
    hearth_close(other);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_used", 1), 1);
    int running = rig_send_forever("");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    for (int i = 0; i < 2; i++) {
        waiting[i] = gateway_connect(&rig_gate);
        http_send(waiting[i], "POST", "/completion", "", two);
    }
    int64_t queued = -1;
    for (int i = 0; i < 1000 && queued != 2; i++) {
        a = http_ask(&rig_gate, "/metrics", NULL);
        const char *line = strstr(a.body, "\nhearth_http_queued ");
        ck_assert_ptr_nonnull(line);
        queued = strtoll(line + sizeof("\nhearth_http_queued ") - 1, NULL, 10);
        http_answer_fini(&a);
    }
    ck_assert_int_eq(queued, 2);
    a = http_ask(&rig_gate, "/completion", two);
    ck_assert_int_eq(a.status, 503);
    ck_assert_ptr_nonnull(strstr(a.headers, "Retry-After:"));
    ck_assert_ptr_nonnull(strstr(a.body, "2 requests wait already"));
    http_answer_fini(&a);
    close(running);
    for (int i = 0; i < 2; i++) {
        a = http_receive(waiting[i]);
        ck_assert_int_eq(a.status, 200);
        http_answer_fini(&a);
        close(waiting[i]);
    }
    hearth_close(one);
}
END_TEST

/* With a slot, but without a descriptor for another one, the gateway lets requests wait for it. */
START_TEST(without_descriptors_requests_wait_for_a_slot)
{
    struct rlimit before, few;
    int waiting = gateway_connect(&rig_gate);
    http_send(waiting, "GET", "/health", "", NULL); /* it is accepted before they are scarce */
    struct http_answer a = http_receive(waiting);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    int running = rig_send_forever("");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, NULL, &before), 0);
    few = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, &few, NULL), 0);
    http_send(waiting, "POST", "/completion", "", "{\"prompt\":\"x\",\"n_predict\":2}");
    struct pollfd p = {.fd = waiting, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 300), 0);
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, &before, NULL), 0);
    close(running);
    a = http_receive(waiting);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    close(waiting);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_queue");
    TCase *tcase = tcase_create("http_queue");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, rig_setup, rig_teardown);
    tcase_add_test(tcase, the_queue_of_requests_is_bounded);
    tcase_add_test(tcase, a_full_gateway_is_said_in_each_dialect);
    tcase_add_test(tcase, an_invalid_request_is_refused_without_queueing);
    tcase_add_test(tcase, a_grammar_too_large_is_not_called_a_context_too_small);
    tcase_add_test(tcase, waiting_for_slots_of_other_clients_ends);
    tcase_add_test(tcase, without_descriptors_requests_wait_for_a_slot);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
