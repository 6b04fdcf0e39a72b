/* params.c: one table of ranges checks both what is to be encoded and what was decoded. */
#include "ipc/params.h"

#include "ipc/fail.h"

#include <stdbool.h>
#include <string.h>

void params_default(struct params *p)
{
    static const uint8_t order[PARAMS_ORDER_BYTES] = {
        PARAMS_STAGE_PENALTIES, PARAMS_STAGE_TOP_K, PARAMS_STAGE_TYPICAL_P,
        PARAMS_STAGE_TOP_P,     PARAMS_STAGE_MIN_P, PARAMS_STAGE_TEMPERATURE,
    };
    *p = (struct params){
        .top_p = 1.0f, .typical_p = 1.0f, .repeat_penalty = 1.0f, .penalty_last_n = 64};
    memcpy(p->order, order, sizeof(order));
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_floats(const struct params *p, char *err, size_t err_bytes)
{
    const struct {
        const char *name;
        float value, least, most;
    } rows[] = {
        {"temperature", p->temperature, 0.0f, 100.0f},
        {"top_p", p->top_p, 0.0f, 1.0f},
        {"min_p", p->min_p, 0.0f, 1.0f},
        {"typical_p", p->typical_p, 0.0f, 1.0f},
        {"repeat_penalty", p->repeat_penalty, 0.01f, 100.0f},
        {"frequency_penalty", p->frequency_penalty, -100.0f, 100.0f},
        {"presence_penalty", p->presence_penalty, -100.0f, 100.0f},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) /* written so that NaN fails, too */
        if (!(rows[i].value >= rows[i].least && rows[i].value <= rows[i].most))
            return ipc_fail(err, err_bytes, -EINVAL, "%s %g is outside %g..%g", rows[i].name,
                            (double)rows[i].value, (double)rows[i].least, (double)rows[i].most);
    return 0;
}

static int check_counts(const struct params *p, char *err, size_t err_bytes)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } rows[] = {
        {"logprobs switch", p->logprobs_on, 1},
        {"number of log-probabilities", p->logprobs, PARAMS_LOGPROBS_MAX},
        {"number of logit biases", p->n_bias, PARAMS_BIAS_MAX},
        {"number of stop tokens", p->n_stop_tokens, PARAMS_STOP_TOKENS_MAX},
        {"number of stop texts", p->n_stop_texts, PARAMS_STOP_TEXTS_MAX},
        {"number of guessed tokens", p->n_guess, PARAMS_GUESS_MAX},
        {"number of marks", p->n_marks, PARAMS_MARKS_MAX},
        {"number of closing tokens", p->n_closing, PARAMS_CLOSING_MAX},
        {"grammar size", p->grammar_bytes, LIMIT_PARAMS_MAX},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].value > rows[i].most)
            return ipc_fail(err, err_bytes, -EINVAL, "%s %u is greater than %u", rows[i].name,
                            rows[i].value, rows[i].most);
    return 0;
}

static int check_order(const struct params *p, char *err, size_t err_bytes)
{
    uint32_t seen = 0;
    int ended = 0;
    for (uint32_t i = 0; i < PARAMS_ORDER_BYTES; i++) {
        uint8_t stage = p->order[i];
        if (stage >= PARAMS_STAGES)
            return ipc_fail(err, err_bytes, -EINVAL, "unknown sampler stage %u", stage);
        if (stage != PARAMS_STAGE_END && (ended || (seen >> stage & 1u) != 0))
            return ipc_fail(err, err_bytes, -EINVAL,
                            "sampler stage %u appears twice or after the end", stage);
        ended |= stage == PARAMS_STAGE_END;
        seen |= 1u << stage;
    }
    return 0;
}

static int check_token(const char *what, uint32_t token, uint32_t n_vocab, char *err,
                       size_t err_bytes)
{
    if (n_vocab != 0 && token >= n_vocab)
        return ipc_fail(err, err_bytes, -EINVAL, "%s token %u is outside the vocabulary of %u",
                        what, token, n_vocab);
    return 0;
}

static int check_tokens(const char *what, const uint32_t *tokens, uint32_t n, uint32_t n_vocab,
                        char *err, size_t err_bytes)
{
    for (uint32_t i = 0; i < n; i++)
        if (check_token(what, tokens[i], n_vocab, err, err_bytes) < 0)
            return -EINVAL;
    return 0;
}

static int check_bias(const struct params *p, uint32_t n_vocab, char *err, size_t err_bytes)
{
    for (uint32_t i = 0; i < p->n_bias; i++) {
        float v = p->bias[i].value;
        if (check_token("logit bias:", p->bias[i].token, n_vocab, err, err_bytes) < 0)
            return -EINVAL;
        if (!(v >= -PARAMS_BIAS_VALUE_MAX && v <= PARAMS_BIAS_VALUE_MAX))
            return ipc_fail(err, err_bytes, -EINVAL, "logit bias %g of token %u is outside +-%g",
                            (double)v, p->bias[i].token, (double)PARAMS_BIAS_VALUE_MAX);
    }
    return 0;
}

