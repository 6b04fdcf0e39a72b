/* spm: see spm.h. */
#include "client/tokenizer/spm.h"

#include "client/base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char space[3] = {'\xe2', '\x96', '\x81'}; /* U+2581 is written for a space */

/* The token of a text that SentencePiece may make: never a control token, whose text may well stand
 * in a document, nor a byte token's name. */
static uint32_t find_piece(const struct vocab *v, const char *text, size_t bytes, float *ret_score)
{
    struct vocab_token t;
    uint32_t id = vocab_find_text(v, text, bytes);
    if (id == VOCAB_NONE || !vocab_find_token(v, id, &t))
        return VOCAB_NONE;
    if (t.type == VOCAB_TYPE_CONTROL || t.type == VOCAB_TYPE_UNKNOWN || t.type == VOCAB_TYPE_BYTE)
        return VOCAB_NONE;
    *ret_score = t.score;
    return id;
}

/* Maps scores to numbers in reverse order: the highest score gives the lowest. Zeros are equal. */
static uint32_t order_of_score(float score)
{
    float normal = score + 0.0f;
    uint32_t bits;
    if (normal != normal)
        return UINT32_MAX;
    memcpy(&bits, &normal, sizeof(bits));
    return (bits & 0x80000000u) != 0 ? bits : 0x7fffffffu - bits;
}

static bool rule(const struct merge *m, const struct merge_link *left,
                 const struct merge_link *right, uint32_t *ret_order, uint32_t *ret_id)
{
    float score = 0.0f;
    *ret_id = find_piece(m->vocab, m->text + left->at, (size_t)left->bytes + right->bytes, &score);
    *ret_order = order_of_score(score);
    return *ret_id != VOCAB_NONE;
}

/* out[0, return): the text with U+2581 for spaces, and one before it if `prefix`. */
static size_t escape_spaces(const char *text, size_t bytes, bool prefix, char *out)
{
    size_t n = 0;
    if (prefix) {
        memcpy(out, space, sizeof(space));
        n = sizeof(space);
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ') {
            memcpy(out + n, space, sizeof(space));
            n += sizeof(space);
        } else {
            out[n++] = text[i];
        }
    }
    return n;
}

/* Makes the chain of the characters at [begin, end). */
static void push_letters(struct merge *m, size_t begin, size_t end)
{
    merge_reset(m);
    for (size_t at = begin, n; at < end; at += n) {
        uint32_t code;
        float score;
        int step = utf8_step(m->text + at, end - at, &code);
        n = step > 0 ? (size_t)step : 1;
        uint32_t id = find_piece(m->vocab, m->text + at, n, &score);
        merge_push(m, (uint32_t)at, (uint32_t)n, id);
    }
}

/* A character without a token: its bytes' tokens, or one <unk>. */
static int push_fallback(const struct merge *m, const struct merge_link *link,
                         struct token_list *out)
{
    bool have_bytes = true;
    for (uint32_t i = 0; i < link->bytes; i++) {
        uint8_t byte = (uint8_t)m->text[link->at + i];
        have_bytes = have_bytes && vocab_byte_token(m->vocab, byte) != VOCAB_NONE;
    }
    if (!have_bytes) {
        uint32_t unk = vocab_special(m->vocab, VOCAB_UNK);
        return unk == VOCAB_NONE ? -EILSEQ : token_list_push(out, unk);
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < link->bytes; i++)
        rc = token_list_push(out, vocab_byte_token(m->vocab, (uint8_t)m->text[link->at + i]));
    return rc;
}

/* Merges what is in the chain, and appends its tokens. bytes: length of the text before its spaces
 * were replaced. */
static int put_chain(struct merge *m, size_t bytes, struct token_list *out, size_t *ret_byte)
{
    int rc = 0;
    merge_run(m);
    for (uint32_t i = m->n > 0 ? 0 : MERGE_NO_LINK; rc == 0 && i != MERGE_NO_LINK;
         i = m->links[i].next) {
        const struct merge_link *link = &m->links[i];
        if (link->id != VOCAB_NONE)
            rc = token_list_push(out, link->id);
        else
            rc = push_fallback(m, link, out);
        if (rc == -EILSEQ)
            *ret_byte = link->at < bytes ? link->at : bytes;
    }
    return rc;
}

int spm_tokenize(struct merge *m, const char *text, size_t bytes, bool prefix,
                 struct token_list *out, size_t *ret_byte)
{
    char *escaped = malloc(3 * bytes + 3);
    if (escaped == NULL)
        return -ENOMEM;
    size_t n = escape_spaces(text, bytes, prefix, escaped);
    int rc = merge_reserve(m, bytes + 1); /* a link for each byte at most, and the prefix */
    if (rc == 0) {
        m->text = escaped;
        m->rule = rule;
        push_letters(m, 0, n);
        rc = put_chain(m, bytes, out, ret_byte);
    }
    free(escaped);
    return rc;
}

/* ---- by the ranks of merges ------------------------------------------------------------------ */

static bool rank_rule(const struct merge *m, const struct merge_link *left,
                      const struct merge_link *right, uint32_t *ret_order, uint32_t *ret_id)
{
    return vocab_find_merge(m->vocab, left->id, right->id, ret_order, ret_id);
}

/* The end of the run of newlines, or of anything else, that begins at `at`. */
static size_t run_end(const char *text, size_t at, size_t bytes)
{
    const bool newlines = text[at] == '\n';
    while (at < bytes && (text[at] == '\n') == newlines)
        at++;
    return at;
}

int spm_tokenize_ranked(struct merge *m, const char *text, size_t bytes, struct token_list *out,
                        size_t *ret_byte)
{
    char *escaped = malloc(3 * bytes + 3);
    if (escaped == NULL)
        return -ENOMEM;
    size_t n = escape_spaces(text, bytes, false, escaped);
    int rc = merge_reserve(m, bytes + 1);
    m->text = escaped;
    m->rule = rank_rule;
    for (size_t at = 0, end; rc == 0 && at < n; at = end) {
        float score;
        uint32_t id = VOCAB_NONE;
        end = run_end(escaped, at, n);
        if (escaped[at] == '\n')
            id = find_piece(m->vocab, escaped + at, end - at, &score);
        if (id != VOCAB_NONE) {
            rc = token_list_push(out, id);
        } else {
            push_letters(m, at, end);
            rc = put_chain(m, bytes, out, ret_byte);
        }
    }
    free(escaped);
    return rc;
}
