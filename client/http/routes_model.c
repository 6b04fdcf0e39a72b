/* routes_model: requests that run the model. See routes_model.h. */
#include "client/http/routes_model.h"

#include "client/http/fields.h"
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int routes_read_options(struct exchange *x, struct hearth *h, enum gen_dialect dialect,
                        struct fail *f)
{
    struct hearth_info info = {.size = sizeof(info)};
    json_t *root = x->root;
    int rc = hearth_info(h, &info);
    if (rc < 0)
        return fail_library(f, rc, hearth_error(h));
    if (!x->is_named && gen_params_check_model(root, x->server->config, info.model, f) < 0)
        return -1;
    x->root = NULL;
    if (gen_params_read(&x->params, dialect, root, f) < 0)
        return -1;
    return gen_params_read_prediction(&x->params, h, f);
}

int routes_read_completion(struct exchange *x, struct hearth *h, struct fail *f)
{
    return routes_read_options(x, h, GEN_NATIVE, f) < 0 ||
                   gen_params_read_prompt(&x->params, h, f) < 0
               ? -1
               : 0;
}

void routes_run(struct exchange *x)
{
    struct fail f;
    if (gen_params_check_prompts(&x->params, x->served->pool.model.context, &f) < 0) {
        exchange_fail(x, &f);
        return;
    }
    exchange_run(x);
}

/* ---- fill in the middle ---------------------------------------------------------------------- */

static int read_extra(const json_t *list, struct hearth_chunk *chunks, struct fail *f)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct hearth_chunk *c = &chunks[i];
        if (!json_is_object(item) || !json_is_string(json_object_get(item, "text")))
            return fail_set(f, 400, FAIL_INVALID,
                            "'input_extra' must be an array of {\"filename\": ..., \"text\": ...}");
        if (field_text(item, "text", &c->text, &c->text_bytes, f) < 0 ||
            field_text(item, "filename", &c->name, NULL, f) < 0)
            return -1;
    }
    return 0;
}

/* Makes the one prompt of x->params. */
static int make_fim(struct gen_params *a, struct hearth *h, const struct hearth_fim *fim,
                    struct fail *f)
{
    struct hearth_info info = {.size = sizeof(info)};
    struct gen_prompt *p = gen_params_open_prompt(a, h, &info, f);
    if (!p)
        return -1;
    int64_t n = hearth_fim(h, fim, p->ids, (size_t)info.context + 1);
    if (n == -ENOTSUP)
        return fail_set(f, 501, FAIL_NOT_SUPPORTED,
                        "the model '%.200s' knows no fill-in-the-middle tokens: start hearthd with "
                        "one that does (Qwen2.5-Coder, StarCoder2, CodeLlama, ...)",
                        info.model);
    if (n < 0)
        return fail_library(f, (int)n, hearth_error(h));
    p->n = (uint32_t)n;
    return 0;
}

static int read_sides(const json_t *o, struct hearth_fim *fim, struct fail *f)
{
    int prefix = field_text(o, "input_prefix", &fim->prefix, &fim->prefix_bytes, f);
    int suffix =
        prefix < 0 ? -1 : field_text(o, "input_suffix", &fim->suffix, &fim->suffix_bytes, f);
    if (suffix < 0)
        return -1;
    if (!prefix || !suffix)
        return fail_set(f, 400, FAIL_INVALID, "'%s' is required",
                        prefix ? "input_suffix" : "input_prefix");
    return field_text(o, "prompt", &fim->middle, &fim->middle_bytes, f);
}

int routes_read_infill(struct exchange *x, struct hearth *h, struct fail *f)
{
    struct hearth_fim fim;
    json_t *extra = NULL;
    hearth_fim_init(&fim, sizeof(fim));
    if (routes_read_options(x, h, GEN_INFILL, f) < 0 || read_sides(x->params.root, &fim, f) < 0 ||
        field_array(x->params.root, "input_extra", &extra, f) < 0)
        return -1;
    struct hearth_chunk *chunks = calloc(json_array_size(extra) + 1, sizeof(*chunks));
    if (!chunks)
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
    fim.extra = chunks;
    fim.n_extra = (uint32_t)json_array_size(extra);
    int rc = read_extra(extra, chunks, f);
    if (!rc)
        rc = make_fim(&x->params, h, &fim, f);
    free(chunks);
    return rc;
}

/* ---- OpenAI ---------------------------------------------------------------------------------- */

static int read_suffixed(struct gen_params *a, struct hearth *h, struct fail *f)
{
    struct hearth_fim fim;
    hearth_fim_init(&fim, sizeof(fim));
    if (field_text(a->root, "prompt", &fim.prefix, &fim.prefix_bytes, f) < 0 ||
        field_text(a->root, "suffix", &fim.suffix, &fim.suffix_bytes, f) < 0 ||
        make_fim(a, h, &fim, f) < 0)
        return -1;
    a->prompts[0].text = json_object_get(a->root, "prompt");
    return 0;
}

