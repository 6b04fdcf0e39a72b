/*
 * spec: the speculation record of one slot, and the only code that changes it.
 *
 * Pure: no I/O, no clock, no kernel, no allocation. The engine thread calls it; the caller owns the
 * record and the token array. Positions are absolute; a sequence is tokens[0 .. accepted +
 * drafted).
 *
 *              canonical      accepted         accepted + drafted
 *                  v              v                    v
 *   tokens   [ ....|.. T0 ]       [ T1' T2' T3' ]
 *   KV       [ ....|
 *
 *   accepted   tokens that are final: the prompt, then what was published or is about to be
 *   drafted    guesses after them; never published
 *   canonical  KV of positions [0, canonical) came from a canonical pass over accepted tokens;
 *              always < accepted: the last accepted token has no KV yet
 *   unverified KV of that many positions after it came from fast passes over accepted tokens, good
 *              for the next fast pass only; 0 where answers are verified;
 *              canonical + unverified < accepted
 *   base       the recurrent state, of models that have one, holds what follows from tokens
 *              [0, base); update records of the rows [base, canonical), at most 13, lie beside it;
 *              base <= canonical, or SPEC_NO_STATE where there is no state to go on from. The state
 *              of the empty text, base 0, is always there
 *
 * The two reference flows (window 3; prefill gave T0; P = position of T0):
 *
 *   all accepted                               T3 rejected
 *   after     sequence        KV up to         sequence        KV up to
 *   prefill   ..T0            P-1              ..T0            P-1
 *   draft     ..T0 T1'T2'T3'  P-1 (or fast)    ..T0 T1'T2'T3'  P-1 (or fast)
 *   verify    rows T0 T1' T2' T3' give T1 T2 T3 T4 and write canonical KV at P .. P+3
 *             T1=T1' T2=T2' T3=T3'             T1=T1' T2=T2' T3!=T3'
 *   accept    ..T0 T1 T2 T3 T4                 ..T0 T1 T2 T3 (the verifier's own)
 *   KV        P+3 (T3 has it, T4 not)          P+2 (T2 has it, T3 not; P+3 held T3', dropped)
 *   state     base P, records T0 T1 T2 T3      base P, records T0 T1 T2 (that of T3' is dropped)
 *
 * With proposer `none` drafted is 0 and a verification is one row that gives one token. Rollback is
 * arithmetic: nothing is copied. A state cannot go back, so it goes forward late: a canonical pass
 * first applies the records of [base, canonical), then commits its rows before accepted - 1 as they
 * run. The row of the last accepted token and those of drafts, which may be rejected, leave
 * records.
 *
 * An answer that need not be deterministic is not drafted and not verified: a fast pass over the
 * row of the last accepted token gives the next one, which is accepted as it is. `canonical` stays
 * where canonical passes left it; when one runs again it begins there, over KV that it can rely on.
 *
 *   after prefill   ..T0       KV up to P-1
 *   fast pass       ..T0 T1    KV up to P-1, and at P from a fast pass
 *   fast pass       ..T0 T1 T2 KV up to P-1, and at P, P+1 from fast passes
 *
 * Source: LLM-42 (arXiv 2601.17768), from which this differs by the bonus token T4. */
#ifndef HEARTH_DAEMON_POLICY_SPEC_H
#define HEARTH_DAEMON_POLICY_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum { SPEC_RECORDS_MAX = 13 }; /* a window's: its drafts, and the row before them */

#define SPEC_NO_STATE UINT32_MAX

struct spec {
    uint32_t accepted;
    uint32_t drafted;
    uint32_t canonical;
    uint32_t unverified;
    uint32_t base;
};

/* What the record holds must be true at any time: canonical + unverified < accepted (or all 0), and
 * base <= canonical, if there is a state. */
bool spec_valid(const struct spec *spec);

/* A new request of `n_tokens` (>= 1) tokens, of which the first `kept` have canonical KV from
 * before. Keeps at most n_tokens - 1: the last token's row is computed to get the first sample. */
void spec_begin(struct spec *spec, uint32_t n_tokens, uint32_t kept);

/* Rows that a canonical pass must compute before the next sample: positions [canonical, accepted +
 * drafted). At least 1. */
uint32_t spec_rows(const struct spec *spec);

/* Positions [0, n) have KV, of whatever pass. */
uint32_t spec_computed(const struct spec *spec);

/* KV of `n_rows` prefill rows from `canonical` on is canonical now: less than spec_rows. What fast
 * passes computed after them was computed over other KV, and is void. */
void spec_prefilled(struct spec *spec, uint32_t n_rows);

/* Of `n_rows` rows from `canonical` on, those before accepted - 1: a canonical pass commits them.
 * The others are a whole window. */
uint32_t spec_commit(const struct spec *spec, uint32_t n_rows);

/* Records that a pass whose first row is at `position` >= canonical applies. There is a state. */
uint32_t spec_apply(const struct spec *spec, uint32_t position);

/* A canonical pass computed `n_rows` rows from `canonical` on, and the first `n_clean` of them are
 * not poisoned: prefill rows are canonical, and the state's base has come to the last accepted
 * token; a row that was poisoned before that has spoiled it. */
void spec_settle(struct spec *spec, uint32_t n_rows, uint32_t n_clean);

/* Is there a state that follows from tokens [0, canonical)? */
bool spec_has_state(const struct spec *spec);

/* There is one, from elsewhere, or none any more. */
void spec_restart(struct spec *spec);
void spec_lose_state(struct spec *spec);

/* Appends one drafted token to `tokens` [accepted + drafted]. */
void spec_draft(struct spec *spec, uint32_t *tokens, uint32_t token);

/* Takes the sample of the row at position accepted - 1, computed by a canonical pass that also
 * covered every position before it. Writes it to tokens[accepted]. Returns true when it equals the
 * draft that stood there (the sample of the next row counts as well), false when the window ends
 * here: with no draft left, or rolled back. */
bool spec_accept(struct spec *spec, uint32_t *tokens, uint32_t sample);

/* True when all accepted tokens except the last have KV and nothing is drafted. Then a fast pass
 * over that one's row gives the next token. */
bool spec_at_tip(const struct spec *spec);

/* Takes the sample of that row, which is accepted as it is. Writes it to tokens[accepted]. */
void spec_take_unverified(struct spec *spec, uint32_t *tokens, uint32_t sample);

/* The answer ended: what only fast passes computed is void. */
void spec_rest(struct spec *spec);

/* Drops all drafts: the answer ended inside the window, was cancelled or superseded. Returns how
 * many. */
uint32_t spec_rollback(struct spec *spec);

/* Keeps the first n drafts. Returns how many it drops. */
uint32_t spec_cut(struct spec *spec, uint32_t n);

/* The last accepted token is taken out of the sequence: an end-of-sequence token is a reason, not a
 * token of the answer. */
void spec_drop_last(struct spec *spec);

/* KV of positions >= n_positions is gone (pages taken back). Tokens stay. */
void spec_evict(struct spec *spec, uint32_t n_positions);

#endif
