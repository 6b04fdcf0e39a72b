/* gen_params: parameters of a request; the prompt is in gen_params_prompt.c. */
#include "client/http/gen_params.h"

#include "client/http/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { BIAS_MAX = 1024, MODEL_BYTES = 1024, FIELDS_MAX = 256, SAMPLER_BYTES = 64 };

/* ---- sampling -------------------------------------------------------------------------------- */

static void set_defaults(struct gen_params *a)
{
    struct hearth_request *r = &a->base;
    bool native = a->dialect == GEN_NATIVE || a->dialect == GEN_INFILL;
    hearth_request_init(r, sizeof(*r));
    r->temperature = native ? 0.8f : 1.0f;
    r->top_k = native ? 40 : 0;
    r->top_p = native ? 0.95f : 1.0f;
    r->min_p = native ? 0.05f : 0.0f;
    a->n = 1;
    a->id_slot = -1;
    a->n_logprobs = -1;
    a->max_tokens = a->dialect == GEN_TEXT ? 16 : -1;
}

static int read_numbers(struct gen_params *a, struct fail *f)
{
    struct hearth_request *r = &a->base;
    const json_t *o = a->root;
    int64_t top_k = r->top_k, last_n = r->penalty_last_n;
    if (field_float(o, "temperature", -1e6, 100, &r->temperature, f) < 0 ||
        field_int(o, "top_k", -1, INT32_MAX, &top_k, f) < 0 ||
        field_float(o, "top_p", 0, 1, &r->top_p, f) < 0 ||
        field_float(o, "min_p", 0, 1, &r->min_p, f) < 0 ||
        field_float(o, "typical_p", 0, 1, &r->typical_p, f) < 0 ||
        field_float(o, "repeat_penalty", 0.01, 100, &r->repeat_penalty, f) < 0 ||
        field_float(o, "frequency_penalty", -100, 100, &r->frequency_penalty, f) < 0 ||
        field_float(o, "presence_penalty", -100, 100, &r->presence_penalty, f) < 0 ||
        field_int(o, "repeat_last_n", -1, INT32_MAX, &last_n, f) < 0)
        return -1;
    r->temperature = r->temperature > 0 ? r->temperature : 0; /* below 0: greedy, as at 0 */
    r->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    r->penalty_last_n = (int32_t)last_n;
    return 0;
}

static bool is_named(const struct gen_params *a, const char *name, const char *other)
{
    for (uint32_t i = 0; i < a->n_samplers; i++)
        if (strcmp(a->samplers[i], name) == 0 || strcmp(a->samplers[i], other) == 0)
            return true;
    return false;
}

/* A sampler that the list leaves out is off. "infill" keeps a few of the likeliest tokens: here the
 * first choice is greedy, further ones are sampled. */
static int read_samplers(struct gen_params *a, struct fail *f)
{
    json_t *list = NULL;
    int rc = field_array(a->root, "samplers", &list, f);
    if (rc <= 0)
        return rc;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || json_string_length(json_array_get(list, i)) > SAMPLER_BYTES)
            return fail_set(f, 400, FAIL_INVALID,
                            "'samplers' must be an array of names of at most %d bytes",
                            SAMPLER_BYTES);
        if (a->n_samplers < sizeof(a->samplers) / sizeof(a->samplers[0]))
            a->samplers[a->n_samplers++] = name;
    }
    a->has_samplers = true;
    struct hearth_request *r = &a->base;
    if (!is_named(a, "top_k", "top-k"))
        r->top_k = 0;
    if (!is_named(a, "top_p", "top-p"))
        r->top_p = 1;
    if (!is_named(a, "min_p", "min-p"))
        r->min_p = 0;
    if (!is_named(a, "typ_p", "typical_p"))
        r->typical_p = 1;
    if (!is_named(a, "penalties", "penalties")) {
        r->repeat_penalty = 1;
        r->frequency_penalty = r->presence_penalty = 0;
    }
    if (!is_named(a, "temperature", "temp"))
        r->temperature = 1;
    a->greedy_first = is_named(a, "infill", "infill");
    return 0;
}

