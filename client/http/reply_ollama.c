/* reply_ollama: answers in the form of Ollama's /api/chat and /api/generate: a stream is an object a
 * line. */
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

json_t *ollama_object(const struct exchange *x)
{
    struct timespec now;
    char at[OLLAMA_TIME_BYTES];
    clock_gettime(CLOCK_REALTIME, &now);
    return json_pack("{s:s, s:s}", "model", exchange_model(x), "created_at",
                     ollama_time(now.tv_sec, now.tv_nsec, at));
}

const char *ollama_time(time_t seconds, long ns, char *at)
{
    struct tm tm;
    size_t n = strftime(at, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &tm));
    snprintf(at + n, OLLAMA_TIME_BYTES - n, ".%06ldZ", ns / 1000);
    return at;
}

/* An object with these texts of an answer; NULL: none. All are taken over. */
static json_t *object(const struct exchange *x, json_t *content, json_t *thinking, json_t *calls)
{
    json_t *o = ollama_object(x);
    json_t *text = content ? content : json_string("");
    json_t *to = is_chat(x) ? json_pack("{s:s, s:o}", "role", "assistant", "content", text)
                            : json_pack("{s:o}", "response", text);
    if (thinking)
        json_object_set_new(to, "thinking", thinking);
    if (calls)
        json_object_set_new(to, "tool_calls", calls);
    if (is_chat(x)) {
        json_object_set_new(o, "message", to);
    } else {
        json_object_update(o, to);
        json_decref(to);
    }
    return o;
}

static json_t *call_object(const struct choice *c, const struct block *b)
{
    return json_pack("{s:o, s:{s:I, s:o, s:o}}", "id", block_call_id(c, b), "function", "index",
                     (json_int_t)b->call, "name", block_name(b), "arguments", block_arguments(b));
}

/* Adds how the answer ended. Times are in nanoseconds. */
static json_t *with_end(const struct choice *c, json_t *o)
{
    const struct finish *e = &c->finish;
    json_object_update_new(
        o, json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "done", 1, "done_reason",
                     e->reason == HEARTH_LENGTH ? "length" : "stop", "total_duration",
                     (json_int_t)(bell_now_ns() - c->submit_ns), "load_duration", (json_int_t)0,
                     "prompt_eval_count", (json_int_t)e->prompt, "prompt_eval_duration",
                     (json_int_t)e->prefill_ns, "eval_count", (json_int_t)e->output,
                     "eval_duration", (json_int_t)e->decode_ns));
    return o;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void put_more(const struct choice *c, json_t *o)
{
    json_object_set_new(o, "done", json_false());
    exchange_put(c->x, o);
}

static void block_begin(struct choice *c, const struct block *b)
{
    (void)c, (void)b;
}

static void block_more(struct choice *c, const struct block *b, const char *text, size_t bytes)
{
    if (b->kind == HEARTH_CHAT_CONTENT)
        put_more(c, object(c->x, json_of_text(text, bytes), NULL, NULL));
    else if (b->kind == HEARTH_CHAT_REASONING)
        put_more(c, object(c->x, NULL, json_of_text(text, bytes), NULL));
}

/* Calls come whole. */
static void block_end(struct choice *c, const struct block *b)
{
    if (b->kind == HEARTH_CHAT_CALL)
        put_more(c, object(c->x, NULL, NULL, json_pack("[o]", call_object(c, b))));
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
    exchange_put(x, with_end(c, object(x, NULL, NULL, NULL)));
}

static void ollama_whole(struct exchange *x)
{
    struct choice *c = &x->choices[0];
    json_t *calls = json_array();
    blocks_read(c, true, NULL);
    for (uint32_t i = 0; i < c->blocks.n; i++)
        if (c->blocks.items[i].kind == HEARTH_CHAT_CALL)
            json_array_append_new(calls, call_object(c, &c->blocks.items[i]));
    json_t *o = object(x, blocks_text(&c->blocks, HEARTH_CHAT_CONTENT),
                       blocks_have(&c->blocks, HEARTH_CHAT_REASONING)
                           ? blocks_text(&c->blocks, HEARTH_CHAT_REASONING)
                           : NULL,
                       c->blocks.n_calls ? json_incref(calls) : NULL);
    json_decref(calls);
    json_object_set_new(o, "hearth", reply_hearth(x, c));
    exchange_put(x, with_end(c, o));
}

static json_t *ollama_fail(struct exchange *x, struct fail *f)
{
    (void)x;
    return json_pack("{s:o}", "error", json_of_text(f->message, strlen(f->message)));
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
