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
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- clients that hang up -------------------------------------------------------------------- */

START_TEST(a_dropped_connection_cancels_its_request)
{
    int fd = rig_send_forever(_i ? ",\"stream\":true" : "");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    if (_i) { /* in the middle of the stream */
        char some[4096];
        ck_assert_int_gt(recv(fd, some, sizeof(some), 0), 0);
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
    bool overtook = !rig_has_answer(huge);
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
    for (uint32_t i = 0; i < 5 && !overtook; i++) /* again if this process was the one delayed */
        overtook = others_overtake_prompt(2 + i);
    ck_assert_msg(overtook, "the others waited for the long one");
}
END_TEST

/* A request whose reading takes a while, about a second of a core. The caller frees. */
static char *long_text_body(void)
{
    static const char words[] = "for x in range(10): print(x) ";
    const size_t bytes = (size_t)rig_fewer(6 << 20);
    char *body = malloc(bytes + 100);
    size_t at = (size_t)sprintf(body, "{\"content\":\"");
    while (at < bytes) {
        memcpy(body + at, words, sizeof(words) - 1);
        at += sizeof(words) - 1;
    }
    strcpy(body + at, "\"}");
    return body;
}

/* Do others get their answers while a long text is read? */
static bool others_overtake_text(const char *body)
{
    int huge = gateway_connect(&rig_gate), gone = gateway_connect(&rig_gate);
    http_send(huge, "POST", "/tokenize", "", body);
    http_send(gone, "POST", "/tokenize", "", body); /* waits after it, and hangs up */
    for (int i = 0; i < rig_fewer(10); i++)         /* of a text that is as much shorter */
        json_decref(
            http_json(&rig_gate, "/completion", "{\"prompt\":\"x =\",\"n_predict\":4}", 200));
    bool overtook = !rig_has_answer(huge);
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
    for (int i = 0; i < 10 && !overtook; i++) /* again if this process was the one delayed */
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

/* All memory for bodies is held by one that does not come to its end. */
START_TEST(bodies_that_do_not_end_keep_no_small_one_out)
{
    enum { ALL = 256 << 20, PART = 1 << 20, LARGE = 2 << 20 };
    static char part[PART + 1], head[128], large[LARGE];
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false, (const char *const[]){"--max-body", "256M", NULL});
    memset(part, ' ', PART);
    int fd = gateway_connect(&rig_gate);
    snprintf(head, sizeof(head),
             "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", ALL);
    ck_assert_int_eq(send(fd, head, strlen(head), MSG_NOSIGNAL), (ssize_t)strlen(head));
    for (int left = ALL - 1; left;) {
        ssize_t n = send(fd, part, (size_t)(left < PART ? left : PART), MSG_NOSIGNAL);
        ck_assert_int_gt(n, 0);
        left -= (int)n;
    }
    snprintf(large, sizeof(large), "{\"prompt\":\"x\",\"n_predict\":1%*s}", LARGE - 64, "");
    struct http_answer a = http_ask(&rig_gate, "/completion", large);
    ck_assert_int_eq(a.status, 503);
    http_answer_fini(&a);
    a = http_ask(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":1}");
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    close(fd);
}
END_TEST

/* A request with so many empty objects that nothing reads, and a connection that sent it. */
static int send_values(int n, const char *more)
{
    char *body = malloc((size_t)n * 3 + 400);
    int fd = gateway_connect(&rig_gate);
    size_t bytes = (size_t)sprintf(body, "{\"prompt\":\"x\"%s,\"values\":[{}", more);
    while (--n)
        bytes += (size_t)sprintf(body + bytes, ",{}");
    sprintf(body + bytes, "]}");
    http_send(fd, "POST", "/completion", "", body);
    free(body);
    return fd;
}

static int status_of_values(int n)
{
    int fd = send_values(n, ",\"n_predict\":1");
    struct http_answer a = http_receive(fd);
    const int status = a.status;
    http_answer_fini(&a);
    close(fd);
    return status;
}

/* Its values are a hundred times as large as its text, and stay until it ends. */
START_TEST(what_requests_hold_has_a_limit_together)
{
    enum { MANY = 800000, SOME = 100000, FEW = 10000 }; /* of 304 bytes, as the gateway reckons */
    int fd = send_values(MANY, ",\"stream\":true,\"ignore_eos\":true,\"n_predict\":1000000");
    gateway_wait_metric(&rig_gate, "hearth_http_running", 1);
    ck_assert_int_eq(status_of_values(SOME), 503);
    ck_assert_int_eq(status_of_values(FEW), 200);
    close(fd);
    gateway_wait_metric(&rig_gate, "hearth_http_connections", 1);
    ck_assert_int_eq(status_of_values(SOME), 200);
    ck_assert_int_eq(status_of_values(MANY), 200);
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

/* Half of a request each, or none: without a whole one they do not keep others out. */
START_TEST(half_open_connections_give_way)
{
    enum { N = 12 };
    int fds[N];
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--connections", "4", "--timeout", "86400", NULL});
    int running = rig_send_forever(",\"stream\":true"); /* is not half-open, and stays */
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 1), 1);
    for (int i = 0; i < N; i++) {
        fds[i] = gateway_connect(&rig_gate);
        if (i % 2)
            http_send(fds[i], "POST", "/completion", "Content-Length: 100\r\n", "{");
    }
    json_decref(http_json(&rig_gate, "/health", NULL, 200));
    ck_assert_int_eq(harness_counter(&rig_daemon, "slots_active"), 1);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    close(running);
}
END_TEST

