/*
 * The speculation record, exhaustively: every window of 0 to 8 drafts, every place of the first
 * mismatch, every place inside a window where the answer may end; every number of
 * tokens that are not verified, and every place where canonical passes take over. The verifier of
 * these tests is the array `truth`: the sample for position p is truth[p], as a canonical pass over
 * accepted tokens gives it. A device that folds tokens into a state watches what the record says of
 * it.
 */
#include "daemon/policy/spec.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_MAX = 8, LENGTH = 64, INVALID_USES = 10 };

static uint32_t truth[LENGTH], tokens[LENGTH];
static struct spec spec;

/* A device's recurrent state: what follows from [0, base), and the rows after that as records. */
static struct {
    uint64_t folded;
    uint32_t base, n_records, records[SPEC_RECORDS_MAX];
} device;

static void setup(void)
{
    for (uint32_t i = 0; i < LENGTH; i++)
        truth[i] = 1000 + i * i;
}

/* A prompt of n tokens, all but the last computed. */
static void after_prefill(uint32_t n)
{
    for (uint32_t i = 0; i < LENGTH; i++)
        tokens[i] = i < n ? truth[i] : 0xdead;
    spec_begin(&spec, n, 0);
    spec_prefilled(&spec, n - 1);
}

/* Drafts that are right up to `mismatch` (counted from 0; `drafts`: all are right). */
static void draft(uint32_t drafts, uint32_t mismatch)
{
    for (uint32_t i = 0; i < drafts; i++)
        spec_draft(&spec, tokens, truth[spec.accepted + i] + (i >= mismatch));
}

static void check_accepted(void)
{
    ck_assert(spec_valid(&spec));
    for (uint32_t i = 0; i < spec.accepted; i++)
        ck_assert_uint_eq(tokens[i], truth[i]);
}

/* Verifies the window as the engine does, at most `most` samples. Returns how many drafts agreed. */
static uint32_t verify(uint32_t most)
{
    uint32_t agreed = 0;

    for (uint32_t i = 0; i < most; i++) {
        bool more = spec_accept(&spec, tokens, truth[spec.accepted]);
        check_accepted();
        if (!more)
            break;
        agreed++;
    }
    return agreed;
}

/* ---- the device that watches ----------------------------------------------------------------- */

enum { ALL_CLEAN = LENGTH };

static uint64_t fold(uint64_t folded, const uint32_t *rows, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        folded = (folded + rows[i]) * 0x9e3779b97f4a7c15u;
    return folded;
}

/* A canonical pass over `n` rows, of which row `poisoned` and later ones are. */
static void pass(uint32_t n, uint32_t poisoned)
{
    uint32_t apply = spec_apply(&spec, spec.canonical), commit = spec_commit(&spec, n);
    uint32_t clean = n < poisoned ? n : poisoned;

    ck_assert_uint_le(apply, device.n_records);
    ck_assert_uint_le(n - commit, SPEC_RECORDS_MAX);
    device.folded = fold(device.folded, device.records, apply);
    device.base += apply;
    ck_assert_uint_eq(device.base, spec.canonical);
    device.folded = clean < commit ? 0xbad : fold(device.folded, tokens + spec.canonical, commit);
    device.base += commit;
    device.n_records = clean < commit ? 0 : clean - commit;
    memcpy(device.records, tokens + device.base, device.n_records * sizeof(*tokens));
    spec_settle(&spec, n, clean);
}

/* Is there a state, then it is that of the tokens that have KV. Returns whether there is one. */
static bool check_state(void)
{
    ck_assert(spec_valid(&spec));
    if (!spec_has_state(&spec))
        return false;
    if (spec.canonical == 0)
        return spec.base == 0;
    ck_assert_uint_eq(spec.base, device.base);
    uint32_t apply = spec_apply(&spec, spec.canonical);
    ck_assert_uint_le(apply, device.n_records);
    return fold(device.folded, device.records, apply) == fold(0, tokens, spec.canonical);
}

/* A prompt of n tokens in chunks, the window of the last one included. */
static void begin_cold(uint32_t n, uint32_t chunk, uint32_t drafts, uint32_t mismatch)
{
    memset(&device, 0, sizeof(device));
    after_prefill(n);
    spec_evict(&spec, 0);
    spec_restart(&spec);
    draft(drafts, mismatch);
    while (spec.canonical + chunk < n) {
        pass(chunk, ALL_CLEAN);
        ck_assert(check_state());
    }
}

