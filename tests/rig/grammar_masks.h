/*
 * grammar_masks: a vocabulary with a token for each byte, and the masks of an answer, for tests.
 * A header of static functions like gguf_writer.h.
 */
#ifndef HEARTH_TESTS_RIG_GRAMMAR_MASKS_H
#define HEARTH_TESTS_RIG_GRAMMAR_MASKS_H

#include <check.h>
#include <errno.h>
#include <string.h>

#include "daemon/grammar/grammar_impl.h"
#include "tests/random.h"

enum { END = 256, BYTES_VOCAB = 257 }; /* a token for each byte, and an end token */

static struct grammar_vocab *bytes_vocab;

static inline void setup(void)
{
    static char bytes[256];
    struct grammar_token tokens[BYTES_VOCAB] = {
        [END] = {.bytes = "</s>", .n_bytes = 4, .is_end = true}};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token){.bytes = bytes + i, .n_bytes = 1};
    }
    ck_assert_int_eq(grammar_vocab_open(tokens, BYTES_VOCAB, BYTES_VOCAB, &bytes_vocab), 0);
}

static inline void teardown(void)
{
    grammar_vocab_close(bytes_vocab);
}

static inline struct grammar *open_grammar(const struct grammar_vocab *v, const char *text)
{
    struct grammar *g = NULL;
    char err[300] = "";
    ck_assert_msg(grammar_open(v, text, strlen(text), &g, err, sizeof(err)) == 0, "%s", err);
    return g;
}

static inline bool has(const uint64_t *bits, uint32_t id)
{
    return (bits[id >> 6] >> (id & 63) & 1) != 0;
}

/* The mask after `draft` drafts, computed in pieces of `piece` (0: at once). Its bits are NULL
 * where the grammar has too many parses. */
static inline struct grammar_mask mask_of(struct grammar_run *run, uint32_t draft, int64_t piece)
{
    struct grammar_mask mask;
    for (uint32_t calls = 0; calls < 10000000; calls++) {
        int64_t budget = piece ? piece : INT64_MAX;
        int rc = grammar_mask(run, draft, &budget, &mask);
        if (rc == 1)
            return mask;
        if (rc == -E2BIG)
            return (struct grammar_mask){.bits = NULL};
        ck_assert_int_eq(rc, 0);
        ck_assert(piece && budget <= 0);
    }
    ck_abort_msg("the mask is never made");
}

/* One of the tokens that the mask allows. */
static inline uint32_t random_allowed(const struct grammar_mask *mask, uint32_t *state)
{
    uint32_t skip = next_random(state) % mask->n_allowed;
    for (uint32_t id = 0;; id++)
        if (has(mask->bits, id) && skip-- == 0)
            return id;
}

#endif
