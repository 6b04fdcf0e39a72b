/* Marks over a stream of bytes. They are few and short: a plain comparison at every end position. */
#include "daemon/policy/marks.h"

#include <string.h>

void marks_begin(struct marks *marks, const struct params *params)
{
    *marks = (struct marks){.params = params, .where = MARKS_CONTENT};
    for (uint32_t i = 0; i < params->n_marks; i++) {
        const struct params_mark *mark = &params->marks[i];
        marks->calls |= mark->kind == PARAMS_MARK_CALL;
        if (mark->kind != PARAMS_MARK_THOUGHT)
            continue;
        if (mark->open)
            marks->where = MARKS_THOUGHT;
        if (mark->tokens != PARAMS_NO_LIMIT)
            marks->limit = mark;
    }
    if (params->grammar_bytes && !marks->calls && marks->where == MARKS_CONTENT)
        marks->where = MARKS_BOUND;
}

/* Appends one byte; the tail is as long as the longest mark can be. */
static void append(struct marks *marks, char byte)
{
    if (marks->n_tail == sizeof(marks->tail))
        memmove(marks->tail, marks->tail + 1, --marks->n_tail);
    marks->tail[marks->n_tail++] = byte;
}

/* The kind of the mark that ends here; 0: none. */
static unsigned ends_here(const struct marks *marks)
{
    for (uint32_t i = 0; i < marks->params->n_marks; i++) {
        const struct params_mark *mark = &marks->params->marks[i];
        bool counts = (mark->kind == PARAMS_MARK_THOUGHT_END) == (marks->where == MARKS_THOUGHT);
        if (counts && mark->bytes <= marks->n_tail &&
            !memcmp(marks->tail + marks->n_tail - mark->bytes, mark->text, mark->bytes))
            return mark->kind;
    }
    return 0;
}

/* A thought is over. */
static void to_content(struct marks *marks)
{
    marks->n_tail = 0;
    marks->where = marks->params->grammar_bytes && !marks->calls ? MARKS_BOUND : MARKS_CONTENT;
}

static void pass_mark(struct marks *marks, unsigned kind)
{
    if (kind == PARAMS_MARK_THOUGHT_END) {
        to_content(marks);
        return;
    }
    marks->n_tail = 0;
    marks->thought = 0;
    marks->where = kind == PARAMS_MARK_THOUGHT ? MARKS_THOUGHT : MARKS_BOUND;
}

uint32_t marks_forced(const struct marks *marks)
{
    bool reached =
        marks->where == MARKS_THOUGHT && marks->limit && marks->thought >= marks->limit->tokens;
    return reached ? marks->params->closing[marks->closed] : MARKS_NO_TOKEN;
}

size_t marks_accept(struct marks *marks, const char *bytes, size_t n)
{
    if (marks_forced(marks) != MARKS_NO_TOKEN) {
        if (++marks->closed < marks->params->n_closing)
            return 0;
        marks->closed = 0;
        to_content(marks);
        return 0;
    }
    bool thought = marks->where == MARKS_THOUGHT;
    for (size_t i = 0; i < n && marks->where != MARKS_BOUND; i++) {
        append(marks, bytes[i]);
        unsigned kind = ends_here(marks);
        if (kind)
            pass_mark(marks, kind);
        if (marks->where == MARKS_BOUND)
            return n - i - 1;
    }
    marks->thought += thought && marks->where == MARKS_THOUGHT;
    return 0;
}

void marks_reject(struct marks *marks)
{
    marks->where = MARKS_CONTENT;
}
