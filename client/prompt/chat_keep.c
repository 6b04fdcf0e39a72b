/* chat_keep: calls of tools, texts beside them, and their results, that a template does not write.
 *
 * Some templates pass over the calls of a message, or over messages of tools: all of them, those
 * beside a text, or where the request has no tools. Some refuse them. What a template does is tried
 * on a made-up conversation, once a template and kind of message: so a message is written the same
 * way in every turn, and the prefix stays. What it does not write becomes text: a call in the form
 * of the template's family where that is JSON between marks, or Python, else in the form that most
 * families know:
 *
 *     <tool_call>
 *     {"name": "f", "arguments": {}}
 *     </tool_call>
 *
 * Some templates write one call a message, or fail where there are two: each call becomes a
 * message, followed by its result. Some write no text beside calls, or write it after the results:
 * it becomes the message before them, where the template takes that. Else it is lost. */
#include "client/prompt/chat_keep.h"

#include "client/base/json_mend.h"
#include "client/base/json_shortest.h"
#include "client/base/quote.h"
#include "client/prompt/chat_adapt.h"
#include "client/prompt/chat_form.h"
#include "client/prompt/chat_tidy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the template does ------------------------------------------------------------------ */

enum kept { KEPT_UNKNOWN, KEPT_WRITTEN, KEPT_LOST, KEPT_FAILS };
enum content { CONTENT_NONE, CONTENT_EMPTY, CONTENT_TEXT };

#define CALL(k)                                                                                    \
    "{\"id\":\"call1234" k "\",\"type\":\"function\",\"function\":{\"name\":\"hearthname" k        \
    "\",\"arguments\":\"{\\\"hearthkey" k "\\\": \\\"hearthvalue" k "\\\"}\"}}"
#define RESULT(k) /* its name is another one: a template may write that in place of the call's */  \
    ",{\"role\":\"tool\",\"tool_call_id\":\"call1234" k "\",\"name\":\"hearthtool" k               \
    "\",\"content\":\"hearthresult" k "\"}"

#define TEXT "hearthtext"

/* A made-up turn with a call, and its results. */
struct turn {
    enum content content;
    const char *apart; /* the role of a message before that with the calls, which has the text */
    bool many;         /* two calls */
    bool ends;         /* nothing follows the results */
    bool unanswered;   /* nor are there results */
};

static bool render_turn(const struct chat *c, struct turn turn, struct jinja_output *ret)
{
    static const char *const contents[] = {"null", "\"\"", "\"" TEXT "\""};
    char messages[1024], text[64] = "";
    if (turn.apart)
        snprintf(text, sizeof(text), ",{\"role\":\"%s\",\"content\":\"" TEXT "\"}", turn.apart);
    snprintf(messages, sizeof(messages),
             "[{\"role\":\"user\",\"content\":\"x\"}%s,{\"role\":\"assistant\",\"content\":%s,"
             "\"tool_calls\":[%s]}%s%s]",
             text, contents[turn.content], turn.many ? CALL("1") "," CALL("2") : CALL("1"),
             turn.unanswered ? ""
             : turn.many     ? RESULT("1") RESULT("2")
                             : RESULT("1"),
             turn.ends || turn.unanswered
                 ? ""
                 : ",{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"user\",\"content\":"
                   "\"x\"}");
    struct chat probe = chat_probe_begin(c, json_array_size(c->tools) > 0);
    const bool renders = chat_form_render(&probe, messages, true, ret);
    chat_probe_end(&probe);
    return renders;
}

static size_t find_word(const struct jinja_output *o, const char *word)
{
    const char *at = o->text ? memmem(o->text, o->bytes, word, strlen(word)) : NULL;
    return at ? (size_t)(at - o->text) : o->bytes;
}

/* Are all of these in what the template writes? */
static enum kept try_words(const struct chat *c, struct turn turn, const char *const *words)
{
    struct jinja_output o;
    bool found = true;
    if (!render_turn(c, turn, &o)) {
        if (turn.ends || turn.apart || turn.unanswered)
            return KEPT_FAILS;
        turn.ends = true;
        return try_words(c, turn, words);
    }
    for (; *words; words++)
        found &= find_word(&o, *words) < o.bytes;
    jinja_output_fini(&o);
    return found ? KEPT_WRITTEN : KEPT_LOST;
}

