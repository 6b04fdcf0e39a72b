/*
 * engine_rig: an engine stepped by hand, with the fake device, and clients that watch it.
 *
 * One thread is all three: the engine (engine_step), the control thread (its two mailboxes) and
 * every client, whose segments are real ones, mapped twice. The clock is a counter. A client here
 * checks what it reads: cells of one answer are consecutive, nothing of an older request is
 * published after the store that made it void, every request has one end. What it sees is kept in
 * struct rig_slot.
 *
 * rig_alone() says what an answer must be: computed from the tokens and the parameters alone, by
 * code that shares nothing with the daemon. A broken promise aborts the process with one line, so
 * the rig serves unit tests and fuzz targets alike.
 */
#ifndef HEARTH_TESTS_RIG_ENGINE_RIG_H
#define HEARTH_TESTS_RIG_ENGINE_RIG_H

#include "daemon/engine/client.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/request.h"
#include "daemon/engine/state.h"
#include "ipc/counters.h"
#include "tests/rig/fake_backend.h"

enum { RIG_SLOTS = 4, RIG_TOKENS = 1024, RIG_ENDS = 512, RIG_PARAMS_BYTES = 4096 };

#define RIG_CHECK(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: `%s` does not hold: ", __FILE__, __LINE__, #condition);        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* 0: the default in brackets. */
struct rig_desc {
    uint32_t slots;                /* [8] */
    uint32_t clients;              /* [8] */
    uint32_t context;              /* [512] */
    uint32_t pages;                /* [what all slots need] */
    uint32_t window;               /* positions that half of the layers see [$HEARTH_RIG_WINDOW] */
    uint32_t window_pages;         /* [what all slots need, and one pass of each] */
    uint32_t states;               /* of a recurrent model; 0: it is not [$HEARTH_RIG_STATES] */
    uint32_t rows;                 /* [64] of a pass */
    uint32_t samples;              /* [16] */
    uint32_t mail;                 /* [64] cells of a mailbox */
    uint32_t params_bytes;         /* [RIG_PARAMS_BYTES] of a parameter block */
    const char *store;             /* a folder: KV is kept there, by hand; a step has it work */
    uint32_t store_min;            /* tokens of a text that is stored */
    uint64_t store_bytes;          /* most of its files; 0: 256 MiB */
    uint64_t *store_cut;           /* store_options.cut */
    enum submit_proposer proposer; /* of all requests [$HEARTH_RIG_PROPOSER, else auto] */
    enum backend_fast fast;        /* the device's fast pass [what `proposer` needs] */
    uint32_t wrong;                /* one in so many drafts of models is wrong; 0: none */
    uint32_t draft_pages;          /* of the draft model; 0: it has none [as `pages`, for draft] */
    uint32_t draft_context;        /* [context] */
    bool threaded;            /* engine_run on a thread of its own: the real clock, real bells */
    enum loop_backend loop;   /* of that thread */
    uint64_t linger_ns;       /* ditto */
    uint64_t (*now_ns)(void); /* NULL: a counter, or the real clock when threaded */
    uint64_t (*cpu_ns)(void); /* NULL: stands still, or the real one when threaded */
};

struct rig {
    struct rig_desc desc;
    struct fake fake;
    struct fake draft; /* the draft model's device */
    struct loaded_model draft_resident;
    struct model model;
    struct model_layer layers[FAKE_LAYERS]; /* the model's */
    struct loaded_model loaded;
    struct store *store;
    bool store_stands; /* the disk does nothing until this is false again */
    struct ctl *ctl;
    struct mailbox inbox, outbox;
    struct engine *engine;
    uint32_t n_closed; /* MAIL_CLOSE seen by rig_mail */
    int last_close;    /* its error */
    uint32_t n_stopped;
};

/* What a test asks for. params NULL: the default ones (greedy). */
struct rig_request {
    const uint32_t *tokens; /* [n] */
    uint32_t n;
    uint32_t prompt_length; /* 0: n */
    uint32_t max_tokens;
    bool batch;
    bool fast; /* need not be deterministic */
    const struct params *params;
};

struct rig_answer {
    uint32_t tokens[RIG_TOKENS];
    uint32_t n;
    uint32_t first;          /* position of tokens[0] */
    enum done_reason reason; /* 0: no end yet */
    uint32_t generation;
    struct event_done done;
};

