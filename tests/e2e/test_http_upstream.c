/* hearth-http passes requests on to upstreams, whatever these do. */
#include "tests/e2e/gateway.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY "sk-upstream-0123456789"
#define CALLER "caller-key-9876543210"

static struct harness place; /* the folder of the gateway, without a daemon */
static struct gateway gate;

/* ---- the upstream ---------------------------------------------------------------------------- */

static int listener;
static const char *answer;          /* what it sends; NULL: it goes on reading */
static bool stays;                  /* it sends nothing more, and does not close */
static bool keeps;                  /* it takes further requests */
static atomic_int n_empty;          /* requests without a body */
static char request[65536];         /* the last one */
static int hang_ups[2];             /* a byte for each connection whose client left first */
static char entry[64], refused[64]; /* --upstream: the server, and a port without one */

/* Connections have threads of their own: each reads into its own memory. */
static bool read_request(int fd)
{
    char text[sizeof(request)];
    size_t n = 0, whole = 0;
    char *end;
    while (!whole || n < whole) {
        ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
        text[n] = 0;
        if (!whole && (end = strstr(text, "\r\n\r\n"))) {
            const char *length = strcasestr(text, "content-length:");
            whole = (size_t)(end - text) + 4 + (length ? strtoul(length + 15, NULL, 10) : 0);
            n_empty += whole == (size_t)(end - text) + 4;
        }
    }
    memcpy(request, text, n + 1);
    return true;
}

static void *serve_one(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    free(arg);
    while (read_request(fd)) {
        if (answer)
            (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        if (!keeps)
            break;
    }
    if (stays || !answer) {
        (void)!recv(fd, &byte, 1, 0);
        (void)!write(hang_ups[1], "x", 1);
    }
    close(fd);
    return NULL;
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_t thread;
        int *fd = malloc(sizeof(*fd));
        *fd = accept(listener, NULL, NULL);
        if (*fd < 0 || pthread_create(&thread, NULL, serve_one, fd) != 0)
            return NULL;
        pthread_detach(thread);
    }
}

static int bind_port(char *ret_url, size_t bytes, const char *name)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t at_bytes = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &at_bytes), 0);
    snprintf(ret_url, bytes, "%s=http://127.0.0.1:%d/v1/", name, ntohs(at.sin_port));
    return fd;
}

/* ---- the fixture ----------------------------------------------------------------------------- */

static const char *key_file(mode_t mode)
{
    static char text[160];
    char path[128];
    snprintf(path, sizeof(path), "%s/key", place.directory);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs(KEY "\n", f);
    fclose(f);
    ck_assert_int_eq(chmod(path, mode), 0);
    snprintf(text, sizeof(text), "large/model=%s", path);
    return text;
}

static void setup(void)
{
    pthread_t thread;
    gateway_make_home(&place);
    listener = bind_port(entry, sizeof(entry), "large/model");
    (void)bind_port(refused, sizeof(refused), "gone"); /* bound, but it does not listen */
    ck_assert_int_eq(listen(listener, 16), 0);
    ck_assert_int_eq(pipe(hang_ups), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, NULL), 0);
    gateway_start(&gate, &place, false,
                  (const char *const[]){"--upstream", entry, "--upstream", refused,
                                        "--upstream-key", key_file(0600), "--upstream-wait", "1",
                                        "--upstream-idle", "1", NULL});
}

/* The keys are in no line of the log. */
static void teardown(void)
{
    char text[65536];
    ck_assert_int_eq(gateway_stop(&gate), 0);
    FILE *f = fopen(place.log, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = 0;
    ck_assert(f && !strstr(text, KEY) && !strstr(text, CALLER));
    fclose(f);
    folder_remove(place.directory);
}

#define HEAD(status, type)                                                                         \
    "HTTP/1.1 " status "\r\nContent-Type: " type "\r\nConnection: close\r\n\r\n"
#define EVENTS HEAD("200 OK", "text/event-stream") "data: {\"n\":1}\n\n"

static const char body[] = "{\"model\":\"large/model\",\"messages\":[],\"unknown\":[1]}";

static struct http_answer ask(const char *model_body)
{
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/v1/chat/completions", "Authorization: Bearer " CALLER "\r\n",
              model_body);
    struct http_answer a = http_receive(fd);
    close(fd);
    ck_assert(!strstr(a.body, KEY) && !strstr(a.headers, KEY));
    return a;
}

