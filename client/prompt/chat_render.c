/* chat_render: see chat_render.h. */
#include "client/prompt/chat_render.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Templates write roles into control tokens ("<|user|>"): well-known roles may go there, any other
 * role is text of the message. */
static bool is_role(const char *key, const char *text, size_t bytes)
{
    static const char *const roles[] = {
        "system",
        "user",
        "assistant",
        "tool",
        "developer",
        "function",
        "model",
        "ipython",
        "tool_response",
        "tool_results",
        "context",
        "documents",
        "environment",
        "available_tools",
        "assistant_tool_call",
        "observation",
        "latest_reminder",
    };
    if (strcmp(key, "role") != 0)
        return false;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strlen(roles[i]) == bytes && memcmp(roles[i], text, bytes) == 0)
            return true;
    return false;
}

static struct jinja_variable token_text(const struct chat *c, const char *name,
                                        enum vocab_role role)
{
    struct vocab_token t;
    struct jinja_variable v = {.name = name, .text = ""};
    if (vocab_find_token(&c->h->vocab, vocab_special(&c->h->vocab, role), &t)) {
        v.text = t.text;
        v.bytes = t.text_bytes;
    }
    return v;
}

void chat_ran_out(const struct chat *c)
{
    c->h->chat_ran_out = true;
}

int chat_settle(struct hearth *h, int rc)
{
    if (!h->chat_ran_out)
        return rc;
    h->traits = (struct chat_traits){0};
    return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
}

enum { MOST_EXTRA = 64 };

/* tools: an array, JSON's null, or NULL: the variable is not defined. */
static int render(const struct chat *c, const json_t *messages, const json_t *tools,
                  struct jinja_output *ret, char *err, size_t err_bytes)
{
    struct jinja_variable variables[MOST_EXTRA + 8] = {
        token_text(c, "bos_token", VOCAB_BOS),
        token_text(c, "eos_token", VOCAB_EOS),
        {.name = "documents", .value = json_null()},
        {.name = "add_generation_prompt", .value = json_boolean(c->prompt)},
    };
    uint32_t n = 4;
    const char *name;
    json_t *value;
    if (tools)
        variables[n++] = (struct jinja_variable){.name = "tools", .value = tools};
    json_object_foreach(c->extra, name, value) {
        if (n == MOST_EXTRA + 5) {
            snprintf(err, err_bytes, "extra: give at most %d variables", MOST_EXTRA);
            return -EINVAL;
        }
        variables[n++] = (struct jinja_variable){.name = name, .value = value};
    }
    variables[n++] = (struct jinja_variable){.name = "messages", .value = messages};
    const struct jinja_desc desc = {.source = c->source,
                                    .source_bytes = c->source_bytes,
                                    .variables = variables,
                                    .n_variables = n,
                                    .now = time(NULL),
                                    .is_word = is_role};
    return jinja_render(&desc, ret, err, err_bytes);
}

/* Without tools the variable is none, as in `transformers`. A template that is for tools alone loops
 * over them all the same, which none refuses: without the variable there are none to loop over. */
int chat_render(const struct chat *c, const json_t *messages, struct jinja_output *ret, char *err,
                size_t err_bytes)
{
    int rc = render(c, messages, c->shown ? c->shown : json_null(), ret, err, err_bytes);
    rc = rc == -EINVAL && !c->shown ? render(c, messages, NULL, ret, err, err_bytes) : rc;
    if (rc == -ENOMEM)
        chat_ran_out(c);
    return rc;
}
