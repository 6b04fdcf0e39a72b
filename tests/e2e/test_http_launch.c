/* hearth-http with a budget: models are started when they are asked for, and stopped. */
#include "tests/e2e/gateway.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct harness place; /* the folder of the gateway, which is also this user's home */
static struct gateway gate;
static const char *const names[] = {"alpha", "beta", "gamma"};

/* The three models are copies of one, and so have the same size. With "56M" each gets 10 to 12 MiB for
 * KV beside 11 of weights: two fit, three do not. */
#define ROOM_FOR_TWO "56M"

static void copy_model(const char *name)
{
    char path[256], *bytes = malloc(16 << 20);
    snprintf(path, sizeof(path), "%s/models/%s.gguf", place.directory, name);
    FILE *from = fopen("daemon/models/hearth-code-5m-f16.gguf", "re"), *to = fopen(path, "we");
    ck_assert(from && to && bytes);
    size_t n = fread(bytes, 1, 16 << 20, from);
    ck_assert_uint_eq(fwrite(bytes, 1, n, to), n);
    ck_assert_int_eq(fclose(to), 0);
    fclose(from);
    free(bytes);
}

static void setup(void)
{
    char path[128];
    gateway_make_home(&place);
    snprintf(path, sizeof(path), "%s/models", place.directory);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    setenv("HEARTH_MODELS", path, 1);
    for (size_t i = 0; i < 3; i++)
        copy_model(names[i]);
}

static bool is_served(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/hearth/%s.sock", place.directory, name);
    return access(path, F_OK) == 0;
}

/* Those that a gateway started end with it. */
static void teardown(void)
{
    ck_assert_int_eq(gateway_stop(&gate), 0);
    for (size_t i = 0; i < 3; i++)
        ck_assert_msg(!is_served(names[i]), "%s runs on", names[i]);
    folder_remove(place.directory);
}

#define START(...) gateway_start(&gate, &place, false, (const char *const[]){__VA_ARGS__, NULL})

static json_t *ask(const char *model, int status)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"prompt\":[1,2,3],\"max_tokens\":1,\"model\":\"%s\"}", model);
    return http_json(&gate, "/v1/completions", body, status);
}

static void ask_well(const char *model)
{
    json_decref(ask(model, 200));
    ck_assert(is_served(model));
}

static void wait_until_gone(const char *name)
{
    for (int i = 0; is_served(name); i++) {
        ck_assert_msg(i < 12000, "%s is not stopped", name);
        usleep(10000);
    }
}

static void run_hearth(const char *command, const char *name)
{
    struct harness_output o = HARNESS_RUN(NULL, NULL, command, name);
    ck_assert_msg(o.code == 0, "hearth %s %s: %d, %s", command, name, o.code, o.error);
    harness_output_fini(&o);
}

START_TEST(a_model_that_is_asked_for_is_started)
{
    START("--budget", ROOM_FOR_TWO);
    ck_assert(!is_served("alpha"));
    json_decref(ask("Alpha:latest", 200));
    ck_assert(is_served("alpha"));
    json_decref(ask("no-such-model", 200)); /* as without a budget: the first that is there */
    ck_assert(!is_served("beta") && !is_served("gamma"));
    json_t *o = http_json(&gate, "/v1/models", NULL, 200);
    ck_assert_str_eq(json_text(o, "data/0/id"), "alpha");
    ck_assert_str_eq(json_text(o, "data/1/id"), "beta");
    ck_assert_str_eq(json_text(o, "data/1/status/value"), "unloaded");
    ck_assert_str_eq(json_text(o, "data/2/id"), "gamma");
    json_decref(o);
    o = http_json(&gate, "/api/show", "{\"model\":\"beta\"}", 200); /* a look starts nothing */
    ck_assert(!is_served("beta"));
    json_decref(o);
}
END_TEST

/* hearth serve and hearth stop would take it for one of theirs. */
START_TEST(a_file_s_name_is_no_option)
{
    copy_model("--help");
    START("--budget", ROOM_FOR_TWO);
    ask_well("--help");
    ck_assert_int_eq(gateway_stop(&gate), 0);
    ck_assert(!is_served("--help"));
    START("--budget", ROOM_FOR_TWO);
}
END_TEST

