/* Attach, detach, wake and stop between the daemon's two threads: mailbox.c and attached.c as they
 * are, beside the control thread's half. A client's memory is freed when MAIL_DETACHED was
 * taken; a message that must not be lost finds room, however late the control thread looks. */
#include "tests/model/shim.h"

#define ENGINE_WAKES 1 /* so that two clients are enough for hand-overs */
#include "daemon/engine/attached.c"

enum { CLIENTS = 3, BOX = 8 };

static struct mailbox *to_engine, *to_control;
static struct client clients[CLIENTS];
static struct client_user users[CLIENTS];
static _Alignas(IPC_LINE) uint8_t up[CLIENTS][IPC_LINE]; /* tickets: written by hand */
static uint8_t *down[CLIENTS];                           /* what the control thread unmaps */
static struct ctl ctl;

static void setup(void)
{
    static const char *const names[CLIENTS] = {"client 0", "client 1", "client 2"};

    to_engine = model_alloc(sizeof(*to_engine));
    to_control = model_alloc(sizeof(*to_control));
    mailbox_init(to_engine, BOX);
    mailbox_init(to_control, BOX);
    memset(clients, 0, sizeof(clients));
    memset(users, 0, sizeof(users));
    for (int i = 0; i < CLIENTS; i++) {
        down[i] = model_alloc(sizeof(struct down_head));
        clients[i] = (struct client){
            .state = CLIENT_ATTACHED,
            .segment = {.limits = {.submit_cells = 4}, .up = up[i], .down = down[i]},
        };
        model_name(down[i], sizeof(struct down_head), names[i]);
    }
    model_name(to_engine->cells, BOX * IPC_LINE, "to engine");
    model_name(&to_engine->progress, 4, "to engine, progress");
    model_name(to_control->cells, BOX * IPC_LINE, "to control");
    model_name(&to_control->progress, 4, "to control, progress");
}

/* ---- the engine thread: what its messages do besides ----------------------------------------- */

static void touch(const struct client *client)
{
    uint32_t word;

    memcpy(&word, client->segment.down + IPC_LINE, sizeof(word));
    model_expect(word == 0, "a client that was freed is used");
}

int loop_add_poll(struct loop *loop, int fd, short events, uint64_t cookie)
{
    (void)loop, (void)fd, (void)events, (void)cookie;
    return 0;
}

void loop_remove(struct loop *loop, int fd, uint64_t cookie)
{
    (void)loop, (void)fd, (void)cookie;
}

/* What the engine has besides clients does not change: no client has a slot. */
static struct slots slots;
static struct drafters drafters;
static const struct loaded_model loaded;

static const struct attached *known; /* the engine's */

/* All that the engine thread knows here: without what it read on the way there. */
static void know_engine(const struct attached *c)
{
    model_forget();
    model_know(&to_control->writer, sizeof(to_control->writer));
    model_know(&to_engine->reader, sizeof(to_engine->reader));
    model_know(&c->n, sizeof(c->n));
    model_know(c->all, c->n * sizeof(*c->all));
    model_know(&c->n_failed, sizeof(c->n_failed));
    model_know(c->failed, c->n_failed * sizeof(*c->failed));
    for (int i = 0; i < CLIENTS; i++)
        model_know(&clients[i].error, sizeof(clients[i].error));
}

void gauges_slots(const struct slots *all, const struct backend_info *info, struct ctl *counters)
{
    (void)all, (void)info, (void)counters;
    know_engine(known); /* the last thing before MAIL_DETACHED */
}

bool waker_hand(struct client *client, int way) /* no user is in debt */
{
    (void)client, (void)way;
    return false;
}

uint64_t waker_wake(struct client *client, int way, uint64_t (*cpu_ns)(void))
{
    (void)cpu_ns;
    client_wake(client, way);
    return 0;
}

void answer_ends(struct slots *slots, struct attached *c, const struct loaded_model *loaded,
                 uint64_t now_ns)
{
    (void)slots, (void)c, (void)loaded, (void)now_ns;
}

void request_end(struct slots *slots, struct slot *slot, enum done_reason reason, int error,
                 const char *text)
{
    (void)slots, (void)slot, (void)reason, (void)error, (void)text;
}

void request_end_all(struct slots *slots, int error, const char *text)
{
    (void)slots, (void)error, (void)text;
}

void drafters_forget(struct drafters *drafters, struct slot *slot)
{
    (void)drafters, (void)slot;
}

void slot_clear(struct slot *slot, struct prefix *prefix, uint32_t context)
{
    (void)slot, (void)prefix, (void)context;
}

static struct client *all[CLIENTS], *failed[CLIENTS];
static struct client_due due[CLIENTS];

static struct attached attached_new(void)
{
    return (struct attached){
        .ctl = &ctl,
        .inbox = to_engine,
        .outbox = to_control,
        .n_most = CLIENTS,
        .all = all,
        .failed = failed,
        .due = due,
        .users = users,
    };
}

/* A pass: every client sleeps, with a new ticket, has news, and is woken. */
static void pass(struct attached *c, uint32_t ticket)
{
    for (uint32_t i = 0; i < c->n; i++) {
        touch(c->all[i]);
        *(uint32_t *)(void *)c->all[i]->segment.up = ticket << 1 | BELL_NOTIFY;
        attached_news(c, c->all[i]);
    }
    attached_wake(c, true, 0);
    know_engine(c);
    model_know(&ticket, sizeof(ticket));
}

