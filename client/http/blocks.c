/* blocks: see blocks.h. */
#include "client/http/blocks.h"

#include "client/events/json_scan.h"
#include "client/http/exchange.h"
#include "client/http/json_put.h"
#include "client/http/token_json.h"

#include <stdlib.h>
#include <string.h>

static void begin(struct choice *c, uint32_t kind, const struct block_writer *w)
{
    struct blocks *l = &c->blocks;
    struct block *items = realloc(l->items, (l->n + 1) * sizeof(*items));
    if (!items) {
        c->text.failed = true;
        return;
    }
    l->items = items;
    items[l->n] = (struct block){.kind = kind, .index = l->n, .call = l->n_calls};
    l->n++;
    l->n_calls += kind == HEARTH_CHAT_CALL;
    l->is_open = true;
    if (w && kind != HEARTH_CHAT_CALL)
        w->begin(c, &items[l->n - 1]);
}

/* Is it an object of JSON, and nothing else? What numbers are in it does not matter. */
static bool is_object(const struct block *b)
{
    const char *at = b->text.data ? b->text.data : "", *end = at + b->text.bytes;
    struct json_scan scan = {0};
    enum json_scan_result got = JSON_GOES_ON;
    while (at < end && strchr(" \t\r\n", *at) && *at)
        at++;
    if (at == end || *at != '{')
        return false;
    for (; at < end && got == JSON_GOES_ON; at++)
        got = json_scan_byte(&scan, *at);
    while (at < end && strchr(" \t\r\n", *at) && *at)
        at++;
    return got == JSON_ENDS && at == end;
}

/* A call whose arguments are not an object was cut off in them. */
static void end(struct choice *c, const struct block_writer *w)
{
    struct blocks *l = &c->blocks;
    if (!l->is_open)
        return;
    struct block *b = &l->items[l->n - 1];
    l->is_open = false;
    if (b->kind == HEARTH_CHAT_CALL) {
        b->is_cut = !is_object(b);
        l->n_whole_calls += !b->is_cut;
    }
    if (w && w->end)
        w->end(c, b);
}

/* The answer is over: so is the open block. */
static void finish(struct choice *c, const struct block_writer *w)
{
    struct blocks *l = &c->blocks;
    if (l->is_open)
        l->items[l->n - 1].is_cut = c->finish.reason == HEARTH_LENGTH;
    end(c, w);
}

/* More text of the open block. */
static void more(struct choice *c, const char *text, size_t bytes, const struct block_writer *w)
{
    struct block *b = &c->blocks.items[c->blocks.n - 1];
    if (!bytes)
        return;
    buffer_add(&b->text, text, bytes);
    c->text.failed |= b->text.failed;
    if (w)
        w->more(c, b, text, bytes);
}

static void take(struct choice *c, const struct hearth_chat_event *e, const struct block_writer *w)
{
    struct blocks *l = &c->blocks;
    bool goes_on = l->is_open && l->items[l->n - 1].kind == e->kind;
    switch (e->kind) {
    case HEARTH_CHAT_CALL:
        end(c, w);
        begin(c, e->kind, w);
        if (!l->is_open)
            return;
        buffer_add(&l->items[l->n - 1].name, e->text, e->text_bytes);
        c->text.failed |= l->items[l->n - 1].name.failed;
        if (w)
            w->begin(c, &l->items[l->n - 1]);
        break;
    case HEARTH_CHAT_ARGUMENTS:
        if (l->is_open)
            more(c, e->text, e->text_bytes, w);
        break;
    case HEARTH_CHAT_CALL_END:
        end(c, w);
        break;
    default:
        if (!goes_on) {
            end(c, w);
            begin(c, e->kind, w);
        }
        if (l->is_open)
            more(c, e->text, e->text_bytes, w);
    }
}

static struct hearth_chat_reader *reader_of(const struct choice *c)
{
    return c->x->params.readers ? c->x->params.readers[c->index] : NULL;
}

void blocks_read(struct choice *c, bool is_end, const struct block_writer *writer)
{
    struct hearth_chat_event e = {.size = sizeof(e), .kind = HEARTH_CHAT_CONTENT};
    struct hearth_chat_reader *reader = reader_of(c);
    if (!reader) { /* no conversation: all of it is content */
        e.text = c->text.data;
        e.text_bytes = c->text.bytes;
        if (e.text_bytes)
            take(c, &e, writer);
        if (is_end)
            finish(c, writer);
        return;
    }
    c->text.failed |=
        hearth_chat_feed(reader, c->text.data ? c->text.data : "", c->text.bytes, is_end) != 0;
    while (!c->text.failed && hearth_chat_next(reader, &e))
        take(c, &e, writer);
    if (is_end)
        finish(c, writer);
}

void blocks_fini(struct blocks *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        buffer_fini(&l->items[i].name);
        buffer_fini(&l->items[i].text);
    }
    free(l->items);
    *l = (struct blocks){0};
}

static json_t *text_of(const struct buffer *t)
{
    return t->failed ? NULL : json_of_text(t->data ? t->data : "", t->bytes);
}

json_t *blocks_text(const struct blocks *l, uint32_t kind)
{
    struct buffer all = {0};
    for (uint32_t i = 0; i < l->n; i++)
        if (l->items[i].kind == kind)
            buffer_add(&all, l->items[i].text.data, l->items[i].text.bytes);
    json_t *text = text_of(&all);
    buffer_fini(&all);
    return text;
}

bool blocks_have(const struct blocks *l, uint32_t kind)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->items[i].kind == kind)
            return true;
    return false;
}

json_t *block_text(const struct block *b)
{
    return text_of(&b->text);
}

json_t *block_name(const struct block *b)
{
    return text_of(&b->name);
}

/* The digits of its numbers stay as they are. A line's end in it would end an event. */
void block_put_arguments(struct buffer *t, const struct block *b)
{
    bool in_string = false;
    if (!is_object(b)) {
        buffer_text(t, "{}");
        return;
    }
    for (size_t i = 0, n; i < b->text.bytes; i += n) {
        const char *at = b->text.data + i;
        n = in_string && *at == '\\' ? 2 : 1;
        in_string ^= *at == '"';
        buffer_add(t, at, *at == '\n' || *at == '\r' ? 0 : n);
    }
}

void block_put_cut(struct buffer *t, const struct block *b)
{
    json_put_format(t, "{'name':%o,'arguments':", block_name(b));
    buffer_add(t, b->text.data, b->text.bytes);
}

enum { CALL_ID_BYTES = 9 };

/* Nine letters and digits, which every template takes; no two answers of a gateway have the same. */
json_t *block_call_id(const struct choice *c, const struct block *b)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t z = 0x9e3779b97f4a7c15u * ((uint64_t)c->index << 32 | (b->call + 1));
    char id[CALL_ID_BYTES];
    for (const char *at = c->x->id; *at; at++)
        z = (z ^ (unsigned char)*at) * 0x100000001b3u;
    for (size_t i = 0; i < CALL_ID_BYTES; i++, z /= 62)
        id[i] = digits[z % 62];
    return json_stringn(id, CALL_ID_BYTES);
}
