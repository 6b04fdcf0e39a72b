/* handle: what the library's files share: a connection and its slots.
 *
 * Everything here belongs to the one thread that uses the handle. Private memory is authoritative:
 * of the shared words the library reads back only its own arena, to find what is unchanged. */
#ifndef HEARTH_CLIENT_LIB_HANDLE_H
#define HEARTH_CLIENT_LIB_HANDLE_H

#include "client/hearth.h"
#include "client/lib/answer.h"
#include "client/tokenizer/tokenizer.h"
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/hello.h"
#include "ipc/segment.h"
#include "ipc/vocab.h"

#include <sys/types.h>

enum client_state {
    CLIENT_IDLE = 0,  /* nothing runs, nothing to deliver */
    CLIENT_RUNNING,   /* events of `generation` are delivered */
    CLIENT_CANCELLED, /* only the EVENT_DONE of `ending` is */
    CLIENT_ENDED      /* the end is known and waits in `result` to be delivered */
};

struct client_slot {
    struct ring_reader events;
    uint32_t generation; /* last stored in up; 0: none yet */
    uint32_t ending;     /* generation of the cancelled request */
    uint32_t sent;       /* arena [0, sent) holds the tokens of the last cell */
    uint32_t prompt;     /* tokens of the running request's prompt */
    uint32_t context;    /* of the daemon that it was made for */
    enum client_state state;
    uint64_t cookie;
    struct submit_cell cell; /* of the running request, to be published again */
    int resubmit;            /* resume: the cell is still to be published */
    const char
        *lost; /* the request ended with its daemon, and why; "" cancelled, NULL: it did not */

    uint32_t *stop_tokens; /* [n_stop_tokens], a copy: their text is cut away */
    uint32_t n_stop_tokens;
    const uint32_t *shown_tokens; /* [n_shown_tokens], after these: control tokens with text */
    uint32_t n_shown_tokens;
    struct answer answer;
    struct token_list ids; /* the answer so far */
    uint32_t delivered;    /* of these, given out in events */

    struct hearth_token_logprobs *logprobs; /* [n_logprobs], of ids [delivered, ids.n) */
    size_t n_logprobs, logprobs_room;
    struct hearth_logprob *tops; /* [n_tops], the alternatives of all of these one after another */
    size_t n_tops, tops_room;
    int wants_logprobs;

    struct event_run
        *backlog; /* [backlog_n], taken from the ring while a submit waited; from backlog_at */
    size_t backlog_at, backlog_n, backlog_room;

    uint64_t progress_ns;   /* when progress was looked at last */
    uint32_t progress_done; /* what was reported last */

    struct event_done done; /* of the ended request */
    struct hearth_result result;
    char receipt[160];
};

/* Waiting for another daemon when this one is gone (resume.c). */
struct client_resume {
    int32_t ms;           /* 0: not at all */
    int away;             /* the daemon is gone, and waited for */
    int pending;          /* there are slots whose `resubmit` is set */
    int fd;               /* a handshake under way, -1 none */
    uint32_t times;       /* how often it came back */
    uint64_t deadline_ns; /* until then */
    uint64_t since_ns;    /* when it last came back */
    int progressed;       /* tokens came, or requests were made, since then */
    uint64_t tried_ns;    /* when the last connection was tried */
    uint64_t looked_ns;   /* when it was last looked for */
    int late;             /* its last answer was waited for beyond the deadline, see try() */
};

/* What a chat template can do, found by trying (chat_adapt.c). */
struct chat_traits {
    uint64_t hash;                /* of the template; 0: none */
    uint32_t known, holds;        /* enum chat_trait bits: tried, and found to hold */
    int has_tools;                /* it writes the tools that it is given: 0 not known, 1, -1 */
    int knows_form;               /* the next was looked for (chat_form.c) */
    const struct call_form *form; /* in which it writes calls; NULL: none that is known */
    /* What it does with calls and results of the history, without tools and with some: by the content
     * of the message, and of one call or more (chat_keep.c). */
    uint8_t calls[2][3][2], results[2], orphans[2];
    uint8_t texts[2][2];  /* and with a text beside calls */
    uint8_t places[2][6]; /* and with messages that are not in turn (chat_turns.c) */
};