/* What becomes of results; KEPT_FAILS: the template takes none, with calls of any content. */
static enum kept results(const struct chat *c)
{
    static const char *const word[] = {"hearthresult1", NULL};
    uint8_t *kept = &chat_traits(c)->results[json_array_size(c->tools) > 0];
    enum kept got = *kept;
    for (unsigned content = CONTENT_NONE; *kept == KEPT_UNKNOWN && content <= CONTENT_TEXT;
         content++)
        if (got == KEPT_UNKNOWN || got == KEPT_FAILS)
            got = try_words(c, (struct turn){.content = content}, word);
    return *kept = (uint8_t)got;
}

/* What becomes of a result that answers no call of the message before, as of a history whose
 * beginning was cut off. */
static enum kept orphans(const struct chat *c)
{
    static const char *const turns[] = {
        "[{\"role\":\"user\",\"content\":\"x\"}" RESULT("1") "]",
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_"
        "calls\":[" CALL("2") "]}" RESULT("1") "]"};
    const bool tools = json_array_size(c->tools) > 0;
    uint8_t *known = &chat_traits(c)->orphans[tools];
    enum kept kept = *known;
    for (size_t i = 0; i < 2 && *known == KEPT_UNKNOWN && kept != KEPT_LOST; i++) {
        struct chat probe = chat_probe_begin(c, tools);
        struct jinja_output o = {0};
        const bool renders = chat_form_render(&probe, turns[i], true, &o);
        kept = renders && find_word(&o, "hearthresult1") < o.bytes ? KEPT_WRITTEN : KEPT_LOST;
        jinja_output_fini(&o);
        chat_probe_end(&probe);
    }
    return *known = (uint8_t)kept;
}

/* What becomes of the calls of a message with such a content. */
static enum kept calls(const struct chat *c, enum content content, bool many)
{
    static const char *const two[] = {"hearthname1", "hearthkey1",   "hearthvalue1",
                                      "hearthname2", "hearthvalue2", "hearthkey2",
                                      NULL};
    static const char *const one[] = {"hearthname1", "hearthkey1", "hearthvalue1", NULL};
    uint8_t *kept = &chat_traits(c)->calls[json_array_size(c->tools) > 0][content][many];
    if (*kept == KEPT_UNKNOWN)
        *kept = (uint8_t)try_words(
            c,
            (struct turn){.content = content, .many = many, .unanswered = results(c) == KEPT_FAILS},
            many ? two : one);
    return *kept;
}

/* A content that is empty may as well be none. */
static enum content other_than(enum content content)
{
    return content == CONTENT_NONE ? CONTENT_EMPTY : CONTENT_NONE;
}

static bool writes_calls(const struct chat *c, enum content content, bool many)
{
    return calls(c, content, many) == KEPT_WRITTEN ||
           (content != CONTENT_TEXT && calls(c, other_than(content), many) == KEPT_WRITTEN);
}

/* What becomes of a text beside calls: it stays, or becomes the message before them. */
enum aside { ASIDE_UNKNOWN, ASIDE_STAYS, ASIDE_APART, ASIDE_OF_MODEL };

/* Is the text written before the result, and the end as it is without a text? That it is in the
 * prompt until the turn ends is enough: gpt-oss's template has it as a thought. */
static bool is_in_place(const struct jinja_output *o, const struct jinja_output *without)
{
    const size_t text = find_word(o, TEXT), at = find_word(o, "hearthresult1"),
                 other = find_word(without, "hearthresult1");
    return text < at &&
           (!without->bytes || (o->bytes - at == without->bytes - other &&
                                memcmp(o->text + at, without->text + other, o->bytes - at) == 0));
}

/* Gemma 4's template takes two messages of the assistant for one turn, though it ends a turn after
 * a text: the calls stand in none. After one of `model`, as it calls the assistant, they begin a
 * turn: what it writes is the same up to the text's end, and more between that and the calls. */
static bool wants_model(const struct jinja_output *apart, const struct jinja_output *of_model)
{
    const size_t end = find_word(apart, TEXT) + strlen(TEXT);
    return of_model->bytes > apart->bytes && memcmp(apart->text, of_model->text, end) == 0;
}

