/* Hostile HTTP clients of hearth-http, on a user id of their own: an honest request beside them gets
 * the answer that the library gets, and afterwards the gateway holds no descriptor more.
 * HEARTH_GATEWAY=N: N times as many; HEARTH_HALF_OPEN=N: N half-open connections instead of 300. */
#include "tests/e2e/http_rig.h"
#include "tests/hostile/attack.h"
#include "tests/hostile/balance.h"
#include "tests/hostile/honest.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 4,
    TOKENS = 24,
    ANSWERS = 3,
    HALF_OPEN = 300,
    SPARE = 90,
    CONNECTIONS_MAX = 4096,
    TRICKLES = 20,
    DEPTH = 100000,
    SCHEMA_DEPTH = 3000,
    ANSWER_MS = 60000,
    LARGE_BYTES = 2 << 20,
    ROOM_KB = 16384, /* what an allocator may keep; a hundred leaked bodies are more */
};

#define HEAD "POST /completion HTTP/1.1\r\nHost: localhost\r\n"

static struct attack_state *state;

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *value = getenv(name);

    return value ? (uint32_t)strtoul(value, NULL, 10) : otherwise;
}

/* ---- attacks, in a child ----------------------------------------------------------------------- */

static int connect_port(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)rig_gate.port)};

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void send_text(int fd, const char *text)
{
    for (size_t at = 0, n = strlen(text); at < n;) {
        ssize_t sent = send(fd, text + at, n - at, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        at += (size_t)sent;
    }
}

/* Reads to the connection's end, or for a moment. Returns whether `text` was in it. */
static int is_answered(int fd, const char *text, int ms)
{
    static char bytes[1 << 16];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t n = 0;

    while (n + 1 < sizeof(bytes) && poll(&p, 1, ms) == 1) {
        ssize_t more = recv(fd, bytes + n, sizeof(bytes) - 1 - n, 0);
        if (more <= 0)
            break;
        n += (size_t)more;
    }
    bytes[n] = 0;
    return strstr(bytes, text) != NULL;
}

/* A part of a request each, and nothing more. */
static void half_open(struct attack_state *a)
{
    static const char head[] = HEAD "Content-Length: 100\r\n\r\n{\"prompt\"";
    uint32_t n = number_of("HEARTH_HALF_OPEN", HALF_OPEN);
    int *fds = calloc(n, sizeof(*fds));

    for (uint32_t i = 0; i < n; i++) {
        fds[i] = connect_port();
        send(fds[i], head, random_below(&a->random, sizeof(head)), MSG_NOSIGNAL);
        atomic_fetch_add(&a->done, 1);
    }
    attack_sleep_us(1000000);
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
}

/* Bodies a byte at a time. */
static void trickle(struct attack_state *a)
{
    int fds[TRICKLES];

    for (int i = 0; i < TRICKLES; i++) {
        fds[i] = connect_port();
        send_text(fds[i], i % 2 ? HEAD "Content-Length: 5000\r\n\r\n"
                                : HEAD "Transfer-Encoding: chunked\r\n\r\n1388\r\n");
    }
    for (int k = 0; k < 300; k++) {
        for (int i = 0; i < TRICKLES; i++)
            send(fds[i], " ", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        attack_sleep_us(2000);
    }
    for (int i = 0; i < TRICKLES; i++)
        close(fds[i]);
    atomic_fetch_add(&a->done, TRICKLES);
}

/* Requests whose end may be seen at two places: what follows must not be taken for one of its own.
 * (What names two lengths is in test_http_connections.) */
static void smuggle(struct attack_state *a)
{
    static const char *const headers[] = {
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n",
        "Transfer\x01-Encoding: chunked\r\nContent-Length: 5\r\n",
        "X: y\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        " Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "noheader\r\nContent-Length: 5\r\n",
        "Content-Length : 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 5\r\n 0\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Content-Length\r\n : 5\r\n",
        "Content-Length: 5 0\r\n",
        "Content-Length: \r\n",
    };
    char text[1024];

    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
        int fd = connect_port();
        snprintf(text, sizeof(text),
                 HEAD "%s\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 headers[i]);
        send_text(fd, text);
        attack_forbidden(is_answered(fd, "/smuggled", 200), headers[i]);
        close(fd);
        atomic_fetch_add(&a->done, 1);
    }
}

/* The text `one` so many times between `first` and `last`, and `end` as often. */
static char *nested(const char *first, const char *one, const char *middle, const char *end,
                    const char *last, size_t depth)
{
    size_t room =
        strlen(first) + strlen(middle) + strlen(last) + depth * (strlen(one) + strlen(end)) + 1;
    char *text = malloc(room), *at = stpcpy(text, first);

    for (size_t i = 0; i < depth; i++)
        at = stpcpy(at, one);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < depth; i++)
        at = stpcpy(at, end);
    strcpy(at, last);
    return text;
}

/* Bodies that are small and mean much: each is answered, with whatever status. */
static void bomb(struct attack_state *a)
{
    static const struct {
        const char *path, *first, *one, *middle, *end, *last;
        size_t depth;
    } bombs[] = {
        {"/completion", "{\"prompt\":", "[", "1", "]", "}", DEPTH},
        {"/completion", "", "{\"a\":", "1", "}", "", DEPTH},
        {"/completion", "{\"prompt\":\"x\",\"n_predict\":1", ",\"a\":1", "", "", "}", DEPTH},
        {"/completion", "{\"prompt\":\"x\",\"seed\":", "9", "", "", "}", DEPTH},
        {"/completion", "{\"prompt\":\"", "\\ud800", "", "", "\"}", DEPTH},
        {"/completion", "{\"prompt\":\"x\",\"n_predict\":1,\"json_schema\":", "{\"items\":", "{}",
         "}", "}", SCHEMA_DEPTH},
        {"/completion", "{\"prompt\":\"x\",\"n_predict\":1,\"json_schema\":", "{\"anyOf\":[{},",
         "{}", "]}", "}", SCHEMA_DEPTH},
        {"/completion", "{\"prompt\":\"x\",\"n_predict\":1,\"json_schema\":{\"$ref\":\"#",
         "/properties/a", "\",\"properties\":{\"a\":{\"$ref\":\"#\"}}", "", "}}", SCHEMA_DEPTH},
        {"/completion",
         "{\"prompt\":\"x\",\"n_predict\":1,\"json_schema\":{\"type\":\"string\","
         "\"pattern\":\"^",
         "(a|", "b", "){1,9}", "$\"}}", 60},
        {"/completion", "{\"prompt\":\"x\",\"n_predict\":1,\"grammar\":\"root ::= ", "(", "[a-z]",
         ")*", "\"}", SCHEMA_DEPTH},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":",
         "[", "1", "]", "}", SCHEMA_DEPTH},
        {"/tokenize", "{\"content\":\"", "\\u0000", "", "", "\"}", DEPTH},
    };

    for (size_t i = 0; i < sizeof(bombs) / sizeof(*bombs); i++) {
        char *body = nested(bombs[i].first, bombs[i].one, bombs[i].middle, bombs[i].end,
                            bombs[i].last, bombs[i].depth);
        int fd = connect_port();
        http_send(fd, "POST", bombs[i].path, "Connection: close\r\n", body);
        attack_forbidden(!is_answered(fd, "HTTP/1.1 ", ANSWER_MS), bombs[i].path);
        close(fd);
        free(body);
        atomic_fetch_add(&a->done, 1);
    }
}

