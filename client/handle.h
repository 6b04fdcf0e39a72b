/* handle.h - what the library's files share: a connection and its slots.
 *
 * Everything here belongs to the one thread that uses the handle. Private memory is authoritative:
 * of the shared words the library reads back only its own arena, to find what is unchanged.
 */
#ifndef HEARTH_CLIENT_HANDLE_H
#define HEARTH_CLIENT_HANDLE_H

#include "client/answer.h"
#include "client/hearth.h"
#include "client/tokenizer/tokenizer.h"
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/hello.h"
#include "ipc/segment.h"
#include "ipc/vocab.h"

enum client_state {
    CLIENT_IDLE = 0,  /* nothing runs, nothing to tell */
    CLIENT_RUNNING,   /* events of `generation` are delivered */
    CLIENT_CANCELLED, /* only the EVENT_DONE of `ending` is */
    CLIENT_ENDED      /* the end is known and waits in `result` to be delivered */
};

struct client_slot {
    struct ring_reader events;
    uint32_t generation; /* last stored in up; 0: none yet */
    uint32_t ending;     /* generation of the cancelled request */
    uint32_t sent;       /* arena [0, sent) is what the last cell said */
    uint32_t prompt;     /* tokens of the running request's prompt */
    enum client_state state;
    uint64_t cookie;

    uint32_t *stop_tokens; /* [n_stop_tokens], a copy: their text is cut away */
    uint32_t n_stop_tokens;
    struct answer answer;
    struct token_list ids; /* the answer so far */
    uint32_t told;         /* of these, delivered in events */

    struct hearth_token_logprobs *logprobs; /* [n_logprobs], of ids [told, ids.n) */
    size_t n_logprobs, logprobs_room;
    struct hearth_logprob *tops; /* [n_tops], the alternatives of all of these one after another */
    size_t n_tops, tops_room;
    int wants_logprobs;

    struct event_run
        *backlog; /* [backlog_n], taken from the ring while a submit waited; from backlog_at */
    size_t backlog_at, backlog_n, backlog_room;

    uint64_t progress_ns;   /* when progress was looked at last */
    uint32_t progress_done; /* what was told last */

    struct event_done done; /* of the ended request */
    struct hearth_result result;
    char receipt[160];
};

struct hearth {
    int socket_fd, bell_fd, notify_fd; /* -1: none */
    uint32_t n_slots;
    struct client_slot *slots; /* [n_slots] */
    struct segment segment;
    const struct ctl *ctl;
    const void *vocab_block;
    struct vocab vocab;
    struct hello_welcome welcome;
    struct ring_writer submit;
    struct bell_sleeper sleeper;

    uint32_t *not_forked; /* a page of its own: 1 here, wiped to 0 in a forked child */
    int may_spin;         /* there is more than one processor for us */
    int armed;            /* the daemon was asked to write to notify_fd */
    int dead; /* 0; -EPIPE the daemon is gone; -EPROTO it wrote nonsense: rings are not read */
    uint32_t next_slot;        /* round robin of HEARTH_ANY_SLOT */
    uint64_t socket_look_ns;   /* when the socket was looked at last */
    struct token_list scratch; /* tokens of a text prompt */
    struct hearth_event event; /* what hearth_next() gave out */
    char fingerprint[33];
    char path[HELLO_PATH_BYTES];
    char error[512];
};

/* Keeps the line for hearth_error() and returns code. */
int handle_fail(struct hearth *h, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns 0, or -EPERM with its line when this process is not the one that connected. */
int handle_check(struct hearth *h);

/* As above for a call on a slot: also -EINVAL for a handle without slots, -ERANGE for a slot out of
 * range. */
int handle_check_slot(struct hearth *h, uint32_t slot);

/* Turns `text` into h->scratch. Returns 0 or -errno with the line kept. */
int text_to_scratch(struct hearth *h, const char *text, size_t bytes, uint32_t flags);

/* Gives back the runs at the beginning of the slot's ring that are for nobody: of a superseded or
 * cancelled request, or of one whose end was delivered. Returns whether there were any (then ring
 * the bell), or -EPROTO. */
int events_drop_void(struct client_slot *s);

/* Moves what the rings of all slots hold to their backlogs, so that the daemon finds room. Returns
 * 0, -ENOMEM, -EPROTO. */
int events_drain(struct hearth *h);

/* The daemon is gone (-EPIPE) or wrote nonsense (-EPROTO): every running request will end with an
 * error, after what its ring still holds. */
void events_daemon_gone(struct hearth *h, int why);

#endif
