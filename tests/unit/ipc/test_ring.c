/* The ring alone: order, flow control, laps, wrap of the 32-bit sequence numbers, hostile peers. */
#include "ipc/ring.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>

#define CELLS 8u

static struct ring_cell memory[CELLS];
static _Atomic uint32_t progress;
static struct ring_writer w;
static struct ring_reader r;

struct message {
    uint32_t seq;
    uint32_t number;
    uint8_t rest[56];
};

static void setup(void)
{
    memset(memory, 0, sizeof(memory));
    atomic_store(&progress, 0);
    ring_writer_init(&w, memory, CELLS, &progress);
    ring_reader_init(&r, memory, CELLS, &progress);
}

static void push(uint32_t number)
{
    struct message m = {.seq = 0xdeadbeef, .number = number};

    memset(m.rest, (int)(number & 0xff), sizeof(m.rest));
    ring_push(&w, &m);
}

static void expect(uint32_t number)
{
    struct message m;

    ck_assert(ring_ready(&r));
    ck_assert_int_eq(ring_peek(&r, &m), 1);
    ck_assert_uint_eq(m.number, number);
    for (size_t i = 0; i < sizeof(m.rest); i++)
        ck_assert_uint_eq(m.rest[i], number & 0xff);
}

START_TEST(new_ring_is_empty_and_all_free)
{
    struct message m;

    ck_assert(!ring_ready(&r));
    ck_assert_int_eq(ring_peek(&r, &m), 0);
    ck_assert_int_eq(ring_space(&w), CELLS);
}
END_TEST

START_TEST(cells_come_out_in_order_with_their_own_number)
{
    for (uint32_t i = 0; i < 5; i++)
        push(i);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(atomic_load(&memory[i].seq), i + 1);
        expect(i);
        ring_release(&r, 1);
    }
    ck_assert(!ring_ready(&r));
    ck_assert_uint_eq(atomic_load(&progress), 5);
}
END_TEST

START_TEST(peek_consumes_nothing)
{
    push(7);
    expect(7);
    expect(7);
    ck_assert_uint_eq(atomic_load(&progress), 0);
}
END_TEST

START_TEST(peek_ahead_sees_exactly_what_was_pushed)
{
    struct message m;

    for (uint32_t i = 0; i < CELLS; i++)
        push(i);
    for (uint32_t i = 0; i < CELLS; i++) {
        ck_assert_int_eq(ring_peek_ahead(&r, i, &m), 1);
        ck_assert_uint_eq(m.number, i);
    }
    ring_release(&r, 3);
    ck_assert_int_eq(ring_peek_ahead(&r, 4, &m), 1);
    ck_assert_uint_eq(m.number, 7);
    ck_assert_int_eq(ring_peek_ahead(&r, 5, &m), 0);
}
END_TEST

START_TEST(full_ring_has_no_space_until_released)
{
    for (uint32_t i = 0; i < CELLS; i++)
        push(i);
    ck_assert_int_eq(ring_space(&w), 0);
    ck_assert_uint_eq(ring_space_known(&w), 0);
    ck_assert(!ring_space_changed(&w));
    ring_release(&r, 3);
    ck_assert(ring_space_changed(&w));
    ck_assert_uint_eq(ring_space_known(&w), 0);
    ck_assert_int_eq(ring_space(&w), 3);
    ck_assert(!ring_space_changed(&w));
}
END_TEST

START_TEST(many_laps_lose_nothing)
{
    uint32_t in = 0, out = 0;

    while (out < 1000) {
        uint32_t batch = (in * 7 + 3) % (CELLS + 1);

        for (uint32_t i = 0; i < batch && ring_space(&w) > 0; i++)
            push(in++);
        while (ring_ready(&r) && (out * 5) % 3 != 2) {
            expect(out++);
            ring_release(&r, 1);
        }
        if (ring_ready(&r)) {
            expect(out++);
            ring_release(&r, 1);
        }
    }
    ck_assert_uint_eq(in - out, w.next - r.next);
}
END_TEST

/* Both positions just before 2^32, as after four billion cells. */
static void near_wrap(void)
{
    uint32_t start = 0u - 3u;

    for (uint32_t i = 0; i < CELLS; i++) {
        uint32_t n = start - CELLS + i;

        atomic_store(&memory[n % CELLS].seq, n + 1);
    }
    atomic_store(&progress, start);
    w.next = w.released = start;
    r.next = start;
    r.lapped = 1;
}

START_TEST(numbers_wrap_at_two_to_the_32)
{
    struct message m;

    near_wrap();
    ck_assert(!ring_ready(&r));
    ck_assert_int_eq(ring_peek(&r, &m), 0);
    ck_assert_int_eq(ring_space(&w), CELLS);
    for (uint32_t i = 0; i < 40; i++) {
        push(i);
        expect(i);
        ring_release(&r, 1);
        ck_assert_int_eq(ring_space(&w), CELLS);
        ck_assert(!ring_ready(&r));
        ck_assert_int_eq(ring_peek(&r, &m), 0);
    }
}
END_TEST

