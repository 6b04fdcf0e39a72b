/* hearth-http and its daemon: one ends, dies, stands still or is not there yet, and comes back. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- daemons --------------------------------------------------------------------------------- */

START_TEST(without_a_daemon_requests_get_503_until_it_returns)
{
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}", 200));
    harness_kill(&rig_daemon);
    ck_assert_int_eq(rig_wait_health(503), 503);
    json_t *o = http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}", 503);
    ck_assert_str_eq(json_text(o, "error/type"), "unavailable_error");
    ck_assert_ptr_nonnull(strstr(json_text(o, "error/message"), "hearthd"));
    json_decref(o);
    struct http_answer a = http_ask(&rig_gate, "/metrics", NULL);
    ck_assert_ptr_nonnull(strstr(a.body, "\nhearth_up 0\n"));
    http_answer_fini(&a);
    rig_restart_daemon();
    ck_assert_int_eq(rig_wait_health(200), 200);
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}", 200));
}
END_TEST

/* Asks for counters, then for the slots. Were the slots told first? */
static bool slots_overtake_counters(void)
{
    int fd = gateway_connect(&rig_gate);
    http_send(fd, "GET", "/metrics", "", NULL);
    json_decref(http_json(&rig_gate, "/slots", NULL, 200));
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool overtook = poll(&p, 1, 0) == 0;
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 200);
    ck_assert_ptr_nonnull(strstr(a.body, "\nhearth_up 0\n"));
    ck_assert_ptr_nonnull(strstr(a.body, "\nhearth_http_running 0\n"));
    http_answer_fini(&a);
    close(fd);
    return overtook;
}

/* Its counters are asked for by a thread of their own, and not for ever: for a second, in which this test may be stopped
 * now and then. */
START_TEST(a_stopped_daemon_delays_only_metrics)
{
    int tries = 0;
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}", 200));
    ck_assert_int_eq(kill(rig_daemon.pid, SIGSTOP), 0);
    while (!slots_overtake_counters())
        ck_assert_int_lt(++tries, 20);
    ck_assert_int_eq(kill(rig_daemon.pid, SIGCONT), 0);
    for (int i = 0; i < 2; i++) { /* by a new handle, and by the same again */
        struct http_answer a = http_ask(&rig_gate, "/metrics", NULL);
        ck_assert_ptr_nonnull(strstr(a.body, "\nhearth_up 1\n"));
        http_answer_fini(&a);
    }
}
END_TEST

START_TEST(it_starts_before_the_daemon)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    harness_kill(&rig_daemon);
    gateway_start(&rig_gate, &rig_daemon, false, NULL);
    ck_assert_int_eq(rig_wait_health(503), 503);
    rig_restart_daemon();
    ck_assert_int_eq(rig_wait_health(200), 200);
}
END_TEST

START_TEST(a_running_answer_resumes_at_the_next_daemon)
{
    static const char body[] =
        "{\"prompt\":\"class "
        "A:\\n\",\"n_predict\":%d,\"seed\":4,\"logit_bias\":[],\"stream\":%s}";
    char text[200];
    snprintf(text, sizeof(text), body, rig_fewer(3000), "false");
    json_t *want = http_json(&rig_gate, "/completion", text, 200);
    snprintf(text, sizeof(text), body, rig_fewer(3000), "true");
    int fd = gateway_connect(&rig_gate);
    http_send(fd, "POST", "/completion", "", text);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 2), 2);
    harness_kill(&rig_daemon);
    rig_restart_daemon();
    struct http_answer a = http_receive(fd);
    ck_assert(a.is_whole);
    json_t *events = http_events(&a);
    char *got = calloc(1, 1 << 20);
    for (size_t i = 0; i < json_array_size(events); i++)
        strcat(got, json_text(json_array_get(events, i), "content"));
    ck_assert_str_eq(got, json_text(want, "content"));
    free(got);
    http_answer_fini(&a);
    json_decref(events);
    json_decref(want);
    close(fd);
}
END_TEST

