/* reader: an answer's text becomes events while it arrives: content, thoughts, calls of tools.
 *
 * Nothing is lost: what is not a call as the form has it is content, and reader_reason() says why.
 * However the text is cut into pieces, the events are the same but for where texts of one kind are
 * cut. A call's arguments are JSON: streamed as they come. One caller at a time. */
#ifndef HEARTH_CLIENT_EVENTS_READER_H
#define HEARTH_CLIENT_EVENTS_READER_H

#include "client/base/buffer.h"
#include "client/events/call_form.h"
#include "client/events/json_scan.h"

#include <jansson.h>
#include <stdint.h>

enum reader_kind {
    READER_CONTENT,
    READER_THOUGHT,
    READER_CALL,      /* its text is the name */
    READER_ARGUMENTS, /* more of the call's arguments */
    READER_CALL_END,  /* no text */
};

struct reader_event {
    enum reader_kind kind;
    uint32_t call; /* which one, from 0; of content and thoughts: not used */
    const char *text;
    size_t bytes;
};

struct reader_desc {
    const struct call_form *form;        /* NULL: calls are content */
    const struct thought_form *thoughts; /* NULL: thoughts are content */
    /* Descriptions in OpenAI's form, which say what arguments are strings; or NULL. Must live as
     * long as the reader. */
    const json_t *tools;
    /* Object: the functions of `tools` by their names, the first of each; NULL: they are looked for
     * one by one. As `tools`. */
    const json_t *by_name;
    bool thinks;            /* the prompt opened a thought */
    bool calls_in_thoughts; /* a call of a tool in a thought that does not end is one */
    bool no_calls; /* none is asked for: what is read as a call is content, with a reason */
};

struct reader;

/* Returns NULL without memory. */
struct reader *reader_open(const struct reader_desc *desc);
void reader_close(struct reader *p);

/* Takes more text. Returns 0 or -ENOMEM. */
int reader_feed(struct reader *p, const char *text, size_t bytes);

/* The answer is complete. Returns 0 or -ENOMEM. */
int reader_finish(struct reader *p);

/* The next event; its text is valid until the next feed or finish. Returns false where there is
 * none. */
bool reader_next(struct reader *p, struct reader_event *ret);

/* Why something that began as a call is content, or a call is not complete; NULL: nothing is. */
const char *reader_reason(const struct reader *p);

/* Calls begun so far. */
uint32_t reader_calls(const struct reader *p);

/* Are these values, one at least, all strings? */
bool reader_are_texts(const json_t *values);

/* Is an argument with this schema, between tags, a text as it stands there: a string, perhaps null,
 * and nothing else? An enum of strings needs no type. */
bool reader_takes_text(const json_t *schema);

/* How many bytes of a text may be the key of an argument as Python has it: key=value. */
size_t reader_python_key(const char *text, size_t bytes);

#endif
