/* exchange: one HTTP request, from its first header to the last byte of its answer.
 *
 * An exchange is made when a request's headers have arrived, collects the body, and is then
 * answered at once (exchange_answer), or runs choices at the daemon. While those run the connection
 * is suspended: libmicrohttpd does not look at it, and the loop watches for its hang-up. An answer
 * is either whole (`out` is sent when it is complete) or a stream, whose `out` is what the client
 * has not taken yet: above a limit its slots are paused. */
#ifndef HEARTH_CLIENT_HTTP_EXCHANGE_H
#define HEARTH_CLIENT_HTTP_EXCHANGE_H

#include "client/base/buffer.h"
#include "client/http/blocks.h"
#include "client/http/characters.h"
#include "client/http/gen_params.h"
#include "client/http/indent.h"
#include "client/http/state.h"
#include "client/tokenizer/token_list.h"

#include <microhttpd.h>

struct route;

enum { STREAM_HIGH_BYTES = 65536, STREAM_LOW_BYTES = 16384 };

/* How an answer ended. */
struct finish {
    uint32_t reason; /* enum hearth_reason; HEARTH_LENGTH where a limit of the request ended it */
    uint32_t prompt, cached, stored, prefix_break, output, drafted, accepted;
    uint64_t prefill_ns, decode_ns;
    char receipt[256], stopping_word[260];
};

/* Most lists that a dialect makes of the tokens' log-probabilities. */
enum { CHOICE_LISTS = 4 };

/* Of them, in an answer that is not a stream. */
enum { PROBS_BYTES = 64 << 20 };

/* One answer of a request. */
struct choice {
    struct job job; /* first: the pool knows it by this */
    struct exchange *x;
    uint32_t index;
    struct buffer text;                /* all of it, or in a stream what the next chunk takes */
    struct token_list ids;             /* of these */
    struct buffer probs[CHOICE_LISTS]; /* the tokens' log-probabilities, as the dialect has them */
    struct characters emitted;         /* of the tokens in probs and before: text_offset */
    struct indent indent;
    bool has_newline, is_cut, is_done, is_started;
    uint32_t n_tokens;                     /* emitted in all */
    struct blocks blocks;                  /* of a chat: what the text says */
    uint64_t submit_ns, first_ns, told_ns; /* told_ns: a stream said that it is alive */
    struct finish finish;
};

/* Writes answers in one dialect. Each function appends to x->out. */
struct reply {
    const char *id;                    /* what the ids of its answers begin with */
    void (*ahead)(struct exchange *x); /* appends to x->ahead; or NULL */
    bool is_lines;                     /* a stream is an object a line, not server-sent events */
    bool names_events;                 /* of a stream: by the `type` of their objects */
    void (*chunk)(struct exchange *x, struct choice *c); /* more of a stream */
    void (*progress)(struct exchange *x, struct choice *c,
                     const struct hearth_event *e);    /* or NULL */
    void (*end)(struct exchange *x, struct choice *c); /* the end of a choice in a stream */
    void (*close)(struct exchange *x);                 /* the end of a stream; or NULL */
    void (*whole)(struct exchange *x);                 /* all choices, as one text */
    /* Of one token: an object of the first list, or an array of one item for each list. */
    json_t *(*probs)(struct choice *c, const struct hearth_token_logprobs *l);
    /* A failure, as the whole answer or as the end of a stream; may change its message. NULL: as
     * fail_json. */
    void (*fail)(struct exchange *x, struct fail *f);
    bool overflow_in_stream; /* a prompt that is too long is a failure of the stream asked for */
};

struct exchange {
    struct server *server;
    struct served *served; /* the daemon that it is for; NULL until that is known */
    bool is_named;         /* its `model` is a name of that one */
    bool has_keep; /* Ollama's keep_alive: keep_ns without a request; UINT64_MAX: for ever */
    uint64_t keep_ns;
    struct MHD_Connection *mhd;
    struct exchange *next, **link; /* all of a server's */
    const struct route *route;     /* NULL: refused before it was known */
    const struct reply *reply;     /* its dialect */
    char path_rest[128];           /* the path after the route's own */

    struct buffer body;
    size_t body_counted, discarded;
    struct fail fail; /* found before the body was there */

