/* submit: requests into shared memory, and their cancel. */
#include "client/lib/handle.h"
#include "ipc/params.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUBMIT_WAIT_NS = 100000000, /* between two looks at the rings while the submit ring is full */
    SUBMIT_GIVE_UP_NS = 1000000000, /* a daemon that takes no cell for this time has stalled */
    ARMED_WAIT_MS = 1               /* the same where the daemon may not be asked to wake us */
};

/* The request as this library's header knows it: fields that the caller's lacks have their
 * defaults. */
static int read_request(struct hearth *h, const struct hearth_request *from,
                        struct hearth_request *ret)
{
    hearth_request_init(ret, sizeof(*ret));
    if (from->size < sizeof(from->size))
        return handle_fail(h, -EINVAL, "prepare the request with hearth_request_init");
    memcpy(ret, from, from->size < sizeof(*ret) ? from->size : sizeof(*ret));
    return 0;
}

/* The wire's number of a proposer's name; PROPOSER_COUNT: unknown. */
static uint32_t find_proposer(const char *name)
{
    static const char *const names[PROPOSER_COUNT] = {
        [PROPOSER_AUTO] = "auto",     [PROPOSER_NONE] = "none",   [PROPOSER_LOOKUP] = "lookup",
        [PROPOSER_CLIENT] = "client", [PROPOSER_DRAFT] = "draft", [PROPOSER_SHADOW] = "shadow",
        [PROPOSER_FAST] = "fast",     [PROPOSER_MTP] = "mtp"};
    uint32_t i = 0;
    if (!name)
        return PROPOSER_AUTO;
    while (i < PROPOSER_COUNT && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static int check_request(struct hearth *h, const struct hearth_request *r)
{
    if (r->priority > HEARTH_BATCH)
        return handle_fail(h, -EINVAL, "priority %u: give HEARTH_INTERACTIVE or HEARTH_BATCH",
                           r->priority);
    if (r->logprobs < -1 || r->logprobs > (int32_t)PARAMS_LOGPROBS_MAX)
        return handle_fail(h, -EINVAL, "logprobs %d: give 0 to %u, or -1 for none", r->logprobs,
                           PARAMS_LOGPROBS_MAX);
    if (r->penalty_last_n < -1)
        return handle_fail(h, -EINVAL,
                           "penalty_last_n %d: give -1 for all, 0 for none, or a number",
                           r->penalty_last_n);
    if (find_proposer(r->proposer) == PROPOSER_COUNT)
        return handle_fail(
            h, -EINVAL,
            "proposer '%s' is unknown: give auto, none, lookup, client, draft, shadow, fast or mtp",
            r->proposer);
    if (r->n_stops > PARAMS_STOP_TEXTS_MAX)
        return handle_fail(h, -EINVAL, "%u stop texts: give at most %u", r->n_stops,
                           PARAMS_STOP_TEXTS_MAX);
    if (r->grammar && r->grammar_bytes > h->welcome.limits.params_bytes)
        return handle_fail(h, -E2BIG, "a grammar of %zu bytes: the daemon has room for %u",
                           r->grammar_bytes, h->welcome.limits.params_bytes);
    if (r->n_marks > PARAMS_MARKS_MAX)
        return handle_fail(h, -EINVAL, "%u marks: give at most %u", r->n_marks, PARAMS_MARKS_MAX);
    for (uint32_t i = 0; i < r->n_marks; i++) {
        size_t bytes = strlen(r->marks[i].text);
        if (r->marks[i].kind > UINT16_MAX || bytes > PARAMS_MARK_BYTES)
            return handle_fail(h, -EINVAL, "a mark of %zu bytes: give 1 to %u, and its kind", bytes,
                               PARAMS_MARK_BYTES);
    }
    for (uint32_t i = 0; i < r->n_stops; i++) {
        size_t bytes = strlen(r->stops[i]);
        if (!bytes || bytes > PARAMS_STOP_TEXT_BYTES_MAX)
            return handle_fail(h, -EINVAL, "a stop text of %zu bytes: give 1 to %u", bytes,
                               PARAMS_STOP_TEXT_BYTES_MAX);
    }
    return 0;
}

/* Finds the prompt's tokens, checked. */
static int read_prompt(struct hearth *h, const struct hearth_request *r,
                       const uint32_t **ret_tokens, uint32_t *ret_n)
{
    size_t n = r->n_tokens;
    const uint32_t *tokens = r->tokens;
    if (!tokens) {
        int rc =
            text_to_scratch(h, r->text ? r->text : "", r->text ? r->text_bytes : 0, r->text_flags);
        if (rc)
            return rc;
        tokens = h->scratch.ids;
        n = h->scratch.n;
    }
    if (!n)
        return handle_fail(h, -EINVAL, "the prompt is empty: give at least one token");
    if (n > h->welcome.limits.context)
        return handle_fail(
            h, -E2BIG,
            "the prompt has %zu tokens, the context holds %u: shorten it, or start hearthd with "
            "a larger --context",
            n, h->welcome.limits.context);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= h->welcome.n_vocab)
            return handle_fail(
                h, -ERANGE,
                "token %u at position %zu is not in the vocabulary: ids go from 0 to %u", tokens[i],
                i, h->welcome.n_vocab - 1);
    *ret_tokens = tokens;
    *ret_n = (uint32_t)n;
    return 0;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* What params points to. */
struct param_lists {
    struct params_bias *bias;
    uint32_t stop_lengths[PARAMS_STOP_TEXTS_MAX];
    uint8_t stop_texts[PARAMS_STOP_TEXTS_MAX * PARAMS_STOP_TEXT_BYTES_MAX];
    struct params_mark marks[PARAMS_MARKS_MAX];
};

static bool is_banned(const struct hearth_request *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n_banned; i++)
        if (r->banned[i] == id)
            return true;
    return false;
}

/* Adds the request's biases, and those of ignore_eos and of banned tokens, to *p. */
static int make_biases(struct hearth *h, const struct hearth_request *r, struct param_lists *lists,
                       struct params *p)
{
    uint32_t n = 0, n_ends = 0;
    for (uint32_t id = 0; r->ignore_eos && id < h->vocab.n_tokens; id++)
        n_ends += vocab_is_end(&h->vocab, id);
    const uint64_t n_never = (uint64_t)r->n_banned + n_ends;
    if (r->n_bias + n_never > PARAMS_BIAS_MAX)
        return handle_fail(h, -EINVAL, "%u logit biases and %u banned tokens: give at most %u",
                           r->n_bias, r->n_banned, PARAMS_BIAS_MAX - n_ends);
    if (!r->n_bias && !n_never)
        return 0;
    lists->bias = malloc((r->n_bias + n_never) * sizeof(*lists->bias));
    if (!lists->bias)
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    for (uint32_t i = 0; i < r->n_bias; i++) {
        float value = r->bias[i].value;
        if ((n_ends && vocab_is_end(&h->vocab, r->bias[i].token)) || is_banned(r, r->bias[i].token))
            continue;
        lists->bias[n].token = r->bias[i].token;
        lists->bias[n++].value = isinf(value) && value < 0 ? -PARAMS_BIAS_VALUE_MAX : value;
    }
    for (uint32_t i = 0; i < r->n_banned; i++)
        if (!n_ends || !vocab_is_end(&h->vocab, r->banned[i]))
            lists->bias[n++] =
                (struct params_bias){.token = r->banned[i], .value = -PARAMS_BIAS_VALUE_MAX};
    for (uint32_t id = 0; n_ends && id < h->vocab.n_tokens; id++)
        if (vocab_is_end(&h->vocab, id))
            lists->bias[n++] = (struct params_bias){.token = id, .value = -PARAMS_BIAS_VALUE_MAX};
    p->n_bias = n;
    p->bias = lists->bias;
    return 0;
}

static void make_marks(const struct hearth_request *r, struct param_lists *lists, struct params *p)
{
    memset(lists->marks, 0, sizeof(lists->marks));
    for (uint32_t i = 0; i < r->n_marks; i++) {
        struct params_mark *mark = &lists->marks[i];
        mark->kind = (uint16_t)r->marks[i].kind;
        mark->bytes = (uint16_t)strlen(r->marks[i].text);
        mark->tokens = r->marks[i].tokens < 0 ? PARAMS_NO_LIMIT : (uint32_t)r->marks[i].tokens;
        mark->open = r->marks[i].open;
        memcpy(mark->text, r->marks[i].text, mark->bytes);
    }
    p->n_marks = r->n_marks;
    p->marks = lists->marks;
    p->n_closing = r->n_closing;
    p->closing = r->closing;
}

static int make_params(struct hearth *h, const struct hearth_request *r, struct param_lists *lists,
                       struct params *ret)
{
    params_default(ret);
    ret->temperature = r->temperature;
    ret->top_k = r->top_k;
    ret->top_p = r->top_p;
    ret->min_p = r->min_p;
    ret->typical_p = r->typical_p;
    ret->repeat_penalty = r->repeat_penalty;
    ret->frequency_penalty = r->frequency_penalty;
    ret->presence_penalty = r->presence_penalty;
    ret->penalty_last_n = r->penalty_last_n < 0 ? PARAMS_LAST_ALL : (uint32_t)r->penalty_last_n;
    ret->logprobs_on = r->logprobs >= 0;
    ret->logprobs = r->logprobs > 0 ? (uint32_t)r->logprobs : 0;
    ret->seed = r->seed;
    ret->n_stop_tokens = r->n_stop_tokens;
    ret->stop_tokens = r->stop_tokens;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        uint32_t bytes = (uint32_t)strlen(r->stops[i]);
        memcpy(lists->stop_texts + ret->stop_text_bytes, r->stops[i], bytes);
        lists->stop_lengths[i] = bytes;
        ret->stop_text_bytes += bytes;
    }
    ret->n_guess = r->n_guess;
    ret->guess = r->guess;
    ret->grammar = (const uint8_t *)r->grammar;
    ret->grammar_bytes = r->grammar ? (uint32_t)r->grammar_bytes : 0;
    ret->n_stop_texts = r->n_stops;
    ret->stop_text_lengths = lists->stop_lengths;
    ret->stop_texts = lists->stop_texts;
    make_marks(r, lists, ret);
    return make_biases(h, r, lists, ret);
}

