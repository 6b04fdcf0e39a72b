/* A client never sees a token that is later taken back: not through the library, and not by
 * watching the ring.
 *
 * A thread with a second mapping of a client's `down` reads the cells of the event ring as fast as
 * it can, published or not, while windows are verified of which many roll back. What it sees must
 * be, at each generation and position, the token of the right answer; and each word of the ring may
 * change once in a request, from what was there to what stays. Cells are not given back before the
 * request has ended, so nothing may change twice.
 *
 * Guesses are wrong in places by themselves; on a build with fault injection (`make determinism`)
 * half of all drafts are, and the control, which accepts unverified drafts, must be noticed. */
#include "tests/e2e/harness.h"
#include "tests/e2e/raw_client.h"
#include "tests/random.h"

#include "ipc/event.h"
#include "ipc/params.h"
#include "kernels/quant/quant_types.h"
#include "tests/run_suite.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    REQUESTS = 8,
    ROUNDS = 6, /* of each request with each proposer */
    PROMPT = 60,
    OUTPUT = 300,
    CONTEXT = 512,
    CELL_WORDS = IPC_LINE / 4,
    CELLS = 1024,
    NEAR = 16, /* cells after the last one seen, which are looked at most often */
};

struct answer {
    uint32_t n;
    uint32_t tokens[OUTPUT];
};

/* The thread's inputs and findings; read by others after it has ended. */
struct observer {
    const _Atomic uint32_t *words; /* [CELLS * CELL_WORDS] the second mapping */
    uint32_t first;                /* cells published before the request */
    uint32_t generation;
    uint32_t seen[CELLS * CELL_WORDS]; /* the newest value of each word */
    bool changed[CELLS * CELL_WORDS];
    uint32_t twice; /* words that changed again */
    uint32_t token[CONTEXT];
    bool known[CONTEXT]; /* token[i] was seen at position i */
    uint32_t differing;  /* positions where two different tokens were seen */
    uint64_t looks, sightings;
    _Atomic bool stop;
};

static struct harness daemon_;
static struct raw_client client;
static struct ring_writer submit;
static struct ring_reader events;
static uint32_t generation;
static struct observer observer;
static bool recurrent; /* the model, which then has a next-token layer */

/* ---- the thread ------------------------------------------------------------------------------ */

static void look_at_word(struct observer *o, uint32_t at)
{
    uint32_t value = atomic_load_explicit(&o->words[at], memory_order_relaxed);

    if (value == o->seen[at])
        return;
    o->twice += o->changed[at];
    o->changed[at] = true;
    o->seen[at] = value;
}

/* The tokens of a published cell, as a client reads them, from the words just seen. */
static void look_at_tokens(struct observer *o, uint32_t cell)
{
    struct event_cell c;

    for (uint32_t i = 0; i < CELL_WORDS; i++)
        look_at_word(o, cell * CELL_WORDS + i);
    memcpy(&c, &o->seen[cell * CELL_WORDS], sizeof(c));
    if (c.kind != EVENT_TOKENS || c.generation != o->generation)
        return;
    for (uint32_t i = 0; i < c.bytes / 4u && i < EVENT_TOKENS_MAX; i++) {
        uint32_t token, position = c.position + i;
        memcpy(&token, c.payload + 4 * i, sizeof(token));
        if (position >= CONTEXT)
            continue;
        o->differing += o->known[position] && o->token[position] != token;
        o->known[position] = true;
        o->token[position] = token;
        o->sightings++;
    }
}

/* In a loop: the cells being written, and one of the others in turn. */
static void *observe(void *arg)
{
    struct observer *o = arg;
    uint32_t next = o->first, other = 0;

    while (!atomic_load(&o->stop)) {
        for (uint32_t i = 0; i < NEAR; i++) {
            uint32_t cell = (next + i) % CELLS;
            bool published = atomic_load_explicit(&o->words[cell * CELL_WORDS],
                                                  memory_order_acquire) == next + i + 1;
            if (published)
                look_at_tokens(o, cell);
            for (uint32_t k = 0; k < CELL_WORDS && !published; k++)
                look_at_word(o, cell * CELL_WORDS + k);
        }
        while (atomic_load_explicit(&o->words[next % CELLS * CELL_WORDS], memory_order_acquire) ==
               next + 1)
            look_at_tokens(o, next++ % CELLS);
        for (uint32_t k = 0; k < CELL_WORDS; k++)
            look_at_word(o, other % CELLS * CELL_WORDS + k);
        other++;
        o->looks++;
    }
    return NULL;
}

