/* handshake.c: see handshake.h. */
#include "daemon/control/handshake.h"

#include "daemon/control/closer.h"
#include "daemon/overflow_uid.h"
#include "daemon/rate.h"
#include "ipc/bell.h"
#include "ipc/counters.h"
#include "ipc/hello.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Missing from the headers of some systems that we build on. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum {
    EVENT_CELLS = 1024, /* of each slot's event ring */
    SUBMIT_CELLS = 256, /* of each client's submit ring */
    SLOTLESS_MAX = 64,  /* connections without a slot per user */
    GREETING_ROOM = 64, /* connections beyond --clients, only for those that have not greeted yet */
};

/* Most of them where a user has a part of the slots: as large a part, and half at least. */
static uint64_t handshake_most_clients(const struct config *config)
{
    const uint64_t half = (config->clients + 1) / 2;
    const uint64_t part =
        (config->clients * config->user_slots + config->slots - 1) / config->slots;
    return config->user_slots == 0 ? config->clients : part > half ? part : half;
}

bool handshake_room(struct control *control, const struct control_user *user)
{
    struct client *found = NULL;
    if (control->n_clients < control->options.config->clients + GREETING_ROOM)
        return true;
    uint32_t most = user->n_greeting;
    for (struct client *client = control->clients; client;
         client = client->next) { /* newest first */
        if (client->state != CLIENT_GREETING || client->owner->n_greeting <= most)
            continue;
        found = client;
        most = client->owner->n_greeting;
    }
    if (found)
        handshake_refuse(control, found, -EBUSY,
                         "this user has too many connections that are not let in yet: try again "
                         "later");
    return found != NULL;
}

static bool handshake_name_held(const struct control_user *user, const char *name)
{
    for (const struct client *client = user->named; client; client = client->next_named)
        if (!strcmp(client->name, name))
            return true;
    return false;
}

/* Closes the clients that have hung up: their hang-ups may be queued after a new client's HELLO. One
 * call asks for all: any HELLO that is refused as busy comes here. */
static void handshake_drop_hung_up(struct control *control)
{
    struct pollfd *hang_ups = calloc(control->n_clients, sizeof(*hang_ups));
    nfds_t n = 0;
    if (!hang_ups)
        return;
    for (struct client *client = control->clients; client; client = client->next)
        if (client->state == CLIENT_ATTACHED)
            hang_ups[n++] = (struct pollfd){.fd = client->socket_fd, .events = POLLRDHUP};
    int left = poll(hang_ups, n, 0);
    n = 0;
    for (struct client *client = control->clients; client && left > 0; client = client->next)
        if (client->state == CLIENT_ATTACHED) {
            short got = hang_ups[n++].revents;
            left -= got != 0;
            if (got & (POLLRDHUP | POLLHUP))
                clients_drop(control, client);
        }
    free(hang_ups);
}

/* Decides whether a client gets what it asks for. Returns 0 and the slots granted, or -errno with
 * one line. */
static int handshake_admit(const struct control *control, const struct client *client,
                           const struct hello *hello, uint32_t *ret_slots, char *line,
                           size_t line_bytes)
{
    const struct config *config = control->options.config;
    const struct control_user *user = client->owner;
    uint32_t wanted =
        hello->slots < config->client_slots ? hello->slots : (uint32_t)config->client_slots;
    if (config->user_slots && wanted > config->user_slots)
        wanted = (uint32_t)config->user_slots;
    if (control->stopping) {
        snprintf(line, line_bytes, "the daemon is stopping: try again when it runs again");
        return control->options.passed ? -ESHUTDOWN : -EBUSY; /* the socket outlives it */
    }
    if (hello->name[0] && client->uid == overflow_uid()) {
        snprintf(
            line, line_bytes,
            "your user is unknown to the daemon (user namespaces): ask for a slot without a name");
        return -EACCES;
    }
    if (hello->slots == 0 && user->n_looking >= SLOTLESS_MAX) {
        snprintf(line, line_bytes, "this user has %d connections without a slot: close some",
                 SLOTLESS_MAX);
        return -EBUSY;
    }
    if (hello->name[0] && handshake_name_held(user, hello->name)) {
        snprintf(line, line_bytes,
                 "slot %s is in use by another client: try again, or use another name",
                 hello->name);
        return -EBUSY;
    }
    if (control->n_clients - control->n_greeting >= config->clients) {
        snprintf(line, line_bytes,
                 "%llu clients are connected, as many as allowed: try again, or raise --clients",
                 (unsigned long long)config->clients);
        return -EBUSY;
    }
    if (user->n_clients - user->n_greeting >= handshake_most_clients(config)) {
        snprintf(line, line_bytes,
                 "this user has %llu connections, as many as one may: try again, or raise "
                 "--clients",
                 (unsigned long long)handshake_most_clients(config));
        return -EBUSY;
    }
    if (wanted > control->slots_free) {
        snprintf(line, line_bytes,
                 "%u slots wanted, %u of %llu are free: try again, or raise --slots", wanted,
                 control->slots_free, (unsigned long long)config->slots);
        return -EBUSY;
    }
    if (config->user_slots && user->n_slots + wanted > config->user_slots) {
        snprintf(line, line_bytes,
                 "this user holds all of its %llu slots: try again, or raise --user-slots",
                 (unsigned long long)config->user_slots);
        return -EBUSY;
    }
    *ret_slots = wanted;
    return 0;
}

