/* reader_impl: what the files of the reader share. */
#ifndef HEARTH_CLIENT_EVENTS_READER_IMPL_H
#define HEARTH_CLIENT_EVENTS_READER_IMPL_H

#include "client/events/reader.h"

#include <string.h>

enum reader_state {
    STATE_START, /* of the answer, where a bare call may begin it */
    STATE_CONTENT,
    STATE_THOUGHT,
    STATE_HELD,    /* a thought from a call on, which is one if the thought does not end */
    STATE_BETWEEN, /* in a list of calls, before a call or the list's end */
    STATE_NAME,
    STATE_ARGUMENTS, /* one JSON object */
    STATE_AFTER,     /* before the end of a call whose arguments are complete */
    STATE_PARAM,     /* before an argument in tags, or the call's end */
    STATE_PARAM_NAME,
    STATE_VALUE_OPEN,
    STATE_VALUE,
    STATE_MEMBER, /* of a call that is an object: before a key, or the object's end */
    STATE_KEY,
    STATE_COLON,
    STATE_MEMBER_VALUE,
    STATE_GEMMA,
    STATE_PYTHON_NAME,
    STATE_PYTHON, /* its arguments */
    STATE_HEADER, /* of a message in harmony */
    STATE_MESSAGE,
};

struct queued {
    enum reader_kind kind;
    uint32_t call;
    size_t at, bytes;
};

/* in.data[from, to). */
struct span {
    size_t from, to;
};

/* What a string of Python's that is open began with: n of this sign, 1 or 3; 0: none is open. */
struct python_quote {
    char sign;
    uint8_t n;
};

/* A member of a call that is an object. */
enum call_member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS };

struct reader {
    struct reader_desc desc;
    struct buffer in; /* what is not read yet begins at `at` */
    size_t at;
    struct span blank;  /* white space: it is held back, and not looked at again */
    struct span absent; /* no `sought` begins there: it is not looked for again */
    const char *sought;
    bool ended; /* nothing more comes */
    enum reader_state state;
    bool trims; /* white space before the next content is not part of it */
    const char *reason;

    /* While something is read as a call that may turn out to be content: where it begins, and where
     * reading would go on if it is. */
    bool is_marked;
    size_t mark, mark_end;
    bool in_thought; /* if it is not a call it is part of a thought */
    bool is_alone;   /* it began without what opens a list of calls */

    uint32_t n_calls;
    bool in_call;        /* READER_CALL without its READER_CALL_END so far */
    struct buffer word;  /* a name, a key or a value that is being collected */
    struct buffer name;  /* of a call that is an object */
    struct buffer given; /* its arguments, where they came before the name or as a text */
    enum call_member member;
    struct json_scan scan;
    const json_t *properties; /* the schemas of the call's arguments, or NULL */
    size_t looked;            /* bytes of the rest in which Gemma's or Python's call does not end */
    bool is_quoted;           /* they end in a string of Gemma's */
    struct python_quote quote; /* the same, of Python's */
    size_t depth;              /* brackets of Python's that are open there */
    bool is_string, is_nullable, is_raw, is_first, in_object, has_arguments;
    enum reader_kind message; /* of a message in harmony */
    bool is_broken;           /* this message's arguments are not a JSON object */

    struct queued *events; /* [n_events], taken up to next_event */
    size_t n_events, next_event, events_room;
    struct buffer text; /* of these */
    bool failed;        /* no memory */
};

enum look { LOOK_NO, LOOK_MORE, LOOK_YES };

/* What is not read yet. */
static inline const char *reader_rest(const struct reader *p)
{
    return p->in.data ? p->in.data + p->at : "";
}

static inline size_t reader_left(const struct reader *p)
{
    return p->in.bytes - p->at;
}

/* Does the rest begin with this? LOOK_MORE: it may, when more has come. */
enum look reader_look(const struct reader *p, const char *mark);

/* Why a call is not complete, or not one, where the answer ended before it did. */
extern const char reader_cut_off[];

/* This reason; where the answer ended in what may have become one of these marks, that it did. NULL is
 * no mark. */
const char *reader_or_cut_off(const struct reader *p, const char *reason, const char *const *marks,
                              size_t n);

/* Where it first stands in the rest; reader_left() where it does not. */
size_t reader_find(struct reader *p, const char *mark);

/* Where the first of n marks begins in the next `most` bytes, and *ret_which; `most` where none does.
 * NULL is no mark. Reads no further than that. */
size_t reader_find_first(const struct reader *p, size_t most, const char *const *marks, size_t n,
                         size_t *ret_which);

/* The same, of marks that may not have come whole: LOOK_YES with *ret_at below `most`; LOOK_MORE: one may
 * begin there. */
enum look reader_find_within(const struct reader *p, size_t most, const char *const *marks,
                             size_t n, size_t *ret_at);

/* How many bytes at the end of the rest may be the beginning of it. */
size_t reader_may_begin(const struct reader *p, const char *mark);

void reader_skip_space(struct reader *p);

void reader_emit(struct reader *p, enum reader_kind kind, const char *text, size_t bytes);

/* The tool of this name, or NULL. */
const json_t *reader_find_tool(const struct reader *p, const char *name, size_t bytes);

/* A call of this name begins. */
void reader_begin_call(struct reader *p, const char *name, size_t bytes);
void reader_end_call(struct reader *p);

/* Why this text cannot be the name of a call; NULL: it can. In a thought, and without what opens a list
 * of calls, it has to be a tool's. */
const char *reader_name_fault(const struct reader *p, const char *text, size_t bytes);

/* What was read as a call is not one: what was not given out yet is content. */
void reader_break(struct reader *p, const char *reason);

/* What is left of a call's arguments that have come whole. */
struct cursor {
    const char *at, *end;
    struct buffer *out;  /* JSON, of Python's */
    struct buffer *text; /* of the string of Python's that is read */
};

static inline void cursor_skip_space(struct cursor *r)
{
    while (r->at < r->end && *r->at && strchr(" \t\r\n", *r->at))
        r->at++;
}

/* Goes over the mark, if the rest begins with it. */
static inline bool cursor_take(struct cursor *r, const char *mark)
{
    size_t n = strlen(mark);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, mark, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Steps of a state: each returns whether it did anything; if not it needs more text. */
bool reader_step_member(struct reader *p);
bool reader_step_key(struct reader *p);
bool reader_step_colon(struct reader *p);
bool reader_step_member_value(struct reader *p);
bool reader_step_arguments(struct reader *p);
bool reader_step_param(struct reader *p);
bool reader_step_param_name(struct reader *p);
bool reader_step_value_open(struct reader *p);
bool reader_step_value(struct reader *p);
bool reader_step_gemma(struct reader *p);
bool reader_step_python_name(struct reader *p);
bool reader_step_python(struct reader *p);
bool reader_step_header(struct reader *p);
bool reader_step_message(struct reader *p);

#endif
