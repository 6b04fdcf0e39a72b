/* layout.h: the front door of ipc/. What lies in the memory that hearthd and a client share.
 *
 * Three shared mappings exist. All are memfds made by the daemon; a client only maps them.
 *
 *   up     one per client. The client writes, the daemon reads (mapped PROT_READ there).
 *          Sealed SHRINK, GROW, SEAL.
 *   down   one per client. The daemon writes, the client reads. Sealed FUTURE_WRITE, SHRINK, GROW,
 *          SEAL after the daemon has mapped it, so that no client can ever map it writable.
 *   ctl    one for all clients. Only the daemon's threads write. Sealed like `down`.
 *
 * No word has two writers, and no page is writable by two processes. That is the whole security
 * argument: a client can corrupt only what the daemon reads from that client, and the daemon trusts
 * nothing it reads there.
 *
 * THE PICTURE. Offsets of areas whose size depends on the limits come from segment_plan()
 * (segment.h). Words that are written independently are 128 bytes apart: a line, and the
 * neighbour that hardware prefetches. `shift` is another multiple of 128 below a page for each
 * client: at the same place in every client's page, all the lines that the daemon looks at in a
 * step would fall into the same few sets of its caches (publishing a step to 256 clients took
 * twelve times as long).
 *
 *   up (client writes)                             down (daemon writes)
 *   shift +-----------------------------+              0 +-----------------------------+
 *         | up_head                     |                | down_about  magic, limits,  |
 *         |  waiting   sleep ticket     |                |  shift; constant            |
 *   +0x80 +-----------------------------+  0x80 + shift  +-----------------------------+
 *         | up_slot[0]                  |                | down_head                   |
 *         |  +0x00 generation           |                |  +0x00 wake  futex word     |
 *         |  +0x80 event cells consumed |                |  +0x80 submitted  consumed  |
 *  +0x180 | up_slot[1] ...              |         +0x100 +-----------------------------+
 *         +-----------------------------+                | down_slot[0]  status line   |
 *         | submit ring                 |         +0x180 | down_slot[1] ...            |
 *         |  submit_cells x 64 B        |                +-----------------------------+
 *         +-----------------------------+                | event ring of slot 0        |
 *         | parameter block, slot 0     |                |  event_cells x 64 B         |
 *         |  params_bytes               |                | event ring of slot 1 ...    |
 *         | parameter block, slot 1 ... |                +-----------------------------+
 *         +-----------------------------+ page
 *         | prompt arena, slot 0        |          ctl (daemon writes, every client reads)
 *         |  uint32_t[context]          |          0x000 | magic, version, start       |
 *         +-----------------------------+ page     0x080 | sleeping      engine thread |
 *         | prompt arena, slot 1 ...    |          0x100 | heartbeat, step time  ditto |
 *         +-----------------------------+          0x200 | engine thread's counters    |
 *                                                  0x400 | control thread's counters   |
 *                                                  0x600 +-----------------------------+
 *
 * A RING (ring.h) is a power of two of 64-byte cells. A cell's first word is its sequence number:
 * cell number n (counted from 0, forever) lies at n mod cells and carries (uint32_t)(n + 1),
 * written last. The reader polls the cell itself, so one cache line moves per message. The reader's
 * progress, the number of cells it has consumed (mod 2^32), is a word in the reader's own segment.
 * A writer's and a reader's position are private memory.
 *
 *   submit ring   cells in up,   written by the client, progress in down_head.submitted
 *   event ring    cells in down, written by the daemon, progress in up_slot.events; one per slot
 *
 * A REQUEST is one submit_cell. Its tokens lie in the slot's prompt arena by absolute position: [0,
 * length) is the complete token sequence, and [0, keep) is unchanged since the slot's previous
 * cell. Its sampling parameters lie in the slot's parameter block (params.h). The client writes in
 * this order:
 *
 *   G1   up_slot.generation = g        every older request of the slot is void from here on
 *   G2   arena and parameter block     the daemon, if reading for an older request, notices
 *   R1   the submit cell with g        published by its sequence number
 *   S2   if ctl.sleeping               ring the bell
 *
 * Cancel is G1 alone. A cell is live only while its generation equals the word. A cell that repeats
 * the generation of the slot's last live one is passed over: it begins nothing and has no answer.
 *
 * AN ANSWER is a series of event cells in the slot's ring: any number of EVENT_TOKENS or
 * EVENT_LOGPROBS, then one EVENT_DONE. What is longer than a cell is a run: cells of one kind with
 * EVENT_MORE on all but the last, published only when all of it fits. Room for one EVENT_DONE run
 * is always kept free while a request is running (event.h).
 *
 * SLEEPING. A side that goes to sleep says so first, in its own segment, and looks again (S1); a
 * side that publishes or frees looks at that word after a full fence (S2). Bells are rung only for
 * sleepers (bell.h).
 *
 * THE LABELS (R1, S2, ...) name pairs of memory operations; their table is at the top of ring.h.
 *
 * WHAT THE DAEMON CHECKS. It copies every cell, token, parameter block and word once, checks the
 * copy and uses the copy. up_slot.events outside [last seen, published] or a sequence number that
 * is neither the next nor the last lap's: the client is closed (-EPROTO). Everything else that is
 * wrong is an EVENT_DONE with reason DONE_ERROR. A page that a client made unreadable is replaced
 * by zeroes, and the client is closed (segment.h, the guard). */