#ifndef SYS_epoll_wait
#define SYS_epoll_wait SYS_epoll_pwait
#endif

/* Lets the gateway go on to the successful end of its next call `nr`, and returns its first argument. */
static int go_to_end(long nr)
{
    struct __ptrace_syscall_info info;
    pid_t pid = rig_gate.pid;
    bool is_it = false;
    int status, fd = -1;
    for (;;) {
        ck_assert_int_eq(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSTOPPED(status));
        ck_assert_int_gt(ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info), 0);
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
            is_it = (long)info.entry.nr == nr;
            fd = (int)info.entry.args[0];
        } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && is_it && !info.exit.is_error) {
            return fd;
        }
    }
}

static bool hold(void)
{
    int status;
    return ptrace(PTRACE_SEIZE, rig_gate.pid, NULL, (void *)PTRACE_O_TRACESYSGOOD) == 0 &&
           ptrace(PTRACE_INTERRUPT, rig_gate.pid, NULL, NULL) == 0 &&
           waitpid(rig_gate.pid, &status, 0) == rig_gate.pid;
}

/* Lets the gateway accept a connection and find nothing to read, and holds it where it has looked
 * for a second time: libmicrohttpd looks first, and then its loop and it in turn. */
static void go_past_reading(void)
{
    (void)go_to_end(SYS_accept4);
    int first = go_to_end(SYS_epoll_wait);
    while (go_to_end(SYS_epoll_wait) != first)
        ;
}

/* A request that comes while the gateway is held, and for longer than its connection may stay without
 * one. Returns its status; -1: the connection had ended before. */
static int ask_late(int fd)
{
    char byte;
    bool ended = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    if (!ended)
        http_send(fd, "GET", "/health", "", NULL);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL); /* GIVES_WAY_MS */
    ck_assert_int_eq(ptrace(PTRACE_DETACH, rig_gate.pid, NULL, NULL), 0);
    if (ended)
        return -1;
    struct http_answer a = http_receive(fd);
    int status = a.status;
    http_answer_fini(&a);
    return status;
}

/* The gateway was late, not the client. */
START_TEST(a_request_that_has_come_is_read_before_its_connection_gives_way)
{
    int status = -1;
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--connections", "1", "--timeout", "86400", NULL});
    while (status < 0) {
        if (!hold()) {
            printf("skip: this system refuses ptrace\n");
            return;
        }
        int fd = gateway_connect(&rig_gate), waits = gateway_connect(&rig_gate);
        go_past_reading();
        status = ask_late(fd);
        close(fd);
        close(waits);
    }
    ck_assert_int_eq(status, 200);
}
END_TEST

