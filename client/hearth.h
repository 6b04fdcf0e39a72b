/* hearth.h: the public C interface of libhearth: talk to a resident `hearthd`.
 *
 * A handle is one connection: some slots (each holds one sequence of tokens and runs one request at
 * a time), the daemon's vocabulary, and two pieces of shared memory. Requests and tokens travel
 * through that memory; a call enters the kernel only to sleep, or to wake a daemon that sleeps.
 *
 * Errors    Calls return 0 (or a count) on success and -errno on failure; hearth_error() then
 *           holds one line for people. The library prints nothing, installs no signal handler,
 *           never exits.
 * Threads   One thread at a time per handle; different handles are independent of each other.
 * Fork      A handle belongs to the process that opened it. After fork() every call on it in the
 *           child fails with -EPERM (hearth_close() only closes descriptors); the parent notices
 *           nothing of it.
 * Ownership Whatever you pass in is read during the call and not kept. Whatever an event points to
 *           stays valid until the next hearth_next, _submit, _cancel or _close on the same handle.
 * Resume    A daemon that dies or is stopped is waited for (hearth_options.resume_ms), and requests
 *           go on at the next one with the same tokens, nothing doubled, nothing missing. Another
 *           model, other numerics, or a request that is not deterministic end with HEARTH_ERROR.
 * Growth    Structures that you fill in start with `size`; set them up with their _init() function
 *           and a program built against an older header goes on working with a newer library.
 *
 *   struct hearth *h;
 *   char err[256];
 *   if (hearth_connect(NULL, NULL, &h, err, sizeof(err)) < 0)
 *       return fprintf(stderr, "%s\n", err), 1;
 *   struct hearth_request r;
 *   hearth_request_init(&r, sizeof(r));
 *   r.text = "def fib(n):";
 *   r.text_bytes = strlen(r.text);
 *   r.max_tokens = 64;
 *   const struct hearth_event *e;
 *   int rc = hearth_submit(h, 0, &r);
 *   while (rc >= 0 && (rc = hearth_next(h, 0, &e, -1)) > 0) {
 *       fwrite(e->text, 1, e->text_bytes, stdout);
 *       if (e->kind == HEARTH_DONE)
 *           break;
 *   }
 *   hearth_close(h);
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

struct hearth; /* one connection */

/* ---- connecting ------------------------------------------------------------------------------ */

enum hearth_connect_flags {
    HEARTH_POLLABLE = 1, /* wake through hearth_fd(), for programs with an event loop */
    HEARTH_NONBLOCK = 2  /* neither hearth_connect() nor hearth_submit() waits for the daemon: the
                            handle is to be used when hearth_ready() says so */
};

struct hearth_options {
    uint32_t size;  /* set by hearth_options_init() */
    uint32_t flags; /* enum hearth_connect_flags */
    uint32_t slots; /* slots wanted, numbered from 0; 0 = none: the vocabulary and status only */
    const char *slot_name; /* name of slot 0, or NULL. A named slot keeps its tokens when you leave,
                              until the next client of the same user requests that name.
                              1 to 63 printable ASCII characters without blanks */
    int32_t
        connect_timeout_ms; /* how long the daemon may take to answer; -1 for ever, default 30000 */
    int32_t resume_ms; /* when the daemon goes away: how long to wait for one of the same model at
                          the same path, and of the same user, one's own or root, and go on there.
                          Default 30000; 0: not at all */
};

/* Fills *options with the defaults: one unnamed slot, no flags. `size` is sizeof(*options). */
HEARTH_API void hearth_options_init(struct hearth_options *options, size_t size);

/* Connects to the daemon at `path`; NULL means $HEARTH_SOCKET, else
 * $XDG_RUNTIME_DIR/hearth/hearth.sock where it is there, else /run/hearth/hearth.sock. `options` may be NULL for the
 * defaults. Returns 0 with *ret_h set. On failure *ret_h is NULL and `err` (may be NULL) holds one
 * line: -ENOENT or -ECONNREFUSED no daemon there, -EBUSY no slot free or the named slot is in use,
 * -EAGAIN (with HEARTH_NONBLOCK) its backlog is full just now,
 * -EPROTO another protocol version, -EACCES the socket is not for this user, -ENOMEM and the like.
 */
HEARTH_API int hearth_connect(const char *path, const struct hearth_options *options,
                              struct hearth **ret_h, char *err, size_t err_bytes);

