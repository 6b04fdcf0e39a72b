/* hearth-http's connections: kept, in pieces, from pages of others; and where it listens.
 */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(a_connection_is_kept)
{
    int fd = _i ? gateway_connect_port(&rig_gate) : gateway_connect(&rig_gate);
    for (int i = 0; i < 20; i++) {
        http_send(fd, "POST", "/completion", "", "{\"prompt\":\"x\",\"n_predict\":2}");
        struct http_answer a = http_receive(fd);
        ck_assert_int_eq(a.status, 200);
        ck_assert(a.is_whole);
        http_answer_fini(&a);
        http_send(fd, "POST", "/v1/completions", "",
                  i % 2 ? "{" : "{\"prompt\":\"x\",\"stream\":true}");
        a = http_receive(fd);
        ck_assert_int_eq(a.status, i % 2 ? 400 : 200);
        ck_assert(a.is_whole);
        http_answer_fini(&a);
    }
    close(fd);
}
END_TEST

START_TEST(a_body_may_come_in_pieces)
{
    static const char head[] = "POST /completion HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                               "chunked\r\n\r\n";
    static const char *const pieces[] = {"c\r\n{\"prompt\":\"x\r\n", "e\r\n\",\"n_predict\":\r\n",
                                         "2\r\n3}\r\n", "0\r\n\r\n"};
    int fd = gateway_connect(&rig_gate);
    for (size_t i = 0; i < strlen(head); i++) {
        ck_assert_int_eq(send(fd, head + i, 1, MSG_NOSIGNAL), 1);
        if (i % 16 == 0)
            usleep(100);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_gt(send(fd, pieces[i], strlen(pieces[i]), MSG_NOSIGNAL), 0);
        usleep(2000);
    }
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 200);
    json_t *o = json_loads(a.body, 0, NULL);
    ck_assert_int_eq(json_number(o, "tokens_predicted"), 3);
    json_decref(o);
    http_answer_fini(&a);
    close(fd);
}
END_TEST

/* Half a body and its sender's end can be one event of the socket. */
START_TEST(a_body_that_breaks_off_takes_its_connection_along)
{
    enum { SENT = 500000 };
    static const char head[] = "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                               "600000\r\n\r\n";
    char *body = calloc(1, SENT);
    ck_assert_ptr_nonnull(body);
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, true, (const char *const[]){"--timeout", "86400", NULL});
    for (int i = 0; i < 30; i++) {
        int fd = _i ? gateway_connect_port(&rig_gate) : gateway_connect(&rig_gate);
        ck_assert_int_eq(send(fd, head, strlen(head), MSG_NOSIGNAL), (ssize_t)strlen(head));
        for (ssize_t sent = 0, n; sent < SENT; sent += n) {
            n = send(fd, body + sent, (size_t)(SENT - sent), MSG_NOSIGNAL);
            ck_assert_int_gt(n, 0);
        }
        close(fd);
    }
    gateway_wait_metric(&rig_gate, "hearth_http_connections", 1); /* ours */
    free(body);
}
END_TEST

/* A client that asks for the end of the connection and gets it did not hang up on the answer. */
START_TEST(a_connection_that_ends_as_asked_is_not_dropped)
{
    for (int i = 0; i < 5; i++) {
        int fd = gateway_connect(&rig_gate);
        http_send(fd, "GET", "/health", "Connection: close\r\n", NULL);
        struct http_answer a = http_receive(fd);
        ck_assert(a.is_whole);
        http_answer_fini(&a);
        close(fd);
    }
    gateway_wait_metric(&rig_gate, "hearth_http_connections", 1);
    gateway_wait_metric(&rig_gate, "hearth_http_dropped_total", 0);
}
END_TEST

