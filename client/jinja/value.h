/* value: what a template computes with, as Python has it: None, booleans, integers (64 bits),
 * floats, strings, lists, tuples, dicts that keep their order, and things that can be called.
 *
 * Values are small and copied; lists and dicts are shared, in the heap. A string knows of each byte
 * whether it came from an input value (a message) or from the template, so that
 * no control token is tokenized out of a message. One thread; errors are faults of the heap. */
#ifndef HEARTH_CLIENT_JINJA_VALUE_H
#define HEARTH_CLIENT_JINJA_VALUE_H

#include "client/jinja/heap.h"

#include <stdbool.h>

enum value_kind {
    VALUE_ABSENT = 0, /* an argument that was not given; never seen by a template */
    VALUE_UNDEFINED,  /* `text` is its name, for errors */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INTEGER,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_BUILTIN,
    VALUE_METHOD,
    VALUE_LOOP
};

enum origin { ORIGIN_TEMPLATE = 0, ORIGIN_INPUT = 1, ORIGIN_MIXED = 2 };

struct value {
    uint8_t kind;           /* enum value_kind */
    uint8_t origin;         /* of a string: enum origin */
    size_t bytes;           /* of text */
    const uint8_t *origins; /* [bytes] ORIGIN_TEMPLATE or _INPUT, where origin is MIXED */
    union {
        bool truth;
        int64_t integer;
        double number;
        const char *text; /* [bytes], UTF-8, may hold 0, none at its end */
        struct list *list;
        struct dict *dict; /* also of a namespace */
        struct macro *macro;
        const struct builtin *builtin;
        struct method *method;
        struct loop *loop;
    };
};

struct list {
    struct value *items; /* [n] */
    size_t n, room;
};

struct entry {
    struct value key, value;
};

struct dict {
    struct entry *entries; /* [n] in the order in which they came */
    size_t n, room;
};

struct value value_none(void);
struct value value_bool(bool truth);
struct value value_integer(int64_t integer);
struct value value_float(double number);
struct value value_text(const char *text, size_t bytes); /* the template's own; not copied */
struct value value_literal(const char *text);            /* the same, up to its 0 */
struct value value_undefined(const char *name, size_t bytes);
struct value value_list(struct heap *h);
struct value value_tuple(struct heap *h);
struct value value_dict(struct heap *h);

/* A part of a string, with its origins. */
struct value value_slice(struct value s, size_t at, size_t bytes);

void list_push(struct heap *h, struct list *l, struct value v);
void list_extend(struct heap *h, struct list *l, const struct value *items, size_t n);

/* Sets a key, also one that is there already. */
void dict_set(struct heap *h, struct dict *d, struct value key, struct value v);
/* Adds a key that is known to be new. */
void dict_add(struct heap *h, struct dict *d, struct value key, struct value v);
/* NULL: not there. */
struct value *dict_find(struct heap *h, const struct dict *d, struct value key);

/* Sorts by key, keeping the order of equal ones. */
void entries_sort(struct heap *h, struct entry *entries, size_t n, bool reverse);

bool value_is_list(struct value v);   /* or a tuple */
bool value_is_number(struct value v); /* booleans are numbers, too */
double value_number(struct value v);
double value_floor(double number);
int64_t value_whole(struct value v);             /* of a boolean or an integer */
bool value_is(struct value v, const char *text); /* a string equal to this one */
const char *value_type(struct value v);          /* Python's name of it, "str" */

bool value_true(struct value v);
bool value_equal(struct heap *h, struct value a, struct value b);
/* Below, equal to or above 0, as strcmp. A fault where the two have no order. */
int value_compare(struct heap *h, struct value a, struct value b);
bool value_contains(struct heap *h, struct value all, struct value one);

/* What a loop goes over: items of a list, characters of a string, keys of a dict. */
struct list *value_items(struct heap *h, struct value v);
size_t value_length(struct heap *h, struct value v);

/* Characters of a string (a byte that is not UTF-8 is one). */
size_t text_length(const char *text, size_t bytes);
/* Where character i begins: at most `bytes`. */
size_t text_offset(const char *text, size_t bytes, size_t i);
/* Bytes of the character at text[0, bytes), bytes > 0. */
size_t text_step(const char *text, size_t bytes);

/* Calls heap_fault: a value that is undefined was used. */
_Noreturn void value_undefined_fault(struct heap *h, struct value v);
/* Calls value_undefined_fault if the value is undefined. */
void value_need(struct heap *h, struct value v);

#endif
