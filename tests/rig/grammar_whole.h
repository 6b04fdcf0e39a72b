/*
 * grammar_whole: tokens that are followed whole, whatever they take. A header of static functions
 * like gguf_writer.h.
 */
#ifndef HEARTH_TESTS_RIG_GRAMMAR_WHOLE_H
#define HEARTH_TESTS_RIG_GRAMMAR_WHOLE_H

#include "daemon/grammar/grammar.h"

static inline int grammar_accept(struct grammar_run *run, uint32_t token)
{
    int64_t any = INT64_MAX;
    return grammar_follow(run, token, &any);
}

static inline int grammar_draft(struct grammar_run *run, uint32_t token)
{
    int64_t any = INT64_MAX;
    return grammar_draft_within(run, token, &any);
}

#endif
