/* Every form of calls through the same answers: values that are hard to quote, texts and thoughts
 * around calls, two calls, a call that is cut or has garbage in it at every byte. Whole and in pieces
 * they say the same; what is well-formed is read as it was meant, and of what is broken nothing is
 * lost. At least 36 well-formed answers a form (17 where an answer has one call), and 130 broken ones. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/events/reader.h"
#include "tests/run_suite.h"

static const char tools[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"v\":{\"type\":[\"object\",\"array\",\"number\",\"boolean\"]}}}}}]";

/* Arguments as JSON: "s" is a text, "v" anything else. */
static const char *const arguments[] = {
    "{}",
    "{\"s\":\"x\"}",
    "{\"s\":\"x\",\"v\":7}",
    "{\"s\":\"say \\\"hi\\\" 'you'\"}",
    "{\"s\":\"C:\\\\dir\\\\new \\\\\\\"\"}",
    "{\"s\":\"\\u00e9 \\u6f22 \\ud83d\\ude00\"}",
    "{\"s\":\"two\\n\\tlines\\n\\nand more\"}",
    "{\"s\":\"}]{[ ,:\"}",
    "{\"s\":\"<b>a & b</b> < c\"}",
    "{\"s\":\"{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}\"}",
    "{\"s\":\"true\"}",
    "{\"s\":\"7\"}",
    "{\"v\":{\"k\":{\"l\":[1,{\"m\":null}]}}}",
    "{\"v\":[[],{},\"\",[\"a\",\"b\"]]}",
    "{\"v\":-12.5e3}",
    "{\"v\":false}",
    "{\"v\":{\"q\":\"a \\\"quoted\\\" \\\\ text\"}}",
};
enum { ARGUMENTS = sizeof(arguments) / sizeof(arguments[0]) };

/* ---- a call as a form has it ----------------------------------------------------------------- */

static void add_gemma(struct buffer *t, json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *key, *separator = "";
    size_t i;
    json_t *item;
    if (json_is_string(v)) {
        buffer_format(t, "<|\"|>%s<|\"|>", json_string_value(v));
    } else if (json_is_object(v)) {
        buffer_text(t, "{");
        json_object_foreach(v, key, item) {
            buffer_format(t, "%s%s:", separator, key);
            add_gemma(t, item);
            separator = ",";
        }
        buffer_text(t, "}");
    } else if (json_is_array(v)) {
        buffer_text(t, "[");
        json_array_foreach(v, i, item) {
            buffer_text(t, i ? "," : "");
            add_gemma(t, item);
        }
        buffer_text(t, "]");
    } else {
        buffer_text(t, text);
    }
    free(text);
}

static void add_tags(struct buffer *t, const struct call_form *f, json_t *values)
{
    const char *key;
    json_t *v;
    json_object_foreach(values, key, v) {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        bool is_text = json_is_string(v);
        buffer_format(t, "%s%s%s%s%s", f->param_open, key, f->param_name_close,
                      !f->typed ? ""
                      : is_text ? "true\">"
                                : "false\">",
                      f->value_open ? f->value_open : "");
        buffer_format(t, "%s%s%s%s", f->lines ? "\n" : "", is_text ? json_string_value(v) : text,
                      f->lines ? "\n" : "", f->param_close);
        free(text);
    }
}

static const char *or_none(const char *mark)
{
    return mark ? mark : "";
}

/* One call between the marks around all calls. */
static void add_call(struct buffer *t, const struct call_form *f, const char *name,
                     const char *given)
{
    json_t *values = json_loads(given, 0, NULL);
    if (f->body == CALL_HARMONY)
        buffer_format(t,
                      "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s"
                      "<|call|>",
                      name, given);
    else if (f->body == CALL_JSON)
        buffer_format(t, "{\"name\": \"%s\", \"arguments\": %s}", name, given);
    else
        buffer_format(t, "%s%s%s%s", f->call_open, or_none(f->prefix), name,
                      f->body == CALL_GEMMA ? "" : or_none(f->name_close));
    if (f->body == CALL_NAMED)
        buffer_text(t, given);
    if (f->body == CALL_TAGS)
        add_tags(t, f, values);
    if (f->body == CALL_GEMMA)
        add_gemma(t, values);
    buffer_text(t, f->body == CALL_HARMONY ? "" : or_none(f->call_close));
    json_decref(values);
}

