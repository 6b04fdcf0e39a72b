/* Clients in and out. One list of clients, a state each (client.h); every event is handled to the
 * end. */
#include "daemon/control.h"

#include "daemon/client.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/status.h"
#include "ipc/bell.h"
#include "ipc/counters.h"
#include "ipc/hello.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    EVENT_CELLS = 1024,  /* of each slot's event ring */
    SUBMIT_CELLS = 256,  /* of each client's submit ring */
    EVENTS_AT_ONCE = 64, /* events handled between two looks at the mailbox */
};

static const uint64_t GREETING_NS = 5000000000; /* a connection says hello within this time */

/* Cookies of what is no client; clients are their own address. */
enum { COOKIE_LISTEN = 1, COOKIE_SIGNAL, COOKIE_MAIL };

struct control {
    struct control_options options;
    struct loop *loop;
    struct client *clients; /* list */
    uint32_t n_clients;     /* in the list, in any state */
    uint32_t n_greeting;
    uint32_t slots_free;
    uint64_t start_ns;
    uint64_t watchdog_ns; /* 0: nobody watches */
    uint64_t watchdog_due_ns;
    uint64_t heartbeat; /* the engine's, as of the last watchdog */
    bool stopping;
    bool stopped;
    int error;
};

static void control_post(struct control *control, enum mail_kind kind, struct client *client)
{
    struct mail mail = {.kind = (uint16_t)kind, .clients = {client}};
    bool posted = mailbox_post(control->options.outbox, &mail);

    assert(posted); /* sized for every client's messages (main.c) */
    (void)posted;
    mailbox_ring(control->options.outbox);
}

/* ---- a client's life ---------------------------------------------------------------------------
 */

static void control_gauges(struct control *control)
{
    uint32_t attached = 0;

    for (struct client *client = control->clients; client; client = client->next)
        attached += client->state == CLIENT_ATTACHED;
    counters_set(control->options.ctl, COUNTER_CLIENTS, attached);
}

static void control_unlink(struct control *control, struct client *client)
{
    struct client **link = &control->clients;

    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    control->n_clients--;
}

static void control_free(struct control *control, struct client *client)
{
    control_unlink(control, client);
    if (client->state == CLIENT_GREETING) {
        control->n_greeting--;
    } else if (client->n_slots > 0) {
        segment_close(&client->segment);
        control->slots_free += client->n_slots;
    }
    loop_remove(control->loop, client->socket_fd, (uintptr_t)client);
    close(client->socket_fd);
    if (client->pid_fd >= 0) {
        loop_remove(control->loop, client->pid_fd, (uintptr_t)client);
        close(client->pid_fd);
    }
    if (client->bell_fd >= 0)
        close(client->bell_fd);
    if (client->notify_fd >= 0)
        close(client->notify_fd);
    free(client);
    control_gauges(control);
}

/* The client is gone, or has to go. What the engine borrows comes back with MAIL_DETACHED. */
static void control_drop(struct control *control, struct client *client)
{
    if (client->state == CLIENT_GREETING || client->state == CLIENT_LOOKING) {
        control_free(control, client);
    } else if (client->state == CLIENT_ATTACHED) {
        client->state = CLIENT_DETACHING;
        loop_remove(control->loop, client->socket_fd, (uintptr_t)client);
        shutdown(client->socket_fd, SHUT_RDWR); /* the client sees its end now */
        control_post(control, MAIL_DETACH, client);
        control_gauges(control);
    }
}

static void control_accept(struct control *control, int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    struct client *client;

    if (fd < 0) {
        log_warning("accepting a client failed: %s: raise the limit of open files", strerror(-fd));
        return;
    }
    client = control->n_clients < control->options.config->clients + 64 ? calloc(1, sizeof(*client))
                                                                        : NULL;
    if (!client || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0) {
        hello_send_refuse(fd, -EBUSY, "too many clients are connected: try again later");
        close(fd);
        free(client);
        return;
    }
    client->state = CLIENT_GREETING;
    client->socket_fd = fd;
    client->pid_fd = client->bell_fd = client->notify_fd = -1;
    client->pid = peer.pid;
    client->uid = peer.uid;
    client->deadline_ns = control->options.now_ns() + GREETING_NS;
    client->next = control->clients;
    control->clients = client;
    control->n_clients++;
    control->n_greeting++;
    if (loop_add_poll(control->loop, fd, POLLIN | POLLRDHUP, (uintptr_t)client) < 0)
        control_free(control, client);
}

/* ---- the handshake -----------------------------------------------------------------------------
 */

static uint32_t control_user_slots(const struct control *control, uid_t uid)
{
    uint32_t n = 0;

    for (const struct client *client = control->clients; client; client = client->next)
        if (client->uid == uid)
            n += client->n_slots;
    return n;
}

