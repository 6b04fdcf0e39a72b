/* chat_calls: rules of a grammar for calls of tools, in the form of a family. Private to
 * chat_grammar.c. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_CALLS_H
#define HEARTH_CLIENT_PROMPT_CHAT_CALLS_H

#include "client/prompt/chat_render.h"
#include "client/events/reader.h"
#include "client/schema/schema.h"

struct chat_calls {
    struct schema c;
    const struct chat *chat;
    const struct call_form *form;
    bool thinks;                         /* the answer begins in a thought */
    const char *until_mark, *until_rule; /* what chat_calls_until made last */
};

/* Adds a mark of the form: its text, the control tokens in it as these tokens. What follows a token
 * that ends an answer cannot be written, and is left out. */
void chat_calls_mark(struct chat_calls *b, struct buffer *t, const char *mark);

/* Adds any text up to the mark, and the mark. */
void chat_calls_until(struct chat_calls *b, struct buffer *t, const char *mark);

/* The rule of a call from where its name begins, for any of the tools; in harmony and in JSON of the
 * whole call. */
const char *chat_calls_named(struct chat_calls *b);

/* Notes what cannot be bound. */
__attribute__((format(printf, 3, 4))) void chat_calls_loosen(struct chat_calls *b, const char *tool,
                                                             const char *format, ...);

/* Are these more texts of an enum, or more bytes of them, than can be bound? Notes that. */
bool chat_calls_are_large(struct chat_calls *b, const char *tool, size_t n, size_t bytes);

/* The keys that a schema requires of an object, as members; the caller owns them. */
json_t *chat_calls_required(struct chat_calls *b, const json_t *schema);

/* chat_calls_gemma.c: the rule of a value as Gemma 4 writes it. */
const char *chat_calls_gemma(struct chat_calls *b, const char *tool, json_t *schema, int depth);

/* chat_calls_python.c: the rule of arguments as Python has them; schema NULL: any. */
const char *chat_calls_python(struct chat_calls *b, const char *tool, json_t *schema);

#endif
