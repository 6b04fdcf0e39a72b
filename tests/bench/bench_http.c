/* bench_http: what hearth-http adds to an answer of one token, on connections that stay open.
 *
 *   bench_http BIN_FOLDER MODEL...
 *
 * One daemon answers all sides in turns: the library directly, HTTP over a Unix socket, HTTP over
 * loopback. The prompt is warm on each side, so that an answer is one row.
 *
 *   bench_http --peer PORT MODEL_NAME
 *
 * times the same request at another server on that port, alone.
 */
#include "tests/bench/bench.h"
#include "tests/bench/served.h"

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

enum { ROUNDS = 2000, WARM = 200, PORT = 18765, PATH_BYTES = 108, PEER_KEPT = 50 };

static const double target_us = 150;
static const char prompt[] = "Once upon a time, there was a";
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
static void ask_http(int fd)
{
    static char request[512], answer[65536];
    static int bytes;
    if (!bytes) {
        char body[256];
        int n = snprintf(
            body, sizeof(body),
            "{\"prompt\":\"%s\",\"n_predict\":1,\"temperature\":0,\"cache_prompt\":true}", prompt);
        bytes = snprintf(request, sizeof(request),
                         "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         "application/json\r\nContent-Length: %d\r\n\r\n%s",
                         n, body);
    }
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

static uint64_t timed_http(int fd)
{
    uint64_t start = bench_ticks();
    ask_http(fd);
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

static void bench_model(const char *model)
{
    struct bench_samples direct, local, loopback;
    char path[PATH_BYTES];
    if (bench_samples_open(&direct, ROUNDS) || bench_samples_open(&local, ROUNDS) ||
        bench_samples_open(&loopback, ROUNDS))
        served_fail("out of memory");
    served_start(model, (const char *const[]){"--threads", "1", NULL});
    start_gateway(path);
    struct hearth *h = served_connect(1);
    int fd = connect_unix(path), tcp = connect_port(PORT);
    for (int i = -WARM; i < ROUNDS; i++) {
        uint64_t a = timed_library(h), b = timed_http(fd), c = timed_http(tcp);
        if (i < 0)
            continue;
        bench_add(&direct, a);
        bench_add(&local, b);
        bench_add(&loopback, c);
    }
    double floor_us = bench_percentile_us(&direct, 50);
    print("one_token_library", served_name(model), &direct, 0);
    print("one_token_http_unix", served_name(model), &local, floor_us);
    print("one_token_http_loopback", served_name(model), &loopback, floor_us);
    close(fd);
    close(tcp);
    hearth_close(h);
    stop_gateway();
    served_stop();
    bench_samples_close(&direct);
    bench_samples_close(&local);
    bench_samples_close(&loopback);
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
            ask_http(fd);
        }
        uint64_t t = timed_http(fd);
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
