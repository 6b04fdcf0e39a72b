/* vocab_check.c: refuses an invalid description and an unknown tokenizer, as far as the metadata of
 * a file shows it. */
#include "ipc/vocab_build_impl.h"
#include "ipc/vocab_names.h"

#include <errno.h>
#include <stdio.h>

/* One line for the caller; the value is -EINVAL. */
#define REFUSE(b, ...) (snprintf((b)->err, (b)->err_bytes, __VA_ARGS__), -EINVAL)

static bool string_is(struct vocab_string s, const char *text)
{
    return s.bytes == strlen(text) && memcmp(s.data, text, s.bytes) == 0;
}

/* Sets model, pre-tokenizer and flags. */
static int resolve_tokenizer(struct build *b)
{
    struct vocab_header *h = b->header;
    const struct vocab_desc *d = b->desc;
    if (string_is(d->model, "llama")) {
        h->model = VOCAB_MODEL_SPM;
        h->pre = VOCAB_PRE_NONE;
        h->flags = VOCAB_ADD_BOS | VOCAB_ADD_SPACE_PREFIX;
    } else if (string_is(d->model, "gemma4")) {
        h->model = VOCAB_MODEL_GEMMA4;
        h->pre = VOCAB_PRE_NONE;
        h->flags = VOCAB_ADD_BOS;
    } else if (string_is(d->model, "gpt2")) {
        enum vocab_pre pre = VOCAB_PRE_NONE;
        if (vocab_names_find_pre(d->pre, &pre, &h->flags, b->err, b->err_bytes) != 0)
            return -EINVAL;
        h->model = VOCAB_MODEL_BPE;
        h->pre = pre;
    } else {
        return REFUSE(b,
                      "tokenizer '%s' is not known to hearth; known: llama (SentencePiece), "
                      "gpt2 (byte-level BPE), gemma4",
                      vocab_names_show(d->model).text);
    }
    const int said[3] = {d->add_bos, d->add_eos, d->add_space_prefix};
    const uint32_t bit[3] = {VOCAB_ADD_BOS, VOCAB_ADD_EOS, VOCAB_ADD_SPACE_PREFIX};
    for (int i = 0; i < 3; i++) {
        if (said[i] >= 0)
            h->flags = said[i] > 0 ? h->flags | bit[i] : h->flags & ~bit[i];
    }
    return 0;
}

static int check_sizes(struct build *b, uint64_t *ret_text_bytes)
{
    const struct vocab_desc *d = b->desc;
    if (d->n_tokens == 0)
        return REFUSE(b, "the vocabulary has no tokens");
    if (d->n_tokens > VOCAB_MAX_TOKENS || d->n_merges > VOCAB_MAX_TOKENS)
        return REFUSE(b, "the vocabulary has %u tokens and %u merges; at most %u are supported",
                      d->n_tokens, d->n_merges, VOCAB_MAX_TOKENS);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        if (d->texts[i].bytes > VOCAB_MAX_TEXT_BYTES)
            return REFUSE(b, "token %u is %zu bytes long, more than the %u supported", i,
                          d->texts[i].bytes, VOCAB_MAX_TEXT_BYTES);
        sum += d->texts[i].bytes;
    }
    /* What is made of them takes much more: the daemon's tables for grammars 22 bytes for each. */
    if (sum > VOCAB_MAX_TEXTS_BYTES)
        return REFUSE(b, "the texts of the vocabulary take %llu bytes; at most %u are supported",
                      (unsigned long long)sum, VOCAB_MAX_TEXTS_BYTES);
    for (int i = 0; i < VOCAB_ROLE_COUNT; i++) {
        if (d->roles[i] >= (int64_t)d->n_tokens)
            return REFUSE(b, "the vocabulary names token %lld as a special one but has %u tokens",
                          (long long)d->roles[i], d->n_tokens);
    }
    for (int i = 0; i < VOCAB_TEMPLATE_COUNT; i++) {
        if (d->templates[i].bytes > VOCAB_MAX_TEMPLATE_BYTES)
            return REFUSE(b, "the chat template is %zu bytes long; at most %u are supported",
                          d->templates[i].bytes, VOCAB_MAX_TEMPLATE_BYTES);
    }
    *ret_text_bytes = sum;
    return 0;
}

int vocab_build_check(struct build *b, uint64_t *ret_text_bytes)
{
    int rc = resolve_tokenizer(b);
    if (rc == 0)
        rc = check_sizes(b, ret_text_bytes);
    if (rc == 0 && b->header->model != VOCAB_MODEL_SPM && b->desc->n_merges == 0)
        rc = REFUSE(b, "the vocabulary is a BPE but has no merges");
    return rc;
}

int vocab_check(const struct vocab_desc *d, char *err, size_t err_bytes)
{
    struct vocab_header h = {0};
    struct build b = {.desc = d, .header = &h, .err = err, .err_bytes = err_bytes};
    uint64_t text_bytes;
    return vocab_build_check(&b, &text_bytes);
}
