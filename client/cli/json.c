/* json: see json.h. */
#include "client/cli/json.h"

#include "client/base/printable.h"
#include "client/base/utf8.h"

#include <math.h>
#include <string.h>

static void add_escape(struct buffer *b, uint32_t code)
{
    if (code > 0xffff) {
        buffer_format(b, "\\u%04x", 0xd800 + ((code - 0x10000) >> 10));
        code = 0xdc00 + (code & 0x3ff);
    }
    buffer_format(b, "\\u%04x", code);
}

void json_text(struct buffer *b, const char *text, size_t bytes)
{
    struct buffer quoted = {0};
    uint32_t code;
    quote_text(&quoted, text, bytes);
    for (size_t i = 0, n; i < quoted.bytes; i += n) {
        n = (size_t)utf8_step(quoted.data + i, quoted.bytes - i, &code);
        if (printable_is_shown(code))
            buffer_add(b, quoted.data + i, n);
        else
            add_escape(b, code);
    }
    b->failed |= quoted.failed;
    buffer_fini(&quoted);
}

/* Decimal digits without stdio: ids are most of what is printed. */
static void add_u32(struct buffer *b, uint32_t value)
{
    char digits[10];
    size_t n = 0;
    do
        digits[sizeof(digits) - ++n] = (char)('0' + value % 10);
    while (value /= 10);
    buffer_add(b, digits + sizeof(digits) - n, n);
}

void json_ids(struct buffer *b, const uint32_t *ids, size_t n)
{
    buffer_add(b, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i)
            buffer_add(b, ",", 1);
        add_u32(b, ids[i]);
    }
    buffer_add(b, "]", 1);
}

void json_number(struct buffer *b, double value)
{
    if (isfinite(value))
        buffer_format(b, "%.9g", value);
    else
        buffer_text(b, "null");
}

static void add_logprob(struct buffer *b, const struct hearth_logprob *l)
{
    buffer_text(b, "{\"id\":");
    add_u32(b, l->token);
    buffer_text(b, ",\"logprob\":");
    json_number(b, (double)l->logprob);
}

void json_tokens_event(struct buffer *b, const struct hearth_event *e)
{
    buffer_text(b, "{\"event\":\"tokens\",\"ids\":");
    json_ids(b, e->tokens, e->n_tokens);
    buffer_text(b, ",\"text\":");
    json_text(b, e->text, e->text_bytes);
    if (e->logprobs) {
        buffer_text(b, ",\"logprobs\":[");
        for (uint32_t i = 0; i < e->n_tokens; i++) {
            const struct hearth_token_logprobs *l = &e->logprobs[i];
            buffer_text(b, i ? "," : "");
            add_logprob(b, &l->picked);
            buffer_text(b, ",\"top\":[");
            for (uint32_t k = 0; k < l->n_top; k++) {
                buffer_text(b, k ? "," : "");
                add_logprob(b, &l->top[k]);
                buffer_text(b, "}");
            }
            buffer_text(b, "]}");
        }
        buffer_text(b, "]");
    }
    buffer_text(b, "}\n");
}

const char *json_reason(uint32_t reason)
{
    static const char *const names[] = {
        [HEARTH_EOS] = "eos",
        [HEARTH_STOP] = "stop",
        [HEARTH_LENGTH] = "length",
        [HEARTH_CANCELLED] = "cancelled",
        [HEARTH_SUPERSEDED] = "superseded",
        [HEARTH_ERROR] = "error",
    };
    return reason < sizeof(names) / sizeof(names[0]) && names[reason] ? names[reason] : "error";
}

void json_done_event(struct buffer *b, const struct hearth_result *r)
{
    buffer_format(b,
                  "{\"event\":\"done\",\"reason\":\"%s\",\"prompt_tokens\":%u,\"cached_tokens\":%u,"
                  "\"stored_tokens\":%u,",
                  json_reason(r->reason), r->prompt_tokens, r->cached_tokens, r->stored_tokens);
    buffer_format(b, "\"prefix_break\":%u,\"output_tokens\":%u,\"ids\":", r->prefix_break,
                  r->output_tokens);
    json_ids(b, r->ids, r->n_ids);
    buffer_format(b, ",\"passes\":%u,\"drafted\":%u,\"accepted_drafts\":%u,\"rollbacks\":%u,",
                  r->passes, r->drafted, r->accepted_drafts, r->rollbacks);
    buffer_format(b, "\"prefill_ms\":%.3f,\"decode_ms\":%.3f,\"numerics\":",
                  (double)r->prefill_ns * 1e-6, (double)r->decode_ns * 1e-6);
    json_text(b, r->numerics, strlen(r->numerics));
    buffer_text(b, ",\"receipt\":");
    json_text(b, r->receipt, strlen(r->receipt));
    buffer_text(b, ",\"model\":");
    json_text(b, r->model, strlen(r->model));
    if (r->error) {
        buffer_text(b, ",\"error\":");
        json_text(b, r->error_text, strlen(r->error_text));
    }
    buffer_text(b, "}\n");
}
