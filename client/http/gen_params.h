/* gen_params: the parameters of a generation, read from the JSON of its request.
 *
 * The endpoints of llama-server and those of OpenAI share most fields; what differs are defaults
 * and some names (enum gen_dialect). A field that is there must have its type; what hearth
 * cannot do (mirostat, ...) is refused by name; unknown fields are ignored.
 *
 * It points into the JSON that it was read from, and keeps that until gen_params_fini. */
#ifndef HEARTH_CLIENT_HTTP_GEN_PARAMS_H
#define HEARTH_CLIENT_HTTP_GEN_PARAMS_H

#include "client/hearth.h"
#include "client/http/config.h"
#include "client/http/fail.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum gen_dialect {
    GEN_NATIVE, /* /completion: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no end */
    GEN_INFILL, /* /infill: the same */
    GEN_TEXT,   /* /v1/completions: temperature 1, nothing else, 16 tokens */
    GEN_CHAT    /* /v1/chat/completions: temperature 1, nothing else, no end */
};

enum { GEN_STOPS_MAX = 64, GEN_CHOICES_MAX = 64, GEN_LOGPROBS_MAX = 20 };

struct gen_prompt {
    uint32_t *ids; /* [n] */
    uint32_t n;
    const json_t
        *text; /* what /v1/completions echoes, in root; not a string where it came as tokens */
};

struct gen_params {
    enum gen_dialect dialect;
    json_t *root;               /* the request, owned */
    struct hearth_request base; /* all but tokens, seed and max_tokens */
    const char *stops[GEN_STOPS_MAX];
    struct hearth_bias *bias;            /* [base.n_bias] */
    char *grammar;                       /* made from a schema, else NULL; base points to it */
    uint32_t *guess;                     /* [base.n_guess] */
    struct hearth_chat_reader **readers; /* [n] of a chat: reads each choice's answer; else NULL */
    bool has_tools;                      /* a chat's */

    struct gen_prompt *prompts; /* [n_prompts] */
    uint32_t n_prompts, n;      /* n: choices of each prompt */
    bool is_list;               /* answers are wanted as a list */
    int64_t max_tokens;         /* -1: until the context is full */
    uint64_t seed;
    bool greedy_first; /* the first choice is the most likely one, only the others are sampled */
    int id_slot;

    bool stream, include_usage, echo, return_tokens, timings_per_token, return_progress;
    int32_t n_logprobs;       /* alternatives wanted; -1: no log-probabilities */
    const char *samplers[16]; /* as given, for generation_settings */
    uint32_t n_samplers;
    bool has_samplers;
    int64_t t_max_predict_ms, n_indent; /* 0: no limit */
    json_t *response_fields;            /* an array, or NULL for all */
};

/* Reads everything but the prompt out of `root`, which it takes. Returns 0, or -1 with *f. Call
 * gen_params_fini in either case. */
int gen_params_read(struct gen_params *a, enum gen_dialect dialect, json_t *root, struct fail *f);

/* The part of gen_params_read for grammars and schemas. */
int gen_params_read_grammar(struct gen_params *a, struct fail *f);

/* Reads the prompt into a->prompts, with the vocabulary of h. As gen_params_read. */
int gen_params_read_prompt(struct gen_params *a, struct hearth *h, struct fail *f);

/* Reads `prediction`, what the answer is likely to be, as the guess. As gen_params_read. */
int gen_params_read_prediction(struct gen_params *a, struct hearth *h, struct fail *f);

/* Makes the one prompt of a, with room for a token more than the context, and fills *info with
 * facts about h. Returns NULL and fills *f when memory runs out. */
struct gen_prompt *gen_params_open_prompt(struct gen_params *a, struct hearth *h,
                                          struct hearth_info *info, struct fail *f);

/* Refuses prompts that do not fit a context. */
int gen_params_check_prompts(const struct gen_params *a, uint32_t context, struct fail *f);

/* With --strict-model: does the request name this model, or none? */
int gen_params_check_model(const json_t *root, const struct http_config *config, const char *model,
                           struct fail *f);

/* The request of choice `index` in [0, n_prompts * n). */
void gen_params_request(const struct gen_params *a, uint32_t index, struct hearth_request *ret);

void gen_params_fini(struct gen_params *a);

/* Text, ids, or both mixed in an array, as tokens: the first text gets the begin-of-sequence token
 * that the vocabulary wants when add_bos. *ret_ids is the caller's to free. */
int gen_params_tokens(struct hearth *h, const json_t *value, const char *name, bool add_bos,
                      bool special, uint32_t **ret_ids, uint32_t *ret_n, struct fail *f);

#endif