/* A failure with this status, and a message that has this. */
static void fails(int status, const char *what)
{
    struct http_answer a = ask(body);
    ck_assert_msg(a.status == status && strstr(a.body, what), "%d: %s", a.status, a.body);
    json_t *o = json_loadb(a.body, a.bytes, 0, NULL);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error/message"), "the upstream of 'large/model' "));
    json_decref(o);
    http_answer_fini(&a);
}

/* ---- tests ----------------------------------------------------------------------------------- */

START_TEST(a_request_goes_there_as_it_came_and_the_answer_comes_back)
{
    answer = HEAD("200 OK", "application/json; charset=utf-8") "{\"n\": 1}";
    struct http_answer a = ask(body);
    ck_assert_int_eq(a.status, 200);
    ck_assert_str_eq(a.body, "{\"n\": 1}");
    ck_assert_ptr_nonnull(strstr(a.headers, "application/json; charset=utf-8"));
    ck_assert_int_eq(strncmp(request, "POST /v1/chat/completions HTTP", 30), 0);
    ck_assert_ptr_nonnull(strstr(request, "\r\nAuthorization: Bearer " KEY "\r\n"));
    ck_assert_ptr_nonnull(strstr(request, body));
    ck_assert_ptr_null(strstr(request, CALLER));
    http_answer_fini(&a);
}
END_TEST

START_TEST(a_stream_comes_as_it_is)
{
    answer = EVENTS ": a comment\n\ndata: [DONE]\n\n";
    struct http_answer a = ask(body);
    ck_assert_int_eq(a.status, 200);
    ck_assert_ptr_nonnull(strstr(a.headers, "text/event-stream"));
    ck_assert_str_eq(a.body, "data: {\"n\":1}\n\n: a comment\n\ndata: [DONE]\n\n");
    http_answer_fini(&a);
}
END_TEST

START_TEST(its_errors_are_passed_on)
{
    answer = HEAD("429 Too Many", "application/json") "{\"error\":{\"message\":\"slow down\"}}";
    struct http_answer a = ask(body);
    ck_assert_int_eq(a.status, 429);
    ck_assert_ptr_nonnull(strstr(a.body, "slow down"));
    http_answer_fini(&a);
}
END_TEST

START_TEST(what_goes_wrong_there_is_one_line)
{
    answer = HEAD("401 No", "application/json") "{\"error\":\"bad key " KEY "\"}";
    fails(502, "refuses its key: check --upstream-key");
    answer = HEAD("200 OK", "text/html") "<html>";
    fails(502, "answered 200 without JSON");
    answer = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    fails(502, "redirect, which is not followed");
    answer = "\x01\x02 nonsense\r\n\r\n";
    fails(502, "does not answer in HTTP");
    answer = "";
    fails(502, "broke off its answer");
    answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"a\"";
    fails(502, "broke off its answer");
    answer = NULL;
    fails(504, "sent no answer within 1 s");
    struct http_answer a = ask("{\"model\":\"gone\"}");
    ck_assert_int_eq(a.status, 502);
    ck_assert_ptr_nonnull(strstr(a.body, "refuses connections: start it"));
    http_answer_fini(&a);
}
END_TEST

/* The last event is the error, and the stream is whole. */
static void stream_fails(const char *what)
{
    struct http_answer a = ask(body);
    ck_assert_int_eq(a.status, 200);
    ck_assert(a.is_whole);
    const char *first = "data: {\"n\":1}\n\n";
    ck_assert_int_eq(strncmp(a.body, first, strlen(first)), 0);
    const char *last = strstr(a.body, "\n\ndata: {\"error\"");
    ck_assert_msg(last && strstr(last, what), "%s", a.body);
    http_answer_fini(&a);
}

START_TEST(a_stream_that_stalls_or_breaks_off_ends_with_an_error)
{
    stays = true;
    answer = EVENTS "data: {\"cut";
    stream_fails("sent nothing more for 1 s");
    stays = false;
    answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n"
             "data: {\"n\":1}\n\n";
    stream_fails("broke off its answer");
}
END_TEST