/* ---- the two reference flows of spec.h ------------------------------------------------------- */

/* Window 3; P is the position of T0; T1..T3 are drafted. */
static uint32_t start_reference_flow(uint32_t mismatch)
{
    begin_cold(10, 4, 0, 0);
    pass(spec_rows(&spec), ALL_CLEAN);
    ck_assert(!spec_accept(&spec, tokens, truth[10])); /* prefill sampled T0 at position 10 */
    uint32_t P = spec.accepted - 1;
    ck_assert_uint_eq(spec.canonical, P); /* KV up to P-1 */
    draft(3, mismatch);
    ck_assert_uint_eq(spec_rows(&spec), 4); /* T0 T1' T2' T3' */
    ck_assert_uint_eq(spec.canonical, P);
    pass(4, ALL_CLEAN);
    ck_assert_uint_eq(spec.base, P); /* no row of the window touched the state */
    return P;
}

START_TEST(all_drafts_accepted_gives_the_bonus_token)
{
    uint32_t P = start_reference_flow(3);

    ck_assert(spec_accept(&spec, tokens, truth[P + 1]));
    ck_assert(spec_accept(&spec, tokens, truth[P + 2]));
    ck_assert(spec_accept(&spec, tokens, truth[P + 3]));
    ck_assert_uint_eq(spec.drafted, 0);
    ck_assert(!spec_accept(&spec, tokens, truth[P + 4])); /* T4: it was not drafted */
    check_accepted();
    ck_assert_uint_eq(spec.accepted, P + 5);  /* ..T0 T1 T2 T3 T4 */
    ck_assert_uint_eq(spec.canonical, P + 4); /* KV up to P+3: T3 has it, T4 not */
    ck_assert_uint_eq(spec.base, P);          /* and records of T0 T1 T2 T3 */
    ck_assert_uint_eq(spec_apply(&spec, spec.canonical), 4);
    ck_assert(check_state());
    ck_assert_uint_eq(spec.drafted, 0);
}
END_TEST

START_TEST(t3_rejected_rolls_back_to_t2)
{
    uint32_t P = start_reference_flow(2);

    ck_assert(spec_accept(&spec, tokens, truth[P + 1]));
    ck_assert(spec_accept(&spec, tokens, truth[P + 2]));
    ck_assert(!spec_accept(&spec, tokens, truth[P + 3])); /* T3 != T3' */
    check_accepted();
    ck_assert_uint_eq(spec.accepted, P + 4); /* ..T0 T1 T2 T3, the verifier's own */
    ck_assert_uint_eq(tokens[P + 3], truth[P + 3]);
    ck_assert_uint_eq(spec.canonical, P + 3); /* KV up to P+2: T2 has it, T3 not */
    ck_assert_uint_eq(spec.base, P);          /* and records of T0 T1 T2 */
    ck_assert_uint_eq(spec_apply(&spec, spec.canonical), 3);
    ck_assert(check_state());
    ck_assert_uint_eq(spec.drafted, 0);
    ck_assert_uint_eq(spec_rows(&spec), 1); /* the next pass computes T3 alone */
}
END_TEST

/* ---- every window ---------------------------------------------------------------------------- */

START_TEST(a_window_accepts_one_more_than_agreed)
{
    for (uint32_t n = 1; n <= 3; n++)
        for (uint32_t drafts = 0; drafts <= WINDOW_MAX; drafts++)
            for (uint32_t mismatch = 0; mismatch <= drafts; mismatch++) {
                after_prefill(n);
                draft(drafts, mismatch);
                uint32_t before = spec.accepted;
                ck_assert_uint_eq(spec_rows(&spec), drafts + 1);
                uint32_t agreed = verify(drafts + 1);
                ck_assert_uint_eq(agreed, mismatch);
                ck_assert_uint_eq(spec.accepted, before + 1 + agreed);
                ck_assert_uint_eq(spec.canonical, spec.accepted - 1);
                ck_assert_uint_eq(spec.drafted, 0);
            }
}
END_TEST

/* The answer ends with the k-th accepted token (a stop, a limit): later ones of the window are
 * dropped. */
