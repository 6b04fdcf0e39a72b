#include "kernels/tools/tool.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "kernels/base/fail.h"

int tool_fail(const struct tool *tool, int code, const char *format, ...)
{
    char text[1024], line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(line, sizeof line, 0, "%s", text);
    fprintf(stderr, "%s: %s\n", tool->name, line);
    return code;
}

int tool_exit(int error)
{
    switch (error) {
    case 0:
        return 0;
    case -EINVAL:
        return EX_USAGE;
    case -EBADMSG:
    case -ENOTSUP:
    case -EDOM:
    case -ERANGE:
        return EX_DATAERR;
    case -ENOENT:
    case -EACCES:
    case -EISDIR:
    case -ENOTDIR:
        return EX_NOINPUT;
    default:
        return EX_OSERR;
    }
}

int tool_end(const struct tool *tool, int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    return tool_fail(tool, EX_IOERR, "cannot write the output: %s", strerror(errno));
}

static void print_help(const struct tool *tool)
{
    printf("%s\n", tool->usage);
    for (uint32_t i = 0; i < tool->n_options; i++) {
        const struct tool_option *o = &tool->options[i];
        char words[64], letter[8] = "    ";
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(words, sizeof words, "%s--%s%s%s", letter, o->name, o->metavar ? " " : "",
                 o->metavar ? o->metavar : "");
        printf("  %-26s %s", words, o->help);
        if (o->kind == TOOL_NUMBER)
            printf(" (default: %llu)", (unsigned long long)*(const uint64_t *)o->value);
        printf("\n");
    }
    printf("  %-26s print this and exit\n  %-26s print the version and exit\n", "-h, --help",
           "    --version");
}

static const struct tool_option *find_name(const struct tool *tool, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < tool->n_options; i++)
        if (strlen(tool->options[i].name) == bytes &&
            memcmp(tool->options[i].name, name, bytes) == 0)
            return &tool->options[i];
    return NULL;
}

static const struct tool_option *find_letter(const struct tool *tool, char letter)
{
    for (uint32_t i = 0; i < tool->n_options; i++)
        if (tool->options[i].letter && tool->options[i].letter == letter)
            return &tool->options[i];
    return NULL;
}

static int set_value(const struct tool *tool, const struct tool_option *o, const char *text)
{
    if (o->kind == TOOL_TEXT) {
        if (!*text)
            return tool_fail(tool, EX_USAGE, "--%s is empty: give it a %s", o->name, o->metavar);
        *(const char **)o->value = text;
        return 0;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || number < o->min || number > o->max)
        return tool_fail(tool, EX_USAGE, "--%s %s: a whole number from %llu to %llu is needed",
                         o->name, text, (unsigned long long)o->min, (unsigned long long)o->max);
    *(uint64_t *)o->value = number;
    return 0;
}

/* Takes the option at argv[*at], and its value from behind '=' or from the next word. */
static int take_option(const struct tool *tool, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *value = NULL;
    const struct tool_option *o;
    if (word[1] == '-') {
        size_t bytes = strcspn(word + 2, "=");
        o = find_name(tool, word + 2, bytes);
        value = word[2 + bytes] ? word + 3 + bytes : NULL;
    } else {
        o = find_letter(tool, word[1]);
        value = word[2] ? word + 2 : NULL;
    }
    if (!o)
        return tool_fail(tool, EX_USAGE, "no such option: %s (see --help)", word);
    if (o->kind == TOOL_FLAG) {
        if (value)
            return tool_fail(tool, EX_USAGE, "--%s takes no value", o->name);
        *(bool *)o->value = true;
        return 0;
    }
    if (!value && *at + 1 < argc)
        value = argv[++*at];
    if (!value)
        return tool_fail(tool, EX_USAGE, "--%s needs a value: %s", o->name, o->metavar);
    return set_value(tool, o, value);
}

int tool_parse(const struct tool *tool, int argc, char **argv, const char **ret_operand)
{
    *ret_operand = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(tool);
            exit(tool_end(tool, 0));
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("%s " HEARTH_VERSION "\n", tool->name);
            exit(tool_end(tool, 0));
        }
        if (argv[i][0] == '-' && argv[i][1]) {
            int rc = take_option(tool, argc, argv, &i);
            if (rc)
                return rc;
        } else if (*ret_operand) {
            return tool_fail(tool, EX_USAGE, "one file at a time: %s is one too many", argv[i]);
        } else {
            *ret_operand = argv[i];
        }
    }
    return 0;
}

uint32_t tool_threads(uint64_t asked)
{
    cpu_set_t cores;

    if (asked)
        return (uint32_t)asked;
    if (sched_getaffinity(0, sizeof cores, &cores) < 0)
        return 1;
    return CPU_COUNT(&cores) < 256 ? (uint32_t)CPU_COUNT(&cores) : 256;
}
