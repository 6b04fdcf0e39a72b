/* routes_chat: conversations: the model's template makes prompts of them. */
#include "client/http/routes_model.h"
#include "client/http/state.h"
#include "client/http/talk.h"
#include "client/http/token_json.h"
#include "client/http/translate.h"

int routes_read_chat(struct exchange *x, struct hearth *h, struct fail *f)
{
    struct talk t = {0};
    int rc = routes_read_options(x, h, GEN_CHAT, f);
    if (!rc)
        rc = talk_read(&t, x->params.root, x->server->config->chat_template, f);
    if (!rc)
        rc = talk_prepare(&t, &x->params, h, f);
    talk_fini(&t);
    return rc;
}

/* The request in the form of /v1/chat/completions (NULL: *f says why not) takes the place of its
 * own, which is kept. */
static int replace_root(struct exchange *x, json_t *translated)
{
    x->asked = x->root;
    x->root = translated;
    return translated ? 0 : -1;
}

static int translate_as_messages(struct exchange *x, struct fail *f)
{
    bool keep = x->server->config->keep_billing_header;
    return replace_root(x, translate_messages(x->root, keep, f));
}

static int translate_as_responses(struct exchange *x, struct fail *f)
{
    return replace_root(x, translate_responses(x->root, f));
}

int routes_read_messages(struct exchange *x, struct hearth *h, struct fail *f)
{
    return translate_as_messages(x, f) < 0 ? -1 : routes_read_chat(x, h, f);
}

/* The answer says members of the request again, whatever is in them: of a large one a worker writes
 * that here, not the loop when the answer begins. */
int routes_read_responses(struct exchange *x, struct hearth *h, struct fail *f)
{
    x->reply->ahead(x);
    return translate_as_responses(x, f) < 0 ? -1 : routes_read_chat(x, h, f);
}

/* How many tokens the prompt of x->root has, or -1. */
static int64_t count(struct exchange *x, struct hearth *h, struct fail *f)
{
    struct talk t = {0};
    int64_t n = talk_read(&t, x->root, x->server->config->chat_template, f);
    if (!n)
        n = talk_count(&t, h, f);
    talk_fini(&t);
    return n;
}

int routes_read_messages_count(struct exchange *x, struct hearth *h, struct fail *f)
{
    int64_t n = translate_as_messages(x, f) < 0 ? -1 : count(x, h, f);
    if (n >= 0)
        exchange_put_whole(x, json_pack("{s:I}", "input_tokens", (json_int_t)n));
    return n < 0 ? -1 : 0;
}

int routes_read_responses_count(struct exchange *x, struct hearth *h, struct fail *f)
{
    int64_t n = translate_as_responses(x, f) < 0 ? -1 : count(x, h, f);
    if (n >= 0)
        exchange_put_whole(x, json_pack("{s:s, s:I}", "object", "response.input_tokens",
                                        "input_tokens", (json_int_t)n));
    return n < 0 ? -1 : 0;
}

int routes_read_template(struct exchange *x, struct hearth *h, struct fail *f)
{
    struct talk t = {0};
    struct jinja_output o = {0};
    int rc = talk_read(&t, x->root, x->server->config->chat_template, f);
    if (!rc)
        rc = talk_check_tools(&t, h, f);
    int code = rc ? 0 : chat_json_render(h, &t.chat, &t.json, &o);
    if (code)
        rc = fail_library(f, code, hearth_error(h));
    if (!rc)
        exchange_put_whole(x, json_pack("{s:o}", "prompt", json_of_text(o.text, o.bytes)));
    jinja_output_fini(&o);
    talk_fini(&t);
    return rc;
}
