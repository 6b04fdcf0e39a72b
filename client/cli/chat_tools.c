/* chat_tools: see chat_tools.h. The file, and the arguments of a call. */
#include "client/cli/chat_tools.h"

#include "client/base/json_shortest.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGV_MOST = 256, OTHERS_WRITE = S_IWGRP | S_IWOTH };

/* ---- the file -------------------------------------------------------------------------------- */

/* Owned by the user or root, and not writable by others. A folder that all may write to is good
 * enough if it is sticky: then others cannot replace what is in it. */
static int is_trusted(const struct stat *st, int is_folder)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return 0;
    return !(st->st_mode & OTHERS_WRITE) || (is_folder && st->st_mode & S_ISVTX);
}

static int check_folder(const char *folder)
{
    struct stat st;
    if (stat(folder, &st))
        return cli_fail(CLI_NO_INPUT, "%s: %s", folder, strerror(errno));
    return is_trusted(&st, 1) ? CLI_OK
                              : cli_fail(CLI_BAD_INPUT,
                                         "%s: others can write into it, and so choose what --tools "
                                         "runs: chmod go-w it",
                                         folder);
}

/* The folder in the path, which may be a link, and every folder above the file itself: whoever can
 * rename one can put another in its place. */
static int check_folders(const char *path)
{
    char *copy = strdup(path), *real = realpath(path, NULL), *folder = copy ? dirname(copy) : NULL;
    int code = copy ? CLI_OK : cli_no_memory();
    if (!code && !real)
        code = cli_fail(CLI_NO_INPUT, "%s: %s", path, strerror(errno));
    if (!code)
        code = check_folder(folder);
    for (folder = real; !code && folder && strcmp(folder, "/") != 0;) {
        folder = dirname(folder);
        code = check_folder(folder);
    }
    free(copy);
    free(real);
    return code;
}

/* Reads the file that was checked, not one that took its place. */
static int read_file(const char *path, struct buffer *text)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code = CLI_OK;
    if (fd < 0 || fstat(fd, &st))
        code = cli_fail(CLI_NO_INPUT, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = cli_fail(CLI_BAD_INPUT, "%s: not a regular file", path);
    else if (!is_trusted(&st, 0))
        code = cli_fail(CLI_BAD_INPUT,
                        "%s: others can write it, and so choose what --tools runs: chmod go-w it",
                        path);
    else if (st.st_size > CHAT_TOOLS_FILE_BYTES)
        code = cli_fail(CLI_BAD_INPUT, "%s: more than %d bytes", path, CHAT_TOOLS_FILE_BYTES);
    int rc = code ? 0 : cli_read_all(fd, text);
    if (rc)
        code = cli_fail(CLI_NO_INPUT, "%s: %s", path, strerror(-rc));
    if (fd >= 0)
        close(fd);
    return code;
}

static int is_argv(const json_t *argv)
{
    size_t i, n = json_array_size(argv);
    const json_t *word;
    json_array_foreach(argv, i, word) {
        if (!json_is_string(word) || strlen(json_string_value(word)) != json_string_length(word))
            return 0;
    }
    return n > 0 && n < ARGV_MOST && *json_string_value(json_array_get(argv, 0)) == '/';
}

static int check_tools(const char *path, const json_t *list)
{
    size_t i, k;
    const json_t *tool;
    json_array_foreach(list, i, tool) {
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (!name || !*name)
            return cli_fail(CLI_BAD_INPUT, "%s: tool %zu has no name", path, i);
        if (!is_argv(json_object_get(tool, "argv")))
            return cli_fail(CLI_BAD_INPUT,
                            "%s: argv of tool %s: give texts, the first an absolute path", path,
                            name);
        for (k = 0; k < i; k++)
            if (json_equal(json_object_get(json_array_get(list, k), "name"),
                           json_object_get(tool, "name")))
                return cli_fail(CLI_BAD_INPUT, "%s: two tools are named %s", path, name);
    }
    return i ? CLI_OK : cli_fail(CLI_BAD_INPUT, "%s: give a JSON array of tools", path);
}

