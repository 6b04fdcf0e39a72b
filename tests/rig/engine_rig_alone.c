/* What an answer must be, from the request alone. */
#include "tests/rig/engine_rig.h"

#include "ipc/params.h"
#include "tests/rig/grammar_reference.h"

#include <stdio.h>
#include <stdlib.h>

/* Does a stop text end within bytes [from, n)? From the definition: every text at every place. */
static bool text_ends(const struct params *p, const char *bytes, uint32_t from, uint32_t n)
{
    const char *text = (const char *)p->stop_texts;

    for (uint32_t i = 0; i < p->n_stop_texts; i++) {
        uint32_t length = p->stop_text_lengths[i];
        for (uint32_t at = 0; at + length <= n; at++)
            if (at + length > from && !memcmp(bytes + at, text, length))
                return true;
        text += length;
    }
    return false;
}

static enum done_reason token_ends(const struct params *p, uint32_t token, const char *bytes,
                                   uint32_t n_bytes)
{
    for (uint32_t i = 0; i < p->n_stop_tokens; i++)
        if (p->stop_tokens[i] == token)
            return DONE_STOP;
    return text_ends(p, bytes, n_bytes - 1, n_bytes) ? DONE_STOP : (enum done_reason)0;
}

/* What the grammar of the request allows after bytes [n] of its answer, by the definition: tokens in
 * `allowed` [FAKE_VOCAB bits]. Returns how many, but for the end token. */
static uint32_t find_allowed(struct reference *grammar, char *bytes, uint32_t n, uint64_t *allowed)
{
    uint32_t n_allowed = 0;
    bool whole, ignored;

    memset(allowed, 0, (FAKE_VOCAB + 63) / 64 * sizeof(*allowed));
    RIG_CHECK(reference_match(grammar, bytes, n, &whole), "the answer is none of the grammar");
    if (whole)
        allowed[0] |= 1u << FAKE_END;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bytes[n] = (char)byte;
        if (!reference_match(grammar, bytes, n + 1, &ignored))
            continue;
        allowed[(FAKE_BYTES + byte) >> 6] |= (uint64_t)1 << ((FAKE_BYTES + byte) & 63);
        n_allowed++;
    }
    return n_allowed;
}

/* Where the first mark ends that begins in bytes [from, n): one of the end of a thought, or any
 * other. *ret_kind: which; 0 with n + 1: none. */
static uint32_t find_mark(const struct params *p, const char *bytes, uint32_t from, uint32_t n,
                          bool thought, unsigned *ret_kind)
{
    *ret_kind = 0;
    for (uint32_t end = from + 1; end <= n; end++)
        for (uint32_t i = 0; i < p->n_marks; i++) {
            const struct params_mark *mark = &p->marks[i];
            if ((mark->kind == PARAMS_MARK_THOUGHT_END) != thought || mark->bytes > end - from ||
                memcmp(bytes + end - mark->bytes, mark->text, mark->bytes) != 0)
                continue;
            *ret_kind = mark->kind;
            return end;
        }
    return n + 1;
}

/* What marks say of an answer of n tokens, a byte each: where the grammar begins to bind, n + 1: it
 * does not; *ret_forced: the only token that may follow, FAKE_VOCAB: there are others. */
static uint32_t find_bound(const struct params *p, const char *bytes, uint32_t n,
                           uint32_t *ret_forced)
{
    uint32_t at = 0, limit = PARAMS_NO_LIMIT;
    bool thought = false, calls = false;
    unsigned kind;
    *ret_forced = FAKE_VOCAB;
    for (uint32_t i = 0; i < p->n_marks; i++) {
        calls |= p->marks[i].kind == PARAMS_MARK_CALL;
        thought |= p->marks[i].open;
        if (p->marks[i].kind == PARAMS_MARK_THOUGHT)
            limit = p->marks[i].tokens;
    }
    for (;;) {
        if (!thought && !calls && p->grammar_bytes > 0)
            return at;
        uint32_t end = find_mark(p, bytes, at, n, thought, &kind);
        if (thought && limit < n + 1 - at && end - at > limit) {
            uint32_t closed = n - at - limit;
            if (closed < p->n_closing) {
                *ret_forced = p->closing[closed];
                return n + 1;
            }
            at += limit + p->n_closing;
            thought = false;
            continue;
        }
        if (kind == 0 || kind == PARAMS_MARK_CALL)
            return end;
        at = end;
        thought = kind == PARAMS_MARK_THOUGHT;
    }
}

