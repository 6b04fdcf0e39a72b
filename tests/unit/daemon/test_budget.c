/* What context and how many KV pages follow from memory and options. */
#include "daemon/policy/budget.h"

#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define GIB (1ull << 30)
#define MIB (1ull << 20)

static char err[256];

/* 30B-A3B in Q4_K_M on a machine of 24 GB: a page of 32 positions, 48 layers, 4 heads of 128. */
static struct budget_facts large(void)
{
    return (struct budget_facts){.available = 22 * GIB,
                                 .loaded = 18 * GIB,
                                 .page = 3 * MIB,
                                 .positions = 32,
                                 .model_context = 262144,
                                 .slots = 64};
}

static struct budget choose(const struct budget_facts *f)
{
    struct budget b;
    int rc = budget_choose(f, &b, err, sizeof(err));
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    return b;
}

START_TEST(what_weights_leave_is_context)
{
    struct budget_facts f = large();
    struct budget b = choose(&f); /* 3 GiB: 1024 pages */
    ck_assert_uint_eq(b.pages, 1024);
    ck_assert_uint_eq(b.context, 32768);
    f.available += 100 * MIB; /* 25 pages more, 800 positions: no whole step */
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 1049);
    ck_assert_uint_eq(b.context, 32768);
}
END_TEST

START_TEST(a_small_model_has_its_context_in_all_slots)
{
    struct budget_facts f = large();
    f.loaded = GIB;
    f.page = MIB / 32;
    f.model_context = 2048;
    struct budget b = choose(&f);
    ck_assert_uint_eq(b.context, 2048);
    ck_assert_uint_eq(b.pages, 64 * 64);
    f.model_context = 40; /* no whole page */
    b = choose(&f);
    ck_assert_uint_eq(b.context, 40);
    ck_assert_uint_eq(b.pages, 64 * 2);
}
END_TEST

START_TEST(too_little_memory_leaves_the_least_context)
{
    struct budget_facts f = large();
    f.available = 10 * GIB; /* the weights alone do not fit */
    struct budget b = choose(&f);
    ck_assert_uint_eq(b.context, BUDGET_LEAST_CONTEXT);
    ck_assert_uint_eq(b.pages, BUDGET_LEAST_CONTEXT / 32);
    f.model_context = 1000;
    b = choose(&f);
    ck_assert_uint_eq(b.context, 1000);
    ck_assert_uint_eq(b.pages, 32);
}
END_TEST

START_TEST(options_win)
{
    struct budget_facts f = large();
    f.context = 131072; /* more than fits: one context all the same */
    struct budget b = choose(&f);
    ck_assert_uint_eq(b.context, 131072);
    ck_assert_uint_eq(b.pages, 4096);
    f.context = 300000; /* more than the model's */
    ck_assert_uint_eq(choose(&f).context, 300000);
    f = large();
    f.kv_bytes = 6 * GIB; /* more than there is */
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 2048);
    ck_assert_uint_eq(b.context, 65536);
    f.context = 8192;
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 2048);
    ck_assert_uint_eq(b.context, 8192);
}
END_TEST

START_TEST(kv_bytes_out_of_range_are_refused)
{
    struct budget_facts f = large();
    struct budget b;
    f.kv_bytes = 128 * f.page - 1;
    ck_assert_int_eq(budget_choose(&f, &b, err, sizeof(err)), -EINVAL);
    ck_assert_msg(strstr(err, "context of 4096 needs 128: give at least 402653184") != NULL, "%s",
                  err);
    f.kv_bytes++;
    ck_assert_uint_eq(choose(&f).pages, 128);
    f.page = 1;
    f.kv_bytes = 1ull << 32;
    ck_assert_int_eq(budget_choose(&f, &b, err, sizeof(err)), -EINVAL);
    ck_assert_msg(strstr(err, "give at most 134217727") != NULL, "%s", err);
}
END_TEST

static void check_least(struct budget_facts f)
{
    struct budget b;
    f.kv_bytes = budget_least_bytes(&f);
    choose(&f);
    f.kv_bytes--;
    ck_assert_int_eq(budget_choose(&f, &b, err, sizeof(err)), -EINVAL);
}

START_TEST(the_least_is_taken_and_no_less)
{
    struct budget_facts f = large();
    check_least(f);
    f.context = 8192;
    check_least(f);
    f.context = 0;
    f.model_context = 1000;
    check_least(f);
    f = large();
    f.window = 2 * MIB;
    f.pass = 40;
    check_least(f);
    f.state = 7 * MIB;
    check_least(f);
}
END_TEST

