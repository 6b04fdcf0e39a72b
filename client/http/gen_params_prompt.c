/* gen_params_prompt: a request's prompt as tokens: text, ids, both, or several of these. */
#include "client/http/fields.h"
#include "client/http/gen_params.h"
#include "client/tokenizer/token_list.h"
#include "ipc/params.h"

#include <errno.h>
#include <stdlib.h>

enum { PROMPTS_MAX = 64, PART_BYTES = 8 /* more than a token has in texts that people write */ };

static int no_memory(struct fail *f)
{
    return fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
}

static int add_text(struct hearth *h, struct token_list *l, const json_t *v, uint32_t flags,
                    struct fail *f)
{
    const char *text = json_string_value(v);
    size_t bytes = json_string_length(v);
    if (token_list_reserve(l, bytes / 4 + 16))
        return no_memory(f);
    int64_t n = hearth_tokenize(h, text, bytes, flags, l->ids + l->n, l->capacity - l->n);
    if (n > (int64_t)(l->capacity - l->n)) {
        if (token_list_reserve(l, (size_t)n))
            return no_memory(f);
        n = hearth_tokenize(h, text, bytes, flags, l->ids + l->n, l->capacity - l->n);
    }
    if (n < 0)
        return fail_library(f, (int)n, hearth_error(h));
    l->n += (size_t)n;
    return 0;
}

static int add_id(struct token_list *l, const json_t *v, uint32_t n_vocab, const char *name,
                  struct fail *f)
{
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= (json_int_t)n_vocab)
        return fail_set(f, 400, FAIL_INVALID, "'%s': %lld is not a token id: they go from 0 to %u",
                        name, (long long)id, n_vocab - 1);
    return token_list_push(l, (uint32_t)id) ? no_memory(f) : 0;
}

int gen_params_tokens(struct hearth *h, const json_t *value, const char *name, bool add_bos,
                      bool special, uint32_t **ret_ids, uint32_t *ret_n, struct fail *f)
{
    struct hearth_info info = {.size = sizeof(info)};
    struct token_list l = {0};
    uint32_t flags = special ? HEARTH_SPECIAL : 0;
    int rc = hearth_info(h, &info) < 0 ? fail_library(f, -EPERM, hearth_error(h)) : 0;
    if (json_is_string(value) && !rc)
        rc = add_text(h, &l, value, flags | (add_bos ? HEARTH_ADD_BOS : 0), f);
    for (size_t i = 0; i < json_array_size(value) && !rc; i++) {
        const json_t *v = json_array_get(value, i);
        if (json_is_string(v))
            rc = add_text(h, &l, v, flags | (add_bos && !i ? HEARTH_ADD_BOS : 0), f);
        else if (json_is_integer(v))
            rc = add_id(&l, v, info.n_vocab, name, f);
        else
            rc = fail_set(f, 400, FAIL_INVALID, "'%s' must hold texts and token ids, not %s", name,
                          field_type(v));
    }
    if (!rc && l.n > UINT32_MAX / 2)
        rc = fail_set(f, 400, FAIL_CONTEXT, "'%s' has too many tokens", name);
    if (rc) {
        token_list_fini(&l);
        return -1;
    }
    *ret_ids = l.ids;
    *ret_n = (uint32_t)l.n;
    return 0;
}

/* A text, or an array of {"type": "text", "text": ...}. */
static bool is_content(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_object_get(json_array_get(v, i), "text")))
            return false;
    return json_is_string(v) || json_is_array(v);
}

int gen_params_read_prediction(struct gen_params *a, struct hearth *h, struct fail *f)
{
    json_t *prediction = NULL;
    if (field_object(a->root, "prediction", &prediction, f) < 0)
        return -1;
    if (!prediction)
        return 0;
    const json_t *content = json_object_get(prediction, "content");
    if (!is_content(content))
        return fail_set(f, 400, FAIL_INVALID,
                        "'prediction' must be {\"type\": \"content\", \"content\": a string or an "
                        "array of text parts}");
    struct token_list l = {0};
    int rc = json_is_string(content) ? add_text(h, &l, content, 0, f) : 0;
    for (size_t i = 0; i < json_array_size(content) && !rc; i++)
        rc = add_text(h, &l, json_object_get(json_array_get(content, i), "text"), 0, f);
    a->guess = l.ids;
    a->base.guess = l.ids;
    a->base.n_guess = l.n < PARAMS_GUESS_MAX ? (uint32_t)l.n : PARAMS_GUESS_MAX;
    return rc;
}

