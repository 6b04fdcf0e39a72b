/* reader_tags: arguments that stand between tags of their own become a JSON object. */
#include "client/events/reader_impl.h"

#include <stdio.h>

enum { NAME_MOST = 256 };

/* Gives out text as part of a JSON string. */
static void emit_escaped(struct reader *p, const char *text, size_t bytes)
{
    size_t from = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        char out[8];
        int n = c == '\n'   ? snprintf(out, sizeof(out), "\\n")
                : c == '\t' ? snprintf(out, sizeof(out), "\\t")
                : c == '\r' ? snprintf(out, sizeof(out), "\\r")
                : c < 0x20  ? snprintf(out, sizeof(out), "\\u%04x", c)
                            : snprintf(out, sizeof(out), "\\%c", c);
        reader_emit(p, READER_ARGUMENTS, text + from, i - from);
        reader_emit(p, READER_ARGUMENTS, out, (size_t)n);
        from = i + 1;
    }
    reader_emit(p, READER_ARGUMENTS, text + from, bytes - from);
}

static void end_arguments(struct reader *p)
{
    reader_emit(p, READER_ARGUMENTS, "}", 1);
    reader_end_call(p);
    p->state = p->desc.form->open ? STATE_BETWEEN : STATE_CONTENT;
}

bool reader_step_param(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    reader_skip_space(p);
    if (!reader_left(p))
        return false;
    enum look param = reader_look(p, f->param_open);
    enum look end = f->call_close ? reader_look(p, f->call_close) : LOOK_NO;
    enum look close = f->close ? reader_look(p, f->close) : LOOK_NO;
    if (param == LOOK_YES) {
        p->at += strlen(f->param_open);
        p->state = STATE_PARAM_NAME;
    } else if (end == LOOK_YES) {
        p->at += strlen(f->call_close);
        end_arguments(p);
    } else if (close == LOOK_YES) { /* it ends the last call, too */
        end_arguments(p);
    } else if (param == LOOK_MORE || end == LOOK_MORE || close == LOOK_MORE) {
        return false;
    } else {
        const char *const marks[] = {f->param_open, f->call_close, f->close};
        reader_break(p, reader_or_cut_off(p, "text stands between a call's arguments", marks, 3));
    }
    return true;
}

bool reader_are_texts(const json_t *values)
{
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_is_string(json_array_get(values, i)))
            return false;
    return json_array_size(values) > 0;
}

bool reader_takes_text(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    bool string = type ? json_is_string(type) && strcmp(json_string_value(type), "string") == 0
                       : reader_are_texts(json_object_get(schema, "enum"));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *word = json_string_value(json_array_get(type, i));
        if (!word || (strcmp(word, "string") != 0 && strcmp(word, "null") != 0))
            return false;
        string |= strcmp(word, "string") == 0;
    }
    return string;
}

bool reader_step_param_name(struct reader *p)
{
    const char *close = p->desc.form->param_name_close;
    size_t end;
    enum look look = reader_find_within(p, NAME_MOST, &close, 1, &end);
    if (look == LOOK_MORE)
        return false;
    if (look == LOOK_NO) {
        reader_break(p, p->ended && reader_left(p) < NAME_MOST ? reader_cut_off
                                                               : "an argument has no name");
        return true;
    }
    const json_t *schema = json_object_getn(p->properties, reader_rest(p), end);
    p->is_string = reader_takes_text(schema);
    p->is_nullable = p->is_string && json_array_size(json_object_get(schema, "type")) > 1;
    if (!p->is_first)
        reader_emit(p, READER_ARGUMENTS, ", ", 2);
    p->is_first = false;
    reader_emit(p, READER_ARGUMENTS, "\"", 1);
    emit_escaped(p, reader_rest(p), end);
    reader_emit(p, READER_ARGUMENTS, "\": ", 3);
    p->at += end + strlen(close);
    p->state = STATE_VALUE_OPEN;
    return true;
}

bool reader_step_value_open(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    if (f->typed) {
        enum look yes = reader_look(p, "true\">"), no = reader_look(p, "false\">");
        if (yes == LOOK_MORE || no == LOOK_MORE)
            return false;
        if (yes != LOOK_YES && no != LOOK_YES) {
            static const char *const marks[] = {"true\">", "false\">"};
            reader_break(p, reader_or_cut_off(p, "an argument does not say whether it is a string",
                                              marks, 2));
            return true;
        }
        p->is_string = yes == LOOK_YES;
        p->is_nullable = false;
        p->at += strlen(yes == LOOK_YES ? "true\">" : "false\">");
    } else if (f->value_open) {
        reader_skip_space(p);
        enum look look = reader_look(p, f->value_open);
        if (look == LOOK_MORE)
            return false;
        if (look == LOOK_NO) {
            reader_break(p, reader_or_cut_off(p, "an argument has no value", &f->value_open, 1));
            return true;
        }
        p->at += strlen(f->value_open);
    }
    if (f->lines) {
        if (!reader_left(p) && !p->ended)
            return false;
        p->at += reader_look(p, "\n") == LOOK_YES;
    }
    enum look raw = f->raw_open ? reader_look(p, f->raw_open) : LOOK_NO;
    if (raw == LOOK_MORE)
        return false;
    p->is_raw = raw == LOOK_YES;
    if (p->is_raw) {
        p->at += strlen(f->raw_open);
        p->is_string = true;
        p->is_nullable = false;
    }
    if (p->is_string && !p->is_nullable)
        reader_emit(p, READER_ARGUMENTS, "\"", 1);
    p->state = STATE_VALUE;
    return true;
}

