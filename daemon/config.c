/* The option table as data, and its three readers: argv, the file, --help. */
#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum option_kind { OPTION_TEXT, OPTION_NUMBER, OPTION_CHOICE, OPTION_FLAG };

struct option_desc {
    const char *name;
    enum option_kind kind;
    size_t offset; /* of the field in struct config */
    uint64_t def, min, max;
    const char *values; /* metavar, or the choices */
    const char *help;
};

static const struct option_desc options[] = {
#define DESC_TEXT(field, name, metavar, help)                                                      \
    {name, OPTION_TEXT, offsetof(struct config, field), 0, 0, 0, metavar, help},
#define DESC_NUMBER(field, name, def, min, max, metavar, help)                                     \
    {name, OPTION_NUMBER, offsetof(struct config, field), def, min, max, metavar, help},
#define DESC_CHOICE(field, name, def, choices, help)                                               \
    {name, OPTION_CHOICE, offsetof(struct config, field), def, 0, 0, choices, help},
#define DESC_FLAG(field, name, help)                                                               \
    {name, OPTION_FLAG, offsetof(struct config, field), 0, 0, 1, NULL, help},
    HEARTHD_OPTIONS(DESC_TEXT, DESC_NUMBER, DESC_CHOICE, DESC_FLAG)};

enum { N_OPTIONS = sizeof(options) / sizeof(*options) };

/* Which options were given on the command line: the file does not override them. */
struct given {
    bool option[N_OPTIONS];
};

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

static void *option_field(struct config *config, const struct option_desc *option)
{
    return (char *)config + option->offset;
}

static const struct option_desc *option_find(const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strlen(options[i].name) == n_bytes && !memcmp(options[i].name, name, n_bytes))
            return &options[i];
    return NULL;
}

/* A decimal number with an optional K, M, G or T. Returns false for anything else, overflow included.
 */
static bool parse_number(const char *text, uint64_t *ret)
{
    char *end;
    unsigned shift = 0;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno)
        return false;
    static const char suffixes[] = "KkMmGgTt";
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        shift = 10 * ((unsigned)(suffix - suffixes) / 2 + 1);
        end++;
    }
    if (*end || value > UINT64_MAX >> shift)
        return false;
    *ret = (uint64_t)value << shift;
    return true;
}

/* The index of `text` among "a|b|c", or -1. */
static int choice_find(const char *choices, const char *text)
{
    size_t n = strlen(text);

    for (int index = 0; *choices; index++) {
        size_t length = strcspn(choices, "|");
        if (length == n && !memcmp(choices, text, n))
            return index;
        choices += length;
        choices += *choices == '|';
    }
    return -1;
}

static int option_set(struct config *config, const struct option_desc *option, const char *text,
                      char *err, size_t err_bytes)
{
    void *field = option_field(config, option);
    uint64_t number;
    int choice;

    switch (option->kind) {
    case OPTION_TEXT:
        if (!*text)
            return config_fail(err, err_bytes, -EINVAL, "%s is empty: give a path", option->name);
        free(*(char **)field);
        *(char **)field = strdup(text);
        return *(char **)field ? 0 : -ENOMEM;
    case OPTION_NUMBER:
        if (!parse_number(text, &number) || number < option->min || number > option->max)
            return config_fail(err, err_bytes, -EINVAL,
                               "%s is '%s': give a number from %llu to %llu", option->name, text,
                               (unsigned long long)option->min, (unsigned long long)option->max);
        *(uint64_t *)field = number;
        return 0;
    case OPTION_CHOICE:
        choice = choice_find(option->values, text);
        if (choice < 0)
            return config_fail(err, err_bytes, -EINVAL, "%s is '%s': give one of %s", option->name,
                               text, option->values);
        *(uint32_t *)field = (uint32_t)choice;
        return 0;
    case OPTION_FLAG:
        choice = choice_find("no|yes", text);
        if (choice < 0)
            return config_fail(err, err_bytes, -EINVAL, "%s is '%s': give yes or no", option->name,
                               text);
        *(uint32_t *)field = (uint32_t)choice;
        return 0;
    }
    return -EINVAL;
}

static int parse_argv(struct config *config, struct given *given, int argc, char **argv, char *err,
                      size_t err_bytes)
{
    for (int i = 1; i < argc; i++) {
        const char *name = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        if (strncmp(name, "--", 2) != 0)
            return config_fail(err, err_bytes, -EINVAL, "'%s' is not an option: see hearthd --help",
                               name);
        name += 2;
        size_t n = strcspn(name, "=");
        const struct option_desc *option = option_find(name, n);
        if (!option)
            return config_fail(err, err_bytes, -EINVAL, "unknown option --%s: see hearthd --help",
                               name);
        const char *value = name[n] ? name + n + 1 : NULL;
        if (option->kind == OPTION_FLAG && !value)
            value = "yes";
        else if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value)
            return config_fail(err, err_bytes, -EINVAL, "--%s needs a value: %s", option->name,
                               option->values);
        int rc = option_set(config, option, value, err, err_bytes);
        if (rc < 0)
            return rc;
        given->option[option - options] = true;
    }
    return 0;
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

