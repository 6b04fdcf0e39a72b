/* chat_reader: hearth_chat_open() and what follows it: the reader of an answer, for callers. */
#include "client/prompt/chat_grammar.h"
#include "client/schema/schema_fits.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MARKS = 32 };

/* A request's own grammar with calls beside it. */
struct joined {
    struct joined *next;
    struct buffer text;
};

/* What binds answers to a chat. */
struct bound {
    atomic_uint readers;
    struct joined *_Atomic joined; /* all that were made: requests point into them */
    struct chat_grammar grammar;
    json_t *by_name; /* object: the chat's tools by their names: each call looks for one */
    json_t *tools;   /* the same: those whose calls follow their schemas */
    char *loosened;  /* a line for each place that does not bind, or NULL */
};

struct hearth_chat_reader {
    struct reader_desc desc; /* its tools are those below */
    struct reader *core;
    json_t *tools;
    uint32_t marks[MOST_MARKS], n_marks;
    struct bound *bound;     /* with the other readers of the chat */
    const json_t *tool;      /* of the call that is read, if it is one of those */
    struct buffer arguments; /* its arguments so far */
    size_t steps;            /* that are left to look whether calls follow their schemas */
    char unfit[320];         /* why the first call that does not follow its schema does not */
};

/* Finds the tools by their names, the first of each, and those whose calls are bound by their
 * schemas, and checked, the last of each. Returns 0 or -ENOMEM. */
static int name_tools(const struct chat *c, struct bound *bound)
{
    size_t i;
    json_t *description;
    int rc = (bound->by_name = json_object()) && (bound->tools = json_object()) ? 0 : -ENOMEM;
    json_array_foreach(c->tools, i, description) {
        json_t *tool = (json_t *)(uintptr_t)chat_tool(description);
        const json_t *own = json_object_get(tool, "name");
        const char *name = json_string_value(own);
        const size_t bytes = json_string_length(own);
        if (rc || !name)
            continue;
        if (!json_object_getn(bound->by_name, name, bytes) &&
            json_object_setn(bound->by_name, name, bytes, tool))
            rc = -ENOMEM;
        if (chat_grammar_binds(c, tool) && json_object_setn(bound->tools, name, bytes, tool))
            rc = -ENOMEM;
    }
    return rc;
}

/* One line for each. */
static char *join_lines(const json_t *lines)
{
    struct buffer t = {0};
    size_t i;
    const json_t *line;
    json_array_foreach(lines, i, line)
        buffer_format(&t, "%s%s", i ? "\n" : "", json_string_value(line));
    return t.data;
}

static int open_reader(const struct chat *c, struct hearth_chat_reader *reader)
{
    chat_form_find(c, &reader->desc);
    reader->steps = SCHEMA_FITS_STEPS;
    reader->n_marks = chat_form_marks(c, &reader->desc, reader->marks, MOST_MARKS);
    reader->n_marks = reader->n_marks < MOST_MARKS ? reader->n_marks : MOST_MARKS;
    reader->tools = json_incref(c->tools);
    reader->bound = calloc(1, sizeof(*reader->bound));
    if (!reader->bound)
        return -ENOMEM;
    atomic_init(&reader->bound->readers, 1);
    atomic_init(&reader->bound->joined, NULL);
    int rc = name_tools(c, reader->bound);
    if (rc)
        return rc;
    reader->desc.by_name = reader->bound->by_name;
    reader->core = reader_open(&reader->desc);
    if (!reader->core)
        return -ENOMEM;
    rc = chat_grammar_make(c, &reader->desc, &reader->bound->grammar);
    if (rc)
        return rc;
    reader->bound->loosened = join_lines(reader->bound->grammar.loosened);
    return 0;
}

