/* routes_ollama: the endpoints of Ollama's interface. See ollama.h. */
#include "client/http/catalog.h"
#include "client/http/fields.h"
#include "client/http/json_put.h"
#include "client/http/ollama.h"
#include "client/http/page.h"
#include "client/http/reply.h"
#include "client/http/routes_model.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "client/http/translate.h"

#include <stdio.h>
#include <string.h>

/* ---- about the gateway ----------------------------------------------------------------------- */

void ollama_root(struct exchange *x)
{
    if (page_is_wanted(x)) {
        page_index(x);
        return;
    }
    buffer_text(&x->out, "Ollama is running");
    exchange_answer_whole(x);
    x->content_type = "text/plain; charset=utf-8";
}

void ollama_version(struct exchange *x)
{
    exchange_answer(x, json_pack("{s:s}", "version", OLLAMA_VERSION));
}

static json_t *details(void)
{
    return json_pack("{s:s, s:s, s:s, s:[], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", "", "families", "parameter_size", "", "quantization_level", "");
}

static json_t *model_object(const struct catalog_entry *e)
{
    const struct pool_model *m = e->served ? &e->served->pool.model : NULL;
    char at[OLLAMA_TIME_BYTES];
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", e->name, "model", e->name,
                     "modified_at", ollama_time(m ? (time_t)m->since : 0, 0, at), "size",
                     (json_int_t)e->bytes, "digest", m ? m->fingerprint : "", "details", details());
}

static void tell_tags(struct exchange *x)
{
    exchange_answer(x, json_pack("{s:o}", "models", catalog_list(x, model_object)));
}

void ollama_tags(struct exchange *x)
{
    catalog_look(x, tell_tags);
}

/* Those that are loaded; with what they declared to need where a budget is kept. */
void ollama_ps(struct exchange *x)
{
    json_t *list = json_array();
    char at[OLLAMA_TIME_BYTES];
    served_look(x->server);
    for (struct served *d = x->server->served; d; d = d->next) {
        const struct catalog_entry e = {.name = served_name(d), .served = d, .bytes = d->bytes};
        const uint64_t ends_s = launcher_ends_s(d);
        if (!pool_is_up(&d->pool))
            continue;
        json_t *o = model_object(&e);
        json_object_update_new(
            o, json_pack("{s:s, s:I, s:I}", "expires_at",
                         ends_s ? ollama_time((time_t)ends_s, 0, at) : "9999-12-31T23:59:59Z",
                         "size_vram", (json_int_t)0, "context_length",
                         (json_int_t)d->pool.model.context));
        json_array_append_new(list, o);
    }
    exchange_answer(x, json_pack("{s:o}", "models", list));
}

/* ---- about the model ------------------------------------------------------------------------- */

static json_t *capabilities(struct hearth *h, const struct hearth_info *info, const char *given)
{
    static const char *const signs[] = {"<think>", "enable_thinking", "reasoning_content",
                                        "<|channel|>"};
    const char *text = given ? given : info->chat_template;
    json_t *list = json_pack("[s]", "completion");
    bool thinks = false;
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        thinks |= strstr(text, signs[i]) != NULL;
    if (routes_writes_tools(h, given))
        json_array_append_new(list, json_string("tools"));
    if (thinks)
        json_array_append_new(list, json_string("thinking"));
    if (info->fim)
        json_array_append_new(list, json_string("insert"));
    return list;
}

/* A name with the tag that Ollama adds to names without one. */
static void drop_tag(json_t *root)
{
    static const char tag[] = ":latest";
    const json_t *model = json_object_get(root, "model");
    size_t n = json_string_length(model), tail = sizeof(tag) - 1;
    if (n > tail && strcmp(json_string_value(model) + n - tail, tag) == 0)
        json_object_set_new(root, "model", json_stringn(json_string_value(model), n - tail));
}

