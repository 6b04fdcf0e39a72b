/*
 * options: command-line options from a table: the parser, the range checks, the lines of --help,
 * and the reader of one value for a configuration file. All programs of hearth use it.
 *
 * One thread, at start-up. It prints only where options_help is told to, and allocates nothing:
 * text values point into argv. Options are written --name VALUE or --name=VALUE, those with a
 * letter also -n VALUE or -nVALUE; -h is --help; "--" ends them. An option that is given twice has
 * its last value. */
#ifndef HEARTH_IPC_OPTIONS_H
#define HEARTH_IPC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Whole numbers take the suffixes K, M, G and T (powers of 1024). */
enum option_kind {
    OPTION_FLAG,   /* uint32_t or int: 1 when given; takes no value */
    OPTION_SWITCH, /* uint32_t: a flag that also takes =yes and =no, for configuration files */
    OPTION_U32,    /* uint32_t in [least, most] */
    OPTION_I32,    /* int32_t in [least, most] */
    OPTION_U64,    /* uint64_t in [least, most] */
    OPTION_F32,    /* float in [least, most] */
    OPTION_CHOICE, /* uint32_t: the index in the list that stands as the value's name, "a|b|c" */
    OPTION_WORD,   /* const char *: one of such a list */
    OPTION_TEXT,   /* const char *, not empty */
    OPTION_TEXTS,  /* struct option_texts: at most OPTION_TEXTS_MAX of [least, most] bytes each */
    OPTION_OTHER   /* read by the row's own function */
};

enum { OPTION_TEXTS_MAX = 64 };
#define OPTION_U64_MAX 0x1p64 /* `most` of an OPTION_U64 without a limit of its own */

struct option_texts {
    const char *items[OPTION_TEXTS_MAX]; /* [n] */
    uint32_t n;
};

struct option_row {
    const char *name;  /* without the dashes */
    const char *value; /* what --help calls the value: "N", "FILE", "a|b|c"; NULL: none is taken */
    const char *def;   /* the default, as it would be written; NULL: 0, or none */
    const char *help;
    size_t field; /* offset in the struct that is filled */
    enum option_kind kind;
    char letter; /* 0: none */
    double least, most;
    uint32_t commands; /* commands that take the option, see struct options; 0: all */
    /* OPTION_OTHER: reads text into the field. Returns 0, -EINVAL or -ENOMEM. */
    int (*read)(const struct option_row *row, void *field, const char *text);
};

/* A row for member `id` of struct type. */
#define OPTION(type, id, name_, letter_, kind_, value_, def_, least_, most_, help_)                \
    {                                                                                              \
        .name = (name_), .value = (value_), .def = (def_), .help = (help_),                        \
        .field = offsetof(type, id), .kind = (kind_), .letter = (letter_), .least = (least_),      \
        .most = (most_)                                                                            \
    }

/* A table and the struct that it fills. */
struct options {
    const struct option_row *rows; /* [n] */
    size_t n;
    void *fields;
    bool *given;       /* [n]: set for each option that argv holds; may be NULL */
    uint32_t commands; /* rows whose mask shares no bit with it are left out; 0: no row is */
    bool takes_words;  /* arguments that are not options are allowed */
};

/* Sets every field whose row has a default. */
void options_init(const struct options *o);

/* Reads argv[0, argc), without the program's name. Words that are not options are moved to the
 * front of argv, in order. Returns their number, or -EINVAL or -ENOMEM with one line in err. */
int options_parse(const struct options *o, int argc, char **argv, char *err, size_t err_bytes);

/* Reads one value. Returns 0, or -EINVAL or -ENOMEM with a line in err that begins with the
 * name. */
int options_set(const struct options *o, const struct option_row *row, const char *text, char *err,
                size_t err_bytes);

/* NULL where no row has that name. */
const struct option_row *options_find(const struct options *o, const char *name, size_t bytes);

/* Writes a line for each option; defaults stand in parentheses. */
void options_help(const struct options *o, FILE *out);

/* The field's value as options_set would read it, or NULL where it is the default. Of flags always
 * NULL. */
const char *options_value(const struct options *o, const struct option_row *row, char *text,
                          size_t bytes);

/* The word at `index` of a list "a|b|c". Returns text. */
const char *option_choice(const char *list, uint32_t index, char *text, size_t bytes);

#endif