static int check_params(struct hearth *h, const struct params *p)
{
    char err[sizeof(h->error)];
    int rc = params_check(p, h->welcome.n_vocab, err, sizeof(err));
    if (rc)
        return handle_fail(h, rc, "%s", err);
    if (params_bytes(p) > h->welcome.limits.params_bytes)
        return handle_fail(h, -E2BIG,
                           "grammar, stop texts, biases and the guess take %llu bytes, the daemon "
                           "has room for %u: give less",
                           (unsigned long long)params_bytes(p), h->welcome.limits.params_bytes);
    return 0;
}

/* ---- into the slot --------------------------------------------------------------------------- */

/* What the slot remembers of the request. Returns 0, or -ENOMEM and leaves the slot as it was: its
 * request goes on. */
static int prepare_slot(struct hearth *h, struct client_slot *s, const struct hearth_request *r,
                        uint32_t last_token)
{
    uint32_t *copy = NULL;
    size_t n = (size_t)r->n_stop_tokens + r->n_shown_tokens;
    if (n) {
        copy = malloc(n * sizeof(*copy));
        if (!copy)
            return -ENOMEM;
        if (r->n_stop_tokens)
            memcpy(copy, r->stop_tokens, r->n_stop_tokens * sizeof(*copy));
        if (r->n_shown_tokens)
            memcpy(copy + r->n_stop_tokens, r->shown_tokens, r->n_shown_tokens * sizeof(*copy));
    }
    /* After a begin-of-sequence token the space that SPM puts before every text is not part of the
     * answer. */
    int drop_space =
        h->vocab.flags & VOCAB_ADD_SPACE_PREFIX && vocab_is_control(&h->vocab, last_token);
    if (answer_start(&s->answer, r->stops, r->n_stops, drop_space)) {
        free(copy);
        return -ENOMEM;
    }
    free(s->stop_tokens);
    s->stop_tokens = copy;
    s->n_stop_tokens = r->n_stop_tokens;
    s->shown_tokens = copy ? copy + r->n_stop_tokens : NULL;
    s->n_shown_tokens = r->n_shown_tokens;
    s->wants_logprobs = r->logprobs >= 0;
    return 0;
}

