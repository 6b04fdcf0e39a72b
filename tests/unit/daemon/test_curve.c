/* The curve of what passes take: learned from any order of sizes, kept in the shape that passes have, read both ways. */
#include "daemon/policy/curve.h"

#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>

/* Rows that each bring their experts' weights, until nearly all are read: in us. */
static uint64_t experts_ns(uint32_t rows)
{
    double read = 400;

    for (uint32_t i = 0; i < rows; i++)
        read *= 15.0 / 16;
    return (uint64_t)((400 - read) * 1000) + 3500 * (uint64_t)rows;
}

static uint64_t dense_ns(uint32_t rows)
{
    return rows > 20 ? 800 * (uint64_t)rows : 16000;
}

static struct curve learned(uint64_t (*ns)(uint32_t), uint32_t most)
{
    struct curve curve = {0};

    for (int round = 0; round < 40; round++)
        for (uint32_t rows = 1; rows <= most; rows *= 2)
            curve_measured(&curve, rows, ns(rows));
    return curve;
}

START_TEST(nothing_is_known_at_first)
{
    struct curve curve = {0};

    ck_assert(!curve_known(&curve, 1));
    ck_assert_uint_eq(curve_ns(&curve, 7), 0);
    ck_assert_uint_eq(curve_rows(&curve, 1000000), 0);
    curve_measured(&curve, 24, 1000);
    ck_assert(curve_known(&curve, 1) && curve_known(&curve, 16) && curve_known(&curve, 32));
    ck_assert(!curve_known(&curve, 64));
}
END_TEST

START_TEST(sizes_between_are_on_a_line)
{
    struct curve curve = {0};

    curve_measured(&curve, 16, 15999);
    ck_assert_uint_eq(curve_ns(&curve, 0), 0);
    ck_assert_uint_eq(curve_ns(&curve, 4), 4000);   /* its cost a row */
    ck_assert_uint_eq(curve_ns(&curve, 64), 64000); /* likewise */
    curve_measured(&curve, 64, 31999);
    ck_assert_uint_eq(curve_ns(&curve, 40), 24000);
    ck_assert_uint_eq(curve_ns(&curve, 256), 96000); /* on the line through the last two */
    ck_assert_uint_eq(curve_ns(&curve, 4), 4000);
    ck_assert_uint_eq(curve_ns(&curve, 16), curve.ns[4]);
    ck_assert_uint_eq(curve_ns(&curve, 64), curve.ns[6]);
}
END_TEST

START_TEST(both_shapes_are_learned)
{
    struct curve experts = learned(experts_ns, 512), dense = learned(dense_ns, 512);

    for (uint32_t rows = 1; rows <= 1024; rows += 7) {
        uint64_t thought = curve_ns(&experts, rows), real = experts_ns(rows);
        ck_assert_uint_le(thought, real + real / 8);
        ck_assert_uint_ge(thought + real / 8, real);
        thought = curve_ns(&dense, rows), real = dense_ns(rows);
        ck_assert_uint_le(thought, real + real / 4);
        ck_assert_uint_ge(thought + real / 4, real);
    }
}
END_TEST

START_TEST(rows_are_the_most_that_fit)
{
    struct curve curve = learned(experts_ns, 512);

    for (uint64_t ns = 1000; ns < 3000000; ns += 7919) {
        uint32_t rows = curve_rows(&curve, ns);
        ck_assert_uint_le(curve_ns(&curve, rows), ns);
        ck_assert(rows == 1024 || curve_ns(&curve, rows + 1) > ns);
    }
}
END_TEST

/* What was never tried is tried at twice the size, not at once. */
START_TEST(unknown_sizes_are_approached_by_doubling)
{
    struct curve curve = {0};
    uint32_t tried = 64;

    for (int i = 0; i < 3; i++, tried *= 2) {
        curve_measured(&curve, tried, 1000);
        ck_assert_uint_eq(curve_rows(&curve, UINT64_MAX / 2), 2 * tried);
    }
}
END_TEST

START_TEST(worthwhile_is_where_rows_are_not_far_dearer)
{
    struct curve curve = learned(experts_ns, 512);
    uint32_t rows = curve_worthwhile(&curve);

    ck_assert_uint_ge(rows, 64);
    ck_assert_uint_le(rows, 128);
    curve = learned(dense_ns, 512);
    ck_assert_uint_le(curve_worthwhile(&curve), 16);
}
END_TEST

/* Whatever was measured in whatever order: more rows no less, twice the rows at most twice. */
START_TEST(the_shape_holds_after_any_measurements)
{
    uint32_t state = 0x5eed + (uint32_t)_i;
    struct curve curve = {0};

    for (int i = 0; i < 2000; i++) {
        curve_measured(&curve, 1 + random_below(&state, 4096), random_below(&state, 1000000000));
        uint64_t before = 0;
        for (uint32_t rows = 1; rows <= 4096; rows += 1 + rows / 8) {
            uint64_t ns = curve_ns(&curve, rows);
            ck_assert_uint_ge(ns, before);
            before = ns;
        }
        for (uint32_t rows = 1; rows <= 2048; rows *= 2)
            ck_assert_uint_le(curve_ns(&curve, 2 * rows), 2 * curve_ns(&curve, rows) + 2);
    }
}
END_TEST

/* A machine that became slower is believed at all sizes once the few that still occur say so. */
START_TEST(sizes_that_no_longer_occur_follow)
{
    struct curve curve = learned(dense_ns, 512);

    for (int i = 0; i < 60; i++)
        curve_measured(&curve, 64, 10 * dense_ns(64));
    ck_assert_uint_ge(curve_ns(&curve, 512), 9 * dense_ns(64));
    ck_assert_uint_ge(curve_ns(&curve, 16), 2 * dense_ns(64));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("curve");
    TCase *t = tcase_create("curve");

    tcase_add_test(t, nothing_is_known_at_first);
    tcase_add_test(t, sizes_between_are_on_a_line);
    tcase_add_test(t, both_shapes_are_learned);
    tcase_add_test(t, rows_are_the_most_that_fit);
    tcase_add_test(t, unknown_sizes_are_approached_by_doubling);
    tcase_add_test(t, worthwhile_is_where_rows_are_not_far_dearer);
    tcase_add_loop_test(t, the_shape_holds_after_any_measurements, 0, 4);
    tcase_add_test(t, sizes_that_no_longer_occur_follow);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
