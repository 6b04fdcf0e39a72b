/* bench_http: what hearth-http adds to an answer of one token, on connections that stay open.
 *
 *   bench_http BIN_FOLDER MODEL...
 *
 * One daemon answers all sides, in an order by chance: the library directly, HTTP over a Unix
 * socket, HTTP over loopback; and the same chat by the library and in each dialect of HTTP. The
 * prompt is warm on each side, so that an answer is one row. Where others want the cores, rows
 * `over_library_...` say what HTTP adds at the tenth percentile, and rows `processor_...` the
 * processor time of the gateway's thread for a request. Rows `echo_...` are what a socket takes by
 * itself: as many bytes there and back between two processes that do nothing else.
 *
 *   bench_http --peer PORT MODEL_NAME
 *
 * times the same request at another server on that port, alone.
 */
#include "tests/bench/bench.h"
#include "tests/bench/served.h"
#include "tests/random.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    ROUNDS = 2000,
    PROCESSOR_ROUNDS = 1000,
    WARM = 200,
    PORT = 18765,
    PATH_BYTES = 108,
    PEER_KEPT = 50,
    ECHO_REQUEST = 203, /* bytes of a completion's request */
    ECHO_BYTES = 1335   /* and of its answer */
};

static const double target_us = 60;
static const char prompt[] = "Once upon a time, there was a", family[] = "chatml";

#define MESSAGES "[{\"role\":\"user\",\"content\":\"Once upon a time, there was a\"}]"

struct ask {
    const char *what, *path, *body;
};

static const struct ask completion = {
    "one_token_http_unix", "/completion",
    "{\"prompt\":\"Once upon a time, there was a\",\"n_predict\":1,\"temperature\":0,"
    "\"cache_prompt\":true,\"id_slot\":0}"};

static const struct ask chats[] = {
    {"one_token_chat", "/v1/chat/completions",
     "{\"messages\":" MESSAGES ",\"max_tokens\":1,\"temperature\":0,\"id_slot\":1}"},
    {"one_token_messages", "/v1/messages",
     "{\"model\":\"m\",\"messages\":" MESSAGES
     ",\"max_tokens\":1,\"temperature\":0,\"id_slot\":1}"},
    {"one_token_responses", "/v1/responses",
     "{\"model\":\"m\",\"input\":" MESSAGES
     ",\"max_output_tokens\":1,\"temperature\":0,\"id_slot\":1}"},
    {"one_token_ollama", "/api/chat",
     "{\"model\":\"m\",\"messages\":" MESSAGES
     ",\"stream\":false,\"options\":{\"num_predict\":1,\"temperature\":0},\"id_slot\":1}"},
};

/* Opens the gateway's second handle, so that completions and chats each have theirs and stay warm. */
static const struct ask two = {"two", "/completion",
                               "{\"prompt\":[\"Once\",\"There\"],\"n_predict\":64}"};

enum { CHATS = sizeof(chats) / sizeof(chats[0]), ECHOES = 3 + 1 + CHATS, SIDES = ECHOES + 2 };
static pid_t gateway;
static bool is_peer;

static void start_gateway(char *path)
{
    char port[16];
    snprintf(path, PATH_BYTES, "%.90s.http", served_socket());
    snprintf(port, sizeof(port), "%d", PORT);
    const char *arguments[] = {served_program("hearth-http"),
                               "--socket",
                               served_socket(),
                               "--listen",
                               path,
                               "--port",
                               port,
                               "--chat-template",
                               family,
                               NULL};
    if (posix_spawn(&gateway, arguments[0], NULL, NULL, (char **)(uintptr_t)arguments, environ) !=
        0)
        served_fail("cannot start hearth-http");
    for (int i = 0; i < 5000 && access(path, F_OK) < 0; i++)
        usleep(1000);
    usleep(200000);
}

static void stop_gateway(void)
{
    int status;
    kill(gateway, SIGTERM);
    waitpid(gateway, &status, 0);
}

static int connect_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        served_fail("hearth-http does not listen at its socket");
    return fd;
}

