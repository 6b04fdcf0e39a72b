/*
 * The engine against clients that write nonsense: a wrong field is told to its client, a wrong ring
 * or word closes that client, and the other client's answer is the one it gets alone, every time.
 */
#include "ipc/params.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rig rig;
static struct rig_client good, bad;
static uint32_t prompt[RIG_TOKENS], other[RIG_TOKENS];
static const struct rig_request fine = {.tokens = other, .n = 150, .max_tokens = 60};

static void setup(void)
{
    static const struct rig_desc desc = {.mail = 16, .clients = 4};

    rig_open(&rig, &desc);
    rig_attach(&rig, &good, 1, 1000, "");
    rig_attach(&rig, &bad, 2, 2000, "");
    rig_tokens(prompt, RIG_TOKENS, 1);
    rig_tokens(other, RIG_TOKENS, 2);
    rig_submit(&good, 0, &fine);
    engine_step(rig.engine);
}

/* Whatever happened: the good client's answer is right, and what the bad one held comes back. */
static void teardown(void)
{
    do
        rig_read_all(&good);
    while (engine_step(rig.engine));
    rig_read_all(&good);
    ck_assert(rig_same(&rig, &fine, &good.slots[0].last));
    rig_detach(&rig, &bad);
    ck_assert(rig_same(&rig, &fine, rig_ask(&rig, &good, 0, &fine)));
    rig_detach(&rig, &good);
    rig_check(&rig);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    rig_close(&rig);
}

/* Pushes the cell: it must be refused with `error` and a line, and the client lives on. */
static void refused(const struct submit_cell *cell, int error)
{
    struct rig_slot *s = &bad.slots[cell->slot];
    struct rig_request next = {.tokens = prompt, .n = 5, .max_tokens = 2};
    uint32_t ends = s->n_ends;

    if (cell->opcode != SUBMIT_REQUEST)
        s->n_requests++;
    rig_push(&bad, cell);
    engine_step(rig.engine);
    rig_read_all(&bad);
    ck_assert_uint_eq(s->n_ends, ends + 1);
    ck_assert_int_eq(s->last.reason, DONE_ERROR);
    ck_assert_int_eq(s->last.done.error, error);
    ck_assert_uint_gt(strlen(s->last.done.text), 10);
    ck_assert_ptr_null(strchr(s->last.done.text, '\n'));
    ck_assert_uint_eq(s->last.n, 0);
    rig_read_all(&good);
    ck_assert(rig_same(&rig, &next, rig_ask(&rig, &bad, cell->slot, &next)));
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 0);
}

/* One step must mark the bad client, and the next one close it with `error`, once, and end what it
 * was running. */
static void closed(int error)
{
    ck_assert_uint_gt(engine_step(rig.engine), 0);
    ck_assert_int_eq(bad.client->error, error);
    ck_assert(engine_look(rig.engine)); /* the engine does not sleep before */
    engine_step(rig.engine);
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
    ck_assert_int_eq(rig.last_close, error);
    for (uint32_t i = 0; i < bad.n_slots; i++)
        ck_assert(bad.client->slots[i]->state == SLOT_IDLE);
    ck_assert(good.client->slots[0]->state != SLOT_IDLE);
    ck_assert_uint_eq(
        counters_get(rig.ctl, COUNTER_PROTOCOL_ERRORS) + counters_get(rig.ctl, COUNTER_SIGBUS), 1);
}

static struct submit_cell cell_of(uint32_t slot)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 10};

    return rig_prepare(&bad, slot, &request);
}

/* ---- told to the client ---------------------------------------------------------------------- */

START_TEST(a_token_out_of_range_is_refused_with_its_position)
{
    struct submit_cell cell;

    prompt[63] = FAKE_VOCAB;
    cell = cell_of(1);
    prompt[63] = 5;
    refused(&cell, -ERANGE);
    prompt[0] = UINT32_MAX;
    cell = cell_of(0);
    prompt[0] = 5;
    refused(&cell, -ERANGE);
}
END_TEST

START_TEST(the_refusal_names_token_and_position)
{
    struct submit_cell cell;

    prompt[63] = 70000;
    cell = cell_of(0);
    rig_push(&bad, &cell);
    engine_step(rig.engine);
    rig_read_all(&bad);
    ck_assert_ptr_nonnull(strstr(bad.slots[0].last.done.text, "70000"));
    ck_assert_ptr_nonnull(strstr(bad.slots[0].last.done.text, "63"));
}
END_TEST

