/* clients.c: see clients.h. */
#include "daemon/control/clients.h"

#include "daemon/control/closer.h"
#include "daemon/engine/waker.h"
#include "ipc/counters.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void clients_post(struct control *control, enum mail_kind kind, struct client *client)
{
    struct mail mail = {.kind = (uint16_t)kind, .clients = {client}};
    bool posted = mailbox_post(control->options.outbox, &mail);
    assert(posted); /* the mailbox has room for every client's messages (main.c) */
    (void)posted;
    mailbox_ring(control->options.outbox);
}

void clients_gauges(struct control *control)
{
    uint32_t attached = 0;
    /* Clients that are leaving still hold their slots: they count until the engine has let go. */
    for (struct client *client = control->clients; client; client = client->next)
        attached += client->state == CLIENT_ATTACHED || client->state == CLIENT_DETACHING;
    counters_set(control->options.ctl, COUNTER_CLIENTS, attached);
}

static void clients_unlink(struct control *control, struct client *client)
{
    for (struct client **link = &control->clients; *link; link = &(*link)->next) {
        if (*link != client)
            continue;
        *link = client->next;
        control->n_clients--;
        client->owner->n_clients--;
        return;
    }
    assert(false && "the client is in the list");
}

/* Its name is free again, if it has one. */
static void clients_unname(struct client *client)
{
    struct client **link = &client->owner->named;
    while (*link && *link != client)
        link = &(*link)->next_named;
    if (*link)
        *link = client->next_named;
}

void clients_free(struct control *control, struct client *client)
{
    clients_unlink(control, client);
    clients_unname(client);
    waker_forget(client);
    control->n_detaching -= client->state == CLIENT_DETACHING;
    client->owner->n_looking -= client->state == CLIENT_LOOKING;
    if (client->state == CLIENT_GREETING) {
        control->n_greeting--;
        client->owner->n_greeting--;
    } else if (client->n_slots > 0) {
        segment_close(&client->segment);
        control->slots_free += client->n_slots;
        client->owner->n_slots -= client->n_slots;
    }
    loop_remove(control->loop, client->socket_fd, (uintptr_t)client);
    closer_close(client->socket_fd, client->uid);
    if (client->pid_fd >= 0) {
        loop_remove(control->loop, client->pid_fd, (uintptr_t)client);
        close(client->pid_fd);
    }
    if (client->bell_fd >= 0)
        close(client->bell_fd);
    if (client->notify_fd >= 0)
        closer_close(client->notify_fd, client->uid);
    free(client);
    clients_gauges(control);
}

void clients_drop(struct control *control, struct client *client)
{
    if (client->state == CLIENT_GREETING || client->state == CLIENT_LOOKING) {
        clients_free(control, client);
    } else if (client->state == CLIENT_ATTACHED) {
        client->state = CLIENT_DETACHING;
        control->n_detaching++;
        loop_remove(control->loop, client->socket_fd, (uintptr_t)client);
        shutdown(client->socket_fd, SHUT_RDWR); /* the client sees the hang-up now */
        clients_post(control, MAIL_DETACH, client);
        clients_gauges(control);
    }
}

static uint64_t later(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

struct control_user *clients_user(struct control *control, uid_t uid)
{
    struct control_user *found = NULL;
    uint64_t least_ns = UINT64_MAX;
    for (struct control_user *user = control->users; user < control->users + USERS_MOST; user++) {
        uint64_t due_ns = later(user->segments_due_ns, user->asks_due_ns);
        if ((user->n_clients > 0 || due_ns > 0) && user->uid == uid)
            return user;
        if (user->n_clients > 0 || due_ns >= least_ns)
            continue;
        found = user;
        least_ns = due_ns;
    }
    assert(found && "there are more places than connections");
    *found = (struct control_user){.uid = uid};
    return found;
}

bool clients_have(const struct control *control, const struct client *wanted)
{
    for (const struct client *client = control->clients; client; client = client->next)
        if (client == wanted)
            return true;
    return false;
}