/* Each answer repeats its prompt. With a `suffix` that may be longer than what a context holds. */
static int check_echo(const struct gen_params *a, size_t most, struct fail *f)
{
    size_t bytes = 0;
    for (uint32_t i = 0; a->echo && i < a->n_prompts; i++)
        bytes += json_string_length(a->prompts[i].text) * a->n;
    if (bytes <= most)
        return 0;
    return fail_set(
        f, 400, FAIL_INVALID,
        "'echo' would repeat %zu bytes in all answers together, at most %zu are: ask for "
        "fewer answers, or leave it out",
        bytes, most);
}

/* The prompt, or with a suffix what stands between. */
static int read_completion(struct exchange *x, struct hearth *h, enum gen_dialect dialect,
                           struct fail *f)
{
    const char *suffix = NULL;
    size_t bytes = 0;
    if (routes_read_options(x, h, dialect, f) < 0 ||
        field_text(x->params.root, "suffix", &suffix, &bytes, f) < 0)
        return -1;
    int rc = bytes ? read_suffixed(&x->params, h, f) : gen_params_read_prompt(&x->params, h, f);
    return rc < 0 ? -1 : check_echo(&x->params, x->server->config->max_body, f);
}

int routes_read_v1(struct exchange *x, struct hearth *h, struct fail *f)
{
    return read_completion(x, h, GEN_TEXT, f);
}

int routes_read_prompt(struct exchange *x, struct hearth *h, struct fail *f)
{
    return read_completion(x, h, GEN_CHAT, f);
}

const char *routes_chat_template(struct exchange *x)
{
    struct hearth *h = pool_any(&x->served->pool);
    struct hearth_info info = {.size = sizeof(info)};
    return h && hearth_info(h, &info) == 0 && info.chat_template ? info.chat_template : "";
}

bool routes_writes_tools(struct hearth *h, const char *chat_template)
{
    struct hearth_chat_reader *reader = NULL;
    struct hearth_chat chat;
    hearth_chat_init(&chat, sizeof(chat));
    chat.messages = "[{\"role\":\"user\",\"content\":\"x\"}]";
    chat.messages_bytes = strlen(chat.messages);
    chat.tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"x\","
                 "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
    chat.tools_bytes = strlen(chat.tools);
    chat.chat_template = chat_template;
    chat.chat_template_bytes = chat_template ? strlen(chat_template) : 0;
    bool writes = hearth_chat_open(h, &chat, &reader) == 0;
    hearth_chat_close(reader);
    return writes;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* As text, for as values there would be half a kilobyte for each byte of the request. h: tells the
 * pieces, or NULL. */
static void put_tokens(struct buffer *t, struct hearth *h, const uint32_t *ids, uint32_t n)
{
    char bytes[TOKEN_TEXT_BYTES];
    buffer_text(t, "{\"tokens\":[");
    for (uint32_t i = 0; i < n; i++) {
        buffer_text(t, i ? "," : "");
        if (h)
            json_put_format(t, "{'id':%d,'piece':%o}", (int64_t)ids[i],
                            json_of_exact(bytes, token_text(h, ids[i], bytes)));
        else
            json_put_format(t, "%d", (int64_t)ids[i]);
    }
    buffer_text(t, "]}");
}

int routes_read_tokenize(struct exchange *x, struct hearth *h, struct fail *f)
{
    const json_t *content = json_object_get(x->root, "content");
    bool add_special = false, parse_special = true, with_pieces = false;
    uint32_t *ids = NULL, n = 0;
    if (!json_is_string(content) && !json_is_array(content))
        return fail_set(f, 400, FAIL_INVALID,
                        "'content' must be a string, or an array of texts and ids");
    if (field_bool(x->root, "add_special", &add_special, f) < 0 ||
        field_bool(x->root, "parse_special", &parse_special, f) < 0 ||
        field_bool(x->root, "with_pieces", &with_pieces, f) < 0 ||
        gen_params_tokens(h, content, "content", add_special, parse_special, &ids, &n, f) < 0)
        return -1;
    put_tokens(&x->out, with_pieces ? h : NULL, ids, n);
    free(ids);
    return 0;
}

int routes_read_detokenize(struct exchange *x, struct hearth *h, struct fail *f)
{
    const json_t *list = json_object_get(x->root, "tokens");
    uint32_t *ids = NULL, n = 0;
    bool only_ids = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        only_ids = only_ids && json_is_integer(json_array_get(list, i));
    if (!only_ids)
        return fail_set(f, 400, FAIL_INVALID, "'tokens' must be an array of token ids");
    if (gen_params_tokens(h, list, "tokens", false, false, &ids, &n, f) < 0)
        return -1;
    int64_t bytes = hearth_detokenize(h, ids, n, HEARTH_SPECIAL, NULL, 0);
    char *text = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (text && bytes > 0)
        (void)hearth_detokenize(h, ids, n, HEARTH_SPECIAL, text, (size_t)bytes);
    exchange_put_whole(x,
                       json_pack("{s:o}", "content",
                                 text ? json_of_text(text, bytes > 0 ? (size_t)bytes : 0) : NULL));
    free(ids);
    free(text);
    return 0;
}
