/* utf8: one step of strict UTF-8 decoding (no overlong forms, no surrogates, at most U+10FFFF), and
 * of encoding. Pure; any thread. */
#ifndef HEARTH_CLIENT_BASE_UTF8_H
#define HEARTH_CLIENT_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu

/* Looks at s[0, n), n > 0. Returns k > 0: a character of k bytes, its code point in *ret_code;
 * k < 0: the first -k bytes are not a character and never become one (the longest beginning of one,
 * at least a byte: what one U+FFFD replaces); 0: all n bytes, at most 3, begin a character. */
int utf8_step(const char *s, size_t n, uint32_t *ret_code);

/* How many characters s[0, n) has, which is valid. */
size_t utf8_count(const char *s, size_t n);

/* Writes a code point of at most U+10FFFF. Returns its bytes. */
size_t utf8_put(uint32_t code, char out[4]);

#endif
