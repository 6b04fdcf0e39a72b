/* chat_turns: messages in turn, for templates that refuse others. On the handle's thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_TURNS_H
#define HEARTH_CLIENT_PROMPT_CHAT_TURNS_H

#include "client/prompt/chat_render.h"

/* Joins messages of c->messages that follow each other, and adds results that calls lack, each only
 * where the template refuses them as they are. After chat_adapt(). Returns 0 or -ENOMEM. */
int chat_turns(struct chat *c);

#endif
