/*
 * tool: what the command-line programs of this folder share: a table of options that makes the
 * parser and --help, errors of one line, exit codes of sysexits(3).
 *
 * One thread. Owns nothing: an option's value points into argv. tool_fail alone prints, on stderr.
 */
#ifndef HEARTH_KERNELS_TOOLS_TOOL_H
#define HEARTH_KERNELS_TOOLS_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum tool_option_kind {
    TOOL_TEXT,   /* const char * */
    TOOL_NUMBER, /* uint64_t, min to max */
    TOOL_FLAG,   /* bool */
};

struct tool_option {
    const char *name; /* "threads": given as --threads N or --threads=N */
    char letter;      /* 't': also -t N; 0 for none */
    enum tool_option_kind kind;
    void *value;                /* of the kind; holds the default */
    uint64_t min, max;          /* TOOL_NUMBER */
    const char *metavar, *help; /* the metavar of a TOOL_NUMBER or TOOL_TEXT: "N" */
};

struct tool {
    const char *name;  /* "hearth-bench" */
    const char *usage; /* lines of --help before the options */
    const struct tool_option *options;
    uint32_t n_options;
};

/*
 * Reads argv. *ret_operand is the one word that is no option, or NULL; tools take at most one.
 * --help, -h and --version print and exit with 0. Returns 0, or prints the line and returns EX_USAGE.
 */
int tool_parse(const struct tool *tool, int argc, char **argv, const char **ret_operand);

/* Prints "NAME: the line" on stderr, bytes that are not printable as '?', and returns `code`. */
__attribute__((format(printf, 3, 4))) int tool_fail(const struct tool *tool, int code,
                                                    const char *format, ...);

/* The exit code that says what kind of failure -errno is. */
int tool_exit(int error);

/* Makes sure that what was printed arrived: EX_IOERR with a line where it did not, else `code`. */
int tool_end(const struct tool *tool, int code);

/* How many threads: as many as asked for, or with 0 one a core that this process may use, 256 at
 * most. */
uint32_t tool_threads(uint64_t asked);

#endif
