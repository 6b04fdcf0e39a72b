/*
 * The arithmetic of draft, verify, accept and roll back, of tokens that are not verified, and of a
 * recurrent state. Every function that changes or counts asserts that it is given a valid record,
 * so a mistake in one of them, or a write from elsewhere, stops the daemon before rows are computed
 * from it. */
#include "daemon/policy/spec.h"

#include <assert.h>

bool spec_valid(const struct spec *spec)
{
    if (spec->base > spec->canonical && spec->base != SPEC_NO_STATE)
        return false;
    if (spec->accepted == 0)
        return spec->canonical == 0 && spec->drafted == 0 && spec->unverified == 0;
    return spec->canonical < spec->accepted && spec->unverified < spec->accepted - spec->canonical;
}

/* `canonical` went back: a state that is further along is of no use. The empty text always has one.
 * */
static void spec_follow(struct spec *spec)
{
    if (spec->base > spec->canonical)
        spec->base = spec->canonical ? SPEC_NO_STATE : 0;
}

void spec_begin(struct spec *spec, uint32_t n_tokens, uint32_t kept)
{
    assert(n_tokens >= 1);
    spec->accepted = n_tokens;
    spec->drafted = 0;
    spec->canonical = kept < n_tokens ? kept : n_tokens - 1;
    spec->unverified = 0;
    spec_follow(spec);
}

uint32_t spec_rows(const struct spec *spec)
{
    assert(spec_valid(spec));
    return spec->accepted + spec->drafted - spec->canonical;
}

uint32_t spec_computed(const struct spec *spec)
{
    return spec->canonical + spec->unverified;
}

void spec_prefilled(struct spec *spec, uint32_t n_rows)
{
    assert(spec_valid(spec) && n_rows < spec->accepted - spec->canonical);
    spec->canonical += n_rows;
    spec->unverified = 0;
}

uint32_t spec_commit(const struct spec *spec, uint32_t n_rows)
{
    uint32_t most = spec->accepted - 1 - spec->canonical;
    assert(spec_valid(spec) && n_rows <= spec_rows(spec));
    assert(n_rows <= most || n_rows == spec_rows(spec));
    return n_rows < most ? n_rows : most;
}

uint32_t spec_apply(const struct spec *spec, uint32_t position)
{
    assert(spec_valid(spec) && spec_has_state(spec) && position >= spec->canonical);
    return position - spec->base;
}

void spec_settle(struct spec *spec, uint32_t n_rows, uint32_t n_clean)
{
    uint32_t commit = spec_commit(spec, n_rows);
    spec_prefilled(spec, n_clean < commit ? n_clean : commit);
    spec->base = n_clean < commit ? SPEC_NO_STATE : spec->canonical;
}

bool spec_has_state(const struct spec *spec)
{
    return spec->base != SPEC_NO_STATE;
}

void spec_restart(struct spec *spec)
{
    spec->base = spec->canonical;
}

void spec_lose_state(struct spec *spec)
{
    spec->base = SPEC_NO_STATE;
}

void spec_draft(struct spec *spec, uint32_t *tokens, uint32_t token)
{
    assert(spec_valid(spec) && spec->accepted > 0);
    tokens[spec->accepted + spec->drafted] = token;
    spec->drafted++;
}

bool spec_accept(struct spec *spec, uint32_t *tokens, uint32_t sample)
{
    bool agreed = spec->drafted > 0 && tokens[spec->accepted] == sample;
    assert(spec_valid(spec) && spec->accepted > 0);
    /* The row that gave the sample stands on accepted tokens only: its KV is canonical from now on.
     */
    spec->canonical = spec->accepted;
    spec->unverified = 0;
    tokens[spec->accepted] = sample;
    spec->accepted++;
    if (agreed)
        spec->drafted--;
    else
        spec_rollback(spec);
    return agreed;
}

bool spec_at_tip(const struct spec *spec)
{
    return spec->drafted == 0 && spec_computed(spec) + 1 == spec->accepted;
}

void spec_take_unverified(struct spec *spec, uint32_t *tokens, uint32_t sample)
{
    assert(spec_valid(spec) && spec->accepted > 0 && spec_at_tip(spec));
    tokens[spec->accepted] = sample;
    spec->accepted++;
    spec->unverified++;
}

void spec_rest(struct spec *spec)
{
    assert(spec_valid(spec));
    spec->unverified = 0;
}

uint32_t spec_rollback(struct spec *spec)
{
    uint32_t dropped = spec->drafted;
    assert(spec_valid(spec));
    spec->drafted = 0;
    return dropped;
}

uint32_t spec_cut(struct spec *spec, uint32_t n)
{
    uint32_t dropped = spec->drafted > n ? spec->drafted - n : 0;
    assert(spec_valid(spec));
    spec->drafted -= dropped;
    return dropped;
}

void spec_drop_last(struct spec *spec)
{
    assert(spec_valid(spec) && spec->accepted > 1 && spec->drafted == 0);
    spec->accepted--;
    if (spec->canonical >= spec->accepted)
        spec->canonical = spec->accepted - 1;
    if (spec_computed(spec) >= spec->accepted)
        spec->unverified = spec->accepted - 1 - spec->canonical;
}

void spec_evict(struct spec *spec, uint32_t n_positions)
{
    assert(spec_valid(spec));
    if (spec->canonical > n_positions)
        spec->canonical = n_positions;
    if (spec_computed(spec) > n_positions)
        spec->unverified = n_positions - spec->canonical;
    spec_follow(spec);
}