static void put_file(const char *name, const char *text, mode_t mode)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", place.directory, name);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    ck_assert_int_eq(chmod(path, mode), 0);
}

/* A service manager whose program is this script. */
static void put_manager(const char *script)
{
    char path[4096];
    const char *old = getenv("PATH");
    snprintf(path, sizeof(path), "%s/systemd", place.directory);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    put_file("systemd/private", "", 0600);
    snprintf(path, sizeof(path), "%s/bin", place.directory);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    put_file("bin/systemctl", script, 0700);
    snprintf(path, sizeof(path), "%s/bin:%s", place.directory, old ? old : "/usr/bin:/bin");
    setenv("PATH", path, 1);
}

static void remove_manager(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/systemd/private", place.directory);
    ck_assert_int_eq(unlink(path), 0);
}

/* Of the configuration that hearth serve writes for a service manager. */
START_TEST(a_line_break_in_a_file_s_name_begins_no_setting)
{
    char path[256];
    START("--budget", ROOM_FOR_TWO);
    put_manager("#!/bin/sh\nexit 0\n");
    copy_model("evil\nslots = 1 #");
    struct harness_output o = HARNESS_RUN(NULL, NULL, "serve", "evil");
    ck_assert_int_eq(o.code, 65);
    harness_output_fini(&o);
    snprintf(path, sizeof(path), "%s/.config/hearth/evil-slots-1-.conf", place.directory);
    ck_assert_int_lt(access(path, F_OK), 0);
    remove_manager();
}
END_TEST

/* "alpha one" sorts before it, and has the same socket. */
START_TEST(a_model_s_own_name_is_found_before_one_like_it)
{
    copy_model("alpha-one");
    put_file("models/alpha one.gguf", "no model", 0600);
    START("--budget", ROOM_FOR_TWO);
    ask_well("alpha-one");
}
END_TEST

/* Nor is another file of a name that is alike, or of a model that is called so, asked instead. */
START_TEST(what_was_started_answers_for_its_own_file_alone)
{
    char path[256], file[PATH_MAX];
    copy_model("alpha-one");
    copy_model("hearth-code-5m"); /* as the model in that one */
    snprintf(path, sizeof(path), "%s/models/alpha one.gguf", place.directory);
    ck_assert_ptr_nonnull(realpath(harness_tiny_model(), file));
    ck_assert_int_eq(symlink(file, path), 0);
    START("--budget", "200M");
    ask_well("alpha-one");
    json_t *o = ask("alpha one", 503);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error/message"), "another model is served at"));
    json_decref(o);
    json_decref(ask("Alpha-One:latest", 200));
    ask_well("hearth-code-5m");
}
END_TEST

START_TEST(the_one_longest_unused_gives_way)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "0");
    ask_well("alpha");
    ask_well("beta");
    ck_assert(is_served("alpha"));
    ask_well("alpha");
    ask_well("gamma");
    ck_assert(is_served("alpha") && !is_served("beta"));
    ask_well("beta");
    ck_assert(!is_served("alpha") && is_served("gamma"));
}
END_TEST

START_TEST(a_pinned_model_is_started_at_once_and_never_stopped)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "0", "--pin", "alpha", "--idle-stop", "1");
    for (int i = 0; !is_served("alpha"); i++) {
        ck_assert_int_lt(i, 12000);
        usleep(10000);
    }
    ask_well("beta");
    ask_well("gamma");
    ck_assert(is_served("alpha") && !is_served("beta"));
    wait_until_gone("gamma");
    ck_assert(is_served("alpha"));
}
END_TEST

/* The bytes of a stream until they contain `what`. */
static void read_until(int fd, const char *what)
{
    char text[16384];
    size_t n = 0;
    do {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 120000), 1);
        ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        ck_assert_msg(got > 0, "the stream ended without %s: %.*s", what, (int)n, text);
        n += (size_t)got;
        text[n] = 0;
    } while (!strstr(text, what));
}

