/* text: text to tokens and back, with the vocabulary that the daemon shares. */
#include "client/lib/handle.h"
#include "client/tokenizer/detokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int text_to_scratch(struct hearth *h, const char *text, size_t bytes, uint32_t flags)
{
    char err[sizeof(h->error)];
    uint32_t bos = vocab_special(&h->vocab, VOCAB_BOS);
    h->scratch.n = 0;
    int rc = 0;
    /* By hand: TOKENIZE_ADD_SPECIAL would also end a prompt with eos where the vocabulary says so.
     */
    if (flags & HEARTH_ADD_BOS && h->vocab.flags & VOCAB_ADD_BOS && bos != VOCAB_NONE)
        rc = token_list_push(&h->scratch, bos);
    if (rc)
        return handle_fail(h, rc, "out of memory: free some and try again");
    rc = tokenize(&h->vocab, text, bytes, flags & HEARTH_SPECIAL ? TOKENIZE_PARSE_SPECIAL : 0,
                  &h->scratch, err, sizeof(err));
    return rc ? handle_fail(h, rc, "%s", err) : 0;
}

int64_t hearth_tokenize(struct hearth *h, const char *text, size_t bytes, uint32_t flags,
                        uint32_t *ids, size_t max)
{
    int rc = handle_check(h);
    if (!rc)
        rc = text_to_scratch(h, text, bytes, flags);
    if (rc)
        return rc;
    size_t n = h->scratch.n < max ? h->scratch.n : max;
    if (n)
        memcpy(ids, h->scratch.ids, n * sizeof(*ids));
    return (int64_t)h->scratch.n;
}

int64_t hearth_detokenize(struct hearth *h, const uint32_t *ids, size_t n, uint32_t flags,
                          char *text, size_t max)
{
    int rc = handle_check(h);
    if (rc)
        return rc;
    struct detokenizer d;
    size_t bytes = 0, room = 0, n_done = 0;
    char *piece = NULL;
    detokenizer_init(&d, &h->vocab,
                     DETOKENIZE_RAW | (flags & HEARTH_SPECIAL ? 0u : DETOKENIZE_SKIP_CONTROL));
    for (size_t i = 0; i < n && !rc; i++) {
        size_t piece_bytes = 0;
        rc = detokenizer_push(&d, ids[i], piece, room, &piece_bytes);
        if (rc == -ENOBUFS) {
            char *more = realloc(piece, piece_bytes);
            if (!more)
                break;
            piece = more;
            room = piece_bytes;
            rc = detokenizer_push(&d, ids[i], piece, room, &piece_bytes);
        }
        if (rc)
            break;
        size_t fits = bytes < max ? max - bytes : 0;
        if (fits && piece && piece_bytes)
            memcpy(text + bytes, piece, piece_bytes < fits ? piece_bytes : fits);
        bytes += piece_bytes;
        n_done = i + 1;
    }
    free(piece);
    if (rc == -ENOBUFS)
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    if (rc)
        return handle_fail(h, -ERANGE, "token %u is not in the vocabulary: ids go from 0 to %u",
                           ids[n_done], h->welcome.n_vocab - 1);
    return (int64_t)bytes;
}