/* Streams that are dropped at their beginning, some with a reset. */
static void drop_streams(struct attack_state *a)
{
    static const char body[] = "{\"prompt\":\"import\",\"n_predict\":2000,\"stream\":true}";
    struct linger reset = {.l_onoff = 1};

    for (int i = 0; i < 20; i++) {
        struct pollfd p = {.fd = connect_port(), .events = POLLIN};
        http_send(p.fd, "POST", "/completion", "", body);
        poll(&p, 1, (int)random_below(&a->random, 30));
        if (i % 2)
            setsockopt(p.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(p.fd);
        atomic_fetch_add(&a->done, 1);
    }
}

/* Many requests on one connection, none of whose answers is read. */
static void pipeline(struct attack_state *a)
{
    static const char one[] = "GET /slots HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fd = connect_port();

    for (int i = 0; i < 2000; i++) {
        if (send(fd, one, sizeof(one) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) <= 0)
            break;
        atomic_fetch_add(&a->done, 1);
    }
    attack_sleep_us(100000);
    close(fd);
}

/* Bytes that are nearly a request. */
static void mutate(struct attack_state *a)
{
    static const char whole[] = HEAD "Content-Type: application/json\r\nContent-Length: 28\r\n\r\n"
                                     "{\"prompt\":\"x\",\"n_predict\":1}";
    char text[sizeof(whole)];

    for (int i = 0; i < 50; i++) {
        int fd = connect_port();
        memcpy(text, whole, sizeof(whole));
        for (uint32_t k = 1 + random_below(&a->random, 4); k > 0; k--)
            text[random_below(&a->random, sizeof(whole) - 1)] = (char)random_below(&a->random, 256);
        send(fd, text, random_below(&a->random, sizeof(whole)), MSG_NOSIGNAL);
        is_answered(fd, "HTTP", 2);
        close(fd);
        atomic_fetch_add(&a->done, 1);
    }
}

static const struct attack web_attacks[] = {
    {"half-open", "connections", 1, half_open, NULL},
    {"trickle", "connections", 1, trickle, NULL},
    {"smuggle", "ambiguous requests", 1, smuggle, NULL},
    {"bombs", "bodies", 1, bomb, NULL},
    {"dropped", "streams", 3, drop_streams, NULL},
    {"pipeline", "requests unread", 3, pipeline, NULL},
    {"mutate", "mutated requests", 6, mutate, NULL},
};
enum { WEB_ATTACKS = sizeof(web_attacks) / sizeof(*web_attacks) };

/* ---- the honest request ------------------------------------------------------------------------ */

static void ask(const char *want, uint32_t seed)
{
    char body[160];

    snprintf(body, sizeof(body),
             "{\"prompt\":\"import os\",\"n_predict\":%d,\"temperature\":0.8,\"top_k\":0,"
             "\"top_p\":1,\"min_p\":0,\"seed\":%u}",
             TOKENS, seed);
    json_t *o = rig_json("/completion", body);
    ck_assert_str_eq(json_text(o, "content"), want);
    json_decref(o);
}

/* Room for all half-open connections, as far as there is any: where there is none they have to time
 * out before the honest request is taken. */
static void setup(void)
{
    uint32_t n = number_of("HEARTH_HALF_OPEN", HALF_OPEN) + SPARE;
    char connections[16];

    snprintf(connections, sizeof(connections), "%u", n < CONNECTIONS_MAX ? n : CONNECTIONS_MAX);
    rig_setup();
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, true,
                  (const char *const[]){"--slots", "4", "--connections", connections, "--timeout",
                                        n < CONNECTIONS_MAX ? "120" : "2", NULL});
    state = honest_share(sizeof(*state));
}