static enum aside try_text(const struct chat *c, bool many)
{
    static const char *const all[] = {TEXT, "hearthname1", "hearthvalue1", NULL};
    const struct turn bare = {
        .content = calls(c, CONTENT_NONE, many) == KEPT_WRITTEN ? CONTENT_NONE : CONTENT_EMPTY,
        .many = many,
        .ends = true};
    struct turn turn = bare;
    struct jinja_output without = {0}, beside = {0}, apart = {0}, of_model = {0};
    enum aside aside = ASIDE_STAYS;
    render_turn(c, bare, &without);
    turn.content = CONTENT_TEXT;
    if (render_turn(c, turn, &beside) && !is_in_place(&beside, &without)) {
        turn = bare;
        turn.apart = "assistant";
        if (render_turn(c, turn, &apart) && is_in_place(&apart, &without))
            aside = ASIDE_APART;
        turn.apart = "model";
        if (aside == ASIDE_APART && render_turn(c, turn, &of_model) &&
            is_in_place(&of_model, &without) && wants_model(&apart, &of_model))
            aside = ASIDE_OF_MODEL;
        turn.ends = false; /* some refuse what follows */
        turn.apart = aside == ASIDE_OF_MODEL ? turn.apart : "assistant";
        if (try_words(c, turn, all) != KEPT_WRITTEN)
            aside = ASIDE_STAYS;
    }
    jinja_output_fini(&without);
    jinja_output_fini(&beside);
    jinja_output_fini(&apart);
    jinja_output_fini(&of_model);
    return aside;
}

