/* Records over cells: tokens, log-probabilities, the terminal run and the room reserved for it;
 * hostile runs and cells. */
#include "ipc/event.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>

#define CELLS 32u

static struct ring_cell memory[CELLS];
static _Atomic uint32_t progress;
static struct ring_writer w;
static struct ring_reader r;
static struct event_run run;

static void setup(void)
{
    memset(memory, 0, sizeof(memory));
    atomic_store(&progress, 0);
    ring_writer_init(&w, memory, CELLS, &progress);
    ring_reader_init(&r, memory, CELLS, &progress);
}

static void next(uint32_t kind, uint32_t generation, uint32_t position)
{
    ck_assert_int_eq(event_next(&r, &run), 1);
    ck_assert_uint_eq(run.kind, kind);
    ck_assert_uint_eq(run.generation, generation);
    ck_assert_uint_eq(run.position, position);
}

START_TEST(tokens_round_trip_twelve_to_a_cell)
{
    uint32_t tokens[30];
    const uint32_t *got;
    uint32_t seen = 0;

    for (uint32_t i = 0; i < 30; i++)
        tokens[i] = 1000 + i;
    ck_assert_int_eq(event_put_tokens(&w, 9, 50, tokens, 30), 0);
    ck_assert_uint_eq(w.next, 3);
    while (seen < 30) {
        next(EVENT_TOKENS, 9, 50 + seen);
        ck_assert_uint_eq(run.cells, 1);
        uint32_t n = event_tokens(&run, &got);
        ck_assert_uint_eq(n, seen < 24 ? 12 : 6);
        for (uint32_t i = 0; i < n; i++)
            ck_assert_uint_eq(got[i], 1000 + seen + i);
        seen += n;
        ring_release(&r, run.cells);
    }
    ck_assert_int_eq(event_next(&r, &run), 0);
}
END_TEST

START_TEST(log_probabilities_round_trip_with_alternatives)
{
    struct event_top top[EVENT_TOP_MAX], got_top[EVENT_TOP_MAX];
    struct event_logprob got;

    for (uint32_t n = 0; n <= EVENT_TOP_MAX; n++) {
        struct event_logprob head = {.token = 77 + n, .logprob = -1.5f, .n_top = n};
        uint32_t offset = 0;

        for (uint32_t i = 0; i < n; i++)
            top[i] = (struct event_top){.token = i, .logprob = -0.25f * (float)i};
        ck_assert_int_eq(event_put_logprob(&w, 3, n, &head, top), 0);
        next(EVENT_LOGPROBS, 3, n);
        ck_assert_int_eq(event_logprob_next(&run, &offset, &got, got_top), 1);
        ck_assert_mem_eq(&got, &head, sizeof(head));
        ck_assert_int_eq(memcmp(got_top, top, n * sizeof(*top)), 0);
        ck_assert_int_eq(event_logprob_next(&run, &offset, &got, got_top), 0);
        ring_release(&r, run.cells);
    }
}
END_TEST

START_TEST(done_round_trips_with_every_length_of_text)
{
    for (size_t n = 0; n <= DONE_TEXT_BYTES; n++) {
        struct event_done done = {.reason = DONE_ERROR, .error = -EINVAL, .prompt = 5}, got;

        memcpy(done.numerics, "portable-1", 10);
        memset(done.model, 0xab, sizeof(done.model));
        done.prefill_ns = 123456789012345u;
        memset(done.text, 'x', n);
        ck_assert_int_eq(event_put_done(&w, 4, 99, &done), 0);
        next(EVENT_DONE, 4, 99);
        ck_assert_uint_le(run.cells, EVENT_RUN_CELLS);
        ck_assert_int_eq(event_done(&run, &got), 0);
        if (n == DONE_TEXT_BYTES) /* the reader's copy always ends with a zero byte */
            done.text[DONE_TEXT_BYTES - 1] = 0;
        ck_assert_mem_eq(&got, &done, sizeof(done));
        ring_release(&r, run.cells);
    }
}
END_TEST