#ifndef HEARTH_IPC_LAYOUT_H
#define HEARTH_IPC_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The version of everything in ipc/: layout, handshake, parameter block. Any change of meaning
 * raises it. */
#define IPC_VERSION 1u
/* The oldest version that a daemon of this version still serves. */
#define IPC_VERSION_OLDEST 1u

#define IPC_LINE 64u    /* bytes of a cache line, and of a cell */
#define IPC_STRIDE 128u /* distance of words that are written independently */
#define IPC_PAGE 4096u

#define DOWN_MAGIC 0x4e574448u /* "HDWN" */
#define CTL_MAGIC 0x4c544348u  /* "HCTL" */

/* Bounds of the limits; segment_plan() refuses anything outside them. */
#define LIMIT_SLOTS_MAX 256u
#define LIMIT_CONTEXT_MAX (1u << 22) /* tokens: an arena of 16 MiB */
#define LIMIT_CELLS_MAX (1u << 16)   /* cells of any ring; a power of two */
#define LIMIT_SUBMIT_CELLS_MIN 4u
#define LIMIT_EVENT_CELLS_MIN 32u /* four times EVENT_RUN_CELLS */
#define LIMIT_PARAMS_MIN 256u     /* bytes; a multiple of 64 */
#define LIMIT_PARAMS_MAX (1u << 22)

/* What a client gets; chosen by the daemon, told in the handshake, repeated in down_head. */
struct ipc_limits {
    uint32_t slots;        /* sequences this client may run at once */
    uint32_t context;      /* tokens per arena */
    uint32_t submit_cells; /* cells of the submit ring */
    uint32_t event_cells;  /* cells of each event ring */
    uint32_t params_bytes; /* size of each parameter block */
};

/* ---- submit cells ---------------------------------------------------------------------------- */

enum submit_opcode {
    SUBMIT_NONE = 0,
    SUBMIT_REQUEST = 1, /* run a request on `slot` */
    SUBMIT_NOP = 2,     /* answer with one EVENT_NOP carrying `cookie`; touches no slot state */
};

enum submit_priority { PRIORITY_INTERACTIVE = 0, PRIORITY_BATCH = 1 };

/* Where drafted tokens come from. Never changes an answer, only how soon it arrives. */
enum submit_proposer {
    PROPOSER_AUTO = 0, /* the daemon's choice */
    PROPOSER_NONE = 1,
    PROPOSER_LOOKUP = 2,
    PROPOSER_CLIENT = 3, /* the guess in the parameter block */
    PROPOSER_DRAFT = 4,  /* a small model of the same vocabulary */
    PROPOSER_SHADOW = 5, /* a low-bit copy of the model's own weights */
    PROPOSER_FAST = 6,   /* the device's fast pass */
    PROPOSER_MTP = 7,    /* the model's own next-token layer */
    PROPOSER_COUNT,
};

enum submit_flag {
    /* --deterministic no: tokens of fast passes are good enough. If the device has fast passes of
     * the same weights the answer comes from them, unverified, and its numerics say so
     * (NUMERICS_FAST); else the flag changes nothing. */
    SUBMIT_FAST = 1u << 0,
    SUBMIT_FLAGS = SUBMIT_FAST,
};

struct submit_cell {
    uint32_t seq;
    uint8_t opcode;
    uint8_t priority;
    uint16_t slot;
    uint32_t generation;
    uint32_t keep;          /* P: arena [0, P) is unchanged since the slot's previous cell */
    uint32_t length;        /* N: tokens [0, N) are the complete sequence */
    uint32_t prompt_length; /* of the original request, <= N; the rest is already answer */
    uint32_t max_tokens; /* of the answer, including those already in the arena; 0: prefill only */
    uint32_t flags;      /* enum submit_flag */
    uint32_t params_bytes; /* bytes used in the slot's parameter block */
    uint32_t proposer;     /* enum submit_proposer */
    uint64_t cookie;       /* chosen by the client; comes back in EVENT_NOP */
    uint64_t zeroes[2];    /* must be 0 */
};

