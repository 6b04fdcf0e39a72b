/* chat: hearth_chat_text() and hearth_chat_tokens(): JSON in, template chosen, text out. */
#include "client/prompt/chat_json.h"

#include "client/prompt/chat_adapt.h"
#include "client/prompt/chat_continue.h"
#include "client/prompt/chat_families.h"
#include "client/prompt/chat_keep.h"
#include "client/prompt/chat_tidy.h"
#include "client/prompt/chat_turns.h"

#include <errno.h>
#include <string.h>

void hearth_chat_init(struct hearth_chat *chat, size_t size)
{
    const struct hearth_chat defaults = {
        .size = (uint32_t)size, .add_generation_prompt = 1, .thinking_tokens = -1};
    memset(chat, 0, size);
    memcpy(chat, &defaults, size < sizeof(defaults) ? size : sizeof(defaults));
}

/* ---- input ----------------------------------------------------------------------------------- */

/* JSON of a kind; `what` it is, for the error. NULL text gives NULL. */
static int read_json(struct hearth *h, const char *what, const char *text, size_t bytes,
                     json_type kind, json_t **ret)
{
    json_error_t why;
    *ret = NULL;
    if (!text)
        return 0;
    *ret = json_loadb(text, bytes, JSON_ALLOW_NUL, &why);
    if (!*ret && json_error_code(&why) == json_error_out_of_memory)
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    if (!*ret)
        return handle_fail(h, -EINVAL, "%s: not JSON: %s at byte %d", what, why.text, why.position);
    if (json_typeof(*ret) != kind)
        return handle_fail(h, -EINVAL, "%s: give a JSON %s", what,
                           kind == JSON_ARRAY ? "array" : "object");
    return 0;
}

static int check_calls(struct hearth *h, size_t i, const json_t *calls)
{
    size_t k;
    const json_t *call;
    if (calls && !json_is_array(calls) && !json_is_null(calls))
        return handle_fail(h, -EINVAL, "messages[%zu].tool_calls: give an array", i);
    json_array_foreach(calls, k, call) {
        if (!json_is_object(json_object_get(call, "function")))
            return handle_fail(h, -EINVAL,
                               "messages[%zu].tool_calls[%zu]: give an object with a function, "
                               "which has a name and arguments",
                               i, k);
    }
    return 0;
}

/* Every message has a role, a content that is text, parts, or nothing, and calls of functions. */
static int check_messages(struct hearth *h, const json_t *messages)
{
    size_t i;
    const json_t *m;
    if (json_array_size(messages) == 0)
        return handle_fail(h, -EINVAL, "messages: give at least one");
    json_array_foreach(messages, i, m) {
        const json_t *content = json_object_get(m, "content");
        if (!json_is_object(m))
            return handle_fail(h, -EINVAL, "messages[%zu]: give an object with role and content",
                               i);
        if (!json_is_string(json_object_get(m, "role")))
            return handle_fail(h, -EINVAL, "messages[%zu].role: give a string", i);
        if (content && !json_is_string(content) && !json_is_array(content) &&
            !json_is_null(content))
            return handle_fail(h, -EINVAL,
                               "messages[%zu].content: give a string, or an array of "
                               "parts",
                               i);
        int rc = check_calls(h, i, json_object_get(m, "tool_calls"));
        if (rc)
            return rc;
    }
    return 0;
}

static bool is_jinja(const char *text, size_t bytes)
{
    return memmem(text, bytes, "{{", 2) || memmem(text, bytes, "{%", 2);
}

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u ^ bytes;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h ? h : 1;
}

