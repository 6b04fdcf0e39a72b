/* params.h: a request's parameter block: every sampling option, stops, biases, a guess, a grammar,
 * and the marks in the answer between which the grammar binds.
 *
 * The client encodes into the slot's block in `up`; the daemon copies the bytes that the submit
 * cell names and decodes its private copy. Decoding checks everything. Pure functions without
 * allocation: the decoded arrays point into the copy. Format: params_head, then these areas without
 * gaps, whose sizes must add up to the whole exactly, so that none can overlap:
 *
 *   bias          n_bias x {uint32_t token, float value}
 *   stop tokens   n_stop_tokens x uint32_t
 *   guess         n_guess x uint32_t
 *   marks         n_marks x struct params_mark
 *   closing       n_closing x uint32_t
 *   stop texts    n_stop_texts x uint32_t length
 *                 the texts' bytes one after another: stop_text_bytes
 *   grammar       grammar_bytes
 *   0 to 3 zero bytes, to a multiple of 4
 */
#ifndef HEARTH_IPC_PARAMS_H
#define HEARTH_IPC_PARAMS_H

#include "ipc/layout.h"

#define PARAMS_MAGIC 0x4d525048u /* "HPRM" */
#define PARAMS_BIAS_MAX 1024u
#define PARAMS_STOP_TOKENS_MAX 256u
#define PARAMS_GUESS_MAX 16384u /* searched for each draft */
#define PARAMS_STOP_TEXTS_MAX 64u
#define PARAMS_STOP_TEXT_BYTES_MAX 256u /* each */
#define PARAMS_MARKS_MAX 16u
#define PARAMS_MARK_BYTES 52u
#define PARAMS_CLOSING_MAX 64u
#define PARAMS_LOGPROBS_MAX EVENT_TOP_MAX
#define PARAMS_BIAS_VALUE_MAX 10000.0f /* finite; -10000 bans a token in practice */

/* Sampler stages, applied in the order given; PARAMS_STAGE_END fills the rest. */
enum params_stage {
    PARAMS_STAGE_END = 0,
    PARAMS_STAGE_PENALTIES = 1,
    PARAMS_STAGE_TOP_K = 2,
    PARAMS_STAGE_TYPICAL_P = 3,
    PARAMS_STAGE_TOP_P = 4,
    PARAMS_STAGE_MIN_P = 5,
    PARAMS_STAGE_TEMPERATURE = 6,
    PARAMS_STAGES = 7, /* all of the above */
};
#define PARAMS_ORDER_BYTES 8u

struct params_bias {
    uint32_t token;
    float value; /* added to the logit */
};

enum params_mark_kind {
    PARAMS_MARK_CALL = 1,        /* the grammar binds what follows */
    PARAMS_MARK_THOUGHT = 2,     /* a thought begins */
    PARAMS_MARK_THOUGHT_END = 3, /* it ends */
};

/* A text to find in the answer, in which control tokens count with their texts. Without a mark of a
 * call the grammar binds from the first token outside of thoughts on. */
struct params_mark {
    uint16_t kind;   /* enum params_mark_kind; of a thought at most one, with a mark of its end */
    uint16_t bytes;  /* of `text`, which zeroes follow */
    uint32_t tokens; /* of a thought: its most tokens, then `closing`; PARAMS_NO_LIMIT: any */
    uint32_t open;   /* of a thought: 1: the answer begins inside of one */
    char text[PARAMS_MARK_BYTES];
};
#define PARAMS_NO_LIMIT UINT32_MAX

/* What a request may ask for. Pointers: into the caller's memory (encode) or into the decoded copy
 * (decode). */
struct params {
    float temperature;       /* 0 .. 100; 0: greedy */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 0 .. 1; 1: off */
    float min_p;             /* 0 .. 1; 0: off */
    float typical_p;         /* 0 .. 1; 1: off */
    float repeat_penalty;    /* 0.01 .. 100; 1: off */
    float frequency_penalty; /* -100 .. 100; 0: off */
    float presence_penalty;  /* -100 .. 100; 0: off */
    uint32_t penalty_last_n; /* how far back penalties look; PARAMS_LAST_ALL: everything */
    uint32_t logprobs_on;    /* 0 or 1 */
    uint32_t logprobs;       /* alternatives per token, 0 .. PARAMS_LOGPROBS_MAX */
    uint64_t seed;
    uint8_t order[PARAMS_ORDER_BYTES]; /* enum params_stage, each at most once, zero-filled */
    uint32_t n_bias, n_stop_tokens, n_guess, n_marks, n_closing, n_stop_texts;
    uint32_t stop_text_bytes; /* of all texts together */
    uint32_t grammar_bytes;
    const struct params_bias *bias;    /* [n_bias] */
    const uint32_t *stop_tokens;       /* [n_stop_tokens] */
    const uint32_t *guess;             /* [n_guess]: tokens that may follow the prompt */
    const struct params_mark *marks;   /* [n_marks] */
    const uint32_t *closing;           /* [n_closing] the tokens that close a thought */
    const uint32_t *stop_text_lengths; /* [n_stop_texts], 1 .. PARAMS_STOP_TEXT_BYTES_MAX */
    const uint8_t *stop_texts;         /* [stop_text_bytes], one after another */
    const uint8_t *grammar;            /* [grammar_bytes] */
};
#define PARAMS_LAST_ALL UINT32_MAX