START_TEST(an_end_inside_a_window_drops_the_rest)
{
    for (uint32_t drafts = 0; drafts <= WINDOW_MAX; drafts++)
        for (uint32_t mismatch = 0; mismatch <= drafts; mismatch++)
            for (uint32_t end = 1; end <= mismatch + 1; end++) {
                after_prefill(5);
                draft(drafts, mismatch);
                uint32_t agreed = verify(end);
                uint32_t left = agreed == end ? drafts - end : 0;
                ck_assert_uint_eq(spec.drafted, left);
                ck_assert_uint_eq(spec_rollback(&spec), left);
                check_accepted();
                ck_assert_uint_eq(spec.accepted, 5 + end);
                ck_assert_uint_eq(spec.canonical, spec.accepted - 1);
                ck_assert_uint_eq(spec_rollback(&spec), 0);
            }
}
END_TEST

/* Eos is the k-th accepted token: it is taken out again, and its KV (if it had a row) does not
 * count. */
START_TEST(an_eos_inside_a_window_leaves_the_sequence)
{
    for (uint32_t drafts = 0; drafts <= WINDOW_MAX; drafts++)
        for (uint32_t end = 1; end <= drafts + 1; end++) {
            after_prefill(5);
            draft(drafts, drafts);
            verify(end);
            spec_rollback(&spec);
            spec_drop_last(&spec);
            check_accepted();
            ck_assert_uint_eq(spec.accepted, 5 + end - 1);
            ck_assert_uint_eq(spec.canonical, spec.accepted - 1);
        }
}
END_TEST

START_TEST(windows_one_after_another_give_the_truth)
{
    uint64_t state = (uint64_t)_i + 1;

    after_prefill(1);
    while (spec.accepted + WINDOW_MAX + 1 < LENGTH) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t drafts = (uint32_t)(state >> 40) % (WINDOW_MAX + 1);
        uint32_t mismatch = (uint32_t)(state >> 50) % (drafts + 1), before = spec.accepted;
        draft(drafts, mismatch);
        ck_assert_uint_eq(verify(drafts + 1), mismatch);
        ck_assert_uint_eq(spec.accepted, before + 1 + mismatch);
    }
}
END_TEST

/* ---- a recurrent state ----------------------------------------------------------------------- */

/* Every window, mismatch and end inside it; then each shorter text that a next request may keep. */
START_TEST(the_state_is_that_of_the_accepted_tokens)
{
    uint32_t drafts = (uint32_t)_i;

    for (uint32_t mismatch = 0; mismatch <= drafts; mismatch++)
        for (uint32_t end = 0; end <= mismatch + 1; end++) { /* 0: voided before it was verified */
            begin_cold(5, 3, drafts, mismatch);
            pass(spec_rows(&spec), ALL_CLEAN);
            ck_assert_uint_eq(spec.base, 4);
            verify(end);
            spec_rollback(&spec);
            ck_assert(check_state());
            ck_assert_uint_eq(spec.canonical, end ? spec.accepted - 1 : 4);
            for (uint32_t n = 1; n <= spec.accepted + 1; n++)
                for (uint32_t kept = 0; kept <= n && kept <= spec.canonical; kept++) {
                    struct spec before = spec;
                    spec_begin(&spec, n, kept);
                    ck_assert(check_state() == (spec.canonical >= 4 || spec.canonical == 0));
                    spec = before;
                }
            spec_evict(&spec, 3);
            ck_assert(!check_state());
        }
}
END_TEST

START_TEST(an_eos_leaves_the_state_of_what_is_before_it)
{
    for (uint32_t end = 1; end <= (uint32_t)_i + 1; end++) {
        begin_cold(5, 5, (uint32_t)_i, (uint32_t)_i);
        pass(spec_rows(&spec), ALL_CLEAN);
        verify(end);
        spec_rollback(&spec);
        spec_drop_last(&spec);
        ck_assert(check_state());
        ck_assert_uint_eq(spec.canonical, spec.accepted - 1);
    }
}
END_TEST

/* Windows one after another, each pass committing what the one before it accepted. */
START_TEST(a_state_follows_windows_of_any_size)
{
    uint64_t random = (uint64_t)_i + 1;

    begin_cold(3, 2, 0, 0);
    while (spec.accepted + SPEC_RECORDS_MAX < LENGTH) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t drafts = (uint32_t)(random >> 40) % SPEC_RECORDS_MAX;
        draft(drafts, (uint32_t)(random >> 50) % (drafts + 1));
        pass(spec_rows(&spec), ALL_CLEAN);
        ck_assert_uint_eq(spec.base, spec.accepted - 1);
        if (random >> 60)
            verify(drafts + 1);
        spec_rollback(&spec);
        ck_assert(check_state());
    }
}
END_TEST