static int choose_template(struct chat *c, const struct hearth_chat *chat)
{
    if (!chat->chat_template) {
        bool tools = json_array_size(c->tools) && c->h->vocab.templates[VOCAB_TEMPLATE_TOOLS].bytes;
        struct vocab_string own =
            vocab_template(&c->h->vocab, tools ? VOCAB_TEMPLATE_TOOLS : VOCAB_TEMPLATE_CHAT);
        c->source = own.data;
        c->source_bytes = own.bytes;
        return own.bytes ? 0
                         : handle_fail(c->h, -ENOTSUP,
                                       "the model brings no chat template: name a family, such as "
                                       "chatml, llama3 or mistral (hearth chat --template, "
                                       "hearth-http --chat-template)");
    }
    c->source = chat->chat_template;
    c->source_bytes = chat->chat_template_bytes;
    if (is_jinja(c->source, c->source_bytes))
        return 0;
    const struct chat_family *f = chat_family_find(c->source, c->source_bytes);
    if (!f) {
        char names[512];
        chat_family_names(names, sizeof(names));
        return handle_fail(c->h, -ENOTSUP,
                           "chat template '%.*s' is not known: give a Jinja text, or one of %s",
                           (int)(c->source_bytes < 64 ? c->source_bytes : 64), c->source, names);
    }
    c->is_family = true;
    c->source = f->source;
    c->source_bytes = strlen(f->source);
    return 0;
}

/* What the template is given, after the JSON was read. */
static int prepare(struct chat *c)
{
    char err[300] = "";
    int rc = chat_tidy(c->messages);
    if (!rc)
        rc = chat_take_answer(c, err, sizeof(err));
    if (!rc)
        rc = chat_keep_calls(c);
    if (!rc)
        rc = chat_adapt(c);
    if (!rc)
        rc = chat_turns(c);
    return rc ? handle_fail(c->h, rc, "%s", *err ? err : "out of memory: free some and try again")
              : 0;
}

void chat_fini(struct chat *c)
{
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->shown);
    json_decref(c->extra);
    json_decref(c->answer);
    json_decref(c->opening);
}

int chat_json_read(struct hearth *h, const struct hearth_chat *given, bool messages,
                   struct hearth_chat *ret_chat, struct chat_json *ret)
{
    *ret = (struct chat_json){0};
    int rc = handle_check(h);
    if (!rc && given->size < sizeof(given->size))
        rc = handle_fail(h, -EINVAL, "set the chat up with hearth_chat_init()");
    if (rc)
        return rc;
    hearth_chat_init(ret_chat, sizeof(*ret_chat));
    memcpy(ret_chat, given, given->size < sizeof(*ret_chat) ? given->size : sizeof(*ret_chat));
    if (messages)
        rc = read_json(h, "messages", ret_chat->messages, ret_chat->messages_bytes, JSON_ARRAY,
                       &ret->messages);
    if (!rc)
        rc = read_json(h, "tools", ret_chat->tools, ret_chat->tools_bytes, JSON_ARRAY, &ret->tools);
    if (!rc)
        rc =
            read_json(h, "extra", ret_chat->extra, ret_chat->extra_bytes, JSON_OBJECT, &ret->extra);
    return rc;
}

void chat_json_fini(struct chat_json *json)
{
    json_decref(json->messages);
    json_decref(json->tools);
    json_decref(json->extra);
}

