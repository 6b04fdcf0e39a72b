/* serve: `hearth serve NAME` starts a daemon for a model, `hearth stop NAME` ends it.
 *
 * Where a service manager of this user runs and knows the template unit, the daemon is hearth@NAME,
 * whose configuration this writes; else it is a process of this user in a session of its own, which
 * tells that it is ready, and how far it is, as it would tell the service manager. */
#include "client/cli/models.h"
#include "client/lib/daemons.h"
#include "ipc/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct serving {
    const struct cli_options *o;
    char name[256];                    /* of the model */
    char instance[DAEMONS_NAME_BYTES]; /* of socket, unit, log */
    char socket[HELLO_PATH_BYTES];
    char hearthd[PATH_MAX], model[PATH_MAX], draft[PATH_MAX]; /* draft "": none */
    char log[PATH_MAX];
};

/* ---- the state of things ---------------------------------------------------------------------- */

static bool is_text(const json_t *status, const char *name, const char *text)
{
    const char *value = json_string_value(json_object_get(status, name));
    return value && strcmp(value, text) == 0;
}

/* Does the daemon serve the model of this file, as far as can be seen without reading all of it? */
static bool serves_file(struct hearth *h, const char *hearthd, const char *file)
{
    static char text[65536]; /* the most that the daemon sends */
    const struct description_wish wish = {0};
    struct description d;
    char err[PATH_MAX + 128];
    if (describe_file(hearthd, file, &wish, &d, err, sizeof(err)) < 0 || d.refused[0])
        return true; /* nothing can be compared */
    int64_t n = hearth_status(h, text, sizeof(text));
    json_t *status = n < 0 ? NULL : json_loads(text, 0, NULL);
    const bool same =
        !status || (is_text(status, "model", d.model) && is_text(status, "arch", d.arch) &&
                    is_text(status, "type", d.type));
    json_decref(status);
    return same;
}

/* Does a daemon answer at the socket? *ret_other: it serves another model, whose name is alike. */
static bool is_served(const struct serving *s, bool *ret_other)
{
    struct hearth_options options;
    struct hearth *h;
    hearth_options_init(&options, sizeof(options));
    options.slots = 0;
    options.connect_timeout_ms = CLI_ANSWER_MS;
    if (hearth_connect(s->socket, &options, &h, NULL, 0) < 0)
        return false;
    *ret_other = !serves_file(h, s->hearthd, s->model);
    hearth_close(h);
    return true;
}

/* $VARIABLE/hearth, else ~/FOLDER/hearth. Returns 0 or an exit code. */
static int find_folder(const char *variable, const char *folder, char ret[PATH_MAX])
{
    const char *own = getenv(variable), *home = getenv("HOME");
    if (own && *own)
        snprintf(ret, PATH_MAX, "%s/hearth", own);
    else if (home && *home)
        snprintf(ret, PATH_MAX, "%s/%s/hearth", home, folder);
    else
        return cli_fail(CLI_USAGE, "neither %s nor HOME is set: set one", variable);
    int rc = folder_make(ret);
    return rc ? cli_fail(CLI_CANNOT_MAKE, "%s: %s", ret, strerror(-rc)) : 0;
}

/* ---- the service manager ---------------------------------------------------------------------- */

/* Runs systemctl --user. Returns its exit code, or -1. */
static int systemctl(const char *verb, const char *unit, const char *other_unit)
{
    char *argv[] = {"systemctl",  "--user",           "--quiet", (char *)verb,
                    (char *)unit, (char *)other_unit, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions))
        return -1;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (strcmp(verb, "cat") == 0)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool has_manager(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char path[PATH_MAX];
    if (!runtime || !*runtime)
        return false;
    snprintf(path, sizeof(path), "%s/systemd/private", runtime);
    return access(path, F_OK) == 0 && systemctl("cat", "hearth@.service", "hearth@.socket") == 0;
}

/* `name = value`, a line of the configuration, unless hearthd chooses. Returns 0 or an exit code. */
static int add_setting(struct buffer *text, const char *name, const char *value)
{
    if (!value || !*value || strcmp(value, "auto") == 0)
        return 0;
    if (strpbrk(value, "\r\n")) /* what follows would be other settings */
        return cli_fail(CLI_BAD_INPUT, "%s: its name has a line break: give it another name", name);
    buffer_format(text, "%s = %s\n", name, value);
    return 0;
}

