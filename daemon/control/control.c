/* control.c: lets clients in and out. One list of clients, each with a state (client.h); every
 * event is handled completely before the next. */
#include "daemon/control/control.h"

#include "daemon/control/clients.h"
#include "daemon/control/closer.h"
#include "daemon/control/handshake.h"
#include "daemon/engine/waker.h"
#include "daemon/log.h"
#include "daemon/rate.h"
#include "ipc/bell.h"
#include "ipc/counters.h"
#include "ipc/hello.h"
#include "ipc/service.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS_AT_ONCE = 64, /* of one wait */
};

static const uint64_t ACCEPT_AGAIN_NS = 100000000;
static const uint64_t GREETING_NS = 5000000000; /* to send HELLO, and to wait for slots after it */

/* Questions for the status that a user gets an answer to; further ones wait in their sockets. */
static const struct rate ask_rate = {.every_ns = 10000000, .burst = 100};

/* Cookies of non-client registrations; a client's cookie is its address. */
enum { COOKIE_LISTEN = 1, COOKIE_SIGNAL, COOKIE_MAIL };

static void control_accept_ended(struct control *control);

static void control_accept(struct control *control, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof(peer);
    struct control_user *user;
    struct client *client;
    if (fd == -ECANCELED) {
        control_accept_ended(control);
        return;
    }
    if (fd < 0) {
        if (!control->accept_failing && log_allowed(&control->accept_lines, clients_clock(control)))
            log_warning("accepting a client failed: %s: raise the limit of open files",
                        strerror(-fd));
        control->accept_failing = true;
        control->accept_at_ns = clients_clock(control) + ACCEPT_AGAIN_NS;
        return;
    }
    control->accept_failing = false;
    closer_refuse(fd); /* it may have connected before the listening socket refused them */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 ||
        !handshake_room(control, user = clients_user(control, peer.uid)) ||
        closer_holds(peer.uid) || !(client = calloc(1, sizeof(*client)))) {
        hello_send_refuse(fd, -EBUSY,
                          closer_holds(peer.uid)
                              ? "descriptors that this user passed are not closed yet: try again"
                              : "too many clients are connected: try again later");
        closer_close(fd, peer.uid);
        return;
    }
    client->state = CLIENT_GREETING;
    client->owner = user;
    client->socket_fd = fd;
    client->pid_fd = client->bell_fd = client->notify_fd = -1;
    client->pid = peer.pid;
    client->uid = peer.uid;
    client->number = ++control->n_accepted;
    client->deadline_ns = clients_clock(control) + GREETING_NS;
    client->next = control->clients;
    control->clients = client;
    control->n_clients++;
    control->n_greeting++;
    user->n_clients++;
    user->n_greeting++;
    if (loop_add_poll(control->loop, fd, POLLIN | POLLRDHUP, (uintptr_t)client) < 0)
        clients_free(control, client);
}

static void control_status(struct control *control, struct client *client, uint32_t number)
{
    static char text[HELLO_STATUS_MAX - 64]; /* control thread only */
    struct status_facts facts = {
        .clients = control->clients,
        .process = &control->process,
        .asker = client->uid,
        .loaded = control->options.loaded,
        .socket = control->options.config->socket,
        .loop = loop_name(control->loop),
        .uptime_ns = clients_clock(control) - control->start_ns,
    };
    int n = status_json(control->options.ctl, &facts, text, sizeof(text));
    if (n < 0)
        n = snprintf(text, sizeof(text), "{\"error\":\"the status does not fit\"}");
    hello_send_status(client->socket_fd, number, text, (size_t)n);
}

static void control_read_later(struct control *control, struct client *client, uint64_t at_ns)
{
    client->unread_ns = at_ns;
    if (!control->unread_ns || at_ns < control->unread_ns)
        control->unread_ns = at_ns;
}

static bool control_hung_up(const struct client *client)
{
    struct pollfd hang_up = {.fd = client->socket_fd, .events = POLLRDHUP};
    return poll(&hang_up, 1, 0) > 0 && (hang_up.revents & (POLLRDHUP | POLLHUP));
}