/* An answer's form does not depend on the messages. */
int chat_json_open(struct hearth *h, const struct hearth_chat *chat, const struct chat_json *json,
                   struct hearth_chat_reader **ret_reader)
{
    struct chat c;
    *ret_reader = NULL;
    int rc = chat_init(h, chat, json, &c);
    if (!rc && chat->tool_choice != HEARTH_TOOLS_NONE && json_array_size(c.tools) &&
        !chat_form_has_tools(&c))
        rc = handle_fail(h, -ENOTSUP,
                         "the model's chat template does not write tools, so the model would not "
                         "see them: use a model or a template that does, or leave 'tools' out");
    struct hearth_chat_reader *reader = rc ? NULL : calloc(1, sizeof(*reader));
    if (!rc && !reader)
        rc = -ENOMEM;
    if (!rc)
        rc = open_reader(&c, reader);
    chat_fini(&c);
    if (rc == -ENOMEM)
        handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    rc = chat_settle(h, rc);
    if (rc) {
        hearth_chat_close(reader);
        return rc;
    }
    *ret_reader = reader;
    return 0;
}

int hearth_chat_open(struct hearth *h, const struct hearth_chat *given,
                     struct hearth_chat_reader **ret_reader)
{
    struct hearth_chat chat;
    struct chat_json json;
    *ret_reader = NULL;
    int rc = chat_json_read(h, given, false, &chat, &json);
    if (!rc)
        rc = chat_json_open(h, &chat, &json, ret_reader);
    chat_json_fini(&json);
    return rc;
}

int hearth_chat_another(const struct hearth_chat_reader *reader,
                        struct hearth_chat_reader **ret_reader)
{
    struct hearth_chat_reader *other = malloc(sizeof(*other));
    *ret_reader = NULL;
    if (!other)
        return -ENOMEM;
    *other = (struct hearth_chat_reader){.desc = reader->desc,
                                         .tools = json_incref(reader->tools),
                                         .n_marks = reader->n_marks,
                                         .bound = reader->bound,
                                         .steps = SCHEMA_FITS_STEPS};
    memcpy(other->marks, reader->marks, sizeof(other->marks));
    atomic_fetch_add(&other->bound->readers, 1);
    other->core = reader_open(&other->desc);
    if (!other->core) {
        hearth_chat_close(other);
        return -ENOMEM;
    }
    *ret_reader = other;
    return 0;
}

void hearth_chat_close(struct hearth_chat_reader *reader)
{
    if (!reader)
        return;
    struct bound *bound = reader->bound;
    if (bound && atomic_fetch_sub(&bound->readers, 1) == 1) {
        for (struct joined *one = atomic_load(&bound->joined), *next; one; one = next) {
            next = one->next;
            buffer_fini(&one->text);
            free(one);
        }
        chat_grammar_fini(&bound->grammar);
        json_decref(bound->by_name);
        json_decref(bound->tools);
        free(bound->loosened);
        free(bound);
    }
    reader_close(reader->core);
    json_decref(reader->tools);
    buffer_fini(&reader->arguments);
    free(reader);
}

const uint32_t *hearth_chat_marks(const struct hearth_chat_reader *reader, uint32_t *ret_n)
{
    *ret_n = reader->n_marks;
    return reader->marks;
}

/* Puts calls beside the request's own grammar, where they can stand there. Returns 0 or -ENOMEM. */
static int add_calls(struct bound *bound, struct hearth_request *request)
{
    struct joined *one = calloc(1, sizeof(*one));
    bool joins = one && chat_grammar_join(&bound->grammar, request->grammar, request->grammar_bytes,
                                          &one->text);
    if (!joins || one->text.failed) {
        int rc = !one || one->text.failed ? -ENOMEM : 0;
        if (one)
            buffer_fini(&one->text);
        free(one);
        return rc;
    }
    request->grammar = one->text.data;
    request->grammar_bytes = one->text.bytes;
    one->next = atomic_load(&bound->joined);
    while (!atomic_compare_exchange_weak(&bound->joined, &one->next, one))
        ;
    return 0;
}

