/* describe: what hearthd says of a model file: `hearthd --describe`, which reads the file's head.
 *
 * Any thread. Runs a program; never prints. */
#ifndef HEARTH_CLIENT_MODELS_DESCRIBE_H
#define HEARTH_CLIENT_MODELS_DESCRIBE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From this many tokens of context on a model is fit for agents: these send a prompt of some 50 KB
 * before the first word of a conversation. */
enum { DESCRIBE_AGENT_CONTEXT = 32768 };

/* daemon/model/report.h, report_describe, says what these are. */
struct description {
    char model[128], arch[64], type[16];
    uint64_t parameters, weight_bytes, kv_bytes, least_kv_bytes, needs_bytes, available_bytes;
    uint32_t model_context, context;
    bool fits, chat, tools, fim;
    char refused[512]; /* why hearthd does not serve the file; "": it does */
    int exit_code;     /* of hearthd */
};

/* The options of hearthd that a description assumes; NULL: hearthd's defaults. */
struct description_wish {
    const char *context;  /* a number, or "auto" */
    const char *kv_bytes; /* a number, or "auto" */
    const char *draft;    /* path */
};

/* Does the model suit agents: does it fit, with a long enough context and a template that writes
 * tools? */
bool description_for_agents(const struct description *d);

/* A program in $PATH; one of hearth: beside this one, else there. Returns 0, or -ENOENT. */
int describe_find_program(const char *name, char ret[PATH_MAX]);
int describe_find_own(const char *name, char ret[PATH_MAX]);

/* Returns 0 with *ret, which may say that the file is refused; or -errno where hearthd cannot be run
 * or says nothing that can be read, with one line. */
int describe_file(const char *hearthd, const char *path, const struct description_wish *wish,
                  struct description *ret, char *err, size_t err_bytes);

#endif
