/* reader: see reader.h. Content, thoughts, and where calls begin and end. */
#include "client/events/reader_impl.h"

#include <errno.h>
#include <stdlib.h>

enum {
    NAME_MOST = 256,
    NAME_LOOK = NAME_MOST + 64, /* the end of a name is searched for in this many bytes */
    START_MOST = 256,           /* white space in a beginning that may be a call's */
    DROP_BYTES = 4096
};

static const char spaces[] = " \t\r\n";

struct reader *reader_open(const struct reader_desc *desc)
{
    struct reader *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->desc = *desc;
    p->state = STATE_CONTENT;
    if (desc->form && desc->form->body == CALL_HARMONY)
        p->state = STATE_HEADER;
    else if (desc->thinks && desc->thoughts)
        p->state = STATE_THOUGHT;
    else if (desc->form && desc->form->bare)
        p->state = STATE_START;
    p->trims = p->state == STATE_THOUGHT;
    return p;
}

void reader_close(struct reader *p)
{
    if (!p)
        return;
    buffer_fini(&p->in);
    buffer_fini(&p->word);
    buffer_fini(&p->name);
    buffer_fini(&p->given);
    buffer_fini(&p->text);
    free(p->events);
    free(p);
}

/* ---- the text that came ---------------------------------------------------------------------- */

enum look reader_look(const struct reader *p, const char *mark)
{
    size_t n = strlen(mark), left = reader_left(p);
    if (memcmp(reader_rest(p), mark, left < n ? left : n) != 0)
        return LOOK_NO;
    return left >= n ? LOOK_YES : p->ended ? LOOK_NO : LOOK_MORE;
}

const char reader_cut_off[] = "the answer ends inside a call: raise max_tokens if it was cut off";

const char *reader_or_cut_off(const struct reader *p, const char *reason, const char *const *marks,
                              size_t n)
{
    size_t left = reader_left(p);
    for (size_t i = 0; p->ended && i < n; i++)
        if (marks[i] && left < strlen(marks[i]) && memcmp(reader_rest(p), marks[i], left) == 0)
            return reader_cut_off;
    return reason;
}

size_t reader_find(struct reader *p, const char *mark)
{
    size_t from = p->at, n = strlen(mark);
    if (p->sought == mark && from >= p->absent.from && from < p->absent.to)
        from = p->absent.to;
    else
        p->absent.from = from;
    const char *at =
        from < p->in.bytes ? memmem(p->in.data + from, p->in.bytes - from, mark, n) : NULL;
    size_t found = at ? (size_t)(at - p->in.data) : p->in.bytes;
    p->sought = mark;
    p->absent.to = at ? found : p->in.bytes < from + n ? from : p->in.bytes - n + 1;
    return found - p->at;
}

/* Bytes of white space that the rest is known to begin with. No mark begins with one. */
static size_t blank(const struct reader *p)
{
    return p->blank.from == p->at ? p->blank.to - p->blank.from : 0;
}

size_t reader_find_first(const struct reader *p, size_t most, const char *const *marks, size_t n,
                         size_t *ret_which)
{
    const char *text = reader_rest(p);
    size_t left = reader_left(p);
    for (size_t i = blank(p); i < most; i++)
        for (*ret_which = 0; *ret_which < n; ++*ret_which) {
            const char *mark = marks[*ret_which];
            if (mark && text[i] == *mark && left - i >= strlen(mark) &&
                memcmp(text + i, mark, strlen(mark)) == 0)
                return i;
        }
    return most;
}

enum look reader_find_within(const struct reader *p, size_t most, const char *const *marks,
                             size_t n, size_t *ret_at)
{
    size_t left = reader_left(p), near = left < most ? left : most, longest = 0, which;
    *ret_at = reader_find_first(p, near, marks, n, &which);
    if (*ret_at < near)
        return LOOK_YES;
    for (size_t i = 0; i < n; i++)
        if (marks[i] && strlen(marks[i]) > longest)
            longest = strlen(marks[i]);
    return !p->ended && left < most + longest ? LOOK_MORE : LOOK_NO;
}

