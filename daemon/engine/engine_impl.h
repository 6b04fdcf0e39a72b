/*
 * engine_impl: what the engine's files share. engine.c: the loop; engine_clients.c: attaching,
 * letting go and waking; engine_open.c: the memory of it all; ingest.c: from submit cells to
 * requests; draft.c: who drafts, and how much; draft_pass.c: models that draft; stream.c: answers of
 * fast passes; constrain.c: answers that follow a grammar; gather.c: the rows of a pass; pass.c: one
 * pass, start to end; verify.c: what came out of it; answer.c: events, ends, receipts.
 */
#ifndef HEARTH_DAEMON_ENGINE_ENGINE_IMPL_H
#define HEARTH_DAEMON_ENGINE_ENGINE_IMPL_H

#include "daemon/engine/client.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/grammars.h"
#include "daemon/policy/cost.h"
#include "daemon/policy/plan.h"
#include "daemon/engine/request.h"
#include "ipc/counters.h"

enum {
    INGEST_CELLS = 16,       /* most cells of one client in one step: bounded work ... */
    INGEST_TOKENS = 1 << 16, /* ... and no further cell once this many tokens were looked at */
    BUSY_STEPS = 4096,       /* steps in a row after which the loop is looked at, too */
    IDLE_RINGS_MAX = 1000    /* bells in a row for nothing; then that client's bell is not polled */
};

/* A client that sleeps and is to be woken, and by which bell (enum bell_way). */
struct engine_due {
    struct client *client;
    int way;
};

/* A model that drafts: a pass gives one draft to each slot that takes part. */
enum drafter_kind {
    DRAFTER_MODEL, /* the draft model: a backend instance of its own */
    DRAFTER_SELF,  /* the model's own fast pass, into the slots' own pages */
    DRAFTERS
};

struct drafter {
    const struct backend_ops *ops; /* NULL: the daemon has no such drafter */
    struct backend *backend;
    enum drafter_kind kind;
    uint32_t rows, samples, context; /* limits of its passes */
    struct pages pool;               /* DRAFTER_MODEL: its KV pages */
    uint64_t row_ns;                 /* smoothed cost of one row in a large pass */
    struct window_drafter window;
};

struct engine {
    struct engine_options options;
    struct loop *loop;
    const struct vocab *vocab;
    uint32_t n_vocab; /* of the model: ids below are accepted */
    uint32_t context;

    struct slot *slots; /* [options.n_slots] */
    struct pages pool;
    struct prefix prefix;    /* over the pool */
    struct client **clients; /* [n_clients], unordered */
    uint32_t n_clients;
    struct engine_due *due; /* [n_clients] of this step */
    uint32_t n_active;      /* slots with a request */
    uint32_t n_paused;      /* of these, paused */
    uint64_t serial;        /* of the last request */
    bool stopping;
    int failed; /* 0, or why the backend cannot go on */

    /* one pass, allocated once from the limits */
    struct plan_slot *plan;     /* [n_slots] */
    struct slot **candidates;   /* [n_slots] in plan's order */
    struct slot **streams;      /* [n_slots] in the order of the plan of fast rows */
    struct slot **order;        /* [n_slots] those with rows, in order of their right to pages */
    struct row *rows;           /* [limits.rows] */
    struct row_result *results; /* [limits.rows] */
    struct pass_sequence *sequences;       /* [n_slots] */
    const struct sample **samples;         /* [limits.rows] of one slot's window */
    struct sampler_params *draft_samplers; /* [n_slots] of a drafting pass */
    struct window_share *shares;           /* [n_slots] of one drafter's slots */
    uint32_t *mosts;                       /* [n_slots] drafts that candidates have room for */
    struct plan_turn turn;
    struct plan_turn stream_turn; /* of fast rows that answer */
    uint32_t n_streams;           /* of this step: slots that fast passes answer, not paused */
    uint32_t stream_rows;         /* rows that they had */
    bool streaming;               /* of these, some for an interactive request */

    /* ingest's private copies, before they are believed */
    uint32_t *arena; /* [context] */
    uint8_t *block;  /* [params_bytes] */

    struct grammars grammars;
    int64_t grammar_step;   /* what a step may spend on masks; GRAMMAR_MILLISECOND says in what */
    int64_t grammar_budget; /* left in this step */

    uint64_t now_ns; /* of this step */
    uint64_t pass_start_ns;
    struct drafter drafters[DRAFTERS];
    struct cost cost;
    bool answering;      /* in this pass somebody reads an answer (plan_budget) */
    uint32_t long_rows;  /* of this pass, of long prompts */
    uint32_t brief_rows; /* of short ones */
    bool fence_due;      /* something was published or freed in this step */
};