static struct ipc_limits handshake_limits(const struct control *control, uint32_t n_slots)
{
    return (struct ipc_limits){
        .slots = n_slots,
        .context = control->options.loaded->limits.context,
        .submit_cells = SUBMIT_CELLS,
        .event_cells = EVENT_CELLS,
        .params_bytes = control->options.params_bytes,
    };
}

/* A segment costs memory for as long as its client keeps it, even after a hang-up: what one user
 * can make by connecting again and again is limited. */
static const struct rate segment_rate = {.every_ns = 1000000000 / 64, .burst = 1024};

/* False: this user has made too many. */
static bool handshake_segment_allowed(struct control *control, struct control_user *user)
{
    return rate_take(&user->segments_due_ns, &segment_rate, clients_clock(control));
}

/* Creates everything that is shared with the client. On failure clients_free releases what was
 * made. */
static int handshake_equip(struct control *control, struct client *client,
                           const struct hello *hello, uint32_t n_slots, int *ret_notify, char *line,
                           size_t line_bytes)
{
    struct ipc_limits limits = handshake_limits(control, n_slots);
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
    if (client->notify_fd >= 0)
        closer_refuse(client->notify_fd);
    *ret_notify = notify[1];
    return 0;
}

static int handshake_welcome(struct control *control, struct client *client, int notify_fd)
{
    const struct loaded_model *loaded = control->options.loaded;
    struct hello_welcome welcome = {
        .limits = client->segment.limits,
        .n_fds = client->n_slots == 0 ? HELLO_FDS_SHARED
                 : notify_fd >= 0     ? HELLO_FDS
                                      : HELLO_FDS - 1,
        .n_vocab = loaded->model->n_vocab,
        .daemon_pid = (uint32_t)getpid(),
        .vocab_bytes = loaded->vocab_bytes,
    };
    int fds[HELLO_FDS];
    fds[HELLO_FD_UP] = client->segment.up_fd;
    fds[HELLO_FD_DOWN] = client->segment.down_fd;
    fds[HELLO_FD_CTL] = control->options.ctl_fd;
    fds[HELLO_FD_BELL] = client->bell_fd;
    fds[HELLO_FD_VOCAB] = control->options.vocab_fd;
    fds[HELLO_FD_NOTIFY] = notify_fd;
    memcpy(welcome.fingerprint, loaded->fingerprint, sizeof(welcome.fingerprint));
    snprintf(welcome.numerics, sizeof(welcome.numerics), "%s", loaded->info.numerics);
    snprintf(welcome.model, sizeof(welcome.model), "%s", loaded->name);
    snprintf(welcome.daemon, sizeof(welcome.daemon), "hearthd " HEARTH_VERSION);
    hello_prep_welcome(&welcome);
    return hello_send(client->socket_fd, &welcome, sizeof(welcome), fds, welcome.n_fds);
}

/* Returns a descriptor of the process that connected; -ESRCH: it is gone; or another -errno. Before
 * 6.5 it is found by its number, which another process may have by now. */