/* A poisoned row before the last accepted token spoils the state; one after it only its record. */
START_TEST(a_poisoned_row_that_is_committed_costs_the_state)
{
    for (uint32_t poisoned = 0; poisoned <= 8; poisoned++) {
        begin_cold(5, 5, 3, 3);
        pass(8, poisoned);
        ck_assert(check_state() == (poisoned >= 4));
        ck_assert_uint_eq(spec.canonical, poisoned < 4 ? poisoned : 4);
        spec_restart(&spec);
        ck_assert(spec_has_state(&spec) && spec_apply(&spec, spec.canonical) == 0);
    }
}
END_TEST

/* The control: KV that is rolled back with a state that is not. */
START_TEST(a_state_that_is_not_rolled_back_is_noticed)
{
    begin_cold(5, 5, 3, 1);
    pass(8, ALL_CLEAN);
    verify(4);
    ck_assert(check_state());
    device.folded = fold(device.folded, device.records, 4); /* the drafts, too, and in one piece */
    spec.base = device.base = spec.canonical;
    device.n_records = 0;
    ck_assert(!check_state());
}
END_TEST

START_TEST(a_state_that_is_lost_is_not_applied)
{
    after_prefill(5);
    spec_lose_state(&spec);
    spec_apply(&spec, 4);
}
END_TEST

/* ---- tokens that are not verified ------------------------------------------------------------ */

enum { FAST_MAX = 8, FAST_CASES = 3 * (FAST_MAX + 1) };

/* A prompt of n tokens, all but the last computed, the first sample a canonical one, then `fast`
 * samples of fast passes, which no canonical one would have made. */
static void after_fast(uint32_t n, uint32_t fast)
{
    after_prefill(n);
    spec_accept(&spec, tokens, truth[n]);
    for (uint32_t i = 0; i < fast; i++) {
        ck_assert(spec_at_tip(&spec));
        spec_take_unverified(&spec, tokens, 5000 + i);
        ck_assert(spec_valid(&spec));
    }
}

/* One of the FAST_CASES that a loop test goes through. */
static void loop_fast(int i, uint32_t *ret_n, uint32_t *ret_fast)
{
    *ret_n = 1 + (uint32_t)i / (FAST_MAX + 1);
    *ret_fast = (uint32_t)i % (FAST_MAX + 1);
    after_fast(*ret_n, *ret_fast);
}

/* The prompt, the canonical sample and what fast passes gave, as far as the record goes. */
static void check_fast(uint32_t n)
{
    ck_assert(spec_valid(&spec));
    for (uint32_t i = 0; i < spec.accepted; i++)
        ck_assert_uint_eq(tokens[i], i <= n ? truth[i] : 5000 + i - n - 1);
}

START_TEST(an_unverified_token_is_accepted_and_leaves_canonical_alone)
{
    uint32_t n, fast;

    loop_fast(_i, &n, &fast);
    check_fast(n);
    ck_assert_uint_eq(spec.canonical, n);
    ck_assert_uint_eq(spec.unverified, fast);
    ck_assert_uint_eq(spec.accepted, n + 1 + fast);
    ck_assert_uint_eq(spec_computed(&spec), spec.accepted - 1);
    ck_assert_uint_eq(spec_rows(&spec), fast + 1); /* what a canonical pass would compute */
}
END_TEST

START_TEST(only_one_row_short_of_the_end_is_at_the_tip)
{
    for (uint32_t computed = 0; computed < 9; computed++) {
        spec_begin(&spec, 9, computed);
        ck_assert(spec_at_tip(&spec) == (computed == 8));
    }
    after_fast(2, 3);
    ck_assert(spec_at_tip(&spec));
    draft(1, 1);
    ck_assert(!spec_at_tip(&spec));
}
END_TEST

/* An end-of-sequence token is taken out again: at most what the tokens before it have is computed. */
START_TEST(an_unverified_eos_leaves_the_sequence)
{
    uint32_t n, fast;

    loop_fast(_i, &n, &fast);
    spec_drop_last(&spec);
    check_fast(n);
    ck_assert_uint_eq(spec.accepted, n + fast);
    ck_assert_uint_eq(spec_computed(&spec), spec.accepted - 1);
    ck_assert_uint_eq(spec.canonical, fast ? n : n - 1);
}
END_TEST