START_TEST(a_stream_that_waits_has_comments)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "8");
    ask_well("alpha");
    ask_well("beta");
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/v1/completions", "",
              "{\"prompt\":[1,2,3],\"max_tokens\":1,\"model\":\"gamma\",\"stream\":true}");
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 100) == 0)
        ask_well("alpha"); /* requests of others do not put it off */
    read_until(fd, ": loading gamma\n\n");
    ck_assert(is_served("alpha") && is_served("beta") && !is_served("gamma"));
    read_until(fd, "data: [DONE]");
    close(fd);
}
END_TEST

/* How often a script wrote a byte there. */
static long times(const char *name)
{
    struct stat st;
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", place.directory, name);
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

/* Asked without a pause, it would be some hundred times before the comment. */
START_TEST(a_daemon_that_does_not_stop_is_asked_again_after_a_while)
{
    char script[256];
    snprintf(script, sizeof(script),
             "#!/bin/sh\n[ $3 != stop ] || { printf x >>%s/asked; false; }\n", place.directory);
    put_manager(script);
    remove_manager(); /* it starts none */
    START("--budget", ROOM_FOR_TWO, "--stay", "0", "--pin", "beta");
    ask_well("beta");
    ask_well("alpha");
    put_file("systemd/private", "", 0600);
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/v1/completions", "",
              "{\"prompt\":[1,2,3],\"max_tokens\":1,\"model\":\"gamma\",\"stream\":true}");
    read_until(fd, ": loading gamma\n\n");
    ck_assert_int_eq(times("asked"), 1);
    close(fd);
    remove_manager();
}
END_TEST

START_TEST(a_request_whose_client_hung_up_starts_nothing)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "3600");
    ask_well("alpha");
    ask_well("beta");
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/v1/completions", "", "{\"prompt\":[1],\"model\":\"gamma\"}");
    gateway_wait_metric(&gate, "hearth_http_launches", 1);
    close(fd);
    gateway_wait_metric(&gate, "hearth_http_launches", 0);
    ask_well("alpha");
    ck_assert(is_served("beta") && !is_served("gamma"));
}
END_TEST

START_TEST(a_model_that_another_program_uses_stays)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "0");
    ask_well("alpha");
    ask_well("beta"); /* alpha is the one longest without a request of this gateway */
    pid_t other = harness_spawn(NULL, NULL,
                                (const char *const[]){"run", "--model", "alpha", "--seed", "1",
                                                      "--max-tokens", "100000", "def f(x):", NULL});
    struct harness alpha = {0};
    snprintf(alpha.socket, sizeof(alpha.socket), "%s/hearth/alpha.sock", place.directory);
    ck_assert_int_eq(harness_wait_counter(&alpha, "requests_started", 2), 2);
    ask_well("gamma");
    ck_assert(is_served("alpha") && !is_served("beta"));
    (void)harness_wait(other);
}
END_TEST

/* A request that goes on until its connection is closed: nothing is read of a long answer. */
static int hold(const char *model, int running)
{
    char body[256];
    int fd = gateway_connect(&gate);
    snprintf(body, sizeof(body),
             "{\"prompt\":\"x\",\"n_predict\":1000,\"n_probs\":20,\"stream\":true,"
             "\"ignore_eos\":true,\"model\":\"%s\"}",
             model);
    http_send(fd, "POST", "/completion", "", body);
    gateway_wait_metric(&gate, "hearth_http_running", running);
    return fd;
}

static long launches(void)
{
    struct http_answer a = http_ask(&gate, "/metrics", NULL);
    const char *at = strstr(a.body, "\nhearth_http_launches ");
    ck_assert_ptr_nonnull(at);
    long n = strtol(at + strlen("\nhearth_http_launches "), NULL, 10);
    http_answer_fini(&a);
    return n;
}

/* Asks for alpha until a request of that waits too, and returns its connection. */
static int ask_until_it_waits(void)
{
    for (;;) {
        int fd = gateway_connect(&gate);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        http_send(fd, "POST", "/completion", "",
                  "{\"prompt\":\"x\",\"n_predict\":1,\"model\":\"alpha\"}");
        while (poll(&p, 1, 10) == 0)
            if (launches() == 2)
                return fd;
        close(fd);
    }
}