START_TEST(every_wrong_field_of_a_cell_is_refused)
{
    for (int i = 0; i < 12; i++) {
        struct submit_cell cell = cell_of(0);
        int error = -EINVAL;
        switch (i) {
        case 0:
            cell.priority = 2;
            break;
        case 1:
            cell.flags = 2;
            break;
        case 2:
            cell.proposer = PROPOSER_COUNT;
            break;
        case 3:
            cell.zeroes[0] = 1;
            break;
        case 4:
            cell.zeroes[1] = UINT64_MAX;
            break;
        case 5:
            cell.length = 0;
            break;
        case 6:
            cell.length = rig.desc.context + 1;
            error = -E2BIG;
            break;
        case 7:
            cell.length = UINT32_MAX;
            error = -E2BIG;
            break;
        case 8:
            cell.keep = 101;
            break;
        case 9:
            cell.prompt_length = 0;
            break;
        case 10:
            cell.prompt_length = 101;
            break;
        case 11:
            cell.opcode = 9;
            error = -ENOSYS;
            break;
        }
        refused(&cell, error);
    }
}
END_TEST

START_TEST(every_wrong_size_of_the_parameters_is_refused)
{
    for (uint32_t bytes = 0; bytes < 200; bytes++) {
        struct submit_cell cell = cell_of(0);
        if (bytes == cell.params_bytes)
            continue;
        cell.params_bytes = bytes;
        refused(&cell, -EINVAL);
    }
    struct submit_cell cell = cell_of(0);
    cell.params_bytes = RIG_PARAMS_BYTES + 4;
    refused(&cell, -E2BIG);
    cell = cell_of(0);
    cell.params_bytes = RIG_PARAMS_BYTES - 1;
    refused(&cell, -EINVAL);
}
END_TEST

START_TEST(parameters_that_make_no_sense_are_refused)
{
    for (int i = 0; i < 8; i++) {
        struct submit_cell cell = cell_of(0);
        struct params_head *head = (struct params_head *)(void *)segment_params(&bad.segment, 0);
        switch (i) {
        case 0:
            head->temperature = NAN;
            break;
        case 1:
            head->top_p = INFINITY;
            break;
        case 2:
            head->magic = 0;
            break;
        case 3:
            head->repeat_penalty = 0;
            break;
        case 4:
            head->n_bias = 1;
            break;
        case 5:
            head->n_stop_texts = UINT32_MAX;
            break;
        case 6:
            head->order[0] = 77;
            break;
        case 7:
            head->bytes += 4;
            break;
        }
        refused(&cell, -EINVAL);
    }
}
END_TEST

START_TEST(a_request_larger_than_the_pool_is_refused)
{
    static const struct rig_desc desc = {.pages = 4, .slots = 1};
    struct rig small;
    struct rig_client c;
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 29};

    rig_open(&small, &desc);
    rig_attach(&small, &c, 1, 1, "");
    const struct rig_answer *answer = rig_ask(&small, &c, 0, &request);
    ck_assert_int_eq(answer->reason, DONE_ERROR);
    ck_assert_int_eq(answer->done.error, -ENOMEM);
    request.max_tokens = 28;
    ck_assert(rig_same(&small, &request, rig_ask(&small, &c, 0, &request)));
    rig_detach(&small, &c);
    rig_close(&small);
}
END_TEST

START_TEST(a_cell_of_an_old_generation_is_superseded)
{
    struct submit_cell cell = cell_of(0);

    rig_cancel(&bad, 0);
    rig_push(&bad, &cell);
    engine_step(rig.engine);
    rig_read_all(&bad);
    ck_assert_int_eq(bad.slots[0].last.reason, DONE_SUPERSEDED);
    ck_assert_uint_eq(bad.slots[0].last.generation, cell.generation);
    ck_assert(bad.client->slots[0]->state == SLOT_IDLE);
}
END_TEST

/* The same cell again, while its answer runs and after its end, as often as a step takes cells: there
 * is one request, with one end. A cell of the next generation begins one. */