static bool control_name_held(const struct control *control, uid_t uid, const char *name)
{
    for (const struct client *client = control->clients; client; client = client->next)
        if (client->n_slots > 0 && client->uid == uid && !strcmp(client->name, name))
            return true;
    return false;
}

/* Somebody is on the way out: what is taken now will be free in a moment. */
static bool control_leaving(const struct control *control)
{
    for (const struct client *client = control->clients; client; client = client->next)
        if (client->state == CLIENT_DETACHING)
            return true;
    return false;
}

/* May this client have what it asks for? Returns 0 and the slots granted, or -errno with one line.
 */
static int control_admit(const struct control *control, const struct client *client,
                         const struct hello *hello, uint32_t *ret_slots, char *line,
                         size_t line_bytes)
{
    const struct config *config = control->options.config;
    uint32_t wanted =
        hello->slots < config->client_slots ? hello->slots : (uint32_t)config->client_slots;

    if (control->stopping) {
        snprintf(line, line_bytes, "the daemon is stopping: try again when it is back");
        return -EBUSY;
    }
    if (hello->name[0] && control_name_held(control, client->uid, hello->name)) {
        snprintf(line, line_bytes,
                 "slot %s is in use by another client: try again, or use another name",
                 hello->name);
        return -EBUSY;
    }
    if (control->n_clients - control->n_greeting >= config->clients ||
        wanted > control->slots_free) {
        snprintf(line, line_bytes, "no slot is free (%llu in all): try again, or raise --slots",
                 (unsigned long long)config->slots);
        return -EBUSY;
    }
    if (config->user_slots &&
        control_user_slots(control, client->uid) + wanted > config->user_slots) {
        snprintf(line, line_bytes,
                 "this user holds all of its %llu slots: try again, or raise --user-slots",
                 (unsigned long long)config->user_slots);
        return -EBUSY;
    }
    *ret_slots = wanted;
    return 0;
}

static struct ipc_limits control_limits(const struct control *control, uint32_t n_slots)
{
    return (struct ipc_limits){
        .slots = n_slots,
        .context = control->options.resident->limits.context,
        .submit_cells = SUBMIT_CELLS,
        .event_cells = EVENT_CELLS,
        .params_bytes = control->options.params_bytes,
    };
}

/* Makes everything the client will share with us. On failure what was made stays for control_free.
 */
static int control_equip(struct control *control, struct client *client, const struct hello *hello,
                         uint32_t n_slots, int *ret_notify, char *line, size_t line_bytes)
{
    struct ipc_limits limits = control_limits(control, n_slots);
    int notify[2] = {-1, -1};
    int rc = segment_open(&client->segment, &limits, line, line_bytes);

    *ret_notify = -1;
    if (rc < 0)
        return rc;
    client->bell_fd = bell_open();
    rc = client->bell_fd < 0 ? client->bell_fd : 0;
    if (rc == 0 && (hello->flags & HELLO_NOTIFY))
        rc = bell_notify_open(notify);
    if (rc < 0) {
        snprintf(line, line_bytes, "the daemon is out of file descriptors: try again later");
        segment_close(&client->segment);
        return rc;
    }
    client->notify_fd = notify[0];
    *ret_notify = notify[1];
    return 0;
}

static int control_welcome(struct control *control, struct client *client, int notify_fd)
{
    const struct resident *resident = control->options.resident;
    struct hello_welcome welcome = {
        .limits = client->segment.limits,
        .n_fds = client->n_slots == 0 ? HELLO_FDS_SHARED
                 : notify_fd >= 0     ? HELLO_FDS
                                      : HELLO_FDS - 1,
        .n_vocab = resident->model->n_vocab,
        .daemon_pid = (uint32_t)getpid(),
        .vocab_bytes = resident->vocab_bytes,
    };
    int fds[HELLO_FDS];

    fds[HELLO_FD_UP] = client->segment.up_fd;
    fds[HELLO_FD_DOWN] = client->segment.down_fd;
    fds[HELLO_FD_CTL] = control->options.ctl_fd;
    fds[HELLO_FD_BELL] = client->bell_fd;
    fds[HELLO_FD_VOCAB] = control->options.vocab_fd;
    fds[HELLO_FD_NOTIFY] = notify_fd;
    memcpy(welcome.fingerprint, resident->fingerprint, sizeof(welcome.fingerprint));
    snprintf(welcome.numerics, sizeof(welcome.numerics), "%s", resident->info.numerics);
    snprintf(welcome.model, sizeof(welcome.model), "%s", resident->name);
    snprintf(welcome.daemon, sizeof(welcome.daemon), "hearthd " HEARTH_VERSION);
    hello_prep_welcome(&welcome);
    return hello_send(client->socket_fd, &welcome, sizeof(welcome), fds, welcome.n_fds);
}