/* ---- ingest.c ---- */

/* Is there a submit cell that could be taken now, or a reason to close the client? */
bool ingest_ready(struct client *client);

/* Takes this client's submit cells. Returns how many were consumed. */
uint32_t ingest_client(struct engine *engine, struct client *client);

/* ---- draft.c ---- */

/* Says in `line` why a request cannot have this proposer: -ENOTSUP, else 0. */
int draft_check(const struct engine *engine, enum submit_proposer proposer, char *line,
                size_t line_bytes);

/* A request begins on the slot, the first `common` tokens as before. Its proposer was set. */
void draft_begin(struct engine *engine, struct slot *slot, uint32_t common);

/* Drafts for the slots that are about to decode: from text at once; a model makes one for each slot
 * in a step, in a pass of its own. The first token of an answer is never held back. Returns the
 * rows computed, or -errno: a backend broke, *ret_error is its line. */
int draft_step(struct engine *engine, const char **ret_error);

/* The model that drafts for the slot's request, NULL when there is none. */
struct drafter *draft_source(struct engine *engine, const struct slot *slot);

/* Has the slot all the drafts it is to have? Otherwise it goes into a canonical pass only beside
 * one that has. */
bool draft_due(const struct slot *slot);

/* `window` drafts were verified, the first `held` hold. Called for every pass that samples. */
void draft_verified(struct engine *engine, struct slot *slot, uint32_t window, uint32_t held);

/* Nobody owns the slot's tokens any more: the draft model's KV of them goes. */
void draft_forget(struct engine *engine, struct slot *slot);

/* ---- draft_pass.c ---- */

/* From what the daemon keeps warm. Returns 0 or -ENOMEM; fini in any case. */
int drafters_init(struct engine *engine);
void drafters_fini(struct engine *engine);

/* Rows that the draft model has to compute before its first draft here, besides that one's. */
uint32_t draft_lag(const struct drafter *drafter, const struct slot *slot);

/* One pass: a row of each slot that streams; a draft for each slot below its goal; and, where
 * `catch_up` says so, a chunk of what the draft model has not seen yet of slots that would like to
 * draft. Returns the rows, or -errno.
 */
int draft_pass(struct engine *engine, struct drafter *drafter, bool catch_up);

/* ---- stream.c ---- */

/* May fast passes answer such a request? */
bool stream_fits(const struct engine *engine, const struct submit_cell *cell);

/* A step begins: which slots have their next token from its fast pass, and not from its canonical
 * one, whatever happens meanwhile. */
void stream_begin(struct engine *engine);

/* Puts a row of each slot that streams, as far as there is room, into the pass, and the slots into
 * engine->order. Returns how many. */
uint32_t stream_plan(struct engine *engine, const struct drafter *drafter);

/* Takes the result of the slot's row: publishes its sample. A row that gave none is left to canonical
 * passes, and so is the rest of the answer. */
void stream_take(struct engine *engine, struct slot *slot, const struct row_result *result);

/* ---- constrain.c ---- */

/* Compiles the grammar of the slot's decoded request, if it has one. Returns 0, or -errno with one
 * line: the request is not to begin. A part of the answer that comes with it is followed by
 * constrain_step. */
int constrain_begin(struct engine *engine, struct slot *slot, uint32_t last_of_prompt, char *line,
                    size_t line_bytes);
void constrain_end(struct engine *engine, struct slot *slot);

/* A token of the answer was accepted. Returns DONE_EOS where the grammar lets nothing follow,
 * DONE_ERROR where it cannot be followed, 0: the answer goes on. */
enum done_reason constrain_accept(struct slot *slot, uint32_t token);

/* May the token be drafted next? Then it was. */
bool constrain_draft(struct slot *slot, uint32_t token);

/* Is there a mask for the row behind the first `draft` drafts? Then the request's masks[draft]. */
bool constrain_ready(struct engine *engine, struct slot *slot, uint32_t draft);

/* A step begins: follows answers that were brought along, makes the masks that its first rows need,
 * ends who cannot go on. Returns how many
 * slots have to sit out for theirs (slot.masking). */
uint32_t constrain_step(struct engine *engine);

/* The windows are drafted: makes the masks of their rows, cuts where there is none. */
void constrain_windows(struct engine *engine);

/* ---- gather.c ---- */

/* A step begins: whoever waited for pages may try again. */
void gather_begin(struct engine *engine);

/* Has the slot's reader left room for its next window? Otherwise it is paused, and only it; one that
 * broke its ring is closed. */
bool gather_reads(struct engine *engine, struct slot *slot);

