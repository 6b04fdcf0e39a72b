/* chat_json: hearth_chat_text(), hearth_chat_tokens() and hearth_chat_open() for programs of ours that
 * have a chat's JSON as values: an agent's tools are not written as text to be read again. On the
 * handle's thread.
 *
 * A struct hearth_chat here says what is not JSON: its texts of JSON are not looked at. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_JSON_H
#define HEARTH_CLIENT_PROMPT_CHAT_JSON_H

#include "client/hearth.h"
#include "client/jinja/jinja.h"

#include <jansson.h>

struct chat_json {
    json_t *messages; /* array; becomes what the template takes, and is of no further use */
    json_t *tools;    /* array, or NULL; a reader keeps a reference */
    json_t *extra;    /* object, or NULL */
};

/* Reads what a caller of hearth.h gave, without its messages unless they are wanted. *ret_chat: the
 * chat in this version's size. Returns 0 or -errno; call chat_json_fini in either case. */
int chat_json_read(struct hearth *h, const struct hearth_chat *given, bool messages,
                   struct hearth_chat *ret_chat, struct chat_json *ret);
void chat_json_fini(struct chat_json *json);

/* The prompt's text; the caller frees *ret. Returns as hearth_chat_text(). */
int chat_json_render(struct hearth *h, const struct hearth_chat *chat, const struct chat_json *json,
                     struct jinja_output *ret);

/* As hearth_chat_tokens(). */
int64_t chat_json_tokens(struct hearth *h, const struct hearth_chat *chat,
                         const struct chat_json *json, uint32_t *ids, size_t max);

/* As hearth_chat_open(), which does not look at messages. */
int chat_json_open(struct hearth *h, const struct hearth_chat *chat, const struct chat_json *json,
                   struct hearth_chat_reader **ret_reader);

#endif
