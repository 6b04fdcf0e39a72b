/* builtin: what a template can call: filters, tests, methods of strings, dicts and lists, and the
 * global functions. Each is a row of a table: a name, how many arguments it needs, the names of
 * all it takes, and the function. */
#ifndef HEARTH_CLIENT_JINJA_BUILTIN_H
#define HEARTH_CLIENT_JINJA_BUILTIN_H

#include "client/jinja/buf.h"

struct eval;
struct name;

enum { BUILTIN_MOST_PARAMETERS = 6 };

struct keyword {
    const struct name *name;
    enum origin origin; /* of the name's text */
    struct value value;
};

struct args {
    const struct value *at; /* [n] */
    size_t n;
    const struct keyword *named; /* [n_named] */
    size_t n_named;
};

struct call {
    struct value self;        /* what the filter, test or method is applied to */
    const struct value *a;    /* [parameters] by place, VALUE_ABSENT where not given */
    const struct args *given; /* as they were written */
};

typedef struct value builtin_run(struct eval *e, const struct call *c);

struct builtin {
    const char *name;
    builtin_run *run;
    uint8_t least;          /* arguments that must be there */
    const char *parameters; /* "width first blank"; "*": any, read from `given` */
};

/* A builtin that is one expression. */
#define BUILTIN(name, expression)                                                                  \
    static struct value name(struct eval *e, const struct call *c)                                 \
    {                                                                                              \
        (void)e;                                                                                   \
        return expression;                                                                         \
    }

/* NULL: none of that name. */
const struct builtin *filters_find(const char *name, size_t bytes);
const struct builtin *tests_find(const char *name, size_t bytes);
const struct builtin *methods_find(enum value_kind kind, const char *name, size_t bytes);
const struct builtin *builtin_find(const struct builtin *table, size_t n, const char *name,
                                   size_t bytes);

extern const struct builtin globals[];
extern const size_t n_globals;

/* In files of their own: filters over lists, methods that search and split strings. */
extern const struct builtin list_filters[], search_methods[];
extern const size_t n_list_filters, n_search_methods;

struct value keyword_text(const struct keyword *k); /* its name, as a string */

/* Arguments: a default if missing, a fault for another type. */
int64_t arg_integer(struct eval *e, const struct call *c, size_t i, int64_t otherwise);
bool arg_bool(const struct call *c, size_t i, bool otherwise);
struct value arg_string(struct eval *e, const struct call *c, size_t i, const char *otherwise);
/* What `self` prints as. */
struct value self_string(struct eval *e, const struct call *c);

/* Shared by filters and methods of the same name. */
struct value text_case(struct eval *e, struct value s, int how); /* 'u' 'l' 't' 'w' 'c' 's' */
bool text_is_case(struct eval *e, struct value s, int how); /* 'u', 'l': has letters, all of it */
/* Is the text a whole number, of at most nine digits? */
bool text_is_index(const char *text, size_t bytes, int64_t *ret);
struct value text_strip(struct eval *e, struct value s, struct value chars, bool left, bool right);
/* At least `width` characters: with `fill`, one character, after s ('l'), before it ('r') or on
 * both sides ('c'). */
struct value text_pad(struct eval *e, struct value s, int64_t width, struct value fill, int side);
struct value text_replace(struct eval *e, struct value s, struct value from, struct value to,
                          int64_t most);
struct value dict_pairs(struct eval *e, struct value d);
struct value text_format_percent(struct eval *e, struct value format, struct value arguments);
struct value text_format_braces(struct eval *e, struct value format, const struct args *args);

#endif
