/* ollama: what the endpoints of Ollama's interface have in common. */
#ifndef HEARTH_CLIENT_HTTP_OLLAMA_H
#define HEARTH_CLIENT_HTTP_OLLAMA_H

#include "client/http/exchange.h"

#include <jansson.h>
#include <time.h>

enum { OLLAMA_TIME_BYTES = 40 };

/* The version of Ollama whose interface this is; clients look at it. */
#define OLLAMA_VERSION "0.12.6"

/* What answers begin with, in x->out: `model` and `created_at`. */
void ollama_begin(struct exchange *x);

/* A time as text, in `at` [OLLAMA_TIME_BYTES]. */
const char *ollama_time(time_t seconds, long ns, char *at);

/* Endpoints; see struct route. */
void ollama_root(struct exchange *x);    /* GET / */
void ollama_tags(struct exchange *x);    /* GET /api/tags */
void ollama_ps(struct exchange *x);      /* GET /api/ps */
void ollama_version(struct exchange *x); /* GET /api/version */
int ollama_read_show(struct exchange *x, struct hearth *h, struct fail *f);
int ollama_read_chat(struct exchange *x, struct hearth *h, struct fail *f);
int ollama_read_generate(struct exchange *x, struct hearth *h, struct fail *f);
void ollama_run(struct exchange *x); /* of these two */

/* Does a request of these two only want the model to be stopped? */
bool ollama_only_forgets(const json_t *root);

#endif