size_t reader_may_begin(const struct reader *p, const char *mark)
{
    size_t left = reader_left(p), n = strlen(mark) - 1;
    if (p->ended)
        return 0;
    for (n = n < left ? n : left; n; n--)
        if (memcmp(reader_rest(p) + left - n, mark, n) == 0)
            return n;
    return 0;
}

void reader_skip_space(struct reader *p)
{
    while (reader_left(p) && strchr(spaces, *reader_rest(p)) && *reader_rest(p))
        p->at++;
}

/* ---- events ---------------------------------------------------------------------------------- */

void reader_emit(struct reader *p, enum reader_kind kind, const char *text, size_t bytes)
{
    struct queued *last = p->n_events ? &p->events[p->n_events - 1] : NULL;
    if (!bytes && kind != READER_CALL_END)
        return;
    buffer_add(&p->text, text, bytes);
    p->failed |= p->text.failed;
    if (last && last->kind == kind && kind != READER_CALL && kind != READER_CALL_END) {
        last->bytes += bytes;
        return;
    }
    if (p->n_events == p->events_room) {
        size_t room = p->events_room ? 2 * p->events_room : 16;
        struct queued *more = realloc(p->events, room * sizeof(*more));
        p->failed |= !more;
        if (!more)
            return;
        p->events = more;
        p->events_room = room;
    }
    p->events[p->n_events++] = (struct queued){.kind = kind,
                                               .call = p->n_calls ? p->n_calls - 1 : 0,
                                               .at = p->text.bytes - bytes,
                                               .bytes = bytes};
}

const json_t *reader_find_tool(const struct reader *p, const char *name, size_t bytes)
{
    if (p->desc.by_name)
        return json_object_getn(p->desc.by_name, name, bytes);
    for (size_t i = 0; i < json_array_size(p->desc.tools); i++) {
        const json_t *tool = json_array_get(p->desc.tools, i);
        const json_t *f = json_object_get(tool, "function"), *of = f ? f : tool;
        const json_t *own = json_object_get(of, "name");
        if (json_string_length(own) == bytes && memcmp(json_string_value(own), name, bytes) == 0)
            return of;
    }
    return NULL;
}

void reader_begin_call(struct reader *p, const char *name, size_t bytes)
{
    p->n_calls++;
    p->in_call = true;
    p->is_marked = p->in_thought = false;
    p->properties = json_object_get(json_object_get(reader_find_tool(p, name, bytes), "parameters"),
                                    "properties");
    reader_emit(p, READER_CALL, name, bytes);
}

void reader_end_call(struct reader *p)
{
    p->in_call = false;
    p->trims = true;
    reader_emit(p, READER_CALL_END, NULL, 0);
}

/* Of a call in a thought, until it is known whether the thought ends. */
static const char held_back[] = "the thought may end";

const char *reader_name_fault(const struct reader *p, const char *text, size_t bytes)
{
    bool is_name = bytes > 0 && bytes <= NAME_MOST;
    for (size_t i = 0; i < bytes; i++)
        is_name &= (unsigned char)text[i] > ' ' && !strchr("\"'`<>{}[]()\\", text[i]);
    if (!is_name)
        return "a call has no name";
    if (p->is_marked && (p->in_thought || p->is_alone) && !reader_find_tool(p, text, bytes))
        return "a call names none of the tools";
    if (p->desc.no_calls)
        return p->desc.tools ? "tool_choice is none: a call that the model wrote is content"
                             : "there are no tools: a call that the model wrote is content";
    return p->is_marked && p->in_thought && !p->ended ? held_back : NULL;
}