static void forget_events(struct client_slot *s)
{
    s->backlog_at = s->backlog_n = 0;
    s->ids.n = 0;
    s->delivered = 0;
    s->n_logprobs = s->n_tops = 0;
    s->progress_ns = bell_now_ns();
    s->progress_done = 0;
}

static int has_space(const void *arg)
{
    const struct ring_writer *w = arg;
    struct ring_writer copy = *w;
    return ring_space(&copy) != 0;
}

/* Waits for space, or until a look at the rings is due. While the handle is armed, `waiting` holds
 * the ticket that makes hearth_fd() readable: a wait would overwrite it, and the event loop would
 * miss what comes from then on. So then it only sleeps for a moment. Returns as bell_wait(). */
static int sleep_for_space(struct hearth *h)
{
    if (h->armed) {
        struct pollfd p = {.fd = h->socket_fd, .events = POLLRDHUP};
        return poll(&p, 1, ARMED_WAIT_MS) == 1 ? -EPIPE : 0;
    }
    const struct bell_patience patience = {.deadline_ns = bell_now_ns() + SUBMIT_WAIT_NS};
    return bell_wait(&h->sleeper, has_space, &h->submit, &patience);
}

/* The daemon does not know the tokens in the arena of a cell that was never published. */
static void forget_unsent(struct client_slot *s)
{
    if (s->resubmit && s->cell.keep < s->sent)
        s->sent = s->cell.keep;
    s->resubmit = 0;
}

