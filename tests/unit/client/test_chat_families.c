/* Every family's form of calls: what a model of it would write for each of many arguments, in each of
 * many surroundings, is read as what was meant; whole, in pieces, and cut off at every byte. With
 * garbage in it at every byte it says the same whole and in pieces, and nothing of it is lost. The
 * answers are made here from the form's row in call_form.c, so a new row is tested by being there. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/events/reader.h"
#include "tests/run_suite.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"write_file\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"path\":{\"type\":\"string\"},\"text\":{\"type\":[\"string\",\"null\"]},"
    "\"lines\":{\"type\":\"number\"},\"tags\":{\"type\":\"array\"},\"options\":{\"type\":"
    "\"object\"},"
    "\"force\":{\"type\":\"boolean\"}}}}}]";

/* Arguments; add a line. */
static const char *const arguments[] = {
    "{}",
    "{\"path\":\"a\"}",
    "{\"path\":\"\"}",
    "{\"path\":\"say \\\"it\\\", \\\\n 'or' `not`\"}",
    "{\"path\":\"\\u00e9 \\u6f22\\u5b57 \\ud83d\\ude00\"}",
    "{\"path\":\"one\\ntwo\\n\\n\\tthree\\r\\n\"}",
    "{\"path\":\"<b>&amp;</b> </x> <|y|> [z]\"}",
    "{\"path\":\"{\\\"a\\\": [1, \\\"}\\\"]}\"}",
    "{\"path\":\"C:\\\\dir\\\\new \\\\\\\"\",\"text\":\"7\"}",
    "{\"path\":\"{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}\"}",
    "{\"path\":\"  blanks  \",\"lines\":3}",
    "{\"text\":\"true\",\"force\":true}",
    "{\"text\":null,\"path\":\"null\"}",
    "{\"text\":\"null and void\"}",
    "{\"lines\":-1500.5}",
    "{\"tags\":[\"a\",[],{\"b\":[null,false,\"]\"]}]}",
    "{\"options\":{\"deep\":{\"er\":[[{}]]},\"k\":\"v\"}}",
    "{\"path\":\"p\",\"text\":\"t\",\"lines\":0,\"tags\":[],\"options\":{},\"force\":false}",
};
enum { ARGUMENTS = sizeof(arguments) / sizeof(arguments[0]) };

/* Surroundings. */
enum {
    BEFORE = 1,
    AFTER = 2,
    TWICE = 4,
    THOUGHT = 8,
    ASCII = 16,
    INSIDE = 32, /* of a thought that does not end */
    ALONE = 64   /* without what opens a list of calls */
};
static const int around[] = {0,
                             BEFORE,
                             AFTER,
                             BEFORE | AFTER,
                             TWICE,
                             TWICE | BEFORE,
                             THOUGHT,
                             THOUGHT | BEFORE | TWICE,
                             ASCII,
                             ASCII | TWICE | AFTER,
                             INSIDE,
                             INSIDE | TWICE | AFTER,
                             ALONE,
                             ALONE | TWICE | BEFORE | AFTER,
                             ALONE | INSIDE};
enum { AROUND = sizeof(around) / sizeof(around[0]) };

/* ---- what a model writes --------------------------------------------------------------------- */

static char *dump(const json_t *value, int ways)
{
    return json_dumps(value, JSON_ENCODE_ANY | (ways & ASCII ? JSON_ENSURE_ASCII : 0));
}

static void add_json(struct buffer *t, const json_t *value, int ways)
{
    char *text = dump(value, ways);
    buffer_text(t, text);
    free(text);
}