/* The process that did the handshake: its exit counts as hang-up even when a child keeps the
 * socket. */
static void control_watch_process(struct control *control, struct client *client)
{
#ifdef SYS_pidfd_open
    client->pid_fd = (int)syscall(SYS_pidfd_open, client->pid, 0);
    if (client->pid_fd >= 0 &&
        loop_add_poll(control->loop, client->pid_fd, POLLIN, (uintptr_t)client) < 0) {
        close(client->pid_fd);
        client->pid_fd = -1;
    }
#else
    (void)control;
    (void)client;
#endif
}

static void control_refuse(struct control *control, struct client *client, int code,
                           const char *line)
{
    hello_send_refuse(client->socket_fd, code, line);
    counters_add(control->options.ctl, COUNTER_CONNECTS_REFUSED, 1);
    control_free(control, client);
}

/* Lets the client in, or refuses it, or lets it wait for one that is leaving. */
static void control_greet(struct control *control, struct client *client)
{
    char line[HELLO_LINE_BYTES] = "";
    const struct hello *hello = &client->hello;
    uint32_t n_slots = 0;
    int notify_fd = -1;
    int rc = control_admit(control, client, hello, &n_slots, line, sizeof(line));

    client->waiting = rc == -EBUSY && !control->stopping && control_leaving(control);
    if (client->waiting)
        return;
    if (rc == 0 && n_slots > 0)
        rc = control_equip(control, client, hello, n_slots, &notify_fd, line, sizeof(line));
    if (rc < 0) {
        control_refuse(control, client, rc, line);
        return;
    }
    client->n_slots = n_slots;
    memcpy(client->name, hello->name, sizeof(client->name));
    client->name[sizeof(client->name) - 1] = 0;
    client->state = n_slots > 0 ? CLIENT_ATTACHED : CLIENT_LOOKING;
    control->n_greeting--;
    control->slots_free -= n_slots;
    control_watch_process(control, client);
    if (n_slots == 0)
        client->segment.limits = control_limits(control, 0);
    rc = control_welcome(control, client, notify_fd);
    if (n_slots > 0) {
        segment_close_fds(&client->segment);
        control_post(control, MAIL_ATTACH, client);
    }
    if (notify_fd >= 0)
        close(notify_fd);
    counters_add(control->options.ctl, COUNTER_CONNECTS, 1);
    control_gauges(control);
    if (rc < 0)
        control_drop(control, client);
}

static void control_hello(struct control *control, struct client *client, const void *message,
                          size_t bytes)
{
    char line[HELLO_LINE_BYTES] = "";
    int rc = hello_check_hello(message, bytes, &client->hello, line, sizeof(line));

    if (rc < 0)
        control_refuse(control, client, rc, line);
    else
        control_greet(control, client);
}

/* A client has left: those who waited for its slots or its name are looked at again. */
static void control_retry(struct control *control)
{
    for (struct client *client = control->clients, *next; client; client = next) {
        next = client->next;
        if (client->state == CLIENT_GREETING && client->waiting)
            control_greet(control, client);
    }
}

static void control_status(struct control *control, struct client *client)
{
    static char text[HELLO_STATUS_MAX - 64]; /* control thread only */
    struct status_facts facts = {
        .resident = control->options.resident,
        .socket = control->options.config->socket,
        .loop = loop_name(control->loop),
        .uptime_ns = control->options.now_ns() - control->start_ns,
    };
    int n = status_json(control->options.ctl, &facts, text, sizeof(text));

    if (n < 0)
        n = snprintf(text, sizeof(text), "{\"error\":\"the status does not fit\"}");
    hello_send_status(client->socket_fd, text, (size_t)n);
}

/* Everything that waits on a client's socket. */
static void control_read(struct control *control, struct client *client)
{
    uint8_t message[512];

    while (client->state != CLIENT_DETACHING) {
        int n =
            hello_recv(client->socket_fd, message, sizeof(message), NULL, 0, NULL, MSG_DONTWAIT);
        if (n == -EAGAIN || n == -EINTR)
            return;
        int kind = n > 0 ? hello_kind(message, (size_t)n) : -1;
        if (kind == HELLO_STATUS_ASK) {
            control_status(control, client);
        } else if (kind == HELLO_HELLO && client->state == CLIENT_GREETING && !client->waiting) {
            control_hello(control, client, message, (size_t)n);
            return; /* refused clients are gone */
        } else {
            control_drop(control, client);
            return;
        }
    }
}

/* ---- events ------------------------------------------------------------------------------------
 */