/* Options after `--`, as settings. Returns 0 or an exit code. */
static int add_words(const struct cli_options *o, struct buffer *text)
{
    for (uint32_t i = 1; i < o->n_words; i++) {
        const char *word = o->words[i], *equals = strchr(word, '=');
        if (strncmp(word, "--", 2) != 0 || strpbrk(word, "\r\n"))
            return cli_fail(CLI_USAGE, "%s: give options of hearthd after --, as --name=value",
                            word);
        if (equals)
            buffer_format(text, "%.*s = %s\n", (int)(equals - word - 2), word + 2, equals + 1);
        else if (i + 1 < o->n_words && strncmp(o->words[i + 1], "--", 2) != 0)
            buffer_format(text, "%s = %s\n", word + 2, o->words[++i]);
        else
            buffer_format(text, "%s = yes\n", word + 2);
    }
    return 0;
}

static const char written_by[] = "# written by hearth serve\n";

/* Is the configuration one that this wrote before, to be written anew? Returns 0, or an exit code:
 * another one is the user's. */
static int check_old(const struct serving *s, const char *path)
{
    struct buffer old = {0};
    const size_t n = strlen(written_by);
    int code = cli_read_file(path, &old);
    if (!code && (old.bytes < n || memcmp(old.data, written_by, n) != 0))
        code = cli_fail(CLI_BAD_INPUT,
                        "%s was not written by hearth serve: start it with systemctl --user start "
                        "hearth@%s.socket, or remove the file",
                        path, s->instance);
    buffer_fini(&old);
    return code;
}

static int write_settings(const struct serving *s, const struct buffer *text)
{
    char folder[PATH_MAX], path[PATH_MAX + DAEMONS_NAME_BYTES + 8];
    int code = find_folder("XDG_CONFIG_HOME", ".config", folder);
    if (code)
        return code;
    snprintf(path, sizeof(path), "%s/%s.conf", folder, s->instance);
    if (access(path, F_OK) == 0 && (code = check_old(s, path)))
        return code;
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return cli_fail(CLI_CANNOT_MAKE, "%s: %s", path, strerror(errno));
    int rc = cli_write(fd, text->data, text->bytes);
    if (close(fd) < 0 && !rc)
        rc = -errno;
    if (!rc)
        return 0;
    unlink(path);
    return cli_fail(CLI_CANNOT_MAKE, "%s: %s", path, strerror(-rc));
}

static int serve_by_manager(const struct serving *s)
{
    struct buffer text = {0};
    char socket[DAEMONS_NAME_BYTES + 16], service[DAEMONS_NAME_BYTES + 16];
    const char *const settings[][2] = {{"model", s->model},
                                       {"draft", s->draft},
                                       {"context", s->o->context},
                                       {"kv-bytes", s->o->kv_bytes}};
    int code = 0;
    buffer_text(&text, written_by);
    for (int i = 0; i < 4 && !code; i++)
        code = add_setting(&text, settings[i][0], settings[i][1]);
    if (!code)
        code = add_words(s->o, &text);
    if (!code && text.failed)
        code = cli_no_memory();
    if (!code)
        code = write_settings(s, &text);
    buffer_fini(&text);
    if (code)
        return code;
    snprintf(socket, sizeof(socket), "hearth@%s.socket", s->instance);
    snprintf(service, sizeof(service), "hearth@%s.service", s->instance);
    if (systemctl("start", socket, service) != 0)
        return cli_fail(CLI_SYSTEM, "%s did not start: see journalctl --user -u %s", service,
                        service);
    return 0;
}

/* ---- a process of our own --------------------------------------------------------------------- */

/* A socket that the daemon tells its state to, and its path, for NOTIFY_SOCKET. It lies beside the
 * daemon's own: to one without a path all users could write. */
static int open_notify(const struct serving *s, char path[HELLO_PATH_BYTES])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int folder_bytes = (int)(strrchr(s->socket, '/') - s->socket);
    if (snprintf(path, HELLO_PATH_BYTES, "%.*s/%ld.notify", folder_bytes, s->socket,
                 (long)getpid()) >= (int)HELLO_PATH_BYTES)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    (void)unlink(path); /* of a process that had this number, and was killed */
    const mode_t old = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : fd;
    umask(old);
    if (rc < 0)
        close(fd);
    return rc;
}

