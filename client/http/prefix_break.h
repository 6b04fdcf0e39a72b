/* prefix_break: a line on stderr that says where an agent's prompt left the text that its handle held:
 * from there on all of it is computed again. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_PREFIX_BREAK_H
#define HEARTH_CLIENT_HTTP_PREFIX_BREAK_H

#include "client/hearth.h"
#include "client/tokenizer/token_list.h"

/* held: prompt and answer of the request before it; common: how many tokens of it the prompt begins
 * with. Says nothing where it goes on with that text, up to a page. */
void prefix_break_tell(struct hearth *h, int slot, const struct token_list *held,
                       const struct hearth_request *r, uint32_t common);

#endif