START_TEST(a_repeated_cell_begins_nothing)
{
    struct rig_request request = {.tokens = prompt, .n = 20, .max_tokens = 6};
    struct submit_cell cell = rig_prepare(&bad, 0, &request);

    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 8; i++) {
            rig_push(&bad, &cell);
            if (i == 7)
                engine_step(rig.engine);
        }
    rig_run(&rig, 100);
    rig_push(&bad, &cell);
    rig_run(&rig, 100);
    rig_read_all(&bad);
    ck_assert(rig_same(&rig, &request, &bad.slots[0].last));
    ck_assert_uint_eq(bad.slots[0].n_ends, 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_REQUESTS_STARTED), 2); /* and the good one's */
    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &bad, 0, &request)));
    ck_assert_uint_eq(rig.n_closed, 0);
}
END_TEST

/* A void cell still moves the base: what it did not keep is read again by the next one. */
START_TEST(a_void_cell_with_a_small_keep_forgets_the_base)
{
    struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 3};

    rig_ask(&rig, &bad, 0, &request);
    struct submit_cell skipped = cell_of(0);
    skipped.keep = 10;
    rig_push(&bad, &skipped);
    prompt[50] = FAKE_BYTES + '!';
    segment_arena(&bad.segment, 0)[50] = prompt[50];
    struct submit_cell cell = cell_of(0); /* keeps all: relative to the skipped cell */
    ck_assert_uint_eq(cell.keep, 100);
    cell.max_tokens = 3;
    rig_push(&bad, &cell);
    do
        rig_read_all(&good);
    while (engine_step(rig.engine));
    rig_read_all(&bad);
    ck_assert(rig_same(&rig, &request, &bad.slots[0].last));
    ck_assert_uint_eq(bad.slots[0].last.done.prefix_break, 50);
}
END_TEST

/* ---- closed ---------------------------------------------------------------------------------- */

START_TEST(a_slot_that_is_not_there_closes_the_client)
{
    struct submit_cell cell = cell_of(0);
    uint16_t slots[] = {2, 64, UINT16_MAX};

    cell.slot = slots[_i];
    rig_push(&bad, &cell);
    closed(-EPROTO);
}
END_TEST

START_TEST(a_wrong_sequence_number_closes_the_client)
{
    static const uint32_t numbers[] = {2, 77, UINT32_MAX, 17};
    struct ring_cell *cells =
        (struct ring_cell *)(void *)(bad.segment.up + bad.segment.plan.up_submit);

    atomic_store(&cells[0].seq, numbers[_i]);
    closed(-EPROTO);
}
END_TEST

/* _i 0: read more than was written; 1: far away; 2: took progress back. */
START_TEST(a_wild_progress_word_closes_the_client)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 100};
    _Atomic uint32_t *progress = &segment_up_slot(&bad.segment, 0)->events;

    rig_submit(&bad, 0, &request);
    for (int i = 0; i < 10; i++)
        engine_step(rig.engine);
    rig_read(&bad, 0, 5);
    engine_step(rig.engine); /* 5 cells read: seen */
    atomic_store(progress, _i == 0 ? 12 : _i == 1 ? UINT32_MAX / 2 : 4);
    closed(-EPROTO);
}
END_TEST

START_TEST(memory_that_fails_closes_the_client)
{
    struct submit_cell cell = cell_of(0);

    atomic_store(&bad.client->segment.broken, 1);
    rig_push(&bad, &cell);
    closed(-EFAULT);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_SIGBUS), 1);
}
END_TEST

START_TEST(memory_that_fails_without_a_cell_closes_the_client)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 100};

    rig_submit(&bad, 0, &request);
    engine_step(rig.engine);
    atomic_store(&bad.client->segment.broken, 1);
    ck_assert(engine_look(rig.engine));
    closed(-EFAULT);
}
END_TEST

/* Cells that are cheap to write and dear to read: a step takes a bounded number of their tokens. */
START_TEST(a_step_copies_a_bounded_number_of_tokens)
{
    struct submit_cell cell = {.opcode = SUBMIT_REQUEST, .generation = 1, .length = 1u << 30};
    uint32_t steps = 0;

    for (int i = 0; i < 8; i++)
        rig_push(&bad, &cell);
    for (; ring_ready(&bad.client->submit); steps++) {
        engine_step(rig.engine);
        rig_read_all(&good);
        ck_assert_uint_lt(steps, 8);
    }
    ck_assert_uint_eq(steps, 8);
}
END_TEST