static int connect_port(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        served_fail("no server listens on the port");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* One request and its whole answer. */
static void ask_http(int fd, const struct ask *ask)
{
    static char request[512], answer[65536];
    int bytes = snprintf(request, sizeof(request),
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         ask->path, strlen(ask->body), ask->body);
    if (send(fd, request, (size_t)bytes, MSG_NOSIGNAL) != bytes)
        served_fail("the server hung up");
    size_t got = 0, all = 0;
    while (!all || got < all) {
        /* A peer that sends headers and body separately without TCP_NODELAY waits for a delayed
         * ACK of up to 40 ms, which is not its computing time. */
        if (is_peer)
            (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
        ssize_t n = recv(fd, answer + got, sizeof(answer) - 1 - got, 0);
        if (n <= 0)
            served_fail("the server hung up");
        got += (size_t)n;
        answer[got] = 0;
        const char *end = strstr(answer, "\r\n\r\n");
        const char *length = end ? strcasestr(answer, "content-length:") : NULL;
        if (length)
            all = (size_t)(end + 4 - answer) + strtoul(length + 15, NULL, 10);
    }
    if (!strstr(answer, " 200 OK"))
        served_fail(answer);
}

/* A process that answers whatever comes with as many bytes as a completion has: what two programs pay
 * for a request by a socket, whatever they are. Returns our end. */
static int start_echo(bool is_tcp)
{
    int ends[2], listener = -1;
    if (is_tcp) {
        struct sockaddr_in at = {.sin_family = AF_INET};
        socklen_t bytes = sizeof(at);
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(listener, 1) < 0 ||
            getsockname(listener, (struct sockaddr *)&at, &bytes) < 0)
            served_fail("no port for an echo");
        ends[0] = connect_port(ntohs(at.sin_port));
        ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        (void)setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        close(listener);
    } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        served_fail("no socket for an echo");
    }
    pid_t pid = fork();
    if (pid < 0)
        served_fail("no process for an echo");
    if (pid == 0) {
        static char bytes[ECHO_BYTES];
        struct epoll_event event = {.events = EPOLLIN};
        int loop = epoll_create1(EPOLL_CLOEXEC);
        close(ends[0]);
        (void)epoll_ctl(loop, EPOLL_CTL_ADD, ends[1], &event);
        while (epoll_wait(loop, &event, 1, -1) == 1 && recv(ends[1], bytes, sizeof(bytes), 0) > 0)
            (void)send(ends[1], bytes, sizeof(bytes), MSG_NOSIGNAL);
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

static uint64_t timed_echo(int fd)
{
    static char bytes[ECHO_BYTES];
    uint64_t start = bench_ticks();
    if (send(fd, bytes, ECHO_REQUEST, MSG_NOSIGNAL) != ECHO_REQUEST ||
        recv(fd, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes))
        served_fail("the echo hung up");
    return bench_ticks() - start;
}

static uint64_t timed_http(int fd, const struct ask *ask)
{
    uint64_t start = bench_ticks();
    ask_http(fd, ask);
    return bench_ticks() - start;
}

static uint64_t timed_library(struct hearth *h)
{
    struct hearth_request r;
    uint64_t start = bench_ticks();
    hearth_request_init(&r, sizeof(r));
    r.text = prompt;
    r.text_bytes = sizeof(prompt) - 1;
    r.max_tokens = 1;
    (void)served_ask(h, 0, &r);
    return bench_ticks() - start;
}

/* The same chat through the library. */
static uint64_t timed_chat(struct hearth *h)
{
    uint32_t ids[256];
    struct hearth_chat chat;
    struct hearth_request r;
    uint64_t start = bench_ticks();
    hearth_chat_init(&chat, sizeof(chat));
    chat.messages = MESSAGES;
    chat.messages_bytes = sizeof(MESSAGES) - 1;
    chat.chat_template = family;
    chat.chat_template_bytes = sizeof(family) - 1;
    int64_t n = hearth_chat_tokens(h, &chat, ids, sizeof(ids) / sizeof(ids[0]));
    if (n < 0)
        served_fail(hearth_error(h));
    hearth_request_init(&r, sizeof(r));
    r.tokens = ids;
    r.n_tokens = (uint32_t)n;
    r.max_tokens = 1;
    (void)served_ask(h, 1, &r);
    return bench_ticks() - start;
}

static void print_us(const char *kind, const char *what, const char *model, double us)
{
    char name[64];
    snprintf(name, sizeof(name), "%s_%s", kind, what);
    bench_print_ratio(&(struct bench_ratio){
        .bench = "http", .what = name, .model = model, .x = us, .note = "us"});
}

static void print(const char *what, const char *model, struct bench_samples *s, double floor_us)
{
    struct bench_row row = {.bench = "http",
                            .what = what,
                            .clients = 1,
                            .floor_us = floor_us,
                            .target_p50_us = floor_us > 0 ? floor_us + target_us : 0,
                            .note = model};
    bench_print_samples(row, s);
}

struct ways {
    struct hearth *h;
    int local, loopback, echo[2];
};

/* One side: the library and HTTP's two ways, a chat by the library and in each dialect, then no
 * more than a socket of either kind. */
static uint64_t timed_side(const struct ways *ways, int side)
{
    switch (side) {
    case 0:
        return timed_library(ways->h);
    case 1:
        return timed_http(ways->local, &completion);
    case 2:
        return timed_http(ways->loopback, &completion);
    case 3:
        return timed_chat(ways->h);
    default:
        return side < ECHOES ? timed_http(ways->local, &chats[side - 4])
                             : timed_echo(ways->echo[side - ECHOES]);
    }
}

/* Every side once, in an order by chance: what comes before a side decides what is still awake, or in
 * the cache. */
static void ask_all(const struct ways *ways, uint64_t ticks[SIDES])
{
    static uint32_t state = 1;
    int order[SIDES];
    for (int k = 0; k < SIDES; k++) {
        int at = (int)random_below(&state, (uint32_t)k + 1);
        order[k] = order[at];
        order[at] = k;
    }
    for (int k = 0; k < SIDES; k++)
        ticks[order[k]] = timed_side(ways, order[k]);
}

/* Sides 0 and 3 are the library's, over which the others are. */
static void print_all(const char *model, struct bench_samples samples[SIDES])
{
    static const char *const ways[] = {"one_token_library", "one_token_http_unix",
                                       "one_token_http_loopback", "one_token_chat_library"};
    for (int k = 0; k < ECHOES; k++) {
        const char *what = k < 4 ? ways[k] : chats[k - 4].what;
        struct bench_samples *floor = &samples[k < 3 ? 0 : 3];
        int over = floor != &samples[k];
        print(what, model, &samples[k], over ? bench_percentile_us(floor, 50) : 0);
        if (over)
            print_us("over_library", what, model,
                     bench_percentile_us(&samples[k], 10) - bench_percentile_us(floor, 10));
    }
    print("echo_unix", "bytes of a completion", &samples[ECHOES], 0);
    print("echo_loopback", "bytes of a completion", &samples[ECHOES + 1], 0);
}

/* Processor time of the gateway's first thread, which does all but long texts. */
static uint64_t gateway_ns(void)
{
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)gateway);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%llu", &ns) != 1)
        served_fail("cannot read the gateway's processor time");
    fclose(file);
    return ns;
}

