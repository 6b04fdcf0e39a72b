/* waker.c: see waker.h. */
#include "daemon/engine/waker.h"

#include <pthread.h>
#include <time.h>

enum { REST = 7 }; /* times as long as a wake took, at least */

static const uint64_t USUAL_NS = 50000; /* a wake of a handful of watchers takes some 3 us */
static const uint64_t REST_MOST_NS = 1000000000;

static pthread_mutex_t waker_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waker_due = PTHREAD_COND_INITIALIZER, waker_done = PTHREAD_COND_INITIALIZER;
static struct client *waker_list; /* by next_wake, unordered */
static struct client *waker_busy; /* being woken, or NULL */
static uid_t waker_turn;          /* whose client was woken last */
static bool waker_runs;

uint64_t waker_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t waker_wake(struct client *client, int way, uint64_t (*cpu_ns)(void))
{
    uint64_t start_ns = cpu_ns();
    client_wake(client, way);
    uint64_t took_ns = cpu_ns() - start_ns;
    return took_ns > USUAL_NS ? took_ns - USUAL_NS : 0;
}

uint64_t waker_rest_ns(uint64_t took_ns)
{
    if (took_ns > REST_MOST_NS / REST)
        return REST_MOST_NS;
    uint64_t rest_ns = took_ns * (REST + took_ns / USUAL_NS);
    return rest_ns < REST_MOST_NS ? rest_ns : REST_MOST_NS;
}

/* PRECOND of this and the next two: the lock is held. */
static void unlink_client(struct client *client)
{
    struct client **link = &waker_list;
    while (*link && *link != client)
        link = &(*link)->next_wake;
    if (*link)
        *link = client->next_wake;
    client->wake_handed = false;
}

/* The client of the next user after the last one, in the circle of their numbers; or NULL. */
static struct client *find_next(void)
{
    struct client *found = NULL;
    uid_t nearest = 0;
    for (struct client *client = waker_list; client; client = client->next_wake) {
        uid_t distance = client->uid - waker_turn - 1;
        if (!found || distance < nearest) {
            found = client;
            nearest = distance;
        }
    }
    return found;
}

static struct client *take_next(void)
{
    struct client *client;
    while (!(client = find_next()))
        pthread_cond_wait(&waker_due, &waker_lock);
    unlink_client(client);
    waker_turn = client->uid;
    return client;
}

static void *waker_thread(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&waker_lock);
        waker_busy = take_next();
        int way = waker_busy->wake_way;
        pthread_mutex_unlock(&waker_lock);

        uint64_t start_ns = waker_cpu_ns();
        client_wake(waker_busy, way);
        uint64_t rest_ns = waker_rest_ns(waker_cpu_ns() - start_ns);

        pthread_mutex_lock(&waker_lock);
        waker_busy = NULL;
        pthread_cond_broadcast(&waker_done);
        pthread_mutex_unlock(&waker_lock);
        nanosleep(&(struct timespec){.tv_sec = (time_t)(rest_ns / 1000000000u),
                                     .tv_nsec = (long)(rest_ns % 1000000000u)},
                  NULL);
    }
    return NULL;
}

static bool start(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool started = pthread_create(&thread, &attributes, waker_thread, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

/* One that waits here already is woken after this, in this way: the lock, which the thread may
 * keep while it has no processor, is for those that do not. */
bool waker_hand(struct client *client, int way)
{
    client->wake_way = way;
    if (client->wake_handed)
        return true;
    if (pthread_mutex_trylock(&waker_lock) != 0)
        return false;
    if (!waker_runs)
        waker_runs = start();
    if (waker_runs) {
        client->next_wake = waker_list;
        waker_list = client;
        client->wake_handed = true;
        pthread_cond_signal(&waker_due);
    }
    const bool handed = waker_runs;
    pthread_mutex_unlock(&waker_lock);
    return handed;
}

void waker_forget(struct client *client)
{
    pthread_mutex_lock(&waker_lock);
    if (client->wake_handed)
        unlink_client(client);
    while (waker_busy == client)
        pthread_cond_wait(&waker_done, &waker_lock);
    pthread_mutex_unlock(&waker_lock);
}