static void add_gemma(struct buffer *t, const json_t *value)
{
    const char *key, *comma = "";
    size_t i;
    json_t *item;
    if (json_is_string(value)) {
        buffer_format(t, "<|\"|>%s<|\"|>", json_string_value(value));
    } else if (json_is_object(value)) {
        buffer_text(t, "{");
        json_object_foreach((json_t *)value, key, item) {
            buffer_format(t, "%s%s:", comma, key);
            add_gemma(t, item);
            comma = ",";
        }
        buffer_text(t, "}");
    } else if (json_is_array(value)) {
        buffer_text(t, "[");
        json_array_foreach(value, i, item) {
            buffer_text(t, i ? "," : "");
            add_gemma(t, item);
        }
        buffer_text(t, "]");
    } else {
        add_json(t, value, 0);
    }
}

/* Texts by turns in either quotes. */
static void add_python(struct buffer *t, const json_t *value, int ways)
{
    const char *key, *comma = "";
    size_t i;
    json_t *item;
    if (json_is_string(value) && !(ways & ASCII)) {
        buffer_text(t, "'");
        for (const char *c = json_string_value(value); *c; c++)
            buffer_format(t, strchr("'\\", *c) ? "\\%c" : "%c", *c);
        buffer_text(t, "'");
    } else if (json_is_object(value)) {
        buffer_text(t, "{");
        json_object_foreach((json_t *)value, key, item) {
            buffer_format(t, "%s'%s': ", comma, key);
            add_python(t, item, ways);
            comma = ", ";
        }
        buffer_text(t, "}");
    } else if (json_is_array(value)) {
        buffer_text(t, "[");
        json_array_foreach(value, i, item) {
            buffer_text(t, i ? ", " : "");
            add_python(t, item, ways);
        }
        buffer_text(t, "]");
    } else if (json_is_boolean(value) || json_is_null(value)) {
        buffer_text(t, json_is_null(value) ? "None" : json_is_true(value) ? "True" : "False");
    } else {
        add_json(t, value, ways);
    }
}

static void add_python_call(struct buffer *t, const json_t *value, int ways)
{
    const char *key, *comma = "";
    json_t *item;
    buffer_text(t, "write_file(");
    json_object_foreach((json_t *)value, key, item) {
        buffer_format(t, "%s%s=", comma, key);
        add_python(t, item, ways);
        comma = ", ";
    }
    buffer_text(t, ")");
}

static void add_tags(struct buffer *t, const struct call_form *f, const json_t *value, int ways)
{
    const char *key, *line = f->lines ? "\n" : "";
    json_t *item;
    json_object_foreach((json_t *)value, key, item) {
        buffer_format(t, "%s%s%s", f->param_open, key, f->param_name_close);
        if (f->typed)
            buffer_text(t, json_is_string(item) ? "true\">" : "false\">");
        buffer_format(t, "%s%s", f->value_open ? f->value_open : "", line);
        const char *text = json_string_value(item);
        const bool raw = f->raw_open && text && strpbrk(text, "<&\n");
        if (raw)
            buffer_format(t, "%s%s", f->raw_open, text);
        else if (text)
            buffer_text(t, text);
        else
            add_json(t, item, ways);
        buffer_format(t, "%s%s%s", line, raw ? f->raw_close : f->param_close, line);
    }
}

static void add_call(struct buffer *t, const struct call_form *f, const json_t *value, int ways)
{
    if (f->body == CALL_JSON) {
        buffer_text(t, "{\"name\": \"write_file\", \"arguments\": ");
        add_json(t, value, ways);
        buffer_text(t, "}");
        return;
    }
    if (f->body == CALL_PYTHON) {
        add_python_call(t, value, ways);
        return;
    }
    buffer_format(t, "%s%swrite_file", f->call_open, f->prefix ? f->prefix : "");
    if (f->cut)
        buffer_format(t, "%s%s", f->cut, strcmp(f->cut, ":") == 0 ? "0" : "abcdefghi");
    if (f->body == CALL_GEMMA) {
        add_gemma(t, value);
    } else {
        buffer_text(t, f->name_close ? f->name_close : "");
        if (f->body == CALL_TAGS)
            add_tags(t, f, value, ways);
        else
            add_json(t, value, ways);
    }
    buffer_text(t, f->call_close ? f->call_close : "");
}

