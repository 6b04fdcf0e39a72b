/* util: errors, files, output and signals of `hearth`. */
#include "client/cli/cli.h"

#include "client/base/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_fail(int code, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    size_t bytes = n < 0 ? 0 : (size_t)n < sizeof(line) - 1 ? (size_t)n : sizeof(line) - 2;
    line[bytes] = 0;
    printable_mask(line); /* one line, whatever words and names it repeats */
    line[bytes] = '\n';
    /* Nothing can be done where stderr is gone too. */
    if (write(STDERR_FILENO, "hearth: ", 8) < 0 || write(STDERR_FILENO, line, bytes + 1) < 0)
        return code;
    return code;
}

int cli_no_memory(void)
{
    return cli_fail(CLI_SYSTEM, "out of memory: free some and try again");
}

int cli_exit_connect(int rc)
{
    switch (rc) {
    case -EBUSY:
    case -EAGAIN:
    case -EDQUOT:
        return CLI_BUSY;
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
    case -ENOSYS:
        return CLI_SYSTEM;
    case -EINVAL:
    case -ENAMETOOLONG:
        return CLI_USAGE;
    default:
        return CLI_NO_DAEMON;
    }
}

int cli_exit_request(int rc)
{
    switch (rc) {
    case -EINVAL:
    case -ERANGE:
    case -E2BIG:
    case -EFBIG:
    case -EOVERFLOW:
    case -EILSEQ:
    case -ENOTSUP:
    case -ENOSPC:
    case -EMSGSIZE:
    case -EDOM: /* the model's own numbers are not finite */
        return CLI_BAD_INPUT;
    case -EBUSY:
    case -EAGAIN:
    case -EDQUOT:
        return CLI_BUSY;
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -EPIPE:
    case -ESHUTDOWN:
        return CLI_NO_DAEMON;
    default:
        return CLI_SYSTEM;
    }
}

int cli_find_socket(const struct cli_options *o, char *ret, const char **ret_path, char *err,
                    size_t err_bytes)
{
    *ret_path = o->model ? ret : o->socket;
    return o->model ? hearth_find(o->model, ret, CLI_PATH_BYTES, err, err_bytes) : 0;
}

int cli_connect(const struct cli_options *o, uint32_t slots, struct hearth **ret_h)
{
    struct hearth_options options;
    hearth_options_init(&options, sizeof(options));
    options.slots = slots;
    options.slot_name = slots ? o->slot : NULL;
    options.resume_ms = o->resume_ms;
    char err[512], found[CLI_PATH_BYTES];
    const char *path;
    cli_stop_at_once(1);
    int rc = cli_find_socket(o, found, &path, err, sizeof(err));
    if (!rc)
        rc = hearth_connect(path, &options, ret_h, err, sizeof(err));
    if (slots)
        cli_stop_at_once(0);
    return rc ? cli_fail(cli_exit_connect(rc), "%s", err) : 0;
}

struct hearth_request cli_request(const struct cli_options *o)
{
    struct hearth_request request = o->request;
    request.bias = o->bias.items;
    request.n_bias = o->bias.n;
    request.stop_tokens = o->stop_tokens.items;
    request.n_stop_tokens = o->stop_tokens.n;
    request.stops = o->stops.items;
    request.n_stops = o->stops.n;
    return request;
}

/* ---- input and output ------------------------------------------------------------------------ */

int cli_read_all(int fd, struct buffer *ret)
{
    for (;;) {
        if (!buffer_reserve(ret, 16384))
            return -ENOMEM;
        ssize_t n = read(fd, ret->data + ret->bytes, ret->room - ret->bytes - 1);
        if (n == 0)
            return 0;
        if (n > 0) {
            ret->bytes += (size_t)n;
            ret->data[ret->bytes] = 0;
        } else if (errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
        else if (errno != EINTR)
            return -errno;
        if (cli_stop_requested())
            return -EINTR;
    }
}

int cli_read_file(const char *path, struct buffer *ret)
{
    int is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "stdin" : path;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : cli_read_all(fd, ret);
    if (!is_stdin && fd >= 0)
        close(fd);
    switch (rc) {
    case 0:
        return 0;
    case -EINTR:
        return CLI_INTERRUPTED;
    case -ENOMEM:
        return cli_fail(CLI_SYSTEM, "%s: out of memory: free some and try again", name);
    case -EBADF:
        return cli_fail(CLI_NO_INPUT, "%s is closed: give it a file or a pipe to read", name);
    default:
        return cli_fail(CLI_NO_INPUT, "%s: %s: check the path", name, strerror(-rc));
    }
}

int cli_write(int fd, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes) {
        ssize_t n = write(fd, p, bytes);
        if (n >= 0) {
            p += n;
            bytes -= (size_t)n;
            continue;
        }
        if (errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (errno != EINTR)
            return -errno;
        if (cli_stop_requested())
            return -EINTR;
    }
    return 0;
}

/* Returns 0, or -errno and leaves no new file. */
static int save_beside(const char *path, const void *data, size_t bytes)
{
    size_t room = strlen(path) + sizeof(".XXXXXX");
    char *beside = malloc(room);
    if (!beside)
        return -ENOMEM;
    snprintf(beside, room, "%s.XXXXXX", path);
    int fd = mkostemp(beside, O_CLOEXEC);
    int rc = fd < 0 ? -errno : cli_write(fd, data, bytes);
    if (fd >= 0 && close(fd) && !rc)
        rc = -errno;
    if (!rc && rename(beside, path))
        rc = -errno;
    if (rc && fd >= 0)
        (void)unlink(beside);
    free(beside);
    return rc;
}

static int save_into(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int rc = cli_write(fd, data, bytes);
    close(fd);
    return rc;
}

int cli_save(const char *path, const void *data, size_t bytes)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) ? save_into(path, data, bytes)
                                                        : save_beside(path, data, bytes);
}

int cli_exit_output(int rc)
{
    if (!rc)
        return CLI_OK;
    if (rc == -EPIPE || rc == -EINTR)
        return CLI_INTERRUPTED; /* no message: the user caused it */
    if (rc == -EBADF)
        return cli_fail(CLI_SYSTEM, "stdout is closed: redirect it to a file or a pipe");
    return cli_fail(CLI_SYSTEM, "cannot write the answer: %s: free space, or write elsewhere",
                    strerror(-rc));
}

int cli_print(struct buffer *out)
{
    int code = out->failed ? cli_no_memory()
                           : cli_exit_output(cli_write(STDOUT_FILENO, out->data, out->bytes));
    buffer_fini(out);
    return code;
}

int cli_open_standard(void)
{
    /* In the order of their numbers, as open() gives out the lowest. The wrong way round, so that
     * reading and writing still fail, as they do where nothing is open; stderr has no reader. */
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return -errno;
    return 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop_requested, stop_at_once;

static void on_signal(int number)
{
    (void)number;
    if (stop_at_once)
        _exit(CLI_INTERRUPTED);
    stop_requested = 1;
}

void cli_stop_at_once(int on)
{
    stop_at_once = on;
    if (on && stop_requested)
        _exit(CLI_INTERRUPTED);
}

int cli_stop_requested(void)
{
    return stop_requested;
}

void cli_catch_signals(void)
{
    /* No SA_RESTART: waits end with EINTR. Reset: a second signal does what it always does. */
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&stop.sa_mask);
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}
