/* bench_chat: what reading an answer costs for each of its tokens, in each family's form: a call with
 * an argument of 256 KiB, given in pieces of 4 bytes, the length of a token of code. The floor is a
 * copy of the pieces into a buffer. */
#include "client/base/buffer.h"
#include "client/events/reader.h"
#include "tests/bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum { ARGUMENT = 256 << 10, TOKEN = 4, BATCH = 64 };

static struct bench_samples samples;

/* A call as the form has it, but for harmony, with code as its only argument. */
static void write_call(struct buffer *t, const struct call_form *f, const char *code)
{
    if (f->body == CALL_HARMONY)
        buffer_text(t, "<|channel|>commentary to=functions.f<|message|>");
    buffer_text(t, f->open ? f->open : "");
    if (f->body == CALL_PYTHON)
        buffer_format(t, "[f(code=\"%s\")]", code);
    else if (f->body != CALL_JSON && f->body != CALL_HARMONY)
        buffer_format(t, "%s%sf%s", f->call_open, f->prefix ? f->prefix : "",
                      f->name_close ? f->name_close : "");
    if (f->body == CALL_JSON)
        buffer_format(t, "{\"name\": \"f\", \"arguments\": {\"code\": \"%s\"}}", code);
    else if (f->body == CALL_TAGS)
        buffer_format(t, "%scode%s%s%s%s%s", f->param_open, f->param_name_close,
                      f->typed ? "true\">" : "", f->value_open ? f->value_open : "", code,
                      f->param_close);
    else if (f->body == CALL_GEMMA)
        buffer_format(t, "code:<|\"|>%s<|\"|>}", code);
    else if (f->body != CALL_PYTHON)
        buffer_format(t, "{\"code\": \"%s\"}", code);
    buffer_text(t, f->body == CALL_HARMONY ? "<|call|>" : f->call_close ? f->call_close : "");
    buffer_text(t, f->close ? f->close : "");
}

/* Samples are of BATCH tokens each, and divided by that. */
static void measure(const struct call_form *f, const json_t *tools, const char *code)
{
    const struct reader_desc desc = {.form = f, .thoughts = &thought_forms[0], .tools = tools};
    struct reader *r = reader_open(&desc);
    struct reader_event e;
    struct buffer t = {0}, copy = {0};
    write_call(&t, f, code);
    samples.n = 0;
    for (size_t at = 0; at + BATCH * TOKEN <= t.bytes; at += BATCH * TOKEN) {
        uint64_t begin = bench_ticks();
        for (size_t i = 0; i < BATCH; i++) {
            (void)reader_feed(r, t.data + at + i * TOKEN, TOKEN);
            while (reader_next(r, &e))
                ;
        }
        bench_add(&samples, (bench_ticks() - begin) / BATCH);
    }
    uint64_t begin = bench_ticks();
    for (size_t at = 0; at + TOKEN <= t.bytes; at += TOKEN)
        buffer_add(&copy, t.data + at, TOKEN);
    double floor_ns = (double)(bench_ticks() - begin) * bench_tick_ns() * TOKEN / (double)t.bytes;
    bench_print_samples((struct bench_row){.bench = "chat",
                                           .what = f->name,
                                           .floor_us = floor_ns / 1000,
                                           .target_p50_us = 2,
                                           .note = "us a token of a long argument"},
                        &samples);
    reader_close(r);
    buffer_fini(&t);
    buffer_fini(&copy);
}

int main(void)
{
    static const char tool[] =
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"code\":{\"type\":\"string\"}}}}]";
    static const char line[] = "    if (a[i] < b) return f(x, 'y'); // and <then> so on\\n";
    json_t *tools = json_loads(tool, 0, NULL);
    struct buffer code = {0};
    (void)bench_pin(0);
    while (code.bytes < ARGUMENT)
        buffer_text(&code, line);
    if (!tools || code.failed || bench_samples_open(&samples, ARGUMENT / TOKEN) < 0)
        return 1;
    for (size_t i = 0; i < n_call_forms; i++)
        measure(&call_forms[i], tools, code.data);
    bench_samples_close(&samples);
    buffer_fini(&code);
    json_decref(tools);
    return 0;
}
