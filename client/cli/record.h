/* record: the file of `hearth run --record`: a request and its answer, to be replayed.
 *
 * One JSON object on one line, of exactly the members below in any order ("grammar", "marks",
 * "closing", "banned" and "ignore_eos" only where the request has some): the inputs of an answer,
 * the answer, and its receipt. What does not change an answer (proposer, guess, priority, slot) is
 * not in it. Texts may hold any bytes but 0; those that are not UTF-8 stand as \udc80 to \udcff,
 * half of a pair each. */
#ifndef HEARTH_CLIENT_CLI_RECORD_H
#define HEARTH_CLIENT_CLI_RECORD_H

#include "client/cli/cli.h"

enum { RECORD_VERSION = 1 };

/* M(name, kind, field, count): count is the field that holds a list's length. */
#define RECORD_MEMBERS(M)                                                                          \
    M("hearth_record", MEMBER_U32, version, version)                                               \
    M("model", MEMBER_TEXT, model, version)                                                        \
    M("fingerprint", MEMBER_TEXT, fingerprint, version)                                            \
    M("numerics", MEMBER_TEXT, numerics, version)                                                  \
    M("prompt", MEMBER_IDS, request.tokens, request.n_tokens)                                      \
    M("max_tokens", MEMBER_U32, request.max_tokens, version)                                       \
    M("temperature", MEMBER_F32, request.temperature, version)                                     \
    M("top_k", MEMBER_U32, request.top_k, version)                                                 \
    M("top_p", MEMBER_F32, request.top_p, version)                                                 \
    M("min_p", MEMBER_F32, request.min_p, version)                                                 \
    M("typical_p", MEMBER_F32, request.typical_p, version)                                         \
    M("repeat_penalty", MEMBER_F32, request.repeat_penalty, version)                               \
    M("frequency_penalty", MEMBER_F32, request.frequency_penalty, version)                         \
    M("presence_penalty", MEMBER_F32, request.presence_penalty, version)                           \
    M("penalty_last_n", MEMBER_I32, request.penalty_last_n, version)                               \
    M("seed", MEMBER_U64, request.seed, version)                                                   \
    M("logit_bias", MEMBER_BIAS, request.bias, request.n_bias)                                     \
    M("stop", MEMBER_TEXTS, request.stops, request.n_stops)                                        \
    M("stop_tokens", MEMBER_IDS, request.stop_tokens, request.n_stop_tokens)                       \
    M("logprobs", MEMBER_I32, request.logprobs, version)                                           \
    M("deterministic", MEMBER_BOOL, request.deterministic, version)                                \
    M("grammar", MEMBER_MAYBE, grammar, version)                                                   \
    M("marks", MEMBER_MARKS, request.marks, request.n_marks)                                       \
    M("closing", MEMBER_CLOSING, request.closing, request.n_closing)                               \
    M("banned", MEMBER_CLOSING, request.banned, request.n_banned)                                  \
    M("ignore_eos", MEMBER_FLAG, request.ignore_eos, request.ignore_eos)                           \
    M("ids", MEMBER_IDS, ids, n_ids)                                                               \
    M("reason", MEMBER_TEXT, reason, version)                                                      \
    M("receipt", MEMBER_TEXT, receipt, version)

struct record {
    uint32_t version; /* RECORD_VERSION */
    const char *model, *fingerprint, *numerics;
    struct hearth_request request; /* the prompt as tokens; max_tokens cut to the context */
    const char *grammar;           /* NULL: none; else request.grammar, followed by a 0 */
    const uint32_t *ids;           /* [n_ids] the answer */
    uint32_t n_ids;
    const char *reason, *receipt;
};

/* Appends the line. Takes none of c's pointers. */
void record_write(const struct record *c, struct buffer *out);

/* Reads what record_write() wrote, perhaps edited since. Every member is there once, the
 * receipt has its form and is for this model and numerics; hearth_submit() checks ranges.
 * Returns 0 with *ret to be given to fini, or -EBADMSG or -ENOMEM with one line and *ret empty. */
int record_read(const char *text, size_t bytes, struct record *ret, char *err, size_t err_bytes);
void record_fini(struct record *c);

/* Did fast passes give the answer? Then it was not verified, and the same request may get
 * another. */
int record_is_fast(const struct record *c);

/* Is its numerics id, without "+fast", this one? */
int record_has_numerics(const struct record *c, const char *numerics);

/* The two hashes at the end of a receipt, 32 hex digits each: "REQUEST:ANSWER". NULL for another
 * form. */
const char *record_hashes(const char *receipt);

/* Checks beforehand whether `path` can be written when the answer has ended. Returns 0 or an exit
 * code, the error printed. */
int record_check_path(const char *path);

/* Writes the record of a request, its prompt given as tokens, that ended with *result. A regular
 * file appears whole or not at all, for its owner to read; a pipe or device is written to. Returns
 * 0 or an exit code, the error printed. */
int record_save(const char *path, struct hearth *h, const struct hearth_request *request,
                const struct hearth_result *result);

#endif
