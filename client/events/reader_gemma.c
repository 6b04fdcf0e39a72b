/* reader_gemma: arguments as Gemma 4 writes them: {city:<|"|>Paris<|"|>,days:3} without its first
 * brace. They are read when all of them have come. */
#include "client/base/json_shortest.h"
#include "client/events/reader_impl.h"

#include <stdlib.h>

#define QUOTE "<|\"|>"

enum { MOST_DEPTH = 64 };

static json_t *read_value(struct cursor *r, int depth);

static json_t *read_quoted(struct cursor *r)
{
    const char *end = memmem(r->at, (size_t)(r->end - r->at), QUOTE, strlen(QUOTE));
    if (!end)
        return NULL;
    json_t *s = json_stringn(r->at, (size_t)(end - r->at));
    r->at = end + strlen(QUOTE);
    return s;
}

/* Reads a string, or the rest of one after <|"|>; NULL: none stands here. Some are quoted as in JSON. */
static json_t *read_string(struct cursor *r)
{
    struct json_scan scan = {0};
    enum json_scan_result result = JSON_GOES_ON;
    const char *from = r->at;
    if (cursor_take(r, QUOTE))
        return read_quoted(r);
    if (r->at == r->end || *r->at != '"')
        return NULL;
    while (r->at < r->end && result == JSON_GOES_ON)
        result = json_scan_byte(&scan, *r->at++);
    json_t *s = json_loadb(from, (size_t)(r->at - from), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    r->at = s ? r->at : from;
    return s;
}

/* Reads members up to and with the closing brace, after the opening one. */
static json_t *read_object(struct cursor *r, int depth)
{
    json_t *o = json_object();
    for (bool first = true; o; first = false) {
        cursor_skip_space(r);
        if (cursor_take(r, "}"))
            return o;
        if (!first && !cursor_take(r, ","))
            break;
        cursor_skip_space(r);
        json_t *key = read_string(r);
        if (!key && r->at < r->end && *r->at != '"') {
            const char *end = memchr(r->at, ':', (size_t)(r->end - r->at));
            key = end && end > r->at ? json_stringn(r->at, (size_t)(end - r->at)) : NULL;
            r->at = end ? end : r->at;
        }
        cursor_skip_space(r);
        json_t *value = key && cursor_take(r, ":") ? read_value(r, depth + 1) : NULL;
        int rc =
            value ? json_object_setn_new(o, json_string_value(key), json_string_length(key), value)
                  : -1;
        json_decref(key);
        if (rc)
            break;
    }
    json_decref(o);
    return NULL;
}

static json_t *read_list(struct cursor *r, int depth)
{
    json_t *list = json_array();
    for (bool first = true; list; first = false) {
        cursor_skip_space(r);
        if (cursor_take(r, "]"))
            return list;
        if (!first && !cursor_take(r, ","))
            break;
        json_t *value = read_value(r, depth + 1);
        if (!value || json_array_append_new(list, value))
            break;
    }
    json_decref(list);
    return NULL;
}

static json_t *read_value(struct cursor *r, int depth)
{
    if (depth > MOST_DEPTH)
        return NULL;
    cursor_skip_space(r);
    json_t *string = read_string(r);
    if (string)
        return string;
    if (cursor_take(r, "{"))
        return read_object(r, depth);
    if (cursor_take(r, "["))
        return read_list(r, depth);
    if (cursor_take(r, "None")) /* which is what the template writes for null */
        return json_null();
    const char *from = r->at;
    while (r->at < r->end && !strchr(",]} \n\t\r", *r->at))
        r->at++;
    return json_loadb(from, (size_t)(r->at - from), JSON_DECODE_ANY, NULL);
}

/* Finds the end of the call, which stands in no string. Returns LOOK_YES with p->looked before it. */
static enum look find_end(struct reader *p)
{
    const char *close = p->desc.form->call_close;
    const size_t from = p->at;
    enum look found = LOOK_NO;
    for (p->at += p->looked; reader_left(p) && found == LOOK_NO; p->at += found == LOOK_NO) {
        const char c = *reader_rest(p);
        enum look quote = c == *QUOTE ? reader_look(p, QUOTE) : LOOK_NO;
        found = c == *close && !p->is_quoted ? reader_look(p, close) : LOOK_NO;
        p->is_quoted ^= quote == LOOK_YES;
        if (quote == LOOK_MORE)
            found = LOOK_MORE;
    }
    p->looked = p->at - from;
    p->at = from;
    return found;
}

bool reader_step_gemma(struct reader *p)
{
    const char *close = p->desc.form->call_close;
    enum look found = find_end(p);
    size_t end = p->looked;
    p->mark_end = p->at + end; /* if it is not a call, all is content: no part is read again */
    if (found != LOOK_YES) {
        if (p->ended)
            reader_break(p, reader_cut_off);
        return p->ended;
    }
    struct cursor r = {.at = reader_rest(p), .end = reader_rest(p) + end};
    json_t *arguments = read_object(&r, 0);
    cursor_skip_space(&r);
    char *text = arguments && r.at == r.end ? json_shortest(arguments, 0) : NULL;
    json_decref(arguments);
    if (!text) {
        reader_break(p, "a call's arguments are not as the model's template writes them");
        return true;
    }
    reader_begin_call(p, p->name.data, p->name.bytes);
    reader_emit(p, READER_ARGUMENTS, text, strlen(text));
    free(text);
    reader_end_call(p);
    p->at += end + strlen(close);
    p->state = STATE_CONTENT;
    return true;
}