START_TEST(a_model_that_is_always_busy_gives_way_too)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "1");
    int alpha = hold("alpha", 1), beta = hold("beta", 2), gamma = gateway_connect(&gate);
    http_send(gamma, "POST", "/completion", "",
              "{\"prompt\":\"x\",\"n_predict\":1,\"model\":\"gamma\"}");
    int next = ask_until_it_waits();
    ck_assert(!is_served("gamma"));
    close(alpha);
    struct http_answer a = http_receive(gamma);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    a = http_receive(next);
    ck_assert_int_eq(a.status, 200);
    http_answer_fini(&a);
    ck_assert(is_served("alpha") && is_served("beta") && !is_served("gamma"));
    close(beta);
    close(gamma);
    close(next);
}
END_TEST

static json_t *generate(const char *model, const char *more)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"model\":\"%s\",\"stream\":false%s}", model, more);
    return http_json(&gate, "/api/generate", body, 200);
}

/* The service manager's part: a socket that stays, whose listener would start a daemon. */
static int listen_as(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path, sizeof(at.sun_path), "%s/hearth", place.directory);
    (void)mkdir(at.sun_path, 0700);
    snprintf(at.sun_path + n, sizeof(at.sun_path) - (size_t)n, "/%s.sock", name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

static void stop_listening(const char *name, int fd)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/hearth/%s.sock", place.directory, name);
    close(fd);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(there_is_room_before_a_connection_starts_a_daemon)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "0");
    ask_well("beta");
    ask_well("gamma");
    struct pollfd p = {.fd = listen_as("alpha"), .events = POLLIN};
    int fd = gateway_connect(&gate);
    http_send(fd, "POST", "/completion", "", "{\"prompt\":\"x\",\"model\":\"alpha\"}");
    ck_assert_int_eq(poll(&p, 1, 120000), 1);
    ck_assert(!is_served("beta") && is_served("gamma"));
    stop_listening("alpha", p.fd);
    struct http_answer a = http_receive(fd);
    http_answer_fini(&a); /* hearth serve starts one in its place */
    ck_assert(!is_served("beta") && is_served("gamma"));
    close(fd);
}
END_TEST

START_TEST(keep_alive_says_how_long_a_model_stays)
{
    static const char prompt[] = ",\"prompt\":\"x\",\"raw\":true,\"options\":{\"num_predict\":1}";
    char more[128];
    START("--budget", ROOM_FOR_TWO, "--stay", "3600", "--idle-stop", "1");
    json_decref(generate("alpha", ",\"keep_alive\":-1"));
    json_decref(generate("beta", prompt));
    wait_until_gone("beta");
    snprintf(more, sizeof(more), "%s,\"keep_alive\":\"1h\"", prompt);
    json_decref(generate("beta", more));
    json_t *o = http_json(&gate, "/api/ps", NULL, 200);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "models")), 2);
    ck_assert_str_eq(json_text(o, "models/0/name"), "alpha");
    ck_assert_str_eq(json_text(o, "models/0/expires_at"), "9999-12-31T23:59:59Z");
    ck_assert_int_gt(json_number(o, "models/0/size"), 11 << 20); /* in memory */
    ck_assert_str_ne(json_text(o, "models/1/expires_at"), "9999-12-31T23:59:59Z");
    json_decref(o);
    snprintf(more, sizeof(more), "%s,\"keep_alive\":0", prompt);
    json_decref(generate("beta", more));
    wait_until_gone("beta");
    ck_assert(is_served("alpha"));
    o = generate("alpha", ",\"keep_alive\":0");
    ck_assert_str_eq(json_text(o, "done_reason"), "unload");
    json_decref(o);
    wait_until_gone("alpha");
    ask_well("beta");
    json_decref(generate("gamma", ",\"keep_alive\":0")); /* it is not loaded for this */
    ck_assert(!is_served("gamma"));
    o = http_json(&gate, "/api/generate", "{\"model\":\"beta\",\"keep_alive\":\"soon\"}", 400);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error"), "'keep_alive' must be"));
    json_decref(o);
}
END_TEST