static int handshake_pid_fd(const struct client *client)
{
    socklen_t bytes = sizeof(int);
    int fd = -1;
    if (getsockopt(client->socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0)
        return fd;
#ifdef SYS_pidfd_open
    if (errno == ENOPROTOOPT)
        fd = (int)syscall(SYS_pidfd_open, client->pid, 0);
#endif
    if (fd >= 0)
        return fd;
    return errno == EINVAL ? -ESRCH : -errno; /* EINVAL: the same, before 6.15 */
}

/* Watches the process that did the handshake: its exit counts as a hang-up even when a child keeps
 * the socket open. Returns -ESRCH if it is gone already, else 0. */
static int handshake_watch_process(struct control *control, struct client *client)
{
    int fd = handshake_pid_fd(client);
    client->pid_fd = fd < 0 ? -1 : fd;
    if (fd >= 0 && loop_add_poll(control->loop, fd, POLLIN, (uintptr_t)client) < 0) {
        close(fd);
        client->pid_fd = -1;
    }
    return fd == -ESRCH ? fd : 0;
}

void handshake_refuse(struct control *control, struct client *client, int code, const char *line)
{
    hello_send_refuse(client->socket_fd, code, line);
    counters_add(control->options.ctl, COUNTER_CONNECTS_REFUSED, 1);
    clients_free(control, client);
}

/* Lets the client in, refuses it, or lets it wait for a client that is leaving. `look`: also for
 * hang-ups. */
static void handshake_greet(struct control *control, struct client *client, bool look)
{
    char line[HELLO_LINE_BYTES] = "";
    const struct hello *hello = &client->hello;
    uint32_t n_slots = 0;
    int notify_fd = -1;
    int rc = handshake_admit(control, client, hello, &n_slots, line, sizeof(line));
    client->waiting = false;
    if (rc == -EBUSY && !control->stopping) {
        if (look)
            handshake_drop_hung_up(control);
        client->waiting = control->n_detaching > 0; /* slots and a name will be free soon */
        if (client->waiting)
            return;
    }
    if (rc == 0 && n_slots > 0 && !handshake_segment_allowed(control, client->owner)) {
        snprintf(line, sizeof(line), "this user connects too often: try again later");
        rc = -EBUSY;
    }
    if (rc == 0 && n_slots > 0)
        rc = handshake_equip(control, client, hello, n_slots, &notify_fd, line, sizeof(line));
    if (rc < 0) {
        handshake_refuse(control, client, rc, line);
        return;
    }
    client->n_slots = n_slots;
    memcpy(client->name, hello->name, sizeof(client->name));
    client->name[sizeof(client->name) - 1] = 0;
    client->state = n_slots > 0 ? CLIENT_ATTACHED : CLIENT_LOOKING;
    control->n_greeting--;
    control->slots_free -= n_slots;
    client->owner->n_greeting--;
    client->owner->n_looking += n_slots == 0;
    client->owner->n_slots += n_slots;
    if (client->name[0]) {
        client->next_named = client->owner->named;
        client->owner->named = client;
    }
    bool gone = handshake_watch_process(control, client) < 0;
    if (n_slots == 0)
        client->segment.limits = handshake_limits(control, 0);
    rc = handshake_welcome(control, client, notify_fd);
    if (n_slots > 0)
        clients_post(control, MAIL_ATTACH, client);
    if (notify_fd >= 0)
        close(notify_fd);
    counters_add(control->options.ctl, COUNTER_CONNECTS, 1);
    clients_gauges(control);
    if (rc < 0 || gone)
        clients_drop(control, client);
}

void handshake_hello(struct control *control, struct client *client, const void *message,
                     size_t bytes)
{
    char line[HELLO_LINE_BYTES] = "";
    int rc = hello_check_hello(message, bytes, &client->hello, line, sizeof(line));
    if (rc < 0)
        handshake_refuse(control, client, rc, line);
    else
        handshake_greet(control, client, true);
}

/* Looks for hang-ups once, however many wait. */
void handshake_retry(struct control *control)
{
    if (control->n_greeting > 0)
        handshake_drop_hung_up(control);
    for (struct client *client = control->clients, *next; client; client = next) {
        next = client->next;
        if (client->state == CLIENT_GREETING && client->waiting)
            handshake_greet(control, client, false);
    }
}
