/* chat_adapt: messages in the form that a template accepts. On the handle's thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_ADAPT_H
#define HEARTH_CLIENT_PROMPT_CHAT_ADAPT_H

#include "client/prompt/chat_render.h"

/* Adapts c->messages to the template: moves a system message that it does not know, makes contents
 * parts or one text, arguments of calls objects. What it accepts is found by rendering short
 * probes. Returns 0 or -ENOMEM. */
int chat_adapt(struct chat *c);

/* c->tools as the template takes them: with empty descriptions, parameters or properties where it
 * fails without. To be given back with json_decref; NULL: there are none, or no memory. */
json_t *chat_adapt_tools(const struct chat *c);

/* What has been found about the template. */
struct chat_traits *chat_traits(const struct chat *c);

/* The texts of a list of text parts together, to be given back with json_decref; NULL where there is
 * another part, or no memory, which it notes. */
json_t *chat_join_parts(const struct chat *c, const json_t *parts);

#endif
