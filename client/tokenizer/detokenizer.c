/* detokenizer: see detokenizer.h. */
#include "client/tokenizer/detokenizer.h"

#include "client/base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const char replacement[3] = "\xef\xbf\xbd"; /* U+FFFD */

void detokenizer_init(struct detokenizer *d, const struct vocab *v, unsigned flags)
{
    *d = (struct detokenizer){.vocab = v, .flags = flags};
    d->strip = (v->flags & VOCAB_ADD_SPACE_PREFIX) != 0 && (flags & DETOKENIZE_CONTINUE) == 0;
}

size_t detokenizer_room(const struct detokenizer *d, uint32_t id)
{
    uint32_t n;
    (void)vocab_bytes(d->vocab, id, &n);
    return 3 * ((size_t)d->n_tail + n);
}

static size_t put_replacement(char *out)
{
    memcpy(out, replacement, sizeof(replacement));
    return sizeof(replacement);
}

/* Completes the held-back tail from s[0, n). Returns what it wrote; *ret_used bytes were taken. */
static size_t complete_tail(struct detokenizer *d, const char *s, size_t n, char *out,
                            size_t *ret_used)
{
    size_t used = 0;
    *ret_used = 0;
    while (d->n_tail > 0 && used < n) {
        uint32_t code;
        d->tail[d->n_tail] = (uint8_t)s[used];
        int step = utf8_step((const char *)d->tail, d->n_tail + 1u, &code);
        size_t written = d->n_tail + 1u;
        if (step == 0) {
            d->n_tail++;
            used++;
            continue;
        }
        if (step > 0) {
            memcpy(out, d->tail, written);
            used++;
        } else {
            written = put_replacement(out); /* the new byte does not belong to it */
        }
        d->n_tail = 0;
        *ret_used = used;
        return written;
    }
    *ret_used = used;
    return 0;
}

/* Writes the whole characters of tail + s[0, n), keeps an unfinished one. Returns the length. */
static size_t put_text(struct detokenizer *d, const char *s, size_t n, char *out)
{
    size_t at;
    size_t written = complete_tail(d, s, n, out, &at);
    while (at < n) {
        uint32_t code;
        int step = utf8_step(s + at, n - at, &code);
        if (step > 0) {
            memcpy(out + written, s + at, (size_t)step);
            written += (size_t)step;
            at += (size_t)step;
        } else if (step < 0) {
            written += put_replacement(out + written);
            at += (size_t)-step;
        } else {
            d->n_tail = (uint8_t)(n - at);
            memcpy(d->tail, s + at, n - at);
            at = n;
        }
    }
    return written;
}

int detokenizer_push(struct detokenizer *d, uint32_t id, char *out, size_t capacity, size_t *ret_n)
{
    struct vocab_token t;
    *ret_n = 0;
    if (!vocab_find_token(d->vocab, id, &t))
        return -EINVAL;
    if (detokenizer_room(d, id) > capacity) {
        *ret_n = detokenizer_room(d, id);
        return -ENOBUFS;
    }
    bool special = t.type == VOCAB_TYPE_CONTROL || t.type == VOCAB_TYPE_USER_DEFINED;
    const char *s = t.bytes;
    size_t n = t.n_bytes;
    if (t.type == VOCAB_TYPE_CONTROL && (d->flags & DETOKENIZE_SKIP_CONTROL) != 0) {
        n = 0;
    } else if (d->strip && !special && n > 0) {
        n -= s[0] == ' ';
        s += s[0] == ' ';
        d->strip = 0;
    }
    if (special)
        d->strip = (d->vocab->flags & VOCAB_ADD_SPACE_PREFIX) != 0;
    if ((d->flags & DETOKENIZE_RAW) == 0) {
        *ret_n = put_text(d, s, n, out);
    } else if (n > 0) {
        memcpy(out, s, n);
        *ret_n = n;
    }
    return 0;
}

int detokenizer_finish(struct detokenizer *d, char *out, size_t capacity, size_t *ret_n)
{
    *ret_n = d->n_tail > 0 ? sizeof(replacement) : 0;
    if (*ret_n > capacity)
        return -ENOBUFS;
    if (d->n_tail > 0)
        put_replacement(out);
    d->n_tail = 0;
    return 0;
}