static void close_notify(int fd, const char *path)
{
    if (fd < 0)
        return;
    (void)unlink(path);
    close(fd);
}

/* The child: hearthd in a session of its own. */
static void run_daemon(const struct serving *s, int log)
{
    const char *const first[] = {s->hearthd, "--model", s->model, "--socket", s->socket};
    const char *const settings[][2] = {
        {"--draft", s->draft}, {"--context", s->o->context}, {"--kv-bytes", s->o->kv_bytes}};
    int n = 5, null = open("/dev/null", O_RDONLY);
    char **argv = calloc(5 + 6 + (size_t)s->o->n_words, sizeof(*argv));
    if (!argv)
        _exit(CLI_SYSTEM);
    memcpy(argv, first, sizeof(first));
    for (int i = 0; i < 3; i++)
        if (settings[i][1] && *settings[i][1] && strcmp(settings[i][1], "auto") != 0) {
            argv[n++] = (char *)settings[i][0];
            argv[n++] = (char *)settings[i][1];
        }
    for (uint32_t i = 1; i < s->o->n_words; i++) /* after the model's name */
        argv[n++] = s->o->words[i];
    setsid();
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    (void)close_range(3, ~0U, 0); /* a lock or a pipe of whoever called us is not the daemon's */
    if (chdir("/") == 0)
        execv(s->hearthd, argv);
    _exit(CLI_SYSTEM);
}

/* One message of the daemon: shows STATUS on a terminal. Returns true for READY. */
static bool take_message(int fd)
{
    char text[512];
    ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *status = strstr(text, "STATUS=");
    if (status && isatty(STDERR_FILENO))
        dprintf(STDERR_FILENO, "\r\033[K%.*s", (int)strcspn(status + 7, "\n"), status + 7);
    return strncmp(text, "READY=1", 7) == 0;
}

