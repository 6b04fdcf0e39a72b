/* chat_grammar: the grammar of an answer that calls tools, in the form of the model's template, and
 * the marks in the answer between which it binds. On the handle's thread.
 *
 * A grammar is needed where the chat asks for calls (tool_choice required, single_call), or a tool is
 * strict and the form of calls is known; where it asks for none (tool_choice none) the tokens that
 * begin a call are banned. Without it nothing binds an answer. What a schema asks for and no grammar can say is left
 * open, with a line about it: the reader checks the arguments then.
 *
 * A request may have a grammar of its own. Where the model may choose, calls stand beside it,
 *
 *   root ::= ( _root | calls )
 *
 * with _ before the own grammar's names, for no rule of calls has one that begins so. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_GRAMMAR_H
#define HEARTH_CLIENT_PROMPT_CHAT_GRAMMAR_H

#include "client/prompt/chat_form.h"

enum { CHAT_MOST_MARKS = 4, CHAT_MOST_BANNED = 4 };

struct chat_grammar {
    struct buffer text; /* [bytes] 0 bytes: none is needed */
    struct buffer
        beside;         /* [bytes] all rules but those of an own grammar; 0 bytes: it stays alone */
    const char *begins; /* what a call begins with, where there is `beside` */
    struct hearth_mark
        marks[CHAT_MOST_MARKS];        /* [n_marks] their texts live as long as the program */
    uint32_t n_marks, n_thought_marks; /* those of thoughts are the first */
    bool required;                     /* the answer has to call */
    uint32_t *closing;                 /* [n_closing] the tokens that close a thought */
    uint32_t n_closing;
    json_t *loosened;                            /* array of lines; NULL: none */
    uint32_t banned[CHAT_MOST_BANNED], n_banned; /* tokens that begin a call where none is wanted */
};

/* For an answer to c in the form that `desc` says. Returns 0; -EINVAL or -ENOTSUP with one line in
 * the handle where the chat asks for what cannot be; -ENOMEM. chat_grammar_fini in any case. */
int chat_grammar_make(const struct chat *c, const struct reader_desc *desc,
                      struct chat_grammar *ret);
void chat_grammar_fini(struct chat_grammar *g);

/* Adds the grammar of an answer that follows `own` or calls. Returns false where `own` stays alone:
 * it writes calls or control tokens itself, is broken, or both together are too long. */
bool chat_grammar_join(const struct chat_grammar *g, const char *own, size_t bytes,
                       struct buffer *ret);

/* May calls of this tool (of c->tools) be bound by its schema? */
bool chat_grammar_binds(const struct chat *c, const json_t *tool);

/* The part of a tool's description that has its name and parameters. */
const json_t *chat_tool(const json_t *description);

#endif