static enum aside aside_of(const struct chat *c, bool many)
{
    uint8_t *aside = &chat_traits(c)->texts[json_array_size(c->tools) > 0][many];
    if (*aside == ASIDE_UNKNOWN)
        *aside = (uint8_t)try_text(c, many);
    return *aside;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void add_json(struct buffer *t, const json_t *value)
{
    char *text = json_shortest(value, JSON_ENCODE_ANY);
    t->failed |= !text;
    buffer_text(t, text ? text : "");
    free(text);
}

static void add_call(struct buffer *t, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *name = json_object_get(function, "name");
    const json_t *arguments = json_object_get(function, "arguments");
    buffer_text(t, "{\"name\": ");
    add_json(t, name ? name : json_null());
    buffer_text(t, ", \"arguments\": ");
    if (json_string_length(arguments)) /* the JSON that the model wrote */
        buffer_add(t, json_string_value(arguments), json_string_length(arguments));
    else if (json_is_object(arguments))
        add_json(t, arguments);
    else
        buffer_text(t, "{}");
    buffer_text(t, "}");
}

/* A value as Python has it, whose texts are JSON's. */
static void add_python_value(struct buffer *t, json_t *value)
{
    const bool list = json_is_array(value);
    const char *key, *comma = "";
    json_t *one;
    size_t i;
    if (json_is_boolean(value) || json_is_null(value)) {
        buffer_text(t, json_is_null(value) ? "None" : json_is_true(value) ? "True" : "False");
        return;
    }
    if (!list && !json_is_object(value)) {
        add_json(t, value);
        return;
    }
    buffer_text(t, list ? "[" : "{");
    json_array_foreach(value, i, one) {
        buffer_text(t, i ? ", " : "");
        add_python_value(t, one);
    }
    json_object_foreach(value, key, one) {
        buffer_text(t, comma);
        quote_text(t, key, strlen(key));
        buffer_text(t, ": ");
        add_python_value(t, one);
        comma = ", ";
    }
    buffer_text(t, list ? "]" : "}");
}

static void add_python_call(struct buffer *t, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *name = json_object_get(function, "name");
    const json_t *given = json_object_get(function, "arguments");
    const char *key, *comma = "";
    json_t *arguments =
        json_is_string(given)
            ? json_mend(json_string_value(given), json_string_length(given), JSON_ALLOW_NUL, NULL)
            : json_incref((json_t *)(uintptr_t)given);
    json_t *value;
    buffer_add(t, json_string_value(name), json_string_length(name));
    buffer_text(t, "(");
    if (json_string_length(given) && !json_is_object(arguments)) /* what the model wrote */
        buffer_add(t, json_string_value(given), json_string_length(given));
    json_object_foreach(arguments, key, value) {
        const bool plain = *key && reader_python_key(key, strlen(key)) == strlen(key);
        buffer_text(t, comma);
        comma = ", ";
        if (plain) {
            buffer_format(t, "%s=", key);
        } else {
            buffer_text(t, "**{");
            quote_text(t, key, strlen(key));
            buffer_text(t, ": ");
        }
        add_python_value(t, value);
        buffer_text(t, plain ? "" : "}");
    }
    buffer_text(t, ")");
    json_decref(arguments);
}

static void add_python_calls(struct buffer *t, const struct call_form *f, const json_t *list)
{
    size_t i;
    const json_t *call;
    buffer_format(t, "%s[", f->open);
    json_array_foreach(list, i, call) {
        buffer_text(t, i ? ", " : "");
        add_python_call(t, call);
    }
    buffer_format(t, "]%s", f->close);
}

/* Each call between marks, or a list of them after one. */
static void add_calls(const struct chat *c, struct buffer *t, const json_t *list)
{
    const struct call_form *f = chat_form_calls(c);
    bool known = f && f->body == CALL_JSON, alone = !known || f->close;
    const char *open = known ? f->open : "<tool_call>";
    size_t i;
    const json_t *call;
    if (f && f->body == CALL_PYTHON) {
        add_python_calls(t, f, list);
        return;
    }
    json_array_foreach(list, i, call) {
        buffer_text(t, i ? alone ? "\n" : ", " : "");
        if (alone)
            buffer_format(t, "%s\n", open);
        else if (i == 0)
            buffer_format(t, "%s[", open);
        add_call(t, call);
        if (alone)
            buffer_format(t, "\n%s", known ? f->close : "</tool_call>");
    }
    buffer_text(t, alone ? "" : "]");
}

/* The text follows a content, in a line of its own, or as a part. */
static json_t *with_text(const json_t *content, const struct buffer *text)
{
    struct buffer all = {0};
    if (text->failed)
        return NULL;
    if (json_is_array(content)) {
        json_t *parts = chat_copy((json_t *)(uintptr_t)content);
        json_t *part = json_pack("{s:s, s:s%}", "type", "text", "text", text->data, text->bytes);
        if (parts && json_array_append_new(parts, part) == 0)
            return parts;
        json_decref(parts);
        return NULL;
    }
    buffer_add(&all, json_string_value(content), json_string_length(content));
    buffer_text(&all, all.bytes ? "\n" : "");
    buffer_add(&all, text->data, text->bytes);
    json_t *joined = all.failed ? NULL : json_stringn_nocheck(all.data, all.bytes);
    buffer_fini(&all);
    return joined;
}

static enum content content_of(const json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    if (!content || json_is_null(content))
        return CONTENT_NONE;
    return json_string_length(content) || json_array_size(content) ? CONTENT_TEXT : CONTENT_EMPTY;
}

static bool is_result(const json_t *m)
{
    return m && strcmp(json_string_value(json_object_get(m, "role")), "tool") == 0;
}

/* Which call each of the messages of tools after messages[at] answers: one that answers none
 * follows the first that has no answer. */
static void match_results(const struct chat *c, size_t at, const json_t *list, size_t n_results,
                          size_t *ret)
{
    const size_t n = json_array_size(list);
    bool answered[CHAT_MOST_CALLS + 1] = {false};
    chat_match_results(list, c->messages, at + 1, n_results, ret);
    for (size_t i = 0; i < n_results; i++)
        answered[ret[i]] = true;
    for (size_t i = 0; i < n_results; i++) {
        size_t k = 0;
        if (ret[i] < n)
            continue;
        while (k < n - 1 && answered[k])
            k++;
        ret[i] = k;
        answered[k] = true;
    }
}

/* The messages of a turn with one call each, each followed by its results. */
static json_t *one_by_one(const struct chat *c, size_t at, size_t n_results)
{
    json_t *m = json_array_get(c->messages, at), *all = json_array();
    json_t *list = json_object_get(m, "tool_calls");
    const size_t n = json_array_size(list);
    size_t of[CHAT_MOST_CALLS];
    bool ok = all != NULL;
    match_results(c, at, list, n_results, of);
    for (size_t k = 0; ok && k < n; k++) {
        json_t *one = k ? json_pack("{s:s,s:n}", "role", "assistant", "content") : chat_copy(m);
        json_t *calls_of_one = json_pack("[O]", json_array_get(list, k));
        ok = one && json_object_set_new(one, "tool_calls", calls_of_one) == 0;
        ok = json_array_append_new(all, one) == 0 && ok;
        for (size_t i = 0; ok && i < n_results; i++)
            if (of[i] == k)
                ok = json_array_append(all, json_array_get(c->messages, at + 1 + i)) == 0;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

/* Do several calls of messages[at] become a message each, since the template takes no more? *ret_n:
 * how many results follow them. */
static bool is_split(const struct chat *c, size_t at, size_t *ret_n)
{
    const json_t *m = json_array_get(c->messages, at);
    const enum content content = content_of(m);
    const size_t n_calls = json_array_size(json_object_get(m, "tool_calls"));
    *ret_n = 0;
    if (n_calls < 2 || n_calls > CHAT_MOST_CALLS || writes_calls(c, content, true) ||
        !writes_calls(c, content, false))
        return false;
    while (*ret_n < CHAT_MOST_CALLS && is_result(json_array_get(c->messages, at + 1 + *ret_n)))
        ++*ret_n;
    return true;
}

/* Appends all messages, those whose calls are split as several. */
static int split_calls(const struct chat *c, json_t *all)
{
    size_t n;
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(c->messages); i++) {
        if (is_split(c, i, &n)) {
            json_t *split = one_by_one(c, i, n);
            rc = !split || json_array_extend(all, split);
            json_decref(split);
            i += n;
        } else {
            rc = json_array_append(all, json_array_get(c->messages, i));
        }
    }
    return rc ? -ENOMEM : 0;
}

static bool has_words(const json_t *content)
{
    const char *text = json_string_value(content);
    return text ? text[strspn(text, " \t\r\n")] != 0 : json_array_size(content) > 0;
}

/* A text beside calls becomes a message before them, which is appended to *all, where the template
 * writes it only there. */
static int split_text(const struct chat *c, json_t *m, json_t *all)
{
    json_t *content = json_object_get(m, "content");
    const size_t n = json_array_size(json_object_get(m, "tool_calls"));
    if (!n || !has_words(content) || calls(c, CONTENT_TEXT, n > 1) != KEPT_WRITTEN ||
        aside_of(c, n > 1) == ASIDE_STAYS)
        return 0;
    const char *role = aside_of(c, n > 1) == ASIDE_OF_MODEL ? "model" : "assistant";
    json_t *text = json_pack("{s:s,s:O}", "role", role, "content", content);
    return json_array_append_new(all, text) || json_object_set_new(m, "content", json_null())
               ? -ENOMEM
               : 0;
}

static int keep(const struct chat *c, json_t *m)
{
    const json_t *list = json_object_get(m, "tool_calls");
    const enum content content = content_of(m), other = other_than(content);
    const bool many = json_array_size(list) > 1;
    struct buffer text = {0};
    if (!json_array_size(list))
        return 0;
    if (content == CONTENT_NONE && calls(c, CONTENT_EMPTY, many) == KEPT_WRITTEN)
        return json_object_set_new(m, "content", json_string("")) ? -ENOMEM : 0; /* not "None" */
    enum kept kept = calls(c, content, many);
    if (kept != KEPT_WRITTEN && content != CONTENT_TEXT && calls(c, other, many) == KEPT_WRITTEN)
        return json_object_set_new(m, "content",
                                   other == CONTENT_NONE ? json_null() : json_string(""))
                   ? -ENOMEM
                   : 0;
    if (kept == KEPT_FAILS && content != CONTENT_TEXT)
        kept = calls(c, other, many);
    if (kept == KEPT_FAILS && results(c) == KEPT_FAILS) /* of any kind */
        kept = KEPT_LOST;
    if (kept != KEPT_LOST) /* one that fails says why when the conversation is rendered */
        return 0;
    add_calls(c, &text, list);
    int rc = json_object_set_new(m, "content", with_text(json_object_get(m, "content"), &text));
    buffer_fini(&text);
    json_object_del(m, "tool_calls");
    return rc ? -ENOMEM : 0;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Appends what results that follow each other say. */
static int append_shown(json_t *all, struct buffer *shown)
{
    if (!shown->bytes && !shown->failed)
        return 0;
    json_t *m = shown->failed ? NULL
                              : json_pack("{s:s,s:o}", "role", "user", "content",
                                          json_stringn_nocheck(shown->data, shown->bytes));
    buffer_fini(shown);
    *shown = (struct buffer){0};
    return json_array_append_new(all, m) ? -ENOMEM : 0;
}

/* The result as a text of the user. A content that has more than texts stays, in a message of its
 * own. */
static int show_result(const struct chat *c, json_t *m, struct buffer *shown, json_t *all)
{
    json_t *content = json_object_get(m, "content");
    json_t *text = json_is_array(content) ? chat_join_parts(c, content) : json_incref(content);
    int rc = 0;
    if (json_is_array(content) && !text) {
        rc = append_shown(all, shown) || json_array_append(all, m) ||
             json_object_set_new(m, "role", json_string("user"));
        json_object_del(m, "name"); /* the tool's */
    } else {
        buffer_text(shown, shown->bytes ? "\n<tool_response>\n" : "<tool_response>\n");
        buffer_add(shown, json_string_value(text), json_string_length(text));
        buffer_text(shown, "\n</tool_response>");
    }
    json_decref(text);
    return rc ? -ENOMEM : 0;
}

/* Results that follow each other become one message: some templates want user and assistant in
 * turn. */
static int show_results(const struct chat *c, json_t *all)
{
    struct buffer shown = {0};
    size_t i;
    json_t *m;
    int rc = 0;
    json_array_foreach(c->messages, i, m) {
        if (!rc && is_result(m))
            rc = show_result(c, m, &shown, all);
        else if (!rc)
            rc = append_shown(all, &shown) || json_array_append(all, m) ? -ENOMEM : 0;
    }
    if (!rc)
        rc = append_shown(all, &shown);
    buffer_fini(&shown);
    return rc;
}

/* A result that answers none of these calls becomes a text of the user where the template has no
 * place for it. */
static int keep_orphan(const struct chat *c, json_t *m, const json_t *list, json_t *all)
{
    const json_t *id = json_object_get(m, "tool_call_id"), *call;
    size_t i;
    struct buffer shown = {0};
    json_array_foreach(list, i, call) {
        if (i == CHAT_MOST_CALLS ||
            (json_is_string(id) && json_equal(id, json_object_get(call, "id"))))
            return json_array_append(all, m);
    }
    if (orphans(c) == KEPT_WRITTEN)
        return json_array_append(all, m);
    return show_result(c, m, &shown, all) || append_shown(all, &shown);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* *all, which is empty then, becomes c->messages. */
static int put_messages(struct chat *c, json_t *all)
{
    return json_array_clear(c->messages) || json_array_extend(c->messages, all) ||
                   json_array_clear(all)
               ? -ENOMEM
               : 0;
}

static int keep_all(struct chat *c, json_t *all)
{
    bool has_results = false;
    size_t i;
    json_t *m, *last = NULL; /* the calls before */
    int rc = split_calls(c, all);
    rc = rc ? rc : put_messages(c, all);
    json_array_foreach(c->messages, i, m) {
        json_t *list = json_object_get(m, "tool_calls");
        if (is_result(m)) {
            rc = rc || keep_orphan(c, m, last, all) ? -ENOMEM : 0;
            has_results = true;
            continue;
        }
        if (json_array_size(list)) {
            json_decref(last);
            last = json_incref(list);
        }
        rc = rc ? rc : split_text(c, m, all);
        rc = rc ? rc : keep(c, m);
        rc = rc || json_array_append(all, m) ? -ENOMEM : 0;
    }
    json_decref(last);
    rc = rc ? rc : put_messages(c, all);
    if (rc || !has_results || results(c) == KEPT_WRITTEN)
        return rc;
    rc = show_results(c, all);
    return rc ? rc : put_messages(c, all);
}

int chat_keep_calls(struct chat *c)
{
    json_t *all = json_array();
    const int rc = all ? keep_all(c, all) : -ENOMEM;
    json_decref(all);
    return rc;
}