static void add_harmony(struct buffer *t, const json_t *value, int ways)
{
    if (ways & THOUGHT)
        buffer_text(t, "<|channel|>analysis<|message|>I think<|end|><|start|>assistant");
    if (ways & BEFORE)
        buffer_text(t, "<|channel|>commentary<|message|>Before<|end|><|start|>assistant");
    for (int i = 0; i < (ways & TWICE ? 2 : 1); i++) {
        buffer_text(t, i ? "<|start|>assistant" : "");
        buffer_text(t,
                    "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>");
        add_json(t, value, ways);
        buffer_text(t, "<|call|>");
    }
    if (ways & AFTER)
        buffer_text(t, "<|start|>assistant<|channel|>final<|message|>After<|return|>");
}

static void add_calls(struct buffer *t, const struct call_form *f, const json_t *value, int ways)
{
    const bool python = f->body == CALL_PYTHON, many = ways & TWICE;
    bool list =
        python || (f->body == CALL_JSON && !f->close && many); /* nothing else ends a call */
    bool each = !python && f->open && f->close &&
                (f->body == CALL_JSON || !f->call_close || !*f->call_open);
    for (int i = 0; i < (ways & TWICE ? 2 : 1); i++) {
        if (f->open && (i == 0 || each) && !(ways & ALONE))
            buffer_format(t, "%s%s", i ? "\n" : "", f->open);
        buffer_text(t, list ? i ? ", " : "[" : "");
        add_call(t, f, value, ways);
        buffer_text(t, list && i == many ? "]" : "");
        if (f->close && (each || i == (ways & TWICE ? 1 : 0)))
            buffer_text(t, f->close);
    }
}

/* Can calls of this form stand so? */
static bool can_be(const struct call_form *f, int ways)
{
    bool ends = f->body == CALL_HARMONY || f->close || f->call_close;
    return (ends || !(ways & AFTER)) && (f->body != CALL_HARMONY || !(ways & INSIDE)) &&
           (call_form_alone(f) || !(ways & ALONE));
}

static const struct thought_form *thoughts_of(const struct call_form *f)
{
    return strncmp(f->name, "mistral", 7) == 0 ? &thought_forms[1]
           : strcmp(f->name, "seed-oss") == 0  ? &thought_forms[2]
           : strcmp(f->name, "gemma") == 0     ? &thought_forms[3]
           : strcmp(f->name, "command-r") == 0 ? &thought_forms[4]
                                               : &thought_forms[0];
}

static void write_answer(struct buffer *t, const struct call_form *f, const json_t *value, int ways)
{
    const struct thought_form *thoughts = thoughts_of(f);
    if (f->body == CALL_HARMONY) {
        add_harmony(t, value, ways);
        return;
    }
    if (ways & THOUGHT)
        buffer_format(t, "%sI think\n%s\n\n", thoughts->open, thoughts->close);
    if (ways & INSIDE)
        buffer_format(t, "%sI think\n", thoughts->open);
    if (ways & BEFORE)
        buffer_text(t, "Before\n");
    add_calls(t, f, value, ways);
    if (ways & AFTER)
        buffer_text(t, "\nAfter");
}

/* ---- what is read ---------------------------------------------------------------------------- */

struct said {
    struct buffer content, thoughts,
        calls;         /* calls: name(arguments) of each, in the reader's words */
    json_t *arguments; /* array: of each complete call */
    const char *reason;
};

static void take_events(struct reader *r, struct said *said, struct buffer *text)
{
    struct reader_event e;
    while (reader_next(r, &e)) {
        struct buffer *to = e.kind == READER_CONTENT   ? &said->content
                            : e.kind == READER_THOUGHT ? &said->thoughts
                                                       : &said->calls;
        buffer_add(to, e.text, e.bytes);
        if (e.kind == READER_CALL)
            buffer_drop(text, text->bytes);
        if (e.kind == READER_ARGUMENTS)
            buffer_add(text, e.text, e.bytes);
        if (e.kind == READER_CALL_END) {
            json_t *value = text->bytes ? json_loadb(text->data, text->bytes, 0, NULL) : NULL;
            json_array_append_new(said->arguments, value ? value : json_null());
        }
    }
}