/* Finds the daemon of this user, or of the machine, that serves `model`, and writes its socket's path:
 * the one that was started for a model of that name (hearth serve, hearth@NAME.service), or of the
 * only one whose name begins so; else one whose model has that name. Returns 0; -ENOENT: no daemon
 * does, -EEXIST: several may be meant, -ENAMETOOLONG, -ENOMEM, with one line in `err` (may be
 * NULL). */
HEARTH_API int hearth_find(const char *model, char *path, size_t path_bytes, char *err,
                           size_t err_bytes);

/* With HEARTH_NONBLOCK: has the daemon answered? Returns 1: the handle can be used (always without
 * the flag); 0: not yet, look again when hearth_fd() is readable or after a moment (every other call
 * but hearth_fd, hearth_error and hearth_close fails with -EAGAIN until then); or -errno as
 * hearth_connect(), -ETIMEDOUT after connect_timeout_ms: hearth_error() has the line, close it. */
HEARTH_API int hearth_ready(struct hearth *h);

/* Cancels what runs and frees everything. NULL is fine. */
HEARTH_API void hearth_close(struct hearth *h);

struct hearth_info {
    uint32_t size;       /* set by you: sizeof(struct hearth_info) */
    uint32_t context;    /* max tokens of prompt + answer in one slot */
    uint32_t slots;      /* slots of this handle */
    uint32_t n_vocab;    /* token ids are below this */
    int32_t bos, eos;    /* token ids, -1 where the vocabulary has none */
    uint32_t server_pid; /* process id of the daemon */
    const char *model;   /* its name; this and the following live as long as the handle */
    const char
        *numerics; /* numerics id: two answers with the same id are computed bit by bit alike */
    const char *fingerprint;    /* of the model's weights and vocabulary, in hex */
    const char *server_version; /* "" where the daemon does not say */
    const char *socket_path;    /* where this handle is connected */
    uint32_t is_away;           /* 1 while the daemon is gone and waited for (resume_ms) */
    uint32_t resumes;           /* how often a daemon came back */
    uint32_t fim;               /* hearth_fim()'s automatic order: 1 prefix first, 2 suffix first;
                                   0: the model has no fill-in-the-middle tokens */
    const char *chat_template;  /* the model's, a Jinja text; "" where it has none */
};

/* Fills *info up to info->size. Returns 0, or -EINVAL when size is not set. */
HEARTH_API int hearth_info(struct hearth *h, struct hearth_info *info);

/* ---- text and tokens ------------------------------------------------------------------------- */

enum hearth_text_flags {
    HEARTH_ADD_BOS = 1, /* put the begin-of-sequence token first, where the vocabulary wants one */
    HEARTH_SPECIAL =
        2 /* tokenize: text such as "<|im_end|>" means that token; detokenize: print it */
};

/* Turns `bytes` bytes of UTF-8 into token ids. Writes at most `max` of them to `ids` (may be NULL
 * when max is 0) and returns how many there are in all, so a result above `max` means: call again
 * with more room. Returns -E2BIG for text beyond 2 GiB, -ENOMEM, -EPERM after fork. */
HEARTH_API int64_t hearth_tokenize(struct hearth *h, const char *text, size_t bytes, uint32_t flags,
                                   uint32_t *ids, size_t max);

/* The other way: writes at most `max` bytes and returns how many there are in all; nothing is
 * appended. The bytes of one token alone may be part of a character. Returns -ERANGE for an id that
 * is not in the vocabulary. */
HEARTH_API int64_t hearth_detokenize(struct hearth *h, const uint32_t *ids, size_t n,
                                     uint32_t flags, char *text, size_t max);

/* ---- fill in the middle ---------------------------------------------------------------------- */

struct hearth_chunk { /* another piece of the project */
    const char *name; /* of its file; NULL: none */
    const char *text; /* [text_bytes] */
    size_t text_bytes;
};

enum hearth_fim_order {
    HEARTH_FIM_AUTO, /* suffix first where the model is known to be trained so, else prefix first */
    HEARTH_FIM_PSM,  /* prefix, suffix, middle */
    HEARTH_FIM_SPM,  /* suffix, prefix, middle: what is typed changes only the prompt's end */
    HEARTH_FIM_PLAIN /* chunks, prefix and middle as plain text, no suffix: for any model */
};

