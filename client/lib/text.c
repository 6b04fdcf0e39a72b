/* text: text to tokens and back, with the vocabulary that the daemon shares. */
#include "client/lib/handle.h"
#include "client/tokenizer/detokenizer.h"

#include <errno.h>
#include <string.h>

int text_to_scratch(struct hearth *h, const char *text, size_t bytes, uint32_t flags)
{
    char err[sizeof(h->error)];
    uint32_t bos = vocab_special(&h->vocab, VOCAB_BOS);
    h->scratch.n = 0;
    int rc = 0;
    /* No eos, even if the vocabulary ends a text with one: the answer continues the prompt. */
    if (flags & HEARTH_ADD_BOS && h->vocab.flags & VOCAB_ADD_BOS && bos != VOCAB_NONE)
        rc = token_list_push(&h->scratch, bos);
    if (rc)
        return handle_fail(h, rc, "out of memory: free some and try again");
    rc = tokenize(&h->vocab, text, bytes, flags & HEARTH_SPECIAL ? TOKENIZE_PARSE_SPECIAL : 0,
                  &h->scratch, err, sizeof(err));
    return rc ? handle_fail(h, rc, "%s", err) : 0;
}

int64_t text_from_scratch(const struct hearth *h, uint32_t *ids, size_t max)
{
    size_t n = h->scratch.n < max ? h->scratch.n : max;
    if (n)
        memcpy(ids, h->scratch.ids, n * sizeof(*ids));
    return (int64_t)h->scratch.n;
}

int64_t hearth_tokenize(struct hearth *h, const char *text, size_t bytes, uint32_t flags,
                        uint32_t *ids, size_t max)
{
    int rc = handle_check(h);
    if (!rc)
        rc = text_to_scratch(h, text, bytes, flags);
    return rc ? rc : text_from_scratch(h, ids, max);
}

int64_t hearth_detokenize(struct hearth *h, const uint32_t *ids, size_t n, uint32_t flags,
                          char *text, size_t max)
{
    int rc = handle_check(h);
    if (rc)
        return rc;
    struct buffer all = {0};
    size_t n_done = detokenize(&h->vocab, ids, n, flags & HEARTH_SPECIAL, &all);
    size_t bytes = all.bytes, fits = bytes < max ? bytes : max;
    bool failed = all.failed;
    if (fits)
        memcpy(text, all.data, fits);
    buffer_fini(&all);
    if (failed)
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    if (n_done < n)
        return handle_fail(h, -ERANGE, "token %u is not in the vocabulary: ids go from 0 to %u",
                           ids[n_done], h->welcome.n_vocab - 1);
    return (int64_t)bytes;
}
