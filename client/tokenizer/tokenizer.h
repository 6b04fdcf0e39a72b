/* tokenizer: text to token ids, for a vocabulary block (ipc/vocab.h).
 *
 * SPM: SentencePiece BPE by scores, with byte fallback, or <unk> where the vocabulary has no byte
 * tokens. BPE: byte-level BPE by merge ranks; the text is first cut into words as the vocabulary's
 * pre-tokenizer says. Both cost O(n log n) for any text, also for one word of a megabyte. Text is
 * bytes with a length: it may hold NUL and need not be UTF-8 (each byte that belongs to no
 * character counts as a character of its own, and is kept).
 *
 * Any thread; nothing is shared between calls but the const vocab. Memory is taken for the call and
 * for the list of ids that the caller owns. It never prints. */
#ifndef HEARTH_CLIENT_TOKENIZER_TOKENIZER_H
#define HEARTH_CLIENT_TOKENIZER_TOKENIZER_H

#include "client/tokenizer/token_list.h"
#include "ipc/vocab.h"

#include <stddef.h>

enum tokenize_flag {
    TOKENIZE_PARSE_SPECIAL = 2, /* texts of control tokens inside the text become these tokens; else
                                   plain text. User-defined tokens are found always. */
    TOKENIZE_CONTINUE =
        4, /* the text goes on after other text: no space prefix at its beginning (SPM) */
};

#define TOKENIZE_MAX_BYTES (64u << 20)

/* Appends the ids of text[0, bytes) to *out. Returns 0; -ENOMEM; -EILSEQ where a character has no
 * token and the vocabulary no <unk>; -E2BIG for a text over TOKENIZE_MAX_BYTES; -EINVAL for a
 * damaged vocabulary; with one line in err. On an error *out is as it was. */
int tokenize(const struct vocab *v, const char *text, size_t bytes, unsigned flags,
             struct token_list *out, char *err, size_t err_bytes);

/* A part of a text. */
struct token_span {
    size_t at, bytes;
};

struct token_spans {
    const struct token_span *at; /* [n] ascending, not overlapping */
    size_t n;
};

/* The same, but with TOKENIZE_PARSE_SPECIAL a control token is found only where none of its bytes
 * lies in `plain`: parts that come from elsewhere, whose "<|im_end|>" is text. Else those parts
 * make no difference: words go across their ends. */
int tokenize_plain(const struct vocab *v, const char *text, size_t bytes, unsigned flags,
                   const struct token_spans *plain, struct token_list *out, char *err,
                   size_t err_bytes);

#endif
