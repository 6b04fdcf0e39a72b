/* loop.h: waits for file descriptors, with io_uring, or with epoll where io_uring is refused.
 *
 * Each daemon thread opens one loop and is the only one to call it (the ring is created
 * SINGLE_ISSUER where the kernel supports it: loop_open must run on the thread that waits). The
 * loop owns its registrations, never the file descriptors in them.
 *
 * An event is a hint to look, never a count: registrations are multishot (io_uring) or
 * edge-triggered (epoll), so a handler reads until nothing is left. Features are probed, not
 * guessed from kernel versions; a refused feature falls back one step at a time (see loop_uring.c).
 */
#ifndef HEARTH_DAEMON_LOOP_LOOP_H
#define HEARTH_DAEMON_LOOP_LOOP_H

#include <stddef.h>
#include <stdint.h>

enum loop_backend { LOOP_AUTO, LOOP_URING, LOOP_EPOLL };

enum { LOOP_ENTRIES = 4096 }; /* max registrations per loop */

struct loop;

struct loop_event {
    uint64_t cookie; /* as given at registration */
    int32_t result;  /* accept: the new descriptor; poll: the poll(2) mask; or -errno */
};

/* Opens a loop for the calling thread. Returns 0; -ENOSYS/-EPERM when `backend` is LOOP_URING and
 * the system refuses io_uring; other -errno when resources are short. LOOP_AUTO falls back to
 * epoll. */
int loop_open(struct loop **ret_loop, enum loop_backend backend);
void loop_close(struct loop *loop);

/* "io_uring" or "epoll": what `hearth status` reports. */
const char *loop_name(const struct loop *loop);

/* Accepts connections on `listen_fd` until removed; every event's result is a new CLOEXEC,
 * non-blocking descriptor owned by the caller. An event with -errno (no descriptors left) ends the
 * registration: add it again after a pause, because an immediate retry would spin. Returns 0 or
 * -errno (-ENOSPC: LOOP_ENTRIES are in use). */
int loop_add_accept(struct loop *loop, int listen_fd, uint64_t cookie);

/* Ends accepting on `listen_fd` without losing a connection: those accepted already still come as
 * events. Returns 0 when accepting has ended; 1 when a last event under the cookie, with
 * -ECANCELED, will say so. Other processes may go on accepting on that socket. */
int loop_end_accept(struct loop *loop, int listen_fd, uint64_t cookie);

/* Watches `fd` for `events` (POLLIN, POLLRDHUP, ...) until removed. */
int loop_add_poll(struct loop *loop, int fd, short events, uint64_t cookie);

/* Ends the registration of `fd` under `cookie`; no event of it is returned afterwards. Call it
 * before the descriptor is closed. */
void loop_remove(struct loop *loop, int fd, uint64_t cookie);

/* Waits up to `timeout_ns` (0: only polls; < 0: without limit) and fills up to `capacity` events.
 * Returns their number; 0 on timeout, on a signal, or spuriously (a removal completed); -errno when
 * the loop itself failed. */
int loop_wait(struct loop *loop, int64_t timeout_ns, struct loop_event *events, size_t capacity);

#endif
