/* chat_continue: see chat_continue.h. */
#include "client/prompt/chat_continue.h"

#include "client/prompt/chat_adapt.h"
#include "client/prompt/chat_form.h"
#include "client/prompt/chat_tidy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Will the answer begin with thoughts? It will where `enable_thinking`: false makes another prompt,
 * or where the prompt opens them. A template that does not render tells so when the conversation is
 * rendered. */
static bool will_think(const struct chat *c)
{
    struct jinja_output given = {0}, off = {0};
    struct reader_desc form;
    struct chat quiet = *c;
    chat_form_find(c, &form);
    bool thinks = form.thinks;
    quiet.extra = c->extra ? chat_copy(c->extra) : json_object();
    if (!quiet.extra || json_object_set_new(quiet.extra, "enable_thinking", json_false()))
        chat_ran_out(c);
    else if (!thinks && chat_form_render(c, CHAT_FORM_ASKED, true, &given) &&
             chat_form_render(&quiet, CHAT_FORM_ASKED, true, &off))
        thinks = given.bytes != off.bytes || memcmp(given.text, off.text, off.bytes) != 0;
    jinja_output_fini(&given);
    jinja_output_fini(&off);
    json_decref(quiet.extra);
    return thinks;
}

#define NEEDLE "hearthneedle"

/* Finds what the template writes before the text of an answer where the prompt ends, as gpt-oss's
 * does `<|channel|>final<|message|>`: the model writes it, else. The prompt may go on beyond it (a
 * thought without words) or end with it all the same. *ret: NULL for nothing. Returns 0; -EINVAL:
 * it is not known; -ENOMEM. */
static int find_opening(const struct chat *c, json_t **ret)
{
    static const char answered[] = "[{\"role\":\"user\",\"content\":\"x\"},"
                                   "{\"role\":\"assistant\",\"content\":\"" NEEDLE "\"}]";
    struct jinja_output asked = {0}, whole = {0};
    int rc = 0;
    *ret = NULL;
    if (!chat_form_render(c, CHAT_FORM_ASKED, true, &asked))
        return 0;
    const char *text = chat_form_render(c, answered, false, &whole)
                           ? memmem(whole.text, whole.bytes, NEEDLE, strlen(NEEDLE))
                           : NULL;
    const size_t end = text ? (size_t)(text - whole.text) : 0;
    size_t n = 0;
    while (n < end && n < asked.bytes && asked.text[n] == whole.text[n])
        n++;
    if (!text || (n < end && chat_form_has_input(&whole, n, end))) {
        rc = -EINVAL; /* what a caller gave would become the template's own */
    } else if (n < end && n == asked.bytes) {
        *ret = json_stringn_nocheck(whole.text + n, end - n);
        rc = *ret ? 0 : -ENOMEM;
    } else if (n < end) {
        const size_t from = chat_form_answer_at(&asked, &whole), bytes = end - from;
        if (bytes > asked.bytes ||
            memcmp(asked.text + asked.bytes - bytes, whole.text + from, bytes) != 0)
            rc = -EINVAL;
    }
    jinja_output_fini(&asked);
    jinja_output_fini(&whole);
    return rc;
}

int chat_take_answer(struct chat *c, char *err, size_t err_bytes)
{
    size_t n = json_array_size(c->messages);
    const json_t *last = json_array_get(c->messages, n - 1);
    const json_t *content = json_object_get(last, "content");
    if (!c->prompt || strcmp(json_string_value(json_object_get(last, "role")), "assistant") != 0 ||
        json_array_size(json_object_get(last, "tool_calls")))
        return 0;
    if (json_string_length(json_object_get(last, "reasoning_content"))) {
        snprintf(err, err_bytes,
                 "messages[%zu]: the last message of the assistant is continued, which one with "
                 "reasoning_content cannot be: leave that out, or end with a message of the user",
                 n - 1);
        return -EINVAL;
    }
    if (will_think(c)) {
        snprintf(err, err_bytes,
                 "messages[%zu]: the last message of the assistant is continued, which needs "
                 "thinking to be off: set the template's variable enable_thinking to false, or end "
                 "with a message of the user",
                 n - 1);
        return -EINVAL;
    }
    json_t *text =
        json_is_array(content) ? chat_join_parts(c, content) : json_incref((json_t *)content);
    if (!text && json_is_array(content)) {
        snprintf(err, err_bytes,
                 "messages[%zu]: the last message of the assistant is continued: give it text only",
                 n - 1);
        return -EINVAL;
    }
    c->answer = text;
    int rc = find_opening(c, &c->opening);
    if (rc == -EINVAL)
        snprintf(err, err_bytes,
                 "messages[%zu]: the last message of the assistant is continued, and how this chat "
                 "template begins an answer is not known: end with a message of the user",
                 n - 1);
    if (rc)
        return rc;
    return json_array_remove(c->messages, n - 1) ? -ENOMEM : 0;
}

int chat_put_answer(const struct chat *c, struct jinja_output *o)
{
    const size_t bytes = json_string_length(c->answer), opening = json_string_length(c->opening),
                 at = o->bytes + opening;
    if (!bytes)
        return 0;
    struct token_span *spans = malloc((o->n_inputs + 1) * sizeof(*spans) + at + bytes + 1);
    if (!spans)
        return -ENOMEM;
    char *text = (char *)(spans + o->n_inputs + 1);
    if (o->n_inputs)
        memcpy(spans, o->inputs, o->n_inputs * sizeof(*spans));
    spans[o->n_inputs] = (struct token_span){.at = at, .bytes = bytes};
    memcpy(text, o->text, o->bytes);
    if (opening)
        memcpy(text + o->bytes, json_string_value(c->opening), opening);
    memcpy(text + at, json_string_value(c->answer), bytes);
    text[at + bytes] = 0;
    const struct jinja_output whole = {
        .text = text, .bytes = at + bytes, .inputs = spans, .n_inputs = o->n_inputs + 1};
    jinja_output_fini(o);
    *o = whole;
    return 0;
}