START_TEST(no_facts_give_more_pages_than_there_can_be)
{
    struct budget_facts f = large();
    f.page = 1;
    f.loaded = 0;
    f.model_context = 1 << 22;
    f.slots = 1024;
    f.available = 1ull << 46;
    ck_assert_uint_eq(choose(&f).pages, UINT32_MAX / 32);
}
END_TEST

START_TEST(the_choice_is_one_line)
{
    struct budget_facts f = large();
    struct budget b = choose(&f);
    char text[256];
    budget_describe(&f, &b, text, sizeof(text));
    ck_assert_str_eq(text, "context 32768 of the model's 262144, 3.0 GiB for KV: weights and "
                           "scratch take 18.0 of 22.0 GiB available");
    f.context = 4096;
    f.kv_bytes = GIB;
    b = choose(&f);
    budget_describe(&f, &b, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "; context as asked for; KV as asked for"));
}
END_TEST

/* gemma-3-27b's shape: most of a page is of layers that see 1024 positions. */
static struct budget_facts windowed(void)
{
    struct budget_facts f = large();
    f.page = 16 * MIB;
    f.window = 13 * MIB;
    f.pass = 49;
    f.model_context = 131072;
    return f;
}

START_TEST(windows_leave_room_for_context)
{
    struct budget_facts f = windowed();
    struct budget b = choose(&f);        /* 3 GiB: 192 pages without them */
    ck_assert_uint_eq(b.context, 25600); /* (3072 - 49 * 13) / 3 pages, whole steps */
    ck_assert_uint_ge(b.pages, 800);
    ck_assert_uint_ge(b.window_pages, 49);
    ck_assert_uint_le(b.pages * 3 + b.window_pages * 13, 3072);
}
END_TEST

START_TEST(half_of_the_rest_goes_to_window_pages_up_to_four_passes_a_slot)
{
    struct budget_facts f = windowed();
    struct budget b;
    f.context = 32768;
    f.kv_bytes = 1024 * 3 * MIB + 49 * 13 * MIB; /* the least */
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 1024);
    ck_assert_uint_eq(b.window_pages, 49);
    f.kv_bytes += 2 * 390 * MIB;
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 1024 + 130);
    ck_assert_uint_eq(b.window_pages, 49 + 30);
    f.slots = 1;
    f.kv_bytes = 100 * GIB;
    ck_assert_uint_eq(choose(&f).window_pages, 4 * 49);
    f.kv_bytes = 1024 * 3 * MIB + 49 * 13 * MIB - 1;
    ck_assert_int_eq(budget_choose(&f, &b, err, sizeof(err)), -EINVAL);
    ck_assert_msg(strstr(err, "needs 1024 and 49 window pages: give at least 3889168384") != NULL,
                  "%s", err);
}
END_TEST

START_TEST(a_context_no_longer_than_a_pass_has_one_class_of_pages)
{
    struct budget_facts f = windowed();
    f.context = 49 * 32;
    struct budget b = choose(&f);
    ck_assert_uint_eq(b.window_pages, 0);
    ck_assert_uint_eq(b.pages, 192);
    f.context++;
    ck_assert_uint_ge(choose(&f).window_pages, 49);
}
END_TEST

/* Qwen3.5-9B's shape: a page of 32 positions is 1 MiB, a state with its records 68. */
static struct budget_facts recurrent(void)
{
    struct budget_facts f = large();
    f.page = MIB;
    f.state = 68 * MIB;
    return f;
}

START_TEST(a_context_comes_with_the_states_of_its_text)
{
    struct budget_facts f = recurrent();
    struct budget b = choose(&f); /* 3 GiB */
    ck_assert_uint_eq(b.context, (3072 - 5 * 68) / 32 * 1024);
    ck_assert_uint_eq(b.states, 5);
    ck_assert_uint_eq(b.pages, 3072 - 5 * 68);
    f.available = f.loaded; /* nothing is left: the least all the same */
    b = choose(&f);
    ck_assert_uint_eq(b.context, BUDGET_LEAST_CONTEXT);
    ck_assert_uint_eq(b.states, 5);
    f.slots = 2; /* all that slots can fill */
    f.available = 100 * GIB;
    b = choose(&f);
    ck_assert_uint_eq(b.states, 10);
    ck_assert_uint_eq(b.pages, 2 * 262144 / 32);
    char text[256];
    budget_describe(&f, &b, text, sizeof(text)); /* 16384 + 680 MiB */
    ck_assert_ptr_nonnull(strstr(text, "16.7 GiB for KV"));
}
END_TEST