static struct said read_answer(const struct reader_desc *desc, const char *text, size_t n,
                               size_t step)
{
    struct said said = {.arguments = json_array()};
    struct buffer one = {0};
    struct reader *r = reader_open(desc);
    for (size_t at = 0; at < n; at += step) {
        ck_assert_int_eq(reader_feed(r, text + at, n - at < step ? n - at : step), 0);
        take_events(r, &said, &one);
    }
    ck_assert_int_eq(reader_finish(r), 0);
    take_events(r, &said, &one);
    said.reason = reader_reason(r);
    reader_close(r);
    buffer_fini(&one);
    return said;
}

static void said_fini(struct said *said)
{
    buffer_fini(&said->content);
    buffer_fini(&said->thoughts);
    buffer_fini(&said->calls);
    json_decref(said->arguments);
}

static bool is_text(const struct buffer *b, const char *want)
{
    return b->bytes == strlen(want) && (!b->bytes || memcmp(b->data, want, b->bytes) == 0);
}

static bool same_buffer(const struct buffer *a, const struct buffer *b)
{
    return a->bytes == b->bytes && (!a->bytes || memcmp(a->data, b->data, a->bytes) == 0);
}

static void check_whole(const struct said *said, const json_t *value, int ways, const char *name,
                        const char *text)
{
    const char *content = ways & BEFORE && ways & AFTER ? "BeforeAfter"
                          : ways & BEFORE               ? "Before"
                          : ways & AFTER                ? "After"
                                                        : "";
    size_t n = ways & TWICE ? 2 : 1;
    ck_assert_msg(!said->reason, "%s: %s: %s", name, text, said->reason);
    ck_assert_msg(is_text(&said->content, content), "%s: %s: content '%s'", name, text,
                  said->content.data);
    ck_assert_msg(is_text(&said->thoughts, ways & (THOUGHT | INSIDE) ? "I think" : ""), "%s: %s",
                  name, text);
    ck_assert_msg(json_array_size(said->arguments) == n, "%s: %s: %zu calls", name, text,
                  json_array_size(said->arguments));
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(json_equal(json_array_get(said->arguments, i), value), "%s: %s: %s", name,
                      text, said->calls.data);
}

/* In pieces the answer says what it says as a whole. */
static void check_pieces(const struct reader_desc *desc, const char *text, size_t n,
                         const struct said *whole)
{
    const size_t steps[] = {1, 2 + n % 16};
    for (size_t i = 0; i < 2; i++) {
        struct said pieces = read_answer(desc, text, n, steps[i]);
        ck_assert_msg(same_buffer(&whole->content, &pieces.content) &&
                          same_buffer(&whole->thoughts, &pieces.thoughts) &&
                          same_buffer(&whole->calls, &pieces.calls) &&
                          whole->reason == pieces.reason,
                      "%s in steps of %zu: %.*s", desc->form->name, steps[i], (int)n, text);
        said_fini(&pieces);
    }
}

static void try_answer(const struct reader_desc *desc, const json_t *value, int ways)
{
    struct buffer t = {0};
    write_answer(&t, desc->form, value, ways);
    for (size_t n = t.bytes; n; n -= ways && n > 13 ? 13 : 1) {
        struct said whole = read_answer(desc, t.data, n, n);
        if (n == t.bytes)
            check_whole(&whole, value, ways, desc->form->name, t.data);
        check_pieces(desc, t.data, n, &whole);
        said_fini(&whole);
    }
    buffer_fini(&t);
}