struct hearth_fim {
    uint32_t size;      /* set by hearth_fim_init() */
    const char *prefix; /* [prefix_bytes] the buffer up to the cursor */
    size_t prefix_bytes;
    const char *suffix; /* [suffix_bytes] the buffer after the cursor */
    size_t suffix_bytes;
    const struct hearth_chunk *extra; /* [n_extra] in the prompt's order. Keep it between calls,
                                         add at the end */
    uint32_t n_extra;
    const char *middle; /* [middle_bytes] what the answer already begins with */
    size_t middle_bytes;
    uint32_t order;      /* enum hearth_fim_order */
    uint32_t max_tokens; /* of the prompt. 0: the context less 512 (a small one: less a quarter) */
    size_t step_bytes;   /* 0, or bytes of text to tokenize in this call at most, about: then
                            -EAGAIN until the rest is done, too, in further calls */
    const char *repo;    /* name of the project, and */
    const char *name;    /* of the file that is edited, for models that know such; NULL: none */
};

/* Fills *fim with nothing: no text, automatic order. `size` is sizeof(*fim). */
HEARTH_API void hearth_fim_init(struct hearth_fim *fim, size_t size);

/* Makes a prompt, to be submitted as tokens, whose answer is the text between prefix and suffix.
 * Control tokens in these texts stay plain text. Where all of it is too long, chunks are dropped from
 * the first one that does not fit, then the end of the suffix (down to a quarter of the room) and the
 * beginning of the prefix, in steps of some lines, so that the prompt's beginning stays the same
 * while one types. Text of an earlier call on this handle is not tokenized again.
 * Writes at most `max` ids and returns how many there are in all. -ENOTSUP: the model has no such
 * tokens; -EAGAIN: see step_bytes; -E2BIG: no room for `middle`; -EINVAL, -ENOMEM, -EPERM. */
HEARTH_API int64_t hearth_fim(struct hearth *h, const struct hearth_fim *fim, uint32_t *ids,
                              size_t max);

/* ---- chat ------------------------------------------------------------------------------------ */

struct hearth_chat {
    uint32_t size;        /* set by hearth_chat_init() */
    const char *messages; /* JSON: an array of objects with `role` and `content`, OpenAI's form */
    size_t messages_bytes;
    const char *tools; /* JSON: an array of tools' descriptions, or NULL */
    size_t tools_bytes;
    const char *extra; /* JSON: an object of more variables for the template, or NULL */
    size_t extra_bytes;
    const char *chat_template; /* NULL: the model's own; else the name of a family ("chatml",
                                  "llama3", ...), or a Jinja text */
    size_t chat_template_bytes;
    /* Default 1: the text ends where the answer begins: after a last message of the assistant, which
     * the answer continues. */
    uint32_t add_generation_prompt;
    uint32_t tool_choice;    /* enum hearth_tool_choice; default HEARTH_TOOLS_AUTO */
    const char *tool_name;   /* HEARTH_TOOLS_REQUIRED: the one tool that is called; NULL: any */
    uint32_t single_call;    /* default 0. 1: an answer calls at most one tool */
    int32_t thinking_tokens; /* default -1: any number. Else the most tokens that a thought of the
                                answer has: then it is closed as the template closes it */
};

enum hearth_tool_choice {
    HEARTH_TOOLS_AUTO = 0,    /* the model chooses. A tool's own `strict`: true binds its calls */
    HEARTH_TOOLS_NONE = 1,    /* no calls: the tools stay in the prompt, a call is content */
    HEARTH_TOOLS_REQUIRED = 2 /* the answer is calls, from its first token on, or from the end of a
                                 thought that the prompt opened */
};

/* Fills *chat with the defaults. `size` is sizeof(*chat). */
HEARTH_API void hearth_chat_init(struct hearth_chat *chat, size_t size);

/* The conversation as the model's template writes it, for people to look at: writes at most `max`
 * bytes and returns how many there are in all. Needs no slot. Returns -EINVAL (hearth_error() says
 * in one line what is wrong with the JSON or in the template, or what the template raises),
 * -ENOTSUP (the model has no template, or a family of that name is not known: then the line lists
 * those that are), -E2BIG (the template takes too much), -ENOMEM, -EPERM after fork. */