/* Interactive before batch, older before newer: the order in which slots [n] may take pages. */
void gather_sort(struct slot **slots, uint32_t n);

/* Pages for positions [0, n_positions), taken from others where the pool is empty. False: there is
 * nobody to take them from. */
bool gather_pages(struct engine *engine, struct slot *slot, uint32_t n_positions);

/* Puts the slot's `take` rows from position `from` on into the pass, behind `n_rows` others. Only
 * rows that reach the end of the sequence sample, and none of a request that wants no token. Returns
 * how many rows there are now. */
uint32_t gather_rows(struct engine *engine, struct slot *slot, uint32_t from, uint32_t sequence,
                     uint32_t n_rows);

/* Fills engine->rows and engine->order [*ret_sequences] for the next pass, each slot's rows in one
 * piece, and takes pages for them. Returns the number of rows; 0: nobody can go on. */
uint32_t gather_plan(struct engine *engine, uint32_t *ret_sequences);

/* ---- pass.c ---- */

/* Ends what was voided, gathers and runs one pass, accepts and publishes. Returns the rows
 * computed. */
uint32_t pass_step(struct engine *engine);

/* Ends what a newer generation made void: cancelled, as far as we know here. */
void pass_end_void(struct engine *engine);

/* Could the slot go on: was its request voided, or is there room for its next window? */
bool pass_runnable(struct slot *slot);

/* What this step computes. `decodes`: slots decode in its canonical pass. */
struct cost_step pass_cost_step(const struct engine *engine, bool decodes);

/* ---- verify.c ---- */

/* Takes the results of the slot's `take` rows of a pass. */
void verify_take(struct engine *engine, struct slot *slot, const struct row_result *results);

/* Feeds one accepted token of the answer, in order. Does the answer stop with it: is it a stop
 * token, or does a stop text end in its bytes? */
bool verify_stops(const struct engine *engine, struct request *request, uint32_t token);

/* What follows from one accepted token, of which the slot's record knows: does the answer end with
 * it? 0: it goes on. */
enum done_reason verify_ends(struct engine *engine, struct slot *slot, uint32_t token);

/* Publishes what was accepted from position `from` on (answer_tokens), and the end of the answer
 * where there is a reason for one. */
void verify_publish(struct engine *engine, struct slot *slot, uint32_t from,
                    const struct sample *const *samples, enum done_reason reason);

/* ---- answer.c ---- */

/* Publishes tokens [from, accepted) of the slot, with log-probabilities from `samples` [accepted -
 * from] where they were asked for. Room was made sure of before the pass. */
void answer_tokens(struct engine *engine, struct slot *slot, uint32_t from,
                   const struct sample *const *samples);

/* Ends the slot's request: counts, publishes EVENT_DONE, lets the slot rest with what is canonical.
 * `error` and `text` go with DONE_ERROR, else 0 and "". */
void answer_end(struct engine *engine, struct slot *slot, enum done_reason reason, int error,
                const char *text);

/* Tells a client that a request never became one. Returns 0, or -EAGAIN when there is no room: the
 * cell stays unread. */
int answer_refuse(struct engine *engine, struct client *client, const struct submit_cell *cell,
                  enum done_reason reason, int error, const char *text);

/* Event cells that `window` tokens may need, the answer's end not counted. */
uint32_t answer_room(const struct request *request, uint32_t window);

/* The same for the slot's next window. */
uint32_t answer_room_needed(const struct slot *slot);

/* Publishes how far a prefill has come, for people. */
void answer_progress(struct slot *slot, enum down_state state);

/* ---- engine.c ---- */

/* The counters that say how things are now. */
void engine_gauges(struct engine *engine);

/* Nothing happened for a while: memory of KV pages that nobody holds goes back to the system, until
 * there is work again. */
void engine_tidy(struct engine *engine);

/* ---- engine_clients.c ---- */

/* Tells the control thread, and wakes it. */
void engine_post(struct engine *engine, enum mail_kind kind, struct client *client, int error);

/* Does what the control thread says. Returns the number of its messages. */
uint32_t engine_mail(struct engine *engine);

/* Ends every answer; no step is turned after this one. */
void engine_stop(struct engine *engine);

/* S2, once a step: wakes whoever sleeps. */
void engine_wake_all(struct engine *engine);

/* This client broke the protocol: it is not looked at any more, and the control thread is told. */
void engine_close_client(struct engine *engine, struct client *client, int error);

/* The client had something to say: its bell counts (again). */
void engine_listen(struct engine *engine, struct client *client);

static inline struct ring_writer *engine_events(struct slot *slot)
{
    return &slot->client->events[slot->ring];
}

#endif
