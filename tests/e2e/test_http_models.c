/* hearth-http in front of several daemons: which model a request is for. */
#include "ipc/bell.h"
#include "tests/e2e/gateway.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct harness code, tiny, place; /* place: the folder of the gateway, without a daemon */
static struct gateway gate;

/* The daemon's socket as that of a model of this name. */
static void name_daemon(const struct harness *d, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/hearth/%s.sock", place.directory, name);
    ck_assert_int_eq(symlink(d->socket, path), 0);
}

static void unname_daemon(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/hearth/%s.sock", place.directory, name);
    ck_assert_int_eq(unlink(path), 0);
}

static void setup(void)
{
    char folder[128];
    gateway_make_home(&place);
    snprintf(folder, sizeof(folder), "%s/hearth", place.directory);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    harness_start(&code, "daemon/models/hearth-code-5m-f16.gguf",
                  (const char *const[]){"--threads", "1", NULL});
    harness_start(&tiny, harness_tiny_model(),
                  (const char *const[]){"--context", "768", "--threads", "1", NULL});
}

static void teardown(void)
{
    ck_assert_int_eq(gateway_stop(&gate), 0);
    ck_assert_int_eq(harness_stop(&code), 0);
    ck_assert_int_eq(harness_stop(&tiny), 0);
    folder_remove(place.directory);
}

/* The context of the model that answers a completion, by which the two are told apart. */
static json_int_t context_of(const char *model)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"prompt\":[1,2,3],\"n_predict\":1%s%s%s}",
             model ? ",\"model\":\"" : "", model ? model : "", model ? "\"" : "");
    json_t *o = http_json(&gate, "/completion", body, 200);
    json_int_t context = json_number(o, "generation_settings/n_ctx");
    json_decref(o);
    return context;
}

/* The ids of /v1/models, each with a blank after it; the caller frees. */
static char *list_models(void)
{
    json_t *o = http_json(&gate, "/v1/models", NULL, 200);
    char *ids = calloc(1, 512);
    size_t i;
    json_t *model;
    json_array_foreach(json_object_get(o, "data"), i, model) {
        strcat(ids, json_text(model, "id"));
        strcat(ids, " ");
    }
    json_decref(o);
    return ids;
}

START_TEST(a_request_goes_to_the_daemon_of_its_model)
{
    name_daemon(&code, "hearth");
    name_daemon(&tiny, "tiny-model");
    gateway_start(&gate, &place, false, NULL);
    ck_assert_int_eq(context_of(NULL), 1024);
    ck_assert_int_eq(context_of("hearth code 5M"), 1024);
    ck_assert_int_eq(context_of("gpt-4o"), 1024); /* a name that no model has: the first one */
    ck_assert_int_eq(context_of("tiny-model"), 768);
    ck_assert_int_eq(context_of("Tiny:Model"), 768);
    ck_assert_int_eq(context_of("tiny-model:latest"), 768);
    char *ids = list_models();
    ck_assert_str_eq(ids, "hearth code 5M tiny-model ");
    free(ids);
    json_t *o = http_json(&gate, "/props?model=tiny-model", NULL, 200);
    ck_assert_int_eq(json_number(o, "default_generation_settings/n_ctx"), 768);
    json_decref(o);
}
END_TEST

/* As with hearth run --model: two files may hold models of one name. */
START_TEST(a_socket_s_name_goes_before_that_of_another_ones_model)
{
    name_daemon(&code, "another");
    name_daemon(&tiny, "hearth-code-5m"); /* as the model of the one before it is called */
    gateway_start(&gate, &place, false, NULL);
    ck_assert_int_eq(context_of("another"), 1024);
    ck_assert_int_eq(context_of("hearth-code-5m"), 768);
}
END_TEST

START_TEST(a_large_body_goes_there_too)
{
    name_daemon(&code, "hearth");
    name_daemon(&tiny, "tiny-model");
    gateway_start(&gate, &place, false, NULL);
    char *body = malloc(20000);
    int n = sprintf(body, "{\"model\":\"tiny-model\",\"unknown\":\"");
    memset(body + n, 'x', 10000);
    strcpy(body + n + 10000, "\",\"prompt\":[1,2,3],\"n_predict\":1}");
    json_t *o = http_json(&gate, "/completion", body, 200);
    ck_assert_int_eq(json_number(o, "generation_settings/n_ctx"), 768);
    json_decref(o);
    body[n + 10000] = 0; /* cut: no JSON */
    json_decref(http_json(&gate, "/completion", body, 400));
    free(body);
}
END_TEST

START_TEST(daemons_that_come_and_go_are_noticed)
{
    name_daemon(&code, "hearth");
    gateway_start(&gate, &place, false, NULL);
    ck_assert_int_eq(context_of("tiny-model"), 1024);
    name_daemon(&tiny, "tiny-model");
    ck_assert_int_eq(context_of("tiny-model"), 768);
    unname_daemon("tiny-model");
    harness_kill(&tiny);
    char *ids;
    for (ids = list_models(); strstr(ids, "tiny"); ids = list_models()) {
        free(ids);
        usleep(10000); /* until the hang-up was read */
    }
    free(ids);
    ck_assert_int_eq(context_of("tiny-model"), 1024);
}
END_TEST

