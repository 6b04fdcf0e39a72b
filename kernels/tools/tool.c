/* tool.c: see tool.h. */
#include "kernels/tools/tool.h"

#include "kernels/base/fail.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

int tool_fail(const struct tool *tool, int code, const char *format, ...)
{
    char text[1024], line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fail(line, sizeof(line), 0, "%s", text);
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

int tool_parse(const struct tool *tool, int argc, char **argv, const char **ret_operand)
{
    const struct options o = {
        .rows = tool->rows, .n = tool->n_rows, .fields = tool->fields, .takes_words = true};
    const struct tool_common *common = tool->fields;
    char err[512];
    options_init(&o);
    int n_words = options_parse(&o, argc - 1, argv + 1, err, sizeof(err));
    if (n_words < 0)
        return tool_fail(tool, EX_USAGE, "%s", err);
    if (common->help) {
        printf("%s\n", tool->usage);
        options_help(&o, stdout);
        exit(tool_end(tool, 0));
    }
    if (common->version) {
        printf("%s " HEARTH_VERSION "\n", tool->name);
        exit(tool_end(tool, 0));
    }
    if (n_words > 1)
        return tool_fail(tool, EX_USAGE, "unexpected argument '%s': give one file", argv[2]);
    *ret_operand = n_words ? argv[1] : NULL;
    return 0;
}

uint32_t tool_threads(uint64_t asked)
{
    cpu_set_t cores;
    if (asked)
        return (uint32_t)asked;
    if (sched_getaffinity(0, sizeof(cores), &cores) < 0)
        return 1;
    return CPU_COUNT(&cores) < 256 ? (uint32_t)CPU_COUNT(&cores) : 256;
}
