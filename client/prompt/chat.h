/* chat: conversations into text and tokens, with the model's template, a known family's, or one
 * that the caller brings. Private parts of hearth_chat_text() and hearth_chat_tokens(); the thread
 * is that of the handle. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_H
#define HEARTH_CLIENT_PROMPT_CHAT_H

#include "client/lib/handle.h"
#include "client/jinja/jinja.h"

struct chat {
    struct hearth *h;
    const char *source; /* [source_bytes] the template, Jinja */
    size_t source_bytes;
    bool is_family;   /* one of hearth's own texts */
    json_t *messages; /* array; ours to change */
    json_t *tools;    /* array, or NULL */
    json_t *extra;    /* object, or NULL */
    bool prompt;      /* the answer's beginning */
};

/* Renders these messages (and no others) as c says. Returns as jinja_render. */
int chat_render(const struct chat *c, const json_t *messages, struct jinja_output *ret, char *err,
                size_t err_bytes);

/* Makes c->messages what the template can take: a system message where it knows none, contents in
 * parts or in one text, arguments of calls as objects. What it can take is tried once a template.
 * Returns 0 or -ENOMEM. */
int chat_adapt(struct chat *c);

#endif