/* Waits for the daemon to be ready or gone. Returns 0, its exit code, or -errno. */
static int wait_ready(pid_t pid, int notify)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), status;
    for (;;) {
        struct pollfd fds[] = {{.fd = notify, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
        /* each moment, for a signal between two of them, and a death without pidfd */
        (void)poll(fds, 2, 200);
        if (cli_stop_requested()) {
            kill(pid, SIGTERM);
            status = -EINTR;
            break;
        }
        if ((fds[0].revents & POLLIN) && take_message(notify)) {
            status = 0;
            break;
        }
        if (waitpid(pid, &status, WNOHANG) == pid) {
            status = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : CLI_SYSTEM;
            break;
        }
    }
    if (isatty(STDERR_FILENO))
        dprintf(STDERR_FILENO, "\r\033[K");
    if (pidfd >= 0)
        close(pidfd);
    return status;
}

/* Fails with the last line of the log, without hearthd's name. */
static int fail_as_log(const struct serving *s, int code)
{
    static const char own[] = "hearthd: ";
    struct buffer text = {0};
    const char *line = "";
    int fd = open(s->log, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && cli_read_all(fd, &text) == 0 && text.bytes > 0) {
        while (text.bytes > 0 && text.data[text.bytes - 1] == '\n')
            text.data[--text.bytes] = 0;
        const char *end = strrchr(text.data, '\n');
        line = end ? end + 1 : text.data;
        line += strncmp(line, own, strlen(own)) == 0 ? strlen(own) : 0;
    }
    code = cli_fail(code, "%s (log: %s)", *line ? line : "hearthd ended", s->log);
    if (fd >= 0)
        close(fd);
    buffer_fini(&text);
    return code;
}

static int serve_by_process(struct serving *s)
{
    char folder[PATH_MAX], notify_path[HELLO_PATH_BYTES];
    int code = find_folder("XDG_STATE_HOME", ".local/state", folder);
    if (code)
        return code;
    snprintf(s->log, sizeof(s->log), "%.*s/%s.log", (int)(PATH_MAX - DAEMONS_NAME_BYTES - 8),
             folder, s->instance);
    int log = open(s->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (log < 0)
        return cli_fail(CLI_CANNOT_MAKE, "%s: %s", s->log, strerror(errno));
    int notify = open_notify(s, notify_path);
    pid_t pid = notify < 0 ? notify : fork();
    if (pid == 0) {
        setenv("NOTIFY_SOCKET", notify_path, 1);
        run_daemon(s, log);
    }
    int rc = pid < 0 ? (notify < 0 ? notify : -errno) : wait_ready(pid, notify);
    close(log);
    close_notify(notify, notify_path);
    if (rc == -EINTR)
        return CLI_INTERRUPTED;
    if (rc < 0)
        return cli_fail(CLI_SYSTEM, "cannot start hearthd: %s", strerror(-rc));
    return rc ? fail_as_log(s, rc) : 0;
}

/* ---- hearth serve ----------------------------------------------------------------------------- */

/* What would fit where the wish does not. */
static int fail_too_large(const struct serving *s, const struct description *d)
{
    const struct description_wish least = {.draft = s->draft[0] ? s->draft : NULL};
    struct description other;
    char needs[32], available[32], err[PATH_MAX + 128];
    cli_bytes(d->needs_bytes, needs, sizeof(needs));
    cli_bytes(d->available_bytes, available, sizeof(available));
    if (describe_file(s->hearthd, s->model, &least, &other, err, sizeof(err)) == 0 && other.fits)
        return cli_fail(CLI_SYSTEM,
                        "%s needs %s for a context of %u, and %s are available: --context %u "
                        "--kv-bytes auto fits",
                        s->name, needs, d->context, available, other.context);
    return cli_fail(CLI_SYSTEM,
                    "%s needs %s, and %s are available: take a smaller model or a smaller type, "
                    "see `hearth models`",
                    s->name, needs, available);
}

/* Whether hearthd will serve it, and in which bounds. */
static int check_fit(const struct serving *s, struct description *d)
{
    const struct description_wish wish = {s->o->context, s->o->kv_bytes,
                                          s->draft[0] ? s->draft : NULL};
    char err[PATH_MAX + 128];
    if (describe_file(s->hearthd, s->model, &wish, d, err, sizeof(err)) < 0)
        return cli_fail(CLI_SYSTEM, "%s", err);
    if (d->refused[0])
        return cli_fail(d->exit_code, "%s: %s", s->name, d->refused);
    return d->fits ? 0 : fail_too_large(s, d);
}

static int print_served(const struct serving *s, const struct description *d)
{
    struct buffer out = {0};
    char kv[32];
    buffer_format(&out, "%s is served at %s\n", s->name, s->socket);
    buffer_format(&out, "context %u of the model's %u, %s for KV\n", d->context, d->model_context,
                  cli_bytes(d->kv_bytes, kv, sizeof(kv)));
    buffer_format(&out, "try: hearth run --model %s 'Once upon a time'\n", s->instance);
    return cli_print(&out);
}

static int find_socket(struct serving *s)
{
    char folder[HELLO_PATH_BYTES];
    if (daemons_folder(folder) < 0)
        return cli_fail(CLI_USAGE,
                        "XDG_RUNTIME_DIR is not set: set it to a folder of yours, or start "
                        "hearthd --model FILE --socket PATH");
    int rc = folder_make(folder);
    if (rc)
        return cli_fail(CLI_CANNOT_MAKE, "%s: %s", folder, strerror(-rc));
    if (snprintf(s->socket, sizeof(s->socket), "%s/%s.sock", folder, s->instance) >=
        (int)sizeof(s->socket))
        return cli_fail(CLI_USAGE, "the socket path %s/%s.sock is too long", folder, s->instance);
    return 0;
}

static int find_files(struct serving *s)
{
    struct models models;
    int code = models_find(&models) < 0 ? cli_no_memory() : 0;
    if (!code)
        code = cli_find_model(&models, s->o->words[0], s->model, s->name, sizeof(s->name));
    if (!code && s->o->draft)
        code = cli_find_model(&models, s->o->draft, s->draft, NULL, 0);
    models_fini(&models);
    return code ? code : cli_find_hearthd(s->hearthd);
}

/* hearthd does not run in the folder in which its options were written. */
static int check_paths(const struct cli_options *o)
{
    static const char *const names[] = {"--config", "--draft", "--kv-store", "--weights-cache"};
    for (uint32_t i = 1; i < o->n_words; i++)
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
            const size_t n = strlen(names[k]);
            const char *value = o->words[i] + n;
            if (strncmp(o->words[i], names[k], n) != 0 || (*value && *value != '='))
                continue;
            value = *value ? value + 1 : i + 1 < o->n_words ? o->words[i + 1] : "";
            if (*value && *value != '/')
                return cli_fail(CLI_USAGE, "%s %s: give the whole path: hearthd does not run here",
                                names[k], value);
        }
    return 0;
}

int cli_serve(const struct cli_options *o)
{
    static struct serving s; /* its paths are large */
    struct description d;
    bool other;
    s.o = o;
    if (o->n_words == 0)
        return cli_fail(CLI_USAGE, "no model: hearth serve NAME; `hearth models` lists them");
    cli_stop_at_once(1); /* until there is a daemon, there is nothing to release */
    int code = check_paths(o);
    if (!code)
        code = find_files(&s);
    if (code)
        return code;
    daemons_instance(s.name, s.instance);
    code = find_socket(&s);
    if (code)
        return code;
    if (is_served(&s, &other)) {
        if (other)
            return cli_fail(CLI_CANNOT_MAKE,
                            "%s: another model is served at %s: hearth stop %s, or give this file "
                            "another name",
                            s.name, s.socket, s.instance);
        struct buffer out = {0};
        buffer_format(&out, "%s is served at %s already\n", s.name, s.socket);
        return cli_print(&out);
    }
    code = check_fit(&s, &d);
    cli_stop_at_once(0);
    if (!code)
        code = has_manager() ? serve_by_manager(&s) : serve_by_process(&s);
    return code ? code : print_served(&s, &d);
}

/* ---- hearth stop ------------------------------------------------------------------------------ */

/* Does the socket lie where services have theirs? */
static bool is_listed(const char *path)
{
    struct daemons daemons = {0};
    bool found = false;
    (void)daemons_list(&daemons);
    for (size_t i = 0; i < daemons.n; i++)
        found |= strcmp(daemons.sockets[i].path, path) == 0;
    free(daemons.sockets);
    return found;
}

/* The unit whose socket lies at this path, without its ending: hearthd or hearth@NAME, where NAME
 * may have dots. */
static void name_unit(const char *path, char unit[DAEMONS_NAME_BYTES + 16])
{
    const char *name = strrchr(path, '/') + 1;
    const int bytes = (int)(strrchr(name, '.') - name);
    if (strcmp(name, "hearth.sock") == 0)
        snprintf(unit, DAEMONS_NAME_BYTES + 16, "hearthd");
    else
        snprintf(unit, DAEMONS_NAME_BYTES + 16, "hearth@%.*s", bytes, name);
}

/* The socket of the daemon that is to end. Returns 0 or an exit code. */
static int find_stopped(const struct cli_options *o, char path[HELLO_PATH_BYTES])
{
    char err[512];
    if (o->n_words != !o->socket)
        return cli_fail(CLI_USAGE, "give one model: hearth stop NAME, or its --socket PATH");
    cli_stop_at_once(1); /* there is nothing to release */
    if (!o->socket)
        return hearth_find(o->words[0], path, HELLO_PATH_BYTES, err, sizeof(err)) < 0
                   ? cli_fail(CLI_NO_DAEMON, "%s", err)
                   : 0;
    if (snprintf(path, HELLO_PATH_BYTES, "%s", o->socket) >= (int)HELLO_PATH_BYTES)
        return cli_fail(CLI_USAGE, "the socket path is too long: %s", o->socket);
    return 0;
}

int cli_stop(const struct cli_options *o)
{
    char path[HELLO_PATH_BYTES], unit[DAEMONS_NAME_BYTES + 16] = "";
    char socket[sizeof(unit) + 8], service[sizeof(unit) + 8];
    const int code = find_stopped(o, path);
    if (code)
        return code;
    if (is_listed(path))
        name_unit(path, unit);
    snprintf(socket, sizeof(socket), "%s.socket", unit);
    snprintf(service, sizeof(service), "%s.service", unit);
    if (unit[0] && has_manager() && systemctl("is-active", socket, NULL) == 0)
        return systemctl("stop", socket, service) == 0
                   ? 0
                   : cli_fail(CLI_SYSTEM, "%s did not stop", service);
    const pid_t pid = cli_find_process(path);
    if (pid <= 0)
        return cli_fail(CLI_NO_DAEMON, "no daemon answers at %s", path);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (kill(pid, SIGTERM) < 0) {
        int rc = errno;
        if (pidfd >= 0)
            close(pidfd);
        return cli_fail(CLI_SYSTEM, "cannot stop process %d: %s", (int)pid, strerror(rc));
    }
    if (pidfd >= 0) {
        (void)poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, -1);
        close(pidfd);
    }
    return 0;
}