START_TEST(one_that_hangs_harms_none_and_is_left_when_the_client_leaves)
{
    char byte;
    gateway_stop(&gate);
    gateway_start(&gate, &place, false, (const char *const[]){"--upstream", entry, NULL});
    answer = EVENTS;
    stays = true;
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/v1/chat/completions", "", body);
    ck_assert_int_eq(recv(fd, &byte, 1, 0), 1);
    json_decref(http_json(&gate, "/health", NULL, 200));
    json_t *o = http_json(&gate, "/v1/models", NULL, 200);
    ck_assert_str_eq(json_text(o, "data/0/id"), "large/model");
    json_decref(o);
    o = http_json(&gate, "/v1/models/large/model", NULL, 200);
    ck_assert_str_eq(json_text(o, "id"), "large/model");
    json_decref(o);
    close(fd);
    ck_assert_int_eq(read(hang_ups[0], &byte, 1), 1);
}
END_TEST

START_TEST(an_answer_is_of_a_type_that_the_gateway_names)
{
    answer = HEAD("200 OK", "application/json, text/html") "<script>";
    fails(502, "answered 200 without JSON");
    answer = HEAD("200 OK", "application/jsonp") "f()";
    fails(502, "answered 200 without JSON");
    answer = HEAD("200 OK", "text/event-stream,text/html") "<script>";
    fails(502, "answered 200 without JSON");
    answer = HEAD("200 OK", "Text/Event-Stream; text/html") "data: 1\n\n";
    struct http_answer a = ask(body);
    ck_assert_int_eq(a.status, 200);
    ck_assert_ptr_nonnull(strstr(a.headers, "\r\nContent-Type: text/event-stream\r\n"));
    http_answer_fini(&a);
}
END_TEST

/* It reads the body again, and may take the first of two names, or one in capitals. */
START_TEST(an_upstream_is_asked_for_the_model_that_was_found)
{
    static const char *const bodies[] = {
        "{\"model\":\"dear/model\",\"messages\":[],\"model\":\"large/model\"}",
        "{\"model\":\"large/model\",\"messages\":[],\"Model\":\"dear/model\"}",
        "{\"MODEL\":\"large/model\",\"messages\":[],\"model\":\"large/model\"}",
        "{\"model\":\"large/model\\u0000dear\",\"messages\":[]}",
        "{\"name\":\"large/model\",\"messages\":[]}",
    };
    request[0] = 0;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct http_answer a = ask(bodies[i]);
        ck_assert_msg(a.status == 400, "%s: %d", bodies[i], a.status);
        http_answer_fini(&a);
    }
    ck_assert_str_eq(request, "");
}
END_TEST

START_TEST(a_name_that_neither_an_upstream_nor_a_daemon_has_is_said)
{
    struct http_answer a = ask("{\"model\":\"largest\",\"messages\":[]}");
    ck_assert_int_eq(a.status, 404);
    ck_assert_ptr_nonnull(strstr(a.body, "'largest' does not exist here: GET /v1/models lists"));
    http_answer_fini(&a);
    a = ask("{\"messages\":[]}");
    ck_assert_int_eq(a.status, 503);
    ck_assert_ptr_nonnull(strstr(a.body, "start one with hearthd --model FILE"));
    http_answer_fini(&a);
    a = http_ask(&gate, "/v1/models/largest", NULL);
    ck_assert_int_eq(a.status, 404);
    ck_assert_ptr_nonnull(strstr(a.body, "GET /v1/models lists"));
    http_answer_fini(&a);
}
END_TEST

/* A text, and after it as many bytes of the unit. */
static const char *repeat(const char *text, const char *unit, size_t bytes)
{
    const size_t step = strlen(unit);
    char *all = malloc(strlen(text) + bytes + step + 1);
    ck_assert_ptr_nonnull(all);
    char *end = stpcpy(all, text);
    for (size_t at = 0; at < bytes; at += step)
        end = stpcpy(end, unit);
    return all;
}

