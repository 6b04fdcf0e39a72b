/* chat_tidy: messages as the protocol has them today, before a template is asked. Any thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_TIDY_H
#define HEARTH_CLIENT_PROMPT_CHAT_TIDY_H

#include <jansson.h>
#include <stddef.h>

/* A thought in `reasoning` is one in `reasoning_content`. A content that is missing, or null but
 * beside calls, is an empty text; an empty list of calls is none; arguments of a call that are
 * empty, null or missing are an empty object; a `function_call` is the one of `tool_calls`, and a
 * message of a `function` after it its result. Calls that have no id are numbered, and results that
 * name none answer them in turn, or by the tool's name; they stand in the order of the calls.
 * PRECOND: every message is an object with a role. Returns 0 or -ENOMEM. */
int chat_tidy(json_t *messages);

/* As json_copy(), which leaves members out where memory runs out: NULL then. */
json_t *chat_copy(json_t *value);

/* Results are looked for call by call: a client could have a gateway look for long. */
enum { CHAT_MOST_CALLS = 64 };

/* Which of at most CHAT_MOST_CALLS calls each of messages[at] to [at + n - 1] answers: by its id,
 * or without one by the tool's name, or in turn; each call is answered once. ret[n]: the number of
 * calls for one that answers none. */
void chat_match_results(const json_t *calls, const json_t *messages, size_t at, size_t n,
                        size_t *ret);

#endif
