/* The clients that the engine serves: in, out, closed, woken. */
#include "daemon/engine/attached.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/gauges.h"
#include "daemon/engine/request.h"
#include "daemon/engine/waker.h"
#include "daemon/loop/loop.h"
#include "ipc/counters.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* A user pays for what its wakes take beyond the usual: each ns takes 256 ns to pay off. It may owe
 * a second, since an interrupt can make a wake long, too; a user that owes more is woken by the
 * waker. */
enum { WAKE_SHARE = 256 };
static const uint64_t WAKE_CREDIT_NS = 1000000000;

/* Sleepers that the engine thread wakes itself while passes follow; tests/model has fewer clients. */
#ifndef ENGINE_WAKES
#define ENGINE_WAKES 2
#endif

void attached_post(struct attached *clients, enum mail_kind kind, struct client *client, int error)
{
    struct mail mail = {.kind = (uint16_t)kind, .error = error, .clients = {client}};
    bool posted = mailbox_post(clients->outbox, &mail);
    /* Sized for every message that can be on its way at once (mailbox.h). */
    assert(posted);
    (void)posted;
    mailbox_ring(clients->outbox);
}

/* What runs on the client's slots is over. */
static void end_slots(struct slots *slots, const struct client *client, enum done_reason reason)
{
    for (uint32_t i = 0; i < client->n_slots; i++)
        if (client->slots[i]->state != SLOT_IDLE)
            request_end(slots, client->slots[i], reason, reason == DONE_ERROR ? client->error : 0,
                        "");
}

uint32_t attached_reap(struct attached *clients, struct slots *slots,
                       const struct loaded_model *loaded, uint64_t now_ns)
{
    uint32_t n = 0;
    for (; n < clients->n_failed; n++) {
        struct client *client = clients->failed[n];
        counters_add(clients->ctl,
                     client->error == -EFAULT ? COUNTER_SIGBUS : COUNTER_PROTOCOL_ERRORS, 1);
        end_slots(slots, client, DONE_ERROR);
        answer_ends(slots, clients, loaded, now_ns);
        attached_post(clients, MAIL_CLOSE, client, client->error);
    }
    clients->n_failed = 0;
    return n;
}

/* How many parked slots are this user's? */
static uint32_t count_parked(const struct slots *slots, uid_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *slot = &slots->all[i];
        n += !slot->client && slot->name[0] && slot->uid == uid;
    }
    return n;
}

/* The least recently used parked slot of the user with the most of them: a user's names do not push
 * out those of another one with fewer. NULL: none is parked. */
static struct slot *find_parked(struct slots *slots)
{
    struct slot *found = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *slot = &slots->all[i];
        if (slot->client || !slot->name[0])
            continue;
        uint32_t n = found && slot->uid == found->uid ? most : count_parked(slots, slot->uid);
        if (n > most || (n == most && slot->serial < found->serial)) {
            found = slot;
            most = n;
        }
    }
    return found;
}

static void forget(struct slots *slots, struct drafters *drafters, struct slot *slot)
{
    drafters_forget(drafters, slot);
    slot_clear(slot, &slots->kv.prefix, slots->context);
}

/* A slot for the client: its own parked one, else a free one, else one that is parked. */
static struct slot *find_slot(struct slots *slots, struct drafters *drafters,
                              const struct client *client, const char *name)
{
    struct slot *free_slot = NULL;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *slot = &slots->all[i];
        if (slot->client)
            continue;
        if (!slot->name[0])
            free_slot = free_slot ? free_slot : slot;
        else if (name[0] && slot->uid == client->uid && !strcmp(slot->name, name))
            return slot;
    }
    if (free_slot)
        return free_slot;
    struct slot *parked = find_parked(slots);
    assert(parked); /* the control thread admits no more clients than there are slots */
    forget(slots, drafters, parked);
    return parked;
}

void attached_listen(struct attached *clients, struct client *client)
{
    client->idle_rings = 0;
    if (!client->bell_polled && clients->loop)
        client->bell_polled =
            loop_add_poll(clients->loop, client->bell_fd, POLLIN, (uintptr_t)client) == 0;
}

static uint64_t paid_ns(const struct client_user *user)
{
    return user->wakes.paid_ns > user->keystrokes.paid_ns ? user->wakes.paid_ns
                                                          : user->keystrokes.paid_ns;
}

/* The user's place, which it keeps without a client, so that its debts stay; or, of the free ones, that
 * whose debts are paid first. There are as many places as clients. */
static struct client_user *find_user(struct attached *clients, uid_t uid)
{
    struct client_user *found = NULL;
    for (uint32_t i = 0; i < clients->n_most; i++) {
        struct client_user *user = &clients->users[i];
        if (user->uid == uid)
            return user;
        if (user->n_clients == 0 && (!found || paid_ns(user) < paid_ns(found)))
            found = user;
    }
    *found = (struct client_user){.uid = uid};
    return found;
}

static void attach(struct attached *clients, struct slots *slots, struct drafters *drafters,
                   struct client *client)
{
    const struct segment *segment = &client->segment;
    segment_submit_reader(segment, &client->submit);
    bell_waker_init(&client->waker, &segment_up_head(segment)->waiting,
                    &segment_down_head(segment)->wake, client->notify_fd);
    for (uint32_t i = 0; i < client->n_slots; i++) {
        const char *name = i == 0 ? client->name : "";
        struct slot *slot = find_slot(slots, drafters, client, name);
        slot->client = client;
        slot->ring = i;
        slot->uid = client->uid;
        slot->same = 0;
        snprintf(slot->name, sizeof(slot->name), "%s", name);
        client->slots[i] = slot;
        segment_event_writer(segment, i, &client->events[i]);
    }
    client->user = find_user(clients, client->uid);
    client->user->n_clients++;
    clients->all[clients->n++] = client;
    attached_listen(clients, client);
}

