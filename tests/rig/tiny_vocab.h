/* tiny_vocab: vocabularies small enough to reason about by hand, for tests and fuzz targets. BPE:
 * ids 0..255 are the bytes, then whatever tiny_merge and tiny_add append. SPM: <unk> <s> </s> are 0
 * 1 2, then, if asked for, the byte tokens 3..258, then tiny_add. Aborts on misuse. */
#ifndef HEARTH_TESTS_RIG_TINY_VOCAB_H
#define HEARTH_TESTS_RIG_TINY_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/vocab.h"

enum { TINY_MAX = 700 };

struct tiny {
    struct vocab_desc desc;
    struct vocab_string texts[TINY_MAX];
    int32_t types[TINY_MAX];
    float scores[TINY_MAX];
    struct vocab_string merges[TINY_MAX];
    char pool[1 << 15];
    size_t pool_used;
};

static inline struct vocab_string tiny_keep(struct tiny *t, const char *text, size_t bytes)
{
    if (t->pool_used + bytes > sizeof(t->pool))
        abort();
    char *at = t->pool + t->pool_used;
    memcpy(at, text, bytes);
    t->pool_used += bytes;
    return (struct vocab_string){at, bytes};
}

static inline uint32_t tiny_add_bytes(struct tiny *t, const char *text, size_t bytes, int type,
                                      float score)
{
    uint32_t id = t->desc.n_tokens++;
    if (id >= TINY_MAX)
        abort();
    t->texts[id] = tiny_keep(t, text, bytes);
    t->types[id] = type;
    t->scores[id] = score;
    return id;
}

static inline uint32_t tiny_add(struct tiny *t, const char *text, int type, float score)
{
    return tiny_add_bytes(t, text, strlen(text), type, score);
}

static inline void tiny_init(struct tiny *t, const char *model, const char *pre)
{
    memset(t, 0, sizeof(*t));
    vocab_desc_init(&t->desc);
    t->desc.model = (struct vocab_string){model, strlen(model)};
    t->desc.pre = (struct vocab_string){pre, strlen(pre)};
    t->desc.texts = t->texts;
    t->desc.types = t->types;
    t->desc.scores = t->scores;
    t->desc.merges = t->merges;
}

/* GPT-2's letter for a byte, by the definition: printable Latin-1 bytes are themselves, the others
 * are counted up from U+0100 in their order. */
static inline size_t tiny_letter(int byte, char out[2])
{
    int code = 0x100;
    for (int b = 0; b <= byte; b++) {
        int printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte && printable)
            code = b;
        else if (b < byte && !printable)
            code++;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* Letters of a text of bytes. Returns their number of bytes. */
static inline size_t tiny_letters(const char *text, char *out)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += tiny_letter((unsigned char)*text, out + n);
    return n;
}

/* A merge of two texts given as plain bytes, and the token that it makes. Returns its id. */
static inline uint32_t tiny_merge(struct tiny *t, const char *left, const char *right)
{
    char letters[256];
    size_t n_left = tiny_letters(left, letters);
    letters[n_left] = ' ';
    size_t n = n_left + 1 + tiny_letters(right, letters + n_left + 1);
    t->merges[t->desc.n_merges++] = tiny_keep(t, letters, n);
    memmove(letters + n_left, letters + n_left + 1, n - n_left - 1);
    return tiny_add_bytes(t, letters, n - 1, VOCAB_TYPE_NORMAL, 0);
}

static inline void tiny_init_bpe(struct tiny *t, const char *pre)
{
    tiny_init(t, "gpt2", pre);
    for (int b = 0; b < 256; b++) {
        char letter[2];
        size_t n = tiny_letter(b, letter);
        tiny_add_bytes(t, letter, n, VOCAB_TYPE_NORMAL, 0);
    }
}

static inline void tiny_init_spm(struct tiny *t, int byte_tokens)
{
    tiny_init(t, "llama", "default");
    tiny_add(t, "<unk>", VOCAB_TYPE_UNKNOWN, 0);
    tiny_add(t, "<s>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(t, "</s>", VOCAB_TYPE_CONTROL, 0);
    for (int b = 0; byte_tokens && b < 256; b++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)b);
        tiny_add(t, name, VOCAB_TYPE_BYTE, 0);
    }
}

/* Builds and opens; *ret_block is to be freed. */
static inline struct vocab tiny_open(const struct tiny *t, void **ret_block)
{
    char err[512];
    size_t bytes;
    struct vocab v;
    if (vocab_build(&t->desc, ret_block, &bytes, err, sizeof(err)) != 0 ||
        vocab_open(*ret_block, bytes, &v, err, sizeof(err)) != 0) {
        fprintf(stderr, "tiny_open: %s\n", err);
        abort();
    }
    return v;
}

#endif