HEARTH_API int64_t hearth_chat_text(struct hearth *h, const struct hearth_chat *chat, char *text,
                                    size_t max);

/* The same as tokens, to be submitted: writes at most `max` ids and returns how many there are in
 * all. Texts of control tokens mean these tokens where the template wrote them, and are plain text
 * where they come out of a message, a tool or an extra variable. Begins with exactly one
 * begin-of-sequence token where the vocabulary wants one. */
HEARTH_API int64_t hearth_chat_tokens(struct hearth *h, const struct hearth_chat *chat,
                                      uint32_t *ids, size_t max);

/* ---- what a chat's answer says --------------------------------------------------------------- */

struct hearth_chat_reader; /* reads one answer, in the form that the model's template has */
struct hearth_request;

enum hearth_chat_kind {
    HEARTH_CHAT_CONTENT = 1,
    HEARTH_CHAT_REASONING = 2,
    HEARTH_CHAT_CALL = 3,      /* a call of a tool begins; `text` is the tool's name */
    HEARTH_CHAT_ARGUMENTS = 4, /* more of its arguments, which together are a JSON object */
    HEARTH_CHAT_CALL_END = 5   /* it ends; no text */
};

struct hearth_chat_event {
    uint32_t size; /* set by you: sizeof(struct hearth_chat_event) */
    uint32_t kind; /* enum hearth_chat_kind */
    uint32_t call; /* which call of the answer, from 0; 0 for content and reasoning */
    const char
        *text; /* [text_bytes] valid until the next hearth_chat_feed() or hearth_chat_close() */
    size_t text_bytes;
};

/* Begins to read an answer to this chat. Calls are looked for where chat->tools is there and the
 * template writes calls in a form that is known; else they are content. In a thought that does not
 * end they are calls, too, at the answer's end, unless one is required or at most one allowed.
 * `chat` is read during the call only. Returns 0 with *ret_reader, or as hearth_chat_text();
 * -ENOTSUP, too, where the template passes tools over, which the model would not see. */
HEARTH_API int hearth_chat_open(struct hearth *h, const struct hearth_chat *chat,
                                struct hearth_chat_reader **ret_reader);

/* Begins to read another answer to the same chat, without looking at the template again. Of two
 * readers either may be closed first. Returns 0 with *ret_reader, or -ENOMEM. */
HEARTH_API int hearth_chat_another(const struct hearth_chat_reader *reader,
                                   struct hearth_chat_reader **ret_reader);

/* Frees it. NULL is fine. It may outlive the handle. */
HEARTH_API void hearth_chat_close(struct hearth_chat_reader *reader);

/* The control tokens that mark calls and reasoning in such answers, for
 * hearth_request.shown_tokens: without them the text lacks these marks. */
HEARTH_API const uint32_t *hearth_chat_marks(const struct hearth_chat_reader *reader,
                                             uint32_t *ret_n);

/* Sets what a request for such an answer needs, and nothing else: shown_tokens, and what tool_choice,
 * single_call, strict tools and thinking_tokens ask for. What it points to belongs to the reader:
 * valid until hearth_chat_close(). A grammar that the request has already binds what follows a
 * thought instead. Where the model may choose to call, and the form of calls is known, it becomes
 * one that takes what it took, or calls in that form (after a thought, blanks before either); one
 * that writes calls or control tokens itself stays as it is. Returns 0; -EINVAL where a call is
 * required beside such a grammar, or request->size has no room for what it needs; -ENOMEM. */
HEARTH_API int hearth_chat_request(const struct hearth_chat_reader *reader,
                                   struct hearth_request *request);

/* A line for each place of the tools' schemas that does not bind, because no grammar can say what it
 * asks for ("not", "multipleOf", ...): arguments are checked for it, and hearth_chat_unparsed() says
 * what does not follow. NULL: there are none. */
HEARTH_API const char *hearth_chat_loosened(const struct hearth_chat_reader *reader);

/* Takes more of the answer's text; end: 1 where this is its end. Returns 0 or -ENOMEM. */
HEARTH_API int hearth_chat_feed(struct hearth_chat_reader *reader, const char *text, size_t bytes,
                                int end);

/* Takes the next event. However an answer was cut into pieces its events are the same, but for where
 * texts of one kind are cut. Nothing of it is lost: what is not a call in the template's form is
 * content. Returns 1 with *event filled up to event->size, or 0: there is none yet. */