/* Unsupported parameters that would change the answer are refused, not ignored. */
static int refuse_unsupported(const struct gen_params *a, struct fail *f)
{
    static const struct {
        const char *name;
        double neutral;
    } numbers[] = {{"mirostat", 0},        {"dynatemp_range", 0}, {"dry_multiplier", 0},
                   {"xtc_probability", 0}, {"min_keep", 0},       {"n_discard", 0}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const json_t *v = json_object_get(a->root, numbers[i].name);
        if (json_is_number(v) && json_number_value(v) != numbers[i].neutral)
            return fail_set(f, 400, FAIL_NOT_SUPPORTED, "'%s' is not supported: leave it out",
                            numbers[i].name);
    }
    const json_t *sigma = json_object_get(a->root, "top_n_sigma");
    if (json_is_number(sigma) && json_number_value(sigma) > 0)
        return fail_set(f, 400, FAIL_NOT_SUPPORTED, "'top_n_sigma' is not supported: leave it out");
    if (json_is_true(json_object_get(a->root, "post_sampling_probs")))
        return fail_set(f, 400, FAIL_NOT_SUPPORTED,
                        "'post_sampling_probs' is not supported: probabilities are those of the "
                        "model, before sampling");
    if (json_array_size(json_object_get(a->root, "lora")))
        return fail_set(f, 400, FAIL_NOT_SUPPORTED, "'lora' is not supported: leave it out");
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int add_stop(struct gen_params *a, const json_t *v, struct fail *f)
{
    if (!json_is_string(v))
        return fail_set(f, 400, FAIL_INVALID, "'stop' must be a string or an array of strings");
    size_t bytes = json_string_length(v);
    if (!bytes)
        return 0;
    if (bytes > 256 || strlen(json_string_value(v)) != bytes)
        return fail_set(f, 400, FAIL_INVALID, "a text of 'stop' must have at most 256 bytes, no 0");
    if (a->base.n_stops == GEN_STOPS_MAX)
        return fail_set(f, 400, FAIL_INVALID, "'stop' must have at most %d texts", GEN_STOPS_MAX);
    a->stops[a->base.n_stops++] = json_string_value(v);
    return 0;
}

static int read_stops(struct gen_params *a, struct fail *f)
{
    const json_t *v = json_object_get(a->root, "stop");
    a->base.stops = a->stops;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_array(v))
        return add_stop(a, v, f);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (add_stop(a, json_array_get(v, i), f) < 0)
            return -1;
    return 0;
}

static int set_bias(struct gen_params *a, uint32_t token, float value, struct fail *f)
{
    if (a->base.n_bias == BIAS_MAX)
        return fail_set(f, 400, FAIL_INVALID, "'logit_bias' must have at most %d tokens", BIAS_MAX);
    a->bias[a->base.n_bias++] = (struct hearth_bias){.token = token, .value = value};
    return 0;
}

static int add_bias(struct gen_params *a, int64_t token, const json_t *value, struct fail *f)
{
    float bias = json_is_false(value) ? -INFINITY : (float)json_number_value(value);
    if (!json_is_false(value) && (!json_is_number(value) || fabsf(bias) > 10000))
        return fail_set(f, 400, FAIL_INVALID,
                        "'logit_bias' of a token must be a number from -10000 to 10000, or false");
    if (token < 0 || token > UINT32_MAX)
        return fail_set(f, 400, FAIL_INVALID, "'logit_bias': %lld is not a token id",
                        (long long)token);
    return set_bias(a, (uint32_t)token, bias, f);
}

/* Tokens are named by id, in an object or in pairs. */
static int read_bias(struct gen_params *a, struct fail *f)
{
    json_t *v = json_object_get(a->root, "logit_bias"), *value;
    const char *key;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_array(v) && !json_is_object(v))
        return fail_set(f, 400, FAIL_INVALID,
                        "'logit_bias' must be an object or an array of pairs");
    json_object_foreach(v, key, value) {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (end == key || *end)
            return fail_set(f, 400, FAIL_INVALID,
                            "'logit_bias': '%.40s' is not a token id: /tokenize gives ids", key);
        if (add_bias(a, id, value, f) < 0)
            return -1;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *pair = json_array_get(v, i);
        if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)))
            return fail_set(f, 400, FAIL_INVALID,
                            "'logit_bias' must be pairs of token id and bias");
        if (add_bias(a, json_integer_value(json_array_get(pair, 0)), json_array_get(pair, 1), f) <
            0)
            return -1;
    }
    return 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* "batch" lets others go first; so does a number above 0, as vLLM has it. */