int ollama_read_show(struct exchange *x, struct hearth *h, struct fail *f)
{
    const struct http_config *config = x->server->config;
    struct hearth_info info = {.size = sizeof(info)};
    int rc = hearth_info(h, &info);
    if (rc < 0)
        return fail_library(f, rc, hearth_error(h));
    if (!json_object_get(x->root, "model"))
        json_object_set(x->root, "model", json_object_get(x->root, "name"));
    drop_tag(x->root);
    if (!x->is_named && gen_params_check_model(x->root, config, info.model, f) < 0)
        return -1;
    const char *text = config->chat_template ? config->chat_template : info.chat_template;
    exchange_put_whole(x, json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:s, s:s, s:I}, s:o}", "license",
                                    "", "modelfile", "", "parameters", "", "template",
                                    json_of_text(text, strlen(text)), "details", details(),
                                    "model_info", "general.architecture", "hearth", "general.name",
                                    info.model, "hearth.context_length", (json_int_t)info.context,
                                    "capabilities", capabilities(h, &info, config->chat_template)));
    return 0;
}

/* ---- answers of the model -------------------------------------------------------------------- */

/* A request without a prompt asks to load the model, or (keep_alive 0) to forget it. It is there; with
 * --budget it is stopped once it runs nothing. */
static void put_loaded(struct exchange *x)
{
    const bool forget = x->has_keep && x->keep_ns == 0;
    ollama_begin(x);
    json_put_format(
        &x->out,
        x->reply == &reply_ollama_chat
            ? ",'message':{'role':'assistant','content':''},'done':true,'done_reason':%s}"
            : ",'response':'','done':true,'done_reason':%s}",
        forget ? "unload" : "load");
}

/* Puts the translation in the place of the request. */
static int take(struct exchange *x, struct hearth *h,
                json_t *(*translate)(const json_t *, uint32_t, struct fail *), struct fail *f)
{
    struct hearth_info info = {.size = sizeof(info)};
    int rc = hearth_info(h, &info);
    if (rc < 0)
        return fail_library(f, rc, hearth_error(h));
    if (!json_string_length(json_object_get(x->root, "model")))
        return fail_set(f, 400, FAIL_INVALID, "'model' is required: any name will do");
    if (translate_keep_alive(x->root, &x->has_keep, &x->keep_ns, f) < 0)
        return -1;
    x->asked = x->root;
    x->root = translate(x->asked, info.context, f);
    if (!x->root)
        return -1;
    drop_tag(x->root);
    return 0;
}

int ollama_read_chat(struct exchange *x, struct hearth *h, struct fail *f)
{
    if (take(x, h, translate_ollama_chat, f) < 0)
        return -1;
    if (json_array_size(json_object_get(x->root, "messages")))
        return routes_read_chat(x, h, f);
    put_loaded(x);
    return 0;
}

/* A model without a chat template goes on with the prompt as it stands. */
static void take_plain(struct exchange *x, struct hearth *h)
{
    struct hearth_info info = {.size = sizeof(info)};
    bool has_template = x->server->config->chat_template ||
                        (hearth_info(h, &info) == 0 && info.chat_template && *info.chat_template);
    json_t *prompt = json_object_get(x->asked, "prompt");
    json_t *messages = json_object_get(x->root, "messages");
    if (json_array_size(messages) != 1 || !json_string_length(prompt) || has_template)
        return;
    json_array_clear(messages);
    json_object_set(x->root, "prompt", prompt);
}

int ollama_read_generate(struct exchange *x, struct hearth *h, struct fail *f)
{
    if (take(x, h, translate_ollama_generate, f) < 0)
        return -1;
    take_plain(x, h);
    if (json_object_get(x->root, "prompt"))
        return routes_read_prompt(x, h, f);
    if (json_array_size(json_object_get(x->root, "messages")))
        return routes_read_chat(x, h, f);
    put_loaded(x);
    return 0;
}

bool ollama_only_forgets(const json_t *root)
{
    struct fail f;
    bool has_keep = false;
    uint64_t keep_ns = 0;
    return translate_keep_alive(root, &has_keep, &keep_ns, &f) == 0 && has_keep && keep_ns == 0 &&
           !json_object_get(root, "prompt") && !json_array_size(json_object_get(root, "messages"));
}

void ollama_run(struct exchange *x)
{
    if (x->out.bytes)
        exchange_answer_whole(x);
    else
        routes_run(x);
}
