/* chat_form: see chat_form.h. */
#include "client/prompt/chat_form.h"

#include "client/prompt/chat_adapt.h"

#include <string.h>

#define NEEDLE "hearthneedle"
#define MADE_UP "hearthtool" /* in no made-up message */
#define ASKED "{\"role\":\"user\",\"content\":\"x\"}"
#define CALLED(content)                                                                            \
    "[" ASKED ",{\"role\":\"assistant\",\"content\":" content                                      \
    ",\"tool_calls\":[{\"id\":\"call12345\","                                                      \
    "\"type\":\"function\",\"function\":{\"name\":\"tool" NEEDLE "\",\"arguments\":"               \
    "\"{\\\"" NEEDLE "\\\": \\\"it is\\\"}\"}}]}]"

json_t *chat_made_up(const struct chat *c, const char *json)
{
    json_t *made = json_loads(json, 0, NULL);
    if (!made)
        chat_ran_out(c);
    return made;
}

struct chat chat_probe_begin(const struct chat *c, bool tool)
{
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"" MADE_UP
                                "\",\"description\":\"x\",\"parameters\":{\"type\":\"object\","
                                "\"properties\":{\"x\":{\"type\":"
                                "\"string\",\"description\":\"x\"}},\"required\":[\"x\"]}}}]";
    struct chat probe = *c;
    probe.extra = probe.answer = probe.opening = NULL;
    probe.prompt = true;
    probe.tools = probe.shown = tool ? chat_made_up(c, tools) : NULL;
    return probe;
}

void chat_probe_end(struct chat *probe)
{
    json_decref(probe->tools);
    probe->tools = probe->shown = NULL;
}

bool chat_form_render(const struct chat *c, const char *text, bool prompt, struct jinja_output *ret)
{
    char err[8];
    struct chat probe = *c;
    probe.answer = NULL;
    probe.prompt = prompt;
    probe.messages = chat_made_up(c, text);
    bool ok = probe.messages && chat_adapt(&probe) == 0;
    if (!ok) /* both fail only for want of memory */
        chat_ran_out(c);
    ok = ok && chat_render(&probe, probe.messages, ret, err, sizeof(err)) == 0;
    json_decref(probe.messages);
    return ok;
}

bool chat_form_has_input(const struct jinja_output *o, size_t from, size_t to)
{
    for (size_t i = 0; i < o->n_inputs; i++)
        if (o->inputs[i].at < to && o->inputs[i].at + o->inputs[i].bytes > from)
            return true;
    return false;
}

/* Does reading this text as the form has it give the call that was made up? */
static bool reads_back(const struct chat *c, const struct call_form *form, const char *text,
                       size_t bytes)
{
    static const char want[] = "tool" NEEDLE "{\"" NEEDLE "\": \"it is\"}";
    const struct reader_desc desc = {.form = form, .thoughts = &thought_forms[0]};
    struct reader *p = reader_open(&desc);
    struct reader_event e;
    struct buffer got = {0};
    bool ok = p && reader_feed(p, text, bytes) == 0 && reader_finish(p) == 0;
    if (!ok)
        chat_ran_out(c);
    while (ok && reader_next(p, &e))
        if (e.kind == READER_CALL || e.kind == READER_ARGUMENTS)
            buffer_add(&got, e.text, e.bytes);
    if (got.failed)
        chat_ran_out(c);
    ok = ok && reader_calls(p) == 1 && !got.failed && got.bytes == strlen(want) &&
         memcmp(got.data, want, got.bytes) == 0;
    buffer_fini(&got);
    reader_close(p);
    return ok;
}

size_t chat_form_answer_at(const struct jinja_output *asked, const struct jinja_output *called)
{
    size_t n = 0, least = asked->bytes < called->bytes ? asked->bytes : called->bytes;
    while (n < least && asked->text[n] == called->text[n])
        n++;
    for (size_t back = n; n < asked->bytes && back && asked->text[back - 1] != '\n'; back--)
        if (strchr("<[", called->text[back - 1]))
            return back - 1;
    return n;
}

/* The form of a call that the template writes. */
static const struct call_form *find_written(const struct chat *c, const char *messages)
{
    struct jinja_output asked = {0}, called = {0};
    const struct call_form *found = NULL;
    if (chat_form_render(c, CHAT_FORM_ASKED, true, &asked) &&
        chat_form_render(c, messages, false, &called)) {
        size_t n = chat_form_answer_at(&asked, &called);
        for (size_t i = 0; i < n_call_forms && !found; i++)
            if (reads_back(c, &call_forms[i], called.text + n, called.bytes - n))
                found = &call_forms[i];
    }
    jinja_output_fini(&asked);
    jinja_output_fini(&called);
    return found;
}

/* The form of a family that the template is known to be of. */
static const struct call_form *find_signed(const struct chat *c)
{
    for (size_t i = 0; i < n_call_forms; i++)
        for (int k = 0; k < 2; k++) {
            const char *sign = call_forms[i].signs[k];
            if (sign && memmem(c->source, c->source_bytes, sign, strlen(sign)))
                return &call_forms[i];
        }
    return NULL;
}