START_TEST(headers_and_trailers_without_end_are_not_kept)
{
    stays = true;
    answer = repeat("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", "X: y\r\n", 300000);
    fails(502, "sends headers without end");
    answer = repeat("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    "Transfer-Encoding: chunked\r\n\r\nf\r\ndata: {\"n\":1}\n\n\r\n0\r\n",
                    "X: y\r\n", 300000);
    stream_fails("sends headers without end");
}
END_TEST

START_TEST(answers_that_are_not_streams_have_a_limit_together)
{
    enum { N = 5, BYTES = 60 << 20 };
    char byte;
    int fds[N], ready = 0;
    gateway_stop(&gate);
    gateway_start(&gate, &place, false, (const char *const[]){"--upstream", entry, NULL});
    stays = true;
    answer = repeat(HEAD("200 OK", "application/json"), "0123456789abcdef", BYTES);
    for (int i = 0; i < N; i++) {
        fds[i] = gateway_connect(&gate);
        http_send(fds[i], "POST", "/v1/chat/completions", "", body);
    }
    while (!ready) /* one of them, whichever comes last */
        for (int i = 0; i < N && !ready; i++)
            ready = recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1 ? fds[i] : 0;
    struct http_answer a = http_receive(ready);
    ck_assert_int_eq(a.status, 503);
    ck_assert_ptr_nonnull(strstr(a.body, "other answers take all memory"));
    http_answer_fini(&a);
    for (int i = 0; i < N; i++)
        close(fds[i]);
}
END_TEST

/* Also those that have come, and that their clients do not take. */
START_TEST(answers_that_wait_for_their_clients_count)
{
    enum { N = 4, BYTES = 60 << 20 };
    char byte;
    int fds[N];
    answer = repeat(HEAD("200 OK", "application/json"), "0123456789abcdef", BYTES);
    for (int i = 0; i < N; i++) {
        fds[i] = gateway_connect(&gate);
        http_send(fds[i], "POST", "/v1/chat/completions", "", body);
        ck_assert_int_eq(recv(fds[i], &byte, 1, MSG_PEEK), 1);
    }
    fails(503, "other answers take all memory");
    for (int i = 0; i < N; i++)
        close(fds[i]);
    for (int status = 503; status != 200;) { /* the gateway may not have seen yet that they left */
        struct http_answer a = ask(body);
        status = a.status;
        http_answer_fini(&a);
    }
}
END_TEST

/* A name that no server answers for is looked up for half a minute. */
/* Of a request that is passed on the values are not kept: 6 MiB each, of 256 MiB that all may have. */
START_TEST(requests_that_are_passed_on_hold_no_values)
{
    enum { REQUESTS = 50, VALUES = 20000 };
    static char large[VALUES * 3 + 128];
    int fds[REQUESTS];
    size_t n = (size_t)sprintf(large, "{\"model\":\"large/model\",\"values\":[{}");
    for (int i = 1; i < VALUES; i++)
        n += (size_t)sprintf(large + n, ",{}");
    sprintf(large + n, "]}");
    answer = NULL;
    for (int i = 0; i < REQUESTS; i++) {
        fds[i] = gateway_connect(&gate);
        http_send(fds[i], "POST", "/v1/completions", "", large);
    }
    for (int i = 0; i < REQUESTS; i++) {
        struct http_answer a = http_receive(fds[i]);
        ck_assert_msg(a.status == 504, "%d: %d %s", i, a.status, a.body); /* it says nothing */
        http_answer_fini(&a);
        close(fds[i]);
    }
}
END_TEST

START_TEST(a_look_up_of_a_name_holds_none_up)
{
    enum { ALL = 100, MOST = 64, TRIES = 10 };
    int names[2], fds[ALL], status = 0;
    char path[512], number[16], byte;
    const char *build = getenv("BUILD");
    snprintf(path, sizeof(path), "%s/tests/e2e/names.so", build ? build : "build");
    ck_assert_msg(access(path, R_OK) == 0, "%s is missing: build it", path);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, names), 0);
    snprintf(number, sizeof(number), "%d", names[1]);
    gateway_stop(&gate);
    setenv("HEARTH_TEST_NAMES", number, 1);
    setenv("LD_PRELOAD", path, 1);
    gateway_start(&gate, &place, false,
                  (const char *const[]){"--upstream", "large/model=http://far.example", NULL});
    unsetenv("LD_PRELOAD");
    for (int k = 0; k < TRIES && status != 503; k++) { /* on a slow machine a time is over */
        for (int i = 0; i < ALL; i++) {
            fds[i] = gateway_connect(&gate);
            http_send(fds[i], "POST", "/v1/chat/completions", "", body);
        }
        for (int i = 0; i < MOST && k == 0; i++)
            ck_assert_int_eq(read(names[0], &byte, 1), 1); /* it has begun */
        for (int i = 0; i < ALL; i++)
            close(fds[i]);
        json_decref(http_json(&gate, "/health", NULL, 200));
        struct http_answer a = ask(body);
        status = a.status;
        http_answer_fini(&a);
    }
    ck_assert_int_eq(status, 503); /* look-ups that go on are counted */
    close(names[0]);
}
END_TEST

