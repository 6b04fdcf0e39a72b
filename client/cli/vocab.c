/* vocab: see vocab.h. */
#include "client/cli/vocab.h"

#include "client/cli/cli.h"
#include "kernels/gguf/gguf.h"
#include "kernels/gguf/gguf_vocab.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static int exit_code(int rc)
{
    switch (rc) {
    case -ENOENT:
    case -ENOTDIR:
    case -EACCES:
    case -EPERM:
    case -EISDIR:
        return CLI_NO_INPUT;
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
        return CLI_SYSTEM;
    default:
        return CLI_BAD_INPUT;
    }
}

/* The same view with a 32-bit length. A longer text gets a length that ipc/vocab.h refuses. */
static struct vocab_string view(struct gguf_string s)
{
    return (struct vocab_string){.data = s.data,
                                 .bytes = s.bytes < UINT32_MAX ? (uint32_t)s.bytes : UINT32_MAX};
}

static struct vocab_string *copy_views(const struct gguf_string *from, uint32_t n)
{
    struct vocab_string *to = calloc(n ? n : 1, sizeof(*to));
    for (uint32_t i = 0; to && i < n; i++)
        to[i] = view(from[i]);
    return to;
}

static int build(const struct gguf_vocab *g, void **ret_block, size_t *ret_bytes, char *err,
                 size_t err_bytes)
{
    struct vocab_desc d;
    vocab_desc_init(&d);
    struct vocab_string *texts = copy_views(g->tokens, g->n_tokens);
    struct vocab_string *merges = copy_views(g->merges, g->n_merges);
    d.model = view(g->model);
    d.pre = view(g->pre);
    d.n_tokens = g->n_tokens;
    d.texts = texts;
    d.types = g->types;
    d.scores = g->scores;
    d.n_merges = g->n_merges;
    d.merges = merges;
    d.roles[VOCAB_BOS] = g->ids.bos;
    d.roles[VOCAB_EOS] = g->ids.eos;
    d.roles[VOCAB_EOT] = g->ids.eot;
    d.roles[VOCAB_EOM] = g->ids.eom;
    d.roles[VOCAB_UNK] = g->ids.unk;
    d.roles[VOCAB_PAD] = g->ids.pad;
    d.roles[VOCAB_FIM_PREFIX] = g->ids.fim_pre;
    d.roles[VOCAB_FIM_SUFFIX] = g->ids.fim_suf;
    d.roles[VOCAB_FIM_MIDDLE] = g->ids.fim_mid;
    d.roles[VOCAB_FIM_PAD] = g->ids.fim_pad;
    d.roles[VOCAB_FIM_REPO] = g->ids.fim_rep;
    d.roles[VOCAB_FIM_FILE] = g->ids.fim_sep;
    d.add_bos = g->add_bos;
    d.add_eos = g->add_eos;
    d.add_space_prefix = g->add_space_prefix;
    int rc = texts && merges ? vocab_build(&d, ret_block, ret_bytes, err, err_bytes) : -ENOMEM;
    free(merges);
    free(texts);
    return rc;
}

int cli_vocab_open(const char *path, struct vocab *ret_vocab, void **ret_block)
{
    char err[512] = "out of memory: free some and try again";
    struct gguf *file = NULL;
    struct gguf_vocab g = {0};
    size_t bytes = 0;
    *ret_block = NULL;
    int rc = gguf_open(path, &file, err, sizeof(err));
    if (!rc)
        rc = gguf_vocab_open(file, &g, err, sizeof(err));
    if (rc == -ENOENT && file)
        rc = -EBADMSG; /* the file is there, its tokenizer is not */
    if (!rc)
        rc = build(&g, ret_block, &bytes, err, sizeof(err));
    if (!rc)
        rc = vocab_open(*ret_block, bytes, ret_vocab, err, sizeof(err));
    gguf_vocab_close(&g);
    gguf_close(file);
    if (!rc)
        return 0;
    free(*ret_block);
    *ret_block = NULL;
    return cli_fail(exit_code(rc), "%s: %s", path, err);
}
