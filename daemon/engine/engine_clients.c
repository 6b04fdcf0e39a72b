/* The engine and its clients: in and out, mail of the control thread, and waking those that sleep. */
#include "daemon/engine/engine_impl.h"

#include "ipc/bell.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

void engine_post(struct engine *engine, enum mail_kind kind, struct client *client, int error)
{
    struct mail mail = {.kind = (uint16_t)kind, .error = error, .clients = {client}};
    bool posted = mailbox_post(engine->options.outbox, &mail);

    /* Sized for every message that can be on its way at once (mailbox.h). */
    assert(posted);
    (void)posted;
    mailbox_ring(engine->options.outbox);
}

void engine_close_client(struct engine *engine, struct client *client, int error)
{
    if (client->closing)
        return;
    client->closing = true;
    counters_add(engine->options.ctl, error == -EFAULT ? COUNTER_SIGBUS : COUNTER_PROTOCOL_ERRORS,
                 1);
    for (uint32_t i = 0; i < client->n_slots; i++)
        if (client->slots[i]->active)
            answer_end(engine, client->slots[i], DONE_ERROR, error, "");
    engine_post(engine, MAIL_CLOSE, client, error);
}

/* How many parked slots are this user's? */
static uint32_t engine_parked(const struct engine *engine, uid_t uid)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        n += !slot->client && slot->name[0] && slot->uid == uid;
    }
    return n;
}

/* Of the user who has the most parked slots the one unused the longest: nobody's names push out another
 * user's, who has fewer. NULL: none is parked. */
static struct slot *engine_longest_parked(struct engine *engine)
{
    struct slot *found = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->client || !slot->name[0])
            continue;
        uint32_t n = found && slot->uid == found->uid ? most : engine_parked(engine, slot->uid);
        if (n > most || (n == most && slot->last_used < found->last_used)) {
            found = slot;
            most = n;
        }
    }
    return found;
}

/* A slot for the client: its own parked one, else a free one, else one that is parked. */
static struct slot *engine_find_slot(struct engine *engine, const struct client *client,
                                     const char *name)
{
    struct slot *free_slot = NULL;

    for (uint32_t i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->client)
            continue;
        if (!slot->name[0])
            free_slot = free_slot ? free_slot : slot;
        else if (name[0] && slot->uid == client->uid && !strcmp(slot->name, name))
            return slot;
    }
    if (free_slot)
        return free_slot;
    struct slot *parked = engine_longest_parked(engine);
    assert(parked); /* the control thread admits no more clients than there are slots */
    draft_forget(engine, parked);
    slot_clear(parked, &engine->prefix, engine->context);
    return parked;
}

void engine_listen(struct engine *engine, struct client *client)
{
    client->idle_rings = 0;
    if (!client->bell_polled && engine->loop)
        client->bell_polled =
            loop_add_poll(engine->loop, client->bell_fd, POLLIN, (uintptr_t)client) == 0;
}

static void engine_attach(struct engine *engine, struct client *client)
{
    const struct segment *segment = &client->segment;

    segment_submit_reader(segment, &client->submit);
    bell_waker_init(&client->waker, &segment_up_head(segment)->waiting,
                    &segment_down_head(segment)->wake, client->notify_fd);
    for (uint32_t i = 0; i < client->n_slots; i++) {
        const char *name = i == 0 ? client->name : "";
        struct slot *slot = engine_find_slot(engine, client, name);
        slot->client = client;
        slot->ring = i;
        slot->uid = client->uid;
        slot->same = 0;
        snprintf(slot->name, sizeof(slot->name), "%s", name);
        client->slots[i] = slot;
        segment_event_writer(segment, i, &client->events[i]);
    }
    engine->clients[engine->n_clients++] = client;
    engine_listen(engine, client);
}

static void engine_detach(struct engine *engine, struct client *client)
{
    for (uint32_t i = 0; i < client->n_slots; i++) {
        struct slot *slot = client->slots[i];
        if (slot->active)
            answer_end(engine, slot, DONE_CANCELLED, 0, "");
        slot->client = NULL;
        if (slot->name[0])
            continue;
        draft_forget(engine, slot);
        slot_clear(slot, &engine->prefix, engine->context);
    }
    if (client->bell_polled)
        loop_remove(engine->loop, client->bell_fd, (uintptr_t)client);
    for (uint32_t i = 0; i < engine->n_clients; i++)
        if (engine->clients[i] == client)
            engine->clients[i] = engine->clients[--engine->n_clients];
    engine_gauges(engine); /* who sees that the client is gone sees its slots and pages free */
    engine_post(engine, MAIL_DETACHED, client, 0);
}

void engine_stop(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.n_slots; i++)
        if (engine->slots[i].active)
            answer_end(engine, &engine->slots[i], DONE_ERROR, -ESHUTDOWN,
                       "the daemon is stopping: try again when it is back");
    engine->stopping = true;
}

uint32_t engine_mail(struct engine *engine)
{
    struct mail mail;
    uint32_t taken = 0;

    while (mailbox_take(engine->options.inbox, &mail)) {
        taken++;
        if (mail.kind == MAIL_ATTACH)
            engine_attach(engine, mail.clients[0]);
        else if (mail.kind == MAIL_DETACH)
            engine_detach(engine, mail.clients[0]);
        else if (mail.kind == MAIL_STOP)
            engine_stop(engine);
    }
    return taken;
}

/* ---- waking -----------------------------------------------------------------------------------
 */

static void engine_wake(struct engine *engine, const struct engine_due *due)
{
    client_wake(due->client, due->way);
    counters_add(engine->options.ctl, COUNTER_WAKES, 1);
}

/* Hands up to MAIL_WAKES sleepers to the control thread. Returns how many it took. Clients decide
 * how often they are woken: the place of each client's MAIL_CLOSE and MAIL_DETACHED, and of
 * MAIL_STOPPED, is not for wakes. */
static uint32_t engine_hand_off(struct engine *engine, const struct engine_due *due, uint32_t n)
{
    struct mail mail = {.kind = MAIL_WAKE, .n_wakes = (uint16_t)(n < MAIL_WAKES ? n : MAIL_WAKES)};

    if (mailbox_room(engine->options.outbox) <= 2 * engine->options.n_clients + 1)
        return 0;
    for (uint32_t i = 0; i < mail.n_wakes; i++) {
        mail.clients[i] = due[i].client;
        mail.ways |= (uint32_t)due[i].way << i;
    }
    if (!mailbox_post(engine->options.outbox, &mail))
        return 0;
    counters_add(engine->options.ctl, COUNTER_WAKE_HANDOFFS, mail.n_wakes);
    return mail.n_wakes;
}

/* While passes follow each other the control thread makes the system calls, at one ring of its bell a
 * step; a single sleeper costs no more than that ring would. */
void engine_wake_all(struct engine *engine)
{
    uint32_t n = 0, done = 0;

    engine->fence_due = false;
    bell_fence();
    for (uint32_t i = 0; i < engine->n_clients; i++) {
        int way = bell_due(&engine->clients[i]->waker);
        if (way != BELL_NONE)
            engine->due[n++] = (struct engine_due){engine->clients[i], way};
    }
    if (n > 1 && engine->n_active > engine->n_paused) {
        for (uint32_t took = 1; done < n && took; done += took)
            took = engine_hand_off(engine, engine->due + done, n - done);
        mailbox_ring(engine->options.outbox);
    }
    for (; done < n; done++)
        engine_wake(engine, &engine->due[done]);
}