struct hearth {
    int connecting;      /* 1: the daemon has not answered yet; -errno: it never will */
    int never_wait;      /* HEARTH_NONBLOCK */
    uint64_t give_up_ns; /* connecting: until then; 0: for ever */
    int socket_fd, bell_fd, notify_fd; /* -1: none */
    uid_t daemon_uid;                  /* of the daemon at `path` */
    int poll_fd, timer_fd; /* what hearth_fd() gives, an epoll of notify_fd or of the timer */
    struct hello hello;    /* what was asked for */
    struct client_resume resume;
    uint32_t status_number; /* of the next question for the status */
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
    uint32_t processors;  /* that we may use */
    int armed;            /* the daemon was asked to write to notify_fd */
    int dead; /* 0; -EPIPE the daemon is gone; -EPROTO it wrote garbage: rings are not read */
    uint32_t next_slot;        /* round robin of HEARTH_ANY_SLOT */
    uint64_t socket_look_ns;   /* when the socket was looked at last */
    struct token_list scratch; /* tokens of a text prompt */
    void *prompt_cache;        /* what hearth_fim() remembers; NULL before the first */
    void (*prompt_cache_close)(void *cache);
    struct chat_traits traits; /* of the chat template used last */
    bool chat_ran_out;         /* memory did, while it was tried: they are not to be trusted */
    struct hearth_event event; /* what hearth_next() gave out */
    char fingerprint[33];
    char path[HELLO_PATH_BYTES];
    char error[512];
};

/* Keeps the line for hearth_error() and returns code. */
int handle_fail(struct hearth *h, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes a hash as 32 digits and a 0. */
void handle_hex(const uint8_t hash[16], char to[33]);

/* Returns 0, or -EPERM with its line when this process is not the one that connected. */
int handle_check_fork(struct hearth *h);

/* As above, also where the daemon has not answered yet (-EAGAIN), or never did. */
int handle_check(struct hearth *h);

/* As above for a call on a slot: also -EINVAL for a handle without slots, -ERANGE for a slot out of
 * range. */
int handle_check_slot(struct hearth *h, uint32_t slot);

/* Turns `text` into h->scratch. Returns 0 or -errno with the line kept. */
int text_to_scratch(struct hearth *h, const char *text, size_t bytes, uint32_t flags);

/* Copies at most `max` ids out of it. Returns how many it holds. */
int64_t text_from_scratch(const struct hearth *h, uint32_t *ids, size_t max);

/* Makes what the slot's request still brings void, in the caller's eyes and in the daemon's. The
 * caller rings the bell. */
void submit_void(struct hearth *h, uint32_t slot, enum client_state state);

/* Releases the runs at the head of the slot's ring that are void: of a superseded or
 * cancelled request, or of one whose end was delivered. Returns whether there were any (then ring
 * the bell), or -EPROTO. */
int events_drop_void(struct client_slot *s);

/* Is a run of this generation and kind void, so that it is not delivered? */
int events_is_void(const struct client_slot *s, uint32_t generation, uint32_t kind);

/* Takes the slot's runs until an event is full or the ring is empty. Without memory for one the
 * request ends with an error. Returns 0, -EPROTO, or -ESHUTDOWN: the daemon is stopping, see
 * resume_daemon_gone(). */
int events_take(struct hearth *h, struct client_slot *s);

/* The daemon is dead for good, or for this request, and the slot's ring is read to its end. */
void events_end_without_daemon(struct hearth *h, struct client_slot *s);

/* Moves what the rings of all slots hold to their backlogs, so that the daemon finds room. Returns
 * 0, -ENOMEM, -EPROTO. */
int events_drain(struct hearth *h);

/* May a wait spin: are there processors that the daemon does not compute on? */
int next_may_spin(const struct hearth *h);

/* Is this the end that a daemon gives a request when it is stopped, and is the request one to go on
 * with at the next daemon? */
int events_is_shutdown(const struct hearth *h, const struct client_slot *s,
                       const struct event_run *run);

/* The daemon is gone (-EPIPE): waits for it or, if resuming is off, does as next. It wrote garbage
 * (-EPROTO): every running request will end with an error, after what its ring still holds. */
void resume_daemon_gone(struct hearth *h, int why);

/* While h->resume.away: looks whether the daemon is back, at most every 50 ms, and where timeout_ms
 * is not 0 sleeps until the next look or deadline_ns (0: none). Returns 1: look at the slots again;
 * 0: the time is up; -EINTR. */
int resume_wait(struct hearth *h, int timeout_ms, uint64_t deadline_ns);

/* Publishes the cells of resumed requests as far as there is room. */
void resume_push(struct hearth *h);

/* The user whose process listens at the other end of this connection. */
uid_t handle_peer(int socket_fd);

/* hearth_fd() becomes readable when `fd` does, instead of `old` (-1: none). Returns 0 or -errno. */
int resume_watch(struct hearth *h, int old, int fd);

#endif