START_TEST(what_a_family_writes_is_read)
{
    const struct call_form *form = &call_forms[_i];
    json_t *tools = json_loads(tools_text, 0, NULL);
    const struct reader_desc desc = {
        .form = form, .thoughts = thoughts_of(form), .tools = tools, .calls_in_thoughts = true};
    for (size_t i = 0; i < ARGUMENTS; i++)
        for (size_t k = 0; k < AROUND; k++) {
            json_t *value = json_loads(arguments[i], 0, NULL);
            ck_assert_ptr_nonnull(value);
            if (can_be(form, around[k]))
                try_answer(&desc, value, around[k]);
            json_decref(value);
        }
    json_decref(tools);
}
END_TEST

/* ---- broken answers -------------------------------------------------------------------------- */

static const char *const garbage[] = {
    "}",  "{",    "]",   "\"",   "\\",   " text ", "\n\n",    "<",  "</",       ">",
    ",,", "null", "[[[", "\"\"", "{{{{", ":",      "<think>", "|>", "\xf0\x9f", "functions.",
};
enum { GARBAGE = sizeof(garbage) / sizeof(garbage[0]) };

/* No byte of the answer is lost where no call was read: it is content, or the thought that the prompt
 * opened, but for white space at an end. */
static void check_broken(const struct reader_desc *desc, const struct buffer *t)
{
    const struct call_form *f = desc->form;
    const char *open = f->open ? f->open : "";
    struct said s = read_answer(desc, t->data, t->bytes, t->bytes);
    const struct buffer *all = desc->thinks ? &s.thoughts : &s.content;
    const struct buffer *none = desc->thinks ? &s.content : &s.thoughts;
    check_pieces(desc, t->data, t->bytes, &s);
    if (!s.calls.bytes && !none->bytes && f->body != CALL_HARMONY && !strstr(t->data, "<think>")) {
        size_t from = strspn(t->data, " \t\r\n");
        ck_assert_msg(all->bytes <= t->bytes && all->bytes + 16 >= t->bytes - from &&
                          (!all->bytes || memmem(t->data, t->bytes, all->data, all->bytes)),
                      "%s: '%s' of %s", f->name, all->bytes ? all->data : "", t->data);
        ck_assert_msg(s.reason || desc->thinks || !*open || !strstr(t->data, open) || f->bare,
                      "%s: no reason for %s", f->name, t->data);
    }
    said_fini(&s);
}

/* A good answer with `more` put at `at`; without `more` it is cut there. */
static void break_at(const struct reader_desc *desc, const struct buffer *good, size_t at,
                     const char *more)
{
    struct buffer t = {0};
    buffer_add(&t, good->data, at);
    buffer_text(&t, more ? more : "");
    if (more)
        buffer_add(&t, good->data + at, good->bytes - at);
    if (t.bytes)
        check_broken(desc, &t);
    buffer_fini(&t);
}

START_TEST(of_a_broken_call_nothing_is_lost)
{
    const struct call_form *form = &call_forms[_i / 2];
    json_t *tools = json_loads(tools_text, 0, NULL);
    json_t *value = json_loads("{\"path\":\"x\",\"lines\":7}", 0, NULL);
    const struct reader_desc desc = {.form = form,
                                     .thoughts = thoughts_of(form),
                                     .tools = tools,
                                     .thinks = _i % 2 != 0,
                                     .calls_in_thoughts = true};
    struct buffer good = {0};
    write_answer(&good, form, value, 0);
    for (size_t at = 0; at <= good.bytes; at++) {
        break_at(&desc, &good, at, NULL);
        break_at(&desc, &good, at, garbage[at % GARBAGE]);
    }
    for (size_t i = 0; i < GARBAGE; i++) {
        break_at(&desc, &good, good.bytes / 2, garbage[i]);
        break_at(&desc, &good, good.bytes - 1, garbage[i]);
        break_at(&desc, &good, 1, garbage[i]);
    }
    buffer_fini(&good);
    json_decref(value);
    json_decref(tools);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_families");
    TCase *tcase = tcase_create("chat_families");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, what_a_family_writes_is_read, 0, (int)n_call_forms);
    tcase_add_loop_test(tcase, of_a_broken_call_nothing_is_lost, 0, 2 * (int)n_call_forms);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
