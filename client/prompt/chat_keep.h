/* chat_keep: no call of the history, and no text beside one, is lost where a template does not
 * write it. On the handle's thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_KEEP_H
#define HEARTH_CLIENT_PROMPT_CHAT_KEEP_H

#include "client/prompt/chat_render.h"

/* Makes a message of several calls several ones where the template takes one call, and a text
 * beside calls a message of its own where the template drops or misplaces it. Writes calls of
 * c->messages that the template drops or refuses into the contents of their messages, and such
 * results of tools into messages of the user. Before chat_adapt(). Returns 0 or -ENOMEM. */
int chat_keep_calls(struct chat *c);

#endif
