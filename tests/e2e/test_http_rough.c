/* hearth-http where things go wrong: clients that hang up, do not read, or come all at once; keys. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- clients that hang up -------------------------------------------------------------------- */

START_TEST(a_dropped_connection_cancels_its_request)
{
    int fd = rig_send_forever(_i ? ",\"stream\":true" : "");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    if (_i) { /* in the middle of the stream */
        char some[4096];
        ck_assert_int_gt(recv(fd, some, sizeof some, 0), 0);
    }
    close(fd);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_cancelled", 1), 1);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 0), 0);
    ck_assert_int_lt(harness_counter(&rig_daemon, "output_tokens"), 16000);
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":3}", 200));
}
END_TEST

START_TEST(a_half_closed_connection_is_a_dropped_one)
{
    int fd = rig_send_forever("");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    shutdown(fd, SHUT_WR);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_cancelled", 1), 1);
    close(fd);
}
END_TEST

/* A prompt whose prefill takes a while. The caller frees. */
static char *huge_body(uint32_t seed)
{
    uint32_t n = (uint32_t)rig_fewer(16000);
    char *body = malloc(8ul * n + 100);
    int at = sprintf(body, "{\"n_predict\":1,\"prompt\":[%u", 300 + seed);
    for (uint32_t i = 1; i < n; i++)
        at += sprintf(body + at, ",%u", 300 + (i * 7919 + seed) % 3000);
    strcpy(body + at, "]}");
    return body;
}

START_TEST(a_connection_dropped_in_a_prefill_cancels_it)
{
    char *body = huge_body(1);
    int fd = gateway_connect(&rig_gate);
    http_send(fd, "POST", "/completion", "", body);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    close(fd);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_cancelled", 1), 1);
    ck_assert_int_eq(harness_counter(&rig_daemon, "output_tokens"), 0);
    free(body);
}
END_TEST

/* ---- many at once ---------------------------------------------------------------------------- */

static bool has_answer(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Do others get their answers while a long prompt is computed? */
static bool others_overtake_prompt(uint32_t seed)
{
    enum { OTHERS = 15 };
    char *body = huge_body(seed);
    int huge = gateway_connect(&rig_gate), fds[OTHERS];
    http_send(huge, "POST", "/completion", "", body);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    for (int i = 0; i < OTHERS; i++) {
        fds[i] = gateway_connect(&rig_gate);
        http_send(fds[i], "POST", "/completion", "", "{\"prompt\":\"x =\",\"n_predict\":4}");
    }
    for (int i = 0; i < OTHERS; i++) {
        struct http_answer a = http_receive(fds[i]);
        ck_assert_int_eq(a.status, 200);
        http_answer_fini(&a);
        close(fds[i]);
    }
    bool overtook = !has_answer(huge);
    struct http_answer a = http_receive(huge);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    close(huge);
    free(body);
    return overtook;
}

START_TEST(a_huge_prefill_does_not_hold_up_others)
{
    bool overtook = false;
    for (uint32_t i = 0; i < 5 && !overtook; i++) /* again where it was us who did not get on */
        overtook = others_overtake_prompt(2 + i);
    ck_assert_msg(overtook, "the others waited for the long one");
}
END_TEST

/* A request whose reading takes a while: a text of some megabytes. The caller frees. */
static char *long_text_body(void)
{
    enum { BYTES = 6 << 20 };
    static const char words[] = "for x in range(10): print(x) ";
    char *body = malloc(BYTES + 100);
    size_t at = (size_t)sprintf(body, "{\"content\":\"");
    while (at < BYTES) {
        memcpy(body + at, words, sizeof words - 1);
        at += sizeof words - 1;
    }
    strcpy(body + at, "\"}");
    return body;
}

/* Do others get their answers while a long text is read? */
static bool others_overtake_text(const char *body)
{
    int huge = gateway_connect(&rig_gate), gone = gateway_connect(&rig_gate);
    http_send(huge, "POST", "/tokenize", "", body);
    http_send(gone, "POST", "/tokenize", "", body); /* waits behind it, and hangs up */
    for (int i = 0; i < 10; i++)
        json_decref(
            http_json(&rig_gate, "/completion", "{\"prompt\":\"x =\",\"n_predict\":4}", 200));
    bool overtook = !has_answer(huge);
    close(gone);
    struct http_answer a = http_receive(huge);
    ck_assert_int_eq(a.status, 200);
    ck_assert(a.is_whole);
    http_answer_fini(&a);
    close(huge);
    return overtook;
}

START_TEST(a_huge_text_does_not_hold_up_others)
{
    char *body = long_text_body();
    bool overtook = false;
    rig_start_patient();
    for (int i = 0; i < 10 && !overtook; i++) /* again where it was us who did not get on */
        overtook = others_overtake_text(body);
    ck_assert_msg(overtook, "the others waited for the long one");
    int huge = gateway_connect(&rig_gate); /* and one that the gateway's end finds in the middle */
    http_send(huge, "POST", "/tokenize", "", body);
    kill(rig_gate.pid, SIGTERM);
    struct http_answer a = http_receive(huge);
    ck_assert(a.status == 200 && a.is_whole);
    http_answer_fini(&a);
    close(huge);
    free(body);
}
END_TEST

START_TEST(who_waits_has_a_bounded_queue)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--slots", "1", "--queue", "2", NULL});
    int running = rig_send_forever(",\"stream\":true"),
        waiting[2]; /* nobody reads it: it has no end */
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
    close(waiting[0]); /* who leaves the queue is forgotten */
    gateway_wait_metric(&rig_gate, "hearth_http_queued", 1);
    close(running);
    a = http_receive(waiting[1]);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    close(waiting[1]);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "requests_started", 2), 2);
}
END_TEST