static void add_calls(struct buffer *t, const struct call_form *f, const char *const *given,
                      size_t n)
{
    bool list = f->body == CALL_JSON && n > 1;
    bool alone = f->call_open && !*f->call_open; /* each between marks of its own */
    buffer_format(t, "%s%s", or_none(f->open), list ? "[" : "");
    for (size_t i = 0; i < n; i++) {
        if (i)
            buffer_format(t, "%s%s", list ? ", " : alone ? f->close : "", alone ? f->open : "");
        add_call(t, f, "f", given[i]);
    }
    buffer_format(t, "%s%s", list ? "]" : "", or_none(f->close));
}

/* ---- what an answer says --------------------------------------------------------------------- */

struct said {
    struct buffer all;     /* kinds and texts, one after the other */
    struct buffer content; /* of all pieces */
    json_t *calls;         /* the arguments of each that ended */
    const char *reason;
};

static void take(struct said *s, const struct reader_event *e, int *kind, struct buffer *call)
{
    if ((int)e->kind != *kind || e->kind == READER_CALL || e->kind == READER_CALL_END)
        buffer_format(&s->all, "|%d:", (int)e->kind);
    buffer_add(&s->all, e->text, e->bytes);
    *kind = (int)e->kind;
    if (e->kind == READER_CONTENT)
        buffer_add(&s->content, e->text, e->bytes);
    if (e->kind == READER_CALL)
        buffer_drop(call, call->bytes);
    if (e->kind == READER_ARGUMENTS)
        buffer_add(call, e->text, e->bytes);
    if (e->kind == READER_CALL_END)
        json_array_append_new(s->calls, json_loadb(call->data, call->bytes, 0, NULL));
}

static struct said read_in_steps(const struct call_form *f, const struct buffer *t, size_t step)
{
    json_t *list = json_loads(tools, 0, NULL);
    const struct reader_desc desc = {.form = f, .thoughts = &thought_forms[0], .tools = list};
    struct reader *r = reader_open(&desc);
    struct said s = {.calls = json_array()};
    struct buffer call = {0};
    struct reader_event e;
    int kind = -1;
    for (size_t at = 0; at < t->bytes; at += step) {
        size_t n = t->bytes - at < step ? t->bytes - at : step;
        ck_assert_int_eq(reader_feed(r, t->data + at, n), 0);
        while (reader_next(r, &e))
            take(&s, &e, &kind, &call);
    }
    ck_assert_int_eq(reader_finish(r), 0);
    while (reader_next(r, &e))
        take(&s, &e, &kind, &call);
    s.reason = reader_reason(r);
    reader_close(r);
    json_decref(list);
    buffer_fini(&call);
    return s;
}

static void said_fini(struct said *s)
{
    buffer_fini(&s->all);
    buffer_fini(&s->content);
    json_decref(s->calls);
}

static bool is_same(const struct said *a, const struct said *b)
{
    return a->all.bytes == b->all.bytes && a->reason == b->reason &&
           (!a->all.bytes || memcmp(a->all.data, b->all.data, a->all.bytes) == 0);
}

/* What it says, which is the same in pieces of each of these sizes. */
static struct said read_all(const struct call_form *f, const struct buffer *t)
{
    static const size_t steps[] = {1, 2, 3, 5, 17};
    struct said whole = read_in_steps(f, t, t->bytes ? t->bytes : 1);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct said pieces = read_in_steps(f, t, steps[i]);
        ck_assert_msg(is_same(&whole, &pieces), "%s in steps of %zu: %.*s", f->name, steps[i],
                      (int)t->bytes, t->data);
        said_fini(&pieces);
    }
    return whole;
}

/* ---- well-formed answers --------------------------------------------------------------------- */

static bool may_be_two(const struct call_form *f)
{
    return f->body != CALL_HARMONY && strcmp(f->name, "llama3") != 0;
}