int chat_init(struct hearth *h, const struct hearth_chat *chat, const struct chat_json *json,
              struct chat *c)
{
    *c = (struct chat){.h = h,
                       .tools = json_incref(json->tools),
                       .extra = json_incref(json->extra),
                       .prompt = chat->add_generation_prompt != 0,
                       .choice = chat->tool_choice,
                       .tool_name = chat->tool_name,
                       .single_call = chat->single_call != 0,
                       .thinking_tokens = chat->thinking_tokens};
    int rc = handle_check(h);
    h->chat_ran_out = false;
    if (!rc && chat->tool_choice > HEARTH_TOOLS_REQUIRED)
        rc = handle_fail(h, -EINVAL,
                         "tool_choice %u: give HEARTH_TOOLS_AUTO, HEARTH_TOOLS_NONE or "
                         "HEARTH_TOOLS_REQUIRED",
                         chat->tool_choice);
    if (!rc)
        rc = choose_template(c, chat);
    if (!rc) {
        c->hash = hash_of(c->source, c->source_bytes);
        c->shown = chat_adapt_tools(c);
        if (c->tools && !c->shown)
            rc = handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    }
    return rc;
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* c with its messages, as the template takes them. */
static int init_whole(struct hearth *h, const struct hearth_chat *chat,
                      const struct chat_json *json, struct chat *c)
{
    int rc = chat_init(h, chat, json, c);
    if (!rc && !json->messages)
        rc = handle_fail(h, -EINVAL, "messages: give a JSON array");
    if (!rc)
        rc = check_messages(h, json->messages);
    c->messages = json_incref(json->messages);
    return rc ? rc : prepare(c);
}

static int render_json(struct hearth *h, const struct hearth_chat *chat,
                       const struct chat_json *json, struct jinja_output *ret)
{
    struct chat c;
    char err[400];
    *ret = (struct jinja_output){0};
    int rc = init_whole(h, chat, json, &c);
    if (rc) {
        chat_fini(&c);
        return rc;
    }
    rc = chat_render(&c, c.messages, ret, err, sizeof(err));
    if (rc) {
        const struct chat_family *f =
            c.is_family ? NULL : chat_family_recognise(c.source, c.source_bytes);
        handle_fail(h, rc, "the chat template: %s%s%s", err, f ? "; its family is " : "",
                    f ? f->name : "");
    } else if ((rc = chat_put_answer(&c, ret)) != 0) {
        jinja_output_fini(ret);
        handle_fail(h, rc, "out of memory: free some and try again");
    }
    chat_fini(&c);
    return rc;
}

int chat_json_render(struct hearth *h, const struct hearth_chat *chat, const struct chat_json *json,
                     struct jinja_output *ret)
{
    const int rc = chat_settle(h, render_json(h, chat, json, ret));
    if (rc)
        jinja_output_fini(ret);
    return rc;
}

int64_t hearth_chat_text(struct hearth *h, const struct hearth_chat *given, char *text, size_t max)
{
    struct jinja_output o;
    struct hearth_chat chat;
    struct chat_json json;
    int rc = chat_json_read(h, given, true, &chat, &json);
    if (!rc)
        rc = chat_json_render(h, &chat, &json, &o);
    chat_json_fini(&json);
    if (rc)
        return rc;
    size_t n = o.bytes < max ? o.bytes : max;
    if (n)
        memcpy(text, o.text, n);
    int64_t bytes = (int64_t)o.bytes;
    jinja_output_fini(&o);
    return bytes;
}

/* One begin-of-sequence token where the vocabulary wants one, whether the template wrote none, one
 * or several. */
static int begin_once(struct hearth *h)
{
    struct token_list *l = &h->scratch;
    uint32_t bos = vocab_special(&h->vocab, VOCAB_BOS);
    size_t n = 0;
    if (bos == VOCAB_NONE)
        return 0;
    while (n < l->n && l->ids[n] == bos)
        n++;
    if (n > 1) {
        memmove(l->ids + 1, l->ids + n, (l->n - n) * sizeof(*l->ids));
        l->n -= n - 1;
    }
    if (n > 0 || !(h->vocab.flags & VOCAB_ADD_BOS))
        return 0;
    int rc = token_list_push(l, bos);
    if (!rc) {
        memmove(l->ids + 1, l->ids, (l->n - 1) * sizeof(*l->ids));
        l->ids[0] = bos;
    }
    return rc;
}

int64_t chat_json_tokens(struct hearth *h, const struct hearth_chat *chat,
                         const struct chat_json *json, uint32_t *ids, size_t max)
{
    struct jinja_output o;
    char err[sizeof(h->error)];
    int rc = chat_json_render(h, chat, json, &o);
    if (rc)
        return rc;
    h->scratch.n = 0;
    const struct token_spans inputs = {.at = o.inputs, .n = o.n_inputs};
    rc = tokenize_plain(&h->vocab, o.text, o.bytes, TOKENIZE_PARSE_SPECIAL, &inputs, &h->scratch,
                        err, sizeof(err));
    if (rc)
        (void)handle_fail(h, rc, "%s", err);
    else if ((rc = begin_once(h)) != 0)
        (void)handle_fail(h, rc, "out of memory: free some and try again");
    jinja_output_fini(&o);
    return rc ? rc : text_from_scratch(h, ids, max);
}

int64_t hearth_chat_tokens(struct hearth *h, const struct hearth_chat *given, uint32_t *ids,
                           size_t max)
{
    struct hearth_chat chat;
    struct chat_json json;
    int64_t n = chat_json_read(h, given, true, &chat, &json);
    if (!n)
        n = chat_json_tokens(h, &chat, &json, ids, max);
    chat_json_fini(&json);
    return n;
}