/* When the daemon dies, choices that wait are refused, and the one that runs ends with them. */
START_TEST(choices_of_one_answer_end_together)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false, (const char *const[]){"--slots", "1", NULL});
    int fd = rig_send_forever(",\"stream\":true,\"n_cmpl\":4");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 1), 1);
    gateway_wait_metric(&rig_gate, "hearth_http_queued", 3);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 120000), 1); /* it is a stream from here on */
    harness_kill(&rig_daemon);
    ck_assert_int_eq(rig_wait_health(503), 503);
    struct http_answer a = http_receive(fd);
    ck_assert(a.is_whole);
    json_t *events = http_events(&a);
    for (size_t i = 0; i < json_array_size(events); i++) /* says so once, at the end */
        ck_assert_int_eq(json_at(json_array_get(events, i), "error") != NULL,
                         i + 1 == json_array_size(events));
    ck_assert_int_eq(json_number(json_last(events, 0), "error/code"), 503);
    json_decref(events);
    http_answer_fini(&a);
    close(fd);
    gateway_wait_metric(&rig_gate, "hearth_http_running", 0);
    rig_restart_daemon();
    ck_assert_int_eq(rig_wait_health(200), 200);
}
END_TEST

/* ---- ends and beginnings --------------------------------------------------------------------- */

START_TEST(sigterm_lets_running_answers_end)
{
    char body[100];
    rig_start_patient();
    int idle = gateway_connect(&rig_gate), fd = gateway_connect(&rig_gate);
    snprintf(body, sizeof(body), "{\"prompt\":\"x\",\"n_predict\":%d}", rig_fewer(500));
    http_send(fd, "POST", "/completion", "", body);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 1), 1);
    kill(rig_gate.pid, SIGTERM);
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 200);
    ck_assert(a.is_whole);
    http_answer_fini(&a);
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    close(fd);
    close(idle);
}
END_TEST

/* A connection that is kept: asks until the answer says that the gateway is ending. */
static void wait_draining(int fd)
{
    for (bool ends = false; !ends;) {
        http_send(fd, "GET", "/health", "", NULL);
        struct http_answer a = http_receive(fd);
        ck_assert_int_eq(a.status, 200);
        ends = strstr(a.headers, "Connection: close") != NULL;
        http_answer_fini(&a);
    }
}

START_TEST(sigterm_twice_ends_at_once)
{
    rig_start_patient();
    int kept = gateway_connect(&rig_gate), fd = rig_send_forever(",\"stream\":true");
    struct http_answer a = http_ask(&rig_gate, "/health", NULL); /* both are accepted */
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 1), 1);
    kill(rig_gate.pid, SIGTERM);
    wait_draining(kept); /* two at once would be one */
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    a = http_receive(fd);
    ck_assert(!a.is_whole); /* and it can tell */
    http_answer_fini(&a);
    close(fd);
    close(kept);
}
END_TEST

START_TEST(a_stale_socket_is_replaced)
{
    kill(rig_gate.pid, SIGKILL);
    harness_wait(rig_gate.pid);
    ck_assert_int_eq(access(rig_gate.socket, F_OK), 0);
    gateway_start(&rig_gate, &rig_daemon, false, NULL);
    ck_assert_int_eq(rig_wait_health(200), 200);
}
END_TEST

static pid_t activate(int listen_fd, int n)
{
    return harness_activate(
        (const char *const[]){harness_program("hearth-http"), "--socket", rig_daemon.socket, NULL},
        listen_fd, n);
}

START_TEST(a_socket_of_the_service_manager_is_used_and_left)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "%.100s", rig_gate.socket);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    rig_gate.pid = activate(fd, 1);
    ck_assert_int_eq(rig_wait_health(200), 200);
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    ck_assert_int_eq(access(rig_gate.socket, F_OK), 0);
    ck_assert_int_eq(harness_wait(activate(fd, 17)), 64); /* not the first ones alone */
    close(fd);
    unlink(rig_gate.socket);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_ends");
    TCase *tcase = tcase_create("http_ends");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, rig_setup, rig_teardown);
    tcase_add_test(tcase, without_a_daemon_requests_get_503_until_it_returns);
    tcase_add_test(tcase, a_stopped_daemon_delays_only_metrics);
    tcase_add_test(tcase, it_starts_before_the_daemon);
    tcase_add_test(tcase, a_running_answer_resumes_at_the_next_daemon);
    tcase_add_test(tcase, choices_of_one_answer_end_together);
    tcase_add_test(tcase, sigterm_lets_running_answers_end);
    tcase_add_test(tcase, sigterm_twice_ends_at_once);
    tcase_add_test(tcase, a_stale_socket_is_replaced);
    tcase_add_test(tcase, a_socket_of_the_service_manager_is_used_and_left);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