/* ---- a client without the library ------------------------------------------------------------ */

struct raw_request {
    uint32_t tokens[PROMPT];
    struct params params;
    enum submit_proposer proposer;
};

static void make_request(uint32_t kind, struct raw_request *r)
{
    uint32_t state = 77 + kind;

    for (uint32_t i = 0; i < PROMPT; i++) {
        uint32_t token = 3 + next_random(&state) % 300;
        r->tokens[i] = i < 12 ? token : r->tokens[i - 12];
    }
    params_default(&r->params);
    r->params.temperature = kind % 2 ? 0.8f : 0;
    r->params.seed = kind;
    r->proposer = PROPOSER_NONE;
}

static void send_request(const struct raw_request *r)
{
    char err[256];
    struct submit_cell cell = {
        .opcode = SUBMIT_REQUEST,
        .generation = ++generation,
        .length = PROMPT,
        .prompt_length = PROMPT,
        .max_tokens = OUTPUT,
        .proposer = r->proposer,
    };

    ring_generation_start(&segment_up_slot(&client.segment, 0)->generation, generation);
    segment_copy_out(segment_arena(&client.segment, 0), r->tokens, sizeof(r->tokens));
    uint64_t block[512];
    int bytes = params_encode(&r->params, block, sizeof(block), err, sizeof(err));
    ck_assert_msg(bytes > 0, "%s", err);
    segment_copy_out(segment_params(&client.segment, 0), block, (size_t)bytes);
    cell.params_bytes = (uint32_t)bytes;
    ck_assert_int_gt(ring_space(&submit), 0);
    ring_push(&submit, &cell);
    raw_ring(&client);
}

/* Reads to the end without releasing cells. Returns how many there are to release. */
static uint32_t read_answer(struct answer *answer)
{
    struct event_cell cell;
    uint32_t ahead = 0, looks = 0;

    answer->n = 0;
    for (;;) {
        int rc = ring_peek_ahead(&events, ahead, &cell);
        ck_assert_int_ge(rc, 0);
        if (rc == 0) {
            ck_assert_uint_lt(looks++, 600000);
            usleep(100);
            continue;
        }
        ahead++;
        if (cell.kind == EVENT_DONE && !(cell.flags & EVENT_MORE))
            return ahead;
        if (cell.kind != EVENT_TOKENS)
            continue;
        ck_assert_uint_eq(cell.generation, generation);
        ck_assert_uint_eq(cell.position, PROMPT + answer->n);
        ck_assert_uint_le(answer->n + cell.bytes / 4u, OUTPUT);
        memcpy(answer->tokens + answer->n, cell.payload, cell.bytes);
        answer->n += cell.bytes / 4u;
    }
}

static void ask(const struct raw_request *r, struct answer *answer)
{
    send_request(r);
    ring_release(&events, read_answer(answer));
    raw_ring(&client);
}

/* ---- the two together ------------------------------------------------------------------------ */

/* Sends a request while the thread watches. Returns at how many positions it saw a wrong token, or
 * a word changing twice. */
static uint32_t ask_observed(const struct raw_request *r, const struct answer *right)
{
    pthread_t thread;
    struct answer answer;
    uint32_t wrong = 0;
    const _Atomic uint32_t *words = observer.words;

    memset(&observer, 0, sizeof(observer));
    observer.words = words;
    observer.first = events.next;
    observer.generation = generation + 1;
    for (uint32_t i = 0; i < CELLS * CELL_WORDS; i++)
        observer.seen[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
    ck_assert_int_eq(pthread_create(&thread, NULL, observe, &observer), 0);
    send_request(r);
    uint32_t cells = read_answer(&answer);
    atomic_store(&observer.stop, true);
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < CELLS * CELL_WORDS; i++)
        look_at_word(&observer, i); /* the first value seen must also be the last */
    for (uint32_t i = 0; i < CONTEXT; i++)
        if (observer.known[i])
            wrong += i < PROMPT || i - PROMPT >= right->n ||
                     right->tokens[i - PROMPT] != observer.token[i];
    ring_release(&events, cells);
    raw_ring(&client);
    return wrong + observer.differing + observer.twice;
}

static uint32_t spoil(const struct answer *right, uint32_t *guess, uint32_t *state)
{
    memcpy(guess, right->tokens, right->n * sizeof(*guess));
    for (uint32_t i = 0; i < right->n; i++)
        if (next_random(state) % 24 == 0)
            guess[i] = (guess[i] + 1) % 300;
    return right->n;
}

