/* top: `hearth top`: asks the daemon, or all that run, every interval, draws, and gives the terminal back as it
 * was, however it ends. */
#include "client/cli/top_frame.h"
#include "client/lib/daemons.h"
#include "ipc/bell.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* ---- the terminal: also from signal handlers, so system calls only ---------------------------- */

static struct {
    struct termios before; /* as we found it */
    int keys;              /* stdin is a terminal: keys come without Return, and are not shown */
    volatile sig_atomic_t ours;
} terminal;

static volatile sig_atomic_t resized;

static void write_terminal(const char *text, size_t bytes)
{
    if (write(STDOUT_FILENO, text, bytes) < 0)
        return; /* the terminal is gone */
}

static void enter_terminal(void)
{
    static const char enter[] = "\033[?1049h\033[?25l"; /* the other screen, no cursor */
    struct termios cbreak = terminal.before;
    cbreak.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* signals by keys stay */
    cbreak.c_cc[VMIN] = 1;
    cbreak.c_cc[VTIME] = 0;
    terminal.ours = 1;
    if (terminal.keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &cbreak);
    write_terminal(enter, sizeof(enter) - 1);
    resized = 1;
}

static void leave_terminal(void)
{
    static const char leave[] = "\033[m\033[?25h\033[?1049l";
    if (!terminal.ours)
        return;
    terminal.ours = 0;
    write_terminal(leave, sizeof(leave) - 1);
    if (terminal.keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.before);
}

static void on_end(int number)
{
    (void)number;
    leave_terminal();
    _exit(CLI_INTERRUPTED);
}

static void on_crash(int number)
{
    leave_terminal();
    raise(number); /* its handler is the system's again (SA_RESETHAND), and runs when we return */
}

static void on_suspend(int number)
{
    int error = errno;
    (void)number;
    leave_terminal();
    raise(SIGSTOP); /* until `fg` */
    enter_terminal();
    errno = error;
}

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

static void catch_signals(void)
{
    static const struct {
        int number, flags;
        void (*handler)(int);
    } ways[] = {{SIGINT, 0, on_end},
                {SIGTERM, 0, on_end},
                {SIGHUP, 0, on_end},
                {SIGQUIT, 0, on_end},
                {SIGTSTP, SA_RESTART, on_suspend},
                {SIGWINCH, SA_RESTART, on_resize},
                {SIGABRT, (int)SA_RESETHAND, on_crash},
                {SIGSEGV, (int)SA_RESETHAND, on_crash},
                {SIGBUS, (int)SA_RESETHAND, on_crash},
                {SIGFPE, (int)SA_RESETHAND, on_crash},
                {SIGILL, (int)SA_RESETHAND, on_crash}};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct sigaction action = {.sa_handler = ways[i].handler, .sa_flags = ways[i].flags};
        sigfillset(&action.sa_mask); /* one at a time: the terminal has one state */
        sigaction(ways[i].number, &action, NULL);
    }
}

/* Waits until `due_ns`, a key, or a resize, whichever is first. Returns 'q' for a key that leaves,
 * else 0. */
