/* grammar.h: constrained decoding: which tokens may follow, as a bit set for the sampler.
 *
 * A grammar is text in llama.cpp's dialect of GBNF (README.md in this folder), read as a
 * language of UTF-8 bytes. A token may follow if the answer so far plus its bytes is a prefix of a
 * sentence: code points may span tokens. An end token may follow exactly where a sentence ends.
 *
 *   text --parse--> tree --compile--> ops     a pushdown automaton over bytes
 *   ops  --step---> states                    sets of stacks, made on demand, identified by number
 *   state x trie of the vocabulary --walk--> mask      cached for recently used states
 *
 * What a state allows is a function of the grammar, the vocabulary and the tokens so far. The text
 * comes from a client: every size is bounded whatever it contains, and making a mask is divided
 * into pieces by a budget, so that other requests do not wait for it.
 *
 * Threads: a grammar_vocab is constant, for any thread; a grammar with its runs belongs to one
 * thread. Owns what it opens. Never prints, keeps no global state. */
#ifndef HEARTH_DAEMON_GRAMMAR_GRAMMAR_H
#define HEARTH_DAEMON_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GRAMMAR_TEXT_MAX = 2 << 20,   /* bytes */
    GRAMMAR_RULES_MAX = 16384,    /* including those made for repetitions */
    GRAMMAR_OPS_MAX = 262144,     /* ops of the automaton */
    GRAMMAR_NESTING_MAX = 100,    /* nested parentheses */
    GRAMMAR_WIDTH_MAX = 2048,     /* readings of the answer that differ in what may follow */
    GRAMMAR_STACKS_MAX = 6 << 20, /* bytes of stacks per answer, over all its readings */
    GRAMMAR_BYTES_MAX = 8 << 20,  /* for one grammar's states, more only if several answers together
                                     need it; masks come on top */
    GRAMMAR_MASKS_MAX = 1024,     /* cached per grammar, n_vocab / 8 bytes each, ... */
    GRAMMAR_MASK_BYTES = 6 << 20, /* ... and at most this many bytes of them */
    GRAMMAR_TOKEN_MAX = 1024,     /* bytes; longer tokens are never allowed */
    GRAMMAR_DRAFTS_MAX = 32,      /* per run */
    GRAMMAR_MILLISECOND = 130000, /* of work, roughly, in units of a budget */
};

/* ---- the vocabulary -------------------------------------------------------------------------- */

struct grammar_token {
    const char *bytes; /* [n_bytes] */
    uint32_t n_bytes;  /* 0: never allowed, unless it is an end or a control token */
    bool is_end;       /* generation ends with it; its bytes are ignored */
    bool is_control;   /* allowed only where the grammar has <[id]>; its bytes are ignored */
};

struct grammar_vocab;

/* Sorts the tokens into a trie. tokens: [n_tokens], read during the call; n_vocab >= n_tokens: bits
 * of a mask. Returns 0, -EINVAL or -ENOMEM. */
int grammar_vocab_open(const struct grammar_token *tokens, uint32_t n_tokens, uint32_t n_vocab,
                       struct grammar_vocab **ret);
void grammar_vocab_close(struct grammar_vocab *v); /* NULL is allowed */

/* Bytes of memory it uses. */
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

/* The position of an answer in a grammar: after its accepted tokens, and after each drafted one.
 * Fields are private. */
struct grammar_run {
    struct grammar *grammar; /* NULL: none */
    struct grammar_run *next;
    uint32_t n_drafts;
    uint32_t states[GRAMMAR_DRAFTS_MAX + 1];
    uint32_t moving; /* the state within a token that is being followed ... */
    uint32_t moved;  /* ... after so many of its bytes; 0: it was not begun */
};

/* Begins an answer. With `drops_space` one space at its very beginning is ignored (SPM puts one
 * before every text). */
void grammar_begin(struct grammar *g, bool drops_space, struct grammar_run *run);
void grammar_end(struct grammar_run *run); /* also of a run that was never begun, all zero */

/* Advances by an accepted token; drafts are discarded. *budget is reduced by the work done, which
 * may exceed what was left by that for one byte. Returns 0; -EPERM: the grammar forbids the token
 * (or it is an end token where no sentence ends), the run is unchanged; -E2BIG: the grammar cannot
 * be followed within its limits; -ENOMEM; -EAGAIN: the budget is used up, and the run may be within
 * the token: call it again with the same token then, and nothing else but grammar_end. */
int grammar_follow(struct grammar_run *run, uint32_t token, int64_t *budget);

/* The same by text, which need not be a token's. */
int grammar_follow_text(struct grammar_run *run, const char *text, size_t bytes, int64_t *budget);

/* Advances by the first draft, which was accepted; the others stay. */
void grammar_agree(struct grammar_run *run);

/* Adds a draft after the others while *budget, which it reduces, lasts. Returns as grammar_follow;
 * -EPERM for an end token, too, since nothing follows it; -ENOSPC if there are GRAMMAR_DRAFTS_MAX
 * already; -EAGAIN: the draft is not added. */
int grammar_draft_within(struct grammar_run *run, uint32_t token, int64_t *budget);

/* Keeps the first n drafts. */
void grammar_keep(struct grammar_run *run, uint32_t n);

/* True if a sentence ends after the accepted tokens. grammar_must_end: and nothing else may
 * follow. */
bool grammar_may_end(const struct grammar_run *run);
bool grammar_must_end(const struct grammar_run *run);

struct grammar_mask {
    const uint64_t *bits; /* [(n_vocab + 63) / 64] bit `id` is set: the token may follow */
    uint32_t n_allowed;   /* including end tokens; 0: no token of the vocabulary can continue */
};

/* Computes which tokens may follow the accepted ones and the first `draft` drafts. Works until
 * *budget, which it reduces, is used up, and continues at the next call. Returns 1 with *ret, valid
 * until grammar_release; 0: not finished yet; -E2BIG: the grammar cannot be followed within its
 * limits; -ENOMEM. */
int grammar_mask(struct grammar_run *run, uint32_t draft, int64_t *budget,
                 struct grammar_mask *ret);

/* Masks given out so far are not used any more. */
void grammar_release(struct grammar *g);

/* The error line for -E2BIG of a run. */
extern const char grammar_too_wide[];

#endif