/* Somebody else holds the daemon's other slots: ours serve all, and where there is none it is said. */
START_TEST(slots_that_others_hold_are_not_waited_for_without_end)
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
        queued = strtoll(line + sizeof "\nhearth_http_queued " - 1, NULL, 10);
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

/* Who has a slot, but no descriptor for another one, lets requests wait for that slot. */
START_TEST(a_want_of_descriptors_makes_requests_wait_for_a_slot)
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

START_TEST(more_connections_than_allowed_wait)
{
    enum { N = 12 };
    int fds[N];
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false, (const char *const[]){"--connections", "4", NULL});
    for (int i = 0; i < N; i++) {
        fds[i] = gateway_connect(&rig_gate);
        http_send(fds[i], "GET", "/health", "", NULL);
    }
    for (int i = 0; i < N; i++) {
        struct http_answer a = http_receive(fds[i]);
        ck_assert_int_eq(a.status, 200);
        http_answer_fini(&a);
        close(fds[i]);
    }
}
END_TEST

static long resident_kb(pid_t pid)
{
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

/* The daemon pauses the slot of who does not read; nobody else notices; nothing is lost. */
START_TEST(a_slow_reader_is_paused_alone)
{
    json_t *want = http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":1}", 200);
    long before = resident_kb(rig_gate.pid);
    int fd = rig_send_forever(",\"stream\":true,\"n_probs\":20,\"n_predict\":4000");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_paused", 1), 1);
    for (int i = 0; i < 20; i++)
        json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"y\",\"n_predict\":2}", 200));
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_paused", 1), 1);
    const char *san = getenv("BUILD");
    if (!san || !strstr(san, "san")) /* sanitizers keep what was freed */
        ck_assert_int_lt(resident_kb(rig_gate.pid) - before, 8192);
    struct http_answer a = http_receive(fd);
    ck_assert(a.is_whole);
    json_t *events = http_events(&a);
    json_int_t tokens = 0;
    for (size_t i = 0; i < json_array_size(events); i++)
        tokens += (json_int_t)json_array_size(json_at(json_array_get(events, i), "tokens"));
    ck_assert_int_eq(tokens, 4000);
    http_answer_fini(&a);
    json_decref(events);
    json_decref(want);
    close(fd);
}
END_TEST

START_TEST(a_template_that_is_no_utf8_is_told)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--chat-template", "\xff{{ messages[0].content }}", NULL});
    json_t *o = http_json(&rig_gate, "/apply-template",
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 200);
    ck_assert_str_eq(json_text(o, "prompt"), "\xef\xbf\xbdx");
    json_decref(o);
}
END_TEST