struct rig_slot {
    struct ring_reader events;
    uint32_t generation; /* the word's last value */
    uint32_t fence;      /* event cells from this number on belong to `generation` */
    uint32_t sent;       /* arena [0, sent) is as of the last cell */
    uint32_t n_requests; /* cells pushed */
    uint32_t n_ends;
    uint32_t n_nops, n_logprobs;
    uint64_t cookie;
    struct rig_answer now;    /* what is being read */
    struct rig_answer last;   /* the last one that ended */
    uint32_t ended[RIG_ENDS]; /* generations in order of their ends, the first RIG_ENDS */
    enum done_reason reasons[RIG_ENDS];
};

struct rig_client {
    struct client *client;         /* the daemon's */
    bool threaded;                 /* what the engine thread owns is not looked at */
    enum submit_proposer proposer; /* of its requests */
    int notify_fd;                 /* threaded: our end of the socketpair; else -1 */
    struct segment segment;        /* our mapping */
    struct ring_writer submit;
    uint32_t n_slots;
    struct rig_slot slots[RIG_SLOTS];
};

/* Aborts where the machine cannot give what is needed. */
void rig_open(struct rig *rig, const struct rig_desc *desc);
void rig_close(struct rig *rig);

/* Detaches clients [n], evicts slots that have names, and closes: no page may be missing. */
void rig_end(struct rig *rig, struct rig_client *clients, uint32_t n);

/* Makes a client that the engine does not know yet, and takes its memory away again. */
void rig_equip(struct rig *rig, struct rig_client *c, uint32_t n_slots, uid_t uid,
               const char *name);
void rig_strip(struct rig_client *c);

/* A message to the engine, as the control thread sends it. */
void rig_post(struct rig *rig, enum mail_kind kind, struct client *client);

/* Attaches a client (one step) and takes it away again: a step that must answer MAIL_DETACHED. */
void rig_attach(struct rig *rig, struct rig_client *c, uint32_t n_slots, uid_t uid,
                const char *name);
void rig_detach(struct rig *rig, struct rig_client *c);

/* As a stop does it: what is warm goes to the store, and so do named slots. Then rig_close. */
void rig_stop(struct rig *rig);

/* One turn of the engine, then one of its compiler and its store. Returns the work done. */
uint32_t rig_step(struct rig *rig);

/* Steps until a step finds nothing to do. Returns the steps; more than `most` abort. */
uint32_t rig_run(struct rig *rig, uint32_t most);

/* Takes the engine's mail. Returns how many MAIL_DETACHED there were. */
uint32_t rig_mail(struct rig *rig);

/* G1, arena, parameters, R1. Returns the request's generation. */
uint32_t rig_submit(struct rig_client *c, uint32_t slot, const struct rig_request *request);

/* The cell of a request, for tests that spoil it: everything is written but the cell. */
struct submit_cell rig_prepare(struct rig_client *c, uint32_t slot,
                               const struct rig_request *request);
void rig_push(struct rig_client *c, const struct submit_cell *cell);

/* A new generation and nothing else. */
void rig_cancel(struct rig_client *c, uint32_t slot);

/* Reads and checks up to `most` runs of events. Returns how many there were. */
uint32_t rig_read(struct rig_client *c, uint32_t slot, uint32_t most);
void rig_read_all(struct rig_client *c);

/* rig_submit, rig_run, rig_read_all; aborts unless the answer has ended. */
const struct rig_answer *rig_ask(struct rig *rig, struct rig_client *c, uint32_t slot,
                                 const struct rig_request *request);

/* The answer of this request alone on a machine with room for everything: of a fast one on a device
 * with native fast passes, the answer of these, but for its first token. */
void rig_alone(const struct rig *rig, const struct rig_request *request, struct rig_answer *ret);

/* Is `got` what rig_alone says (tokens, their number, reason)? Says on stderr where not. */
bool rig_same(const struct rig *rig, const struct rig_request *request,
              const struct rig_answer *got);

/* The same for a fast request that canonical passes had to take over now and then: is every token
 * what one kind of pass or the other samples after those before it? */
bool rig_possible(const struct rig *rig, const struct rig_request *request,
                  const struct rig_answer *got);

/* Every page is free, or in exactly one slot's table, or in the cache, which counts its holders and
 * holds what it says; and nothing runs more than it should. */
void rig_check(const struct rig *rig);

/* Pages, window pages or states that are read from the store, or were when the engine stopped. */
uint32_t rig_reads(const struct rig *rig, enum store_class class);

/* Fills tokens [n] with bytes from a sequence that `seed` chooses. */
void rig_tokens(uint32_t *tokens, uint32_t n, uint64_t seed);

#endif
