/* The page of hearth-http for browsers: what it is served with, who may ask from it, what it is told. */
#include "tests/e2e/http_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

/* A GET through the port, or through the Unix socket. */
static struct http_answer get(bool by_port, const char *path, const char *headers)
{
    int fd = by_port ? gateway_connect_port(&rig_gate) : gateway_connect(&rig_gate);
    http_send(fd, "GET", path, headers, NULL);
    struct http_answer a = http_receive(fd);
    close(fd);
    return a;
}

static int status_of(bool by_port, const char *path, const char *headers)
{
    struct http_answer a = get(by_port, path, headers);
    int status = a.status;
    http_answer_fini(&a);
    return status;
}

START_TEST(the_page_needs_nothing_but_the_gateway)
{
    static const char *const files[] = {"/", "/page.js", "/page.css"};
    static const char *const others[] = {"http:",     "https:",        "innerHTML", "outerHTML",
                                         "insertAdj", "document.writ", "eval",      "Storage",
                                         "cookie",    "style=",        "onclick=",  "import("};
    for (size_t i = 0; i < 3; i++) {
        struct http_answer a = get(true, files[i], "Accept: text/html,*/*\r\n");
        ck_assert_int_eq(a.status, 200);
        ck_assert_ptr_nonnull(strstr(a.headers, "Content-Security-Policy: default-src 'none'; "));
        ck_assert_ptr_null(strstr(a.headers, "unsafe"));
        ck_assert_ptr_nonnull(strstr(a.headers, "X-Content-Type-Options: nosniff"));
        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
            ck_assert_msg(!strstr(a.body, others[k]), "%s has %s", files[i], others[k]);
        http_answer_fini(&a);
    }
    struct http_answer a = get(true, "/", "Accept: */*\r\n");
    ck_assert_str_eq(a.body, "Ollama is running");
    ck_assert_ptr_null(strstr(a.headers, "Content-Security-Policy"));
    http_answer_fini(&a);
}
END_TEST

START_TEST(its_own_origin_may_ask_and_no_other)
{
    char own[128], other[128];
    snprintf(own, sizeof(own), "Host: localhost:%d\r\nOrigin: http://localhost:%d\r\n",
             rig_gate.port, rig_gate.port);
    snprintf(other, sizeof(other), "Host: localhost:%d\r\nOrigin: http://localhost:%d\r\n",
             rig_gate.port, rig_gate.port ^ 1);
    ck_assert_int_eq(status_of(true, "/v1/models", own), 200);
    ck_assert_int_eq(status_of(true, "/v1/models", other), 403);
    ck_assert_int_eq(
        status_of(true, "/v1/models", "Host: evil.example\r\nOrigin: http://evil.example\r\n"),
        403);
}
END_TEST

/* A picture or a script of another page has no Origin: it would start the daemon of a model that
 * sleeps. */
START_TEST(what_another_page_embeds_is_not_answered)
{
    static const char *const foreign[] = {"cross-site", "same-site"};
    char headers[128];
    for (size_t i = 0; i < 2; i++) {
        snprintf(headers, sizeof(headers), "Host: localhost\r\nSec-Fetch-Site: %s\r\n", foreign[i]);
        ck_assert_int_eq(status_of(true, "/props", headers), 403);
        ck_assert_int_eq(status_of(true, "/v1/models", headers), 403);
        ck_assert_int_eq(status_of(true, "/page.js", headers), 200);
        strcat(headers, "Accept: text/html\r\n"); /* a link to the page */
        ck_assert_int_eq(status_of(true, "/", headers), 200);
    }
    ck_assert_int_eq(
        status_of(true, "/props", "Host: localhost\r\nSec-Fetch-Site: same-origin\r\n"), 200);
    ck_assert_int_eq(status_of(true, "/props", "Host: localhost\r\nSec-Fetch-Site: none\r\n"), 200);
}
END_TEST

static bool shows_names(bool by_port, const char *headers)
{
    struct http_answer a = get(by_port, "/status", headers);
    ck_assert_int_eq(a.status, 200);
    json_t *o = json_loadb(a.body, a.bytes, 0, NULL);
    ck_assert_str_eq(json_text(o, "model"), "hearth code 5M");
    ck_assert_int_ge((int)json_array_size(json_object_get(o, "slots")), 1);
    bool named = strstr(a.body, "\"a-name\"") != NULL;
    ck_assert_int_eq(named, json_at(o, "slots/0/pid") != NULL);
    ck_assert_int_eq(named, json_at(o, "slots/0/uid") != NULL);
    ck_assert_int_eq(named, json_at(o, "socket") != NULL);
    json_decref(o);
    http_answer_fini(&a);
    return named;
}

static bool shows_socket(bool by_port)
{
    struct http_answer a = get(by_port, "/metrics", "");
    ck_assert_int_eq(a.status, 200);
    ck_assert_ptr_nonnull(strstr(a.body, "\nhearth_info{"));
    bool shown = strstr(a.body, rig_daemon.socket) != NULL;
    http_answer_fini(&a);
    return shown;
}

START_TEST(a_port_without_a_key_shows_no_names)
{
    struct hearth *h = harness_connect(&rig_daemon, 1, "a-name");
    ck_assert(shows_names(false, ""));
    ck_assert(!shows_names(true, ""));
    ck_assert(shows_socket(false));
    ck_assert(!shows_socket(true));
    gateway_stop(&rig_gate);
    gateway_start(&rig_gate, &rig_daemon, true, (const char *const[]){"--api-key", "K", NULL});
    ck_assert_int_eq(status_of(true, "/", "Accept: text/html\r\n"), 200);
    ck_assert_int_eq(status_of(true, "/page.js", ""), 200);
    ck_assert_int_eq(status_of(true, "/status", ""), 401);
    ck_assert(shows_names(true, "Authorization: Bearer K\r\n"));
    hearth_close(h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_page");
    TCase *c = tcase_create("http_page");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, rig_setup_answers, rig_teardown);
    tcase_add_test(c, the_page_needs_nothing_but_the_gateway);
    tcase_add_test(c, its_own_origin_may_ask_and_no_other);
    tcase_add_test(c, what_another_page_embeds_is_not_answered);
    tcase_add_test(c, a_port_without_a_key_shows_no_names);
    suite_add_tcase(s, c);
    return run_suite(s);
}