/* When it would be stopped, as Ollama writes times. Waits until it is loaded. The caller frees it. */
static char *ends_at(const char *name)
{
    char *at = NULL;
    for (int i = 0; !at; i++) {
        json_t *o = http_json(&gate, "/api/ps", NULL, 200), *m;
        size_t k;
        json_array_foreach(json_at(o, "models"), k, m) {
            if (strcmp(json_text(m, "name"), name) == 0)
                at = strdup(json_text(m, "expires_at"));
        }
        json_decref(o);
        ck_assert_msg(i < 12000, "%s is not loaded", name);
        usleep(at ? 0 : 10000);
    }
    return at;
}

static bool stays_for_ever(const char *name)
{
    char *at = ends_at(name);
    const bool stays = strcmp(at, "9999-12-31T23:59:59Z") == 0;
    free(at);
    return stays;
}

static pid_t start_alpha(int listen_fd)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/models/alpha.gguf", place.directory);
    return harness_activate((const char *const[]){harness_program("hearthd"), "--model", path,
                                                  "--kv-bytes", "8M", "--log-level", "error", NULL},
                            listen_fd, 1);
}

/* By a service manager, whose socket stays. */
START_TEST(keep_alive_is_forgotten_with_the_daemon_that_stops)
{
    START("--budget", ROOM_FOR_TWO, "--stay", "0");
    const int fd = listen_as("alpha");
    pid_t alpha = start_alpha(fd);
    json_decref(generate("alpha", ",\"keep_alive\":-1"));
    ck_assert(stays_for_ever("alpha"));
    ask_well("beta");
    ask_well("gamma");
    ck_assert_int_eq(harness_wait(alpha), 0); /* the gateway stopped it */
    alpha = start_alpha(fd);
    ck_assert(!stays_for_ever("alpha"));
    ck_assert_int_eq(kill(alpha, SIGTERM), 0);
    ck_assert_int_eq(harness_wait(alpha), 0);
    stop_listening("alpha", fd);
}
END_TEST

/* Memory that was given back is overwritten, so that a look at it ends the gateway. */
START_TEST(a_gateway_ends_while_a_request_is_read)
{
    static char body[8192];
    char byte;
    setenv("MALLOC_PERTURB_", "165", 1);
    START("--budget", ROOM_FOR_TWO, "--grace", "0");
    unsetenv("MALLOC_PERTURB_");
    ask_well("alpha");
    struct harness alpha = {0};
    snprintf(alpha.socket, sizeof(alpha.socket), "%s/hearth/alpha.sock", place.directory);
    struct hearth *h = harness_connect(&alpha, 0, NULL);
    struct hearth_info info = {.size = sizeof(info)};
    ck_assert_int_eq(hearth_info(h, &info), 0);
    hearth_close(h);
    ck_assert_int_eq(kill((pid_t)info.server_pid, SIGSTOP), 0);
    /* The worker that reads it connects to the daemon first; one that is read in the same order fails
     * before that. */
    int fd = gateway_connect(&gate);
    snprintf(body, sizeof(body), "{\"model\":\"alpha\",\"keep_alive\":\"1h\",\"prompt\":\"%*s\"}",
             5000, "x");
    http_send(fd, "POST", "/api/generate", "", body);
    body[strlen(body) - 1] = 0;
    json_decref(http_json(&gate, "/api/generate", body, 400));
    ck_assert_int_eq(kill(gate.pid, SIGTERM), 0);
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0); /* its loop has ended */
    ck_assert_int_eq(kill((pid_t)info.server_pid, SIGCONT), 0);
    ck_assert_int_eq(harness_wait(gate.pid), 0);
    gate.pid = 0;
    close(fd);
}
END_TEST

