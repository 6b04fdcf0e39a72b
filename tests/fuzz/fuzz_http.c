/* Fuzzes the bodies of the gateway's requests: JSON, what it asks for, its prompts and its
 * conversation, up to where a request would be sent to the daemon. The first byte chooses the
 * endpoint, and whether the rest is JSON as it stands or choices of known members and values. A
 * refusal is an HTTP error with one printable line; what is accepted must be in range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/http/routes_model.h"
#include "client/lib/handle.h"
#include "tests/rig/tiny_vocab.h"

enum { CONTEXT = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

/* A connection that has a vocabulary, and no daemon. */
static struct hearth *make_handle(void)
{
    static struct tiny tiny;
    static uint32_t not_forked = 1;
    static struct hearth h;
    static const char chat[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                               "<|im_end|>{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}"
                               "{% if add_generation_prompt %}<|im_start|>{% endif %}";
    char err[200];
    void *block;
    size_t bytes;
    tiny_init_bpe(&tiny, "gpt-2");
    tiny_merge(&tiny, "a", "b");
    tiny_add(&tiny, "<|im_start|>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&tiny, "<|im_end|>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&tiny, "<|fim_prefix|>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&tiny, "<|fim_suffix|>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&tiny, "<|fim_middle|>", VOCAB_TYPE_CONTROL, 0);
    tiny.desc.templates[VOCAB_TEMPLATE_CHAT] = (struct vocab_string){chat, sizeof(chat) - 1};
    must(vocab_build(&tiny.desc, &block, &bytes, err, sizeof(err)) == 0);
    must(vocab_open(block, bytes, &h.vocab, err, sizeof(err)) == 0);
    h.not_forked = &not_forked;
    h.socket_fd = h.bell_fd = h.notify_fd = h.poll_fd = h.timer_fd = -1;
    h.n_slots = 1;
    h.welcome.limits.context = CONTEXT;
    h.welcome.n_vocab = tiny.desc.n_tokens;
    strcpy(h.welcome.model, "m");
    return &h;
}

/* ---- inputs out of known members ------------------------------------------------------------- */

static const char *const keys[] = {"prompt",
                                   "messages",
                                   "input_prefix",
                                   "input_suffix",
                                   "input_extra",
                                   "suffix",
                                   "tools",
                                   "tool_choice",
                                   "chat_template_kwargs",
                                   "reasoning_effort",
                                   "add_generation_prompt",
                                   "model",
                                   "temperature",
                                   "top_k",
                                   "top_p",
                                   "min_p",
                                   "typical_p",
                                   "repeat_penalty",
                                   "repeat_last_n",
                                   "presence_penalty",
                                   "frequency_penalty",
                                   "logit_bias",
                                   "stop",
                                   "seed",
                                   "n",
                                   "best_of",
                                   "n_predict",
                                   "max_tokens",
                                   "max_completion_tokens",
                                   "samplers",
                                   "grammar",
                                   "json_schema",
                                   "response_format",
                                   "logprobs",
                                   "top_logprobs",
                                   "n_probs",
                                   "stream",
                                   "stream_options",
                                   "echo",
                                   "id_slot",
                                   "t_max_predict_ms",
                                   "n_indent",
                                   "response_fields",
                                   "mirostat",
                                   "return_tokens"};
static const char *const values[] = {
    "\"ab <|im_end|>\"",
    "[1,2,\"b\"]",
    "[\"a\",[3,4],{\"prompt_string\":\"x\"}]",
    "[{\"role\":\"user\",\"content\":\"a\"}]",
    "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]",
    "[{\"role\":\"assistant\",\"content\":null}]",
    "[{\"filename\":\"f\",\"text\":\"t\"}]",
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]",
    "0",
    "1",
    "-1",
    "0.5",
    "1e308",
    "-9223372036854775808",
    "4294967296",
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "\"\"",
    "\"auto\"",
    "\"none\"",
    "\"m\"",
    "[[1,-2.5],[2,false],[\"a\",1]]",
    "{\"1\":3,\"a\":-100}",
    "[\"top_k\",\"temperature\",\"min_p\"]",
    "\"root ::= \\\"a\\\"\"",
    "{\"type\":\"object\"}",
    "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"string\"}}}",
    "{\"type\":\"json_object\"}",
    "{\"include_usage\":true}",
    "[\"content\",\"generation_settings/seed\"]",
    "\"\\u0000\\ud800\"",
    "20",
    "[999999]",
};
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]), N_VALUES = sizeof(values) / sizeof(values[0]) };

static json_t *make_body(const uint8_t *data, size_t size)
{
    json_t *root = json_object();
    for (size_t i = 0; i + 2 <= size; i += 2) {
        const char *value = values[data[i + 1] % N_VALUES];
        json_t *made = json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        json_object_set_new(root, keys[data[i] % N_KEYS], made ? made : json_string("\xc3\xa9"));
    }
    return root;
}

/* ---- what is promised ------------------------------------------------------------------------ */

static void check_request(const struct gen_params *a, uint32_t index, uint32_t n_vocab)
{
    struct hearth_request r;
    gen_params_request(a, index, &r);
    must(r.temperature >= 0 && r.top_p >= 0 && r.top_p <= 1 && r.min_p >= 0 && r.min_p <= 1);
    must(r.typical_p >= 0 && r.typical_p <= 1 && isfinite(r.repeat_penalty));
    must(isfinite(r.presence_penalty) && isfinite(r.frequency_penalty));
    must(r.n_stops <= GEN_STOPS_MAX && r.logprobs >= -1 && r.logprobs <= GEN_LOGPROBS_MAX);
    for (uint32_t i = 0; i < r.n_stops; i++)
        must(r.stops[i][0] != 0);
    for (uint32_t i = 0; i < r.n_tokens; i++)
        must(r.tokens[i] < n_vocab);
    for (uint32_t i = 0; i < r.n_bias; i++)
        must(!isnan(r.bias[i].value));
}

static void check(const struct exchange *x, int rc, const struct fail *f, uint32_t n_vocab)
{
    if (rc != 0) {
        must(rc == -1 && f->status >= 400 && f->status < 600 && f->message[0] && f->type);
        json_decref(fail_json(f));
        return;
    }
    must(f->status == 0 && x->params.n <= GEN_CHOICES_MAX);
    struct fail refused = {0};
    if (gen_params_check_prompts(&x->params, CONTEXT, &refused) < 0)
        return;
    for (uint32_t i = 0; i < x->params.n_prompts * x->params.n; i++)
        check_request(&x->params, i, n_vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const reads[])(struct exchange *, struct hearth *, struct fail *) = {
        routes_read_completion, routes_read_infill, routes_read_v1, routes_read_chat,
        routes_read_template};
    static const struct http_config config;
    static struct server server = {.config = &config};
    static struct hearth *h;
    struct exchange x = {.server = &server};
    struct fail f = {0};
    if (size == 0)
        return 0;
    if (!h)
        h = make_handle();
    x.root = data[0] < 128
                 ? json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL, &(json_error_t){0})
                 : make_body(data + 1, size - 1);
    if (json_is_object(x.root))
        check(&x, reads[data[0] % 5](&x, h, &f), &f, h->welcome.n_vocab);
    json_decref(x.root);
    json_decref(x.asked);
    buffer_fini(&x.out);
    gen_params_fini(&x.params);
    return 0;
}