/* One line of the file: `name = value`, `# comment`, or nothing. */
static int parse_line(struct config *config, const struct given *given, char *line,
                      const char *where, char *err, size_t err_bytes)
{
    char detail[256] = "not enough memory"; /* for who says nothing */
    char *equals;

    line = trim(line);
    if (!*line || *line == '#')
        return 0;
    equals = strchr(line, '=');
    if (!equals)
        return config_fail(err, err_bytes, -EINVAL, "%s: '%s' is not `name = value`", where, line);
    *equals = 0;
    char *name = trim(line), *value = trim(equals + 1);
    const struct option_desc *option = option_find(name, strlen(name));
    if (!option || !strcmp(name, "config"))
        return config_fail(err, err_bytes, -EINVAL,
                           "%s: no option is called '%s': see hearthd --help", where, name);
    if (given->option[option - options])
        return 0;
    if (option_set(config, option, value, detail, sizeof(detail)) < 0)
        return config_fail(err, err_bytes, -EINVAL, "%s: %s", where, detail);
    return 0;
}

/* What some editors put in front of UTF-8. */
static char *skip_mark(char *line)
{
    static const char mark[] = "\xef\xbb\xbf";

    return strncmp(line, mark, strlen(mark)) == 0 ? line + strlen(mark) : line;
}

static int parse_file(struct config *config, const struct given *given, FILE *file,
                      const char *path, char *err, size_t err_bytes)
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
                             "%s: a zero byte stands here: save the file as plain text", where);
        else
            rc = parse_line(config, given, number == 1 ? skip_mark(line) : line, where, err,
                            err_bytes);
    }
    if (rc == 0 && !feof(file)) /* a folder, for instance, or a line that memory does not hold */
        rc = config_fail(err, err_bytes, -ENOENT, "configuration file %s: %s", path,
                         strerror(errno));
    free(line);
    return rc;
}

/* Opens a file that must be there (`needed`) or may be missing, but not be unreadable: who wrote it
 * would wonder why it counts for nothing. *ret is NULL where it is missing. */
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

    for (int cut = 0; cut < 2; cut++) { /* /opt/x/bin/hearthd: off with the name, and with bin */
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
    struct given given = {0};
    char path[4096];
    FILE *file;
    int rc;

    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < N_OPTIONS; i++) {
        void *field = option_field(config, &options[i]);
        if (options[i].kind == OPTION_NUMBER)
            *(uint64_t *)field = options[i].def;
        else if (options[i].kind == OPTION_CHOICE)
            *(uint32_t *)field = (uint32_t)options[i].def;
    }
    rc = parse_argv(config, &given, argc, argv, err, err_bytes);
    if (rc < 0 || config->help || config->version)
        return rc;
    rc = open_file(config, &file, path, sizeof(path), err, err_bytes);
    if (rc < 0 || !file)
        return rc;
    rc = parse_file(config, &given, file, path, err, err_bytes);
    fclose(file);
    return rc;
}

void config_fini(struct config *config)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].kind == OPTION_TEXT)
            free(*(char **)option_field(config, &options[i]));
    memset(config, 0, sizeof(*config));
}

const char *config_choice(const char *name, uint32_t index, char *text, size_t text_bytes)
{
    const char *choices = option_find(name, strlen(name))->values;

    while (index-- && *choices)
        choices += strcspn(choices, "|") + 1;
    snprintf(text, text_bytes, "%.*s", (int)strcspn(choices, "|"), choices);
    return text;
}

void config_help(FILE *out)
{
    char path[4096];

    fputs("Usage: hearthd --model FILE [OPTIONS]\n\n"
          "Keeps a language model warm and serves it to programs on this machine.\n\n",
          out);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_desc *option = &options[i];
        char left[80], value[48];
        snprintf(left, sizeof(left), "--%s%s%s", option->name, option->values ? " " : "",
                 option->values ? option->values : "");
        fprintf(out, "  %-24s %s", left, option->help);
        if (option->kind == OPTION_CHOICE)
            fprintf(out, " (%s)",
                    config_choice(option->name, (uint32_t)option->def, value, sizeof(value)));
        else if (option->kind == OPTION_NUMBER && option->def)
            fprintf(out, " (%llu)", (unsigned long long)option->def);
        fputc('\n', out);
    }
    machine_path(path, sizeof(path));
    fprintf(out,
            "\nIn parentheses: the default. The socket is at $HEARTH_SOCKET, else\n"
            "$XDG_RUNTIME_DIR/hearth/hearth.sock, else /run/hearth/hearth.sock.\n"
            "The same names are keys of the configuration file, `name = value` a line:\n"
            "$XDG_CONFIG_HOME/hearth/hearthd.conf, else\n%s.\nNumbers take K, M, G, T.\n",
            path);
}

void config_dump(const struct config *config, void (*line)(const char *text))
{
    char text[4200], value[48];

    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_desc *option = &options[i];
        const void *field = (const char *)config + option->offset;
        *text = 0;
        if (option->kind == OPTION_TEXT && *(char *const *)field)
            snprintf(text, sizeof(text), "%s = %s", option->name, *(char *const *)field);
        else if (option->kind == OPTION_NUMBER && *(const uint64_t *)field != option->def)
            snprintf(text, sizeof(text), "%s = %llu", option->name,
                     (unsigned long long)*(const uint64_t *)field);
        else if (option->kind == OPTION_CHOICE && *(const uint32_t *)field != option->def)
            snprintf(text, sizeof(text), "%s = %s", option->name,
                     config_choice(option->name, *(const uint32_t *)field, value, sizeof(value)));
        if (*text)
            line(text);
    }
}