/* Without `stored` it is the record that clients knew before there was a store. */
START_TEST(what_was_read_from_a_store_is_the_end_of_done)
{
    struct event_done done = {.reason = DONE_LENGTH, .cached = 64, .stored = 32, .text = "text"},
                      got;

    ck_assert_int_eq(event_put_done(&w, 4, 99, &done), 0);
    next(EVENT_DONE, 4, 99);
    ck_assert_uint_eq(run.bytes, sizeof(done));
    ck_assert_int_eq(event_done(&run, &got), 0);
    ck_assert_mem_eq(&got, &done, sizeof(done));
    run.bytes--; /* the text of a daemon that knows no store: up to one byte less than this */
    ck_assert_int_eq(event_done(&run, &got), 0);
    ck_assert_uint_eq(got.stored, 0);
    ring_release(&r, run.cells);
    done.stored = 0;
    ck_assert_int_eq(event_put_done(&w, 4, 99, &done), 0);
    next(EVENT_DONE, 4, 99);
    ck_assert_uint_eq(run.bytes, offsetof(struct event_done, text) + strlen("text"));
}
END_TEST

START_TEST(nop_round_trips_with_its_cookie)
{
    uint64_t cookie;

    ck_assert_int_eq(event_put_nop(&w, 1, 0x123456789abcdefu), 0);
    next(EVENT_NOP, 1, 0);
    ck_assert_int_eq(event_nop(&run, &cookie), 0);
    ck_assert(cookie == 0x123456789abcdefu);
}
END_TEST

START_TEST(a_terminal_run_always_has_room)
{
    struct event_done done = {.reason = DONE_LENGTH};
    uint32_t token = 1, n = 0;

    memset(done.text, 'y', sizeof(done.text));
    while (event_put_tokens(&w, 1, n, &token, 1) == 0)
        n++;
    ck_assert_uint_eq(n, CELLS - EVENT_RUN_CELLS);
    ck_assert_int_eq(event_room(&w), 0);
    ck_assert_int_eq(event_put_nop(&w, 1, 0), -EAGAIN);
    ck_assert_int_eq(event_put_done(&w, 1, n, &done), 0);
    ck_assert_int_eq(event_put_done(&w, 1, n, &done), -EAGAIN);
    ck_assert_int_eq(event_put_tokens(&w, 1, n, &token, 1), -EAGAIN);
    ring_release(&r, 2);
    ck_assert_int_eq(event_room(&w), 0);
    ring_release(&r, 10);
    ck_assert_int_eq(event_room(&w), 12 - (int)EVENT_RUN_CELLS);
}
END_TEST

START_TEST(a_run_that_does_not_fit_is_not_begun)
{
    uint32_t tokens[24] = {0}, token = 1;
    struct event_logprob head = {.n_top = EVENT_TOP_MAX};
    struct event_top top[EVENT_TOP_MAX] = {{0}};
    uint32_t before;

    for (uint32_t i = 0; i < CELLS - EVENT_RUN_CELLS - 1; i++)
        ck_assert_int_eq(event_put_tokens(&w, 1, i, &token, 1), 0);
    before = w.next;
    ck_assert_int_eq(event_room(&w), 1);
    ck_assert_int_eq(event_put_tokens(&w, 1, 0, tokens, 24), -EAGAIN);
    ck_assert_int_eq(event_put_logprob(&w, 1, 0, &head, top), -EAGAIN);
    ck_assert_uint_eq(w.next, before);
    ck_assert_int_eq(event_put_tokens(&w, 1, 0, tokens, 12), 0);
}
END_TEST