/* Its cells stay unread, and the engine does not spin for them; once it reads, they are taken. */
START_TEST(a_client_that_never_reads_lets_the_engine_sleep)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 100};
    uint32_t submitted = 0;

    while (!ring_ready(&bad.client->submit)) {
        rig_submit(&bad, 0, &request);
        for (int i = 0; i < 3; i++)
            engine_step(rig.engine);
        ck_assert_uint_lt(submitted++, 2000);
    }
    rig_run(&rig, 1000);
    ck_assert(ring_ready(&bad.client->submit));
    ck_assert(!engine_look(rig.engine));
    rig_read_all(&bad);
    ck_assert(engine_look(rig.engine));
    rig_run(&rig, 1000);
    ck_assert(!ring_ready(&bad.client->submit));
}
END_TEST

START_TEST(a_closed_client_is_not_looked_at_any_more)
{
    struct submit_cell cell = cell_of(0);

    cell.slot = 7;
    rig_push(&bad, &cell);
    closed(-EPROTO);
    cell.slot = 0;
    for (int i = 0; i < 8; i++)
        rig_push(&bad, &cell);
    engine_step(rig.engine);
    ck_assert_uint_eq(atomic_load(&segment_down_head(&bad.segment)->submitted), 0);
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
}
END_TEST

/* Garbage over the whole segment, again and again, while the other client streams. */
START_TEST(garbage_everywhere_disturbs_no_other_client)
{
    uint64_t state = (uint64_t)_i + 1;

    for (int round = 0; round < 20; round++) {
        uint8_t *up = bad.segment.up;
        for (size_t i = 0; i < bad.segment.plan.up_bytes; i += 4) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            memcpy(up + i, (uint8_t *)&state + 4, 4);
        }
        engine_step(rig.engine);
        rig_check(&rig);
        rig_read_all(&good);
    }
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
}
END_TEST

/* All that wait by a new ticket are woken by the next step that has news for them. */
static void wait_anew(struct rig_client *const *waiting, int n, uint32_t ticket)
{
    for (int i = 0; i < n; i++)
        atomic_store(&segment_up_head(&waiting[i]->segment)->waiting, ticket << 1);
    engine_step(rig.engine);
    for (int i = 0; i < n; i++)
        rig_read_all(waiting[i]);
}

/* Tickets that change all the time make wakes for the control thread, where there are more than the
 * engine thread makes itself. When it does not get to them, the mailbox keeps room for the messages
 * that must not be lost. */
START_TEST(wakes_never_fill_the_mailbox)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 100};
    struct rig_client third, *waiting[] = {&good, &bad, &third};
    uint32_t ticket = 1;

    rig_attach(&rig, &third, 1, 3000, "");
    rig_submit(&bad, 0, &request);
    rig_submit(&third, 0, &request);
    while (ticket < 8)
        wait_anew(waiting, 2, ticket++);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKE_HANDOFFS), 0);
    uint64_t wakes = counters_get(rig.ctl, COUNTER_WAKES);
    ck_assert_uint_gt(wakes, 0);
    while (ticket < 48)
        wait_anew(waiting, 3, ticket++);
    ck_assert_uint_gt(counters_get(rig.ctl, COUNTER_WAKE_HANDOFFS), 0);
    ck_assert_uint_gt(counters_get(rig.ctl, COUNTER_WAKES), wakes);
    struct submit_cell cell = cell_of(0);
    cell.slot = 9;
    rig_push(&bad, &cell);
    engine_step(rig.engine);
    engine_step(rig.engine); /* MAIL_CLOSE has its place */
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
    rig_detach(&rig, &third);
}
END_TEST

/* Mapped by hand, so that no page of `down` but the first is there: the answers would make them, and
 * be charged with them. */
