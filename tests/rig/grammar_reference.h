/*
 * grammar_reference: the meaning of a grammar by code that shares only the parser with
 * daemon/grammar: no ops, states or stacks. It walks the tree and computes for every node where
 * in the text a match of it may end, and whether the text may end inside one. For short texts.
 */
#ifndef HEARTH_TESTS_RIG_GRAMMAR_REFERENCE_H
#define HEARTH_TESTS_RIG_GRAMMAR_REFERENCE_H

#include "daemon/grammar/grammar_impl.h"

enum { REFERENCE_BYTES_MAX = 62 };

struct reference {
    struct ast_tree tree;
    char *text;
    uint8_t *productive; /* [n_nodes] it has a finite sentence */
    uint8_t *known;      /* [n_nodes * 64] */
    uint64_t *ends;      /* [n_nodes * 64] bit j: a match from i may end at j */
    uint8_t *partial;    /* [n_nodes * 64] the text ends in the middle of a match from i */
    const uint8_t *bytes;
    uint32_t n;
};

/* Returns 0 or grammar_parse's error. */
int reference_open(struct reference *r, const char *grammar, size_t bytes);
void reference_close(struct reference *r);

/* Is the text the beginning of a sentence? *ret_whole: is it a sentence? At most
 * REFERENCE_BYTES_MAX bytes. */
bool reference_match(struct reference *r, const void *bytes, uint32_t n, bool *ret_whole);

#endif