/* ---- event cells ----------------------------------------------------------------------------- */

#define EVENT_BYTES 48u /* payload of one cell */
#define EVENT_TOKENS_MAX 12u
#define EVENT_RUN_CELLS 8u /* longest run; also the room kept for EVENT_DONE */
#define EVENT_RUN_BYTES (EVENT_RUN_CELLS * EVENT_BYTES)

enum event_kind {
    EVENT_NONE = 0,
    EVENT_TOKENS = 1,   /* payload: uint32_t token[bytes / 4], from position on; one cell */
    EVENT_LOGPROBS = 2, /* run; payload: event_logprob records, the first is of `position` */
    EVENT_DONE = 3,     /* run; payload: struct event_done, cut after its text where it can be */
    EVENT_NOP = 4,      /* payload: uint64_t cookie */
};

enum { EVENT_MORE = 1u }; /* flags: the run goes on in the next cell */

struct event_cell {
    uint32_t seq;
    uint32_t generation; /* of the request this belongs to; the library drops cells of others */
    uint32_t position;   /* absolute, of the run's first token; EVENT_DONE: the length */
    uint8_t kind;
    uint8_t flags;
    uint16_t bytes; /* payload bytes used in this cell, <= EVENT_BYTES */
    uint8_t payload[EVENT_BYTES];
};

/* One alternative of a token, and the record in EVENT_LOGPROBS: record, then n_top alternatives. */
#define EVENT_TOP_MAX 20u
struct event_top {
    uint32_t token;
    float logprob;
};
struct event_logprob {
    uint32_t token;
    float logprob;
    uint32_t n_top; /* alternatives that follow, <= EVENT_TOP_MAX */
};

enum done_reason {
    DONE_EOS = 1,
    DONE_STOP = 2,
    DONE_LENGTH = 3,
    DONE_CANCELLED = 4,
    DONE_SUPERSEDED = 5,
    DONE_ERROR = 6,
};

/* "portable-1", zero-terminated. NUMERICS_FAST follows the id where the answer was not verified:
 * its tokens came from fast passes, and the same request may get others. */
#define NUMERICS_BYTES 24u
#define NUMERICS_FAST "+fast"
#define DONE_TEXT_BYTES (EVENT_RUN_BYTES - 140u)

struct event_done {
    uint32_t reason; /* enum done_reason */
    int32_t error;   /* 0, or -errno with DONE_ERROR */
    uint32_t prompt; /* tokens of the prompt */
    uint32_t cached; /* of these, positions whose KV was reused */
    uint32_t output; /* accepted tokens of the answer */
    uint32_t passes; /* passes in which the request had a row */
    uint32_t drafted;
    uint32_t accepted_drafts;
    uint32_t rollbacks;    /* verifications with a mismatch */
    uint32_t prefix_break; /* first position where the prompt differs from what the slot held */
    uint64_t queue_ns;     /* from being consumed to its first row */
    uint64_t prefill_ns;
    uint64_t decode_ns;
    uint8_t model[16];        /* fingerprint */
    uint8_t request_hash[16]; /* parameters and prompt */
    uint8_t output_hash[16];  /* accepted tokens */
    char numerics[NUMERICS_BYTES];
    char text[DONE_TEXT_BYTES]; /* one line, zero-terminated; only its length is sent */
    uint32_t stored;            /* of `cached`: read from the store; sent where it is not 0 */
};

/* ---- up: written by the client --------------------------------------------------------------- */

struct up_head {
    _Alignas(IPC_STRIDE) _Atomic uint32_t waiting; /* S1: 0 awake, else a ticket */
};

struct up_slot {
    _Alignas(IPC_STRIDE) _Atomic uint32_t generation; /* G1 */
    _Alignas(IPC_STRIDE) _Atomic uint32_t events;     /* R2: event cells consumed */
};

/* ---- down: written by the daemon's engine thread --------------------------------------------- */

struct down_about { /* constant */
    uint32_t magic;
    uint32_t version;
    struct ipc_limits limits;
    uint32_t shift;
};

struct down_head {
    _Alignas(IPC_STRIDE) _Atomic uint32_t wake;      /* S1: futex word; raised by every wake */
    _Alignas(IPC_STRIDE) _Atomic uint32_t submitted; /* R2: submit cells consumed */
};

