/* chat_keep: no call of the history is lost where a template does not write calls. On the handle's
 * thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_KEEP_H
#define HEARTH_CLIENT_PROMPT_CHAT_KEEP_H

#include "client/prompt/chat_render.h"

/* Writes calls of c->messages that the template drops into the contents of their messages, and results
 * of tools that it drops into messages of the user. Before chat_adapt(). Returns 0 or -ENOMEM. */
int chat_keep_calls(struct chat *c);

#endif