/* The tiny model, or a recurrent one with a next-token layer. */
static void open_all(bool is_recurrent, const char *fault)
{
    char model[512];
    recurrent = is_recurrent;
    snprintf(model, sizeof(model), "%s",
             harness_tiny_model_of(recurrent ? "qwen35" : NULL, QUANT_Q8_0));
    const char *const arguments[] = {"--threads",
                                     "1",
                                     "--draft",
                                     harness_tiny_model(),
                                     "--shadow",
                                     "yes",
                                     fault ? "--fault" : NULL,
                                     fault,
                                     NULL};
    const void *down;
    char err[256];

    harness_start(&daemon_, model, arguments);
    ck_assert_int_eq(raw_open(&client, daemon_.socket, 1), 0);
    ck_assert_uint_eq(client.segment.limits.event_cells, CELLS);
    segment_submit_writer(&client.segment, &submit);
    segment_event_reader(&client.segment, 0, &events);
    int rc = segment_map_sealed(client.fds[HELLO_FD_DOWN], client.segment.plan.down_bytes, &down,
                                err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    observer.words = (const _Atomic uint32_t *)(const void *)((const uint8_t *)down +
                                                              client.segment.plan.down_events);
    generation = 0;
}

static void close_all(void)
{
    raw_close(&client);
    harness_check_drafts(&daemon_);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

/* Returns the number of violations. */
static uint32_t observe_everything(void)
{
    static const enum submit_proposer proposers[] = {PROPOSER_CLIENT, PROPOSER_LOOKUP,
                                                     PROPOSER_AUTO,   PROPOSER_DRAFT,
                                                     PROPOSER_SHADOW, PROPOSER_MTP};
    const uint32_t n_proposers = sizeof(proposers) / sizeof(*proposers) - !recurrent;
    uint32_t wrong = 0, state = 4711, guess[OUTPUT];
    uint64_t looks = 0, sightings = 0;

    for (uint32_t kind = 0; kind < REQUESTS; kind++) {
        struct raw_request r;
        struct answer right;
        make_request(kind, &r);
        ask(&r, &right);
        for (uint32_t i = 0; i < n_proposers * ROUNDS; i++) {
            r.proposer = proposers[i % n_proposers];
            r.params.guess = guess;
            r.params.n_guess = r.proposer == PROPOSER_LOOKUP ? 0 : spoil(&right, guess, &state);
            wrong += ask_observed(&r, &right);
            looks += observer.looks;
            sightings += observer.sightings;
        }
    }
    ck_assert_uint_gt(sightings, REQUESTS * n_proposers * ROUNDS);
    printf("ok: %u wrong sightings of %llu tokens in %llu looks; drafts %lld, accepted %lld, "
           "rollbacks %lld\n",
           wrong, (unsigned long long)sightings, (unsigned long long)looks,
           (long long)harness_counter(&daemon_, "drafted"),
           (long long)harness_counter(&daemon_, "accepted_drafts"),
           (long long)harness_counter(&daemon_, "rollbacks"));
    return wrong;
}

START_TEST(no_published_token_is_taken_back)
{
    open_all(_i, NULL);
    ck_assert_uint_eq(observe_everything(), 0);
    ck_assert_int_gt(harness_counter(&daemon_, "accepted_drafts"), 1000);
    ck_assert_int_gt(harness_counter(&daemon_, "rollbacks"), 100);
    close_all();
}
END_TEST

START_TEST(no_published_token_is_taken_back_with_half_the_drafts_wrong)
{
    open_all(_i, "draft-mismatch=0.5");
    ck_assert_uint_eq(observe_everything(), 0);
    ck_assert_int_gt(harness_counter(&daemon_, "rollbacks"), 1000);
    close_all();
}
END_TEST

/* The control: published unverified drafts must be noticed. */
START_TEST(the_control_that_publishes_drafts_is_noticed)
{
    open_all(false, "draft-mismatch=0.5,accept-drafts=0.2");
    ck_assert_uint_gt(observe_everything(), 100);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("observer");
    TCase *tcase = tcase_create("observer");
    tcase_set_timeout(tcase, 900);
    tcase_add_loop_test(tcase, no_published_token_is_taken_back, 0, 2);
    if (harness_has_faults()) {
        tcase_add_loop_test(tcase, no_published_token_is_taken_back_with_half_the_drafts_wrong, 0,
                            2);
        tcase_add_test(tcase, the_control_that_publishes_drafts_is_noticed);
    } else {
        puts("skip: this build injects no faults: make determinism has one that does");
    }
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