static int check_stop_texts(const struct params *p, char *err, size_t err_bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_stop_texts; i++) {
        uint32_t n = p->stop_text_lengths[i];
        if (n < 1 || n > PARAMS_STOP_TEXT_BYTES_MAX)
            return ipc_fail(err, err_bytes, -EINVAL, "a stop text of %u bytes is outside 1..%u", n,
                            PARAMS_STOP_TEXT_BYTES_MAX);
        sum += n;
    }
    if (sum != p->stop_text_bytes)
        return ipc_fail(err, err_bytes, -EINVAL,
                        "the lengths of the stop texts do not add up to their %u bytes",
                        p->stop_text_bytes);
    return 0;
}

static int check_mark(const struct params_mark *m, char *err, size_t err_bytes)
{
    bool thought = m->kind == PARAMS_MARK_THOUGHT;
    if (m->kind < PARAMS_MARK_CALL || m->kind > PARAMS_MARK_THOUGHT_END)
        return ipc_fail(err, err_bytes, -EINVAL, "unknown kind of mark %u", m->kind);
    if (m->bytes < 1 || m->bytes > PARAMS_MARK_BYTES)
        return ipc_fail(err, err_bytes, -EINVAL, "a mark of %u bytes is outside 1..%u", m->bytes,
                        PARAMS_MARK_BYTES);
    if (m->open > (thought ? 1 : 0) || (!thought && m->tokens != 0))
        return ipc_fail(err, err_bytes, -EINVAL,
                        "a mark of kind %u has a flag or a number that it cannot have", m->kind);
    for (uint32_t i = m->bytes; i < PARAMS_MARK_BYTES; i++)
        if (m->text[i] != 0)
            return ipc_fail(err, err_bytes, -EINVAL, "a mark does not end in zero bytes");
    return 0;
}

static int check_marks(const struct params *p, char *err, size_t err_bytes)
{
    uint32_t n[PARAMS_MARK_THOUGHT_END + 1] = {0};
    bool limited = false;
    for (uint32_t i = 0; i < p->n_marks; i++) {
        if (check_mark(&p->marks[i], err, err_bytes) < 0)
            return -EINVAL;
        n[p->marks[i].kind]++;
        limited |= p->marks[i].kind == PARAMS_MARK_THOUGHT && p->marks[i].tokens != PARAMS_NO_LIMIT;
    }
    if (n[PARAMS_MARK_THOUGHT] > 1 || n[PARAMS_MARK_THOUGHT] != n[PARAMS_MARK_THOUGHT_END])
        return ipc_fail(err, err_bytes, -EINVAL,
                        "marks of thoughts: give one of its beginning and one of its end");
    if (limited != (p->n_closing > 0))
        return ipc_fail(err, err_bytes, -EINVAL,
                        "a thought's limit and the tokens that close it go together");
    if (n[PARAMS_MARK_CALL] > 0 && p->grammar_bytes == 0)
        return ipc_fail(err, err_bytes, -EINVAL, "a mark of a call goes with a grammar");
    return 0;
}

int params_check(const struct params *p, uint32_t n_vocab, char *err, size_t err_bytes)
{
    int rc = check_floats(p, err, err_bytes);
    if (rc == 0)
        rc = check_counts(p, err, err_bytes);
    if (rc == 0)
        rc = check_order(p, err, err_bytes);
    if (rc == 0)
        rc = check_bias(p, n_vocab, err, err_bytes);
    if (rc == 0)
        rc = check_tokens("stop", p->stop_tokens, p->n_stop_tokens, n_vocab, err, err_bytes);
    if (rc == 0)
        rc = check_tokens("guessed", p->guess, p->n_guess, n_vocab, err, err_bytes);
    if (rc == 0)
        rc = check_marks(p, err, err_bytes);
    if (rc == 0)
        rc = check_tokens("closing", p->closing, p->n_closing, n_vocab, err, err_bytes);
    if (rc == 0)
        rc = check_stop_texts(p, err, err_bytes);
    return rc;
}

/* ---- the block ------------------------------------------------------------------------------- */

/* Sums of 32-bit sizes cannot overflow 64 bits here. */
uint64_t params_bytes(const struct params *p)
{
    uint64_t n = sizeof(struct params_head) + (uint64_t)p->n_bias * sizeof(struct params_bias) +
                 (uint64_t)p->n_marks * sizeof(struct params_mark) +
                 ((uint64_t)p->n_stop_tokens + p->n_guess + p->n_closing + p->n_stop_texts) * 4u +
                 p->stop_text_bytes + p->grammar_bytes;
    return (n + 3u) & ~(uint64_t)3u;
}

static uint8_t *put(uint8_t *at, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(at, from, bytes);
    return at + bytes;
}