START_TEST(half_of_the_rest_goes_to_states_up_to_a_text_s_for_each_slot)
{
    struct budget_facts f = recurrent();
    struct budget b;
    f.context = 8192;
    f.kv_bytes = (256 + 5 * 68) * MIB - 1;
    ck_assert_int_eq(budget_choose(&f, &b, err, sizeof(err)), -EINVAL);
    ck_assert_msg(strstr(err, "needs 256 and 5 states of 71303168 bytes: give at least 624951296"),
                  "%s", err);
    f.kv_bytes++;
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 256);
    ck_assert_uint_eq(b.states, 5);
    f.kv_bytes += 680 * MIB;
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 256 + 340);
    ck_assert_uint_eq(b.states, 10);
    f.slots = 1;
    b = choose(&f);
    ck_assert_uint_eq(b.pages, 256 + 680);
    ck_assert_uint_eq(b.states, 5);
}
END_TEST

START_TEST(experts_that_do_not_fit_leave_a_quarter_for_kv)
{
    struct budget_facts f = large();
    f.experts = 15 * GIB;
    ck_assert_uint_eq(budget_leave_out(&f), 0); /* all fit */
    f.available = 18 * GIB + 384 * MIB;
    ck_assert_uint_eq(budget_leave_out(&f), 0); /* with the least context */
    f.available -= 1;
    const uint64_t kept = f.available - f.available / 4;
    ck_assert_uint_eq(budget_leave_out(&f), 18 * GIB - kept);
    ck_assert_uint_eq(f.loaded, kept);
    ck_assert_uint_eq(choose(&f).context, 36 * 1024); /* 3/4 of 4.6 GiB are 1,175 pages */
    f = large();
    f.experts = 15 * GIB;
    f.available = 2 * GIB;
    ck_assert_uint_eq(budget_leave_out(&f), 15 * GIB); /* no more than there are */
    ck_assert_uint_eq(f.loaded, 3 * GIB);
    f = large();
    f.available = 18 * GIB;
    ck_assert_uint_eq(budget_leave_out(&f), 0); /* there are none */
    ck_assert_uint_eq(f.loaded, 18 * GIB);
}
END_TEST

START_TEST(kv_that_was_asked_for_is_beside_experts_that_fit)
{
    struct budget_facts f = large();
    f.experts = 15 * GIB;
    f.context = 65536; /* 6 GiB */
    ck_assert_uint_eq(budget_leave_out(&f), 2 * GIB);
    f = large();
    f.experts = 15 * GIB;
    f.context = 32768; /* 3 GiB */
    ck_assert_uint_eq(budget_leave_out(&f), 0);
    f.kv_bytes = 5 * GIB;
    ck_assert_uint_eq(budget_leave_out(&f), GIB);
    f.kv_bytes = 64 * GIB; /* which the device will refuse */
    ck_assert_uint_eq(budget_leave_out(&f), 15 * GIB);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("budget");
    TCase *t = tcase_create("budget");
    tcase_add_test(t, what_weights_leave_is_context);
    tcase_add_test(t, a_small_model_has_its_context_in_all_slots);
    tcase_add_test(t, too_little_memory_leaves_the_least_context);
    tcase_add_test(t, options_win);
    tcase_add_test(t, kv_bytes_out_of_range_are_refused);
    tcase_add_test(t, the_least_is_taken_and_no_less);
    tcase_add_test(t, no_facts_give_more_pages_than_there_can_be);
    tcase_add_test(t, the_choice_is_one_line);
    tcase_add_test(t, windows_leave_room_for_context);
    tcase_add_test(t, half_of_the_rest_goes_to_window_pages_up_to_four_passes_a_slot);
    tcase_add_test(t, a_context_comes_with_the_states_of_its_text);
    tcase_add_test(t, half_of_the_rest_goes_to_states_up_to_a_text_s_for_each_slot);
    tcase_add_test(t, a_context_no_longer_than_a_pass_has_one_class_of_pages);
    tcase_add_test(t, experts_that_do_not_fit_leave_a_quarter_for_kv);
    tcase_add_test(t, kv_that_was_asked_for_is_beside_experts_that_fit);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