START_TEST(ollama_s_list_has_those_that_may_be_started)
{
    START("--budget", ROOM_FOR_TWO, "--upstream", "far=http://127.0.0.1:1/v1");
    json_t *o = http_json(&gate, "/api/tags", NULL, 200);
    ck_assert_str_eq(json_text(o, "models/0/name"), "far");
    ck_assert_str_eq(json_text(o, "models/1/name"), "alpha");
    ck_assert_int_gt(json_number(o, "models/1/size"), 11 << 20);
    ck_assert_str_eq(json_text(o, "models/3/name"), "gamma");
    const int64_t bytes = json_number(o, "models/1/size");
    json_decref(o);
    ck_assert(!is_served("alpha"));
    ask_well("alpha");
    o = http_json(&gate, "/api/tags", NULL, 200);
    ck_assert_str_eq(json_text(o, "models/0/name"), "alpha");
    ck_assert_int_eq(json_number(o, "models/0/size"), bytes);
    json_decref(o);
}
END_TEST

START_TEST(each_model_of_the_list_is_found_by_itself)
{
    START("--budget", ROOM_FOR_TWO);
    json_t *o = http_json(&gate, "/v1/models/beta", NULL, 200);
    ck_assert_str_eq(json_text(o, "id"), "beta");
    ck_assert_str_eq(json_text(o, "status/value"), "unloaded");
    json_decref(o);
    ck_assert(!is_served("beta"));
    json_decref(http_json(&gate, "/v1/models/delta", NULL, 404));
    ask_well("alpha");
    o = http_json(&gate, "/v1/models/alpha", NULL, 200);
    ck_assert_ptr_null(json_at(o, "status"));
    json_decref(o);
}
END_TEST

START_TEST(one_that_barely_fits_is_started)
{
    START("--budget", "26M"); /* a quarter of what weights and scratch leave is less than a text */
    ask_well("alpha");
}
END_TEST

START_TEST(what_cannot_be_started_is_one_line)
{
    put_file("models/broken.gguf", "no model", 0600);
    START("--budget", "8M");
    json_t *o = ask("broken", 501);
    ck_assert_str_eq(json_text(o, "error/message"),
                     "broken is not served: not a GGUF file: it starts with \"no m\", not "
                     "\"GGUF\"");
    json_decref(o);
    o = ask("alpha", 503);
    ck_assert_ptr_nonnull(strstr(json_text(o, "error/message"), "more than --budget, 8 MiB: give"));
    json_decref(o);
}
END_TEST

START_TEST(a_pinned_model_that_leaves_too_little_is_said)
{
    START("--budget", "40M", "--pin", "alpha");
    json_t *o = ask("beta", 503);
    ck_assert_ptr_nonnull(
        strstr(json_text(o, "error/message"), "pinned models leave less of --budget, 40 MiB"));
    json_decref(o);
}
END_TEST

START_TEST(one_that_died_is_started_again)
{
    START("--budget", ROOM_FOR_TWO);
    ask_well("alpha");
    struct harness alpha = {0};
    snprintf(alpha.socket, sizeof(alpha.socket), "%s/hearth/alpha.sock", place.directory);
    struct hearth *h = harness_connect(&alpha, 0, NULL);
    struct hearth_info info = {.size = sizeof(info)};
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_int_eq(kill((pid_t)info.server_pid, SIGKILL), 0);
    hearth_close(h);
    gateway_wait_metric(&gate, "hearth_http_slots", 0);
    ask_well("alpha");
}
END_TEST

/* One that somebody else has stopped before, and another daemon whose name begins with its name. */
START_TEST(a_gateway_stops_no_daemon_but_its_own)
{
    copy_model("alpha-b");
    START("--budget", ROOM_FOR_TWO);
    ask_well("alpha");
    run_hearth("stop", "alpha");
    ck_assert(!is_served("alpha"));
    run_hearth("serve", "alpha-b");
    ck_assert_int_eq(gateway_stop(&gate), 0);
    ck_assert(is_served("alpha-b"));
    run_hearth("stop", "alpha-b");
    START("--budget", ROOM_FOR_TWO);
}
END_TEST

/* Where no hearth lies beside it. */
START_TEST(a_budget_needs_hearth)
{
    char command[512];
    START("--budget", ROOM_FOR_TWO);
    snprintf(
        command, sizeof(command),
        "cp %s %s && PATH=/nowhere HOME=/ %s/hearth-http --listen %s/other --budget 1G 2>%s/said",
        harness_program("hearth-http"), place.directory, place.directory, place.directory,
        place.directory);
    ck_assert_int_eq(system(command), 69 << 8);
    ck_assert_int_gt(times("said"), 0);
}
END_TEST

