/* Fuzzes the grammars of calls of tools: the first byte chooses the form of calls (family.h), the second
 * what is asked for and whether marks are control tokens, the others make the tools' schemas, then an
 * answer that the grammar takes. The grammar compiles, or is refused for its size; the answer is read
 * as calls of these tools, of which nothing is left over; and where nothing of the schemas was loosened,
 * the arguments follow them. */
#include "client/prompt/chat_grammar.h"
#include "client/schema/schema_fits.h"
#include "daemon/grammar/grammar.h"
#include "tests/fuzz/family.h"
#include "tests/fuzz/make_schema.h"
#include "tests/rig/tiny_vocab.h"
#include "tests/rig/grammar_whole.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TOOLS = 2, STEPS = 600, IDS = 320, MERGED = 256 };
enum { REQUIRED = 1, SINGLE = 2, STRICT = 4, CONTROL = 8, TWO = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static const char *const control[] = {
    "<tool_call>",  "</tool_call>", "<|tool_call>",        "<tool_call|>",      "<|\"|>",
    "<|channel|>",  "<|message|>",  "<|constrain|>",       "<|start|>",         "<|end|>",
    "[TOOL_CALLS]", "[ARGS]",       "<|python_tag|>",      "<|tool_call|>",     "<arg_key>",
    "</arg_key>",   "<arg_value>",  "</arg_value>",        "<|tool_call_end|>", "<TOOLCALL>",
    "<|return|>",   "<|call|>",     "<|tool_call_start|>",
};
enum { N_CONTROL = sizeof(control) / sizeof(control[0]) };

/* A vocabulary for the library and the daemon: a token for each byte, marks, and an end. */
struct sides {
    struct hearth h;
    struct grammar_vocab *v;
    uint32_t n; /* the end token's id */
};

static void open_sides(struct sides *s, uint32_t n_control)
{
    static struct tiny tiny;
    static char bytes[256];
    struct grammar_token tokens[IDS];
    char err[200];
    void *block;
    size_t n_bytes;
    tiny_init_bpe(&tiny, "gpt-2");
    for (s->n = 0; s->n < 256; s->n++) {
        bytes[s->n] = (char)s->n;
        tokens[s->n] = (struct grammar_token){.bytes = &bytes[s->n], .n_bytes = 1};
    }
    tokens[s->n++] = (struct grammar_token){.bytes = "ab", .n_bytes = 2};
    must(tiny_merge(&tiny, "a", "b") == MERGED);
    for (uint32_t i = 0; i < n_control; i++) {
        must(tiny_add(&tiny, control[i], VOCAB_TYPE_CONTROL, 0) == s->n);
        tokens[s->n++] = (struct grammar_token){.is_control = true};
    }
    must(vocab_build(&tiny.desc, &block, &n_bytes, err, sizeof(err)) == 0);
    must(vocab_open(block, n_bytes, &s->h.vocab, err, sizeof(err)) == 0);
    tokens[s->n] = (struct grammar_token){.is_end = true};
    must(grammar_vocab_open(tokens, s->n + 1, s->n + 1, &s->v) == 0);
}

/* ---- tools ----------------------------------------------------------------------------------- */

static void put_tool(struct made *m, int i, bool strict)
{
    made_put(m, i ? ",{\"function\":{\"name\":\"fo\"" : "{\"function\":{\"name\":\"f\"");
    made_put(m, strict ? ",\"strict\":true,\"parameters\":" : ",\"parameters\":");
    if (made_take(m) % 4) {
        made_put(m, "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":");
        made_schema(m, 0);
        made_put(m, ",\"ab\":");
        made_schema(m, 0);
        made_put(m, "},\"$defs\":{\"a\":");
        made_schema(m, 0);
        made_put(m, "}}");
    } else {
        made_schema(m, 0);
    }
    made_put(m, "}}");
}

static json_t *make_tools(struct made *m, uint8_t asked)
{
    m->n_keywords = MADE_KEYWORDS;
    made_put(m, "[");
    for (int i = 0; i < (asked & TWO ? TOOLS : 1); i++)
        put_tool(m, i, (asked & STRICT) != 0);
    made_put(m, "]");
    return json_loadb(m->text, m->bytes, 0, NULL);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool has(const struct grammar_mask *mask, uint32_t id)
{
    return (mask->bits[id >> 6] >> (id & 63) & 1) != 0;
}

/* The next token: by the input, and after its end so that the answer ends soon. `close`: what closes
 * an argument, from *at on. */
static uint32_t choose(struct made *m, const struct grammar_mask *mask, uint32_t end,
                       const char *close, size_t *at)
{
    static const char soon[] = "}]\"<>0a,: ";
    uint32_t id = 0, left = made_take(m) % mask->n_allowed;
    if (m->at < m->end) {
        while (!has(mask, id) || left--)
            id++;
        return id;
    }
    if (has(mask, end))
        return end;
    if (close && close[*at] && has(mask, (uint8_t)close[*at]))
        return (uint8_t)close[(*at)++];
    *at = 0;
    for (id = end; id-- > MERGED + 1;)
        if (has(mask, id))
            return id;
    for (const char *c = soon; *c; c++)
        if (has(mask, (uint8_t)*c))
            return (uint8_t)*c;
    for (id = 0; !has(mask, id);)
        id++;
    return id;
}

/* Whether it came to an end. */
static bool write_answer(const struct sides *s, struct grammar *g, struct made *m,
                         const char *close, struct buffer *t)
{
    struct grammar_run run;
    struct grammar_mask mask;
    size_t at = 0;
    bool ended = false;
    grammar_begin(g, false, &run);
    for (int i = 0; i < STEPS && !ended; i++) {
        int64_t budget = INT64_MAX;
        if (grammar_mask(&run, 0, &budget, &mask) != 1 || !mask.n_allowed)
            break;
        uint32_t id = choose(m, &mask, s->n, close, &at);
        ended = id == s->n;
        int rc = grammar_accept(&run, id);
        must(rc == 0 || rc == -E2BIG);
        if (rc)
            break;
        if (!ended && id > MERGED)
            buffer_text(t, control[id - MERGED - 1]);
        else if (!ended && id == MERGED)
            buffer_text(t, "ab");
        else if (!ended)
            buffer_add(t, &(char){(char)id}, 1);
    }
    grammar_release(g);
    grammar_end(&run);
    return ended;
}

static size_t count(const struct buffer *t, const char *mark)
{
    size_t n = 0;
    const char *end = t->data + t->bytes;
    for (const char *at = t->data; (at = memmem(at, (size_t)(end - at), mark, strlen(mark))); n++)
        at += strlen(mark);
    return n;
}

/* Between tags a text within a JSON value may hold the closing tag, which no grammar forbids: the
 * reader takes the first one. */
static bool is_ambiguous(const struct call_form *f, const struct buffer *t)
{
    return f->body == CALL_TAGS && count(t, f->param_open) != count(t, f->param_close);
}

/* ---- what is promised ------------------------------------------------------------------------ */

/* A call that ended: of a tool, whose schema the arguments follow where it binds. */
static void check_call(const struct chat *c, bool exact, const struct buffer *name,
                       const struct buffer *arguments)
{
    const json_t *tool = NULL;
    char why[160];
    for (size_t i = 0; i < json_array_size(c->tools); i++) {
        const json_t *one = chat_tool(json_array_get(c->tools, i));
        const char *own = json_string_value(json_object_get(one, "name"));
        if (strlen(own) == name->bytes && memcmp(own, name->data, name->bytes) == 0)
            tool = one;
    }
    must(tool != NULL);
    json_t *value = json_loadb(arguments->data, arguments->bytes, JSON_ALLOW_NUL, NULL);
    if (value) { /* it may have numbers that are out of range */
        size_t steps = SCHEMA_FITS_STEPS;
        bool fits =
            schema_fits(json_object_get(tool, "parameters"), value, &steps, why, sizeof(why));
        must(fits || !exact || !chat_grammar_binds(c, tool));
    }
    json_decref(value);
}

static void read_answer(const struct chat *c, const struct reader_desc *desc, bool exact,
                        const struct buffer *t)
{
    struct reader *r = reader_open(desc);
    struct reader_event e;
    struct buffer name = {0}, arguments = {0};
    uint32_t ended = 0;
    must(r && reader_feed(r, t->data, t->bytes) == 0 && reader_finish(r) == 0);
    while (reader_next(r, &e)) {
        if (e.kind == READER_CALL) {
            name.bytes = arguments.bytes = 0;
            buffer_add(&name, e.text, e.bytes);
        } else if (e.kind == READER_ARGUMENTS) {
            buffer_add(&arguments, e.text, e.bytes);
        } else if (e.kind == READER_CALL_END) {
            ended++;
            check_call(c, exact, &name, &arguments);
        }
    }
    must(!reader_reason(r) && ended && ended == reader_calls(r));
    must(ended == 1 || !c->single_call);
    reader_close(r);
    buffer_fini(&name);
    buffer_fini(&arguments);
}

static bool is_limit(const char *err)
{
    static const char *const limits[] = {"more than", "too large", "too many", "forever", "above"};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (strstr(err, limits[i]))
            return true;
    return false;
}

static void check_grammar(const struct sides *s, const struct chat *c,
                          const struct reader_desc *desc, const struct chat_grammar *made,
                          struct made *m)
{
    struct grammar *g;
    struct buffer t = {0};
    char err[400] = "";
    int rc = grammar_open(s->v, made->text.data, made->text.bytes, &g, err, sizeof(err));
    must(rc == 0 || (rc == -EINVAL && is_limit(err)));
    if (rc)
        return;
    for (uint32_t i = 0; i < made->n_marks; i++)
        if (made->marks[i].kind == HEARTH_MARK_CALL)
            buffer_text(&t, made->marks[i].text);
    /* else it may say something that is not a call; and patterns may take what is not JSON */
    bool calls = (t.bytes || made->required) && !strstr(m->text, "pattern\"");
    if (write_answer(s, g, m, desc->form->param_close, &t) && calls && t.bytes &&
        !is_ambiguous(desc->form, &t))
        read_answer(c, desc, !json_array_size(made->loosened) && !strstr(m->text, "imum"), &t);
    buffer_fini(&t);
    grammar_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sides sides[2];
    static struct made m;
    if (size < 2)
        return 0;
    struct sides *s = &sides[(data[1] & CONTROL) != 0];
    if (!s->v)
        open_sides(s, data[1] & CONTROL ? N_CONTROL : 0);
    m.at = data + 2;
    m.end = data + size;
    m.bytes = 0;
    struct chat c = {.h = &s->h,
                     .tools = make_tools(&m, data[1]),
                     .choice = data[1] & REQUIRED ? HEARTH_TOOLS_REQUIRED : HEARTH_TOOLS_AUTO,
                     .single_call = (data[1] & SINGLE) != 0,
                     .thinking_tokens = -1};
    const struct reader_desc desc = {.form = family_form(data[0], n_call_forms), .tools = c.tools};
    struct chat_grammar made = {0};
    if (c.tools) {
        int rc = chat_grammar_make(&c, &desc, &made);
        must(rc == 0 || (rc == -EINVAL && is_limit(s->h.error)));
        if (rc == 0 && made.text.bytes)
            check_grammar(s, &c, &desc, &made, &m);
        chat_grammar_fini(&made);
    }
    json_decref(c.tools);
    return 0;
}