/* The form whose marks the template names, if only to explain them to the model. */
static const struct call_form *find_named(const struct chat *c)
{
    for (size_t i = 0; i < n_call_forms; i++) {
        const struct call_form *f = &call_forms[i];
        const char *const marks[] = {f->open, f->close, f->call_open, f->param_open};
        size_t n = 0, found = 0;
        for (size_t k = 0; k < sizeof(marks) / sizeof(marks[0]); k++) {
            bool is_mark = marks[k] && *marks[k];
            n += is_mark;
            found += is_mark && memmem(c->source, c->source_bytes, marks[k], strlen(marks[k]));
        }
        if (n && n == found)
            return f;
    }
    return find_signed(c);
}

static const struct call_form *find_form(const struct chat *c)
{
    struct chat probe = chat_probe_begin(c, true);
    const struct call_form *found = find_written(&probe, CALLED("\"\""));
    if (!found)
        found = find_written(&probe, CALLED("null"));
    chat_probe_end(&probe);
    return found ? found : find_named(c);
}

const struct call_form *chat_form_calls(const struct chat *c)
{
    struct chat_traits *t = chat_traits(c);
    if (!t->knows_form) {
        t->knows_form = 1;
        t->form = find_form(c);
    }
    return t->form;
}

bool chat_form_has_tools(const struct chat *c)
{
    struct chat_traits *t = chat_traits(c);
    if (!t->has_tools) {
        struct chat probe = chat_probe_begin(c, true);
        struct jinja_output o = {0};
        bool writes = chat_form_render(&probe, CHAT_FORM_ASKED, true, &o) &&
                      memmem(o.text, o.bytes, MADE_UP, strlen(MADE_UP));
        t->has_tools = writes ? 1 : -1;
        jinja_output_fini(&o);
        chat_probe_end(&probe);
    }
    return t->has_tools > 0;
}

static const struct thought_form *thought_form(const struct chat *c)
{
    for (size_t i = 0; i < n_thought_forms; i++)
        if (memmem(c->source, c->source_bytes, thought_forms[i].open,
                   strlen(thought_forms[i].open)))
            return &thought_forms[i];
    return NULL;
}

/* Does the prompt end with the beginning of a thought? */
static bool prompt_thinks(const struct chat *c, const struct thought_form *f)
{
    struct jinja_output o = {0};
    bool thinks = false;
    if (c->prompt && !c->answer && chat_form_render(c, CHAT_FORM_ASKED, true, &o)) {
        size_t n = o.bytes, sign = strlen(f->open);
        while (n && strchr(" \t\r\n", o.text[n - 1]))
            n--;
        thinks = n >= sign && memcmp(o.text + n - sign, f->open, sign) == 0;
    }
    jinja_output_fini(&o);
    return thinks;
}

void chat_form_find(const struct chat *c, struct reader_desc *ret)
{
    const struct call_form *form = chat_form_calls(c);
    bool harmony = form && form->body == CALL_HARMONY;
    *ret = (struct reader_desc){.form = c->tools || harmony ? form : NULL,
                                .thoughts = harmony ? &thought_forms[0] : thought_form(c),
                                .tools = c->tools};
    ret->thinks = !harmony && ret->thoughts && prompt_thinks(c, ret->thoughts);
    ret->no_calls = c->choice == HEARTH_TOOLS_NONE || !c->tools;
    /* Where the grammar binds from the end of a thought on, or allows one call, it binds none there. */
    ret->calls_in_thoughts = c->choice == HEARTH_TOOLS_AUTO && !c->single_call;
}

/* Is this text part of a mark of the forms? */
static bool is_in_marks(const struct reader_desc *d, const char *text, size_t bytes)
{
    const struct call_form *f = d->form;
    const char *const marks[] = {
        d->thoughts ? d->thoughts->open : NULL,
        d->thoughts ? d->thoughts->close : NULL,
        f ? f->open : NULL,
        f ? f->close : NULL,
        f ? f->call_open : NULL,
        f ? f->prefix : NULL,
        f ? f->cut : NULL,
        f ? f->name_close : NULL,
        f ? f->call_close : NULL,
        f ? f->param_open : NULL,
        f ? f->param_name_close : NULL,
        f ? f->value_open : NULL,
        f ? f->param_close : NULL,
        f ? f->raw_open : NULL,
        f ? f->raw_close : NULL,
        f && f->body == CALL_GEMMA ? "<|\"|>" : NULL,
    };
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (marks[i] && memmem(marks[i], strlen(marks[i]), text, bytes))
            return true;
    return false;
}

uint32_t chat_form_marks(const struct chat *c, const struct reader_desc *desc, uint32_t *ids,
                         uint32_t max)
{
    const struct vocab *v = &c->h->vocab;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n_specials; i++) {
        struct vocab_token t;
        uint32_t id = v->specials[i];
        if (!vocab_find_token(v, id, &t) || t.type != VOCAB_TYPE_CONTROL || t.end ||
            !is_in_marks(desc, t.text, t.text_bytes))
            continue;
        if (n < max)
            ids[n] = id;
        n++;
    }
    return n;
}
