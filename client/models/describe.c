/* describe: see describe.h. */
#include "client/models/describe.h"

#include "client/base/printable.h"

#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_OUTPUT = 16384, MAX_ARGUMENTS = 12 };

bool description_for_agents(const struct description *d)
{
    return d->fits && d->tools && d->context >= DESCRIBE_AGENT_CONTEXT;
}

/* Is DIRECTORY[bytes]/NAME a program? */
static bool is_there(const char *directory, size_t bytes, const char *name, char ret[PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%.*s/%s", (int)bytes, directory, name);
    return n > 0 && n < PATH_MAX && access(ret, X_OK) == 0;
}

int describe_find_program(const char *name, char ret[PATH_MAX])
{
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t bytes = strcspn(path, ":");
        if (bytes > 0 && is_there(path, bytes, name, ret))
            return 0;
        path += bytes + (path[bytes] == ':');
    }
    return -ENOENT;
}

int describe_find_own(const char *name, char ret[PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = 0;
        if (is_there(self, (size_t)(strrchr(self, '/') - self), name, ret))
            return 0;
    }
    return describe_find_program(name, ret);
}

/* Runs argv[0] with what it prints in out and err_fd. Returns its exit code, or -errno. */
static int run(char **argv, int out, int err_fd)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, rc = -posix_spawn_file_actions_init(&actions);
    if (rc)
        return rc;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
    rc = -posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        return rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

/* What a file holds, at most MAX_OUTPUT - 1 bytes. */
static void read_output(int fd, char text[MAX_OUTPUT])
{
    ssize_t n = pread(fd, text, MAX_OUTPUT - 1, 0);
    text[n > 0 ? n : 0] = 0;
}

/* The last line of hearthd's errors, without its name and that of the file. */
static void take_refusal(char *errors, const char *path, struct description *ret)
{
    char *line = errors, *end = errors + strlen(errors);
    while (end > line && end[-1] == '\n')
        *--end = 0;
    char *last = strrchr(line, '\n');
    line = last ? last + 1 : line;
    const char *const names[] = {"hearthd: ", path, ": "};
    for (size_t i = 0; i < 3; i++)
        if (strncmp(line, names[i], strlen(names[i])) == 0)
            line += strlen(names[i]);
    snprintf(ret->refused, sizeof(ret->refused), "%.*s", (int)sizeof(ret->refused) - 1,
             *line ? line : "hearthd does not say why");
    printable_mask(ret->refused);
}

static uint64_t number(json_t *d, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(d, name));
    return value > 0 ? (uint64_t)value : 0;
}

static void take_text(json_t *d, const char *name, char *ret, size_t bytes)
{
    const char *text = json_string_value(json_object_get(d, name));
    snprintf(ret, bytes, "%s", text ? text : "");
}

static bool is_true(json_t *d, const char *name)
{
    return json_is_true(json_object_get(d, name));
}

static int take_facts(const char *output, struct description *ret)
{
    json_t *d = json_loads(output, 0, NULL);
    if (!json_is_object(d)) {
        json_decref(d);
        return -EBADMSG;
    }
    take_text(d, "model", ret->model, sizeof(ret->model));
    take_text(d, "arch", ret->arch, sizeof(ret->arch));
    take_text(d, "type", ret->type, sizeof(ret->type));
    ret->parameters = number(d, "parameters");
    ret->weight_bytes = number(d, "weight_bytes");
    ret->kv_bytes = number(d, "kv_bytes");
    ret->least_kv_bytes = number(d, "least_kv_bytes");
    ret->needs_bytes = number(d, "needs_bytes");
    ret->available_bytes = number(d, "available_bytes");
    ret->model_context = (uint32_t)number(d, "model_context");
    ret->context = (uint32_t)number(d, "context");
    ret->fits = is_true(d, "fits");
    ret->chat = is_true(d, "chat");
    ret->tools = is_true(d, "tools");
    ret->fim = is_true(d, "fim");
    json_decref(d);
    return 0;
}

/* Adds an option, unless it is left to hearthd. */
static int add_option(char **argv, int n, const char *name, const char *value)
{
    if (!value || strcmp(value, "auto") == 0)
        return n;
    argv[n] = (char *)name;
    argv[n + 1] = (char *)value;
    return n + 2;
}

int describe_file(const char *hearthd, const char *path, const struct description_wish *wish,
                  struct description *ret, char *err, size_t err_bytes)
{
    char *argv[MAX_ARGUMENTS] = {(char *)hearthd, "--describe", "--model", (char *)path};
    char output[MAX_OUTPUT];
    int n = add_option(argv, 4, "--context", wish->context);
    n = add_option(argv, n, "--kv-bytes", wish->kv_bytes);
    (void)add_option(argv, n, "--draft", wish->draft);
    *ret = (struct description){0};
    int out = memfd_create("description", MFD_CLOEXEC),
        errors = memfd_create("errors", MFD_CLOEXEC);
    int rc = out < 0 || errors < 0 ? -errno : run(argv, out, errors);
    if (rc > 0) {
        ret->exit_code = rc;
        read_output(errors, output);
        take_refusal(output, path, ret);
        rc = 0;
    } else if (rc == 0) {
        read_output(out, output);
        rc = take_facts(output, ret);
    }
    if (rc)
        snprintf(err, err_bytes, "%s --describe: %s", hearthd,
                 rc == -EBADMSG ? "not a hearthd of this version" : strerror(-rc));
    if (out >= 0)
        close(out);
    if (errors >= 0)
        close(errors);
    return rc;
}