struct params_head {
    uint32_t magic;
    uint32_t bytes; /* of the whole block, a multiple of 4 */
    float temperature;
    uint32_t top_k;
    float top_p;
    float min_p;
    float typical_p;
    float repeat_penalty;
    float frequency_penalty;
    float presence_penalty;
    uint32_t penalty_last_n;
    uint16_t logprobs_on;
    uint16_t logprobs;
    uint64_t seed;
    uint8_t order[PARAMS_ORDER_BYTES];
    uint32_t n_bias;
    uint32_t n_stop_tokens;
    uint32_t n_guess;
    uint32_t n_stop_texts;
    uint32_t stop_text_bytes;
    uint32_t grammar_bytes;
    uint32_t n_marks;
    uint32_t n_closing;
};

LAYOUT_SIZE(params_bias, 8);
LAYOUT_FIELD(params_bias, token, 0, 4);
LAYOUT_FIELD(params_bias, value, 4, 4);
LAYOUT_SIZE(params_head, 96);
LAYOUT_FIELD(params_head, magic, 0, 4);
LAYOUT_FIELD(params_head, bytes, 4, 4);
LAYOUT_FIELD(params_head, temperature, 8, 4);
LAYOUT_FIELD(params_head, top_k, 12, 4);
LAYOUT_FIELD(params_head, top_p, 16, 4);
LAYOUT_FIELD(params_head, min_p, 20, 4);
LAYOUT_FIELD(params_head, typical_p, 24, 4);
LAYOUT_FIELD(params_head, repeat_penalty, 28, 4);
LAYOUT_FIELD(params_head, frequency_penalty, 32, 4);
LAYOUT_FIELD(params_head, presence_penalty, 36, 4);
LAYOUT_FIELD(params_head, penalty_last_n, 40, 4);
LAYOUT_FIELD(params_head, logprobs_on, 44, 2);
LAYOUT_FIELD(params_head, logprobs, 46, 2);
LAYOUT_FIELD(params_head, seed, 48, 8);
LAYOUT_FIELD(params_head, order, 56, 8);
LAYOUT_FIELD(params_head, n_bias, 64, 4);
LAYOUT_FIELD(params_head, n_stop_tokens, 68, 4);
LAYOUT_FIELD(params_head, n_guess, 72, 4);
LAYOUT_FIELD(params_head, n_stop_texts, 76, 4);
LAYOUT_FIELD(params_head, stop_text_bytes, 80, 4);
LAYOUT_FIELD(params_head, grammar_bytes, 84, 4);
LAYOUT_FIELD(params_head, n_marks, 88, 4);
LAYOUT_FIELD(params_head, n_closing, 92, 4);
LAYOUT_SIZE(params_mark, 64);
LAYOUT_FIELD(params_mark, kind, 0, 2);
LAYOUT_FIELD(params_mark, bytes, 2, 2);
LAYOUT_FIELD(params_mark, tokens, 4, 4);
LAYOUT_FIELD(params_mark, open, 8, 4);
LAYOUT_FIELD(params_mark, text, 12, 52);

/* Greedy, everything off, the default order: penalties, top-k, typical-p, top-p, min-p,
 * temperature. */
void params_default(struct params *p);

/* Checks that every value is in range (token ids below n_vocab; 0: do not check them). Returns 0,
 * or -EINVAL with one line that names the option, its value and its range. */
int params_check(const struct params *p, uint32_t n_vocab, char *err, size_t err_bytes);

/* The size of the block that `p` encodes to. */
uint64_t params_bytes(const struct params *p);

/* Checks `p` and writes the block. Returns the bytes for submit_cell.params_bytes; -EINVAL as
 * above; -E2BIG with one line when it does not fit `capacity`. */
int params_encode(const struct params *p, void *block, uint32_t capacity, char *err,
                  size_t err_bytes);

/* `copy`: [bytes], private, 8-aligned, outlives *ret. Returns 0, or -EINVAL with one line. */
int params_decode(const void *copy, uint32_t bytes, uint32_t n_vocab, struct params *ret, char *err,
                  size_t err_bytes);

#endif