int params_encode(const struct params *p, void *block, uint32_t capacity, char *err,
                  size_t err_bytes)
{
    uint64_t bytes = params_bytes(p);
    struct params_head h;
    int rc = params_check(p, 0, err, err_bytes);
    if (rc < 0)
        return rc;
    if (bytes > capacity)
        return ipc_fail(err, err_bytes, -E2BIG,
                        "%llu bytes of parameters do not fit %u: fewer biases, stops or guesses",
                        (unsigned long long)bytes, capacity);
    h = (struct params_head){
        .magic = PARAMS_MAGIC,
        .bytes = (uint32_t)bytes,
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .typical_p = p->typical_p,
        .repeat_penalty = p->repeat_penalty,
        .frequency_penalty = p->frequency_penalty,
        .presence_penalty = p->presence_penalty,
        .penalty_last_n = p->penalty_last_n,
        .logprobs_on = (uint16_t)p->logprobs_on,
        .logprobs = (uint16_t)p->logprobs,
        .seed = p->seed,
        .n_bias = p->n_bias,
        .n_stop_tokens = p->n_stop_tokens,
        .n_guess = p->n_guess,
        .n_marks = p->n_marks,
        .n_closing = p->n_closing,
        .n_stop_texts = p->n_stop_texts,
        .stop_text_bytes = p->stop_text_bytes,
        .grammar_bytes = p->grammar_bytes,
    };
    memcpy(h.order, p->order, sizeof(h.order));
    uint8_t *at = put(block, &h, sizeof(h));
    at = put(at, p->bias, p->n_bias * sizeof(*p->bias));
    at = put(at, p->stop_tokens, p->n_stop_tokens * sizeof(*p->stop_tokens));
    at = put(at, p->guess, p->n_guess * sizeof(*p->guess));
    at = put(at, p->marks, p->n_marks * sizeof(*p->marks));
    at = put(at, p->closing, p->n_closing * sizeof(*p->closing));
    at = put(at, p->stop_text_lengths, p->n_stop_texts * sizeof(*p->stop_text_lengths));
    at = put(at, p->stop_texts, p->stop_text_bytes);
    at = put(at, p->grammar, p->grammar_bytes);
    memset(at, 0, bytes - (size_t)(at - (uint8_t *)block));
    return (int)bytes;
}

static const void *take(const uint8_t **at, size_t bytes)
{
    const uint8_t *from = *at;
    *at += bytes;
    return from;
}

static void params_from_head(const struct params_head *h, struct params *p)
{
    *p = (struct params){
        .temperature = h->temperature,
        .top_k = h->top_k,
        .top_p = h->top_p,
        .min_p = h->min_p,
        .typical_p = h->typical_p,
        .repeat_penalty = h->repeat_penalty,
        .frequency_penalty = h->frequency_penalty,
        .presence_penalty = h->presence_penalty,
        .penalty_last_n = h->penalty_last_n,
        .logprobs_on = h->logprobs_on,
        .logprobs = h->logprobs,
        .seed = h->seed,
        .n_bias = h->n_bias,
        .n_stop_tokens = h->n_stop_tokens,
        .n_guess = h->n_guess,
        .n_marks = h->n_marks,
        .n_closing = h->n_closing,
        .n_stop_texts = h->n_stop_texts,
        .stop_text_bytes = h->stop_text_bytes,
        .grammar_bytes = h->grammar_bytes,
    };
    memcpy(p->order, h->order, sizeof(p->order));
}

int params_decode(const void *copy, uint32_t bytes, uint32_t n_vocab, struct params *p, char *err,
                  size_t err_bytes)
{
    const uint8_t *at = copy;
    struct params_head h;
    if (bytes < sizeof(h))
        return ipc_fail(err, err_bytes, -EINVAL, "a parameter block of %u bytes is too short",
                        bytes);
    memcpy(&h, take(&at, sizeof(h)), sizeof(h));
    params_from_head(&h, p);
    if (h.magic != PARAMS_MAGIC)
        return ipc_fail(err, err_bytes, -EINVAL, "the parameter block is not of this version");
    if (h.bytes != bytes || params_bytes(p) != bytes)
        return ipc_fail(err, err_bytes, -EINVAL,
                        "the parts of the parameter block do not add up to its %u bytes", bytes);
    p->bias = take(&at, p->n_bias * sizeof(*p->bias));
    p->stop_tokens = take(&at, p->n_stop_tokens * sizeof(*p->stop_tokens));
    p->guess = take(&at, p->n_guess * sizeof(*p->guess));
    p->marks = take(&at, p->n_marks * sizeof(*p->marks));
    p->closing = take(&at, p->n_closing * sizeof(*p->closing));
    p->stop_text_lengths = take(&at, p->n_stop_texts * sizeof(*p->stop_text_lengths));
    p->stop_texts = take(&at, p->stop_text_bytes);
    p->grammar = take(&at, p->grammar_bytes);
    for (const uint8_t *end = (const uint8_t *)copy + bytes; at < end; at++)
        if (*at != 0)
            return ipc_fail(err, err_bytes, -EINVAL,
                            "the parameter block does not end in zero bytes");
    return params_check(p, n_vocab, err, err_bytes);
}