/* Waits for a free submit cell, but not for a stalled daemon. The daemon leaves a cell unread while
 * an event ring has no room for the refusal of an older one: so the rings are emptied meanwhile,
 * and the daemon can always continue. */
static int wait_for_space(struct hearth *h)
{
    uint64_t give_up_ns = bell_now_ns() + SUBMIT_GIVE_UP_NS;
    for (;;) {
        if (h->resume.away)
            return 0;
        int n = ring_space_known(&h->submit) ? 1 : ring_space(&h->submit);
        if (n > 0)
            return 0;
        /* Then hearth_next() publishes the cell when there is room. */
        if (!n && (h->never_wait || bell_now_ns() >= give_up_ns)) {
            bell_ring(h->ctl, h->bell_fd);
            return 0;
        }
        int rc = n < 0 ? n : events_drain(h);
        if (rc == -ENOMEM)
            return handle_fail(h, rc, "out of memory: free some and try again");
        if (!rc) {
            bell_ring(h->ctl, h->bell_fd);
            rc = sleep_for_space(h);
        }
        if (rc == -EPIPE || rc == -EPROTO) {
            resume_daemon_gone(h, rc);
            if (h->resume.away) /* it will be published to the next one */
                return 0;
            return handle_fail(h, -ECONNRESET, "the daemon at %s is gone: connect again", h->path);
        }
    }
}

/* A new generation of the slot: every older request is void from here on (G1), and its events make
 * room, because the daemon takes no cell of a slot whose ring is full. The caller rings the bell.
 */
static void advance_generation(struct hearth *h, uint32_t slot, enum client_state state)
{
    struct client_slot *s = &h->slots[slot];
    s->state = state;
    s->ending = s->generation;
    s->generation++;
    if (!s->generation) /* 0 means that there never was one */
        s->generation = 1;
    ring_generation_start(&segment_up_slot(&h->segment, slot)->generation, s->generation);
    (void)events_drop_void(s); /* garbage in the ring: hearth_next() finds and reports it */
}