/* While its user may not ask, what a client sent stays in its socket. */
static bool control_is_held(struct control *control, struct client *client)
{
    uint64_t now = clients_clock(control);
    uint64_t due = client->owner->asks_due_ns;
    uint64_t wait_ns = rate_wait_ns(due, &ask_rate, now);
    if (!wait_ns)
        return false;
    if (control_hung_up(client))
        clients_drop(control, client);
    else
        control_read_later(control, client, now + wait_ns);
    return true;
}

/* Reads what waits on a client's socket, up to a question for the status: that ends its turn. */
static void control_read(struct control *control, struct client *client)
{
    uint8_t message[512];
    client->unread_ns = 0;
    while (client->state != CLIENT_DETACHING && !control_is_held(control, client)) {
        int n =
            hello_recv(client->socket_fd, message, sizeof(message), NULL, 0, NULL, MSG_DONTWAIT);
        if (n == -EAGAIN || n == -EINTR)
            return;
        int kind = n > 0 ? hello_kind(message, (size_t)n) : -1;
        if (kind == HELLO_STATUS_ASK) {
            uint64_t now = clients_clock(control);
            rate_take(&client->owner->asks_due_ns, &ask_rate, now);
            control_status(control, client, hello_number(message));
            control->turn = client->number;
            control_read_later(control, client, now);
            return;
        } else if (kind == HELLO_HELLO && client->state == CLIENT_GREETING && !client->waiting) {
            handshake_hello(control, client, message, (size_t)n);
            if (!clients_have(control, client))
                return; /* it was refused and freed */
            if (client->waiting)
                client->deadline_ns = clients_clock(control) + GREETING_NS;
        } else {
            clients_drop(control, client);
            return;
        }
    }
}

/* The client whose turn comes next, in the circle of their numbers; NULL: no turn is due. */
static struct client *control_next(struct control *control, uint64_t now)
{
    struct client *next = NULL;
    uint64_t first_ns = UINT64_MAX;
    for (struct client *client = control->clients; client; client = client->next) {
        if (!client->unread_ns)
            continue;
        if (client->unread_ns < first_ns)
            first_ns = client->unread_ns;
        uint64_t distance = control->turn - client->number - 1;
        if (client->unread_ns <= now && (!next || distance < control->turn - next->number - 1))
            next = client;
    }
    control->unread_ns = first_ns < UINT64_MAX ? first_ns : 0;
    return next;
}

