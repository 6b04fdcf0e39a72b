/* schema: a JSON schema becomes a GBNF grammar: what the files of the converter share. Private;
 * the public call is hearth_schema() in hearth.h.
 *
 * The dialect, the names of rules and their text are those of llama.cpp's converter, so that what
 * either of them makes can be compared (client/README.md, "Schemas", says where the two differ).
 *
 *   text --jansson--> tree --visit--> rules by name --sorted--> grammar
 *
 * A walk down the tree makes a rule for each place that needs one. The first error is kept: `rc` is
 * set, `err` names the place as a JSON pointer, and from then on every call returns at once, so
 * the callers need not look. Functions that return the name of a rule never return NULL.
 *
 * Several schemas may become rules of one grammar (schema_part), of calls of tools: there what cannot
 * be bound is loosened at its place, to any value of its type, and noted.
 *
 * Bounds: depth, steps, bytes of rules and repetitions, each with its constant below. A schema may
 * come from a remote user. One conversion belongs to one thread; it keeps no state. */
#ifndef HEARTH_CLIENT_SCHEMA_SCHEMA_H
#define HEARTH_CLIENT_SCHEMA_SCHEMA_H

#include "client/base/buffer.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCHEMA_TEXT_MAX = 1 << 20,    /* bytes of a schema */
    SCHEMA_GRAMMAR_MAX = 2 << 20, /* bytes of all rules, what the daemon takes */
    SCHEMA_RULES_MAX = 16000,
    SCHEMA_DEPTH_MAX = 64,          /* nesting of schemas, references followed */
    SCHEMA_STEPS_MAX = 50000,       /* schemas visited or merged */
    SCHEMA_WORK_MAX = 5000000,      /* comparisons of names and values, bytes made and dropped */
    SCHEMA_REPEAT_MAX = 10000,      /* a bound of items, lengths, {m,n} */
    SCHEMA_LOOSENED_MAX = 64,       /* lines about loosened places */
    SCHEMA_PARTS_BYTES = 512 << 10, /* of the rules of parts: those after it are loosened, ... */
    SCHEMA_PARTS_RULES = 12000,     /* ... so that there is room for the calls around them, ... */
    SCHEMA_PARTS_REPEAT = 256,      /* ... and for what the daemon makes of counts */
    SCHEMA_PARTS_VALUES = 512,      /* of enums at one place: the daemon follows each apart */
    SCHEMA_PARTS_TEXTS = 128 << 10, /* bytes of all of these */
    SCHEMA_WAYS_MAX = 64,           /* alternatives that allOf or siblings of anyOf multiply to */
    SCHEMA_NAME_MAX = 120,          /* bytes of a rule's name, its number not counted */
    SCHEMA_KEY_MAX = 96, /* bytes of a property's name beside additionalProperties: a group each */
    SCHEMA_NESTING_MAX = 50, /* nested groups of a pattern */
    SCHEMA_DIGITS = 16       /* of an integer, as llama.cpp has it */
};

struct schema {
    json_t *root;       /* borrowed */
    json_t *rules;      /* name -> text; null where a rule is being made */
    json_t *asked;      /* "name ::= text" as asked for -> the name it got */
    json_t *numbers;    /* name -> the next number to try after it */
    json_t *refs;       /* $ref -> name of its rule */
    json_t *levels;     /* $ref being made -> `level` when that began */
    json_t *keep;       /* array: schemas made on the way, which others point into */
    struct buffer path; /* JSON pointer of the place */
    uint32_t depth, steps;
    uint32_t level;     /* objects and arrays around this place: text stands in between */
    uint32_t choices;   /* lists of alternatives around this place */
    size_t values;      /* of enums in the outermost of these, or in the last enum */
    size_t value_bytes; /* of all enums */
    uint32_t n_rules;
    size_t text_bytes;       /* of the schema */
    size_t bytes;            /* of all rules */
    size_t work, parts_work; /* of this part, or of none; of all parts so far */
    const char *root_rule;   /* what a $ref to # means; NULL: it has no rule */
    int refers_to_root;      /* there is one */
    json_t *loosened;        /* array of lines about places; NULL: these are failures */
    const char *part;        /* the name of what is converted, for these lines */
    size_t bytes_max, rules_max;
    int rc; /* 0, -EINVAL, -ENOMEM */
    char *err;
    size_t err_bytes;
};

/* ---- schema.c -------------------------------------------------------------------------------- */

/* An empty grammar. schema_close in any case. */
int schema_open(struct schema *c);
void schema_close(struct schema *c);

/* Makes rules of another schema, which must live as long as c, and which `title` is the name of. A
 * $ref in it is a place in `root`: the schema itself, or one around it. Never fails but for memory:
 * what cannot be bound is any value. Returns the rule's name. */
const char *schema_part(struct schema *c, json_t *root, json_t *schema, const char *title);

/* ---- schema_rules.c: text, names, rules ------------------------------------------------------ */

/* Notes the first mistake: "schema at PLACE: ...". */
__attribute__((format(printf, 2, 3))) void schema_fail(struct schema *c, const char *format, ...);
void schema_no_memory(struct schema *c);
/* Makes a message valid UTF-8, which may have been cut inside a character, without control
 * characters. */
void schema_one_line(char *err);
/* Counts work; fails above the limit. Every loop whose length the schema decides counts, since one
 * place may be visited as often as others refer to it. */
void schema_work(struct schema *c, size_t n);

/* As json_equal(), each part of what is compared being work; 0 after a failure. */
int schema_equal(struct schema *c, const json_t *a, const json_t *b);

/* The first mistake is none where places may be loosened: notes it. Returns whether it is so. */
int schema_loosen(struct schema *c);