START_TEST(a_client_that_has_not_touched_its_answers_is_closed)
{
    struct ipc_limits limits = bad.segment.limits;
    struct submit_cell cell = {.opcode = SUBMIT_NOP};
    struct rig_client sly;
    struct segment mine;
    char err[200];

    rig_equip(&rig, &sly, 1, 3000, "");
    segment_close(&sly.client->segment);
    ck_assert_int_eq(segment_open(&sly.client->segment, &limits, err, sizeof(err)), 0);
    mine = sly.client->segment;
    mine.up = mmap(NULL, mine.plan.up_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mine.up_fd, 0);
    ck_assert_ptr_ne(mine.up, MAP_FAILED);
    segment_submit_writer(&mine, &sly.submit);
    rig_post(&rig, MAIL_ATTACH, sly.client);
    engine_step(rig.engine);
    rig_push(&sly, &cell);
    engine_step(rig.engine);
    ck_assert_int_eq(sly.client->error, -EPROTO);
    engine_step(rig.engine);
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
    rig_detach(&rig, &sly);
    munmap(mine.up, mine.plan.up_bytes);
}
END_TEST

/* ---- expensive wakes ------------------------------------------------------------------------- */

enum { WAKE_MS = 3 };
static int notify[2];
static uint64_t wake_clock_ns, wakes_before; /* the step */
static bool expensive;

static uint64_t wake_clock(void)
{
    return wake_clock_ns += 1000;
}

/* A wake of the bad client by the engine thread, the second one of a step, takes WAKE_MS: the byte that
 * it sends is seen when this clock is read next. */
static uint64_t wake_cpu(void)
{
    static uint64_t cpu_ns;
    char byte;

    if (expensive && recv(notify[1], &byte, 1, MSG_DONTWAIT) == 1 &&
        counters_get(rig.ctl, COUNTER_WAKES) == wakes_before + 1)
        cpu_ns += WAKE_MS * 1000000;
    return cpu_ns += 1000;
}

static void setup_wakes(void)
{
    static const struct rig_desc desc = {
        .mail = 16, .clients = 4, .now_ns = wake_clock, .cpu_ns = wake_cpu};

    rig_open(&rig, &desc);
    rig_attach(&rig, &good, 1, 1000, "");
    rig_attach(&rig, &bad, 1, 2000, "");
    ck_assert_int_eq(bell_notify_open(notify), 0);
    bad.client->notify_fd = bad.client->waker.notify_fd = notify[0];
    expensive = false;
}

static void teardown_wakes(void)
{
    rig_detach(&rig, &bad);
    rig_detach(&rig, &good);
    close(notify[0]);
    close(notify[1]);
    rig_close(&rig);
}

/* Both clients wait, by a new ticket each, and are answered. */
static void wake_both(uint32_t ticket)
{
    struct submit_cell cell = {.opcode = SUBMIT_NOP};
    struct rig_client *both[] = {&good, &bad};

    for (int i = 0; i < 2; i++) {
        atomic_store(&segment_up_head(&both[i]->segment)->waiting, ticket << 1 | (uint32_t)i);
        rig_push(both[i], &cell);
    }
    wakes_before = counters_get(rig.ctl, COUNTER_WAKES);
    engine_step(rig.engine);
    rig_read_all(&good);
    rig_read_all(&bad);
}

START_TEST(usual_wakes_are_made_by_the_engine)
{
    for (uint32_t i = 1; i <= 1000; i++)
        wake_both(i);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKES), 2000);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKES_APART), 0);
}
END_TEST

/* A client that waits is not woken while only another one is answered. */
START_TEST(a_client_without_news_is_not_woken)
{
    struct submit_cell cell = {.opcode = SUBMIT_NOP};

    atomic_store(&segment_up_head(&good.segment)->waiting, 1u << 1);
    for (uint32_t i = 1; i <= 100; i++) {
        atomic_store(&segment_up_head(&bad.segment)->waiting, i << 1 | 1u);
        rig_push(&bad, &cell);
        engine_step(rig.engine);
        rig_read_all(&bad);
    }
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKES), 100);
    rig_push(&good, &cell);
    engine_step(rig.engine);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKES), 101);
}
END_TEST

/* The engine makes one such wake in 256 times its length; the other client's are as before. */
START_TEST(expensive_wakes_are_made_elsewhere)
{
    expensive = true;
    for (uint32_t i = 1; i <= 1000; i++) {
        wake_both(i);
        wake_clock_ns += 10000000;
    }
    uint64_t apart = counters_get(rig.ctl, COUNTER_WAKES_APART);
    uint64_t seconds = wake_clock_ns / 1000000000;
    ck_assert_uint_ge(counters_get(rig.ctl, COUNTER_WAKES), 1000 + 2);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKES) + apart, 2000);
    ck_assert_uint_ge(apart, 1000 - 2 * seconds);
}
END_TEST