static void control_wake(struct control *control, const struct mail *mail)
{
    for (uint32_t i = 0; i < mail->n_wakes; i++)
        client_wake(mail->clients[i], (mail->ways >> i) & 1);
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
            control_free(control, mail.clients[0]);
            control_retry(control);
            break;
        case MAIL_CLOSE:
            log_warning("client %ld of user %ld was closed: %s", (long)mail.clients[0]->pid,
                        (long)mail.clients[0]->uid,
                        mail.error == -EFAULT ? "its shared memory failed"
                                              : "it broke the protocol");
            control_drop(control, mail.clients[0]);
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

static void control_stop(struct control *control)
{
    struct signalfd_siginfo signal;

    while (read(control->options.signal_fd, &signal, sizeof(signal)) > 0)
        ;
    if (control->stopping)
        return;
    control->stopping = true;
    log_info("stopping: running answers end now");
    notify_send("STOPPING=1");
    control_post(control, MAIL_STOP, NULL);
}

static bool control_known(const struct control *control, const struct client *wanted)
{
    for (const struct client *client = control->clients; client; client = client->next)
        if (client == wanted)
            return true;
    return false;
}

static void control_event(struct control *control, const struct loop_event *event)
{
    if (event->cookie == COOKIE_LISTEN) {
        control_accept(control, event->result);
    } else if (event->cookie == COOKIE_SIGNAL) {
        control_stop(control);
    } else if (event->cookie != COOKIE_MAIL) {
        struct client *client = (struct client *)(uintptr_t)event->cookie;
        /* An earlier event of the same batch may have freed it. */
        if (!control_known(control, client))
            return;
        struct pollfd process = {.fd = client->pid_fd, .events = POLLIN};
        if (client->pid_fd >= 0 && poll(&process, 1, 0) > 0)
            control_drop(control, client);
        else
            control_read(control, client);
    }
}

/* ---- time --------------------------------------------------------------------------------------
 */

static void control_expire(struct control *control, uint64_t now)
{
    for (struct client *client = control->clients, *next; client; client = next) {
        next = client->next;
        if (client->state == CLIENT_GREETING && client->deadline_ns <= now)
            control_refuse(control, client, client->waiting ? -EBUSY : -ETIMEDOUT,
                           client->waiting ? "no slot became free: try again"
                                           : "no HELLO came: update the client library");
    }
}

/* Tells the service manager that we live, unless the engine is awake and has not turned since last
 * time. */
static void control_watchdog(struct control *control, uint64_t now)
{
    struct ctl *ctl = control->options.ctl;
    uint64_t heartbeat = atomic_load_explicit(&ctl->heartbeat, memory_order_relaxed);
    bool asleep = atomic_load_explicit(&ctl->sleeping, memory_order_relaxed) != 0;

    if (asleep || heartbeat != control->heartbeat)
        notify_send("WATCHDOG=1");
    control->heartbeat = heartbeat;
    control->watchdog_due_ns = now + control->watchdog_ns;
}

/* Until the next thing that time brings about; -1: nothing will. */
static int64_t control_timeout(struct control *control)
{
    uint64_t now = control->options.now_ns(), due = UINT64_MAX;

    if (control->watchdog_ns && control->watchdog_due_ns <= now)
        control_watchdog(control, now);
    if (control->n_greeting > 0)
        control_expire(control, now);
    if (control->watchdog_ns)
        due = control->watchdog_due_ns;
    for (const struct client *client = control->clients; client && control->n_greeting;
         client = client->next)
        if (client->state == CLIENT_GREETING && client->deadline_ns < due)
            due = client->deadline_ns;
    if (due == UINT64_MAX)
        return -1;
    return due > now ? (int64_t)(due - now) : 0;
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static int control_open(struct control *control)
{
    const struct control_options *options = &control->options;
    int rc = loop_open(&control->loop, options->loop);

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

static void control_close(struct control *control)
{
    while (control->clients) {
        control_free(control, control->clients);
    }
    loop_close(control->loop);
}

int control_run(const struct control_options *options)
{
    struct control control = {
        .options = *options,
        .slots_free = (uint32_t)options->config->slots,
        .start_ns = options->now_ns(),
        .watchdog_ns = notify_watchdog_ns(),
    };
    struct loop_event events[EVENTS_AT_ONCE];
    int rc = control_open(&control);

    counters_set(options->ctl, COUNTER_SLOTS_TOTAL, options->config->slots);
    if (rc < 0) {
        loop_close(control.loop);
        return rc;
    }
    while (!control.stopped && rc == 0) {
        int n = loop_wait(control.loop, control_timeout(&control), events, EVENTS_AT_ONCE);
        counters_add(options->ctl, COUNTER_CONTROL_WAKEUPS, 1);
        for (int i = 0; i < n; i++)
            control_event(&control, &events[i]);
        control_mail(&control);
        rc = n < 0 ? n : 0;
    }
    control_close(&control);
    return rc ? rc : control.error;
}
