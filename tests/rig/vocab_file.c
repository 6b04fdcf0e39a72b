#include "tests/rig/vocab_file.h"

#include <check.h>
#include <stdlib.h>

#include "ipc/vocab.h"
#include "kernels/gguf/gguf_vocab.h"

static struct vocab_string *strings(const struct gguf_string *from, uint32_t n)
{
    struct vocab_string *to = calloc(n + 1, sizeof(*to));
    for (uint32_t i = 0; i < n; i++)
        to[i] = (struct vocab_string){from[i].data, from[i].bytes};
    return to;
}

void *vocab_file_build(const char *path, size_t *ret_bytes)
{
    struct gguf *g;
    struct gguf_vocab f;
    struct vocab_desc d;
    void *block = NULL;
    char err[512];
    ck_assert_msg(gguf_open(path, &g, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(gguf_vocab_open(g, &f, err, sizeof(err)) == 0, "%s", err);
    vocab_desc_init(&d);
    d.model = (struct vocab_string){f.model.data, f.model.bytes};
    d.pre = (struct vocab_string){f.pre.data, f.pre.bytes};
    d.n_tokens = f.n_tokens;
    d.n_merges = f.n_merges;
    struct vocab_string *texts = strings(f.tokens, f.n_tokens);
    struct vocab_string *merges = strings(f.merges, f.n_merges);
    d.texts = texts;
    d.merges = merges;
    d.types = f.types;
    d.scores = f.scores;
    d.roles[VOCAB_BOS] = f.ids.bos;
    d.roles[VOCAB_EOS] = f.ids.eos;
    d.roles[VOCAB_UNK] = f.ids.unk;
    d.add_bos = f.add_bos;
    d.add_space_prefix = f.add_space_prefix;
    ck_assert_msg(vocab_build(&d, &block, ret_bytes, err, sizeof(err)) == 0, "%s", err);
    free(texts);
    free(merges);
    gguf_vocab_close(&f);
    gguf_close(g);
    return block;
}
