/* Grammars: which tokens may follow, as a bit set for the sample.
 *
 * A grammar is text in llama.cpp's dialect of GBNF (kernels/README.md, "Grammars"), read as a
 * language of UTF-8 bytes. A token may follow when the answer so far and its bytes are the beginning
 * of a sentence: code points may span tokens. An end token may follow exactly where a sentence ends.
 *
 *   text --parse--> tree --compile--> ops     a pushdown automaton over bytes
 *   ops  --step---> states                    sets of stacks, made when first needed, told by number
 *   state x trie of the vocabulary --walk--> mask      kept for the states used last
 *
 * What a state allows is a function of the grammar, the vocabulary and the tokens so far. A client
 * wrote the text: every size is bounded, whatever it says, and making a mask is cut into pieces by a
 * budget, so that nobody else waits for it.
 *
 * Threads: a grammar_vocab is constant, for any thread; a grammar with its runs belongs to one.
 * Owns: what is opened. Never: prints, keeps global state, knows what a token means. */
#ifndef HEARTH_DAEMON_GRAMMAR_GRAMMAR_H
#define HEARTH_DAEMON_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GRAMMAR_TEXT_MAX = 1 << 20,   /* bytes */
    GRAMMAR_RULES_MAX = 8192,     /* those made for repetitions included */
    GRAMMAR_OPS_MAX = 65536,      /* of the automaton */
    GRAMMAR_NESTING_MAX = 100,    /* parentheses */
    GRAMMAR_WIDTH_MAX = 2048,     /* ways to read the answer so far that differ in what follows */
    GRAMMAR_STACKS_MAX = 6 << 20, /* bytes of what one answer may return to, in all its readings */
    GRAMMAR_BYTES_MAX =
        8 << 20,              /* of one grammar's states, more only where several answers together
                                     need it; masks come on top */
    GRAMMAR_MASKS_MAX = 1024, /* kept by one grammar, n_vocab / 8 bytes each, ... */
    GRAMMAR_MASK_BYTES = 6 << 20, /* ... and of these at most so many bytes */
    GRAMMAR_TOKEN_MAX = 1024,     /* bytes; a longer token is never allowed */
    GRAMMAR_DRAFTS_MAX = 32,      /* of one run */
    GRAMMAR_MILLISECOND = 130000, /* of budget, about */
};

/* ---- the vocabulary -------------------------------------------------------------------------- */

struct grammar_token {
    const char *bytes; /* [n_bytes] */
    uint32_t n_bytes;  /* 0: never allowed, unless it is an end */
    bool is_end;       /* generation ends with it; its bytes do not matter */
};

struct grammar_vocab;

/* Sorts the tokens into a trie. tokens: [n_tokens], read during the call; n_vocab >= n_tokens: bits
 * of a mask. Returns 0, -EINVAL or -ENOMEM. */
int grammar_vocab_open(const struct grammar_token *tokens, uint32_t n_tokens, uint32_t n_vocab,
                       struct grammar_vocab **ret);
void grammar_vocab_close(struct grammar_vocab *v); /* NULL is allowed */

/* Memory that it takes. */
size_t grammar_vocab_memory(const struct grammar_vocab *v);

/* ---- a grammar ------------------------------------------------------------------------------- */

struct grammar;

/* Compiles text[0, bytes); the vocabulary must outlive the grammar, the text need not. Returns 0;
 * -EINVAL with one line that says what is wrong and where; -ENOMEM. */
int grammar_open(const struct grammar_vocab *v, const char *text, size_t bytes,
                 struct grammar **ret, char *err, size_t err_bytes);
void grammar_close(struct grammar *g); /* after its runs ended; NULL is allowed */

size_t grammar_memory(const struct grammar *g);

/* ---- a run: one answer ----------------------------------------------------------------------- */

/* Where an answer stands in a grammar: after its accepted tokens, then after each drafted one.
 * Fields are the grammar's. */
struct grammar_run {
    struct grammar *grammar; /* NULL: none */
    struct grammar_run *next;
    uint32_t n_drafts;
    uint32_t states[GRAMMAR_DRAFTS_MAX + 1];
    uint32_t moving; /* the state in the middle of a token */
};

/* An answer begins. With `drops_space` one space at its very beginning is no part of it (SPM puts
 * one before every text). */
void grammar_begin(struct grammar *g, bool drops_space, struct grammar_run *run);
void grammar_end(struct grammar_run *run); /* also of a run that was never begun, all zero */

/* The answer goes on with a token; drafts are forgotten. Returns 0; -EPERM: the grammar forbids it
 * (an end token where no sentence ends), the run is as it was; -E2BIG: the grammar cannot be
 * followed within its limits; -ENOMEM. */
int grammar_accept(struct grammar_run *run, uint32_t token);

/* The same, for many tokens in a row: *budget is lowered by what this one took, which may be more
 * than was left. */
int grammar_follow(struct grammar_run *run, uint32_t token, int64_t *budget);

/* A token is drafted behind the others. Returns as grammar_accept; -EPERM for an end token, too:
 * nothing follows it; -ENOSPC behind GRAMMAR_DRAFTS_MAX. */
int grammar_draft(struct grammar_run *run, uint32_t token);

/* Keeps the first n drafts. */
void grammar_keep(struct grammar_run *run, uint32_t n);

/* Does a sentence end behind the accepted tokens? And is it that nothing else may follow? */
bool grammar_may_end(const struct grammar_run *run);
bool grammar_must_end(const struct grammar_run *run);

struct grammar_mask {
    const uint64_t *bits; /* [(n_vocab + 63) / 64] bit `id` is set: the token may follow */
    uint32_t n_allowed;   /* end tokens included; 0: the vocabulary has no way to go on */
};

/* The tokens that may follow the accepted ones and the first `draft` drafts. Works on it for as long
 * as *budget lasts, which it lowers, and goes on at the next call. Returns 1 with *ret, to be used
 * before grammar_release; 0: not finished yet; -E2BIG: the grammar cannot be followed within its
 * limits; -ENOMEM. */
int grammar_mask(struct grammar_run *run, uint32_t draft, int64_t *budget,
                 struct grammar_mask *ret);

/* Masks given out so far are not used any more. */
void grammar_release(struct grammar *g);

/* A line for -E2BIG of a run. */
extern const char grammar_too_wide[];

#endif