    bool closes;  /* the connection ends with the answer */
    bool is_tcp;  /* it came through a port, not our Unix socket */
    bool is_page; /* the answer is of the page for browsers */
    bool is_started, is_suspended, is_ready, is_streaming, is_finished, is_gone;
    unsigned status;
    const char *content_type;
    struct buffer out;
    size_t n_taken;      /* of a stream: bytes at the beginning of `out` that went out */
    struct buffer ahead; /* a part of the answer that was written while the daemon worked on it */

    json_t *root;                     /* the request's object, until x->params takes it */
    size_t value_bytes;               /* its share of the server's */
    json_t *asked;                    /* the same before it was translated, or NULL */
    json_t *found;                    /* by a worker: the daemon's status; models on the disk */
    void (*tell)(struct exchange *x); /* what follows after catalog_look() */
    struct task task;
    struct worker *worker; /* reads the request; NULL: none does */
    bool is_orphan;        /* its connection is gone: free it when the worker is done */
    struct gen_params params;
    struct choice *choices; /* [n_choices] */
    uint32_t n_choices, n_done;
    size_t probs_bytes; /* of all choices so far */
    char id[40];        /* "" until exchange_name */
    uint64_t n_events;  /* of the stream, where a dialect counts them */
    uint64_t start_ns, created;
    bool waits_for_connect; /* until an attempt to reach the daemon ended */
    char *wanted;           /* [DISK_NAME_BYTES] the model that may have to be started, or NULL */
    bool is_on_disk;        /* there is a model of that name */
    const struct launch *launch; /* whose end is waited for, or NULL */
    struct transfer *transfer;   /* its answer comes from an upstream; or NULL */
    size_t kept_bytes;           /* of an upstream's whole answer: its share of transfers.bytes */
};

/* The answer is this JSON (taken; NULL: out of memory), or this failure. Wakes the connection. */
void exchange_answer(struct exchange *x, json_t *json);
void exchange_fail(struct exchange *x, const struct fail *f);

/* Will this failure be the end of a stream that says what was asked for? */
bool exchange_fails_in_stream(const struct exchange *x, const struct fail *f);

/* exchange_answer() in two steps, the first of which a worker can take. */
void exchange_put_whole(struct exchange *x, json_t *json);
void exchange_answer_whole(struct exchange *x);

/* Begins the stream that was asked for, unless it has begun, with a comment. Not in a dialect of
 * lines, which has none. */
void exchange_comment(struct exchange *x, const char *text);

/* The answer of an upstream: a stream of this type, with more of it and its end; or, of bytes that
 * were passed before, the whole with this status; or a failure, perhaps within an event. */
void exchange_pass_begin(struct exchange *x, const char *type);
void exchange_pass(struct exchange *x, const char *bytes, size_t n);
void exchange_pass_end(struct exchange *x);
void exchange_pass_whole(struct exchange *x, unsigned status, const char *type);
void exchange_pass_fail(struct exchange *x, const struct fail *f);

/* Runs x->params, whose prompts are there. */
void exchange_run(struct exchange *x);

/* Gives the answer its id and time, and writes x->ahead, unless that was done. */
void exchange_name(struct exchange *x);

/* Bytes of a stream that its client has not taken. */
size_t exchange_left(const struct exchange *x);

/* Takes at most `max` bytes of a stream, and unpauses the slots where there is room then. Returns
 * how many there were. */
size_t exchange_take(struct exchange *x, char *to, size_t max);

/* Appends x->ahead to x->out. */
void exchange_put_ahead(struct exchange *x);

/* Adds a token to c->probs: as text, for as values it would be ten times as large, until all of a
 * whole answer is sent. Where those have too many bytes the answer fails: x->is_ready. */
void exchange_add_probs(struct choice *c, const struct hearth_token_logprobs *l);

/* One of these lists in its brackets. */
void exchange_put_list(struct buffer *t, const struct buffer *list);

/* The client hung up: cancels what runs. */
void exchange_hang_up(struct exchange *x);

/* Frees the request's body. */
void exchange_drop_body(struct exchange *x);

/* Frees it, or lets the worker that has it do so. */
void exchange_close(struct exchange *x);

/* Around an object that is appended to x->out: in a stream it is an event, or a line. `type` is the
 * event's, where the dialect names them. */
void exchange_begin(struct exchange *x, const char *type);
void exchange_end(struct exchange *x);

/* The same with json between them, whose `type` it is. Takes over json. */
void exchange_put(struct exchange *x, json_t *json);

/* The model's name in the answer: what the request called it. */
const char *exchange_model(const struct exchange *x);

#endif