static int wait_key(uint64_t now_ns, uint64_t due_ns)
{
    struct pollfd keys = {.fd = terminal.keys ? STDIN_FILENO : -1, .events = POLLIN};
    uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    struct timespec left = {(time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000)};
    sigset_t resize, before;
    char key[16];
    sigemptyset(&resize);
    sigaddset(&resize, SIGWINCH);
    sigprocmask(SIG_BLOCK, &resize, &before); /* one that comes now ends the wait, too */
    int n = resized ? 0 : ppoll(&keys, 1, &left, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (n <= 0)
        return 0;
    ssize_t bytes = read(STDIN_FILENO, key, sizeof(key));
    if (bytes <= 0)
        terminal.keys = 0; /* stdin has ended */
    for (ssize_t i = 0; i < bytes; i++)
        if (key[i] == 'q' || key[i] == 'Q' || key[i] == 3)
            return 'q';
    return 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            *text = '?';
}

/* The names that this machine has for a slot's user and process. */
static void look_up(struct top_slot *slot)
{
    const struct passwd *user = getpwuid((uid_t)slot->uid);
    char path[48];
    if (user) {
        snprintf(slot->user, sizeof(slot->user), "%s", user->pw_name);
        clean(slot->user);
    }
    snprintf(path, sizeof(path), "/proc/%llu/comm", (unsigned long long)slot->pid);
    FILE *file = slot->pid ? fopen(path, "re") : NULL;
    if (file && fgets(slot->command, sizeof(slot->command), file)) {
        slot->command[strcspn(slot->command, "\n")] = 0;
        clean(slot->command);
    }
    if (file)
        fclose(file);
}

struct top_daemon {
    char name[DAEMONS_NAME_BYTES]; /* of its socket */
    char path[CLI_PATH_BYTES];     /* "": as the options say */
    struct hearth *h;              /* NULL: away */
    struct top_sample now, before; /* at_ns 0: not read yet */
    char trouble[256];             /* why no newer sample could be read, or "" */
    int is_listed;
};

/* One daemon, or as many as run. */
struct top {
    const struct cli_options *o;
    struct top_daemon *daemons; /* [n] */
    size_t n;
};

static void forget(struct top_daemon *d)
{
    if (d->h)
        hearth_close(d->h);
    d->h = NULL;
}

static void daemon_fini(struct top_daemon *d)
{
    forget(d);
    top_sample_fini(&d->now);
    top_sample_fini(&d->before);
}

/* Connects, unless it is. Returns 0, or -errno with the reason in d->trouble. */
static int connect_daemon(const struct cli_options *o, struct top_daemon *d)
{
    struct hearth_options options;
    char found[CLI_PATH_BYTES];
    const char *path = d->path;
    int rc = 0;
    if (d->h)
        return 0;
    hearth_options_init(&options, sizeof(options));
    options.slots = 0;
    if (d->path[0])
        options.connect_timeout_ms = 1000; /* one that hangs holds the others up */
    else
        rc = cli_find_socket(o, found, &path, d->trouble, sizeof(d->trouble));
    return rc ? rc : hearth_connect(path, &options, &d->h, d->trouble, sizeof(d->trouble));
}

/* Asks for the next sample. Returns 0, or -errno with the reason in d->trouble and no sample. */
static int ask(const struct cli_options *o, struct top_daemon *d)
{
    static char json[65536]; /* the most that the daemon sends */
    struct top_sample next;
    int rc = connect_daemon(o, d);
    if (rc)
        return rc;
    int64_t n = hearth_status(d->h, json, sizeof(json));
    if (n < 0) {
        snprintf(d->trouble, sizeof(d->trouble), "%s", hearth_error(d->h));
        forget(d);
        return (int)n;
    }
    rc = top_sample_read(json, (size_t)n < sizeof(json) ? (size_t)n : sizeof(json) - 1,
                         bell_now_ns(), &next);
    if (rc) {
        top_sample_fini(&next);
        snprintf(d->trouble, sizeof(d->trouble), "%s",
                 rc == -ENOMEM ? "out of memory: free some"
                               : "the daemon's status is not understood: use hearth and hearthd of "
                                 "the same version");
        return rc;
    }
    top_sample_fini(&d->before);
    d->before = d->now;
    d->now = next;
    if (d->before.pid != d->now.pid)
        top_sample_fini(&d->before); /* another daemon counts from 0 */
    for (uint32_t i = 0; i < d->now.n_slots; i++)
        look_up(&d->now.slots[i]);
    top_sample_compare(&d->now, d->before.at_ns ? &d->before : NULL);
    d->trouble[0] = 0;
    return 0;
}

/* ---- which daemons --------------------------------------------------------------------------- */

/* Adds a daemon, unless it is there. Returns 0 or -ENOMEM. */
static int add(struct top *t, const char *name, const char *path)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->daemons[i].path, path) == 0) {
            t->daemons[i].is_listed = 1;
            return 0;
        }
    struct top_daemon *all = realloc(t->daemons, (t->n + 1) * sizeof(*all));
    if (!all)
        return -ENOMEM;
    t->daemons = all;
    all[t->n] = (struct top_daemon){.is_listed = 1};
    snprintf(all[t->n].name, sizeof(all[t->n].name), "%s", name);
    snprintf(all[t->n].path, sizeof(all[t->n].path), "%s", path);
    t->n++;
    return 0;
}

static void drop_gone(struct top *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->daemons[i].is_listed)
            t->daemons[n++] = t->daemons[i];
        else
            daemon_fini(&t->daemons[i]);
    t->n = n;
}

/* Does no option say which one? */
static int is_about_all(const struct cli_options *o)
{
    const char *named = getenv("HEARTH_SOCKET");
    return !o->socket && !o->model && !(named && *named);
}

/* Finds out which daemons there are: of this user's those that run, where no option names one; where
 * none does, the one that other commands would ask. Returns 0 or -ENOMEM. */