enum down_state {
    DOWN_IDLE = 0,
    DOWN_QUEUED = 1,
    DOWN_PREFILL = 2,
    DOWN_DECODE = 3,
    DOWN_PAUSED = 4,
    DOWN_READING = 5, /* from the store */
};

/* A hint for humans, not a protocol: each word is read by itself and may be a step old. */
struct down_slot {
    _Alignas(IPC_STRIDE) _Atomic uint32_t generation; /* of the request it describes */
    _Atomic uint32_t state;                           /* enum down_state */
    _Atomic uint32_t prefill_done;                    /* positions that have KV */
    _Atomic uint32_t prefill_total;
    _Atomic uint32_t prompt;       /* tokens */
    _Atomic uint32_t output;       /* accepted tokens of its answer so far */
    _Atomic uint32_t batch;        /* enum submit_priority */
    _Atomic uint32_t prefix_break; /* where the prompt left the text that the slot held before */
    _Atomic uint64_t outputs;      /* accepted tokens of all answers since the client connected */
    _Atomic uint32_t prefix_lost;  /* tokens of that text after this place */
};

/* ---- ctl: written by the daemon, read by everyone -------------------------------------------- */

#define CTL_COUNTERS 64u /* room for each thread's counters */

struct ctl {
    _Alignas(IPC_STRIDE) uint32_t magic; /* constant from here ... */
    uint32_t version;
    uint32_t engine_counters; /* how many there are */
    uint32_t control_counters;
    uint64_t start_ns; /* CLOCK_REALTIME of the start */
    uint32_t pid;
    uint32_t threads; /* threads that compute while a pass runs: unless the machine has more cores,
                         a client that spins takes one of theirs. ... to here */
    _Alignas(IPC_STRIDE) _Atomic uint32_t sleeping;  /* S1: engine thread sleeps or is about to */
    _Alignas(IPC_STRIDE) _Atomic uint64_t heartbeat; /* engine's steps */
    _Atomic uint64_t step_ns;    /* time of a decode step now, smoothed; 0 unknown */
    _Atomic uint64_t step_at_ns; /* CLOCK_MONOTONIC of the last publish */
    _Alignas(512) _Atomic uint64_t engine[CTL_COUNTERS]; /* counters.h */
    _Alignas(512) _Atomic uint64_t control[CTL_COUNTERS];
};