START_TEST(at_rest_there_is_only_what_is_canonical)
{
    uint32_t n, fast;

    loop_fast(_i, &n, &fast);
    spec_rest(&spec);
    check_fast(n);
    ck_assert_uint_eq(spec.accepted, n + 1 + fast);
    ck_assert_uint_eq(spec_computed(&spec), n);
    ck_assert_uint_eq(spec.canonical, n);
    for (uint32_t kept = 0; kept <= spec.accepted; kept++) { /* the next request */
        struct spec next = spec;
        spec_begin(&next, 5, kept < next.canonical ? kept : next.canonical);
        ck_assert(spec_valid(&next) && next.unverified == 0 && next.canonical <= n);
    }
}
END_TEST

/* Pages evicted anywhere: tokens stay, nothing that is lost counts as computed. */
START_TEST(evict_anywhere_among_unverified_tokens)
{
    uint32_t n, fast;

    loop_fast(_i, &n, &fast);
    for (uint32_t left = 0; left <= n + fast + 2; left++) {
        after_fast(n, fast);
        uint32_t before = spec_computed(&spec);
        spec_evict(&spec, left);
        check_fast(n);
        ck_assert_uint_eq(spec.accepted, n + 1 + fast);
        ck_assert_uint_eq(spec.canonical, left < n ? left : n);
        ck_assert_uint_eq(spec_computed(&spec), left < before ? left : before);
        ck_assert(spec_at_tip(&spec) == (left >= before));
    }
}
END_TEST

/* Canonical passes compute it all again in any chunks, over no KV of a fast one, and a window after
 * them is what it always is; or fast passes go on. */
START_TEST(canonical_passes_take_over_anywhere)
{
    uint32_t n, fast;

    loop_fast(_i, &n, &fast);
    for (uint32_t left = 0; left <= n; left++)
        for (uint32_t chunk = 1; chunk <= fast + n + 1; chunk++) {
            after_fast(n, fast);
            spec_evict(&spec, left == n ? LENGTH : left);
            while (spec_rows(&spec) > 1) {
                uint32_t rows = spec_rows(&spec) - 1, from = spec.canonical;
                spec_prefilled(&spec, chunk < rows ? chunk : rows);
                ck_assert_uint_eq(spec.canonical, from + (chunk < rows ? chunk : rows));
                ck_assert_uint_eq(spec.unverified, 0);
                check_fast(n);
            }
            ck_assert(spec_at_tip(&spec));
            uint32_t accepted = spec.accepted;
            draft(chunk % 3, chunk % 2);
            while (spec_accept(&spec, tokens, truth[spec.accepted]))
                continue;
            ck_assert_uint_gt(spec.accepted, accepted);
            ck_assert_uint_eq(spec.canonical, spec.accepted - 1);
            ck_assert_uint_eq(spec.unverified, 0);
            spec_take_unverified(&spec, tokens, 9);
            ck_assert_uint_eq(spec.canonical, spec.accepted - 2);
            ck_assert(spec_valid(&spec));
        }
}
END_TEST

/* A canonical sample over rows that fast passes had computed, too: none of theirs is left. */
START_TEST(a_canonical_sample_leaves_nothing_streamed)
{
    uint32_t n, fast;

    loop_fast(_i, &n, &fast);
    spec_accept(&spec, tokens, 7);
    ck_assert(spec_valid(&spec));
    ck_assert_uint_eq(spec.unverified, 0);
    ck_assert_uint_eq(spec.canonical, spec.accepted - 1);
    ck_assert_uint_eq(tokens[spec.accepted - 1], 7);
}
END_TEST

/* ---- begin, prefill, evict ------------------------------------------------------------------- */

START_TEST(begin_keeps_at_most_all_but_the_last)
{
    for (uint32_t n = 1; n <= 20; n++)
        for (uint32_t kept = 0; kept <= 25; kept++) {
            spec = (struct spec){.accepted = 7, .drafted = 3, .canonical = 4};
            spec_begin(&spec, n, kept);
            ck_assert(spec_valid(&spec));
            ck_assert_uint_eq(spec.accepted, n);
            ck_assert_uint_eq(spec.drafted, 0);
            ck_assert_uint_eq(spec.canonical, kept < n ? kept : n - 1);
            ck_assert_uint_ge(spec_rows(&spec), 1);
            ck_assert_uint_eq(spec_rows(&spec), n - spec.canonical);
        }
}
END_TEST

