/* bench_http: what hearth-http adds to an answer of one token, on connections that stay open.
 *
 *   bench_http BIN_FOLDER MODEL...
 *
 * One daemon answers all sides, in an order by chance: the library directly, HTTP over a Unix
 * socket, HTTP over loopback; and the same chat by the library and in each dialect of HTTP. The prompt is warm on each
 * side, so that an answer is one row. Where others want the cores, rows `over_library_...` say what
 * HTTP adds at the tenth percentile, and rows `processor_...` the processor time of the gateway's
 * thread for a request.
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
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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
    PEER_KEPT = 50
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

enum { CHATS = sizeof(chats) / sizeof(chats[0]), SIDES = 3 + 1 + CHATS };
static pid_t gateway;

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
        /* A server that sends headers and body separately without TCP_NODELAY waits for a delayed
         * ACK of up to 40 ms, which is not its computing time. */
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

/* One side: the library and HTTP's two ways, then a chat by the library and in each dialect. */
static uint64_t timed_side(struct hearth *h, int local, int loopback, int side)
{
    switch (side) {
    case 0:
        return timed_library(h);
    case 1:
        return timed_http(local, &completion);
    case 2:
        return timed_http(loopback, &completion);
    case 3:
        return timed_chat(h);
    default:
        return timed_http(local, &chats[side - 4]);
    }
}

/* Every side once, in an order by chance: what comes before a side decides what is still awake, or in
 * the cache. */
static void ask_all(struct hearth *h, int local, int loopback, uint64_t ticks[SIDES])
{
    static uint32_t state = 1;
    int order[SIDES];
    for (int k = 0; k < SIDES; k++) {
        int at = (int)random_below(&state, (uint32_t)k + 1);
        order[k] = order[at];
        order[at] = k;
    }
    for (int k = 0; k < SIDES; k++)
        ticks[order[k]] = timed_side(h, local, loopback, order[k]);
}

/* Sides 0 and 3 are the library's, over which the others are. */
static void print_all(const char *model, struct bench_samples samples[SIDES])
{
    static const char *const ways[] = {"one_token_library", "one_token_http_unix",
                                       "one_token_http_loopback", "one_token_chat_library"};
    for (int k = 0; k < SIDES; k++) {
        const char *what = k < 4 ? ways[k] : chats[k - 4].what;
        struct bench_samples *floor = &samples[k < 3 ? 0 : 3];
        int over = floor != &samples[k];
        print(what, model, &samples[k], over ? bench_percentile_us(floor, 50) : 0);
        if (over)
            print_us("over_library", what, model,
                     bench_percentile_us(&samples[k], 10) - bench_percentile_us(floor, 10));
    }
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
    struct hearth *h = served_connect(2);
    int local = connect_unix(path), loopback = connect_port(PORT);
    ask_http(local, &two);
    for (int i = -WARM; i < ROUNDS; i++) {
        ask_all(h, local, loopback, ticks);
        for (int k = 0; k < SIDES && i >= 0; k++)
            bench_add(&samples[k], ticks[k]);
    }
    print_all(served_name(model), samples);
    print_processor(served_name(model), local, &completion);
    for (int i = 0; i < CHATS; i++)
        print_processor(served_name(model), local, &chats[i]);
    close(local);
    close(loopback);
    hearth_close(h);
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
