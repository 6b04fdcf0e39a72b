/*
 * grammars: compiled grammars by their text, so that the next request with the same one finds it
 * compiled, and its masks made.
 *
 * Engine thread. A grammar belongs to the user whose request brought it; users never share. What no
 * request uses is kept while there is a place for it, the one unused the longest goes first. Owns
 * the grammars and copies of their texts. Does no I/O.
 */
#ifndef HEARTH_DAEMON_ENGINE_GRAMMARS_H
#define HEARTH_DAEMON_ENGINE_GRAMMARS_H

#include "daemon/grammar/grammar.h"

#include <sys/types.h>

enum { GRAMMARS_IDLE = 8 }; /* kept beyond those in use */

struct grammars_entry;

struct grammars {
    const struct grammar_vocab *vocab;
    struct grammars_entry *entries; /* [n_entries] */
    uint32_t n_entries;
    uint64_t serial; /* of the last use */
};

/* For `n_users` requests at once. Returns 0 or -ENOMEM; fini in any case. */
int grammars_init(struct grammars *grammars, const struct grammar_vocab *vocab, uint32_t n_users);
void grammars_fini(struct grammars *grammars);

/* The grammar of text[bytes], found or compiled, in use until it is given back. Returns 0, -EINVAL
 * or -ENOMEM with one line. */
int grammars_take(struct grammars *grammars, uid_t uid, const uint8_t *text, uint32_t bytes,
                  struct grammar **ret, char *err, size_t err_bytes);
void grammars_give(struct grammars *grammars, const struct grammar *grammar);

/* A step begins: no mask of an earlier one is used any more. */
void grammars_release(struct grammars *grammars);

#endif
