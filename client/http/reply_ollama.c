/* reply_ollama: answers in the form of Ollama's /api/chat and /api/generate: a stream is an object a
 * line. */
#include "client/http/json_put.h"
#include "client/http/ollama.h"
#include "client/http/reply.h"
#include "client/http/state.h"
#include "client/http/token_json.h"
#include "ipc/bell.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static bool is_chat(const struct exchange *x)
{
    return x->reply == &reply_ollama_chat;
}

void ollama_begin(struct exchange *x)
{
    struct timespec now;
    char at[OLLAMA_TIME_BYTES];
    clock_gettime(CLOCK_REALTIME, &now);
    json_put_format(&x->out, "{'model':%s,'created_at':%s", exchange_model(x),
                    ollama_time(now.tv_sec, now.tv_nsec, at));
}

const char *ollama_time(time_t seconds, long ns, char *at)
{
    struct tm tm;
    size_t n = strftime(at, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &tm));
    snprintf(at + n, OLLAMA_TIME_BYTES - n, ".%06ldZ", ns / 1000);
    return at;
}

/* An object up to its message, which has some content and goes on; and what comes after that. */
static void begin(struct exchange *x, const char *text, size_t bytes)
{
    ollama_begin(x);
    json_put_format(&x->out,
                    is_chat(x) ? ",'message':{'role':'assistant','content':%t" : ",'response':%t",
                    text, bytes);
}

static void end_message(struct exchange *x)
{
    buffer_text(&x->out, is_chat(x) ? "}" : "");
}

static void put_call(struct buffer *t, const struct choice *c, const struct block *b)
{
    json_put_format(t,
                    "{'id':%o,'function':{'index':%d,'name':%o,'arguments':", block_call_id(c, b),
                    (int64_t)b->call, block_name(b));
    block_put_arguments(t, b);
    buffer_text(t, "}}");
}

/* How the answer ended: the end of its last object. Times are in nanoseconds. */
static void put_end(const struct choice *c)
{
    const struct finish *e = &c->finish;
    json_put_format(&c->x->out,
                    ",'done':true,'done_reason':%s,'total_duration':%d,'load_duration':0,"
                    "'prompt_eval_count':%d,'prompt_eval_duration':%d,'eval_count':%d,"
                    "'eval_duration':%d",
                    e->reason == HEARTH_LENGTH ? "length" : "stop",
                    (int64_t)(bell_now_ns() - c->submit_ns), (int64_t)e->prompt,
                    (int64_t)e->prefill_ns, (int64_t)e->output, (int64_t)e->decode_ns);
    reply_put_hearth(&c->x->out, c->x, c);
    buffer_text(&c->x->out, "}");
    exchange_end(c->x);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void end_more(struct exchange *x)
{
    end_message(x);
    buffer_text(&x->out, ",\"done\":false}");
    exchange_end(x);
}

static void block_begin(struct choice *c, const struct block *b)
{
    (void)c, (void)b;
}

static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    if (b->kind == HEARTH_CHAT_CALL)
        return;
    bool is_content = b->kind == HEARTH_CHAT_CONTENT;
    begin(c->x, text, is_content ? bytes : 0);
    if (!is_content)
        json_put_format(&c->x->out, ",'thinking':%t", text, bytes);
    end_more(c->x);
}

/* What was cut off in a call is content: no client runs it. */
static void put_cut(struct choice *c, const struct block *b)
{
    struct buffer cut = {0};
    block_put_cut(&cut, b);
    begin(c->x, cut.data, cut.bytes);
    c->x->out.failed |= cut.failed;
    buffer_fini(&cut);
    end_more(c->x);
}

/* Calls come whole. */
static void block_end(struct choice *c, const struct block *b)
{
    if (b->kind != HEARTH_CHAT_CALL)
        return;
    if (b->is_cut) {
        put_cut(c, b);
        return;
    }
    begin(c->x, "", 0);
    buffer_text(&c->x->out, ",\"tool_calls\":[");
    put_call(&c->x->out, c, b);
    buffer_text(&c->x->out, "]");
    end_more(c->x);
}

static const struct block_writer writer = {block_begin, block_more, block_end};

static void ollama_chunk(struct exchange *x, struct choice *c)
{
    (void)x;
    blocks_read(c, false, &writer);
}

static void ollama_end(struct exchange *x, struct choice *c)
{
    blocks_read(c, true, &writer);
    begin(x, "", 0);
    end_message(x);
    put_end(c);
}

static void put_calls(struct buffer *t, const struct choice *c)
{
    const char *mark = ",\"tool_calls\":[";
    for (uint32_t i = 0; i < c->blocks.n; i++) {
        if (c->blocks.items[i].kind != HEARTH_CHAT_CALL || c->blocks.items[i].is_cut)
            continue;
        buffer_text(t, mark);
        put_call(t, c, &c->blocks.items[i]);
        mark = ",";
    }
    buffer_text(t, c->blocks.n_whole_calls ? "]" : "");
}

/* The content, and what was cut off in a call, which no client then runs. */
static void begin_whole(struct choice *c)
{
    struct buffer all = {0};
    for (uint32_t i = 0; i < c->blocks.n; i++) {
        const struct block *b = &c->blocks.items[i];
        if (b->kind == HEARTH_CHAT_CONTENT)
            buffer_add(&all, b->text.data, b->text.bytes);
        else if (b->kind == HEARTH_CHAT_CALL && b->is_cut)
            block_put_cut(&all, b);
    }
    begin(c->x, all.data, all.bytes);
    c->x->out.failed |= all.failed;
    buffer_fini(&all);
}

static void ollama_whole(struct exchange *x)
{
    struct choice *c = &x->choices[0];
    blocks_read(c, true, NULL);
    begin_whole(c);
    if (blocks_have(&c->blocks, HEARTH_CHAT_REASONING))
        json_put_format(&x->out, ",'thinking':%o", blocks_text(&c->blocks, HEARTH_CHAT_REASONING));
    put_calls(&x->out, c);
    end_message(x);
    put_end(c);
}

static void ollama_fail(struct exchange *x, struct fail *f)
{
    exchange_put(x, json_pack("{s:o}", "error", json_of_text(f->message, strlen(f->message))));
}

const struct reply reply_ollama_chat = {.id = "ollama-",
                                        .is_lines = true,
                                        .chunk = ollama_chunk,
                                        .end = ollama_end,
                                        .whole = ollama_whole,
                                        .fail = ollama_fail};
const struct reply reply_ollama_generate = {.id = "ollama-",
                                            .is_lines = true,
                                            .chunk = ollama_chunk,
                                            .end = ollama_end,
                                            .whole = ollama_whole,
                                            .fail = ollama_fail};
