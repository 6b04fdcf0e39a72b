/*
 * waker: wakes clients whose wakes are expensive, on a thread of its own.
 *
 * A client decides what waking it costs: the kernel goes through all that watches its end of the
 * socket, and 20,000 epoll entries take 2.6 ms. So each wake is measured; what is beyond the usual
 * is charged to the client's user, and while that user owes too much (attached.c) its clients are
 * woken here. The thread takes users in turn, and rests after each wake (waker_rest_ns). All wakes
 * here together take an eighth of a core at most, and a hundredth where one takes milliseconds,
 * because the kernel cannot be preempted in one.
 *
 * The engine thread hands clients over; the control thread takes them back before it frees them. A
 * client waits here once, however often it is handed over: a wake-up is a hint, not a count. The
 * thread starts with the first of them and is the process's: it outlives engine and control.
 */
#ifndef HEARTH_DAEMON_ENGINE_WAKER_H
#define HEARTH_DAEMON_ENGINE_WAKER_H

#include "daemon/engine/client.h"

#include <stdbool.h>

/* CPU time of the calling thread. */
uint64_t waker_cpu_ns(void);

/* Wakes by `way` and returns the CPU time that this took beyond the usual, by the clock cpu_ns. (The
 * time of a wall clock tells nothing: the client that is woken may take this thread's processor.) */
uint64_t waker_wake(struct client *client, int way, uint64_t (*cpu_ns)(void));

/* How long the thread rests after a wake of so much CPU time: seven times as long, and the longer the
 * wake the more times; at most a second. */
uint64_t waker_rest_ns(uint64_t took_ns);

/* Never waits. Returns false when the client could not be handed over: the caller wakes it. */
bool waker_hand(struct client *client, int way);

/* Stops waking the client here: waits until a wake that is under way has ended. */
void waker_forget(struct client *client);

#endif
