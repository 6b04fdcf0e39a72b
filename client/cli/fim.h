/* fim: the prompt of `hearth fim`: a file and a place in it, or the texts before and after the
 * place, and other files. It reads files; the library makes the tokens. */
#ifndef HEARTH_CLIENT_CLI_FIM_H
#define HEARTH_CLIENT_CLI_FIM_H

#include "client/cli/cli.h"

struct cli_fim {
    struct hearth_fim request;   /* points into the following */
    struct buffer text, after;   /* the buffer, or prefix and suffix */
    struct buffer *files;        /* [n_files] of --extra */
    struct hearth_chunk *chunks; /* [n_files] */
    uint32_t n_files;
    char *name; /* the file's, without the place */
};

/* Reads what the options name. Returns 0 or an exit code, the error printed. cli_fim_fini either
 * way. */
int cli_fim_read(const struct cli_options *o, struct cli_fim *f);
void cli_fim_fini(struct cli_fim *f);

/* The tokens of the prompt into *ids, which is empty. Returns 0 or an exit code, the error
 * printed. */
int cli_fim_tokens(struct hearth *h, const struct cli_fim *f, struct cli_ids *ids);

#endif
