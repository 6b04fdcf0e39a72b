/* Drafts from the guess, else by lookup. */
#include "daemon/policy/proposer.h"

enum { GUESS_BACK = 8 }; /* tokens that the answer may have inserted before it is lost */

int proposer_begin(struct proposer *proposer, enum submit_proposer kind, uint32_t common,
                   uint32_t n_tokens, const uint32_t *guess, uint32_t n_guess)
{
    bool looks = kind == PROPOSER_LOOKUP || kind == PROPOSER_AUTO;
    window_init(&proposer->window);
    window_init(&proposer->by_model);
    proposer->kind = kind;
    proposer->guess = guess;
    proposer->n_guess = kind == PROPOSER_CLIENT || kind == PROPOSER_AUTO ? n_guess : 0;
    proposer->answer_from = n_tokens;
    proposer->guess_shift = 0;
    if (looks && !proposer->indexed) {
        int rc = lookup_open(&proposer->lookup);
        if (rc < 0) {
            proposer->kind = PROPOSER_NONE;
            proposer->n_guess = 0;
            return rc;
        }
        proposer->indexed = true;
    }
    if (proposer->indexed)
        lookup_begin(&proposer->lookup, common);
    return 0;
}

void proposer_close(struct proposer *proposer)
{
    if (proposer->indexed)
        lookup_close(&proposer->lookup);
    *proposer = (struct proposer){0};
}

bool proposer_active(const struct proposer *proposer)
{
    return proposer->kind == PROPOSER_LOOKUP || proposer->kind == PROPOSER_AUTO ||
           proposer->n_guess > 0;
}

/* The first place of the guess, not far before `seen`, where the answer's last two tokens stand:
 * the index of the second, or -1. A single token stands in too many places. */
static int64_t find_guess(const struct proposer *proposer, const uint32_t *last_two, int64_t seen)
{
    for (int64_t i = seen <= GUESS_BACK ? 1 : seen - GUESS_BACK; i < proposer->n_guess; i++)
        if (proposer->guess[i - 1] == last_two[0] && proposer->guess[i] == last_two[1])
            return i;
    return -1;
}

/* The guess, read on from where the answer agrees with it. Where the last token is not the guess's
 * own, something was inserted or left out, and the guess is shifted; or a single token differs, and
 * the guess continues after it. */
static uint32_t draft_guess(struct proposer *proposer, const uint32_t *tokens, uint32_t n_tokens,
                            uint32_t most, uint32_t *drafts)
{
    int64_t at = (int64_t)n_tokens - proposer->answer_from - proposer->guess_shift;
    int64_t seen = at - 1;
    uint32_t n = 0;
    if (n_tokens > proposer->answer_from &&
        (seen < 0 || seen >= proposer->n_guess || proposer->guess[seen] != tokens[n_tokens - 1])) {
        int64_t found = n_tokens < 2 ? -1 : find_guess(proposer, &tokens[n_tokens - 2], seen);
        if (found < 0)
            return 0;
        proposer->guess_shift -= found - seen;
        at = found + 1;
    }
    while (n < most && at >= 0 && at < proposer->n_guess)
        drafts[n++] = proposer->guess[at++];
    return n;
}

/* What followed the n-gram; a repetition that reaches the end goes on with its own drafts. */
static uint32_t draft_lookup(struct proposer *proposer, const uint32_t *tokens, uint32_t n_tokens,
                             uint32_t most, uint32_t *drafts)
{
    lookup_feed(&proposer->lookup, tokens, n_tokens - 1);
    uint32_t from = lookup_find(&proposer->lookup, tokens, n_tokens);

    if (from == 0)
        return 0;
    for (uint32_t i = 0; i < most; i++)
        drafts[i] = from + i < n_tokens ? tokens[from + i] : drafts[from + i - n_tokens];
    return most;
}

uint32_t proposer_draft(struct proposer *proposer, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t most, uint32_t *drafts)
{
    uint32_t n = 0;
    if (proposer->n_guess > 0)
        n = draft_guess(proposer, tokens, n_tokens, most, drafts);
    if (n == 0 && proposer->indexed && proposer->kind != PROPOSER_CLIENT)
        n = draft_lookup(proposer, tokens, n_tokens, most, drafts);
    return n;
}
