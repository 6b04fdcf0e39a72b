/* routes_model: the endpoints that run the model, its template or its vocabulary. */
#ifndef HEARTH_CLIENT_HTTP_ROUTES_MODEL_H
#define HEARTH_CLIENT_HTTP_ROUTES_MODEL_H

#include "client/http/exchange.h"

/* Read requests, as struct route says. */
int routes_read_completion(struct exchange *x, struct hearth *h, struct fail *f);
int routes_read_infill(struct exchange *x, struct hearth *h, struct fail *f);
int routes_read_v1(struct exchange *x, struct hearth *h, struct fail *f); /* /v1/completions */

/* /api/generate: `prompt`, or a fill-in-the-middle between it and `suffix`. */
int routes_read_prompt(struct exchange *x, struct hearth *h, struct fail *f);

int routes_read_chat(struct exchange *x, struct hearth *h, struct fail *f);
int routes_read_messages(struct exchange *x, struct hearth *h, struct fail *f);
int routes_read_responses(struct exchange *x, struct hearth *h, struct fail *f);

/* Answer with the number of tokens of such a request's prompt. */
int routes_read_messages_count(struct exchange *x, struct hearth *h, struct fail *f);
int routes_read_responses_count(struct exchange *x, struct hearth *h, struct fail *f);

int routes_read_tokenize(struct exchange *x, struct hearth *h,
                         struct fail *f); /* puts the answer */
int routes_read_detokenize(struct exchange *x, struct hearth *h,
                           struct fail *f); /* puts the answer */
int routes_read_template(struct exchange *x, struct hearth *h,
                         struct fail *f); /* puts the answer */

/* The part that these share: reads everything but the prompt into x->params, which takes the
 * request's object. */
int routes_read_options(struct exchange *x, struct hearth *h, enum gen_dialect dialect,
                        struct fail *f);

/* Runs what was read. */
void routes_run(struct exchange *x);

/* The model's chat template, "" where it has none. */
const char *routes_chat_template(struct exchange *x);

/* Does the template, NULL: the model's, write tools? */
bool routes_writes_tools(struct hearth *h, const char *chat_template);

#endif