static int read_priority(struct gen_params *a, struct fail *f)
{
    const json_t *v = json_object_get(a->root, "priority");
    const char *word = json_string_value(v);
    if (!v || json_is_null(v))
        return 0;
    bool batch = json_is_integer(v) ? json_integer_value(v) > 0 : word && !strcmp(word, "batch");
    if (!json_is_integer(v) && !batch && !(word && strcmp(word, "interactive") == 0))
        return fail_set(f, 400, FAIL_INVALID,
                        "'priority' must be \"interactive\" or \"batch\", or a number: above 0 "
                        "others go first");
    a->base.priority = batch ? HEARTH_BATCH : HEARTH_INTERACTIVE;
    return 0;
}

/* How long: `n_predict` is llama-server's name, the others are OpenAI's. */
static int read_length(struct gen_params *a, struct fail *f)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (field_int(a->root, names[i], -2, INT32_MAX, &a->max_tokens, f) < 0)
            return -1;
    int64_t id_slot = -1;
    if (field_int(a->root, "id_slot", -1, INT32_MAX, &id_slot, f) < 0 ||
        field_int(a->root, "t_max_predict_ms", -1, INT32_MAX, &a->t_max_predict_ms, f) < 0 ||
        field_int(a->root, "n_indent", 0, INT32_MAX, &a->n_indent, f) < 0)
        return -1;
    a->id_slot = (int)id_slot;
    bool ignore_eos = false;
    if (field_bool(a->root, "ignore_eos", &ignore_eos, f) < 0)
        return -1;
    a->base.ignore_eos = ignore_eos;
    return 0;
}