/* A proxy in front may go by the other header, and take what follows for the next request. */
START_TEST(a_request_whose_end_is_ambiguous_is_refused_and_ends_its_connection)
{
    static const char *const headers[] = {
        "Content-Length: 30\r\nContent-Length: 0\r\n",
        "Content-Length: 0\r\nContent-Length: 30\r\n",
        "Content-Length: 0\r\ncontent-length: 0\r\n",
        "Content-Length: 30\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 30\r\nHost: localhost\r\n",
        "Content-Length: 30\r\nTransfer-Encoding : chunked\r\n",
        "Content-Length: 30\r\nTransfer\x01-Encoding: chunked\r\n",
        "Content-Length: 30\r\nX: y\rTransfer-Encoding: chunked\r\n",
        " Transfer-Encoding: chunked\r\nContent-Length: 30\r\n", /* goes on with the Host */
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding:\r\n",
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        char text[512], rest[64];
        int fd = gateway_connect(&rig_gate);
        int n = snprintf(text, sizeof(text),
                         "POST /completion HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
                         "{\"prompt\":\"x\",\"n_predict\":1}GET /health HTTP/1.1\r\n"
                         "Host: localhost\r\n\r\n",
                         headers[i]);
        ck_assert_int_eq(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
        struct http_answer a = http_receive(fd);
        ck_assert_msg(a.status == 400, "%s: %d %s", headers[i], a.status, a.body);
        http_answer_fini(&a);
        ck_assert_msg(recv(fd, rest, sizeof(rest), 0) <= 0, "%s: another answer", headers[i]);
        close(fd);
    }
}
END_TEST

/* libmicrohttpd takes a bare line feed for the end of a chunk's line; a proxy in front may not, and
 * forward as the body of one client what would become the next client's request here. */
START_TEST(nothing_is_read_after_a_chunked_body)
{
    static const char *const ends[] = {"\r\n", "\n", ";x\n", ";\x01\r\n"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        char text[512], rest[64];
        int fd = gateway_connect(&rig_gate);
        int n = snprintf(text, sizeof(text),
                         "POST /completion HTTP/1.1\r\nHost: localhost\r\n"
                         "Transfer-Encoding: Chunked\r\n\r\n"
                         "1c%s{\"prompt\":\"x\",\"n_predict\":1}\r\n0\r\n\r\n"
                         "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                         ends[i]);
        ck_assert_int_eq(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
        struct http_answer a = http_receive(fd);
        ck_assert_msg(a.status == 200, "%zu: %d %s", i, a.status, a.body);
        http_answer_fini(&a);
        ck_assert_msg(recv(fd, rest, sizeof(rest), 0) <= 0, "%zu: another answer", i);
        close(fd);
    }
}
END_TEST

static int status_of(int fd, const char *method, const char *path, const char *headers)
{
    http_send(fd, method, path, headers, NULL);
    struct http_answer a = http_receive(fd);
    int status = a.status;
    http_answer_fini(&a);
    close(fd);
    return status;
}

START_TEST(web_pages_of_other_origins_are_refused)
{
    char host[64];
    snprintf(host, sizeof(host), "Host: 127.0.0.1:%d\r\n", rig_gate.port);
    ck_assert_int_eq(status_of(gateway_connect_port(&rig_gate), "GET", "/slots", host), 200);
    ck_assert_int_eq(status_of(gateway_connect_port(&rig_gate), "GET", "/slots", "Host: [::1]\r\n"),
                     200);
    ck_assert_int_eq(status_of(gateway_connect_port(&rig_gate), "GET", "/slots", "Host: a.org\r\n"),
                     403);
    ck_assert_int_eq(
        status_of(gateway_connect_port(&rig_gate), "GET", "/slots", "Host: localhost.a.org\r\n"),
        403);
    ck_assert_int_eq(
        status_of(gateway_connect_port(&rig_gate), "GET", "/slots", "Origin: http://a.org\r\n"),
        403);
    ck_assert_int_eq(
        status_of(gateway_connect(&rig_gate), "GET", "/slots", "Origin: http://a.org\r\n"), 200);
    int fd = gateway_connect_port(&rig_gate);
    http_send(fd, "OPTIONS", "/v1/completions",
              "Origin: http://localhost:3000\r\nAccess-Control-Request-Method: POST\r\n", NULL);
    struct http_answer a = http_receive(fd);
    ck_assert_int_eq(a.status, 204);
    ck_assert_ptr_nonnull(strstr(a.headers, "Access-Control-Allow-Origin: http://localhost:3000"));
    http_answer_fini(&a);
    close(fd);
}
END_TEST

START_TEST(listening_addresses_are_logged)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin6_port = htons((uint16_t)rig_gate.port);
    bool v6 = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    char want[128], line[512];
    int n = snprintf(want, sizeof(want), "listening at http://127.0.0.1:%d", rig_gate.port);
    snprintf(want + n, sizeof(want) - (size_t)n, v6 ? " and http://[::1]:%d\n" : "\n",
             rig_gate.port);
    FILE *log = fopen(rig_daemon.log, "re");
    ck_assert_ptr_nonnull(log);
    bool said = false;
    while (fgets(line, sizeof(line), log))
        said = said || strstr(line, want);
    ck_assert_msg(said, "not in the log: %s", want);
    fclose(log);
    if (fd >= 0)
        close(fd);
}
END_TEST

START_TEST(the_socket_has_mode_0600)
{
    struct stat st;
    ck_assert_int_eq(stat(rig_gate.socket, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(gateway_run((const char *const[]){"--listen", rig_gate.socket, NULL}), 75);
    char folder[160], path[192];
    snprintf(folder, sizeof(folder), "%s/missing", rig_daemon.directory);
    snprintf(path, sizeof(path), "%s/x.sock", folder);
    ck_assert_int_eq(gateway_run((const char *const[]){"--listen", path, NULL}), 73);
    ck_assert_int_eq(access(folder, F_OK), -1);
    ck_assert_int_eq(gateway_run((const char *const[]){"--listen", "Makefile", NULL}), 73);
    ck_assert_int_eq(gateway_run((const char *const[]){"--port", "1", "--host", "0.0.0.0", NULL}),
                     64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--slots", "0", NULL}), 64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--no-such", NULL}), 64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--api-key-file", "/nonexistent", NULL}),
                     66);
    json_decref(http_json(&rig_gate, "/health", NULL, 200)); /* still there */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_connections");
    TCase *tcase = tcase_create("http_connections");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, rig_setup_answers, rig_teardown);
    tcase_add_loop_test(tcase, a_connection_is_kept, 0, 2);
    tcase_add_test(tcase, a_body_may_come_in_pieces);
    tcase_add_test(tcase, a_connection_that_ends_as_asked_is_not_dropped);
    tcase_add_test(tcase, a_request_whose_end_is_ambiguous_is_refused_and_ends_its_connection);
    tcase_add_test(tcase, nothing_is_read_after_a_chunked_body);
    tcase_add_loop_test(tcase, a_body_that_breaks_off_takes_its_connection_along, 0, 2);
    tcase_add_test(tcase, web_pages_of_other_origins_are_refused);
    tcase_add_test(tcase, listening_addresses_are_logged);
    tcase_add_test(tcase, the_socket_has_mode_0600);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
