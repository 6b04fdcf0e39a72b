/* bpe: see bpe.h. */
#include "client/tokenizer/bpe.h"

#include "client/tokenizer/words.h"

#include <errno.h>
#include <stdlib.h>

static bool rule(const struct merge *m, const struct merge_link *left,
                 const struct merge_link *right, uint32_t *ret_order, uint32_t *ret_id)
{
    return vocab_find_merge(m->vocab, left->id, right->id, ret_order, ret_id);
}

/* Writes a byte as its letter of GPT-2's alphabet (see vocab_build.c); returns 1 or 2 bytes. */
static size_t put_letter(unsigned char byte, char *out)
{
    unsigned code = byte;
    if (byte <= 0x20)
        code = 0x100u + byte;
    else if (byte >= 0x7f && byte <= 0xa0)
        code = 0x100u + byte - 0x5eu;
    else if (byte == 0xad)
        code = 0x143;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* The token whose text is this whole word, or VOCAB_NONE. */
static uint32_t whole_word(const struct vocab *v, const char *word, size_t bytes, char *scratch)
{
    size_t n = 0;
    if (bytes > VOCAB_MAX_TEXT_BYTES)
        return VOCAB_NONE;
    for (size_t i = 0; i < bytes; i++)
        n += put_letter((unsigned char)word[i], scratch + n);
    return vocab_find_text(v, scratch, n);
}

/* A byte without a token occurs in no UTF-8 text, or is a control character that the vocabulary
 * left out: U+FFFD stands for it. */
static int push_replacement(struct merge *m, uint32_t at)
{
    static const uint8_t bytes[3] = {0xef, 0xbf, 0xbd};
    for (int i = 0; i < 3; i++) {
        uint32_t id = vocab_byte_token(m->vocab, bytes[i]);
        if (id == VOCAB_NONE)
            return -EILSEQ;
        merge_push(m, at, 1, id);
    }
    return 0;
}

static int word_tokenize(struct merge *m, uint32_t begin, uint32_t end, struct token_list *out,
                         size_t *ret_byte)
{
    int rc = merge_reserve(m, 3 * (size_t)(end - begin));
    if (rc != 0)
        return rc;
    merge_reset(m);
    for (uint32_t at = begin; at < end; at++) {
        uint32_t id = vocab_byte_token(m->vocab, (uint8_t)m->text[at]);
        if (id != VOCAB_NONE)
            merge_push(m, at, 1, id);
        else
            rc = push_replacement(m, at);
        if (rc != 0) {
            *ret_byte = at;
            return rc;
        }
    }
    merge_run(m);
    for (uint32_t i = 0; rc == 0 && i != MERGE_NO_LINK; i = m->links[i].next)
        rc = token_list_push(out, m->links[i].id);
    return rc;
}

int bpe_tokenize(struct merge *m, const char *text, size_t bytes, struct token_list *out,
                 size_t *ret_byte)
{
    struct letters letters;
    struct word_list words;
    char *scratch = NULL;
    int rc = letters_open(&letters, text, bytes);
    if (rc != 0)
        return rc;
    rc = words_open(&words, m->vocab->pre, &letters);
    if (rc != 0)
        goto out_close_letters;
    if (m->vocab->flags & VOCAB_IGNORE_MERGES) {
        scratch = malloc(2 * bytes + 1);
        rc = scratch == NULL ? -ENOMEM : 0;
    }
    m->text = text;
    m->rule = rule;
    uint32_t begin = 0;
    for (size_t i = 0; rc == 0 && i < words.n; i++) {
        uint32_t end = letters.at[words.end[i]];
        uint32_t id = VOCAB_NONE;
        if (scratch != NULL)
            id = whole_word(m->vocab, text + begin, end - begin, scratch);
        if (id != VOCAB_NONE)
            rc = token_list_push(out, id);
        else
            rc = word_tokenize(m, begin, end, out, ret_byte);
        begin = end;
    }
    free(scratch);
    words_close(&words);
out_close_letters:
    letters_close(&letters);
    return rc;
}
