/* chat_grammar: see chat_grammar.h. */
#include "client/prompt/chat_grammar.h"

#include "client/prompt/chat_adapt.h"
#include "client/prompt/chat_calls.h"
#include "ipc/params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const json_t *chat_tool(const json_t *description)
{
    const json_t *function = json_object_get(description, "function");
    return function ? function : description;
}

static bool is_strict(const json_t *tool)
{
    return json_is_true(json_object_get(tool, "strict"));
}

bool chat_grammar_binds(const struct chat *c, const json_t *tool)
{
    return c->choice == HEARTH_TOOLS_REQUIRED || is_strict(tool);
}

static bool is_named(const struct chat *c, const json_t *tool)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    return name && (!c->tool_name || strcmp(name, c->tool_name) == 0);
}

/* Is a grammar needed for calls? -EINVAL where the chat asks for a call that cannot be. */
static int is_needed(const struct chat *c)
{
    bool required = c->choice == HEARTH_TOOLS_REQUIRED, strict = false, found = false;
    size_t i;
    const json_t *description;
    if (c->choice == HEARTH_TOOLS_NONE)
        return 0;
    json_array_foreach(c->tools, i, description) {
        strict |= is_strict(chat_tool(description));
        found |= is_named(c, chat_tool(description));
    }
    if (required && !json_array_size(c->tools))
        return handle_fail(c->h, -EINVAL, "tool_choice asks for a call, and there are no tools");
    if (required && !found)
        return handle_fail(c->h, -EINVAL,
                           "tool_choice names '%.64s', which is not one of the tools",
                           c->tool_name ? c->tool_name : "");
    return json_array_size(c->tools) && (required || strict || c->single_call);
}