static void publish(struct hearth *h, uint32_t slot, const struct hearth_request *r,
                    const struct params *p, const uint32_t *tokens, uint32_t n)
{
    struct client_slot *s = &h->slots[slot];
    uint32_t *arena = segment_arena(&h->segment, slot);
    forget_unsent(s);
    uint32_t keep = 0, most = n < s->sent ? n : s->sent;
    while (keep < most && arena[keep] == tokens[keep])
        keep++;
    advance_generation(h, slot, CLIENT_RUNNING);
    segment_copy_out(arena + keep, tokens + keep, (size_t)(n - keep) * sizeof(*tokens));
    int used = params_encode(p, segment_params(&h->segment, slot), h->welcome.limits.params_bytes,
                             h->error, sizeof(h->error));
    assert(used > 0); /* check_params() let it pass */
    s->cell = (struct submit_cell){
        .opcode = SUBMIT_REQUEST,
        .priority = r->priority == HEARTH_BATCH ? PRIORITY_BATCH : PRIORITY_INTERACTIVE,
        .slot = (uint16_t)slot,
        .generation = s->generation,
        .keep = keep,
        .length = n,
        .prompt_length = n,
        .max_tokens = r->max_tokens,
        .flags = r->deterministic ? 0 : SUBMIT_FAST,
        .params_bytes = (uint32_t)used,
        .proposer = find_proposer(r->proposer),
        .cookie = r->cookie,
    };
    if (h->resume.away) {
        h->resume.deadline_ns = bell_now_ns() + (uint64_t)h->resume.ms * 1000000u;
    } else if (ring_space_known(&h->submit) || ring_space(&h->submit) > 0) {
        ring_push(&h->submit, &s->cell);
        bell_ring(h->ctl, h->bell_fd);
    } else {
        s->resubmit = h->resume.pending = 1;
    }
    h->resume.progressed = 1;
    s->lost = NULL;
    s->sent = n;
    s->prompt = n;
    s->context = h->welcome.limits.context;
    s->cookie = r->cookie;
    forget_events(s);
}

/* A request whose every part was found to be good. */
struct checked {
    struct hearth_request request;
    const uint32_t *tokens; /* the prompt's, the caller's own or in h->scratch */
    uint32_t n;
    struct params params;
    struct param_lists lists; /* the biases are on the heap */
};

/* The caller frees ret->lists.bias, also after an error. */
static int check_whole(struct hearth *h, const struct hearth_request *request, struct checked *ret)
{
    ret->lists.bias = NULL;
    ret->n = 0;
    if (h->dead)
        return handle_fail(h, -ECONNRESET, "the daemon at %s is gone: connect again", h->path);
    int rc = read_request(h, request, &ret->request);
    if (!rc)
        rc = check_request(h, &ret->request);
    if (!rc)
        rc = read_prompt(h, &ret->request, &ret->tokens, &ret->n);
    if (!rc)
        rc = make_params(h, &ret->request, &ret->lists, &ret->params);
    return rc ? rc : check_params(h, &ret->params);
}

int hearth_check(struct hearth *h, const struct hearth_request *request)
{
    struct checked c;
    int rc = handle_check(h);
    if (rc)
        return rc;
    rc = check_whole(h, request, &c);
    free(c.lists.bias);
    return rc;
}

int hearth_submit(struct hearth *h, uint32_t slot, const struct hearth_request *request)
{
    struct checked c;
    int rc = handle_check_slot(h, slot);
    if (rc)
        return rc;
    rc = check_whole(h, request, &c);
    assert(rc || c.n > 0); /* read_prompt() refuses an empty one */
    if (!rc)
        rc = wait_for_space(h);
    if (!rc && prepare_slot(h, &h->slots[slot], &c.request, c.tokens[c.n - 1]))
        rc = handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    if (!rc)
        publish(h, slot, &c.request, &c.params, c.tokens, c.n);
    free(c.lists.bias);
    return rc;
}

void submit_void(struct hearth *h, uint32_t slot, enum client_state state)
{
    advance_generation(h, slot, state);
    forget_unsent(&h->slots[slot]);
}

int hearth_cancel(struct hearth *h, uint32_t slot)
{
    int rc = handle_check_slot(h, slot);
    if (rc)
        return rc;
    struct client_slot *s = &h->slots[slot];
    if (s->state != CLIENT_RUNNING || h->dead)
        return 0;
    if (h->resume.away || s->resubmit) /* no daemon knows of it, so none will end it */
        s->lost = "";
    submit_void(h, slot, CLIENT_CANCELLED);
    bell_ring(h->ctl, h->bell_fd);
    return 0;
}