static void print_processor(const char *model, int fd, const struct ask *ask)
{
    uint64_t begin = gateway_ns();
    for (int i = 0; i < PROCESSOR_ROUNDS; i++)
        ask_http(fd, ask);
    print_us("processor", ask->what, model,
             (double)(gateway_ns() - begin) / 1000 / PROCESSOR_ROUNDS);
}

static void bench_model(const char *model)
{
    struct bench_samples samples[SIDES];
    uint64_t ticks[SIDES];
    char path[PATH_BYTES];
    for (int k = 0; k < SIDES; k++)
        if (bench_samples_open(&samples[k], ROUNDS))
            served_fail("out of memory");
    served_start(model, (const char *const[]){"--threads", "1", NULL});
    start_gateway(path);
    struct ways ways = {.h = served_connect(2),
                        .local = connect_unix(path),
                        .loopback = connect_port(PORT),
                        .echo = {start_echo(false), start_echo(true)}};
    ask_http(ways.local, &two);
    for (int i = -WARM; i < ROUNDS; i++) {
        ask_all(&ways, ticks);
        for (int k = 0; k < SIDES && i >= 0; k++)
            bench_add(&samples[k], ticks[k]);
    }
    print_all(served_name(model), samples);
    print_processor(served_name(model), ways.local, &completion);
    for (int i = 0; i < CHATS; i++)
        print_processor(served_name(model), ways.local, &chats[i]);
    close(ways.local);
    close(ways.loopback);
    for (int i = 0; i < 2; i++)
        close(ways.echo[i]);
    (void)wait(NULL);
    (void)wait(NULL);
    hearth_close(ways.h);
    stop_gateway();
    served_stop();
    for (int k = 0; k < SIDES; k++)
        bench_samples_close(&samples[k]);
}

static void bench_peer(int port, const char *model)
{
    struct bench_samples s;
    if (bench_samples_open(&s, ROUNDS))
        served_fail("out of memory");
    int fd = -1;
    for (int i = -WARM; i < ROUNDS; i++) {
        if (i % PEER_KEPT == 0) { /* some servers close a connection after a number of requests */
            if (fd >= 0)
                close(fd);
            fd = connect_port(port);
            ask_http(fd, &completion);
        }
        uint64_t t = timed_http(fd, &completion);
        if (i >= 0)
            bench_add(&s, t);
    }
    print("one_token_peer", model, &s, 0);
    close(fd);
    bench_samples_close(&s);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--peer") == 0) {
        is_peer = true;
        bench_peer(atoi(argv[2]), argv[3]);
        return 0;
    }
    if (argc < 3)
        return fprintf(stderr, "usage: bench_http BIN_FOLDER MODEL...\n"), 64;
    served_init(argv[1]);
    for (int i = 2; i < argc; i++)
        bench_model(argv[i]);
    served_fini();
    return 0;
}