HEARTH_API int hearth_chat_next(struct hearth_chat_reader *reader, struct hearth_chat_event *event);

/* One line: why something that began as a call is content, a call is not complete, or the arguments
 * of one that is bound do not follow its schema. NULL where every call was as it should be. */
HEARTH_API const char *hearth_chat_unparsed(const struct hearth_chat_reader *reader);

/* ---- requests -------------------------------------------------------------------------------- */

enum hearth_priority { HEARTH_INTERACTIVE = 0, HEARTH_BATCH = 1 };

struct hearth_bias {
    uint32_t token;
    float value; /* added to the token's logit, -10000 to 10000; -INFINITY means -10000: never */
};

enum hearth_mark_kind {
    HEARTH_MARK_CALL = 1,    /* the grammar binds what follows, outside of thoughts. Without one it
                                binds the first token that is not of a thought */
    HEARTH_MARK_THOUGHT = 2, /* a thought begins; goes with one mark of its end */
    HEARTH_MARK_THOUGHT_END = 3
};

struct hearth_mark {
    uint32_t kind;    /* enum hearth_mark_kind */
    const char *text; /* 1 to 52 bytes and a 0; the text of a control token means it, too */
    uint32_t open;    /* of a thought. 1: the answer begins inside of one */
    int32_t tokens;   /* of a thought: its most tokens, then `closing`; -1: any number. Else 0 */
};

struct hearth_request {
    uint32_t size; /* set by hearth_request_init() */

    /* The complete prompt, either as tokens, used as they are, or, where `tokens` is NULL, as text,
     * tokenized with the begin-of-sequence token that the vocabulary wants. What the slot already
     * holds of it is found by the library and the daemon, and is not computed again. */
    uint32_t n_tokens;
    const uint32_t *tokens;
    const char *text;
    size_t text_bytes;
    uint32_t text_flags; /* enum hearth_text_flags for `text`; default HEARTH_ADD_BOS */

    uint32_t max_tokens;    /* default 256; prompt + answer end at the context in any case. 0: the
                               prompt is computed, so that the next request finds it warm */
    uint32_t priority;      /* enum hearth_priority; default HEARTH_INTERACTIVE */
    uint32_t deterministic; /* default 1: the same request gives the same tokens, always. 0: where
                               the device is faster that way they come unverified, and may differ
                               the next time; the result's numerics id then ends in "+fast" */
    int32_t logprobs; /* -1 (default) none, 0 of each token, 1-20 also of that many alternatives */

    /* Sampling, applied in the order bias, penalties, top-k, typical-p, top-p, min-p, temperature.
     * The default of each one leaves the distribution alone, except temperature. */
    float temperature;       /* default 0: the most likely token */
    uint32_t top_k;          /* 0 off */
    float top_p;             /* 1 off */
    float min_p;             /* 0 off */
    float typical_p;         /* 1 off */
    float repeat_penalty;    /* 0.01 to 100, 1 off */
    float frequency_penalty; /* 0 off */
    float presence_penalty;  /* 0 off */
    int32_t penalty_last_n;  /* tokens that the penalties look at: default 64, 0 none, -1 all */
    uint64_t seed;           /* default 0 */
    const struct hearth_bias *bias;
    uint32_t n_bias;

    /* Where the answer ends early. The token or text that ends it is not part of the text you get;
     * a token that ends it, or completes a stop text, is part of the ids. */
    uint32_t n_stop_tokens;
    const uint32_t *stop_tokens;
    const char *const *stops; /* [n_stops], at most 64, each 1 to 256 bytes and a 0 */
    uint32_t n_stops;

    /* The source of drafts: "auto" (default, also NULL), "none", "lookup" (what followed the same
     * tokens earlier in the sequence), "client" (the guess below); "draft" (the daemon's draft
     * model), "mtp" (the model's own next-token layer), "shadow" (a low-bit copy of the model) or "fast"
     * (the device's fast pass), which a daemon may have or not: then the request ends with -ENOTSUP.
     * Never changes the answer, only its speed. */
    const char *proposer;
    uint64_t cookie; /* comes back in every event of this request */

    uint32_t n_guess;      /* tokens that may follow the prompt: the last completion, the file's */
    const uint32_t *guess; /* next lines. Used by "auto" and "client"; it may be wrong anywhere */