/* A moved or resized shared field fails the build here. */
#define LAYOUT_FIELD(type, field, offset, size)                                                    \
    _Static_assert(offsetof(struct type, field) == (offset) &&                                     \
                       sizeof(((struct type *)0)->field) == (size),                                \
                   #type "." #field " moved")
#define LAYOUT_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type " changed size")

LAYOUT_SIZE(ipc_limits, 20);
LAYOUT_FIELD(ipc_limits, slots, 0, 4);
LAYOUT_FIELD(ipc_limits, context, 4, 4);
LAYOUT_FIELD(ipc_limits, submit_cells, 8, 4);
LAYOUT_FIELD(ipc_limits, event_cells, 12, 4);
LAYOUT_FIELD(ipc_limits, params_bytes, 16, 4);

LAYOUT_SIZE(submit_cell, 64);
LAYOUT_FIELD(submit_cell, seq, 0, 4);
LAYOUT_FIELD(submit_cell, opcode, 4, 1);
LAYOUT_FIELD(submit_cell, priority, 5, 1);
LAYOUT_FIELD(submit_cell, slot, 6, 2);
LAYOUT_FIELD(submit_cell, generation, 8, 4);
LAYOUT_FIELD(submit_cell, keep, 12, 4);
LAYOUT_FIELD(submit_cell, length, 16, 4);
LAYOUT_FIELD(submit_cell, prompt_length, 20, 4);
LAYOUT_FIELD(submit_cell, max_tokens, 24, 4);
LAYOUT_FIELD(submit_cell, flags, 28, 4);
LAYOUT_FIELD(submit_cell, params_bytes, 32, 4);
LAYOUT_FIELD(submit_cell, proposer, 36, 4);
LAYOUT_FIELD(submit_cell, cookie, 40, 8);
LAYOUT_FIELD(submit_cell, zeroes, 48, 16);

LAYOUT_SIZE(event_cell, 64);
LAYOUT_FIELD(event_cell, seq, 0, 4);
LAYOUT_FIELD(event_cell, generation, 4, 4);
LAYOUT_FIELD(event_cell, position, 8, 4);
LAYOUT_FIELD(event_cell, kind, 12, 1);
LAYOUT_FIELD(event_cell, flags, 13, 1);
LAYOUT_FIELD(event_cell, bytes, 14, 2);
LAYOUT_FIELD(event_cell, payload, 16, 48);

LAYOUT_SIZE(event_top, 8);
LAYOUT_FIELD(event_top, token, 0, 4);
LAYOUT_FIELD(event_top, logprob, 4, 4);
LAYOUT_SIZE(event_logprob, 12);
LAYOUT_FIELD(event_logprob, token, 0, 4);
LAYOUT_FIELD(event_logprob, logprob, 4, 4);
LAYOUT_FIELD(event_logprob, n_top, 8, 4);

LAYOUT_SIZE(event_done, EVENT_RUN_BYTES);
LAYOUT_FIELD(event_done, reason, 0, 4);
LAYOUT_FIELD(event_done, error, 4, 4);
LAYOUT_FIELD(event_done, prompt, 8, 4);
LAYOUT_FIELD(event_done, cached, 12, 4);
LAYOUT_FIELD(event_done, output, 16, 4);
LAYOUT_FIELD(event_done, passes, 20, 4);
LAYOUT_FIELD(event_done, drafted, 24, 4);
LAYOUT_FIELD(event_done, accepted_drafts, 28, 4);
LAYOUT_FIELD(event_done, rollbacks, 32, 4);
LAYOUT_FIELD(event_done, prefix_break, 36, 4);
LAYOUT_FIELD(event_done, queue_ns, 40, 8);
LAYOUT_FIELD(event_done, prefill_ns, 48, 8);
LAYOUT_FIELD(event_done, decode_ns, 56, 8);
LAYOUT_FIELD(event_done, model, 64, 16);
LAYOUT_FIELD(event_done, request_hash, 80, 16);
LAYOUT_FIELD(event_done, output_hash, 96, 16);
LAYOUT_FIELD(event_done, numerics, 112, 24);
LAYOUT_FIELD(event_done, text, 136, 244);
LAYOUT_FIELD(event_done, stored, 380, 4);

LAYOUT_SIZE(up_head, 128);
LAYOUT_FIELD(up_head, waiting, 0, 4);
LAYOUT_SIZE(up_slot, 256);
LAYOUT_FIELD(up_slot, generation, 0, 4);
LAYOUT_FIELD(up_slot, events, 128, 4);

LAYOUT_SIZE(down_about, 32);
LAYOUT_FIELD(down_about, magic, 0, 4);
LAYOUT_FIELD(down_about, version, 4, 4);
LAYOUT_FIELD(down_about, limits, 8, 20);
LAYOUT_FIELD(down_about, shift, 28, 4);
LAYOUT_SIZE(down_head, 256);
LAYOUT_FIELD(down_head, wake, 0, 4);
LAYOUT_FIELD(down_head, submitted, 128, 4);
LAYOUT_SIZE(down_slot, 128);
LAYOUT_FIELD(down_slot, generation, 0, 4);
LAYOUT_FIELD(down_slot, state, 4, 4);
LAYOUT_FIELD(down_slot, prefill_done, 8, 4);
LAYOUT_FIELD(down_slot, prefill_total, 12, 4);
LAYOUT_FIELD(down_slot, prompt, 16, 4);
LAYOUT_FIELD(down_slot, output, 20, 4);
LAYOUT_FIELD(down_slot, batch, 24, 4);
LAYOUT_FIELD(down_slot, prefix_break, 28, 4);
LAYOUT_FIELD(down_slot, outputs, 32, 8);
LAYOUT_FIELD(down_slot, prefix_lost, 40, 4);

LAYOUT_SIZE(ctl, 0x600);
LAYOUT_FIELD(ctl, magic, 0, 4);
LAYOUT_FIELD(ctl, version, 4, 4);
LAYOUT_FIELD(ctl, engine_counters, 8, 4);
LAYOUT_FIELD(ctl, control_counters, 12, 4);
LAYOUT_FIELD(ctl, start_ns, 16, 8);
LAYOUT_FIELD(ctl, pid, 24, 4);
LAYOUT_FIELD(ctl, threads, 28, 4);
LAYOUT_FIELD(ctl, sleeping, 0x80, 4);
LAYOUT_FIELD(ctl, heartbeat, 0x100, 8);
LAYOUT_FIELD(ctl, step_ns, 0x108, 8);
LAYOUT_FIELD(ctl, step_at_ns, 0x110, 8);
LAYOUT_FIELD(ctl, engine, 0x200, 512);
LAYOUT_FIELD(ctl, control, 0x400, 512);

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
               "shared words must be lock-free");

#endif
