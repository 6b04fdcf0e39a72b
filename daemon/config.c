/* config: hearthd's table of options, and the configuration file. */
#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option_row rows[] = {
#define ROW_TEXT(id, name, value, help)                                                            \
    OPTION(struct config, id, name, 0, OPTION_TEXT, value, NULL, 0, 0, help),
#define ROW_NUMBER(id, name, def, least, most, value, help)                                        \
    OPTION(struct config, id, name, 0, OPTION_U64, value, (def) ? #def : NULL, least, most, help),
#define ROW_CHOICE(id, name, def, choices, help)                                                   \
    OPTION(struct config, id, name, 0, OPTION_CHOICE, choices, def, 0, 0, help),
#define ROW_FLAG(id, name, help)                                                                   \
    OPTION(struct config, id, name, 0, OPTION_SWITCH, NULL, NULL, 0, 0, help),
    HEARTHD_OPTIONS(ROW_TEXT, ROW_NUMBER, ROW_CHOICE, ROW_FLAG)};

enum { N_ROWS = sizeof(rows) / sizeof(*rows) };

struct config_text {
    struct config_text *next;
    char text[];
};

static struct options table(struct config *config, bool *given)
{
    return (struct options){.rows = rows, .n = N_ROWS, .fields = config, .given = given};
}

static int config_fail(char *err, size_t err_bytes, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int config_fail(char *err, size_t err_bytes, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, err_bytes, format, args);
    va_end(args);
    return code;
}

static char *trim(char *text)
{
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* Sets an option to the config's own copy of a value. */
static int set_copy(const struct options *o, const struct option_row *row, const char *value,
                    char *err, size_t err_bytes)
{
    struct config *config = o->fields;
    size_t bytes = strlen(value) + 1;
    struct config_text *copy = malloc(sizeof(*copy) + bytes);
    if (!copy)
        return config_fail(err, err_bytes, -ENOMEM, "not enough memory");
    memcpy(copy->text, value, bytes);
    copy->next = config->texts;
    config->texts = copy;
    return options_set(o, row, copy->text, err, err_bytes);
}

/* One line of the file: `name = value`, `# comment`, or nothing. */
static int parse_line(const struct options *o, char *line, const char *where, char *err,
                      size_t err_bytes)
{
    char detail[256];
    line = trim(line);
    if (!*line || *line == '#')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return config_fail(err, err_bytes, -EINVAL, "%s: '%s' is not `name = value`", where, line);
    *equals = 0;
    char *name = trim(line), *value = trim(equals + 1);
    const struct option_row *row = options_find(o, name, strlen(name));
    if (!row || !strcmp(name, "config"))
        return config_fail(err, err_bytes, -EINVAL, "%s: unknown option '%s': see hearthd --help",
                           where, name);
    if (o->given[row - rows]) /* the command line wins */
        return 0;
    if (set_copy(o, row, value, detail, sizeof(detail)) < 0)
        return config_fail(err, err_bytes, -EINVAL, "%s: %s", where, detail);
    return 0;
}

/* Skips the byte order mark that some editors put before UTF-8. */
static char *skip_mark(char *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    return strncmp(line, mark, strlen(mark)) == 0 ? line + strlen(mark) : line;
}

static int parse_file(const struct options *o, FILE *file, const char *path, char *err,
                      size_t err_bytes)
{
    char *line = NULL;
    size_t capacity = 0;
    char where[4200];
    ssize_t n;
    int rc = 0;
    for (int number = 1; rc == 0 && (n = getline(&line, &capacity, file)) >= 0; number++) {
        snprintf(where, sizeof(where), "%s:%d", path, number);
        if (strlen(line) != (size_t)n)
            rc = config_fail(err, err_bytes, -EINVAL,
                             "%s: the line has a zero byte: save the file as plain text", where);
        else
            rc = parse_line(o, number == 1 ? skip_mark(line) : line, where, err, err_bytes);
    }
    if (rc == 0 && !feof(file)) /* a folder, for instance, or a line too long for memory */
        rc = config_fail(err, err_bytes, -ENOENT, "configuration file %s: %s", path,
                         strerror(errno));
    free(line);
    return rc;
}

/* Opens a file. One that is not `needed` may be missing (*ret is NULL then), but an existing file
 * that cannot be read is an error: its settings would be ignored silently. */
static int open_path(const char *path, bool needed, FILE **ret, char *err, size_t err_bytes)
{
    *ret = fopen(path, "re");
    if (*ret || (!needed && (errno == ENOENT || errno == ENOTDIR)))
        return 0;
    return config_fail(err, err_bytes, -ENOENT, "configuration file %s: %s", path, strerror(errno));
}

void config_machine_path(const char *program, char *path, size_t path_bytes)
{
    size_t n = strlen(program);
    for (int cut = 0; cut < 2; cut++) { /* /opt/x/bin/hearthd: drop the name, then bin */
        while (n > 0 && program[n - 1] != '/')
            n--;
        n -= n > 0;
    }
    bool is_system = n == 0 || (n == 4 && !memcmp(program, "/usr", n)) ||
                     (n == 10 && !memcmp(program, "/usr/local", n));
    snprintf(path, path_bytes, "%.*s/etc/hearth/hearthd.conf", is_system ? 0 : (int)n, program);
}

static void machine_path(char *path, size_t path_bytes)
{
    char program[4000];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = 0;
    config_machine_path(program, path, path_bytes);
}

/* Opens the configuration file that applies; *ret is NULL where there is none. */
static int open_file(const struct config *config, FILE **ret, char *path, size_t path_bytes,
                     char *err, size_t err_bytes)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config->config) {
        snprintf(path, path_bytes, "%s", config->config);
        return open_path(path, true, ret, err, err_bytes);
    }
    *ret = NULL;
    if (base && *base)
        snprintf(path, path_bytes, "%s/hearth/hearthd.conf", base);
    else if (home && *home)
        snprintf(path, path_bytes, "%s/.config/hearth/hearthd.conf", home);
    else
        *path = 0;
    int rc = *path ? open_path(path, false, ret, err, err_bytes) : 0;
    if (rc < 0 || *ret)
        return rc;
    machine_path(path, path_bytes);
    return open_path(path, false, ret, err, err_bytes);
}

