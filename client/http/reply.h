/* reply: the dialects of answers (struct reply in exchange.h). */
#ifndef HEARTH_CLIENT_HTTP_REPLY_H
#define HEARTH_CLIENT_HTTP_REPLY_H

#include "client/http/exchange.h"

extern const struct reply reply_native;          /* /completion, /infill */
extern const struct reply reply_text;            /* /v1/completions */
extern const struct reply reply_chat;            /* /v1/chat/completions */
extern const struct reply reply_messages;        /* /v1/messages */
extern const struct reply reply_ollama_chat;     /* /api/chat */
extern const struct reply reply_ollama_generate; /* /api/generate */
extern const struct reply reply_responses;       /* /v1/responses */

/* A chat's stream that has sent nothing for this long sends a keep-alive. */
#define REPLY_SILENCE_NS 5000000000ull

/* In the form of OpenAI, what goes around choices: an object of a stream, or the whole answer, begins
 * before its choices, with what reply_v1_ahead() wrote, and ends after them; `ended`: with what is
 * hearth's own of this choice, or NULL. reply_v1_close(): the end of a stream. */
void reply_v1_ahead(struct exchange *x, const char *object);
void reply_v1_begin(struct exchange *x);
void reply_v1_end(struct exchange *x, const struct choice *ended);
void reply_v1_close(struct exchange *x);

/* The options that an answer was made with, as llama-server names them. */
void reply_put_settings(struct buffer *t, const struct exchange *x, const struct gen_params *a);

/* How long it took, in llama-server's words. */
void reply_put_timings(struct buffer *t, const struct finish *e);

/* A token's log-probabilities with its alternatives: OpenAI's form, and llama-server's, with ids. */
json_t *reply_probs(struct choice *c, const struct hearth_token_logprobs *l);

/* A member `hearth` with what is hearth's own: seed, numerics, receipt, what of a schema does not
 * bind, and why something was not read as a call. */
void reply_put_hearth(struct buffer *t, const struct exchange *x, const struct choice *c);

#endif