/* The folder's openings since the last call. */
static int count_openings(int inotify)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t bytes;
    int n = 0;
    while ((bytes = read(inotify, events, sizeof(events))) > 0)
        for (ssize_t at = 0; at < bytes;) {
            const struct inotify_event *e = (const struct inotify_event *)(events + at);
            n += (e->mask & IN_OPEN) != 0 && e->len == 0; /* of the folder itself */
            at += (ssize_t)(sizeof(*e) + e->len);
        }
    return n;
}

START_TEST(names_that_no_model_has_do_not_keep_the_gateway_busy)
{
    enum { REQUESTS = 100 };
    char path[256];
    name_daemon(&code, "hearth");
    gateway_start(&gate, &place, false, NULL);
    int inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), n = 0;
    snprintf(path, sizeof(path), "%s/hearth", place.directory);
    ck_assert_int_ge(inotify_add_watch(inotify, path, IN_OPEN | IN_CLOSE), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    uint64_t begin = bell_now_ns();
    for (int i = 0; i < REQUESTS; i++) {
        json_decref(http_json(&gate, "/props?model=gpt-4o", NULL, 200));
        n += count_openings(inotify);
    }
    uint64_t seconds = (bell_now_ns() - begin) / 1000000000u;
    ck_assert_int_le(n, (int)seconds + 2); /* the first one, and one a second */
    name_daemon(&tiny, "tiny-model");
    ck_assert_int_eq(context_of("tiny-model"), 768); /* and a change is seen at once */
    close(inotify);
}
END_TEST

START_TEST(without_a_default_daemon_the_first_other_one_is_asked)
{
    name_daemon(&tiny, "tiny-model");
    gateway_start(&gate, &place, false, NULL);
    ck_assert_int_eq(context_of(NULL), 768);
    ck_assert_int_eq(context_of("anything"), 768);
}
END_TEST

/* A socket at which the service manager listens, which would start a daemon for a connection. */
static int listen_as_manager(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/hearth/%s.sock", place.directory, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

static bool has_connection(int listener, int wait_ms)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    return poll(&p, 1, wait_ms) == 1;
}

START_TEST(a_list_starts_no_daemon)
{
    static const char *const looks[] = {
        "/v1/models", "/v1/models/sleeper", "/api/tags", "/api/ps", "/health", "/metrics"};
    int usual = listen_as_manager("hearth"), sleeper = listen_as_manager("sleeper");
    gateway_start(&gate, &place, false, NULL);
    for (size_t i = 0; i < sizeof(looks) / sizeof(*looks); i++) {
        struct http_answer a = http_ask(&gate, looks[i], NULL);
        ck_assert_msg(a.status == 200, "%s: %s", looks[i], a.body);
        http_answer_fini(&a);
    }
    json_t *o = http_json(&gate, "/v1/models", NULL, 200);
    ck_assert_str_eq(json_text(o, "data/0/id"), "hearth");
    ck_assert_str_eq(json_text(o, "data/1/id"), "sleeper");
    ck_assert_str_eq(json_text(o, "data/1/status/value"), "unloaded");
    json_decref(o);
    o = http_json(&gate, "/api/tags", NULL, 200);
    ck_assert_str_eq(json_text(o, "models/1/name"), "sleeper");
    json_decref(o);
    name_daemon(&tiny, "tiny-model");
    ck_assert_int_eq(context_of("tiny-model"), 768);
    o = http_json(&gate, "/v1/models", NULL, 200);
    ck_assert_str_eq(json_text(o, "data/2/id"), "tiny-model");
    ck_assert_ptr_null(json_at(o, "data/2/status"));
    json_decref(o);
    ck_assert(!has_connection(usual, 0) && !has_connection(sleeper, 0));
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/completion", "", "{\"prompt\":\"x\",\"model\":\"sleeper\"}");
    ck_assert(has_connection(sleeper, 60000) && !has_connection(usual, 0));
    close(fd);
    close(usual);
    close(sleeper);
}
END_TEST

START_TEST(a_name_that_no_model_has_is_refused_where_that_is_wanted)
{
    name_daemon(&code, "hearth");
    name_daemon(&tiny, "tiny-model");
    gateway_start(&gate, &place, false, (const char *const[]){"--strict-model", NULL});
    ck_assert_int_eq(context_of("tiny-model"), 768);
    json_t *o = http_json(&gate, "/completion", "{\"prompt\":\"x\",\"model\":\"gpt-4o\"}", 404);
    ck_assert_str_eq(json_text(o, "error/code"), "model_not_found");
    json_decref(o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_models");
    TCase *c = tcase_create("http_models");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_request_goes_to_the_daemon_of_its_model);
    tcase_add_test(c, a_socket_s_name_goes_before_that_of_another_ones_model);
    tcase_add_test(c, a_large_body_goes_there_too);
    tcase_add_test(c, daemons_that_come_and_go_are_noticed);
    tcase_add_test(c, names_that_no_model_has_do_not_keep_the_gateway_busy);
    tcase_add_test(c, without_a_default_daemon_the_first_other_one_is_asked);
    tcase_add_test(c, a_list_starts_no_daemon);
    tcase_add_test(c, a_name_that_no_model_has_is_refused_where_that_is_wanted);
    suite_add_tcase(s, c);
    return run_suite(s);
}