/* What the control thread measured is charged, too, and ends. */
START_TEST(wakes_that_were_expensive_elsewhere_are_charged)
{
    wake_both(1);
    atomic_store(&bad.client->wakes_ns, 5000000);
    for (uint32_t i = 2; i < 100; i++)
        wake_both(i);
    uint64_t apart = counters_get(rig.ctl, COUNTER_WAKES_APART);
    ck_assert_uint_ge(apart, 90); /* one that cannot be handed over at this moment is not */
    wake_clock_ns += 300000000;
    wake_both(100);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_WAKES_APART), apart);
}
END_TEST

/* Whoever connects anew owes what it owed. */
START_TEST(a_users_debt_outlives_its_clients)
{
    wake_both(1);
    atomic_store(&bad.client->wakes_ns, 5000000);
    wake_both(2);
    uint64_t apart = counters_get(rig.ctl, COUNTER_WAKES_APART);
    rig_detach(&rig, &bad);
    rig_attach(&rig, &bad, 1, 2000, "");
    bad.client->notify_fd = bad.client->waker.notify_fd = notify[0];
    for (uint32_t i = 3; i < 100; i++)
        wake_both(i);
    ck_assert_uint_ge(counters_get(rig.ctl, COUNTER_WAKES_APART), apart + 90);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_hostile");
    TCase *told = tcase_create("told"), *shut = tcase_create("closed");

    tcase_add_checked_fixture(told, setup, teardown);
    tcase_add_test(told, a_token_out_of_range_is_refused_with_its_position);
    tcase_add_test(told, the_refusal_names_token_and_position);
    tcase_add_test(told, every_wrong_field_of_a_cell_is_refused);
    tcase_add_test(told, every_wrong_size_of_the_parameters_is_refused);
    tcase_add_test(told, parameters_that_make_no_sense_are_refused);
    tcase_add_test(told, a_request_larger_than_the_pool_is_refused);
    tcase_add_test(told, a_cell_of_an_old_generation_is_superseded);
    tcase_add_test(told, a_repeated_cell_begins_nothing);
    tcase_add_test(told, a_void_cell_with_a_small_keep_forgets_the_base);
    tcase_add_checked_fixture(shut, setup, teardown);
    tcase_add_loop_test(shut, a_slot_that_is_not_there_closes_the_client, 0, 3);
    tcase_add_loop_test(shut, a_wrong_sequence_number_closes_the_client, 0, 4);
    tcase_add_loop_test(shut, a_wild_progress_word_closes_the_client, 0, 3);
    tcase_add_test(shut, memory_that_fails_closes_the_client);
    tcase_add_test(shut, memory_that_fails_without_a_cell_closes_the_client);
    tcase_add_test(shut, a_step_copies_a_bounded_number_of_tokens);
    tcase_add_test(shut, a_client_that_never_reads_lets_the_engine_sleep);
    tcase_add_test(shut, a_closed_client_is_not_looked_at_any_more);
    tcase_add_loop_test(shut, garbage_everywhere_disturbs_no_other_client, 0, 5);
    tcase_add_test(shut, a_client_that_has_not_touched_its_answers_is_closed);
    tcase_add_test(shut, wakes_never_fill_the_mailbox);
    TCase *wakes = tcase_create("wakes");
    tcase_add_checked_fixture(wakes, setup_wakes, teardown_wakes);
    tcase_add_test(wakes, usual_wakes_are_made_by_the_engine);
    tcase_add_test(wakes, a_client_without_news_is_not_woken);
    tcase_add_test(wakes, expensive_wakes_are_made_elsewhere);
    tcase_add_test(wakes, wakes_that_were_expensive_elsewhere_are_charged);
    tcase_add_test(wakes, a_users_debt_outlives_its_clients);
    suite_add_tcase(suite, wakes);
    suite_add_tcase(suite, told);
    suite_add_tcase(suite, shut);
    return run_suite(suite);
}
