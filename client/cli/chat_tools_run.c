/* chat_tools_run: a call of a program: asked about, run, and what it wrote. */
#include "client/cli/chat_tools.h"

#include "client/base/printable.h"
#include "client/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50, SCREEN_BYTES = 1000 };

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* ---- may it run? ----------------------------------------------------------------------------- */

/* In quotes as a shell takes them, so that no argument looks like several. */
static void show_word(struct buffer *line, const char *word)
{
    buffer_text(line, " '");
    for (size_t n; *word; word += n) {
        n = *word == '\'' ? 1 : strcspn(word, "'");
        if (*word == '\'')
            buffer_text(line, "'\\''");
        else
            printable_add(line, word, n, "");
    }
    buffer_text(line, "'");
}

/* What is longer than a small screen could push its own beginning off it, and end as another call
 * would: the program stands on the last line, too. */
static void show_call(char *const *argv)
{
    struct buffer line = {0};
    buffer_text(&line, "run ");
    printable_add(&line, argv[0], strlen(argv[0]), "");
    for (size_t i = 1; argv[i]; i++)
        show_word(&line, argv[i]);
    if (line.bytes > SCREEN_BYTES) {
        buffer_text(&line, "\nrun ");
        printable_add(&line, argv[0], strlen(argv[0]), "");
        buffer_text(&line, " with all these arguments");
    }
    buffer_text(&line, " ? [y/N] ");
    if (!line.failed)
        (void)cli_write(STDERR_FILENO, line.data, line.bytes);
    buffer_fini(&line);
}

/* A line from the terminal says y or yes. Anything else is no: an end, a signal, Ctrl-C. What was
 * typed before the question is not an answer to it. */
static int is_allowed(char *const *argv, int (*interrupted)(void))
{
    char line[4096]; /* as long as a terminal's: what is left of one would be a message */
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    (void)tcflush(STDIN_FILENO, TCIFLUSH); /* also a line that has no end yet */
    show_call(argv);
    while (poll(&keys, 1, LOOK_MS) < 1)
        if (cli_stop_requested() || interrupted()) {
            (void)cli_write(STDERR_FILENO, "\n", 1);
            return 0;
        }
    ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);
    line[n > 0 ? n : 0] = 0;
    return strcasecmp(line, "y\n") == 0 || strcasecmp(line, "yes\n") == 0;
}

/* ---- the program ----------------------------------------------------------------------------- */

static void set_signals(void)
{
    sigset_t none;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&none);
    for (int i = 1; i < NSIG; i++)
        (void)sigaction(i, &usual, NULL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the child. The environment is the same on every machine, but for the home. */
static void become(char *const *argv, int out)
{
    static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", lang[] = "LANG=C.UTF-8";
    char home[4096 + 8];
    const char *user_home = getenv("HOME");
    snprintf(home, sizeof(home), "HOME=%.4096s", user_home ? user_home : "/");
    char *const environment[] = {path, lang, home, NULL};
    int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where a closed terminal ends us */
    set_signals();
    if (none >= 0 && dup2(none, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0 && close_range(3, ~0U, 0) == 0)
        execve(argv[0], argv, environment);
    dprintf(STDOUT_FILENO, "not run: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Its exit code is not fetched: its number stays its own until it is. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == pid;
}

/* Reads what it writes, up to the limits; one that closes its output may still have work to do.
 * Returns why it was killed, or NULL. */
static const char *watch(pid_t pid, int out, struct buffer *text, int (*interrupted)(void))
{
    uint64_t end = now_ms() + CHAT_TOOLS_MS;
    struct pollfd p = {.fd = out, .events = POLLIN};
    char piece[4096];
    const char *why = NULL;
    while (!why) {
        if (poll(&p, 1, LOOK_MS) == 1) {
            ssize_t n = read(out, piece, sizeof(piece));
            size_t room = CHAT_TOOLS_BYTES - text->bytes;
            if (n == 0 || (n < 0 && errno != EINTR))
                p.fd = -1;
            buffer_add(text, piece, n < 0 ? 0 : (size_t)n < room ? (size_t)n : room);
            if (n > 0 && (size_t)n > room)
                why = "its output was cut, and it was killed: more than 64 KiB";
        }
        if (p.fd < 0 && has_ended(pid))
            break;
        if (!why && now_ms() >= end)
            why = "it was killed: it ran for more than 30 seconds";
        if (!why && (interrupted() || cli_stop_requested()))
            why = "it was killed by the user";
    }
    /* Whatever it has left behind goes, too. */
    (void)kill(-pid, SIGKILL);
    return why;
}

/* Only texts can be given to a model: what is none becomes question marks. */
static void make_text(char *text, size_t bytes)
{
    uint32_t code;
    for (size_t i = 0; i < bytes;) {
        int n = text[i] ? utf8_step(text + i, bytes - i, &code) : 0;
        if (n <= 0)
            text[i] = '?';
        i += n > 0 ? (size_t)n : 1;
    }
}

/* A terminal that is closed ends a call as SIGTERM does: whatever the program has started goes with
 * it. Unless that signal is ignored, as below nohup. */
static void catch_hangup(struct sigaction *ret_old)
{
    struct sigaction stop;
    (void)sigaction(SIGHUP, NULL, ret_old);
    if (ret_old->sa_handler == SIG_DFL && sigaction(SIGTERM, NULL, &stop) == 0)
        (void)sigaction(SIGHUP, &stop, NULL);
}

static char *run(char *const *argv, int (*interrupted)(void))
{
    struct buffer text = {0};
    struct sigaction hangup;
    int pipes[2], status = 0;
    if (pipe2(pipes, O_CLOEXEC))
        return strdup("not run: no more files can be opened");
    catch_hangup(&hangup);
    pid_t pid = fork();
    if (pid == 0)
        become(argv, pipes[1]);
    close(pipes[1]);
    if (pid < 0) {
        (void)sigaction(SIGHUP, &hangup, NULL);
        close(pipes[0]);
        return strdup("not run: no more processes can be made");
    }
    (void)setpgid(pid, pid); /* whichever of the two is first */
    const char *why = watch(pid, pipes[0], &text, interrupted);
    (void)sigaction(SIGHUP, &hangup, NULL);
    close(pipes[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    make_text(text.data, text.bytes);
    if (why)
        buffer_format(&text, "\n[%s]", why);
    else if (WIFEXITED(status) && WEXITSTATUS(status))
        buffer_format(&text, "\n[exit code %d]", WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        buffer_format(&text, "\n[ended by signal %d]", WTERMSIG(status));
    else if (!text.bytes)
        buffer_text(&text, "[no output]");
    if (text.failed) {
        buffer_fini(&text);
        return NULL;
    }
    return text.data;
}

char *chat_tools_call(const struct chat_tools *t, const char *name, const char *arguments,
                      int (*interrupted)(void))
{
    char err[300] = "not run: out of memory";
    char **argv = chat_tools_argv(t, name, arguments, err, sizeof(err));
    if (!argv) {
        struct buffer line = {0};
        make_text(err, strlen(err)); /* the model's words may be cut within a character */
        printable_add(&line, err, strlen(err), "");
        (void)cli_fail(CLI_OK, "%s", line.data ? line.data : err);
        buffer_fini(&line);
        return strdup(err);
    }
    char *text = is_allowed(argv, interrupted) ? run(argv, interrupted)
                                               : strdup("not run: the user did not allow it");
    chat_tools_free(argv);
    return text;
}
