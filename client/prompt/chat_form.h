/* chat_form: in which form a model's template writes calls and reasoning, and so the model. On the
 * handle's thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_FORM_H
#define HEARTH_CLIENT_PROMPT_CHAT_FORM_H

#include "client/events/reader.h"
#include "client/prompt/chat_render.h"

/* c's template with nothing of what c's caller gave: what is found with it is remembered, and holds for
 * every caller. `tool`: with a made-up tool, else without tools. To be ended by chat_probe_end. */
json_t *chat_made_up(const struct chat *c,
                     const char *json); /* NULL without memory, which it notes */
struct chat chat_probe_begin(const struct chat *c, bool tool);
void chat_probe_end(struct chat *probe);

/* Renders made-up messages (a JSON array), adapted to the template; `prompt`: up to where an answer
 * begins. Returns false where that fails. */
bool chat_form_render(const struct chat *c, const char *messages, bool prompt,
                      struct jinja_output *ret);

/* The least messages to ask with. */
#define CHAT_FORM_ASKED "[{\"role\":\"user\",\"content\":\"x\"}]"

/* Where an answer that follows the prompt `asked` begins in a conversation: a mark that both begin
 * with is part of it. */
size_t chat_form_answer_at(const struct jinja_output *asked, const struct jinja_output *answered);

/* Is any of text[from, to) not the template's own? */
bool chat_form_has_input(const struct jinja_output *o, size_t from, size_t to);

/* Fills *ret for an answer to c, whose tools it points to. A form of calls is found by reading back
 * a call that the template wrote. */
void chat_form_find(const struct chat *c, struct reader_desc *ret);

/* The form of the template's calls; NULL: none that is known. */
const struct call_form *chat_form_calls(const struct chat *c);

/* Does the template write the tools that it is given? */
bool chat_form_has_tools(const struct chat *c);

/* The control tokens of these forms: writes at most `max` ids; returns how many there are. */
uint32_t chat_form_marks(const struct chat *c, const struct reader_desc *desc, uint32_t *ids,
                         uint32_t max);

#endif