/* The text that marks the beginning of a call. */
static const char *call_begins(const struct call_form *f)
{
    return f->body == CALL_HARMONY ? " to=functions." : call_form_opening(f);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* From where one call begins in the list that `open` begins. */
static void add_call(struct chat_calls *b, struct buffer *t, const char *named)
{
    const struct call_form *f = b->form;
    if (f->open && f->call_open)
        chat_calls_mark(b, t, f->call_open);
    if (f->prefix)
        chat_calls_mark(b, t, f->prefix);
    schema_format(&b->c, t, " %s", named);
}

/* What follows the opening mark, to its closing one. */
static const char *add_block(struct chat_calls *b)
{
    const struct call_form *f = b->form;
    bool single = b->chat->single_call;
    struct buffer call = {0}, t = {0};
    const char *named = chat_calls_named(b);
    add_call(b, &call, named);
    const char *one = schema_rule(&b->c, NULL, "one", schema_get(&call));
    if (f->body != CALL_PYTHON)
        schema_format(&b->c, &t, f->body == CALL_HARMONY ? "%s" : "blank %s", one);
    if (f->open && f->call_open && *f->call_open && !single)
        schema_format(&b->c, &t, " ( blank %s )*", one);
    if ((f->body == CALL_JSON && !f->bare) || f->body == CALL_PYTHON) {
        /* a list begins no call where one may be bare */
        schema_format(&b->c, &t, "%sblank \"[\" blank %s", t.bytes ? " | " : "", one);
        if (!single)
            schema_format(&b->c, &t, " ( blank \",\" blank %s )*", one);
        schema_add(&b->c, &t, " blank \"]\"");
    }
    const char *inner = schema_rule(&b->c, NULL, "list", schema_get(&t));
    buffer_fini(&t);
    t = (struct buffer){0};
    schema_add(&b->c, &t, inner);
    if (f->close) {
        schema_add(&b->c, &t, " blank");
        chat_calls_mark(b, &t, f->close);
    }
    const char *got = schema_rule(&b->c, NULL, "block", schema_get(&t));
    buffer_fini(&call);
    buffer_fini(&t);
    return got;
}

/* In harmony a message may hold thoughts, then one calls, or (`beside`) follows an own grammar. */
static void add_harmony(struct chat_calls *b, struct buffer *t, const char *block, bool from_start,
                        bool beside)
{
    if (from_start) {
        schema_add(&b->c, t, "(");
        chat_calls_mark(b, t, "<|channel|>analysis<|message|>");
        schema_add(&b->c, t, " [\\x00-\\U0010FFFF]*");
        chat_calls_mark(b, t, "<|end|><|start|>assistant");
        schema_add(&b->c, t, " )?");
        if (beside) { /* without its header where the prompt has that */
            schema_add(&b->c, t, " ( (");
            chat_calls_mark(b, t, "<|channel|>final");
            schema_add(&b->c, t, " ( \" \"?");
            chat_calls_mark(b, t, "<|constrain|>");
            schema_add(&b->c, t, " \"json\" )?");
            chat_calls_mark(b, t, "<|message|>");
            schema_add(&b->c, t, " )? _root |");
        }
        schema_add(&b->c, t, " ( \" \" |");
        chat_calls_mark(b, t, "<|channel|>commentary ");
        schema_add(&b->c, t, " ) \"to=functions.\"");
    }
    schema_format(&b->c, t, " %s%s", block, beside ? " )" : "");
}

/* An answer that does not begin with {"name": what follows the beginning that it shares with that. */
static void add_other(struct chat_calls *b, struct buffer *t)
{
    static const char begin[] = "\"name\"";
    schema_add(&b->c, t,
               " | blank [^{ \\t\\r\\n] [\\x00-\\U0010FFFF]* | blank \"{\" blank ( [^\\\" "
               "\\t\\r\\n] [\\x00-\\U0010FFFF]*");
    for (size_t i = 1; begin[i]; i++) {
        schema_add(&b->c, t, " | ");
        schema_literal(&b->c, t, begin, i);
        schema_add(&b->c, t, " [^");
        schema_escape(&b->c, t, begin + i, 1);
        schema_add(&b->c, t, "] [\\x00-\\U0010FFFF]*");
    }
    schema_add(&b->c, t, " )");
}

/* `beside`: the answer is calls, or follows an own grammar. The blanks that a model writes after a
 * thought may come before both: before calls alone they would choose calls. */
static void add_root(struct chat_calls *b, const char *block, bool beside)
{
    const struct call_form *f = b->form;
    bool required = b->chat->choice == HEARTH_TOOLS_REQUIRED;
    bool from_start = required || f->bare || beside;
    struct buffer t = {0};
    if (b->chat->choice == HEARTH_TOOLS_NONE) {
        schema_add(&b->c, &t, "blank");
        add_other(b, &t);
    } else if (f->body == CALL_HARMONY) {
        add_harmony(b, &t, block, from_start, beside);
    } else {
        schema_add(&b->c, &t, (beside ? b->thinks : from_start) ? "blank" : "");
        schema_add(&b->c, &t, beside ? " ( _root | " : "");
        if (from_start && f->bare)
            schema_add(&b->c, &t, " (");
        if (from_start)
            chat_calls_mark(b, &t, call_form_opening(f));
        if (from_start && f->bare)
            schema_add(&b->c, &t, " )?");
        schema_format(&b->c, &t, " %s", block);
        if (!b->chat->single_call && (f->close || !f->open)) {
            schema_add(&b->c, &t, " ( blank");
            chat_calls_mark(b, &t, call_form_opening(f));
            schema_format(&b->c, &t, " %s )*", block);
        }
        schema_add(&b->c, &t, beside ? " blank )" : " blank");
        if (f->bare && !required && !beside)
            add_other(b, &t);
    }
    schema_rule(&b->c, "root", "root", schema_get(&t));
    buffer_fini(&t);
}

/* `binds`: calls are bound without an own grammar, too. Where rules for calls beside one cannot be
 * made, there are none. */
static int write_grammar(const struct chat *c, const struct reader_desc *desc, bool binds,
                         struct chat_grammar *ret)
{
    char err[300] = "";
    struct chat_calls b = {.chat = c, .form = desc->form, .thinks = desc->thinks};
    b.c.err = err;
    b.c.err_bytes = sizeof(err);
    int rc = schema_open(&b.c);
    if (!rc) {
        b.c.loosened = json_array();
        schema_rule(&b.c, NULL, "blank", "[ \\t\\r\\n]{0,8}");
        schema_builtin(&b.c, "value", NULL);
        schema_builtin(&b.c, "integer", NULL);
        const char *block = c->choice == HEARTH_TOOLS_NONE ? NULL : add_block(&b);
        if (binds) {
            add_root(&b, block, false);
            schema_write(&b.c, &ret->text);
            ret->loosened = json_incref(b.c.loosened);
            rc = b.c.rc;
        }
        if (c->choice == HEARTH_TOOLS_AUTO) {
            add_root(&b, block, true);
            schema_write(&b.c, &ret->beside);
            ret->begins = call_begins(desc->form);
        }
    }
    if (b.c.rc)
        buffer_fini(&ret->beside);
    schema_close(&b.c);
    if (rc)
        handle_fail(c->h, rc, "the grammar of calls: %s", err);
    return rc;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void add_mark(struct chat_grammar *g, uint32_t kind, const char *text, uint32_t open,
                     int32_t tokens)
{
    g->marks[g->n_marks++] =
        (struct hearth_mark){.kind = kind, .text = text, .open = open, .tokens = tokens};
}

#define THOUGHT "hearththought"
#define SAID "hearthsaid"

/* What the template writes between a thought and what is said after it, into *t: found in a
 * conversation of it with the caller's variables, of which it may have nothing: its tokens are put
 * into the answer. Else the end of a thought on a line of its own. */
static void find_closing(const struct chat *c, const char *close, struct buffer *t)
{
    struct jinja_output o = {0};
    const char *thought = NULL, *said = NULL, *end;
    struct chat probe = chat_probe_begin(c, json_array_size(c->tools) > 0);
    probe.extra = c->extra;
    if (chat_form_render(
            &probe,
            "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":"
            "\"" SAID "\",\"reasoning_content\":\"" THOUGHT "\",\"thinking\":\"" THOUGHT "\"}]",
            false, &o)) {
        thought = memmem(o.text, o.bytes, THOUGHT, strlen(THOUGHT));
        end = o.text + o.bytes;
        if (thought) {
            thought += strlen(THOUGHT);
            said = memmem(thought, (size_t)(end - thought), SAID, strlen(SAID));
        }
    }
    if (said && memmem(thought, (size_t)(said - thought), close, strlen(close)) &&
        !chat_form_has_input(&o, (size_t)(thought - o.text), (size_t)(said - o.text))) {
        buffer_add(t, thought, (size_t)(said - thought));
    } else {
        buffer_format(t, "\n%s\n\n", close);
    }
    jinja_output_fini(&o);
    chat_probe_end(&probe);
}

/* A text as tokens that follow others: some vocabularies put a blank before a text, so it is put
 * after a letter. Returns how many, or -errno. */
static int64_t tokenize_inside(struct hearth *h, const struct buffer *text, uint32_t *ids,
                               size_t max)
{
    enum { LETTER_MOST = 4 };
    struct buffer t = {0};
    uint32_t letter[LETTER_MOST], all[PARAMS_CLOSING_MAX + LETTER_MOST];
    buffer_format(&t, "a%s", text->data);
    int64_t n = t.failed ? -ENOMEM
                         : hearth_tokenize(h, t.data, t.bytes, HEARTH_SPECIAL, all,
                                           sizeof(all) / sizeof(all[0]));
    int64_t k = hearth_tokenize(h, "a", 1, 0, letter, LETTER_MOST);
    buffer_fini(&t);
    if (n < 0 || k < 0)
        return n < 0 ? n : k;
    if (k > LETTER_MOST || n < k || memcmp(all, letter, (size_t)k * sizeof(*all)) != 0)
        return hearth_tokenize(h, text->data, text->bytes, HEARTH_SPECIAL, ids, max);
    if (n - k <= (int64_t)max)
        memcpy(ids, all + k, (size_t)(n - k) * sizeof(*ids));
    return n - k;
}

static int make_closing(const struct chat *c, const char *close, struct chat_grammar *g)
{
    struct buffer t = {0};
    uint32_t ids[PARAMS_CLOSING_MAX];
    find_closing(c, close, &t);
    int64_t n = t.failed ? -ENOMEM : tokenize_inside(c->h, &t, ids, PARAMS_CLOSING_MAX);
    buffer_fini(&t);
    if (n < 0)
        return (int)n;
    if (n == 0 || n > (int64_t)PARAMS_CLOSING_MAX)
        return handle_fail(
            c->h, -ENOTSUP,
            "thinking_tokens: a thought of this template has no end of 1 to %u tokens",
            PARAMS_CLOSING_MAX);
    g->closing = malloc((size_t)n * sizeof(*ids));
    if (!g->closing)
        return -ENOMEM;
    memcpy(g->closing, ids, (size_t)n * sizeof(*ids));
    g->n_closing = (uint32_t)n;
    return 0;
}

static int add_thoughts(const struct chat *c, const struct reader_desc *desc,
                        struct chat_grammar *g)
{
    bool harmony = desc->form && desc->form->body == CALL_HARMONY;
    const char *open = harmony ? "<|channel|>analysis" : desc->thoughts->open;
    const char *close = harmony ? "<|end|>" : desc->thoughts->close;
    int rc = c->thinking_tokens < 0 ? 0 : make_closing(c, close, g);
    if (rc)
        return rc;
    add_mark(g, HEARTH_MARK_THOUGHT, open, desc->thinks, c->thinking_tokens);
    add_mark(g, HEARTH_MARK_THOUGHT_END, close, 0, 0);
    return 0;
}

/* The token that a mark is, or a control token in it: no call begins without it. The model can still
 * write the mark in other tokens; what it then says is content. */
static void ban(const struct vocab *v, const char *mark, struct chat_grammar *g)
{
    for (uint32_t i = 0; mark && i < v->n_specials; i++) {
        struct vocab_token t;
        if (g->n_banned == CHAT_MOST_BANNED || !vocab_find_token(v, v->specials[i], &t) || t.end ||
            !t.text_bytes || !memmem(mark, strlen(mark), t.text, t.text_bytes) ||
            (t.type != VOCAB_TYPE_CONTROL && t.text_bytes != strlen(mark)))
            continue;
        g->banned[g->n_banned++] = v->specials[i];
    }
}

int chat_grammar_make(const struct chat *c, const struct reader_desc *desc,
                      struct chat_grammar *ret)
{
    int needed = is_needed(c), rc = 0;
    *ret = (struct chat_grammar){.required = c->choice == HEARTH_TOOLS_REQUIRED};
    if (needed < 0)
        return needed;
    if (ret->required && !desc->form)
        return handle_fail(c->h, -ENOTSUP,
                           "the model's chat template writes calls in no known form, so none "
                           "can be required: leave tool_choice out");
    bool none = c->choice == HEARTH_TOOLS_NONE && c->tools && desc->form;
    bool binds = (needed || (none && desc->form->bare)) && desc->form;
    bool chooses = c->choice == HEARTH_TOOLS_AUTO && json_array_size(c->tools) && desc->form;
    if (binds || chooses)
        rc = write_grammar(c, desc, binds, ret);
    if (!rc && desc->thoughts && (c->thinking_tokens >= 0 || binds || desc->thinks))
        rc = add_thoughts(c, desc, ret);
    ret->n_thought_marks = ret->n_marks;
    if (none) {
        ban(&c->h->vocab, call_form_opening(desc->form), ret);
        ban(&c->h->vocab, call_form_alone(desc->form), ret);
    }
    if (!rc && binds && !ret->required && !desc->form->bare)
        add_mark(ret, HEARTH_MARK_CALL, call_begins(desc->form), 0, 0);
    return rc;
}

/* ---- beside a grammar of the request's own --------------------------------------------------- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Adds GBNF with _ before each name of a rule. Returns false where it has a control token (<[id]>),
 * or a literal or class that does not end. */
static bool add_renamed(struct buffer *t, const char *text, size_t bytes)
{
    bool counts = false; /* inside of {m,n} */
    for (size_t i = 0, from = 0; i < bytes; from = i) {
        const char c = text[i++], close = c == '[' ? ']' : c;
        if (c == '<')
            return false;
        if (c == '"' || c == '[') {
            while (i < bytes && text[i] != close)
                i += text[i] == '\\' ? 2 : 1;
            if (i++ >= bytes)
                return false;
        } else if (c == '#') {
            while (i < bytes && text[i] != '\n' && text[i] != '\r')
                i++;
        } else if (c == '{' || c == '}') {
            counts = c == '{';
        } else if (is_name(c) && !counts) {
            while (i < bytes && is_name(text[i]))
                i++;
            buffer_text(t, "_");
        }
        buffer_add(t, text + from, i - from);
    }
    return true;
}

bool chat_grammar_join(const struct chat_grammar *g, const char *own, size_t bytes,
                       struct buffer *ret)
{
    if (!g->beside.bytes || !bytes || memmem(own, bytes, g->begins, strlen(g->begins)))
        return false;
    buffer_add(ret, g->beside.data, g->beside.bytes);
    return add_renamed(ret, own, bytes) && ret->bytes <= SCHEMA_GRAMMAR_MAX;
}

void chat_grammar_fini(struct chat_grammar *g)
{
    buffer_fini(&g->text);
    buffer_fini(&g->beside);
    json_decref(g->loosened);
    free(g->closing);
    *g = (struct chat_grammar){0};
}