/* Is it an array of prompts, not one prompt of texts and ids? An array of texts alone is several.
 */
static bool is_several(const json_t *v)
{
    bool all_texts = json_array_size(v) > 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        if (json_is_array(item) || json_is_object(item))
            return true;
        all_texts = all_texts && json_is_string(item);
    }
    return all_texts;
}

/* n: tokens of the prompt; 0: not counted, but more than the context holds. */
static int too_long(struct fail *f, uint32_t n, uint32_t context)
{
    fail_set(f, 400, FAIL_CONTEXT,
             "the prompt has %s%u tokens, the context holds %u with the answer: shorten it, or "
             "start hearthd with a larger --context",
             n ? "" : "more than ", n ? n : context, context);
    f->n_prompt = n;
    f->n_context = context;
    return -1;
}

/* A text many times the size of the context is refused after its first part is tokenized: other
 * requests wait meanwhile. */
static int check_length(struct hearth *h, const json_t *v, struct fail *f)
{
    struct hearth_info info = {.size = sizeof(info)};
    size_t part = hearth_info(h, &info) < 0 ? SIZE_MAX / 4 : (size_t)info.context * PART_BYTES;
    if (json_string_length(v) <= 2 * part)
        return 0;
    int64_t n = hearth_tokenize(h, json_string_value(v), part, 0, NULL, 0);
    if (n <= info.context + PART_BYTES) /* few, long tokens so far: the whole text may fit */
        return 0;
    return too_long(f, 0, info.context);
}

static int add_prompt(struct gen_params *a, struct hearth *h, const json_t *v, struct fail *f)
{
    struct gen_prompt *p = &a->prompts[a->n_prompts];
    if (json_is_object(v)) { /* {"prompt_string": text}, where others put pictures, too */
        if (json_array_size(json_object_get(v, "multimodal_data")))
            return fail_set(f, 400, FAIL_NOT_SUPPORTED, "'multimodal_data' is not supported");
        v = json_object_get(v, "prompt_string");
    }
    if (!json_is_string(v) && !json_is_array(v))
        return fail_set(f, 400, FAIL_INVALID,
                        "'prompt' must be a string, an array of token ids, or a list of these");
    p->text = v;
    if (check_length(h, v, f) < 0 ||
        gen_params_tokens(h, v, "prompt", true, true, &p->ids, &p->n, f) < 0)
        return -1;
    a->n_prompts++;
    return 0;
}

int gen_params_read_prompt(struct gen_params *a, struct hearth *h, struct fail *f)
{
    const json_t *v = json_object_get(a->root, "prompt");
    bool several = is_several(v);
    size_t n = several ? json_array_size(v) : 1;
    int rc = 0;
    if (!v || json_is_null(v))
        return fail_set(f, 400, FAIL_INVALID, "'prompt' is required");
    if (n * a->n > PROMPTS_MAX)
        return fail_set(f, 400, FAIL_INVALID, "at most %d answers can be asked for at once",
                        PROMPTS_MAX);
    a->prompts = calloc(n, sizeof(*a->prompts));
    if (!a->prompts)
        return no_memory(f);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_prompt(a, h, several ? json_array_get(v, i) : v, f);
    a->is_list = n * a->n > 1 || (several && json_array_size(v) > 1);
    return rc;
}

struct gen_prompt *gen_params_open_prompt(struct gen_params *a, struct hearth *h,
                                          struct hearth_info *info, struct fail *f)
{
    int rc = hearth_info(h, info);
    a->prompts = rc ? NULL : calloc(1, sizeof(*a->prompts));
    if (a->prompts)
        a->prompts->ids = malloc(((size_t)info->context + 1) * sizeof(*a->prompts->ids));
    a->n_prompts = a->prompts != NULL;
    if (a->prompts && a->prompts->ids)
        return a->prompts;
    no_memory(f);
    return NULL;
}

int gen_params_check_prompts(const struct gen_params *a, uint32_t context, struct fail *f)
{
    for (uint32_t i = 0; i < a->n_prompts; i++) {
        uint32_t n = a->prompts[i].n;
        if (!n)
            return fail_set(f, 400, FAIL_INVALID, "the prompt is empty: give at least one token");
        if (n < context || (n == context && a->max_tokens == 0))
            continue;
        return too_long(f, n, context);
    }
    return 0;
}