/* The gateway is told to end when hearth serve has just started the daemon. */
START_TEST(a_daemon_that_is_ready_while_the_gateway_ends_ends_too)
{
    char command[2048], bin[256];
    snprintf(bin, sizeof(bin), "%s/bin", place.directory);
    ck_assert_int_eq(mkdir(bin, 0700), 0);
    put_file("bin/hearth",
             "#!/bin/sh\ntrap '' TERM\n${0%/*}/real \"$@\" || exit\n"
             "[ $1 != serve ] || kill $PPID\n",
             0700);
    snprintf(command, sizeof(command),
             "d=$(cd $(dirname %s) && pwd) && cp $d/hearth-http $d/hearthd %s && "
             "cp $d/hearth %s/real && "
             "timeout 60 %s/hearth-http --listen %s/other --budget " ROOM_FOR_TWO " --pin alpha",
             harness_program("hearth"), bin, bin, bin, bin);
    ck_assert_int_eq(system(command), 0);
    ck_assert(!is_served("alpha"));
    START("--budget", ROOM_FOR_TWO);
}
END_TEST

START_TEST(a_port_needs_a_file_of_keys)
{
    START("--budget", ROOM_FOR_TWO);
    ck_assert_int_eq(gateway_run((const char *const[]){"--budget", "1G", "--port", "1", NULL}), 64);
    ck_assert_int_eq(
        gateway_run((const char *const[]){"--budget", "1G", "--port", "1", "--api-key", "k", NULL}),
        64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--budget", "1G", "--socket", "/x", NULL}),
                     64);
    ck_assert_int_eq(gateway_run((const char *const[]){"--pin", "alpha", NULL}), 64);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_launch");
    TCase *c = tcase_create("http_launch");
    tcase_set_timeout(c, 240);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_model_that_is_asked_for_is_started);
    tcase_add_test(c, a_file_s_name_is_no_option);
    tcase_add_test(c, a_line_break_in_a_file_s_name_begins_no_setting);
    tcase_add_test(c, a_model_s_own_name_is_found_before_one_like_it);
    tcase_add_test(c, what_was_started_answers_for_its_own_file_alone);
    tcase_add_test(c, the_one_longest_unused_gives_way);
    tcase_add_test(c, a_pinned_model_is_started_at_once_and_never_stopped);
    tcase_add_test(c, a_stream_that_waits_has_comments);
    tcase_add_test(c, a_daemon_that_does_not_stop_is_asked_again_after_a_while);
    tcase_add_test(c, a_request_whose_client_hung_up_starts_nothing);
    tcase_add_test(c, a_model_that_another_program_uses_stays);
    tcase_add_test(c, a_model_that_is_always_busy_gives_way_too);
    tcase_add_test(c, there_is_room_before_a_connection_starts_a_daemon);
    tcase_add_test(c, keep_alive_says_how_long_a_model_stays);
    tcase_add_test(c, keep_alive_is_forgotten_with_the_daemon_that_stops);
    tcase_add_test(c, a_gateway_ends_while_a_request_is_read);
    tcase_add_test(c, ollama_s_list_has_those_that_may_be_started);
    tcase_add_test(c, each_model_of_the_list_is_found_by_itself);
    tcase_add_test(c, one_that_barely_fits_is_started);
    tcase_add_test(c, what_cannot_be_started_is_one_line);
    tcase_add_test(c, a_pinned_model_that_leaves_too_little_is_said);
    tcase_add_test(c, one_that_died_is_started_again);
    tcase_add_test(c, a_gateway_stops_no_daemon_but_its_own);
    tcase_add_test(c, a_budget_needs_hearth);
    tcase_add_test(c, a_daemon_that_is_ready_while_the_gateway_ends_ends_too);
    tcase_add_test(c, a_port_needs_a_file_of_keys);
    suite_add_tcase(s, c);
    return run_suite(s);
}
