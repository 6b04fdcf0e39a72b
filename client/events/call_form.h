/* call_form: how families of models write thoughts and calls of tools into an answer. Constant
 * tables; any thread.
 *
 * Source: the chat templates that the models' makers publish; each form reads back what such a
 * template writes (tests/unit/client/test_chat_events.c). */
#ifndef HEARTH_CLIENT_EVENTS_CALL_FORM_H
#define HEARTH_CLIENT_EVENTS_CALL_FORM_H

#include <stdbool.h>
#include <stddef.h>

enum call_body {
    CALL_JSON,    /* {"name": ..., "arguments": {...}}, or a list of these */
    CALL_NAMED,   /* a name, then its arguments as JSON */
    CALL_TAGS,    /* a name, then each argument between tags of its own */
    CALL_GEMMA,   /* name{key:value}, strings in <|"|> */
    CALL_PYTHON,  /* a list of calls as Python has them: [name(key=value), name()] */
    CALL_HARMONY, /* an answer of several messages, each with a header */
};

struct call_form {
    const char *name;
    enum call_body body;
    const char *open;     /* before the calls; NULL: call_open begins one */
    const char *close;    /* after the calls; NULL: the answer's end */
    bool ids;             /* CALL_JSON: a call has an id, too */
    bool bare;            /* CALL_JSON: an answer that begins with {"name" is a call, too */
    const char *signs[2]; /* of a template that writes no calls, one is enough; or NULL */

    /* CALL_NAMED, CALL_TAGS, CALL_GEMMA: of each call */
    const char *call_open;
    const char *prefix;     /* before the name; may be left out */
    const char *cut;        /* from here on it is not the name any more; NULL: nothing is cut */
    const char *name_close; /* NULL: param_open or close, which stay */
    const char *call_close; /* NULL: none */

    /* CALL_TAGS: of each argument */
    const char *param_open, *param_name_close;
    const char *value_open; /* NULL: none */
    const char *param_close;
    const char *raw_open,
        *raw_close; /* around a string with marks in it, up to param_close; or NULL */
    bool lines;     /* a value has lines of its own */
    bool typed;     /* what stands before its value says whether it is a string: true">, false"> */
};

/* What calls begin with in content; NULL: harmony's, which begin with a header. */
static inline const char *call_form_opening(const struct call_form *f)
{
    return f->open ? f->open : f->call_open;
}

/* What a call may begin with where the model left out what opens the list; NULL: nothing. */
static inline const char *call_form_alone(const struct call_form *f)
{
    return f->open && f->call_open && *f->call_open ? f->call_open : NULL;
}

extern const struct call_form call_forms[];
extern const size_t n_call_forms;

struct thought_form {
    const char *open, *close;
    bool control;      /* they are control tokens in all vocabularies: no text */
    const char *token; /* the one that `open` begins with, where it is not all of it; or NULL */
};

extern const struct thought_form thought_forms[];
extern const size_t n_thought_forms;

#endif