/* Opens all of the gateway's slots at the daemon, which it keeps. */
static void open_slots(void)
{
    int fds[SLOTS];

    for (int i = 0; i < SLOTS; i++)
        fds[i] = rig_send_forever(",\"stream\":true");
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", SLOTS), SLOTS);
    for (int i = 0; i < SLOTS; i++)
        close(fds[i]);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_active", 0), 0);
}

/* The attack beside the honest request, over and over until both have had their share. */
static void run(const struct attack *attack, uint64_t times, const char *want)
{
    int status = 0;
    uint32_t answers = 0;
    pid_t pid = attack_start(attack, state, times), ended = 0;

    while (ended == 0 || answers < ANSWERS) {
        ask(want, 7);
        answers++;
        if (ended == 0)
            ended = waitpid(pid, &status, WNOHANG);
    }
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %x", attack->name,
                  status);
}

START_TEST(a_hostile_web_client_harms_only_itself)
{
    const struct attack *attack = &web_attacks[_i];
    char *want = rig_library_text("import os", 0.8f, 7, TOKENS);

    state->random = (uint32_t)_i + 1;
    open_slots();
    run(attack, 1, want); /* what is opened once is open now */
    gateway_wait_metric(&rig_gate, "hearth_http_connections", 1); /* ours */
    int fds = balance_fds(rig_gate.pid);
    int64_t kb = balance_resident_kb(rig_gate.pid);
    atomic_store(&state->done, 0);
    run(attack, (uint64_t)attack->times * number_of("HEARTH_GATEWAY", 1), want);
    gateway_wait_metric(&rig_gate, "hearth_http_connections", 1);
    gateway_wait_metric(&rig_gate, "hearth_http_running", 0);
    for (int i = 0; i < 6000 && balance_fds(rig_gate.pid) > fds; i++)
        usleep(10000);
    ck_assert_int_le(balance_fds(rig_gate.pid), fds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep freed memory */
    ck_assert_int_le(balance_resident_kb(rig_gate.pid), kb + ROOM_KB);
#endif
    (void)kb;
    printf("%s: %llu %s\n", attack->name, (unsigned long long)atomic_load(&state->done),
           attack->unit);
    fflush(stdout);
    free(want);
}
END_TEST

/* Processor time of the gateway, and of the thread of its loop alone. */
static uint64_t cpu_ns(void)
{
    clockid_t clock;
    struct timespec t;

    ck_assert_int_eq(clock_getcpuclockid(rig_gate.pid, &clock), 0);
    ck_assert_int_eq(clock_gettime(clock, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t loop_cpu_ns(void)
{
    char path[64];
    unsigned long long ns = 0;

    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/schedstat", (long)rig_gate.pid,
             (long)rig_gate.pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu", &ns), 1);
    fclose(file);
    return ns;
}

/* All clients share one loop: what one of them can make large is read, made and freed by a worker. */
START_TEST(the_loop_has_a_small_part_in_large_requests)
{
    static const struct {
        const char *path, *begin, *unit, *end;
        int status;
    } requests[] = {
        {"/tokenize", "{\"with_pieces\":true,\"content\":\"", "a b c ", "\"}", 200},
        {"/completion", "{\"junk\":[0", ",{\"a\":1}", "]}", 400},
    };
    char *body = malloc(LARGE_BYTES + 256);
    size_t n = (size_t)sprintf(body, "%s", requests[_i].begin);

    while (n < LARGE_BYTES)
        n += (size_t)sprintf(body + n, "%s", requests[_i].unit);
    sprintf(body + n, "%s", requests[_i].end);
    uint64_t all = cpu_ns(), loop = loop_cpu_ns();
    struct http_answer a = http_ask(&rig_gate, requests[_i].path, body);
    ck_assert_int_eq(a.status, requests[_i].status);
    gateway_wait_metric(&rig_gate, "hearth_http_connections", 1);
    all = cpu_ns() - all;
    loop = loop_cpu_ns() - loop;
    ck_assert_msg(loop < all / 16, "%s: %llu of %llu us are the loop's", requests[_i].path,
                  (unsigned long long)loop / 1000, (unsigned long long)all / 1000);
    http_answer_fini(&a);
    free(body);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *tcase = tcase_create("gateway");
    bool is_long = getenv("HEARTH_GATEWAY") || getenv("HEARTH_HALF_OPEN");

    tcase_set_timeout(tcase, is_long ? 36000 : 600);
    tcase_add_checked_fixture(tcase, setup, rig_teardown);
    for (int i = 0; i < (int)WEB_ATTACKS; i++)
        if (attack_chosen(&web_attacks[i]))
            tcase_add_loop_test(tcase, a_hostile_web_client_harms_only_itself, i, i + 1);
    tcase_add_loop_test(tcase, the_loop_has_a_small_part_in_large_requests, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