/* Gives one client with unread messages another turn: events and mail come between two of them. */
static void control_read_on(struct control *control)
{
    uint64_t now = clients_clock(control);
    if (!control->unread_ns || control->unread_ns > now)
        return;
    struct client *next = control_next(control, now);
    if (next)
        control_read(control, next);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void control_wake(struct control *control, const struct mail *mail)
{
    for (uint32_t i = 0; i < mail->n_wakes; i++) {
        struct client *client = mail->clients[i];
        uint64_t ns = waker_wake(client, (mail->ways >> i) & 1, waker_cpu_ns);
        ns += atomic_load_explicit(&client->wakes_ns, memory_order_relaxed);
        atomic_store_explicit(&client->wakes_ns, ns, memory_order_relaxed);
    }
    counters_add(control->options.ctl, COUNTER_WAKES_DELIVERED, mail->n_wakes);
}

static void control_mail(struct control *control)
{
    struct mail mail;
    while (mailbox_take(control->options.inbox, &mail)) {
        switch ((enum mail_kind)mail.kind) {
        case MAIL_WAKE:
            control_wake(control, &mail);
            break;
        case MAIL_DETACHED:
            clients_free(control, mail.clients[0]);
            handshake_retry(control);
            break;
        case MAIL_CLOSE:
            if (log_allowed(&control->closed_lines, clients_clock(control)))
                log_warning("client %ld of user %ld was closed: %s", (long)mail.clients[0]->pid,
                            (long)mail.clients[0]->uid,
                            mail.error == -EFAULT ? "a page of its shared memory failed"
                                                  : "it violated the protocol");
            clients_drop(control, mail.clients[0]);
            break;
        case MAIL_ANSWERED:
            loaded_model_keep_weights(control->options.keep);
            break;
        case MAIL_STOPPED:
            control->stopped = true;
            control->error = mail.error;
            break;
        default:
            break;
        }
    }
}

static void control_stop(struct control *control, const char *why)
{
    if (control->stopping)
        return;
    control->stopping = true;
    log_info("stopping: %s", why);
    (void)service_notify("STOPPING=1");
    /* New connections now wait at the manager's socket for the next daemon. */
    if (control->options.passed) {
        control->accept_at_ns = 0;
        loop_end_accept(control->loop, control->options.listen_fd, COOKIE_LISTEN);
    }
    clients_post(control, MAIL_STOP, NULL);
}

static void control_signal(struct control *control)
{
    uint64_t n;
    while (read(control->options.signal_fd, &n, sizeof(n)) > 0)
        ;
    control_stop(control, "running answers end now");
}

static void control_event(struct control *control, const struct loop_event *event)
{
    if (event->cookie == COOKIE_LISTEN) {
        control_accept(control, event->result);
    } else if (event->cookie == COOKIE_SIGNAL) {
        control_signal(control);
    } else if (event->cookie != COOKIE_MAIL) {
        struct client *client = (struct client *)(uintptr_t)event->cookie;
        /* An earlier event of the same batch may have freed it. */
        if (!clients_have(control, client))
            return;
        struct pollfd process = {.fd = client->pid_fd, .events = POLLIN};
        if (client->pid_fd >= 0 && poll(&process, 1, 0) > 0)
            clients_drop(control, client);
        else
            control_read(control, client);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static bool control_late(const struct client *client, uint64_t now)
{
    return client->state == CLIENT_GREETING && client->deadline_ns <= now;
}

/* Refuses connections whose time is over, after a last look: when this thread ran late, their HELLO
 * may be there, and its event not. */
static void control_expire(struct control *control, uint64_t now)
{
    for (struct client *client = control->clients, *next; client; client = next) {
        next = client->next;
        if (!control_late(client, now))
            continue;
        control_read(control, client);
        if (clients_have(control, client) && control_late(client, now))
            handshake_refuse(
                control, client, client->waiting ? -EBUSY : -ETIMEDOUT,
                client->waiting ? "no slot became free: try again"
                                : "no HELLO came in time: try again, or update the client library");
    }
}

/* Tells the service manager that we are alive, unless the engine is awake and has not made a step
 * since last time. */
static void control_watchdog(struct control *control, uint64_t now)
{
    struct ctl *ctl = control->options.ctl;
    uint64_t heartbeat = atomic_load_explicit(&ctl->heartbeat, memory_order_relaxed);
    bool asleep = atomic_load_explicit(&ctl->sleeping, memory_order_relaxed) != 0;
    if (asleep || heartbeat != control->heartbeat)
        (void)service_notify("WATCHDOG=1");
    control->heartbeat = heartbeat;
    control->watchdog_due_ns = now + control->watchdog_ns;
}

/* Descriptors may be available again: resume accepting. */
static void control_accept_again(struct control *control, uint64_t now)
{
    control->accept_at_ns = 0;
    if (loop_add_accept(control->loop, control->options.listen_fd, COOKIE_LISTEN) < 0)
        control->accept_at_ns = now + ACCEPT_AGAIN_NS;
}

/* Accepting has ended: the daemon stops, and the next connection starts another one. A client that
 * was accepted at the last moment is still served. */
static void control_accept_ended(struct control *control)
{
    if (!control->accept_ending)
        return;
    control->accept_ending = false;
    if (control->stopping)
        return;
    if (control->n_clients == 0)
        control_stop(control, "no client was connected for the time of --idle-stop");
    else
        control_accept_again(control, clients_clock(control));
}

/* When the idle stop is due; UINT64_MAX: it is not. */
static uint64_t control_idle(struct control *control, uint64_t now)
{
    if (!control->idle_stop_ns || control->n_clients > 0 || control->accept_ending ||
        control->stopping) {
        control->idle_since_ns = 0;
        return UINT64_MAX;
    }
    if (!control->idle_since_ns)
        control->idle_since_ns = now;
    if (control->idle_since_ns + control->idle_stop_ns > now)
        return control->idle_since_ns + control->idle_stop_ns;
    control->accept_ending = true;
    control->accept_at_ns = 0;
    if (!loop_end_accept(control->loop, control->options.listen_fd, COOKIE_LISTEN))
        control_accept_ended(control);
    return UINT64_MAX;
}

/* Nanoseconds until the next timer is due; -1: there is none. */
static int64_t control_timeout(struct control *control)
{
    uint64_t now = clients_clock(control), due = UINT64_MAX;
    if (control->accept_at_ns && control->accept_at_ns <= now)
        control_accept_again(control, now);
    if (control->accept_at_ns)
        due = control->accept_at_ns;

    uint64_t idle = control_idle(control, now);
    if (idle < due)
        due = idle;
    if (control->watchdog_ns && control->watchdog_due_ns <= now)
        control_watchdog(control, now);
    if (control->n_greeting > 0)
        control_expire(control, now);
    if (control->watchdog_ns && control->watchdog_due_ns < due)
        due = control->watchdog_due_ns;
    for (const struct client *client = control->clients; client && control->n_greeting;
         client = client->next)
        if (client->state == CLIENT_GREETING && client->deadline_ns < due)
            due = client->deadline_ns;
    if (control->unread_ns && control->unread_ns < due)
        due = control->unread_ns;
    if (due == UINT64_MAX)
        return -1;
    return due > now ? (int64_t)(due - now) : 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int control_open(struct control *control)
{
    const struct control_options *options = &control->options;
    int rc = loop_open(&control->loop, options->loop);
    status_open(&control->process);
    closer_refuse(options->listen_fd);
    if (rc == 0)
        rc = loop_add_accept(control->loop, options->listen_fd, COOKIE_LISTEN);
    if (rc == 0)
        rc = loop_add_poll(control->loop, options->signal_fd, POLLIN, COOKIE_SIGNAL);
    if (rc == 0)
        rc = loop_add_poll(control->loop, options->inbox->event_fd, POLLIN, COOKIE_MAIL);
    if (rc < 0)
        log_error("cannot wait for clients: %s", strerror(-rc));
    return rc;
}

/* Waits for the engine to stop, without the loop, which may be what failed. */
static void control_await_engine(struct control *control)
{
    struct pollfd engine = {.fd = control->options.inbox->event_fd, .events = POLLIN};
    if (!control->stopping)
        clients_post(control, MAIL_STOP, NULL);
    control->stopping = true;
    while (!control->stopped) {
        control_mail(control);
        if (!control->stopped)
            poll(&engine, 1, 10); /* a pause: the eventfd is never read here */
    }
}

static void control_close(struct control *control)
{
    while (control->clients) {
        clients_free(control, control->clients);
    }
    loop_close(control->loop);
    status_close(&control->process);
}

int control_run(const struct control_options *options)
{
    struct control control = {
        .options = *options,
        .clock = {.clock = options->now_ns},
        .slots_free = (uint32_t)options->config->slots,
        .watchdog_ns = service_watchdog_ns(),
        .idle_stop_ns = options->passed ? options->config->idle_stop * 1000000000 : 0,
    };
    struct loop_event events[EVENTS_AT_ONCE];
    control.start_ns = clients_clock(&control);
    int rc = control_open(&control);
    counters_set(options->ctl, COUNTER_SLOTS_TOTAL, options->config->slots);
    while (!control.stopped && rc == 0) {
        int n = loop_wait(control.loop, control_timeout(&control), events, EVENTS_AT_ONCE);
        counters_add(options->ctl, COUNTER_CONTROL_WAKEUPS, 1);
        for (int i = 0; i < n; i++) {
            control_event(&control, &events[i]);
            control_mail(&control); /* wakes do not wait for the other events */
        }
        control_read_on(&control);
        control_mail(&control);
        rc = n < 0 ? n : 0;
    }
    control_await_engine(&control);
    control_close(&control);
    return rc ? rc : control.error;
}