static int read_seed(struct gen_params *a, struct fail *f)
{
    int64_t seed = -1;
    if (field_int(a->root, "seed", INT64_MIN, INT64_MAX, &seed, f) < 0)
        return -1;
    uint32_t chance = 0;
    if (seed == -1 && getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
        return fail_set(f, 500, FAIL_SERVER, "no random numbers: give a 'seed'");
    a->seed = seed == -1 ? chance : (uint64_t)seed;
    return 0;
}

static int read_choices(struct gen_params *a, struct fail *f)
{
    int64_t n = 1, best_of = 0;
    bool native = a->dialect == GEN_NATIVE || a->dialect == GEN_INFILL;
    if (field_int(a->root, native ? "n_cmpl" : "n", 1, GEN_CHOICES_MAX, &n, f) < 0 ||
        field_int(a->root, "best_of", 0, GEN_CHOICES_MAX, &best_of, f) < 0)
        return -1;
    if (best_of > n)
        return fail_set(f, 400, FAIL_NOT_SUPPORTED,
                        "'best_of' above 'n' is not supported: ask for 'n' and choose");
    a->n = (uint32_t)n;
    a->is_list = n > 1;
    return 0;
}

/* n_probs (0: none) of llama-server, logprobs of /v1/completions (0: of the token itself), logprobs
 * and top_logprobs of a chat. */
static int read_logprobs(struct gen_params *a, struct fail *f)
{
    int64_t n = -1;
    bool on = false;
    if (a->dialect == GEN_CHAT) {
        if (field_bool(a->root, "logprobs", &on, f) < 0 ||
            field_int(a->root, "top_logprobs", 0, GEN_LOGPROBS_MAX, &n, f) < 0)
            return -1;
        if (n > 0 && !on)
            return fail_set(f, 400, FAIL_INVALID, "'top_logprobs' needs 'logprobs': true");
        n = on ? (n > 0 ? n : 0) : -1;
    } else if (a->dialect == GEN_TEXT) {
        if (field_int(a->root, "logprobs", 0, GEN_LOGPROBS_MAX, &n, f) < 0)
            return -1;
    } else {
        if (field_int(a->root, "n_probs", 0, GEN_LOGPROBS_MAX, &n, f) < 0)
            return -1;
        n = n > 0 ? n : -1;
    }
    a->n_logprobs = (int32_t)n;
    a->base.logprobs = a->n_logprobs;
    return 0;
}

static int read_form(struct gen_params *a, struct fail *f)
{
    json_t *options = NULL;
    if (field_bool(a->root, "stream", &a->stream, f) < 0 ||
        field_bool(a->root, "echo", &a->echo, f) < 0 ||
        field_bool(a->root, "return_tokens", &a->return_tokens, f) < 0 ||
        field_bool(a->root, "timings_per_token", &a->timings_per_token, f) < 0 ||
        field_bool(a->root, "return_progress", &a->return_progress, f) < 0 ||
        field_array(a->root, "response_fields", &a->response_fields, f) < 0 ||
        field_object(a->root, "stream_options", &options, f) < 0 ||
        (options && field_bool(options, "include_usage", &a->include_usage, f) < 0))
        return -1;
    if (json_array_size(a->response_fields) > FIELDS_MAX) /* they are looked for in each answer */
        return fail_set(f, 400, FAIL_INVALID, "'response_fields' must have at most %d names",
                        FIELDS_MAX);
    if (a->echo && a->n_logprobs >= 0)
        return fail_set(f, 400, FAIL_NOT_SUPPORTED,
                        "'echo' with 'logprobs' is not supported: prompts have no probabilities");
    return 0;
}

int gen_params_read(struct gen_params *a, enum gen_dialect dialect, json_t *root, struct fail *f)
{
    *a = (struct gen_params){.dialect = dialect, .root = root};
    a->bias = malloc(BIAS_MAX * sizeof(*a->bias));
    if (!a->bias)
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
    set_defaults(a);
    a->base.bias = a->bias;
    if (read_numbers(a, f) < 0 || read_samplers(a, f) < 0 || refuse_unsupported(a, f) < 0 ||
        read_stops(a, f) < 0 || read_bias(a, f) < 0 || read_length(a, f) < 0 ||
        read_priority(a, f) < 0 || read_seed(a, f) < 0 || read_choices(a, f) < 0 ||
        read_logprobs(a, f) < 0 || gen_params_read_grammar(a, f) < 0)
        return -1;
    return read_form(a, f);
}

int gen_params_check_model(const json_t *root, const struct http_config *config, const char *model,
                           struct fail *f)
{
    const char *name = NULL;
    size_t bytes = 0;
    if (field_text(root, "model", &name, &bytes, f) < 0)
        return -1;
    if (bytes > MODEL_BYTES) /* each chunk of a stream says it again */
        return fail_set(f, 400, FAIL_INVALID, "'model' must have at most %d bytes, not %zu",
                        MODEL_BYTES, bytes);
    if (!config->strict_model || !name || !*name || http_config_names(config, model, name))
        return 0;
    return fail_model(f, name, model);
}

void gen_params_request(const struct gen_params *a, uint32_t index, struct hearth_request *ret)
{
    const struct gen_prompt *p = &a->prompts[index / a->n];
    uint32_t choice = index % a->n;
    *ret = a->base;
    ret->tokens = p->ids;
    ret->n_tokens = p->n;
    ret->seed = a->seed + choice;
    ret->max_tokens = a->max_tokens < 0 ? INT32_MAX : (uint32_t)a->max_tokens;
    if (a->greedy_first && !choice)
        ret->temperature = 0;
}

void gen_params_fini(struct gen_params *a)
{
    for (uint32_t i = 0; i < a->n_prompts; i++)
        free(a->prompts[i].ids);
    free(a->prompts);
    free(a->bias);
    free(a->grammar);
    free(a->guess);
    for (uint32_t i = 0; a->readers && i < a->n; i++)
        hearth_chat_close(a->readers[i]);
    free(a->readers);
    json_decref(a->root);
    *a = (struct gen_params){0};
}