START_TEST(a_want_of_descriptors_passes)
{
    struct rlimit before, none = {.rlim_cur = 3};
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}", 200));
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, NULL, &before), 0);
    none.rlim_max = before.rlim_max;
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, &none, NULL), 0);
    int fd = gateway_connect(&rig_gate);
    http_send(fd, "GET", "/health", "", NULL);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 300), 0); /* it has to wait: nobody else is connected */
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, &before, NULL), 0);
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    close(fd);
}
END_TEST

/* ---- keys ------------------------------------------------------------------------------------ */

static int status_of(const char *method, const char *headers, const char *path)
{
    int fd = gateway_connect(&rig_gate);
    http_send(fd, method, path, headers, NULL);
    struct http_answer a = http_receive(fd);
    int status = a.status;
    if (status == 401)
        ck_assert_ptr_nonnull(strstr(a.body, "authentication_error"));
    http_answer_fini(&a);
    close(fd);
    return status;
}

static int status_with(const char *headers, const char *path)
{
    return status_of("GET", headers, path);
}

START_TEST(a_key_is_asked_for)
{
    static const char page[] = "Origin: http://localhost:3000\r\n";
    char file[200];
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    snprintf(file, sizeof file, "%s/keys", rig_daemon.directory);
    FILE *f = fopen(file, "w");
    fputs("# ours\nfrom-file\n", f);
    fclose(f);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--api-key", "secret", "--api-key-file", file,
                                        "--cors-origin", "http://localhost:3000", NULL});
    ck_assert_int_eq(status_with("", "/health"), 200);
    ck_assert_int_eq(status_with("", "/slots"), 401);
    ck_assert_int_eq(status_with("", "/nothing"), 401);
    ck_assert_int_eq(status_with("Authorization: Bearer secret\r\n", "/slots"), 200);
    ck_assert_int_eq(status_with("Authorization: Bearer from-file\r\n", "/slots"), 200);
    ck_assert_int_eq(status_with("X-Api-Key: secret\r\n", "/slots"), 200);
    ck_assert_int_eq(status_with("Authorization: Bearer secre\r\n", "/slots"), 401);
    ck_assert_int_eq(status_with("Authorization: Bearer secrett\r\n", "/slots"), 401);
    ck_assert_int_eq(status_with("Authorization: Bearer secretsecret\r\n", "/slots"), 401);
    ck_assert_int_eq(status_with("Authorization: Bearer \r\n", "/slots"), 401);
    ck_assert_int_eq(status_with("Authorization: Basic secret\r\n", "/slots"), 401);
    /* A browser's preflight has no key, what follows it must have one. */
    ck_assert_int_eq(status_of("OPTIONS", page, "/v1/completions"), 204);
    ck_assert_int_eq(status_of("GET", page, "/slots"), 401);
    ck_assert_int_eq(status_of("OPTIONS", "", "/slots"), 401);
    unlink(file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_rough");
    TCase *tcase = tcase_create("http_rough");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, rig_setup, rig_teardown);
    tcase_add_loop_test(tcase, a_dropped_connection_cancels_its_request, 0, 2);
    tcase_add_test(tcase, a_half_closed_connection_is_a_dropped_one);
    tcase_add_test(tcase, a_connection_dropped_in_a_prefill_cancels_it);
    tcase_add_test(tcase, a_huge_prefill_does_not_hold_up_others);
    tcase_add_test(tcase, a_huge_text_does_not_hold_up_others);
    tcase_add_test(tcase, who_waits_has_a_bounded_queue);
    tcase_add_test(tcase, slots_that_others_hold_are_not_waited_for_without_end);
    tcase_add_test(tcase, a_want_of_descriptors_makes_requests_wait_for_a_slot);
    tcase_add_test(tcase, more_connections_than_allowed_wait);
    tcase_add_test(tcase, a_template_that_is_no_utf8_is_told);
    tcase_add_test(tcase, a_want_of_descriptors_passes);
    tcase_add_test(tcase, a_slow_reader_is_paused_alone);
    tcase_add_test(tcase, a_key_is_asked_for);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