/* Templates write a scalar of the history as Python does, and so does the model then. */
static const char *const python_words[][2] = {
    {"True", "true"}, {"False", "false"}, {"None", "null"}};

/* JSON's word for it, or NULL if it is not one of these. */
static const char *of_python(const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof(python_words) / sizeof(python_words[0]); i++)
        if (strlen(python_words[i][0]) == bytes && !memcmp(python_words[i][0], text, bytes))
            return python_words[i][1];
    return NULL;
}

/* Begins a value that is null where it says so and nothing else, else a text. Returns whether it is
 * known which. */
static bool begin_nullable(struct reader *p, size_t end)
{
    const char *word = reader_left(p) && *reader_rest(p) == 'N' ? "None" : "null";
    const struct call_form *f = p->desc.form;
    size_t n = strlen(word), most = n + f->lines + strlen(f->param_close);
    enum look look = reader_look(p, word);
    if (look == LOOK_MORE || (look == LOOK_YES && !p->ended && end == reader_left(p) && end < most))
        return false;
    bool line = f->lines && look == LOOK_YES && end == n + 1 && reader_rest(p)[n] == '\n';
    p->is_string = look != LOOK_YES || (end != n && !line);
    p->is_nullable = false;
    if (p->is_string)
        reader_emit(p, READER_ARGUMENTS, "\"", 1);
    return true;
}

/* A value that need not be a string: JSON, or a word of Python's, where it is, else a string. */
static void emit_value(struct reader *p, const char *text, size_t bytes)
{
    struct json_scan scan = {0};
    enum json_scan_result result = JSON_GOES_ON;
    size_t n = 0, from = strspn(text, " \t\r\n");
    from = from < bytes ? from : bytes;
    size_t to = bytes;
    while (to > from && text[to - 1] && strchr(" \t\r\n", text[to - 1]))
        to--;
    const char *word = of_python(text + from, to - from);
    if (word) {
        reader_emit(p, READER_ARGUMENTS, word, strlen(word));
        return;
    }
    for (n = from; n < to && result == JSON_GOES_ON; n++)
        result = json_scan_byte(&scan, text[n]);
    if (result == JSON_GOES_ON && to > from)
        result = json_scan_byte(&scan, ' '); /* the end of a number */
    else if (n != to || result == JSON_ENDED_BEFORE)
        result = JSON_BROKEN; /* something follows it */
    if (result == JSON_ENDS || result == JSON_ENDED_BEFORE) {
        reader_emit(p, READER_ARGUMENTS, text + from, to - from);
        return;
    }
    reader_emit(p, READER_ARGUMENTS, "\"", 1);
    emit_escaped(p, text, bytes);
    reader_emit(p, READER_ARGUMENTS, "\"", 1);
}

/* What the value ends with. */
static const char *value_close(const struct reader *p)
{
    return p->is_raw ? p->desc.form->raw_close : p->desc.form->param_close;
}

/* How much of the rest is certain to be the value's, when its end has not come. */
static size_t certain_value(const struct reader *p)
{
    size_t n = reader_left(p) - reader_may_begin(p, value_close(p));
    return n - (p->desc.form->lines && !p->ended && n && reader_rest(p)[n - 1] == '\n');
}

bool reader_step_value(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    const char *text = reader_rest(p), *close = value_close(p);
    size_t end = reader_find(p, close);
    if (p->is_nullable && !begin_nullable(p, end))
        return false;
    if (end == reader_left(p)) {
        size_t n = p->is_string ? certain_value(p) : p->ended ? reader_left(p) : 0;
        if (p->is_string)
            emit_escaped(p, text, n);
        else
            reader_emit(p, READER_ARGUMENTS, text, n);
        p->at += n;
        return false;
    }
    size_t bytes = end - (f->lines && end && text[end - 1] == '\n');
    if (p->is_string) {
        emit_escaped(p, text, bytes);
        reader_emit(p, READER_ARGUMENTS, "\"", 1);
    } else {
        emit_value(p, text, bytes);
    }
    p->at += end + strlen(close);
    p->state = STATE_PARAM;
    return true;
}
