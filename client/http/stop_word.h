/* stop_word: which of a request's stop texts ended its answer. On the handle's thread. */
#ifndef HEARTH_CLIENT_HTTP_STOP_WORD_H
#define HEARTH_CLIENT_HTTP_STOP_WORD_H

#include "client/hearth.h"

/* The first stop text in the answer's bytes, marks that are shown among them: an earlier one would
 * have ended it before. NULL: none, or no memory to look. */
const char *stop_word_find(struct hearth *h, const struct hearth_request *q,
                           const struct hearth_result *r);

#endif
