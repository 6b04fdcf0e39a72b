/* unicode: a text as an array of letters, each a code point with its character class. The tables
 * are Unicode 15.1 (unicode_tables.h). Any thread; letters_open allocates. */
#ifndef HEARTH_CLIENT_BASE_UNICODE_H
#define HEARTH_CLIENT_BASE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories, as far as pre-tokenizers distinguish them; SPACE is the property
 * White_Space (\s). Everything else (control, format, unassigned) is OTHER. */
enum unicode_class {
    UNICODE_OTHER = 0,
    UNICODE_LU = 1,
    UNICODE_LL = 2,
    UNICODE_LT = 3,
    UNICODE_LM = 4,
    UNICODE_LO = 5,
    UNICODE_N = 6,
    UNICODE_M = 7,
    UNICODE_P = 8,
    UNICODE_S = 9,
    UNICODE_SPACE = 10,
};

/* The class of a code point; OTHER beyond U+10FFFF. */
enum unicode_class unicode_class_of(uint32_t code);

/* A letter packs both: code | class << 24. */
static inline uint32_t letter_code(uint32_t letter)
{
    return letter & 0xffffffu;
}

/* A set of classes: bit 1 << class. */
static inline bool letter_in(uint32_t letter, uint32_t classes)
{
    return (classes >> (letter >> 24) & 1u) != 0;
}

struct letters {
    uint32_t *letter; /* [n] */
    uint32_t *at;     /* [n + 1] byte offsets in the text; at[n] is its length */
    size_t n;
};

/* Takes text[0, bytes) apart, bytes < 2^32. A byte that belongs to no character is a letter of its
 * own, U+FFFD. Returns 0 or -ENOMEM. */
int letters_open(struct letters *l, const char *text, size_t bytes);
void letters_close(struct letters *l);

#endif
