/* json: writes the few JSON shapes that `hearth` prints.
 *
 * Numbers that JSON does not have (infinite) become null. */
#ifndef HEARTH_CLIENT_CLI_JSON_H
#define HEARTH_CLIENT_CLI_JSON_H

#include "client/base/quote.h"
#include "client/cli/cli.h"

/* A text, which may be anybody's, on what may be a terminal: what is not shown there (printable.h)
 * is escaped, and reads as the same text. */
void json_text(struct buffer *b, const char *text, size_t bytes);

void json_ids(struct buffer *b, const uint32_t *ids, size_t n); /* [1,2,3], no blanks */
void json_number(struct buffer *b, double value);

/* One line each, with the line's end. */
void json_tokens_event(struct buffer *b, const struct hearth_event *e);
void json_done_event(struct buffer *b, const struct hearth_result *r);

/* The word of a reason in "done". */
const char *json_reason(uint32_t reason);

#endif