void reader_break(struct reader *p, const char *reason)
{
    bool is_thought = p->is_marked && p->in_thought;
    if (reason == held_back) {
        p->at = p->mark;
        p->is_marked = p->in_thought = false;
        p->state = STATE_HELD;
        return;
    }
    if (!p->reason && !is_thought)
        p->reason = reason;
    if (p->in_call)
        reader_end_call(p);
    if (p->is_marked) {
        p->trims = false;
        reader_emit(p, is_thought ? READER_THOUGHT : READER_CONTENT, p->in.data + p->mark,
                    p->mark_end - p->mark);
        p->at = p->mark_end;
        p->is_marked = p->in_thought = false;
    }
    p->state = is_thought ? STATE_THOUGHT : STATE_CONTENT;
}

/* ---- content and thoughts -------------------------------------------------------------------- */

/* Gives out the first n bytes of the rest and goes on after them. White space goes with what
 * follows it; `drops`: nothing does. */
static void give(struct reader *p, enum reader_kind kind, size_t n, bool drops)
{
    const char *text = reader_rest(p);
    size_t from = 0, to = n;
    while (p->trims && from < n && strchr(spaces, text[from]) && text[from])
        from++;
    while (drops && to > from && strchr(spaces, text[to - 1]) && text[to - 1])
        to--;
    if (to > from)
        p->trims = false;
    reader_emit(p, kind, text + from, to - from);
    p->at += n;
}

/* How many bytes of the rest can be given out, when what may begin a mark at its end, and white
 * space before that, cannot. Give them out: the rest then begins with that white space. */
static size_t certain(struct reader *p, size_t held)
{
    size_t to = reader_left(p) - held, n = to, known = blank(p);
    if (p->ended)
        return n;
    while (n > known && strchr(spaces, reader_rest(p)[n - 1]) && reader_rest(p)[n - 1])
        n--;
    n = n > known ? n : 0;
    p->blank = (struct span){p->at + n, p->at + to};
    return n;
}

/* What may be a call begins with the mark, or with the white space before that. */
static void begin_calls(struct reader *p, size_t space, const char *mark)
{
    const struct call_form *f = p->desc.form;
    p->is_marked = true;
    p->in_thought = p->state == STATE_THOUGHT;
    p->is_alone = mark != call_form_opening(f);
    p->mark = p->at;
    p->at += space + strlen(mark);
    p->mark_end = p->at;
    p->state = f->open && !p->is_alone ? STATE_BETWEEN : STATE_NAME;
}

/* Content or a thought: up to what ends it, begins a thought in it, or begins a call. The end of a
 * thought that did not begin, and a beginning without its name, are left out where they are control
 * tokens. */
static bool step_text(struct reader *p)
{
    enum { EDGE, CALLS, ALONE, STRAY_END, STRAY_BEGIN, N_MARKS };
    const struct thought_form *t = p->desc.thoughts;
    const bool thinks = p->state == STATE_THOUGHT;
    const struct call_form *f = thinks && !p->desc.calls_in_thoughts ? NULL : p->desc.form;
    const enum reader_kind kind = thinks ? READER_THOUGHT : READER_CONTENT;
    const char *const marks[N_MARKS] = {
        t ? thinks ? t->close : t->open : NULL, f ? call_form_opening(f) : NULL,
        f ? call_form_alone(f) : NULL, t && !thinks && t->control ? t->close : NULL,
        t && !thinks ? t->token : NULL};
    size_t left = reader_left(p), held = 0, which;
    size_t first = reader_find_first(p, left, marks, N_MARKS, &which);
    if (first < left && which == STRAY_BEGIN && reader_may_begin(p, t->open) == left - first)
        first = left; /* its name may come */
    if (first == left) {
        for (int i = 0; i < N_MARKS; i++) {
            size_t may = marks[i] ? reader_may_begin(p, marks[i]) : 0;
            held = may > held ? may : held;
        }
        give(p, kind, certain(p, held), thinks && p->ended);
        return false;
    }
    size_t begin = first;
    while (which < STRAY_END && begin && strchr(spaces, reader_rest(p)[begin - 1]) &&
           reader_rest(p)[begin - 1])
        begin--;
    give(p, kind, begin, false);
    if (which == CALLS || which == ALONE) {
        begin_calls(p, first - begin, marks[which]);
        return true;
    }
    if (which >= STRAY_END) {
        p->at += strlen(marks[which]);
        return true;
    }
    p->at += first - begin + strlen(marks[EDGE]);
    p->state = thinks ? STATE_CONTENT : STATE_THOUGHT;
    p->trims = true;
    return true;
}