static long resident_kb(pid_t pid)
{
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

/* The daemon pauses the slot of a client that does not read. No other slot is delayed, no token
 * lost. */
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

START_TEST(a_template_of_invalid_utf8_is_served)
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

/* A model's template may take a second for what it says to a short chat; others are answered
 * meanwhile. */
START_TEST(a_slow_template_holds_nobody_up)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    static const struct {
        const char *method, *path, *body;
    } slow[] = {{"GET", "/props", NULL},
                {"POST", "/api/show", "{\"model\":\"m\"}"},
                {"POST", "/apply-template", chat},
                {"POST", "/v1/chat/completions", chat}};
    enum { SLOW = sizeof(slow) / sizeof(slow[0]) };
    int fds[SLOW];
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false,
                  (const char *const[]){"--chat-template",
                                        "{% for a in range(9999) %}{% for b in range(9999) %}"
                                        "{% if tools %}{% endif %}{% endfor %}{% endfor %}",
                                        NULL});
    for (size_t i = 0; i < SLOW; i++) {
        fds[i] = gateway_connect(&rig_gate);
        http_send(fds[i], slow[i].method, slow[i].path, "", slow[i].body);
        json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":1}", 200));
        ck_assert_msg(!rig_has_answer(fds[i]), "%s", slow[i].path);
    }
    for (size_t i = 0; i < SLOW; i++) {
        struct http_answer a = http_receive(fds[i]);
        ck_assert_int_eq(a.status, i < 2 ? 200 : 400);
        http_answer_fini(&a);
        close(fds[i]);
    }
}
END_TEST

START_TEST(a_shortage_of_descriptors_passes)
{
    struct rlimit before, none = {.rlim_cur = 3};
    json_decref(http_json(&rig_gate, "/completion", "{\"prompt\":\"x\",\"n_predict\":2}", 200));
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, NULL, &before), 0);
    none.rlim_max = before.rlim_max;
    ck_assert_int_eq(prlimit(rig_gate.pid, RLIMIT_NOFILE, &none, NULL), 0);
    int fd = gateway_connect(&rig_gate);
    http_send(fd, "GET", "/health", "", NULL);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 300), 0); /* it has to wait, though no other client is connected */
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
    snprintf(file, sizeof(file), "%s/keys", rig_daemon.directory);
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
    TCase *tcase = tcase_create("http_rough"), *late = tcase_create("late");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, rig_setup, rig_teardown);
    tcase_add_loop_test(tcase, a_dropped_connection_cancels_its_request, 0, 2);
    tcase_add_test(tcase, a_half_closed_connection_is_a_dropped_one);
    tcase_add_test(tcase, a_connection_dropped_in_a_prefill_cancels_it);
    tcase_add_test(tcase, a_huge_prefill_does_not_hold_up_others);
    tcase_add_test(tcase, a_huge_text_does_not_hold_up_others);
    tcase_add_test(tcase, bodies_that_do_not_end_keep_no_small_one_out);
    tcase_add_test(tcase, what_requests_hold_has_a_limit_together);
    tcase_add_test(tcase, more_connections_than_allowed_wait);
    tcase_add_test(tcase, half_open_connections_give_way);
    tcase_add_test(tcase, a_template_of_invalid_utf8_is_served);
    tcase_add_test(tcase, a_slow_template_holds_nobody_up);
    tcase_add_test(tcase, a_shortage_of_descriptors_passes);
    tcase_add_test(tcase, a_slow_reader_is_paused_alone);
    tcase_add_test(tcase, a_key_is_asked_for);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(late, 600);
    tcase_add_checked_fixture(late, rig_setup, rig_teardown);
    tcase_add_test(late, a_request_that_has_come_is_read_before_its_connection_gives_way);
    suite_add_tcase(suite, late);
    return run_suite(suite);
}
