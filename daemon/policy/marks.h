/*
 * marks: where in an answer its grammar binds, and where its thought is over.
 *
 *   content --mark of a thought--> thought --its end, or its limit--> content --mark of a call--> bound
 *
 * Marks are matched over the text of accepted tokens, control tokens with theirs; one that spans
 * tokens is found, inside of a thought nothing is a call. Without a mark of a call the first
 * token outside of a thought is bound. A thought that reaches its limit is closed by the request's
 * closing tokens, which are the only ones that may follow. Pure state of one request: a function of
 * its parameters and its accepted tokens.
 */
#ifndef HEARTH_DAEMON_POLICY_MARKS_H
#define HEARTH_DAEMON_POLICY_MARKS_H

#include "ipc/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MARKS_NO_TOKEN UINT32_MAX

enum marks_where { MARKS_CONTENT, MARKS_THOUGHT, MARKS_BOUND };

struct marks {
    const struct params *params; /* of the request; must outlive it */
    const struct params_mark *limit;
    bool calls; /* there is a mark of a call */
    enum marks_where where;
    uint32_t thought; /* tokens of the thought so far */
    uint32_t closed;  /* closing tokens so far, once the limit is reached */
    uint32_t n_tail;
    char tail[PARAMS_MARK_BYTES]; /* last bytes of the answer */
};

/* An answer begins. */
void marks_begin(struct marks *marks, const struct params *params);

/* Takes an accepted token. Returns how many of its last bytes follow a mark after which the grammar
 * binds (marks->where is MARKS_BOUND then, from the next token on); 0 else. */
size_t marks_accept(struct marks *marks, const char *bytes, size_t n);

/* What followed the mark cannot be what the grammar describes: it binds after the next one. */
void marks_reject(struct marks *marks);

/* The only token that may follow, or MARKS_NO_TOKEN. */
uint32_t marks_forced(const struct marks *marks);

#endif