static bool step_held(struct reader *p)
{
    const char *close = p->desc.thoughts->close;
    size_t at = reader_find(p, close);
    if (at < reader_left(p)) {
        give(p, READER_THOUGHT, at, true);
        p->at += strlen(close);
        p->trims = true;
        p->state = STATE_CONTENT;
    } else if (p->ended) {
        p->state = STATE_THOUGHT;
    }
    return p->state != STATE_HELD;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Does the rest begin with these, between which white space may stand? */
static enum look look_through(struct reader *p, const char *const *parts)
{
    size_t from = p->at;
    enum look look = LOOK_YES;
    for (; *parts && look == LOOK_YES; parts++) {
        reader_skip_space(p);
        look = p->at - from > START_MOST ? LOOK_NO : reader_look(p, *parts);
        p->at += look == LOOK_YES ? strlen(*parts) : 0;
    }
    p->at = from;
    return look;
}

/* An answer that begins with {"name" or {"type": "function" may be a call. */
static bool step_start(struct reader *p)
{
    static const char *const named[] = {"{", "\"name\"", NULL};
    static const char *const typed[] = {"{", "\"type\"", ":", "\"function\"", NULL};
    enum look name = look_through(p, named), type = look_through(p, typed);
    if (name != LOOK_YES && type != LOOK_YES) {
        if (name == LOOK_NO && type == LOOK_NO)
            p->state = STATE_CONTENT;
        return name == LOOK_NO && type == LOOK_NO;
    }
    reader_skip_space(p);
    p->is_marked = true;
    p->is_alone = p->desc.tools != NULL; /* without tools there is nothing to compare names with */
    p->mark = p->at;
    p->mark_end = p->at + 1;
    p->state = STATE_BETWEEN;
    return true;
}

/* The end of a list of calls, or of the answer where nothing ends one. */
static bool step_end_of_list(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    enum look close = f->close ? reader_look(p, f->close) : LOOK_NO;
    if (close != LOOK_YES && !(p->ended && !reader_left(p)))
        return false;
    if (close == LOOK_YES)
        p->at += strlen(f->close);
    if (p->is_marked) {
        reader_break(p, close == LOOK_YES ? "a list of calls is empty" : reader_cut_off);
        return true;
    }
    p->state = STATE_CONTENT;
    p->trims = true;
    return true;
}

/* Between calls that are objects or Python's, or lists of them. After a call a brace too many is
 * forgiven. */
static bool between_listed(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    const bool python = f->body == CALL_PYTHON;
    const char *skipped = p->is_marked ? " \t\r\n,;[]" : " \t\r\n,;[]}";
    while (reader_left(p) && strchr(skipped, *reader_rest(p)) && *reader_rest(p))
        p->at++;
    if (step_end_of_list(p))
        return true;
    enum look open = p->is_marked ? LOOK_NO : reader_look(p, f->open);
    if (!reader_left(p) || open == LOOK_MORE || (f->close && reader_look(p, f->close) == LOOK_MORE))
        return false;
    bool begins = python ? open != LOOK_YES : *reader_rest(p) == '{';
    if (!begins && !p->is_marked && (open == LOOK_YES || !f->close)) {
        p->state = STATE_CONTENT; /* the list is over, and nothing has to say so */
        return true;
    }
    if (!begins) {
        reader_break(p, reader_or_cut_off(p, "a call is not a JSON object", &f->close, 1));
        return true;
    }
    if (!p->is_marked) {
        p->is_marked = true;
        p->mark = p->at;
        p->mark_end = p->at + 1;
    }
    if (python) {
        p->state = STATE_PYTHON_NAME;
        return true;
    }
    p->at++;
    buffer_drop(&p->name, p->name.bytes);
    buffer_drop(&p->given, p->given.bytes);
    p->has_arguments = false;
    p->is_first = true;
    p->state = STATE_MEMBER;
    return true;
}

static bool step_between(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    if (f->body == CALL_JSON || f->body == CALL_PYTHON)
        return between_listed(p);
    reader_skip_space(p);
    if (step_end_of_list(p))
        return true;
    enum look close = f->close ? reader_look(p, f->close) : LOOK_NO;
    enum look open = reader_look(p, f->call_open);
    if (!reader_left(p) || close == LOOK_MORE || open == LOOK_MORE)
        return false;
    if (open == LOOK_NO && p->is_alone) { /* nothing has to close what nothing opened */
        p->state = STATE_CONTENT;
        return true;
    }
    if (open == LOOK_NO) {
        const char *const marks[] = {f->call_open, f->close};
        reader_break(p,
                     reader_or_cut_off(p, "a call does not begin as the model's template writes it",
                                       marks, 2));
        return true;
    }
    if (!p->is_marked) {
        p->is_marked = true;
        p->mark = p->at;
        p->mark_end = p->at + (*f->call_open ? strlen(f->call_open) : 1);
    }
    p->at += strlen(f->call_open);
    p->state = STATE_NAME;
    return true;
}

static bool step_name(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    const char *const marks[2] = {f->name_close ? f->name_close : f->param_open,
                                  f->name_close ? NULL : f->close};
    size_t n = 0, skip = 0, end;
    reader_skip_space(p);
    const char *text = reader_rest(p);
    if (f->prefix) {
        enum look prefix = reader_look(p, f->prefix);
        if (prefix == LOOK_MORE)
            return false;
        skip = prefix == LOOK_YES ? strlen(f->prefix) : 0;
    }
    enum look look = reader_find_within(p, NAME_LOOK, marks, 2, &end);
    if (look == LOOK_MORE)
        return false;
    if (look == LOOK_NO) {
        reader_break(p, p->ended ? reader_cut_off : "a call has no name");
        return true;
    }
    const char *cut = f->cut ? memmem(text + skip, end - skip, f->cut, strlen(f->cut)) : NULL;
    n = (cut ? (size_t)(cut - text) : end);
    while (n > skip && strchr(spaces, text[n - 1]) && text[n - 1])
        n--;
    while (skip < n && strchr(spaces, text[skip]) && text[skip])
        skip++;
    const char *fault = reader_name_fault(p, text + skip, n - skip);
    if (fault) {
        reader_break(p, fault);
        return true;
    }
    p->at += end + (f->name_close ? strlen(f->name_close) : 0);
    p->is_first = true;
    p->scan = (struct json_scan){0};
    if (f->body == CALL_GEMMA) { /* its arguments are read whole, and may turn out to be none */
        buffer_drop(&p->name, p->name.bytes);
        buffer_add(&p->name, text + skip, n - skip);
        p->looked = 0;
        p->is_quoted = false;
        p->state = STATE_GEMMA;
        return true;
    }
    reader_begin_call(p, text + skip, n - skip);
    if (f->body == CALL_TAGS)
        reader_emit(p, READER_ARGUMENTS, "{", 1);
    p->state = f->body == CALL_TAGS ? STATE_PARAM : STATE_ARGUMENTS;
    return true;
}

/* The call's arguments are complete. */
static bool step_after(struct reader *p)
{
    const struct call_form *f = p->desc.form;
    const char *close = f->call_close;
    if (close) {
        close += strspn(close, spaces);
        reader_skip_space(p);
        enum look look = reader_look(p, close), end = f->close ? reader_look(p, f->close) : LOOK_NO;
        enum look next = reader_look(p, f->call_open);
        if (look == LOOK_MORE || end == LOOK_MORE || next == LOOK_MORE ||
            (!reader_left(p) && !p->ended))
            return false;
        if (look == LOOK_YES)
            p->at += strlen(close);
        else if (reader_left(p) && end != LOOK_YES && next != LOOK_YES) {
            const char *const marks[] = {close, f->close, f->call_open};
            reader_break(p, reader_or_cut_off(p, "something follows a call's arguments", marks, 3));
            return true;
        }
    }
    reader_end_call(p);
    p->state = f->open ? STATE_BETWEEN : STATE_CONTENT;
    return true;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static bool step(struct reader *p)
{
    switch (p->state) {
    case STATE_START:
        return step_start(p);
    case STATE_CONTENT:
    case STATE_THOUGHT:
        return step_text(p);
    case STATE_HELD:
        return step_held(p);
    case STATE_BETWEEN:
        return step_between(p);
    case STATE_NAME:
        return step_name(p);
    case STATE_ARGUMENTS:
        return reader_step_arguments(p);
    case STATE_AFTER:
        return step_after(p);
    case STATE_PARAM:
        return reader_step_param(p);
    case STATE_PARAM_NAME:
        return reader_step_param_name(p);
    case STATE_VALUE_OPEN:
        return reader_step_value_open(p);
    case STATE_VALUE:
        return reader_step_value(p);
    case STATE_MEMBER:
        return reader_step_member(p);
    case STATE_KEY:
        return reader_step_key(p);
    case STATE_COLON:
        return reader_step_colon(p);
    case STATE_MEMBER_VALUE:
        return reader_step_member_value(p);
    case STATE_GEMMA:
        return reader_step_gemma(p);
    case STATE_PYTHON_NAME:
        return reader_step_python_name(p);
    case STATE_PYTHON:
        return reader_step_python(p);
    case STATE_HEADER:
        return reader_step_header(p);
    default:
        return reader_step_message(p);
    }
}

static void drop(size_t *at, size_t n)
{
    *at -= *at < n ? *at : n;
}

/* Events that were taken make room. */
static void tidy(struct reader *p)
{
    size_t read = p->is_marked ? p->mark : p->at;
    if (p->next_event == p->n_events) {
        p->next_event = p->n_events = 0;
        buffer_drop(&p->text, p->text.bytes);
    }
    if (read < DROP_BYTES && read < p->in.bytes)
        return;
    buffer_drop(&p->in, read);
    p->at -= read;
    drop(&p->blank.from, read);
    drop(&p->blank.to, read);
    drop(&p->absent.from, read);
    drop(&p->absent.to, read);
    p->mark -= p->is_marked ? read : 0;
    p->mark_end -= p->is_marked ? read : 0;
}

static int run(struct reader *p)
{
    p->failed |= p->in.failed;
    while (!p->failed && step(p))
        ;
    return p->failed || p->word.failed || p->name.failed || p->given.failed ? -ENOMEM : 0;
}

int reader_feed(struct reader *p, const char *text, size_t bytes)
{
    tidy(p);
    buffer_add(&p->in, text, bytes);
    return run(p);
}

int reader_finish(struct reader *p)
{
    tidy(p);
    p->ended = true;
    int rc = run(p);
    while (!rc && (p->is_marked || p->in_call)) {
        reader_break(p, reader_cut_off);
        rc = run(p);
    }
    return rc;
}

bool reader_next(struct reader *p, struct reader_event *ret)
{
    if (p->next_event == p->n_events)
        return false;
    const struct queued *q = &p->events[p->next_event++];
    *ret = (struct reader_event){.kind = q->kind,
                                 .call = q->call,
                                 .text = q->bytes ? p->text.data + q->at : "",
                                 .bytes = q->bytes};
    return true;
}

const char *reader_reason(const struct reader *p)
{
    return p->reason;
}

uint32_t reader_calls(const struct reader *p)
{
    return p->n_calls;
}
