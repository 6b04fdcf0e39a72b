/* tool.h: shared by the command-line programs of this folder: options by table (ipc/options.h),
 * one-line errors, exit codes of sysexits(3).
 *
 * One thread. Owns nothing: an option's value points into argv. Only tool_fail prints, on stderr.
 */
#ifndef HEARTH_KERNELS_TOOLS_TOOL_H
#define HEARTH_KERNELS_TOOLS_TOOL_H
#include "ipc/options.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Options of every tool: the first member of the struct that its options fill. */
struct tool_common {
    int help, version;
};

struct tool {
    const char *name;              /* "hearth-bench" */
    const char *usage;             /* lines of --help before the options */
    const struct option_row *rows; /* [n_rows], the last of them TOOL_COMMON_ROWS */
    uint32_t n_rows;
    void *fields;
};

#define TOOL_COMMON_ROWS(type)                                                                     \
    OPTION(type, common.help, "help", 'h', OPTION_FLAG, NULL, NULL, 0, 0,                          \
           "print this help and exit"),                                                            \
        OPTION(type, common.version, "version", 0, OPTION_FLAG, NULL, NULL, 0, 0,                  \
               "print the version and exit")

/*
 * Reads argv. *ret_operand is the one word that is not an option, or NULL; tools take at most one.
 * --help, -h and --version print and exit with 0. Returns 0, or prints the line and returns
 * EX_USAGE. */
int tool_parse(const struct tool *tool, int argc, char **argv, const char **ret_operand);

/* Prints "NAME: the line" on stderr, with '?' for bytes that are not printable, and returns
 * `code`. */
__attribute__((format(printf, 3, 4))) int tool_fail(const struct tool *tool, int code,
                                                    const char *format, ...);

/* Maps -errno to an exit code. */
int tool_exit(int error);

/* Makes sure that the output was written: returns `code`, or EX_IOERR with a line if writing
 * failed. */
int tool_end(const struct tool *tool, int code);

/* The number of threads: as requested, or for 0 one per core that this process may use, at most
 * 256. */
uint32_t tool_threads(uint64_t asked);

#endif