START_TEST(prefill_in_any_chunks_ends_at_the_last_token)
{
    for (uint32_t chunk = 1; chunk <= 30; chunk++) {
        uint32_t rows = 0, computed = 0;
        spec_begin(&spec, 30, 0);
        while ((rows = spec_rows(&spec)) > 1) {
            uint32_t take = chunk < rows - 1 ? chunk : rows - 1;
            spec_prefilled(&spec, take);
            computed += take;
            ck_assert(spec_valid(&spec));
            ck_assert_uint_eq(spec.canonical, computed);
        }
        ck_assert_uint_eq(computed, 29);
    }
}
END_TEST

/* Evicted positions are rows again; tokens and drafts stay, and the window after it is the same. */
START_TEST(evict_anywhere_costs_rows_only)
{
    for (uint32_t drafts = 0; drafts <= WINDOW_MAX; drafts++)
        for (uint32_t left = 0; left <= 12; left++) {
            after_prefill(10);
            draft(drafts, drafts);
            spec_evict(&spec, left);
            ck_assert(spec_valid(&spec));
            uint32_t canonical = left < 9 ? left : 9;
            ck_assert_uint_eq(spec.canonical, canonical);
            ck_assert_uint_eq(spec.accepted, 10);
            ck_assert_uint_eq(spec.drafted, drafts);
            ck_assert_uint_eq(spec_rows(&spec), 10 + drafts - canonical);
            spec_prefilled(&spec, 9 - canonical);
            ck_assert_uint_eq(verify(drafts + 1), drafts);
            ck_assert_uint_eq(spec.accepted, 11 + drafts);
        }
}
END_TEST

START_TEST(valid_knows_what_is_not)
{
    ck_assert(spec_valid(&(struct spec){0, 0, 0, 0, 0}));
    ck_assert(spec_valid(&(struct spec){1, 0, 0, 0, 0}));
    ck_assert(spec_valid(&(struct spec){5, 3, 4, 0, 0}));
    ck_assert(spec_valid(&(struct spec){5, 0, 2, 2, 0}));
    ck_assert(!spec_valid(&(struct spec){5, 0, 2, 3, 0}));
    ck_assert(!spec_valid(&(struct spec){5, 0, 2, UINT32_MAX, 0}));
    ck_assert(!spec_valid(&(struct spec){0, 0, 0, 1, 0}));
    ck_assert(!spec_valid(&(struct spec){0, 1, 0, 0, 0}));
    ck_assert(!spec_valid(&(struct spec){0, 0, 1, 0, 0}));
    ck_assert(!spec_valid(&(struct spec){5, 0, 5, 0, 0}));
    ck_assert(!spec_valid(&(struct spec){5, 3, 6, 0, 0}));
    ck_assert(spec_valid(&(struct spec){5, 3, 4, 0, 4}));
    ck_assert(!spec_valid(&(struct spec){5, 3, 4, 0, 5}));
    ck_assert(spec_valid(&(struct spec){5, 3, 4, 0, SPEC_NO_STATE}));
}
END_TEST

/* ---- our own mistakes are stopped ------------------------------------------------------------ */

START_TEST(prefill_never_reaches_the_last_token)
{
    spec_begin(&spec, 5, 0);
    spec_prefilled(&spec, 5);
}
END_TEST

START_TEST(a_cut_drops_the_last_drafts)
{
    struct spec s = {.accepted = 5, .drafted = 4, .canonical = 4};

    ck_assert_uint_eq(spec_cut(&s, 9), 0);
    ck_assert_uint_eq(s.drafted, 4);
    ck_assert_uint_eq(spec_cut(&s, 1), 3);
    ck_assert(s.drafted == 1 && s.accepted == 5 && s.canonical == 4);
    ck_assert_uint_eq(spec_cut(&s, 0), 1);
    ck_assert_uint_eq(s.drafted, 0);
}
END_TEST

START_TEST(nothing_is_unverified_after_drafts)
{
    after_prefill(3);
    draft(2, 2);
    spec_take_unverified(&spec, tokens, 7);
}
END_TEST

START_TEST(nothing_is_unverified_over_kv_that_is_not_there)
{
    after_fast(3, 2);
    spec_evict(&spec, 4);
    spec_take_unverified(&spec, tokens, 7);
}
END_TEST

START_TEST(an_empty_request_is_refused)
{
    spec_begin(&spec, 0, 0);
}
END_TEST