/* Goes to a place below, and back to what it returned. */
size_t schema_enter(struct schema *c, const char *part);
size_t schema_enter_index(struct schema *c, const char *part, size_t index);
void schema_leave(struct schema *c, size_t mark);

void schema_add(struct schema *c, struct buffer *t, const char *text);
void schema_add_bytes(struct schema *c, struct buffer *t, const char *text, size_t bytes);
__attribute__((format(printf, 3, 4))) void schema_format(struct schema *c, struct buffer *t,
                                                         const char *format, ...);
/* Its text, "" when there is none. */
const char *schema_get(const struct buffer *t);

/* The next code point of valid UTF-8. */
uint32_t schema_point(const char **at);

/* Adds text for the inside of a GBNF literal. */
void schema_escape(struct schema *c, struct buffer *t, const char *text, size_t bytes);
/* Adds text as a GBNF literal. */
void schema_literal(struct schema *c, struct buffer *t, const char *text, size_t bytes);
/* Adds a JSON value as a GBNF literal. */
void schema_constant(struct schema *c, struct buffer *t, const json_t *value);

/* Adds `item`, repeated `least` to `most` times. `separator`: between two items, or "". */
#define SCHEMA_NO_MAX UINT32_MAX /* any number */
void schema_repeat(struct schema *c, struct buffer *t, const char *item, uint32_t least,
                   uint32_t most, const char *separator);

/* Puts NAME-PART, or PART where name is "", into *t, in letters that a rule's name may have. */
void schema_name(struct schema *c, struct buffer *t, const char *name, const char *part);

/* Puts a value, which is taken over (NULL: no memory), into a table. */
void schema_set(struct schema *c, json_t *table, const char *key, json_t *value);

/* Adds a rule. Where another one has the name, it gets a number after it. `own`: NULL, or the name
 * of a rule that was taken with schema_take and is made now. Returns the name it got, which lives
 * as long as the rule. */
const char *schema_rule(struct schema *c, const char *own, const char *name, const char *text);

/* Takes a free name for a rule to be made later; and gives it back if the rule was not made. */
const char *schema_take(struct schema *c, const char *name);
void schema_untake(struct schema *c, const char *name);

/* Adds a rule that every grammar may have ("string", "date", ...) with those it needs, under its
 * own or (NULL: not) another name. */
const char *schema_builtin(struct schema *c, const char *builtin, const char *name);
int schema_is_reserved(const char *name);

/* All rules, a line each, by name. */
void schema_write(struct schema *c, struct buffer *t);

/* ---- schema_visit.c -------------------------------------------------------------------------- */

/* Makes the rule of a schema, or reuses an existing one. name: "" is the root; own: see
 * schema_rule. Returns the rule's name. */
const char *schema_visit(struct schema *c, json_t *schema, const char *name, const char *own);

/* ---- schema_check.c -------------------------------------------------------------------------- */

/* Refuses keywords that restrict and are not supported, and values of a wrong type. */
void schema_check(struct schema *c, const json_t *schema);
/* The keywords that restrict what is accepted (and not only describe it), but those that combine
 * schemas. A new object, kept by c; NULL after a failure. */
json_t *schema_plain(struct schema *c, const json_t *schema);
/* Number of keywords that restrict, those in `but` (ended by NULL) not counted. */
size_t schema_restrictions(const json_t *schema, const char *const *but);

/* The schema that a local $ref means, NULL and a failure otherwise. */
json_t *schema_target(struct schema *c, const char *ref);

/* What kind of value a schema without "type" is about: "object", "array", "string", "number"; NULL:
 * any. A "type" that is a text is returned as it is. */
const char *schema_kind(const json_t *schema);

/* The same, but NULL, too, where keywords beside it say what is allowed and there is no "type". */
const char *schema_kind_alone(const json_t *schema);

/* Does the schema have one of these keywords? */
int schema_has_one(const json_t *schema, const char *const *keys);
extern const char *const schema_array_keys[], *const schema_number_keys[];

/* ---- schema_merge.c -------------------------------------------------------------------------- */

/* Expands a schema whose $ref, allOf, anyOf and oneOf stand beside other keywords into plain
 * schemas without these: a value matches if it matches one of them. A new array, kept by c; NULL
 * after a failure. */
json_t *schema_ways(struct schema *c, json_t *schema);

/* ---- schema_choice.c ------------------------------------------------------------------------- */

/* Notes, where places may be loosened, that a value may match more than one of a oneOf's alternatives. */
void schema_note_choice(struct schema *c, const json_t *list);

/* ---- schema_constant.c ----------------------------------------------------------------------- */

/* Counts n values of an enum at this place, and their bytes; where places may be loosened, fails
 * above what can be bound. */
void schema_count_values(struct schema *c, size_t n, size_t bytes);

/* Does a schema let a value of its "const" and "enum" through? 1 where it has neither. */
int schema_is_possible(struct schema *c, const json_t *schema);

/* Adds those that it does. */
void schema_constants(struct schema *c, struct buffer *t, const json_t *schema);

/* ---- schema_object.c, schema_integer.c, schema_pattern.c -------------------------------------- */

/* Adds the text of an object's rule. name: of that rule. */
void schema_object(struct schema *c, struct buffer *t, const json_t *schema, const char *name);

/* Adds the text of an integer within the schema's bounds. */
void schema_integer(struct schema *c, struct buffer *t, const json_t *schema);

/* Adds what matches a pattern, between quotes. name: the rule's; rules made for parts are NAME-1,
 * ... [least, most]: limits of the length. */
void schema_pattern(struct schema *c, struct buffer *t, const char *pattern, const char *name,
                    uint32_t least, uint32_t most);

#endif