    /* A grammar in llama.cpp's GBNF that the answer follows from its rule "root" on, or NULL. At any
     * time the answer is the beginning of a sentence of it; the model may end it exactly where a
     * sentence ends, and where nothing else may follow it ends by itself (HEARTH_EOS). max_tokens,
     * the context, stop tokens and stop texts may end it in the middle of a sentence. Control
     * tokens are picked only where it has <[id]>. The daemon compiles it: where it does not compile the request
     * ends with HEARTH_ERROR, -EINVAL and a line that says where; where no token of the model's
     * vocabulary can go on, with -ENOTSUP; where following it takes too much, with -E2BIG. */
    const char *grammar;
    size_t grammar_bytes; /* 0: none. All parameters together have room for 2 MiB */

    uint32_t ignore_eos; /* default 0. 1: tokens that would end the answer are never picked, as with
                            a bias of -INFINITY; one in `bias` does not count for them */

    uint32_t
        n_shown_tokens; /* control tokens that are part of the text you get (others are not), */
    const uint32_t *shown_tokens; /* such as hearth_chat_marks() */

    /* Marks in the answer, at most 16, as hearth_chat_request() finds them in a chat's template. They
     * are parameters like the others: of the receipt, of a resume and a replay. */
    uint32_t n_marks;
    const struct hearth_mark *marks;
    uint32_t
        n_closing; /* the tokens that close a thought at its limit, at most 64; they count as */
    const uint32_t *closing; /* tokens of the answer */

    uint32_t n_banned;      /* tokens that are never picked, as with a bias of -INFINITY (such as */
    const uint32_t *banned; /* those that begin a call); what `bias` says of them does not count */
};

/* Fills *request with the defaults above. `size` is sizeof(*request). */
HEARTH_API void hearth_request_init(struct hearth_request *request, size_t size);

/* Starts a request on a slot of this handle. A request that still runs there is superseded: none of
 * its events is delivered any more. Does not wait for the daemon to take it. Returns 0, or without
 * any effect -EINVAL (a field out of range; hearth_error() says which), -ERANGE (a token id, or the
 * slot), -E2BIG (the prompt does not fit the context), -ECONNRESET (the daemon is gone, and not
 * or no longer waited for), -EPERM after fork. */
HEARTH_API int hearth_submit(struct hearth *h, uint32_t slot, const struct hearth_request *request);

/* Would hearth_submit() take this request, on whichever slot? For programs that queue requests until a
 * slot is free, and want to refuse a bad one at once. Returns what hearth_submit() would. */
HEARTH_API int hearth_check(struct hearth *h, const struct hearth_request *request);

/* Ends the slot's request. No tokens of it are delivered after this; one HEARTH_DONE is, with
 * reason HEARTH_CANCELLED (HEARTH_ERROR where it had failed): also when the answer was complete, but
 * not read yet. Returns 0, also when nothing runs. */
HEARTH_API int hearth_cancel(struct hearth *h, uint32_t slot);

/* ---- events ---------------------------------------------------------------------------------- */

enum hearth_event_kind {
    HEARTH_TOKENS = 1,   /* accepted tokens and the text that became certain; either may be empty */
    HEARTH_PROGRESS = 2, /* of a prompt that takes a while: `done` of `total` positions */
    HEARTH_DONE = 3      /* the last event of a request, after all its text */
};

enum hearth_reason {
    HEARTH_EOS = 1,       /* the model ended its answer */
    HEARTH_STOP = 2,      /* a stop token or stop text */
    HEARTH_LENGTH = 3,    /* max_tokens, or the context is full */
    HEARTH_CANCELLED = 4, /* hearth_cancel() */
    HEARTH_SUPERSEDED = 5,
    HEARTH_ERROR = 6 /* see `error` and `error_text` */
};

struct hearth_logprob {
    uint32_t token;
    float logprob; /* natural logarithm */
};

struct hearth_token_logprobs {
    struct hearth_logprob picked;
    uint32_t n_top;
    const struct hearth_logprob *top; /* [n_top], most likely first */
};