START_TEST(half_a_run_is_not_visible)
{
    struct event_cell cell = {
        .generation = 1, .kind = EVENT_DONE, .flags = EVENT_MORE, .bytes = 48};

    ring_push(&w, &cell);
    ck_assert_int_eq(event_next(&r, &run), 0);
    ring_push(&w, &cell);
    ck_assert_int_eq(event_next(&r, &run), 0);
    cell.flags = 0;
    ring_push(&w, &cell);
    ck_assert_int_eq(event_next(&r, &run), 1);
    ck_assert_uint_eq(run.cells, 3);
    ck_assert_uint_eq(run.bytes, 144);
}
END_TEST

START_TEST(impossible_progress_is_an_error)
{
    uint32_t tokens[12] = {0};
    struct event_done done = {.reason = DONE_EOS};

    atomic_store(&progress, 12345);
    ck_assert_int_eq(event_room(&w), -EPROTO);
    atomic_store(&progress, 0);
    while (event_put_tokens(&w, 1, 0, tokens, 12) == 0)
        ;
    atomic_store(&progress, w.next + 100);
    ck_assert_int_eq(event_put_tokens(&w, 1, 0, tokens, 12), -EPROTO);
    while (ring_space_known(&w) >= 3)
        ck_assert_int_eq(event_put_done(&w, 1, 0, &done), 0);
    ck_assert_int_eq(event_put_done(&w, 1, 0, &done), -EPROTO);
}
END_TEST

static void push_bad(uint8_t kind, uint8_t flags, uint16_t bytes, uint32_t generation)
{
    struct event_cell cell = {
        .generation = generation, .kind = kind, .flags = flags, .bytes = bytes};

    ring_push(&w, &cell);
}

START_TEST(broken_runs_are_refused)
{
    push_bad(EVENT_TOKENS, 0, EVENT_BYTES + 1, 1);
    ck_assert_int_eq(event_next(&r, &run), -EPROTO);
    ring_release(&r, 1);
    push_bad(EVENT_DONE, EVENT_MORE, 48, 1);
    push_bad(EVENT_TOKENS, 0, 48, 1);
    ck_assert_int_eq(event_next(&r, &run), -EPROTO);
    ring_release(&r, 2);
    push_bad(EVENT_DONE, EVENT_MORE, 48, 1);
    push_bad(EVENT_DONE, 0, 48, 2);
    ck_assert_int_eq(event_next(&r, &run), -EPROTO);
    ring_release(&r, 2);
    for (uint32_t i = 0; i <= EVENT_RUN_CELLS; i++)
        push_bad(EVENT_DONE, EVENT_MORE, 48, 1);
    ck_assert_int_eq(event_next(&r, &run), -EPROTO);
}
END_TEST

START_TEST(broken_records_are_refused)
{
    struct event_logprob head = {.n_top = EVENT_TOP_MAX + 1}, got;
    struct event_top top[EVENT_TOP_MAX];
    struct event_done done;
    uint64_t cookie;
    uint32_t offset = 0;

    run = (struct event_run){.kind = EVENT_LOGPROBS, .bytes = EVENT_RUN_BYTES};
    memcpy(run.payload, &head, sizeof(head));
    ck_assert_int_eq(event_logprob_next(&run, &offset, &got, top), -EPROTO);
    head.n_top = 2;
    memcpy(run.payload, &head, sizeof(head));
    run.bytes = sizeof(head) + 2 * sizeof(top[0]) - 1;
    ck_assert_int_eq(event_logprob_next(&run, &offset, &got, top), -EPROTO);
    run.bytes = sizeof(head) - 1;
    ck_assert_int_eq(event_logprob_next(&run, &offset, &got, top), -EPROTO);
    run = (struct event_run){.kind = EVENT_DONE, .bytes = offsetof(struct event_done, text) - 1};
    ck_assert_int_eq(event_done(&run, &done), -EPROTO);
    run.bytes++;
    ck_assert_int_eq(event_done(&run, &done), -EPROTO); /* reason 0 */
    run = (struct event_run){.kind = EVENT_NOP, .bytes = 7};
    ck_assert_int_eq(event_nop(&run, &cookie), -EPROTO);
}
END_TEST