static int set_request(const struct hearth_chat_reader *reader, struct hearth_request *request)
{
    const struct chat_grammar *g = &reader->bound->grammar;
    bool own = request->grammar != NULL;
    if (own && g->required)
        return -EINVAL;
    int rc = own ? add_calls(reader->bound, request) : 0;
    if (rc)
        return rc;
    request->shown_tokens = reader->marks;
    request->n_shown_tokens = reader->n_marks;
    if (!own && g->text.bytes) {
        request->grammar = g->text.data;
        request->grammar_bytes = g->text.bytes;
    }
    request->marks = g->marks;
    request->n_marks = own ? g->n_thought_marks : request->grammar || g->n_closing ? g->n_marks : 0;
    request->closing = g->closing;
    request->n_closing = g->n_closing;
    request->banned = g->banned;
    request->n_banned = g->n_banned;
    return 0;
}

/* A caller's older header may lack the last fields. Without tokens that are never picked a call that
 * the model writes is content all the same; without its marks a grammar binds something else. */
int hearth_chat_request(const struct hearth_chat_reader *reader, struct hearth_request *request)
{
    const struct chat_grammar *g = &reader->bound->grammar;
    const size_t size = request->size;
    struct hearth_request all;
    if (size < sizeof(request->size) ||
        (size < offsetof(struct hearth_request, n_banned) && (g->n_marks || g->n_closing)))
        return -EINVAL;
    hearth_request_init(&all, sizeof(all));
    memcpy(&all, request, size < sizeof(all) ? size : sizeof(all));
    int rc = set_request(reader, &all);
    if (!rc)
        memcpy(request, &all, size < sizeof(all) ? size : sizeof(all));
    return rc;
}

const char *hearth_chat_loosened(const struct hearth_chat_reader *reader)
{
    return reader->bound->loosened;
}

int hearth_chat_feed(struct hearth_chat_reader *reader, const char *text, size_t bytes, int end)
{
    int rc = reader_feed(reader->core, text, bytes);
    return rc || !end ? rc : reader_finish(reader->core);
}

/* ---- does a call follow its schema? ---------------------------------------------------------- */

static void check_arguments(struct hearth_chat_reader *reader)
{
    const json_t *tool = reader->tool, *schema = json_object_get(tool, "parameters");
    json_t *value =
        json_loadb(reader->arguments.data, reader->arguments.bytes, JSON_ALLOW_NUL, NULL);
    char why[160];
    if (value && !*reader->unfit && !schema_fits(schema, value, &reader->steps, why, sizeof(why)))
        snprintf(reader->unfit, sizeof(reader->unfit),
                 "arguments of %.60s do not follow its schema at %s",
                 json_string_value(json_object_get(tool, "name")), why);
    json_decref(value);
    reader->tool = NULL;
}

/* Collects the arguments of a call that is bound. */
static void watch(struct hearth_chat_reader *reader, const struct reader_event *e)
{
    if (e->kind == READER_CALL) {
        buffer_drop(&reader->arguments, reader->arguments.bytes);
        reader->tool = json_object_getn(reader->bound->tools, e->text, e->bytes);
    } else if (reader->tool && e->kind == READER_ARGUMENTS) {
        buffer_add(&reader->arguments, e->text, e->bytes);
    } else if (reader->tool && e->kind == READER_CALL_END) {
        check_arguments(reader);
    }
}

int hearth_chat_next(struct hearth_chat_reader *reader, struct hearth_chat_event *event)
{
    static const uint32_t kinds[] = {[READER_CONTENT] = HEARTH_CHAT_CONTENT,
                                     [READER_THOUGHT] = HEARTH_CHAT_REASONING,
                                     [READER_CALL] = HEARTH_CHAT_CALL,
                                     [READER_ARGUMENTS] = HEARTH_CHAT_ARGUMENTS,
                                     [READER_CALL_END] = HEARTH_CHAT_CALL_END};
    struct reader_event e;
    if (!reader_next(reader->core, &e))
        return 0;
    watch(reader, &e);
    const struct hearth_chat_event all = {.size = event->size,
                                          .kind = kinds[e.kind],
                                          .call = e.call,
                                          .text = e.text,
                                          .text_bytes = e.bytes};
    memcpy(event, &all, event->size < sizeof(all) ? event->size : sizeof(all));
    return 1;
}

const char *hearth_chat_unparsed(const struct hearth_chat_reader *reader)
{
    const char *reason = reader_reason(reader->core);
    return reason ? reason : *reader->unfit ? reader->unfit : NULL;
}
