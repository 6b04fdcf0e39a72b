/* translate: requests of other dialects in the form of /v1/chat/completions, which talk.h and
 * gen_params.h read.
 *
 * A new object is made of what the dialect defines, with hearth's own fields (`seed`, `grammar`,
 * `min_p`, ...) beside it; unknown fields are left out. It shares values with the request it came
 * from. Any thread. */
#ifndef HEARTH_CLIENT_HTTP_TRANSLATE_H
#define HEARTH_CLIENT_HTTP_TRANSLATE_H

#include "client/base/buffer.h"
#include "client/http/fail.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Anthropic's Messages. keep_billing: see --keep-billing-header. Each returns NULL with *f where the
 * request is invalid; the caller owns the object. */
json_t *translate_messages(const json_t *body, bool keep_billing, struct fail *f);

/* OpenAI's Responses. */
json_t *translate_responses(const json_t *body, struct fail *f);

/* The tool in a request of Responses that the model calls by this name, borrowed; NULL: there is none.
 * The name of one in a namespace, perhaps in others, begins with theirs: *ret_space_bytes of it. */
const json_t *translate_find_tool(const json_t *body, const char *flat, size_t *ret_space_bytes);

/* Ollama's chats and prompts; context: how many tokens ours holds. A prompt that is not a
 * conversation's is `prompt`, perhaps with `suffix`. Without one, `messages` is empty. */
json_t *translate_ollama_chat(const json_t *body, uint32_t context, struct fail *f);
json_t *translate_ollama_generate(const json_t *body, uint32_t context, struct fail *f);

/* Ollama's `keep_alive`, where body has it: how long the model stays without a request [ns]. A number of
 * seconds, or a duration as Go writes it ("5m", "1h30m"); UINT64_MAX, where it is negative: for ever. */
int translate_keep_alive(const json_t *body, bool *ret_given, uint64_t *ret_ns, struct fail *f);

/* ---- what translations have in common -------------------------------------------------------- */

struct translation {
    const json_t *from; /* the request */
    json_t *to;         /* the new object */
    json_t *messages;   /* its own, as are these; borrowed */
    json_t *tools;
    json_t *names; /* of the tools that calls so far named, by the calls' ids; owned */
    json_t *turn;  /* the assistant's message that is being made of several items, or NULL */
    struct buffer thoughts; /* of that message, until it is complete */
    bool is_result; /* a tool's result is being read: parts that are not text are left out */
    char where[32]; /* what is being read, for errors: "messages.3" */
    struct fail *f;
    bool failed; /* no memory */
};

/* Begins with the members of body that mean the same in all dialects. */
void translate_begin(struct translation *t, const json_t *body, struct fail *f);

/* The object, or NULL with *f: rc is not 0, or memory ran out. */
json_t *translate_end(struct translation *t, int rc);

/* Sets a member; takes over value (NULL: no memory). */
void translate_set(struct translation *t, const char *name, json_t *value);

/* `name` of body, where it is there and not null, becomes `as`. */
void translate_copy(struct translation *t, const json_t *body, const char *name, const char *as);

/* Appends a message with a text (taken over), and returns it, borrowed. */
json_t *translate_message(struct translation *t, const char *role, json_t *content);

/* Appends to a message of the assistant a call with its arguments as JSON text (both taken over). */
void translate_call(struct translation *t, json_t *message, const json_t *id, json_t *name,
                    json_t *arguments);

/* A call's arguments as the text of an object; what is neither an object nor a text is none. */
json_t *translate_arguments(const json_t *given);

/* Appends the result of a call, and returns it, borrowed; its name is looked up among the calls so
 * far. */
json_t *translate_result(struct translation *t, const json_t *id, json_t *content);

/* Appends a tool: its description may be NULL. All are borrowed. */
void translate_tool(struct translation *t, json_t *name, json_t *description, json_t *parameters);

/* The last tool is `strict`: its calls have to follow its schema. */
void translate_strict(struct translation *t);

/* Another text of one message: a line of its own. */
void translate_add_text(struct buffer *all, const json_t *text);

/* The same of a string that was made for it, which is taken over. NULL: no memory. */
void translate_add_made(struct buffer *all, json_t *text);

/* A string of the bytes, which may be none. */
json_t *translate_text(const struct buffer *all);

/* A value as the JSON that a model writes, with spaces after colons and commas. */
json_t *translate_dump(const json_t *value);

#endif
