/* chat_tools: programs that the model may call in `hearth chat --tools FILE`.
 *
 * FILE is a JSON array of {"name", "description", "parameters", "argv": [...]}. argv[0] is a path;
 * "{NAME}" in another element is the argument of that name, a value fills exactly one element, and no
 * shell sees it. Each call is asked about on the terminal, and is not made unless the answer is y.
 * A program runs in a process group of its own, with a clean environment and /dev/null as its input;
 * it is killed at the limit of time, by Ctrl-C, and with hearth. One thread. */
#ifndef HEARTH_CLIENT_CLI_CHAT_TOOLS_H
#define HEARTH_CLIENT_CLI_CHAT_TOOLS_H

#include "client/cli/cli.h"

#include <jansson.h>

enum {
    CHAT_TOOLS_ROUNDS = 25,          /* answers with calls, in a row */
    CHAT_TOOLS_BYTES = 64 << 10,     /* of a program's output */
    CHAT_TOOLS_MS = 30000,           /* for a program */
    CHAT_TOOLS_FILE_BYTES = 1 << 20, /* of FILE */
};

struct chat_tools {
    json_t *list;      /* as FILE has them */
    char *description; /* JSON: what the template is given */
};

/* Reads FILE, which others must not be able to write. Returns 0 or an exit code, the error printed;
 * chat_tools_close in either case. */
int chat_tools_open(struct chat_tools *t, const char *path);
void chat_tools_close(struct chat_tools *t);

/* Asks, and makes the call. Returns what the model is told: the program's output, or why there is
 * none; NULL without memory. `interrupted`: was Ctrl-C pressed since it was last called? */
char *chat_tools_call(const struct chat_tools *t, const char *name, const char *arguments,
                      int (*interrupted)(void));

/* The program and its arguments for a call, to be given to chat_tools_free; NULL with one line in
 * err, for the model. */
char **chat_tools_argv(const struct chat_tools *t, const char *name, const char *arguments,
                       char *err, size_t err_bytes);
void chat_tools_free(char **argv);

#endif
