/* talk: a conversation as the library takes it (struct hearth_chat), and what is made of it: a
 * prompt, and readers of the answers.
 *
 * Each dialect of chats translates its request into one form, that of /v1/chat/completions:
 * `messages`, `tools`, `tool_choice`, `parallel_tool_calls`, `reasoning_effort`, `enable_thinking`,
 * `thinking_budget_tokens` and `chat_template_kwargs` are read here, the rest by gen_params. It may
 * run in a worker. */
#ifndef HEARTH_CLIENT_HTTP_TALK_H
#define HEARTH_CLIENT_HTTP_TALK_H

#include "client/hearth.h"
#include "client/http/fail.h"
#include "client/http/gen_params.h"
#include "client/prompt/chat_json.h"

struct talk {
    struct hearth_chat chat; /* points to the request and to the template */
    struct chat_json json;   /* messages and tools are the request's */
};

/* Reads the request o. Returns 0, or -1 with *f; call talk_fini in either case. */
int talk_read(struct talk *t, const json_t *o, const char *chat_template, struct fail *f);
void talk_fini(struct talk *t);

/* What stands for a part of a tool's result that is not a text: to refuse it would end the
 * conversation, which cannot go on without it. NULL without memory. */
json_t *talk_left_out(const char *type);

/* Would the model see its tools? Returns 0, or -1 with *f. */
int talk_check_tools(const struct talk *t, struct hearth *h, struct fail *f);

/* What follows changes the request's messages: only one of these. */

/* How many tokens its prompt has. Returns -1 with *f where it cannot be rendered. */
int64_t talk_count(const struct talk *t, struct hearth *h, struct fail *f);

/* Makes the one prompt of a, and a reader for each of its choices. Returns 0, or -1 with *f. */
int talk_prepare(const struct talk *t, struct gen_params *a, struct hearth *h, struct fail *f);

#endif