START_TEST(full_ring_across_the_wrap)
{
    near_wrap();
    for (uint32_t i = 0; i < CELLS; i++)
        push(i);
    ck_assert_int_eq(ring_space(&w), 0);
    for (uint32_t i = 0; i < CELLS; i++) {
        expect(i);
        ring_release(&r, 1);
    }
    ck_assert_int_eq(ring_space(&w), CELLS);
}
END_TEST

START_TEST(progress_ahead_of_the_writer_is_refused)
{
    push(1);
    atomic_store(&progress, 2);
    ck_assert_int_eq(ring_space(&w), -EPROTO);
    atomic_store(&progress, 0x80000000u);
    ck_assert_int_eq(ring_space(&w), -EPROTO);
    atomic_store(&progress, UINT32_MAX);
    ck_assert_int_eq(ring_space(&w), -EPROTO);
}
END_TEST

START_TEST(progress_that_goes_back_is_refused)
{
    push(1);
    push(2);
    atomic_store(&progress, 2);
    ck_assert_int_eq(ring_space(&w), CELLS);
    atomic_store(&progress, 1);
    ck_assert_int_eq(ring_space(&w), -EPROTO);
}
END_TEST

START_TEST(every_wrong_progress_is_refused)
{
    for (uint32_t i = 0; i < 5; i++)
        push(i);
    atomic_store(&progress, 2);
    ck_assert_int_eq(ring_space(&w), CELLS - 3);
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t wild = i * 2654435761u;

        atomic_store(&progress, wild);
        if (wild < 2 || wild > 5)
            ck_assert_int_eq(ring_space(&w), -EPROTO);
    }
}
END_TEST

START_TEST(garbage_sequence_numbers_are_refused)
{
    static const uint32_t garbage[] = {2, 3, CELLS, CELLS + 1, UINT32_MAX, 0x80000000u};
    struct message m;

    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        atomic_store(&memory[0].seq, garbage[i]);
        ck_assert(ring_ready(&r)); /* a spinning reader must look at the cell */
        ck_assert_int_eq(ring_peek(&r, &m), -EPROTO);
    }
}
END_TEST

START_TEST(zero_is_garbage_after_the_first_lap)
{
    struct message m;

    for (uint32_t i = 0; i < CELLS; i++) {
        push(i);
        ring_release(&r, 1);
    }
    ck_assert_int_eq(ring_peek(&r, &m), 0);
    memset(memory, 0, sizeof(memory)); /* as after a punched hole */
    ck_assert(ring_ready(&r));
    ck_assert_int_eq(ring_peek(&r, &m), -EPROTO);
}
END_TEST

START_TEST(a_cell_two_laps_old_is_garbage)
{
    struct message m;

    for (uint32_t i = 0; i < 2 * CELLS; i++) {
        push(i);
        ring_release(&r, 1);
        ck_assert_int_ge(ring_space(&w), 1);
    }
    atomic_store(&memory[0].seq, 1);
    ck_assert_int_eq(ring_peek(&r, &m), -EPROTO);
}
END_TEST

START_TEST(generation_is_live_only_while_equal)
{
    _Atomic uint32_t word = 0;

    ring_generation_start(&word, 5);
    ck_assert_uint_eq(ring_generation(&word), 5);
    ck_assert(ring_generation_live(&word, 5));
    ck_assert(!ring_generation_live(&word, 4));
    ring_generation_start(&word, 6);
    ck_assert(!ring_generation_live(&word, 5));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ring");
    TCase *valid = tcase_create("valid"), *hostile = tcase_create("hostile");

    tcase_add_checked_fixture(valid, setup, NULL);
    tcase_add_test(valid, new_ring_is_empty_and_all_free);
    tcase_add_test(valid, cells_come_out_in_order_with_their_own_number);
    tcase_add_test(valid, peek_consumes_nothing);
    tcase_add_test(valid, peek_ahead_sees_exactly_what_was_pushed);
    tcase_add_test(valid, full_ring_has_no_space_until_released);
    tcase_add_test(valid, many_laps_lose_nothing);
    tcase_add_test(valid, numbers_wrap_at_two_to_the_32);
    tcase_add_test(valid, full_ring_across_the_wrap);
    tcase_add_test(valid, generation_is_live_only_while_equal);
    suite_add_tcase(s, valid);
    tcase_add_checked_fixture(hostile, setup, NULL);
    tcase_add_test(hostile, progress_ahead_of_the_writer_is_refused);
    tcase_add_test(hostile, progress_that_goes_back_is_refused);
    tcase_add_test(hostile, every_wrong_progress_is_refused);
    tcase_add_test(hostile, garbage_sequence_numbers_are_refused);
    tcase_add_test(hostile, zero_is_garbage_after_the_first_lap);
    tcase_add_test(hostile, a_cell_two_laps_old_is_garbage);
    suite_add_tcase(s, hostile);
    return run_suite(s);
}