/* What the model sees: all but argv. */
static char *describe(const json_t *list)
{
    json_t *all = json_array();
    size_t i;
    json_t *tool;
    json_array_foreach(list, i, tool) {
        json_t *function = json_copy(tool);
        json_object_del(function, "argv");
        if (!json_object_get(function, "parameters"))
            json_object_set_new(function, "parameters",
                                json_pack("{s:s, s:{}}", "type", "object", "properties"));
        json_array_append_new(all,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

int chat_tools_open(struct chat_tools *t, const char *path)
{
    struct buffer text = {0};
    json_error_t why;
    int code = check_folders(path);
    if (!code)
        code = read_file(path, &text);
    if (!code) {
        t->list = json_loadb(text.data ? text.data : "", text.bytes, JSON_REJECT_DUPLICATES, &why);
        if (!t->list)
            code = cli_fail(CLI_BAD_INPUT, "%s: not JSON: line %d: %s", path, why.line, why.text);
    }
    if (!code)
        code = check_tools(path, t->list);
    if (!code) {
        t->description = describe(t->list);
        code = t->description ? CLI_OK : cli_no_memory();
    }
    buffer_fini(&text);
    return code;
}

void chat_tools_close(struct chat_tools *t)
{
    json_decref(t->list);
    free(t->description);
}

/* ---- the arguments of a call ----------------------------------------------------------------- */

/* The value of "{NAME}"; NULL: the element is no such place. */
static const json_t *find_value(const char *word, const json_t *arguments, char *name,
                                size_t name_bytes)
{
    size_t n = strlen(word);
    if (n < 3 || word[0] != '{' || word[n - 1] != '}' || n - 2 >= name_bytes)
        return NULL;
    memcpy(name, word + 1, n - 2);
    name[n - 2] = 0;
    const json_t *value = json_object_get(arguments, name);
    return value ? value : json_null();
}

/* A text as it is, another value as JSON; NULL without memory, or with a byte 0. */
static char *value_text(const json_t *value)
{
    if (!json_is_string(value))
        return json_shortest(value, JSON_COMPACT);
    return strlen(json_string_value(value)) == json_string_length(value)
               ? strdup(json_string_value(value))
               : NULL;
}

/* One element. Returns it, or NULL with one line. */
static char *make_word(const char *word, const json_t *arguments, int after_dashes, char *err,
                       size_t err_bytes)
{
    char name[128];
    const json_t *value = find_value(word, arguments, name, sizeof(name));
    if (!value)
        return strdup(word);
    if (json_is_null(value)) {
        snprintf(err, err_bytes, "not run: the argument %.100s is missing", name);
        return NULL;
    }
    char *text = value_text(value);
    if (!text) {
        snprintf(err, err_bytes, "not run: the argument %.100s holds a byte 0", name);
    } else if (*text == '-' && !after_dashes) {
        snprintf(
            err, err_bytes,
            "not run: the argument %.100s begins with -, and would be an option of the program",
            name);
        free(text);
        text = NULL;
    }
    return text;
}

static const json_t *find_tool(const struct chat_tools *t, const char *name)
{
    size_t i;
    const json_t *tool;
    json_array_foreach(t->list, i, tool) {
        if (strcmp(json_string_value(json_object_get(tool, "name")), name) == 0)
            return tool;
    }
    return NULL;
}

char **chat_tools_argv(const struct chat_tools *t, const char *name, const char *arguments,
                       char *err, size_t err_bytes)
{
    const json_t *tool = find_tool(t, name), *words = json_object_get(tool, "argv");
    json_t *values = json_loads(arguments, JSON_ALLOW_NUL, NULL);
    char **argv = calloc(json_array_size(words) + 1, sizeof(*argv));
    int after_dashes = 0, ok = argv && tool && json_is_object(values);
    if (!tool)
        snprintf(err, err_bytes, "not run: there is no tool %.100s", name);
    else if (!json_is_object(values))
        snprintf(err, err_bytes, "not run: the arguments are not a JSON object");
    for (size_t i = 0; ok && i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        argv[i] = i ? make_word(word, values, after_dashes, err, err_bytes) : strdup(word);
        after_dashes |= strcmp(word, "--") == 0;
        ok = argv[i] != NULL;
    }
    json_decref(values);
    if (ok)
        return argv;
    chat_tools_free(argv);
    return NULL;
}

void chat_tools_free(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}