static void detach(struct attached *clients, struct slots *slots, struct drafters *drafters,
                   const struct loaded_model *loaded, struct client *client, uint64_t now_ns)
{
    client->error = -ESHUTDOWN; /* it is on its way out: no stage marks it any more */
    end_slots(slots, client, DONE_CANCELLED);
    answer_ends(slots, clients, loaded, now_ns);
    for (uint32_t i = 0; i < client->n_slots; i++) {
        client->slots[i]->client = NULL;
        if (!client->slots[i]->name[0])
            forget(slots, drafters, client->slots[i]);
    }
    client->user->n_clients--;
    if (client->bell_polled)
        loop_remove(clients->loop, client->bell_fd, (uintptr_t)client);
    for (uint32_t i = 0; i < clients->n; i++)
        if (clients->all[i] == client)
            clients->all[i] = clients->all[--clients->n];
    /* Counts its slots and pages as free before others can see that the client is gone. */
    gauges_slots(slots, &loaded->info, clients->ctl);
    attached_post(clients, MAIL_DETACHED, client, 0);
}

void attached_stop(struct attached *clients, struct slots *slots, const struct loaded_model *loaded,
                   uint64_t now_ns)
{
    request_end_all(slots, -ESHUTDOWN, "the daemon is stopping: try again when it is back");
    answer_ends(slots, clients, loaded, now_ns);
    clients->stopping = true;
}

uint32_t attached_mail(struct attached *clients, struct slots *slots, struct drafters *drafters,
                       const struct loaded_model *loaded, uint64_t now_ns)
{
    struct mail mail;
    uint32_t taken = 0;
    while (mailbox_take(clients->inbox, &mail)) {
        taken++;
        if (mail.kind == MAIL_ATTACH)
            attach(clients, slots, drafters, mail.clients[0]);
        else if (mail.kind == MAIL_DETACH)
            detach(clients, slots, drafters, loaded, mail.clients[0], now_ns);
        else if (mail.kind == MAIL_STOP)
            attached_stop(clients, slots, loaded, now_ns);
    }
    return taken;
}

/* ---- waking ---------------------------------------------------------------------------------- */

static void charge(struct client_user *user, uint64_t ns, uint64_t now_ns)
{
    debt_charge(&user->wakes, ns, WAKE_SHARE, WAKE_CREDIT_NS, now_ns);
}

static void wake(const struct attached *clients, const struct client_due *due, uint64_t now_ns)
{
    uint64_t ns = waker_wake(due->client, due->way, clients->cpu_ns);
    if (ns)
        charge(due->client->user, ns, now_ns);
    counters_add(clients->ctl, COUNTER_WAKES, 1);
}

/* Does the client's user owe too much time for its wakes? Then neither the engine thread nor the control thread makes this
 * wake. */
static bool wake_apart(struct ctl *ctl, struct client *client, int way, uint64_t now_ns)
{
    uint64_t wakes_ns = atomic_load_explicit(&client->wakes_ns, memory_order_relaxed);
    if (wakes_ns != client->charged_ns)
        charge(client->user, wakes_ns - client->charged_ns, now_ns);
    client->charged_ns = wakes_ns;
    if (!debt_owes(&client->user->wakes, WAKE_CREDIT_NS, now_ns) || !waker_hand(client, way))
        return false;
    counters_add(ctl, COUNTER_WAKES_APART, 1);
    return true;
}

/* Hands up to MAIL_WAKES sleepers to the control thread. Returns how many it took. Clients decide
 * how often they are woken: the place of each client's MAIL_CLOSE and MAIL_DETACHED, and of
 * MAIL_STOPPED, is not for wakes. */
static uint32_t hand_off(struct attached *clients, const struct client_due *due, uint32_t n)
{
    struct mail mail = {.kind = MAIL_WAKE, .n_wakes = (uint16_t)(n < MAIL_WAKES ? n : MAIL_WAKES)};
    if (mailbox_room(clients->outbox) <= 2 * clients->n_most + 1)
        return 0;
    for (uint32_t i = 0; i < mail.n_wakes; i++) {
        mail.clients[i] = due[i].client;
        mail.ways |= (uint32_t)due[i].way << i;
    }
    if (!mailbox_post(clients->outbox, &mail))
        return 0;
    counters_add(clients->ctl, COUNTER_WAKE_HANDOFFS, mail.n_wakes);
    return mail.n_wakes;
}

/* While passes follow each other the control thread makes the system calls, at one ring of its bell a
 * step. Two sleepers cost hardly more than that ring, and where other processes compute the control
 * thread itself waits for a processor before it wakes them. */
void attached_wake(struct attached *clients, bool passes_follow, uint64_t now_ns)
{
    uint32_t n = 0, done = 0;
    clients->fence_due = false;
    bell_fence();
    for (uint32_t i = 0; i < clients->n; i++) {
        struct client *client = clients->all[i];
        int way = client->has_news ? bell_due(&client->waker) : BELL_NONE;
        client->has_news = false;
        if (way != BELL_NONE && !wake_apart(clients->ctl, client, way, now_ns))
            clients->due[n++] = (struct client_due){client, way};
    }
    if (n > ENGINE_WAKES && passes_follow) {
        for (uint32_t took = 1; done < n && took; done += took)
            took = hand_off(clients, clients->due + done, n - done);
        mailbox_ring(clients->outbox);
    }
    for (; done < n; done++)
        wake(clients, &clients->due[done], now_ns);
}
