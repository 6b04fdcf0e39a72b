/* gguf_vocab.h: reads `tokenizer.ggml.*` of a GGUF file into a neutral form. It knows the keys and
 * checks their values; it does not tokenize, and does not judge whether a tokenizer of that name
 * exists.
 *
 * Works on vocabulary-only files (no tensors). Texts are views into the file: the gguf must outlive
 * the vocabulary. Threads: any; owns four arrays; never prints. */
#ifndef HEARTH_KERNELS_GGUF_GGUF_VOCAB_H
#define HEARTH_KERNELS_GGUF_GGUF_VOCAB_H
#include "kernels/gguf/gguf.h"

#include <stdint.h>

enum { GGUF_VOCAB_MAX_TOKENS = 1 << 20 };

/* Values of `types`, as in the file. */
enum gguf_token_type {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,
    GGUF_TOKEN_USER_DEFINED = 4,
    GGUF_TOKEN_UNUSED = 5,
    GGUF_TOKEN_BYTE = 6,
};

/* Special tokens: an id below n_tokens, or -1 where the file names none. An id out of range makes
 * the file malformed for bos, eos, unk, eot and eom; for the others it is treated as absent. */
struct gguf_vocab_ids {
    int32_t bos, eos, unk, sep, pad, eot, eom;
    int32_t fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
};

struct gguf_vocab {
    struct gguf_string model; /* "llama" (SPM), "gpt2" (byte-level BPE), or another name */
    struct gguf_string pre;   /* pre-tokenizer, "qwen2"; 0 bytes when the key is absent */
    uint32_t n_tokens;        /* 1..GGUF_VOCAB_MAX_TOKENS */
    uint32_t n_merges;
    struct gguf_string
        *tokens; /* [n_tokens] text as in the file: SPM with U+2581, BPE in GPT-2's byte letters */
    struct gguf_string
        *merges;    /* [n_merges] "left right" in rank order; NULL when there are none */
    int32_t *types; /* [n_tokens] gguf_token_type (or another number in the file); NORMAL if
                       absent */
    float *scores;  /* [n_tokens], never NaN; NULL when the file has none */
    struct gguf_vocab_ids ids;
    int8_t add_bos; /* 0, 1, or -1 where the key is absent */
    int8_t add_eos;
    int8_t add_space_prefix;
    /* Jinja chat templates: the default, and the variant for chats with tools; 0 bytes: none. */
    struct gguf_string chat_template, chat_template_tools;
};

/* Returns 0 and fills *ret; -ENOENT when the file has no tokenizer; -EBADMSG when it is
 * inconsistent (lengths differ, an id out of range, a value of another type); -ENOMEM; with the
 * line. On failure nothing in *ret needs to be freed. */
int gguf_vocab_open(const struct gguf *gguf, struct gguf_vocab *ret, char *err, size_t err_bytes);

void gguf_vocab_close(struct gguf_vocab *vocab); /* also after a failed open, and twice */

#endif