static void fail_all(struct attached *c) /* their rings are garbage */
{
    for (uint32_t i = 0; i < c->n; i++) {
        touch(c->all[i]);
        attached_fail(c, c->all[i], -EPROTO);
    }
}

static void reap(struct attached *c)
{
    for (uint32_t i = 0; i < c->n_failed; i++)
        touch(c->failed[i]);
    attached_reap(c, &slots, &loaded, 0);
}

static void engine_main(void)
{
    struct attached c = attached_new();
    int late = model_mutant("mail is read before failed clients are closed");

    known = &c;
    while (!c.stopping) { /* as pass_step() */
        know_engine(&c);
        if (!mailbox_ready(to_engine) && c.n_failed == 0) /* as engine_look() */
            model_wait(1u << to_engine->event_fd);
        if (!late)
            reap(&c);
        attached_mail(&c, &slots, &drafters, &loaded, 0);
        if (late)
            reap(&c);
        fail_all(&c);
    }
    attached_post(&c, MAIL_STOPPED, NULL, 0);
}

/* Clients come, are woken, closed and let go, while the control thread looks seldom or never. */
static void engine_alone(void)
{
    struct attached c = attached_new();

    known = &c;
    if (model_mutant("places are kept for the clients that are there alone"))
        c.n_most = 2;
    attach(&c, &slots, &drafters, &clients[0]);
    attach(&c, &slots, &drafters, &clients[1]);
    for (uint32_t passes = model_choose(3, "passes"); passes > 0; passes--)
        pass(&c, passes);
    attach(&c, &slots, &drafters, &clients[2]);
    fail_all(&c);
    reap(&c);
    while (c.n > 0)
        detach(&c, &slots, &drafters, &loaded, c.all[0], 0);
    attached_post(&c, MAIL_STOPPED, NULL, 0);
}

/* ---- the control thread: as control.c -------------------------------------------------------- */

static void post(enum mail_kind kind, struct client *client)
{
    struct mail mail = {.kind = (uint16_t)kind, .clients = {client}};

    model_expect(mailbox_post(to_engine, &mail), "no room for a message to the engine");
    mailbox_ring(to_engine);
    model_forget();
    model_know(&to_engine->writer, sizeof(to_engine->writer));
    model_know(&to_control->reader, sizeof(to_control->reader));
    for (int i = 0; i < CLIENTS; i++)
        model_know(&clients[i].state, sizeof(clients[i].state));
}

static void free_client(struct client *client)
{
    static const uint8_t gone[sizeof(struct down_head)] = {[IPC_LINE] = 1};

    memcpy(client->segment.down, gone, sizeof(gone));
    client->state = CLIENT_LOOKING; /* no other message is about it */
}

static void drop(struct client *client)
{
    if (client->state != CLIENT_ATTACHED)
        return;
    client->state = CLIENT_DETACHING;
    post(MAIL_DETACH, client);
    if (model_mutant("a client is freed before the engine let go"))
        free_client(client);
}

static void do_mail(const struct mail *mail)
{
    for (uint32_t i = 0; mail->kind == MAIL_WAKE && i < mail->n_wakes; i++) {
        touch(mail->clients[i]);
        client_wake(mail->clients[i], (mail->ways >> i) & 1);
    }
    if (mail->kind == MAIL_CLOSE)
        drop(mail->clients[0]);
    if (mail->kind == MAIL_DETACHED)
        free_client(mail->clients[0]);
}

/* Returns 1 when MAIL_STOPPED was there. */
static int read_mail(void)
{
    struct mail mail;

    while (mailbox_take(to_control, &mail)) {
        do_mail(&mail);
        if (mail.kind == MAIL_STOPPED)
            return 1;
    }
    return 0;
}

static void control_main(void)
{
    post(MAIL_ATTACH, &clients[0]);
    if (model_choose(2, "looks at its mail") == 1)
        read_mail();
    drop(&clients[0]);
    post(MAIL_STOP, NULL);
    while (!read_mail())
        model_wait(1u << to_control->event_fd);
}

static void control_takes(void)
{
    struct mail mail;

    do {
        int found = mailbox_take(to_control, &mail);

        model_poll(found);
        if (mail.kind == MAIL_CLOSE) /* and detached, which the engine does by itself here */
            touch(mail.clients[0]);
        else
            do_mail(&mail);
        model_forget();
        model_know(&to_control->reader, sizeof(to_control->reader));
    } while (mail.kind != MAIL_STOPPED);
}

const struct litmus litmus_mail = {
    .name = "mail",
    .says = "no message is lost for want of room, and no freed client is used",
    .threads = {{"control", control_main}, {"engine", engine_main}},
    .setup = setup,
    .mutants = {"a client is freed before the engine let go",
                "mail is read before failed clients are closed"},
};

const struct litmus litmus_room = {
    .name = "room",
    .says = "wakes leave the place of every message that must not be lost",
    .threads = {{"engine", engine_alone}, {"control", control_takes}},
    .setup = setup,
    .mutants = {"places are kept for the clients that are there alone"},
};