/* Its body is freed when its client leaves, so it must not be sent afterwards. */
START_TEST(one_whose_client_left_before_it_began_is_not_sent)
{
    keeps = true;
    answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    for (int i = 0; i < 300; i++) {
        struct http_answer a = ask(body); /* its connection can be used again */
        ck_assert_int_eq(a.status, 200);
        http_answer_fini(&a);
        int fd = gateway_connect(&gate);
        http_send(fd, "POST", "/v1/chat/completions", "", body);
        usleep((useconds_t)(i % 5 * 50)); /* so that some leave at the right moment */
        close(fd);
    }
    ck_assert_int_eq(n_empty, 0);
}
END_TEST

/* In HTTP/2 requests share a connection: one whose client left would be read on with the others. */
START_TEST(each_request_has_a_connection_of_its_own)
{
    static const char http2[] = "\x02h2", http1[] = "\x08http/1.1";
    char url[64], text[96], hello[4096];
    size_t n = 0, whole = 5;
    gateway_stop(&gate);
    int server = bind_port(url, sizeof(url), "large/model");
    ck_assert_int_eq(listen(server, 1), 0);
    snprintf(text, sizeof(text), "large/model=https%s", strchr(url, ':'));
    gateway_start(&gate, &place, false, (const char *const[]){"--upstream", text, NULL});
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/v1/chat/completions", "", body);
    int from = accept(server, NULL, NULL);
    while (n < whole) { /* the first record of TLS: its head, then as many bytes as that says */
        ssize_t got = recv(from, hello + n, whole - n, 0);
        ck_assert_int_gt(got, 0);
        n += (size_t)got;
        if (n == 5)
            whole += (size_t)(unsigned char)hello[3] << 8 | (unsigned char)hello[4];
        ck_assert_uint_le(whole, sizeof(hello));
    }
    ck_assert_ptr_nonnull(memmem(hello, n, http1, sizeof(http1) - 1));
    ck_assert_ptr_null(memmem(hello, n, http2, sizeof(http2) - 1));
    close(from);
    close(server);
    close(fd);
}
END_TEST

START_TEST(entries_and_keys_that_are_wrong_do_not_start)
{
    static const char *const wrong[] = {"x",
                                        "=http://a",
                                        "x=ftp://a",
                                        "x=file:///etc/passwd",
                                        "x=http://",
                                        "x=http://user:password@a",
                                        "x=http://a/?q",
                                        "x=http://a b"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_int_eq(gateway_run((const char *const[]){"--upstream", wrong[i], NULL}), 64);
    ck_assert_int_eq(
        gateway_run((const char *const[]){"--upstream", entry, "--upstream", entry, NULL}), 64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--upstream", entry, "--port", "1", NULL}),
                     64);
    ck_assert_int_eq(
        gateway_run((const char *const[]){"--upstream", entry, "--upstream-key", "y=/x", NULL}),
        64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--upstream", entry, "--upstream-key",
                                                       key_file(0640), NULL}),
                     64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--upstream", entry, "--upstream-key",
                                                       "large/model=/nowhere", NULL}),
                     66);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_upstream");
    TCase *c = tcase_create("http_upstream");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_request_goes_there_as_it_came_and_the_answer_comes_back);
    tcase_add_test(c, a_stream_comes_as_it_is);
    tcase_add_test(c, its_errors_are_passed_on);
    tcase_add_test(c, what_goes_wrong_there_is_one_line);
    tcase_add_test(c, a_stream_that_stalls_or_breaks_off_ends_with_an_error);
    tcase_add_test(c, one_that_hangs_harms_none_and_is_left_when_the_client_leaves);
    tcase_add_test(c, an_answer_is_of_a_type_that_the_gateway_names);
    tcase_add_test(c, an_upstream_is_asked_for_the_model_that_was_found);
    tcase_add_test(c, headers_and_trailers_without_end_are_not_kept);
    tcase_add_test(c, a_name_that_neither_an_upstream_nor_a_daemon_has_is_said);
    tcase_add_test(c, answers_that_are_not_streams_have_a_limit_together);
    tcase_add_test(c, answers_that_wait_for_their_clients_count);
    tcase_add_test(c, requests_that_are_passed_on_hold_no_values);
    tcase_add_test(c, one_whose_client_left_before_it_began_is_not_sent);
    tcase_add_test(c, each_request_has_a_connection_of_its_own);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)a_look_up_of_a_name_holds_none_up; /* they allow no preloading */
#else
    tcase_add_test(c, a_look_up_of_a_name_holds_none_up);
#endif
    tcase_add_test(c, entries_and_keys_that_are_wrong_do_not_start);
    suite_add_tcase(s, c);
    return run_suite(s);
}
