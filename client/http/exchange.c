/* exchange: choices at the daemon become an answer. See exchange.h. */
#include "client/http/exchange.h"

#include "client/http/json_put.h"
#include "client/http/state.h"
#include "client/http/stop_word.h"
#include "ipc/bell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Resumes its connection: there is something new to send. */
static void wake(struct exchange *x)
{
    if (!x->is_suspended)
        return;
    x->is_suspended = false;
    x->server->wants_run = true;
    MHD_resume_connection(x->mhd);
}

void exchange_drop_body(struct exchange *x)
{
    x->server->body_bytes -= x->body_counted;
    x->body_counted = 0;
    buffer_fini(&x->body);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void put_json(struct buffer *t, json_t *json)
{
    json_put(t, json);
    json_decref(json);
}

void exchange_begin(struct exchange *x, const char *type)
{
    if (!x->params.stream || x->reply->is_lines)
        return;
    if (x->reply->names_events && type) {
        buffer_text(&x->out, "event: ");
        buffer_text(&x->out, type);
        buffer_text(&x->out, "\n");
    }
    buffer_text(&x->out, "data: ");
}

void exchange_end(struct exchange *x)
{
    if (x->params.stream)
        buffer_text(&x->out, x->reply->is_lines ? "\n" : "\n\n");
}

void exchange_put(struct exchange *x, json_t *json)
{
    exchange_begin(x, json_string_value(json_object_get(json, "type")));
    put_json(&x->out, json);
    exchange_end(x);
}

const char *exchange_model(const struct exchange *x)
{
    const json_t *read = x->params.root ? x->params.root : x->root;
    const char *asked = json_string_value(json_object_get(x->asked ? x->asked : read, "model"));
    if (asked && *asked)
        return asked;
    return x->served ? served_name(x->served) : "";
}

void exchange_answer(struct exchange *x, json_t *json)
{
    exchange_put_whole(x, json);
    exchange_answer_whole(x);
}

void exchange_put_whole(struct exchange *x, json_t *json)
{
    put_json(&x->out, json);
}

void exchange_answer_whole(struct exchange *x)
{
    x->status = 200;
    x->content_type = "application/json; charset=utf-8";
    if (x->out.failed) { /* an empty answer would look like success */
        struct fail f;
        fail_set(&f, 500, FAIL_SERVER, "out of memory: try again with a smaller request");
        x->status = f.status;
        x->out.bytes = 0;
        x->out.failed = false;
        put_json(&x->out, fail_json(&f));
    }
    x->is_ready = true;
    wake(x);
}

/* Begins with the last choice: else a queued one would get the slot of one that was just
 * cancelled. */
static void cancel_all(struct exchange *x)
{
    for (uint32_t i = x->n_choices; i; i--)
        pool_cancel(&x->served->pool, &x->choices[i - 1].job);
}

void exchange_name(struct exchange *x)
{
    struct server *s = x->server;
    if (x->id[0])
        return;
    uint64_t id = s->id_base + ++s->last_id * 0x9e3779b97f4a7c15u; /* far from its neighbours */
    x->created = (uint64_t)time(NULL);
    snprintf(x->id, sizeof(x->id), "%s%016" PRIx64, x->reply->id, id);
    if (x->reply->ahead && !x->ahead.bytes)
        x->reply->ahead(x);
}

void exchange_put_ahead(struct exchange *x)
{
    buffer_add(&x->out, x->ahead.data, x->ahead.bytes);
    x->out.failed |= x->ahead.failed;
}

static void start_stream(struct exchange *x)
{
    if (x->is_streaming)
        return;
    x->status = 200;
    x->content_type = x->reply->is_lines ? "application/x-ndjson" : "text/event-stream";
    x->is_streaming = true;
}

void exchange_comment(struct exchange *x, const char *text)
{
    if (x->reply->is_lines)
        return;
    start_stream(x);
    x->params.stream = true; /* a failure is one of the stream */
    buffer_format(&x->out, ": %s\n\n", text);
    wake(x);
}

bool exchange_fails_in_stream(const struct exchange *x, const struct fail *f)
{
    return x->reply && x->reply->overflow_in_stream &&
           (x->is_streaming || (x->params.stream && f->n_context));
}

void exchange_fail(struct exchange *x, const struct fail *f)
{
    struct fail mine = *f;
    cancel_all(x);
    if (exchange_fails_in_stream(x, f)) {
        exchange_name(x);
        start_stream(x);
    }
    x->params.stream = x->is_streaming; /* else it is one answer now */
    if (!x->is_streaming)
        x->out.bytes = 0;
    if (x->reply && x->reply->fail)
        x->reply->fail(x, &mine);
    else
        exchange_put(x, fail_json(&mine));
    if (x->is_streaming) {
        x->is_finished = true;
        wake(x);
        return;
    }
    exchange_answer_whole(x);
    x->status = mine.status;
}

void exchange_hang_up(struct exchange *x)
{
    if (x->is_gone)
        return;
    x->is_gone = true;
    cancel_all(x);
    if (x->is_started && !x->is_finished && !x->is_ready)
        x->server->count.dropped++;
    if (x->launch)
        launcher_left(x->server);
    if (x->transfer)
        transfer_leave(&x->server->transfers, x->transfer);
    wake(x);
}

static void fail_memory(struct fail *f)
{
    fail_set(f, 500, FAIL_SERVER, "out of memory: try again with fewer or shorter requests");
}

static void out_of_memory(struct exchange *x)
{
    struct fail f;
    fail_memory(&f);
    exchange_fail(x, &f);
}

/* ---- the answer of an upstream --------------------------------------------------------------- */

void exchange_pass_begin(struct exchange *x, const char *type)
{
    x->status = 200;
    x->content_type = type;
    x->is_streaming = true;
    x->params.stream = true; /* a failure is one of the stream */
}

void exchange_pass(struct exchange *x, const char *bytes, size_t n)
{
    buffer_add(&x->out, bytes, n);
    if (x->is_streaming)
        wake(x);
}

void exchange_pass_fail(struct exchange *x, const struct fail *f)
{
    x->out.failed = false;
    if (x->is_streaming)
        buffer_text(&x->out, x->reply->is_lines ? "\n" : "\n\n");
    exchange_fail(x, f);
}

void exchange_pass_end(struct exchange *x)
{
    if (x->out.failed) { /* a part is missing */
        struct fail f;
        fail_memory(&f);
        exchange_pass_fail(x, &f);
        return;
    }
    x->is_finished = true;
    wake(x);
}

void exchange_pass_whole(struct exchange *x, unsigned status, const char *type)
{
    exchange_answer_whole(x);
    if (x->status != 200) /* memory ran out */
        return;
    x->status = status;
    x->content_type = type;
}

/* ---- a choice -------------------------------------------------------------------------------- */

static void take_result(struct choice *c, const struct hearth_result *r)
{
    struct finish *end = &c->finish;
    end->reason = c->is_cut ? HEARTH_LENGTH : r->reason;
    end->prompt = r->prompt_tokens;
    end->cached = r->cached_tokens;
    end->stored = r->stored_tokens;
    end->prefix_break = r->prefix_break;
    end->output = r->output_tokens;
    end->drafted = r->drafted;
    end->accepted = r->accepted_drafts;
    end->prefill_ns = r->prefill_ns;
    end->decode_ns = r->decode_ns;
    snprintf(end->receipt, sizeof(end->receipt), "%s", c->is_cut ? "" : r->receipt);
    struct hearth *h = pool_any(&c->x->served->pool);
    const char *stop = r->reason == HEARTH_STOP && h ? stop_word_find(h, &c->job.request, r) : NULL;
    snprintf(end->stopping_word, sizeof(end->stopping_word), "%s", stop ? stop : "");
    c->x->server->count.prompt_tokens += end->prompt - end->cached;
    c->x->server->count.cached_tokens += end->cached;
    c->x->server->count.stored_tokens += end->stored;
    c->x->server->count.output_tokens += end->output;
    c->x->server->count.prefill_ns += end->prefill_ns;
    c->x->server->count.decode_ns += end->decode_ns;
}

static void add_prob(struct choice *c, size_t list, const json_t *value)
{
    struct buffer *t = &c->probs[list];
    const size_t before = t->bytes;
    buffer_text(t, before ? "," : "");
    json_put(t, value);
    c->x->probs_bytes += t->bytes - before;
    c->text.failed |= t->failed;
    t->failed = false;
}

void exchange_add_probs(struct choice *c, const struct hearth_token_logprobs *l)
{
    json_t *one = c->x->reply->probs(c, l);
    if (!json_is_array(one))
        add_prob(c, 0, one);
    for (size_t i = 0; i < json_array_size(one) && i < CHOICE_LISTS; i++)
        add_prob(c, i, json_array_get(one, i));
    json_decref(one);
    if (c->x->probs_bytes > PROBS_BYTES && !c->x->params.stream) {
        struct fail f;
        fail_set(&f, 400, FAIL_INVALID,
                 "the log-probabilities of the answer have more than %d MiB: ask for a stream, or "
                 "for fewer answers, tokens or alternatives",
                 PROBS_BYTES >> 20);
        exchange_fail(c->x, &f);
    }
}

void exchange_put_list(struct buffer *t, const struct buffer *list)
{
    buffer_text(t, "[");
    buffer_add(t, list->data, list->bytes);
    buffer_text(t, "]");
}

/* After the first line, a limit of time ends the answer: t_max_predict_ms. */
static bool is_late(const struct choice *c)
{
    int64_t ms = c->x->params.t_max_predict_ms;
    return ms > 0 && c->has_newline && bell_now_ns() - c->first_ns > (uint64_t)ms * 1000000u;
}

static void on_tokens(struct choice *c, const struct hearth_event *e)
{
    struct exchange *x = c->x;
    if (c->is_cut)
        return;
    if (!c->first_ns)
        c->first_ns = bell_now_ns();
    c->n_tokens += e->n_tokens;
    c->text.failed |= token_list_append(&c->ids, e->tokens, e->n_tokens) != 0;
    for (uint32_t i = 0; e->logprobs && x->reply->probs && i < e->n_tokens; i++) {
        exchange_add_probs(c, &e->logprobs[i]);
        if (x->is_ready)
            return; /* it failed, and the event is gone with the job */
    }
    c->is_cut = indent_filter(&c->indent, e->text, e->text_bytes, &c->text);
    c->has_newline = c->has_newline || memchr(e->text, '\n', e->text_bytes);
    c->is_cut = c->is_cut || is_late(c);
    if (c->is_cut)
        pool_stop(&x->served->pool, &c->job);
}

/* What a chunk emitted is not emitted again. */
static void clear_pending(struct choice *c)
{
    c->text.bytes = 0;
    c->ids.n = 0;
    for (size_t i = 0; i < CHOICE_LISTS; i++)
        c->probs[i].bytes = 0;
}

static void on_done(struct choice *c, const struct hearth_result *r)
{
    struct exchange *x = c->x;
    struct fail f;
    if (r->reason == HEARTH_ERROR) {
        fail_library(&f, r->error, r->error_text);
        if (r->error == -E2BIG && c->job.request.grammar_bytes)
            f.type = FAIL_INVALID; /* the grammar costs too much, not the prompt */
        exchange_fail(x, &f);
        return;
    }
    if (!c->is_cut)
        indent_finish(&c->indent, &c->text);
    take_result(c, r);
    c->is_done = true;
    x->n_done++;
    if (x->params.stream) {
        start_stream(x);
        x->reply->end(x, c);
        clear_pending(c);
        if (x->n_done == x->n_choices && x->reply->close)
            x->reply->close(x);
    } else if (x->n_done == x->n_choices) {
        x->status = 200;
        x->content_type = "application/json; charset=utf-8";
        x->reply->whole(x);
        x->is_ready = true;
    }
    x->is_finished = x->n_done == x->n_choices;
}

static void pause_all(struct exchange *x)
{
    for (uint32_t i = 0; i < x->n_choices; i++)
        pool_pause(&x->served->pool, &x->choices[i].job);
}

size_t exchange_left(const struct exchange *x)
{
    return x->out.bytes - x->n_taken;
}

/* Some of a stream went out: what waited for that goes on. */
static void go_on(struct exchange *x)
{
    if (exchange_left(x) > STREAM_LOW_BYTES)
        return;
    if (x->transfer)
        transfer_taken(&x->server->transfers, x->transfer);
    for (uint32_t i = 0; i < x->n_choices; i++)
        if (x->choices[i].job.paused)
            pool_unpause(&x->served->pool, &x->choices[i].job);
}

/* The rest moves to the beginning only once at least as much has gone out, so that a long text is
 * not moved again for each part that is taken. */
size_t exchange_take(struct exchange *x, char *to, size_t max)
{
    const size_t left = exchange_left(x), n = left < max ? left : max;
    if (!n)
        return 0;
    memcpy(to, x->out.data + x->n_taken, n);
    x->n_taken += n;
    if (x->n_taken >= exchange_left(x)) {
        buffer_drop(&x->out, x->n_taken);
        x->n_taken = 0;
    }
    go_on(x);
    return n;
}

static void on_event(struct job *job, const struct hearth_event *e)
{
    struct choice *c = (struct choice *)job; /* its first member */
    struct exchange *x = c->x;
    if (e->kind == HEARTH_DONE) {
        on_done(c, e->result);
    } else if (e->kind == HEARTH_TOKENS) {
        on_tokens(c, e);
        if (x->params.stream && (c->text.bytes || c->ids.n)) {
            start_stream(x);
            x->reply->chunk(x, c);
            clear_pending(c);
        }
    } else if (x->params.stream && x->reply->progress) {
        x->reply->progress(x, c, e);
        if (x->out.bytes)
            start_stream(x);
    }
    if ((c->text.failed || c->indent.held.failed || x->out.failed) && !x->is_gone) {
        x->out.failed = c->text.failed = c->indent.held.failed = false;
        out_of_memory(x);
    } else if (x->is_streaming && exchange_left(x) > STREAM_HIGH_BYTES && !x->is_finished) {
        pause_all(x);
    }
    if (x->is_streaming || x->is_ready)
        wake(x);
}

static void on_running(struct job *job)
{
    exchange_name(((struct choice *)job)->x);
}

static void on_lost(struct job *job, const struct fail *why)
{
    struct choice *c = (struct choice *)job;
    exchange_fail(c->x, why);
}

/* ---- the whole ------------------------------------------------------------------------------- */

void exchange_run(struct exchange *x)
{
    struct fail f = {0};
    uint32_t n = x->params.n_prompts * x->params.n;
    x->choices = calloc(n, sizeof(*x->choices));
    if (!x->choices) {
        out_of_memory(x);
        return;
    }
    x->n_choices = n;
    for (uint32_t i = 0; i < n; i++) {
        struct choice *c = &x->choices[i];
        c->x = x;
        c->index = i;
        c->indent.least = (size_t)x->params.n_indent;
        c->job.id_slot = x->params.id_slot < 0 ? -1 : x->params.id_slot;
        c->job.tells_break = x->params.has_tools && i == 0;
        c->job.is_alone = n == 1;
        c->job.nth = i;
        c->job.on_running = on_running;
        c->job.on_event = on_event;
        c->job.on_lost = on_lost;
        c->job.at = JOB_NOWHERE;
        c->submit_ns = bell_now_ns();
        gen_params_request(&x->params, i, &c->job.request);
    }
    for (uint32_t i = 0; i < n && !f.status && !x->is_ready && !x->is_finished; i++)
        if (pool_submit(&x->served->pool, &x->choices[i].job, &f) < 0)
            exchange_fail(x, &f);
}

void exchange_close(struct exchange *x)
{
    if (x->worker && !worker_take_back(x->worker, &x->task)) {
        x->is_orphan = true;
        return;
    }
    cancel_all(x);
    if (x->transfer)
        transfer_leave(&x->server->transfers, x->transfer);
    x->server->transfers.bytes -= x->kept_bytes;
    if (x->served) {
        x->served->n_exchanges--;
        launcher_released(x);
    }
    for (uint32_t i = 0; i < x->n_choices; i++) {
        struct choice *c = &x->choices[i];
        buffer_fini(&c->text);
        indent_fini(&c->indent);
        blocks_fini(&c->blocks);
        token_list_fini(&c->ids);
        for (size_t k = 0; k < CHOICE_LISTS; k++)
            buffer_fini(&c->probs[k]);
    }
    free(x->choices);
    if (x->params.root)
        gen_params_fini(&x->params);
    json_decref(x->root);
    json_decref(x->asked);
    json_decref(x->found);
    atomic_fetch_sub(&x->server->value_bytes, x->value_bytes);
    free(x->wanted);
    buffer_fini(&x->body);
    buffer_fini(&x->out);
    buffer_fini(&x->ahead);
    free(x);
}