/* The sample after tokens [n]; with `got` the one of either kind of pass that the answer has there. */
static uint32_t find_next(const struct rig *rig, const struct rig_request *request,
                          const uint32_t *tokens, uint32_t n, const uint64_t *mask,
                          const struct rig_answer *got)
{
    uint64_t seed = request->params ? request->params->seed : 0;
    uint32_t next = fake_allowed(fake_next(&rig->fake, tokens, n, seed), mask);
    uint32_t at = n - request->n;

    if (!request->fast || rig->fake.fast != BACKEND_FAST_NATIVE || n == request->n)
        return next;
    if (got && next == (at < got->n ? got->tokens[at] : FAKE_END))
        return next;
    return fake_allowed(fake_fast_next(&rig->fake, tokens, n, seed), mask);
}

static void answer_alone(const struct rig *rig, const struct rig_request *request,
                         const struct rig_answer *got, struct rig_answer *ret)
{
    uint32_t sequence[RIG_TOKENS], n = request->n;
    uint32_t prompt = request->prompt_length ? request->prompt_length : n;
    char bytes[RIG_TOKENS]; /* of the answer; every token is one byte */
    struct params standard;
    const struct params *p = request->params ? request->params : &standard;
    uint64_t allowed[(FAKE_VOCAB + 63) / 64], *mask = NULL;
    struct reference grammar;

    params_default(&standard);
    *ret = (struct rig_answer){0};
    memcpy(sequence, request->tokens, n * sizeof(*sequence));
    for (uint32_t i = prompt; i < n; i++)
        bytes[i - prompt] = (char)(sequence[i] - FAKE_BYTES);
    if (n > prompt)
        ret->reason = token_ends(p, sequence[n - 1], bytes, n - prompt);
    if (p->grammar_bytes > 0) {
        int rc = reference_open(&grammar, (const char *)p->grammar, p->grammar_bytes);
        RIG_CHECK(rc == 0, "the grammar does not parse");
    }
    while (!ret->reason) {
        uint32_t forced, bound = find_bound(p, bytes, n - prompt, &forced);
        mask = NULL;
        if (bound <= n - prompt) {
            mask = allowed;
            if (find_allowed(&grammar, bytes + bound, n - prompt - bound, mask) == 0) {
                ret->reason = DONE_EOS;
                break;
            }
        }
        if (n >= rig->desc.context || n - prompt >= request->max_tokens) {
            ret->reason = DONE_LENGTH;
            break;
        }
        uint32_t token =
            forced < FAKE_VOCAB ? forced : find_next(rig, request, sequence, n, mask, got);
        if (token == FAKE_END) {
            ret->reason = DONE_EOS;
            break;
        }
        bytes[n - prompt] = (char)(token - FAKE_BYTES);
        sequence[n++] = ret->tokens[ret->n++] = token;
        ret->reason = token_ends(p, token, bytes, n - prompt);
    }
    if (p->grammar_bytes > 0)
        reference_close(&grammar);
}

void rig_alone(const struct rig *rig, const struct rig_request *request, struct rig_answer *ret)
{
    answer_alone(rig, request, NULL, ret);
}

static bool is_same(const struct rig_request *request, const struct rig_answer *want,
                    const struct rig_answer *got)
{
    uint32_t same = 0,
             known = request->n - (request->prompt_length ? request->prompt_length : request->n);

    while (same < want->n && same < got->n && want->tokens[same] == got->tokens[same])
        same++;
    if (same == want->n && same == got->n && want->reason == got->reason &&
        got->done.output == known + want->n)
        return true;
    fprintf(stderr,
            "answer of %u tokens, reason %d (counted %u), alone %u tokens, reason %d; equal up to "
            "%u: %s\n",
            got->n, got->reason, got->done.output, want->n, want->reason, same, got->done.text);
    return false;
}

bool rig_same(const struct rig *rig, const struct rig_request *request,
              const struct rig_answer *got)
{
    struct rig_answer want;

    answer_alone(rig, request, NULL, &want);
    return is_same(request, &want, got);
}

bool rig_possible(const struct rig *rig, const struct rig_request *request,
                  const struct rig_answer *got)
{
    struct rig_answer want;

    answer_alone(rig, request, got, &want);
    return is_same(request, &want, got);
}