int config_load(struct config *config, int argc, char **argv, char *err, size_t err_bytes)
{
    bool given[N_ROWS] = {false};
    const struct options o = table(config, given);
    char path[4096];
    FILE *file;

    memset(config, 0, sizeof(*config));
    options_init(&o);
    int rc = options_parse(&o, argc - 1, argv + 1, err, err_bytes);
    if (rc < 0 || config->help || config->version)
        return rc;
    rc = open_file(config, &file, path, sizeof(path), err, err_bytes);
    if (rc < 0 || !file)
        return rc;
    rc = parse_file(&o, file, path, err, err_bytes);
    fclose(file);
    return rc;
}

void config_fini(struct config *config)
{
    for (struct config_text *next; config->texts; config->texts = next) {
        next = config->texts->next;
        free(config->texts);
    }
    memset(config, 0, sizeof(*config));
}

const char *config_choice(const char *name, uint32_t index, char *text, size_t text_bytes)
{
    const struct options o = table(NULL, NULL);
    return option_choice(options_find(&o, name, strlen(name))->value, index, text, text_bytes);
}

void config_help(FILE *out)
{
    const struct options o = table(NULL, NULL);
    char path[4096];
    fputs("Usage: hearthd --model FILE [OPTIONS]\n\n"
          "Keeps a language model warm and serves it to programs on this machine.\n\n",
          out);
    options_help(&o, out);
    machine_path(path, sizeof(path));
    fprintf(out,
            "\nDefaults are in parentheses. The socket is at $HEARTH_SOCKET, else\n"
            "$XDG_RUNTIME_DIR/hearth/hearth.sock, else /run/hearth/hearth.sock.\n"
            "The same names are keys of the configuration file, `name = value` a line:\n"
            "$XDG_CONFIG_HOME/hearth/hearthd.conf, else\n%s.\nNumbers take K, M, G, T.\n",
            path);
}

void config_dump(struct config *config, void (*line)(const char *text))
{
    const struct options o = table(config, NULL);
    char text[4200], value[48];
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *set = options_value(&o, &rows[i], value, sizeof(value));
        if (!set)
            continue;
        snprintf(text, sizeof(text), "%s = %s", rows[i].name, set);
        line(text);
    }
}
