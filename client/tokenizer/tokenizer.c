/* tokenizer: see tokenizer.h. */
#include "client/tokenizer/tokenizer.h"

#include "client/tokenizer/bpe.h"
#include "client/tokenizer/spm.h"

#include <errno.h>
#include <stdio.h>

/* Where special tokens are looked for. */
struct search {
    const struct vocab *vocab;
    const char *text;
    size_t bytes;
    bool control;                   /* control tokens, too, ... */
    const struct token_span *plain; /* [n_plain] ... but not in these parts */
    size_t n_plain, next;           /* plain[next] is the first that ends after this place */
};

/* How many bytes from `at` on may be a control token: up to the next plain part. */
static size_t control_room(struct search *s, size_t at)
{
    if (!s->control)
        return 0;
    while (s->next < s->n_plain && s->plain[s->next].at + s->plain[s->next].bytes <= at)
        s->next++;
    if (s->next == s->n_plain)
        return s->bytes - at;
    return s->plain[s->next].at > at ? s->plain[s->next].at - at : 0;
}

/* The longest special token at `at`, or VOCAB_NONE. */
static uint32_t match_special(struct search *s, size_t at, size_t *ret_bytes)
{
    size_t room = control_room(s, at), n = 0;
    uint32_t id = vocab_match_special(s->vocab, s->text + at, room, true, ret_bytes);
    if (room == s->bytes - at)
        return id;
    uint32_t defined = vocab_match_special(s->vocab, s->text + at, s->bytes - at, false, &n);
    if (defined == VOCAB_NONE || (id != VOCAB_NONE && *ret_bytes >= n))
        return id;
    *ret_bytes = n;
    return defined;
}

/* The next special token from `at` on: its id with *ret_at and *ret_bytes; VOCAB_NONE and
 * *ret_at = bytes where none follows. The leftmost wins, then the longest. */
static uint32_t find_special(struct search *s, size_t at, size_t *ret_at, size_t *ret_bytes)
{
    for (; at < s->bytes; at++) {
        uint32_t id = match_special(s, at, ret_bytes);
        if (id != VOCAB_NONE) {
            *ret_at = at;
            return id;
        }
    }
    *ret_at = s->bytes;
    return VOCAB_NONE;
}

/* Goes over the text: a piece without special tokens, a special token, the next piece. */
static int tokenize_pieces(struct merge *m, struct search *s, unsigned flags,
                           struct token_list *out, size_t *ret_byte)
{
    const struct vocab *v = m->vocab;
    bool prefix = (v->flags & VOCAB_ADD_SPACE_PREFIX) != 0;
    bool after_special = (flags & TOKENIZE_CONTINUE) == 0; /* the beginning counts as one */
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < s->bytes;) {
        const char *piece = s->text + at;
        size_t stop, n = 0;
        uint32_t special = find_special(s, at, &stop, &n);
        if (stop > at) {
            if (v->model == VOCAB_MODEL_SPM)
                rc = spm_tokenize(m, piece, stop - at, prefix && after_special, out, ret_byte);
            else if (v->model == VOCAB_MODEL_GEMMA4)
                rc = spm_tokenize_ranked(m, piece, stop - at, out, ret_byte);
            else
                rc = bpe_tokenize(m, piece, stop - at, out, ret_byte);
            *ret_byte += at;
            after_special = false;
        }
        if (rc == 0 && special != VOCAB_NONE) {
            rc = token_list_push(out, special);
            after_special = true;
        }
        at = stop + n;
    }
    return rc;
}

int tokenize_plain(const struct vocab *v, const char *text, size_t bytes, unsigned flags,
                   const struct token_spans *plain, struct token_list *out, char *err,
                   size_t err_bytes)
{
    if (bytes > TOKENIZE_MAX_BYTES) {
        snprintf(err, err_bytes, "the text is %zu bytes long; at most %u are tokenized at once",
                 bytes, TOKENIZE_MAX_BYTES);
        return -E2BIG;
    }
    struct merge m = {.vocab = v};
    struct search s = {.vocab = v,
                       .text = text,
                       .bytes = bytes,
                       .control = (flags & TOKENIZE_PARSE_SPECIAL) != 0,
                       .plain = plain->at,
                       .n_plain = plain->n};
    size_t n_before = out->n, byte = 0;
    int rc = tokenize_pieces(&m, &s, flags, out, &byte);
    merge_fini(&m);
    if (rc != 0)
        out->n = n_before;
    if (rc == -ENOMEM)
        snprintf(err, err_bytes, "not enough memory to tokenize %zu bytes", bytes);
    else if (rc == -EILSEQ)
        snprintf(err, err_bytes, "the vocabulary has no token for the text at byte %zu", byte);
    else if (rc != 0)
        snprintf(err, err_bytes, "the vocabulary cannot be used to tokenize");
    return rc;
}

int tokenize(const struct vocab *v, const char *text, size_t bytes, unsigned flags,
             struct token_list *out, char *err, size_t err_bytes)
{
    return tokenize_plain(v, text, bytes, flags, &(struct token_spans){0}, out, err, err_bytes);
}