static int look(struct top *t)
{
    struct daemons daemons = {0};
    int rc = is_about_all(t->o) ? daemons_list(&daemons) : 0, n = 0;
    daemons_look(&daemons);
    for (size_t i = 0; i < t->n; i++)
        t->daemons[i].is_listed = 0;
    for (size_t i = 0; i < daemons.n && !rc; i++)
        if (daemons.sockets[i].is_running) {
            rc = add(t, daemons.sockets[i].instance, daemons.sockets[i].path);
            n++;
        }
    if (!n && !rc && t->n) /* they are waited for */
        t->daemons[0].is_listed = 1;
    else if (!n && !rc)
        rc = add(t, "", "");
    free(daemons.sockets);
    drop_gone(t);
    return rc;
}

/* Asks all. Returns 0 where one answered, else the first one's -errno. */
static int ask_all(struct top *t)
{
    int first = look(t), answered = 0;
    for (size_t i = 0; i < t->n && first != -ENOMEM; i++) {
        int rc = ask(t->o, &t->daemons[i]);
        answered |= !rc;
        first = i == 0 || rc == -ENOMEM ? rc : first;
    }
    return answered && first != -ENOMEM ? 0 : first;
}

static struct top_row row_of(const struct top_daemon *d)
{
    int is_default = strcmp(d->name, "hearth") == 0 && d->now.model[0];
    return (struct top_row){is_default ? d->now.model : d->name, d->trouble[0] ? d->trouble : NULL,
                            &d->now, d->before.at_ns ? &d->before : NULL};
}

static int draw(struct top *t, const struct top_screen *screen)
{
    struct buffer out = {0};
    struct top_row *rows = calloc(t->n + 1, sizeof(*rows));
    for (size_t i = 0; rows && i < t->n; i++)
        rows[i] = row_of(&t->daemons[i]);
    if (rows && t->n > 1)
        top_overview(rows, t->n, screen, &out);
    else if (rows && t->n)
        top_frame(rows[0].now, rows[0].before, rows[0].trouble, screen, &out);
    int rc = !rows || out.failed ? -ENOMEM : cli_write(STDOUT_FILENO, out.data, out.bytes);
    free(rows);
    buffer_fini(&out);
    return rc;
}

static int fail_first(const struct top *t, int rc)
{
    return cli_fail(cli_exit_connect(rc), "%s",
                    t->n ? t->daemons[0].trouble : "out of memory: free some");
}

/* ---- the command ----------------------------------------------------------------------------- */

/* One frame as text: what happened in one interval. */
static int once(struct top *t, uint64_t interval_ns)
{
    struct top_screen screen = {0};
    struct timespec pause = {(time_t)(interval_ns / 1000000000), (long)(interval_ns % 1000000000)};
    cli_stop_at_once(1);
    int rc = ask_all(t);
    if (!rc && nanosleep(&pause, NULL) == 0)
        rc = ask_all(t);
    if (rc)
        return fail_first(t, rc);
    return cli_exit_output(draw(t, &screen));
}

static void measure(struct top_screen *screen)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    screen->rows = size.ws_row ? size.ws_row : 24;
    screen->columns = size.ws_col ? size.ws_col : 80;
}

static int live(struct top *t, uint64_t interval_ns)
{
    const char *no_color = getenv("NO_COLOR");
    struct top_screen screen = {.colours = !no_color || !*no_color, .live = 1};
    cli_stop_at_once(1);
    int rc = ask_all(t); /* a missing daemon is reported before the screen is switched */
    if (rc)
        return fail_first(t, rc);
    terminal.keys = tcgetattr(STDIN_FILENO, &terminal.before) == 0;
    catch_signals();
    enter_terminal();
    uint64_t due = bell_now_ns() + (interval_ns < 300000000 ? interval_ns : 300000000);
    for (int key = 0; !rc && key != 'q';) {
        if (resized)
            measure(&screen);
        resized = 0;
        rc = draw(t, &screen);
        key = rc ? 0 : wait_key(bell_now_ns(), due);
        if (bell_now_ns() < due)
            continue; /* a key, or another size: the same again */
        if (ask_all(t) == -ENOMEM)
            rc = -ENOMEM;
        due = bell_now_ns() + interval_ns;
    }
    leave_terminal();
    return cli_exit_output(rc);
}

int cli_top(const struct cli_options *o)
{
    const char *term = getenv("TERM");
    int is_terminal = isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
    uint64_t interval_ns = (uint64_t)((double)o->interval * 1e9);
    struct top t = {.o = o};
    int code = o->once || !is_terminal ? once(&t, interval_ns) : live(&t, interval_ns);
    for (size_t i = 0; i < t.n; i++)
        daemon_fini(&t.daemons[i]);
    free(t.daemons);
    return code;
}
