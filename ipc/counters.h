/* counters.h: the daemon's counters, in ctl, where every client can read them without a request.
 *
 * Each counter is written by one thread, the engine thread or the control thread; each thread's
 * counters have cache lines of their own. A counter is a relaxed 64-bit word: add and set are a
 * plain load and store, without a locked instruction. Readers see each counter by itself, not a
 * snapshot of all. The table gives each its kind and its help text; hearth status, hearth top and
 * the metrics exporter are generated from it. */
#ifndef HEARTH_IPC_COUNTERS_H
#define HEARTH_IPC_COUNTERS_H

#include "ipc/layout.h"

/* X(NAME, name, KIND, "help") */
#define COUNTERS_ENGINE(X)                                                                         \
    X(SLOTS_USED, slots_used, GAUGE, "slots held by clients")                                      \
    X(SLOTS_ACTIVE, slots_active, GAUGE, "slots with a running request")                           \
    X(SLOTS_WAITING, slots_waiting, GAUGE, "slots whose request waits for rows or pages")          \
    X(SLOTS_PAUSED, slots_paused, GAUGE, "slots paused because their event ring is full")          \
    X(PAGES_TOTAL, pages_total, GAUGE, "KV pages in the pool")                                     \
    X(PAGES_FREE, pages_free, GAUGE, "KV pages not used by any slot, cached ones included")        \
    X(PAGES_CACHED, pages_cached, GAUGE, "free KV pages that are cached for later requests")       \
    X(KV_BYTES, kv_bytes, GAUGE, "bytes of KV pages and recurrent states in use")                  \
    X(PASSES, passes, COUNTER, "canonical passes run")                                             \
    X(ROWS, rows, COUNTER, "rows computed in them")                                                \
    X(DRAFT_PASSES, draft_passes, COUNTER,                                                         \
      "fast passes run, for drafts and for unverified tokens")                                     \
    X(DRAFT_ROWS, draft_rows, COUNTER, "rows computed in them")                                    \
    X(PROMPT_TOKENS, prompt_tokens, COUNTER, "prompt tokens of started requests")                  \
    X(CACHED_TOKENS, cached_tokens, COUNTER, "prompt tokens whose KV was reused")                  \
    X(OUTPUT_TOKENS, output_tokens, COUNTER, "tokens accepted and published")                      \
    X(DRAFTED, drafted, COUNTER, "tokens drafted")                                                 \
    X(ACCEPTED_DRAFTS, accepted_drafts, COUNTER, "drafted tokens accepted")                        \
    X(REJECTED_DRAFTS, rejected_drafts, COUNTER, "drafted tokens rejected at or after a mismatch") \
    X(UNUSED_DRAFTS, unused_drafts, COUNTER, "drafted tokens cut off by the end of an answer")     \
    X(OWN_PICKS, own_picks, COUNTER, "answer tokens sampled without a matching draft")             \
    X(ROLLBACKS, rollbacks, COUNTER, "verifications with a mismatch")                              \
    X(REQUESTS_STARTED, requests_started, COUNTER, "requests taken from submit rings")             \
    X(REQUESTS_FINISHED, requests_finished, COUNTER, "requests ended by eos, stop or length")      \
    X(REQUESTS_CANCELLED, requests_cancelled, COUNTER,                                             \
      "requests cancelled, or ended by a disconnect")                                              \
    X(REQUESTS_SUPERSEDED, requests_superseded, COUNTER, "requests superseded by a newer one")     \
    X(REQUESTS_REFUSED, requests_refused, COUNTER, "requests refused before they ran")             \
    X(REQUESTS_ERRORS, requests_errors, COUNTER, "requests ended by an error while they ran")      \
    X(NOPS, nops, COUNTER, "NOP cells answered")                                                   \
    X(PROTOCOL_ERRORS, protocol_errors, COUNTER, "clients closed for a protocol error")            \
    X(SIGBUS, sigbus, COUNTER, "clients closed because a page of their segment failed")            \
    X(STALLS, stalls, COUNTER, "times a slot was paused because its event ring was full")          \
    X(EVICTIONS, evictions, COUNTER, "KV pages evicted from a slot")                               \
    X(WAKES, wakes, COUNTER, "clients woken by the engine thread itself")                          \
    X(WAKE_HANDOFFS, wake_handoffs, COUNTER, "wakes handed to the control thread")                 \
    X(RESCANS, rescans, COUNTER, "periodic rescans of all rings")                                  \
    X(RESCANS_FOUND, rescans_found, COUNTER, "rescans that found a request without its bell")      \
    X(ENGINE_WAKEUPS, engine_wakeups, COUNTER, "wake-ups of the engine thread")                    \
    X(DECODE_NS, decode_ns, GAUGE, "smoothed time of a decode-only canonical pass, ns")            \
    X(WINDOW_ROW_NS, window_row_ns, GAUGE, "time that each row of a draft window adds to it, ns")  \
    X(DRAFT_NS, draft_ns, GAUGE, "smoothed time of a pass of the drafting model, ns")              \
    X(LAST_STEP_NS, last_step_ns, GAUGE, "time of the last step, ns")                              \
    X(STREAMED_TOKENS, streamed_tokens, COUNTER, "tokens published without verification")          \
    X(WAKES_APART, wakes_apart, COUNTER, "expensive wakes handed to a thread of their own")        \
    X(WINDOW_PAGES_TOTAL, window_pages_total, GAUGE, "window pages in their pool")                 \
    X(WINDOW_PAGES_FREE, window_pages_free, GAUGE,                                                 \
      "window pages in no slot's window, cached ones included")                                    \
    X(WINDOW_PAGES_CACHED, window_pages_cached, GAUGE,                                             \
      "free window pages that are cached for later requests")                                      \
    X(STATES_TOTAL, states_total, GAUGE, "recurrent states in their pool")                         \
    X(STATES_FREE, states_free, GAUGE, "recurrent states of no slot, restart points included")     \
    X(RESTART_POINTS, restart_points, GAUGE, "recurrent states that cached texts can begin from")  \
    X(STORED_TOKENS, stored_tokens, COUNTER, "cached prompt tokens that were read from the store") \
    X(STORE_BYTES, store_bytes, GAUGE, "bytes of the store's files")                               \
    X(STORE_RECORDS, store_records, GAUGE, "pages, window pages and states in the store")          \
    X(STORE_READ_BYTES, store_read_bytes, COUNTER, "bytes read from the store")                    \
    X(STORE_WRITTEN_BYTES, store_written_bytes, COUNTER, "bytes written to the store")             \
    X(STORE_EVICTED, store_evicted, COUNTER, "records that gave way to others in the store")       \
    X(STORE_FAILED, store_failed, COUNTER,                                                         \
      "reads and writes of the store that failed, or damaged")                                     \
    X(STORE_DROPPED, store_dropped, COUNTER,                                                       \
      "pages not stored: the store was busy, full, or had written its bytes of the day")