START_TEST(the_last_token_is_not_dropped_with_drafts_after_it)
{
    after_prefill(3);
    draft(2, 2);
    spec_drop_last(&spec);
}
END_TEST

/* However the record was damaged: the next function that is given it stops. */
START_TEST(an_invalid_record_is_stopped)
{
    static const struct spec wrong[] = {
        {5, 1, 6, 0, 0}, {5, 0, 2, 3, 0}, {5, 0, 5, 0, 0}, {5, 0, 4, 0, 5}};

    spec = wrong[_i / INVALID_USES];
    switch (_i % INVALID_USES) {
    case 0:
        spec_rows(&spec);
        break;
    case 1:
        spec_prefilled(&spec, 0);
        break;
    case 2:
        spec_draft(&spec, tokens, 7);
        break;
    case 3:
        spec_accept(&spec, tokens, 7);
        break;
    case 4:
        spec_take_unverified(&spec, tokens, 7);
        break;
    case 5:
        spec_rest(&spec);
        break;
    case 6:
        spec_rollback(&spec);
        break;
    case 7:
        spec_cut(&spec, 0);
        break;
    case 8:
        spec_drop_last(&spec);
        break;
    default:
        spec_evict(&spec, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spec");
    TCase *t = tcase_create("spec"), *mistakes = tcase_create("mistakes");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, all_drafts_accepted_gives_the_bonus_token);
    tcase_add_test(t, t3_rejected_rolls_back_to_t2);
    tcase_add_test(t, a_window_accepts_one_more_than_agreed);
    tcase_add_test(t, an_end_inside_a_window_drops_the_rest);
    tcase_add_test(t, an_eos_inside_a_window_leaves_the_sequence);
    tcase_add_loop_test(t, windows_one_after_another_give_the_truth, 0, 50);
    tcase_add_loop_test(t, the_state_is_that_of_the_accepted_tokens, 0, SPEC_RECORDS_MAX);
    tcase_add_loop_test(t, an_eos_leaves_the_state_of_what_is_before_it, 0, SPEC_RECORDS_MAX);
    tcase_add_loop_test(t, a_state_follows_windows_of_any_size, 0, 50);
    tcase_add_test(t, a_poisoned_row_that_is_committed_costs_the_state);
    tcase_add_test(t, a_state_that_is_not_rolled_back_is_noticed);
    tcase_add_loop_test(t, an_unverified_token_is_accepted_and_leaves_canonical_alone, 0,
                        FAST_CASES);
    tcase_add_test(t, only_one_row_short_of_the_end_is_at_the_tip);
    tcase_add_loop_test(t, an_unverified_eos_leaves_the_sequence, 0, FAST_CASES);
    tcase_add_loop_test(t, at_rest_there_is_only_what_is_canonical, 0, FAST_CASES);
    tcase_add_loop_test(t, evict_anywhere_among_unverified_tokens, 0, FAST_CASES);
    tcase_add_loop_test(t, canonical_passes_take_over_anywhere, 0, FAST_CASES);
    tcase_add_loop_test(t, a_canonical_sample_leaves_nothing_streamed, 0, FAST_CASES);
    tcase_add_test(t, begin_keeps_at_most_all_but_the_last);
    tcase_add_test(t, prefill_in_any_chunks_ends_at_the_last_token);
    tcase_add_test(t, evict_anywhere_costs_rows_only);
    tcase_add_test(t, valid_knows_what_is_not);
    tcase_add_test(t, a_cut_drops_the_last_drafts);
    tcase_add_checked_fixture(mistakes, setup, NULL);
    tcase_add_test_raise_signal(mistakes, a_state_that_is_lost_is_not_applied, SIGABRT);
    tcase_add_test_raise_signal(mistakes, prefill_never_reaches_the_last_token, SIGABRT);
    tcase_add_test_raise_signal(mistakes, nothing_is_unverified_after_drafts, SIGABRT);
    tcase_add_test_raise_signal(mistakes, nothing_is_unverified_over_kv_that_is_not_there, SIGABRT);
    tcase_add_test_raise_signal(mistakes, an_empty_request_is_refused, SIGABRT);
    tcase_add_test_raise_signal(mistakes, the_last_token_is_not_dropped_with_drafts_after_it,
                                SIGABRT);
    tcase_add_loop_test_raise_signal(mistakes, an_invalid_record_is_stopped, SIGABRT, 0,
                                     4 * INVALID_USES);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, mistakes);
    return run_suite(suite);
}
