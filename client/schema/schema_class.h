/* schema_class: the characters of a pattern: escapes and classes. For schema_pattern.c. */
#ifndef HEARTH_CLIENT_SCHEMA_SCHEMA_CLASS_H
#define HEARTH_CLIENT_SCHEMA_SCHEMA_CLASS_H

#include "client/schema/schema.h"

struct pattern {
    struct schema *c;
    const char *begin, *at, *end;
    const char *name; /* of the rule it is for */
    json_t *subs;     /* text -> name of the rule made of it */
    uint32_t nesting;
};

/* Notes a mistake at p->at. */
void pattern_fail(struct pattern *p, const char *what);

/* The character that an escape means; p->at stands after the backslash. */
uint32_t pattern_escape(struct pattern *p);

/* Adds a character for the inside of a GBNF literal, written as in a JSON string. The quote is an
 * exception: see schema_pattern.c. */
void pattern_character(struct pattern *p, struct buffer *t, uint32_t point);

/* Reads [...] and adds what it stands for. */
void pattern_class(struct pattern *p, struct buffer *t);

/* Adds what \d, \w, \s, \D, \W, \S stand for. Returns 0, with nothing done: no such letter. */
int pattern_shorthand(struct pattern *p, struct buffer *t, char letter);

#endif