#define COUNTERS_CONTROL(X)                                                                        \
    X(CLIENTS, clients, GAUGE, "clients connected")                                                \
    X(SLOTS_TOTAL, slots_total, GAUGE, "slots the daemon has")                                     \
    X(CONNECTS, connects, COUNTER, "clients accepted")                                             \
    X(CONNECTS_REFUSED, connects_refused, COUNTER, "handshakes refused")                           \
    X(CONTROL_WAKEUPS, control_wakeups, COUNTER, "wake-ups of the control thread")                 \
    X(WAKES_DELIVERED, wakes_delivered, COUNTER, "wakes delivered by the control thread")          \
    X(FDS_OPEN, fds_open, GAUGE, "file descriptors open")                                          \
    X(RSS_BYTES, rss_bytes, GAUGE, "resident memory")                                              \
    X(UPTIME_S, uptime_s, GAUGE, "seconds since the start")

enum counter {
#define COUNTERS_X(NAME, name, KIND, help) COUNTER_##NAME,
    COUNTERS_ENGINE(COUNTERS_X) COUNTERS_ENGINE_N,
    COUNTERS_CONTROL_BEFORE = COUNTERS_ENGINE_N - 1,
    COUNTERS_CONTROL(COUNTERS_X) COUNTERS_N,
#undef COUNTERS_X
};

#define COUNTERS_CONTROL_N (COUNTERS_N - COUNTERS_ENGINE_N)
_Static_assert(COUNTERS_ENGINE_N <= CTL_COUNTERS && COUNTERS_CONTROL_N <= CTL_COUNTERS,
               "ctl has room for all");

enum counter_kind { COUNTER_KIND_GAUGE, COUNTER_KIND_COUNTER };

struct counter_info {
    const char *name;
    const char *help;
    enum counter_kind kind;
};

/* [COUNTERS_N], in the order of the enum. */
extern const struct counter_info counters_table[COUNTERS_N];

static inline _Atomic uint64_t *counters_word(struct ctl *ctl, enum counter c)
{
    return c < COUNTERS_ENGINE_N ? &ctl->engine[c] : &ctl->control[c - COUNTERS_ENGINE_N];
}

/* Called only by the thread that owns the counter. */
static inline void counters_set(struct ctl *ctl, enum counter c, uint64_t value)
{
    atomic_store_explicit(counters_word(ctl, c), value, memory_order_relaxed);
}

static inline void counters_add(struct ctl *ctl, enum counter c, uint64_t n)
{
    _Atomic uint64_t *word = counters_word(ctl, c);
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Called by any thread. */
uint64_t counters_get(const struct ctl *ctl, enum counter c);

/* Writes `"clients":1,"slots_total":8,...` (members of a JSON object, without its braces),
 * zero-ended. Returns the length, or -ENOSPC. */
int counters_json(const struct ctl *ctl, char *ret_text, size_t text_bytes);

#endif