struct hearth_result {      /* how a request ended */
    uint32_t reason;        /* enum hearth_reason */
    int32_t error;          /* 0, or -errno when reason is HEARTH_ERROR */
    const char *error_text; /* one line, "" without an error */
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* of the prompt: already computed before this request */
    uint32_t output_tokens;
    uint32_t passes;          /* canonical passes in which the request took part */
    uint32_t drafted;         /* tokens proposed, ... */
    uint32_t accepted_drafts; /* ... of these accepted, ... */
    uint32_t rollbacks;       /* ... and verifications that found a mismatch */
    uint64_t prefill_ns, decode_ns;
    uint32_t n_ids;      /* output_tokens, but for a cancelled request: what was delivered before */
    const uint32_t *ids; /* [n_ids] the whole answer */
    const char *
        numerics; /* numerics id of the answer; it ends in "+fast" where the answer was not verified */
    const char *receipt; /* model, numerics, hash of parameters and prompt, hash of the answer */
    const char *model;
    uint32_t prefix_break; /* where the prompt first differed from what the slot held before: its
                              previous prompt and answer; prompt_tokens where it did not, 0 for a
                              slot that held nothing. Other slots' pages may warm more than that */
    uint32_t
        stored_tokens; /* of cached_tokens: read from the daemon's store (hearthd --kv-store) */
};

struct hearth_event {
    uint32_t kind; /* enum hearth_event_kind */
    uint32_t slot;
    uint64_t cookie;
    uint32_t position; /* absolute position of tokens[0] in the slot's sequence */
    uint32_t n_tokens;
    const uint32_t *tokens;                       /* [n_tokens] */
    const struct hearth_token_logprobs *logprobs; /* [n_tokens], NULL unless asked for */
    const char *text; /* complete UTF-8 characters, followed by a 0 that text_bytes does not count.
                         Text that may be the beginning of a stop text comes later, or never */
    size_t text_bytes;
    uint32_t done, total;               /* HEARTH_PROGRESS */
    const struct hearth_result *result; /* HEARTH_DONE, else NULL */
};

#define HEARTH_ANY_SLOT 0xffffffffu

/* Takes the next event of a slot (or of any). timeout_ms: -1 waits without limit, 0 only looks.
 * Returns 1 with *ret_event set, valid as long as "Ownership" above says; 0 when the time is up, or
 * when nothing runs on the slot; -EINTR when a signal came while it waited; -ECONNRESET when the
 * daemon is gone for good and each of its requests has ended with HEARTH_DONE and HEARTH_ERROR. */
HEARTH_API int hearth_next(struct hearth *h, uint32_t slot, const struct hearth_event **ret_event,
                           int timeout_ms);

/* A descriptor for poll(), of a handle opened with HEARTH_POLLABLE. Before each poll(), and so
 * after whatever else was called on the handle, call hearth_next() with timeout 0 on
 * HEARTH_ANY_SLOT (or on the one slot that the program uses) until it returns 0: from then on the
 * descriptor becomes readable when there is something new on any slot, or when the daemon is gone.
 * A call for one slot says nothing about events that other slots hold already. Only wait on
 * the descriptor; do not read from it. Returns -EINVAL without the flag. */
HEARTH_API int hearth_fd(struct hearth *h);

/* ---- JSON schemas ---------------------------------------------------------------------------- */

/* Turns a JSON schema of `bytes` bytes into a grammar in llama.cpp's dialect of GBNF, with the rule
 * "root". Needs no connection, and may run in any thread. Writes at most `max` bytes with a 0 at the
 * end (`grammar` may be NULL when max is 0) and returns the length of the whole text without it, as
 * snprintf does. Returns -EINVAL with one line in `err` (may be NULL) that names the place: not JSON,
 * a keyword that restricts and is not supported, a $ref that leads nowhere or out of the schema, a
 * pattern that no grammar can follow, bounds that nothing matches, a schema that is too large; or
 * -ENOMEM. */
HEARTH_API int64_t hearth_schema(const char *json, size_t bytes, char *grammar, size_t max,
                                 char *err, size_t err_bytes);

/* ---- the rest -------------------------------------------------------------------------------- */

/* Gets the daemon's counters: one JSON object. Writes at most `max` bytes with a 0 at the end
 * and returns the length of the whole text without it, as snprintf does. Waits for the answer. */
HEARTH_API int64_t hearth_status(struct hearth *h, char *json, size_t max);

/* One line about the last call on this handle that failed; "" before the first. */
HEARTH_API const char *hearth_error(const struct hearth *h);

/* A few words for a code of this library (-errno), never NULL. */
HEARTH_API const char *hearth_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif
