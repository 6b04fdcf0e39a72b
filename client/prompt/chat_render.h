/* chat_render: a conversation through a template: the model's, a known family's, or the caller's.
 * Private to hearth_chat_text() and hearth_chat_tokens(); on the handle's thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_RENDER_H
#define HEARTH_CLIENT_PROMPT_CHAT_RENDER_H

#include "client/lib/handle.h"
#include "client/prompt/chat_json.h"

struct chat {
    struct hearth *h;
    const char *source; /* [source_bytes] the template, Jinja */
    size_t source_bytes;
    uint64_t hash;    /* of the template; 0: none */
    bool is_family;   /* one of hearth's own texts */
    json_t *messages; /* array; ours to change */
    json_t *tools;    /* array, or NULL */
    json_t *shown;    /* the tools as the template takes them, or NULL */
    json_t *extra;    /* object, or NULL */
    json_t *answer;   /* a text that the answer begins with (chat_continue.h), or NULL */
    json_t *opening;  /* what the template writes between the prompt and that, or NULL */
    bool prompt;      /* end with the beginning of the answer */
    enum hearth_tool_choice choice;
    const char *tool_name; /* the caller's */
    bool single_call;
    int32_t thinking_tokens; /* -1: any number */
};

/* Chooses the template. c has no messages. Returns as hearth_chat_text(); call chat_fini in either
 * case. */
int chat_init(struct hearth *h, const struct hearth_chat *chat, const struct chat_json *json,
              struct chat *c);
void chat_fini(struct chat *c);

/* Memory ran out: what was found about the template since chat_init() may be wrong. Every look at a
 * made-up conversation that fails without memory says so. */
void chat_ran_out(const struct chat *c);

/* Then nothing of it is remembered, and the call fails: returns rc, or -ENOMEM. At the end of a
 * call that used chat_init(). */
int chat_settle(struct hearth *h, int rc);

/* Renders these messages (and no others) as c says. Returns as jinja_render. */
int chat_render(const struct chat *c, const json_t *messages, struct jinja_output *ret, char *err,
                size_t err_bytes);

#endif
