/* chat_continue: a last message of the assistant is the beginning of the answer: the prompt ends
 * with its text, and the model goes on there. On the handle's thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_CONTINUE_H
#define HEARTH_CLIENT_PROMPT_CHAT_CONTINUE_H

#include "client/prompt/chat_render.h"

/* Takes such a message out of c->messages into c->answer, where the prompt is to end with the
 * beginning of the answer; one that calls tools stays. Returns 0; -EINVAL with one line where the
 * model would think first, the message holds thoughts or parts that are not text, or it is not
 * known how the template begins an answer; -ENOMEM. */
int chat_take_answer(struct chat *c, char *err, size_t err_bytes);

/* Puts c->opening and c->answer at the end of *o, that as input. Returns 0 or -ENOMEM. */
int chat_put_answer(const struct chat *c, struct jinja_output *o);

#endif