static void check_whole(const struct call_form *f, const char *before, const char *const *given,
                        size_t n, const char *after, const char *content)
{
    struct buffer t = {0};
    buffer_text(&t, before);
    add_calls(&t, f, given, n);
    buffer_text(&t, after);
    struct said s = read_all(f, &t);
    ck_assert_msg(!s.reason && json_array_size(s.calls) == n, "%s: %s: %.*s", f->name,
                  s.reason ? s.reason : "calls are missing", (int)t.bytes, t.data);
    for (size_t i = 0; i < n; i++) {
        json_t *want = json_loads(given[i], 0, NULL);
        ck_assert_msg(json_equal(json_array_get(s.calls, i), want), "%s: %.*s", f->name,
                      (int)t.bytes, t.data);
        json_decref(want);
    }
    ck_assert_msg(s.content.bytes == strlen(content) &&
                      (!*content || memcmp(s.content.data, content, s.content.bytes) == 0),
                  "%s: content '%.*s' of %.*s", f->name, (int)s.content.bytes,
                  s.content.bytes ? s.content.data : "", (int)t.bytes, t.data);
    said_fini(&s);
    buffer_fini(&t);
}

START_TEST(a_call_is_read_as_it_was_meant)
{
    const struct call_form *f = &call_forms[_i];
    for (size_t i = 0; i < ARGUMENTS; i++) {
        const char *const two[] = {arguments[i], arguments[ARGUMENTS - 1 - i]};
        check_whole(f, "", two, 1, "", "");
        if (may_be_two(f))
            check_whole(f, "", two, 2, "", "");
    }
    if (f->body != CALL_HARMONY) {
        check_whole(f, "Text before. ", arguments, 1, "", "Text before.");
        check_whole(f, "<think>Hm.</think>", arguments, 1, "", "");
    }
}
END_TEST

/* ---- broken answers -------------------------------------------------------------------------- */

static const char *const garbage[] = {
    "}",  "{",    "]",   "\"",   "\\",   " text ", "\n\n",    "<",  "</",       ">",
    ",,", "null", "[[[", "\"\"", "{{{{", ":",      "<think>", "|>", "\xf0\x9f", "functions.",
};
enum { GARBAGE = sizeof(garbage) / sizeof(garbage[0]) };

/* No byte of the answer is lost where no call was read: it is content, but for white space at an
 * end. */
static void check_broken(const struct call_form *f, const struct buffer *t)
{
    struct said s = read_all(f, t);
    bool called = s.all.bytes && memmem(s.all.data, s.all.bytes, "|2:", 3) != NULL;
    bool thought = s.all.bytes && memmem(s.all.data, s.all.bytes, "|1:", 3) != NULL;
    if (!called && !thought && f->body != CALL_HARMONY && !strstr(t->data, "<think>")) {
        size_t from = strspn(t->data, " \t\r\n");
        ck_assert_msg(
            s.content.bytes <= t->bytes && s.content.bytes + 16 >= t->bytes - from &&
                (!s.content.bytes || memmem(t->data, t->bytes, s.content.data, s.content.bytes)),
            "%s: '%.*s' of %.*s", f->name, (int)s.content.bytes,
            s.content.bytes ? s.content.data : "", (int)t->bytes, t->data);
        ck_assert_msg(s.reason || !strstr(t->data, or_none(f->open)) || !*or_none(f->open) ||
                          f->bare,
                      "%s: no reason for %.*s", f->name, (int)t->bytes, t->data);
    }
    said_fini(&s);
}

/* A good answer with `more` put at `at`, or cut there. */
static void break_at(const struct call_form *f, const struct buffer *good, size_t at,
                     const char *more)
{
    struct buffer t = {0};
    buffer_add(&t, good->data, at);
    buffer_text(&t, more ? more : "");
    if (more)
        buffer_add(&t, good->data + at, good->bytes - at);
    buffer_add(&t, "", 1);
    t.bytes--;
    check_broken(f, &t);
    buffer_fini(&t);
}

START_TEST(of_a_broken_call_nothing_is_lost)
{
    const struct call_form *f = &call_forms[_i];
    struct buffer good = {0};
    add_calls(&good, f, arguments + 2, 1);
    for (size_t at = 0; at <= good.bytes; at++) {
        break_at(f, &good, at, NULL);
        break_at(f, &good, at, garbage[at % GARBAGE]);
    }
    for (size_t i = 0; i < GARBAGE; i++) {
        break_at(f, &good, good.bytes / 2, garbage[i]);
        break_at(f, &good, good.bytes - 1, garbage[i]);
        break_at(f, &good, 1, garbage[i]);
    }
    buffer_fini(&good);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_forms");
    TCase *tcase = tcase_create("chat_forms");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_call_is_read_as_it_was_meant, 0, (int)n_call_forms);
    tcase_add_loop_test(tcase, of_a_broken_call_nothing_is_lost, 0, (int)n_call_forms);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