/* ---- submit ---------------------------------------------------------------------------------- */

static const struct ipc_limits limits = {
    .slots = 4, .context = 100, .submit_cells = 16, .event_cells = 32, .params_bytes = 1024};

static struct submit_cell good(void)
{
    return (struct submit_cell){.opcode = SUBMIT_REQUEST,
                                .slot = 3,
                                .generation = 1,
                                .keep = 50,
                                .length = 100,
                                .prompt_length = 100,
                                .max_tokens = 1,
                                .params_bytes = 1024};
}

static int verdict(const struct submit_cell *c)
{
    char line[200] = "";
    int rc = submit_check(c, &limits, line, sizeof(line));

    ck_assert_int_eq(rc == 0, line[0] == 0);
    return rc;
}

START_TEST(valid_cells_pass)
{
    struct submit_cell c = good();

    ck_assert_int_eq(verdict(&c), 0);
    c.opcode = SUBMIT_NOP;
    c.length = 1000000; /* a NOP's other fields are ignored */
    ck_assert_int_eq(verdict(&c), 0);
}
END_TEST

#define REFUSED(change, code)                                                                      \
    do {                                                                                           \
        struct submit_cell c = good();                                                             \
        change;                                                                                    \
        ck_assert_int_eq(verdict(&c), code);                                                       \
    } while (0)

START_TEST(every_bad_field_is_refused)
{
    REFUSED(c.slot = 4, -EPROTO);
    REFUSED(c.slot = 0xffff, -EPROTO);
    REFUSED(c.opcode = SUBMIT_NONE, -ENOSYS);
    REFUSED(c.opcode = 200, -ENOSYS);
    REFUSED(c.proposer = PROPOSER_COUNT, -EINVAL);
    REFUSED(c.zeroes[0] = 1, -EINVAL);
    REFUSED(c.zeroes[1] = 1, -EINVAL);
    REFUSED(c.priority = 2, -EINVAL);
    REFUSED(c.flags = 2, -EINVAL);
    REFUSED(c.flags = 0x80000000u, -EINVAL);
    REFUSED(c.length = 0, -EINVAL);
    REFUSED(c.length = 101, -E2BIG);
    REFUSED(c.length = UINT32_MAX, -E2BIG);
    REFUSED(c.keep = 101, -EINVAL);
    REFUSED(c.prompt_length = 0, -EINVAL);
    REFUSED(c.prompt_length = 101, -EINVAL);
    REFUSED(c.params_bytes = 1025, -E2BIG);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("event");
    TCase *valid = tcase_create("valid"), *hostile = tcase_create("hostile");

    tcase_add_checked_fixture(valid, setup, NULL);
    tcase_add_test(valid, tokens_round_trip_twelve_to_a_cell);
    tcase_add_test(valid, log_probabilities_round_trip_with_alternatives);
    tcase_add_test(valid, what_was_read_from_a_store_is_the_end_of_done);
    tcase_add_test(valid, done_round_trips_with_every_length_of_text);
    tcase_add_test(valid, nop_round_trips_with_its_cookie);
    tcase_add_test(valid, a_terminal_run_always_has_room);
    tcase_add_test(valid, a_run_that_does_not_fit_is_not_begun);
    tcase_add_test(valid, half_a_run_is_not_visible);
    tcase_add_test(valid, valid_cells_pass);
    suite_add_tcase(s, valid);
    tcase_add_checked_fixture(hostile, setup, NULL);
    tcase_add_test(hostile, impossible_progress_is_an_error);
    tcase_add_test(hostile, broken_runs_are_refused);
    tcase_add_test(hostile, broken_records_are_refused);
    tcase_add_test(hostile, every_bad_field_is_refused);
    suite_add_tcase(s, hostile);
    return run_suite(s);
}
