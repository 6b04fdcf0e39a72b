/* chat_line: lines from a terminal: by readline where it is installed, else plainly.
 *
 * readline is opened by name when a conversation begins: linked, it would cost every start of
 * `hearth run` the time to load it and what it needs. */
#include "client/cli/chat.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What is taken from libreadline.so.8, whose interface is stable within its number. */
static struct {
    char *(*readline)(const char *prompt);
    void (*add_history)(const char *line);
    void (*replace_line)(const char *text, int clear_undo);
    int (*on_new_line)(void);
    void (*redisplay)(void);
    void (*cleanup_after_signal)(void);
    FILE **outstream;
    int *catch_signals;
    int (**getc_function)(FILE *from);
    char **readline_name;
} lib;

static volatile sig_atomic_t interrupted;
static struct buffer pending; /* plain lines: read, not given out yet */

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Clears the flag only after it has seen it: a signal in between is seen next time. */
int chat_line_interrupted(void)
{
    if (!interrupted)
        return 0;
    interrupted = 0;
    return 1;
}

/* Ctrl-C gives an empty line, SIGTERM ends the program with the terminal as it was. */
static void after_signal(void)
{
    if (cli_stop_requested()) {
        lib.cleanup_after_signal();
        _exit(CLI_INTERRUPTED);
    }
    if (!chat_line_interrupted())
        return;
    (void)cli_write(STDERR_FILENO, "\n", 1);
    lib.replace_line("", 0);
    lib.on_new_line();
    lib.redisplay();
}

static sigset_t outside; /* the signals that were blocked before a line is read */

/* read() with signals unblocked only while it waits: none is lost between the check for one and the
 * wait. A pending signal is handled before keys that were typed after it. */
static ssize_t read_keys(int fd, char *to, size_t bytes)
{
    struct pollfd keys = {.fd = fd, .events = POLLIN};
    const struct timespec now = {0};
    if (ppoll(NULL, 0, &now, &outside) < 0 || ppoll(&keys, 1, NULL, &outside) < 0)
        return -1;
    return read(fd, to, bytes);
}

/* A key for readline. */
static int get_key(FILE *from)
{
    char byte;
    for (;;) {
        ssize_t bytes = read_keys(fileno(from), &byte, 1);
        if (bytes == 1)
            return (unsigned char)byte;
        if (bytes == 0 || (errno != EINTR && errno != EAGAIN))
            return EOF;
        after_signal();
    }
}

/* Returns whether everything is there. */
static int load_readline(void)
{
    const struct {
        const char *name;
        void *at; /* of a pointer in lib */
    } symbols[] = {
        {"readline", &lib.readline},
        {"add_history", &lib.add_history},
        {"rl_replace_line", &lib.replace_line},
        {"rl_on_new_line", &lib.on_new_line},
        {"rl_redisplay", &lib.redisplay},
        {"rl_cleanup_after_signal", &lib.cleanup_after_signal},
        {"rl_outstream", &lib.outstream},
        {"rl_catch_signals", &lib.catch_signals},
        {"rl_getc_function", &lib.getc_function},
        {"rl_readline_name", &lib.readline_name},
    };
    void *handle = dlopen("libreadline.so.8", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol)
            return 0;
        memcpy(symbols[i].at, &symbol, sizeof(symbol));
    }
    return handle != NULL;
}

void chat_line_open(void)
{
    static char name[] = "hearth";
    struct sigaction interrupt = {.sa_handler = on_interrupt};
    sigemptyset(&interrupt.sa_mask);
    sigaction(SIGINT, &interrupt, NULL);
    if (!load_readline()) {
        memset(&lib, 0, sizeof(lib));
        (void)cli_fail(CLI_OK, "lines cannot be edited: install libreadline8 for that");
        return;
    }
    *lib.outstream = stderr; /* stdout holds answers only */
    *lib.catch_signals = 0;
    *lib.getc_function = get_key;
    *lib.readline_name = name;
}

static int read_with_readline(const char *prompt, struct buffer *ret)
{
    char *line = lib.readline(prompt);
    if (!line)
        return 0;
    if (*line)
        lib.add_history(line);
    buffer_text(ret, line);
    free(line);
    return ret->failed ? -ENOMEM : 1;
}

/* Gives out the first line of `pending`, or with `all` what is there. Returns 1, or 0 for none. */
static int take_pending(struct buffer *ret, int all)
{
    char *end = pending.bytes ? memchr(pending.data, '\n', pending.bytes) : NULL;
    if (!end && (!all || !pending.bytes))
        return 0;
    size_t bytes = end ? (size_t)(end - pending.data) : pending.bytes;
    buffer_add(ret, pending.data, bytes);
    bytes += end != NULL;
    memmove(pending.data, pending.data + bytes, pending.bytes - bytes);
    pending.bytes -= bytes;
    return 1;
}

static int read_plainly(const char *prompt, struct buffer *ret)
{
    char piece[4096];
    (void)cli_write(STDERR_FILENO, prompt, strlen(prompt));
    while (!take_pending(ret, 0)) {
        ssize_t n = read_keys(STDIN_FILENO, piece, sizeof(piece));
        if (n > 0) {
            buffer_add(&pending, piece, (size_t)n);
        } else if (n == 0) {
            return take_pending(ret, 1);
        } else if (errno != EINTR) {
            return -errno;
        } else if (cli_stop_requested()) {
            return -EINTR;
        } else if (chat_line_interrupted()) {
            pending.bytes = 0;
            (void)cli_write(STDERR_FILENO, "\n", 1);
            (void)cli_write(STDERR_FILENO, prompt, strlen(prompt));
        }
    }
    return ret->failed || pending.failed ? -ENOMEM : 1;
}

int chat_line_read(const char *prompt, struct buffer *ret)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    ret->bytes = 0;
    sigprocmask(SIG_BLOCK, &blocked, &outside);
    (void)chat_line_interrupted(); /* a Ctrl-C from before this line is forgotten */
    int rc = cli_stop_requested() ? -EINTR
             : lib.readline       ? read_with_readline(prompt, ret)
                                  : read_plainly(prompt, ret);
    sigprocmask(SIG_SETMASK, &outside, NULL);
    return rc;
}
