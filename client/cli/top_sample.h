/* top_sample: the daemon's status as a sample: numbers, words and slots. Pure, but for looking up
 * users and processes. */
#ifndef HEARTH_CLIENT_CLI_TOP_SAMPLE_H
#define HEARTH_CLIENT_CLI_TOP_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* The numbers of a status that a frame shows, by the names they have there. */
#define TOP_NUMBERS(N)                                                                             \
    N(pid)                                                                                         \
    N(threads)                                                                                     \
    N(context)                                                                                     \
    N(page_bytes)                                                                                  \
    N(window_page_bytes)                                                                           \
    N(window_pages_total)                                                                          \
    N(state_bytes)                                                                                 \
    N(states_total)                                                                                \
    N(clients)                                                                                     \
    N(slots_total)                                                                                 \
    N(slots_used)                                                                                  \
    N(slots_active)                                                                                \
    N(slots_waiting)                                                                               \
    N(slots_paused)                                                                                \
    N(slots_left_out)                                                                              \
    N(pages_total)                                                                                 \
    N(pages_free)                                                                                  \
    N(pages_cached)                                                                                \
    N(passes)                                                                                      \
    N(rows)                                                                                        \
    N(prompt_tokens)                                                                               \
    N(cached_tokens)                                                                               \
    N(stored_tokens)                                                                               \
    N(store_bytes)                                                                                 \
    N(output_tokens)                                                                               \
    N(drafted)                                                                                     \
    N(accepted_drafts)                                                                             \
    N(rollbacks)                                                                                   \
    N(requests_finished)                                                                           \
    N(requests_cancelled)                                                                          \
    N(requests_superseded)                                                                         \
    N(requests_errors)                                                                             \
    N(decode_ns)                                                                                   \
    N(rss_bytes)                                                                                   \
    N(uptime_s)

#define TOP_WORDS(W)                                                                               \
    W(version)                                                                                     \
    W(model)                                                                                       \
    W(arch)                                                                                        \
    W(type)                                                                                        \
    W(device)                                                                                      \
    W(isa)                                                                                         \
    W(numerics)

enum { TOP_WORD_BYTES = 64 };

struct top_slot {
    uint64_t client, slot; /* which slot of which client: a key, for the daemon's life */
    uint64_t uid;
    uint64_t pid;                                                    /* 0: hidden, another user's */
    uint64_t prompt, prefix_break, prefix_lost, kv, output, outputs; /* tokens (control/status.h) */
    char name[TOP_WORD_BYTES];                                       /* "" where it has none */
    char state[TOP_WORD_BYTES];                                      /* "decode", ... */
    char priority[TOP_WORD_BYTES];
    char user[TOP_WORD_BYTES];    /* looked up here: "root", or the number */
    char command[TOP_WORD_BYTES]; /* looked up here: of the process, "" where hidden */
    double rate;                  /* tokens/s since the previous sample, < 0: not known */
};

/* Numbers and words that a daemon does not send are 0 and "". */
struct top_sample {
    uint64_t at_ns; /* CLOCK_MONOTONIC */
#define TOP_NUMBER(name) uint64_t name;
#define TOP_WORD(name) char name[TOP_WORD_BYTES];
    TOP_NUMBERS(TOP_NUMBER)
    TOP_WORDS(TOP_WORD)
#undef TOP_NUMBER
#undef TOP_WORD
    struct top_slot *slots; /* [n_slots] */
    uint32_t n_slots;
};

/* Reads a status. Returns 0, -EBADMSG (malformed) or -ENOMEM; call top_sample_fini in either case.
 * Control characters in words become '?'. */
int top_sample_read(const char *json, size_t bytes, uint64_t at_ns, struct top_sample *ret);
void top_sample_fini(struct top_sample *sample);

/* Gives every slot its rate, from the previous sample of the same daemon (NULL: none), and
 * sorts them: active ones first, then by rate. */
void top_sample_compare(struct top_sample *now, const struct top_sample *before);

#endif
