/* The mailbox between the two threads: order, fullness, its bell, and two threads at full speed. */
#include "daemon/engine/mailbox.h"
#include "tests/run_suite.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { CAPACITY = 16, MESSAGES = 200000 };

static struct mailbox box;

static void setup(void)
{
    ck_assert_int_eq(mailbox_init(&box, CAPACITY), 0);
}

static void teardown(void)
{
    mailbox_fini(&box);
}

static bool post(uint32_t number)
{
    struct mail mail = {.kind = MAIL_WAKE,
                        .n_wakes = (uint16_t)(number % 7),
                        .error = (int32_t)number,
                        .clients = {(struct client *)(uintptr_t)(number + 1)}};

    return mailbox_post(&box, &mail);
}

static void expect(uint32_t number)
{
    struct mail mail;

    ck_assert(mailbox_take(&box, &mail));
    ck_assert_uint_eq(mail.kind, MAIL_WAKE);
    ck_assert_uint_eq(mail.n_wakes, number % 7);
    ck_assert_int_eq(mail.error, (int32_t)number);
    ck_assert_uint_eq((uintptr_t)mail.clients[0], number + 1);
}

START_TEST(a_new_box_is_empty)
{
    struct mail mail;

    ck_assert(!mailbox_ready(&box));
    ck_assert(!mailbox_take(&box, &mail));
    ck_assert_uint_eq(mailbox_room(&box), CAPACITY);
}
END_TEST

START_TEST(messages_come_in_order_for_many_laps)
{
    uint32_t in = 0, out = 0;

    while (out < 1000) {
        for (uint32_t i = 0; i <= in % CAPACITY && post(in); i++)
            in++;
        ck_assert(mailbox_ready(&box));
        while (out < in)
            expect(out++);
        ck_assert(!mailbox_ready(&box));
    }
}
END_TEST

START_TEST(a_full_box_refuses_and_loses_nothing)
{
    for (uint32_t i = 0; i < CAPACITY; i++) {
        ck_assert_uint_eq(mailbox_room(&box), CAPACITY - i);
        ck_assert(post(i));
    }
    ck_assert_uint_eq(mailbox_room(&box), 0);
    ck_assert(!post(99));
    for (uint32_t i = 0; i < CAPACITY; i++)
        expect(i);
    ck_assert_uint_eq(mailbox_room(&box), CAPACITY);
}
END_TEST

START_TEST(the_bell_is_readable_once_rung)
{
    struct pollfd p = {.fd = box.event_fd, .events = POLLIN};

    post(1);
    ck_assert_int_eq(poll(&p, 1, 0), 0); /* posting is not ringing */
    mailbox_ring(&box);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    for (int i = 0; i < 1000; i++)
        mailbox_ring(&box); /* never read, and it never blocks */
}
END_TEST

static void *posting(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < MESSAGES;)
        if (post(i))
            i++;
        else
            sched_yield();
    return NULL;
}

START_TEST(two_threads_lose_nothing)
{
    pthread_t thread;
    struct mail mail;

    ck_assert_int_eq(pthread_create(&thread, NULL, posting, NULL), 0);
    for (uint32_t i = 0; i < MESSAGES;) {
        if (!mailbox_take(&box, &mail)) {
            sched_yield();
            continue;
        }
        if (mail.error != (int32_t)i || (uintptr_t)mail.clients[0] != i + 1)
            ck_abort_msg("message %u is %d", i, mail.error);
        i++;
    }
    pthread_join(thread, NULL);
    ck_assert(!mailbox_ready(&box));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mailbox");
    TCase *t = tcase_create("mailbox");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_new_box_is_empty);
    tcase_add_test(t, messages_come_in_order_for_many_laps);
    tcase_add_test(t, a_full_box_refuses_and_loses_nothing);
    tcase_add_test(t, the_bell_is_readable_once_rung);
    tcase_add_test(t, two_threads_lose_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
