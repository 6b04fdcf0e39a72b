/* S1 S2, both ways: a reader that sleeps until there is a cell, a writer that sleeps until there is
 * room, on ipc/bell.{h,c}. No clock runs: a lost wake-up is a sleeper that stays asleep. */
#include "tests/model/shim.h"

#include "daemon/engine/mailbox.h"
#include "ipc/bell.h"

static int n_sent; /* cells in all */

static struct ring_cell *cell; /* of a ring of one */
static _Atomic uint32_t *progress, *waiting, *wake;
static struct ctl *ctl;
static int bell_fd;

static void setup(void)
{
    n_sent = 2;
    cell = model_alloc(IPC_LINE);
    progress = model_alloc(IPC_LINE);
    waiting = model_alloc(IPC_LINE);
    wake = model_alloc(IPC_LINE);
    ctl = model_alloc(sizeof(*ctl));
    bell_fd = model_eventfd();
    model_name(cell, IPC_LINE, "cell");
    model_name(progress, 4, "progress");
    model_name(waiting, 4, "waiting");
    model_name(wake, 4, "wake");
    model_name(&ctl->sleeping, 4, "sleeping");
}

static int has_cell(const void *arg)
{
    return ring_ready(arg);
}

static int has_space(const void *arg) /* as in submit.c */
{
    struct ring_writer copy = *(const struct ring_writer *)arg;

    return ring_space(&copy) != 0;
}

static void client_wait(int (*ready)(const void *), const void *arg, struct bell_sleeper *s)
{
    const struct bell_patience patience = {0};

    model_expect(bell_wait(s, ready, arg, &patience) == 0, "a wait ends for nothing");
}

/* As engine_sleep(): announce, look, wait. */
static void daemon_wait(int (*ready)(const void *), const void *arg)
{
    while (!ready(arg)) {
        bell_daemon_sleep(ctl);
        if (!ready(arg))
            model_wait(1u << bell_fd);
        bell_daemon_awake(ctl);
    }
}

/* As attached_wake() with one client: after all of the step was published. */
static void daemon_wake(struct bell_waker *waker)
{
    bell_fence();
    if (bell_due(waker) == BELL_FUTEX)
        bell_wake(wake);
}

static void take_cell(struct ring_reader *r)
{
    uint32_t copy[IPC_LINE / 4];

    model_expect(ring_peek(r, copy) == 1, "what was ready is not there");
    ring_release(r, 1);
}

static void put_cell(struct ring_writer *w)
{
    uint32_t copy[IPC_LINE / 4] = {0};

    model_expect(ring_space(w) == 1, "what was free is not");
    ring_push(w, copy);
}

static void client_reads(void)
{
    struct bell_sleeper s;
    struct ring_reader r;

    bell_sleeper_init(&s, wake, waiting, -1, -1);
    ring_reader_init(&r, cell, 1, progress);
    for (int i = 0; i < n_sent; i++) {
        client_wait(has_cell, &r, &s);
        take_cell(&r);
        bell_ring(ctl, bell_fd);
    }
}

static void daemon_answers(void)
{
    struct bell_waker waker;
    struct ring_writer w;

    bell_waker_init(&waker, waiting, wake, -1);
    ring_writer_init(&w, cell, 1, progress);
    for (int i = 0; i < n_sent; i++) {
        daemon_wait(has_space, &w);
        put_cell(&w);
        daemon_wake(&waker);
    }
}

static void client_submits(void)
{
    struct bell_sleeper s;
    struct ring_writer w;

    bell_sleeper_init(&s, wake, waiting, -1, -1);
    ring_writer_init(&w, cell, 1, progress);
    for (int i = 0; i < n_sent; i++) {
        client_wait(has_space, &w, &s);
        put_cell(&w);
        bell_ring(ctl, bell_fd);
    }
}

static void daemon_ingests(void)
{
    struct bell_waker waker;
    struct ring_reader r;

    bell_waker_init(&waker, waiting, wake, -1);
    ring_reader_init(&r, cell, 1, progress);
    for (int i = 0; i < n_sent; i++) {
        daemon_wait(has_cell, &r);
        take_cell(&r);
        daemon_wake(&waker);
    }
}

/* ---- the system call made by the control thread ----------------------------------------------- */

static struct mailbox *box;

static void setup_hand(void)
{
    setup();
    n_sent = 1;
    box = model_alloc(sizeof(*box));
    mailbox_init(box, 2);
    model_name(box->cells, 2 * IPC_LINE, "mail");
    model_name(&box->progress, 4, "mail, progress");
}

static void engine_hands_on(void)
{
    struct bell_waker waker;
    struct ring_writer w;

    bell_waker_init(&waker, waiting, wake, -1);
    ring_writer_init(&w, cell, 1, progress);
    for (int i = 0; i < n_sent; i++) {
        struct mail mail = {.kind = MAIL_WAKE};

        daemon_wait(has_space, &w);
        put_cell(&w);
        bell_fence();
        if (bell_due(&waker) == BELL_FUTEX) {
            model_expect(mailbox_post(box, &mail), "the mailbox is full");
            mailbox_ring(box);
        }
    }
    struct mail last = {.kind = MAIL_STOPPED};
    model_poll(mailbox_room(box) > 0);
    mailbox_post(box, &last);
    mailbox_ring(box);
}

static void control_wakes(void)
{
    struct mail mail = {.kind = MAIL_WAKE};

    while (mail.kind != MAIL_STOPPED) {
        while (!mailbox_take(box, &mail))
            model_wait(1u << box->event_fd);
        if (mail.kind == MAIL_WAKE)
            bell_wake(wake);
    }
}

const struct litmus litmus_hand = {
    .name = "hand",
    .says = "a client goes on that another thread wakes than the one which found it asleep",
    .threads = {{"client", client_reads}, {"engine", engine_hands_on}, {"control", control_wakes}},
    .setup = setup_hand,
};

const struct litmus litmus_answer = {
    .name = "answer",
    .says = "a client that waits for events and a daemon that waits for room both go on",
    .threads = {{"client", client_reads}, {"daemon", daemon_answers}},
    .setup = setup,
};

const struct litmus litmus_space = {
    .name = "space",
    .says = "a client that waits for room and a daemon that waits for requests both go on",
    .threads = {{"client", client_submits}, {"daemon", daemon_ingests}},
    .setup = setup,
};
