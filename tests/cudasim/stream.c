/* Streams: queues of operations that one worker thread runs, so that calls return before the work
 * is done and a host that does not wait is noticed. Of several streams with a runnable head, the
 * oldest call goes first, or a random one in shuffled order.
 *
 * CUDA_LAUNCH_BLOCKING=1: the calling thread does the work before the call returns (for
 * debuggers). */
#include "tests/cudasim/operation.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cudasim_stream {
    struct operation *first, *last;
    struct cudasim_stream *next;
    cudaGraph_t capture;
    bool blocking;  /* ordered with the default stream */
    uint64_t ended; /* sequence of the last operation that has been done */
    uint64_t added; /* of the last that was asked for */
};

struct cudasim_event {
    uint64_t recorded, completed; /* records asked for, done */
    uint64_t at_ns;
    bool timing;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct cudasim_stream default_stream = {.blocking = true};
static struct cudasim_stream *streams = &default_stream; /* all; the default one is last */
static uint64_t last_sequence;
static bool worker_runs, busy;

static struct cudasim_stream *stream_of(cudaStream_t stream)
{
    return stream == NULL ? &default_stream : stream;
}

static bool known(const struct cudasim_stream *stream)
{
    const struct cudasim_stream *s = streams;

    while (s != NULL && s != stream)
        s = s->next;
    return s != NULL;
}

bool stream_valid(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    const bool valid = known(stream_of(stream));
    pthread_mutex_unlock(&lock);
    return valid;
}

cudaGraph_t stream_capture(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    cudaGraph_t graph = stream_of(stream)->capture;
    pthread_mutex_unlock(&lock);
    return graph;
}

void stream_set_capture(cudaStream_t stream, cudaGraph_t graph)
{
    pthread_mutex_lock(&lock);
    stream_of(stream)->capture = graph;
    pthread_mutex_unlock(&lock);
}

/* ---- the worker ---- */

/* The default stream waits for older work of all blocking streams, and they for its older work. */
static bool may_run(const struct cudasim_stream *stream)
{
    const struct operation *head = stream->first;

    if (head == NULL || (head->kind == OPERATION_WAIT && head->event->completed < head->record))
        return false;
    if (!stream->blocking)
        return true;
    for (const struct cudasim_stream *other = streams; other != NULL; other = other->next) {
        const bool ordered =
            other->blocking && (stream == &default_stream || other == &default_stream);

        if (other != stream && ordered && other->first != NULL &&
            other->first->sequence < head->sequence)
            return false;
    }
    return true;
}

static struct cudasim_stream *choose(void)
{
    const bool shuffled = sim_settings()->order == SIM_ORDER_SHUFFLED;
    struct cudasim_stream *chosen = NULL;
    unsigned n = 0;

    for (struct cudasim_stream *stream = streams; stream != NULL; stream = stream->next) {
        if (!may_run(stream))
            continue;
        n++;
        if (chosen == NULL ||
            (shuffled ? sim_random() % n == 0 : stream->first->sequence < chosen->first->sequence))
            chosen = stream;
    }
    return chosen;
}

static uint64_t now_ns(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void complete(struct cudasim_stream *stream)
{
    struct operation *operation = stream->first;

    if (operation->kind == OPERATION_RECORD) {
        operation->event->completed = operation->record;
        operation->event->at_ns = now_ns();
    }
    stream->ended = operation->sequence;
    stream->first = operation->next;
    if (stream->first == NULL)
        stream->last = NULL;
    operation_free(operation);
    (void)pthread_cond_broadcast(&changed);
}

/* Called with the lock; runs one operation without it. Returns false when none may run. */
static bool run_one(void)
{
    struct cudasim_stream *stream = choose();

    if (stream == NULL || busy)
        return false;
    busy = true;
    pthread_mutex_unlock(&lock);
    operation_run(stream->first);
    pthread_mutex_lock(&lock);
    busy = false;
    complete(stream);
    return true;
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        if (!run_one())
            (void)pthread_cond_wait(&changed, &lock);
    }
    return NULL;
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* The child has no worker until it needs one. */
static void after_fork_child(void)
{
    worker_runs = false;
    pthread_mutex_unlock(&lock);
}

static void start_worker(void)
{
    static bool at_fork;
    pthread_t thread;
    sigset_t all, before;

    worker_runs = true;
    if (!at_fork && pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0)
        at_fork = true;
    (void)sigfillset(&all); /* signals are the program's own threads' */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, work, NULL) != 0) {
        fprintf(stderr, "cudasim: cannot start the worker thread\n");
        abort();
    }
    (void)pthread_detach(thread);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- adding and waiting ---- */

static void enqueue(struct cudasim_stream *stream, struct operation *operation)
{
    operation->sequence = stream->added = ++last_sequence;
    if (stream->last != NULL)
        stream->last->next = operation;
    else
        stream->first = operation;
    stream->last = operation;
    if (sim_settings()->blocking) {
        while (run_one())
            ;
        return;
    }
    if (!worker_runs)
        start_worker();
    (void)pthread_cond_broadcast(&changed);
}

/* Whether a stream that the default stream would wait for is capturing. */
static bool captures_blocking(void)
{
    const struct cudasim_stream *s = streams;

    while (s != NULL && (s->capture == NULL || !s->blocking))
        s = s->next;
    return s != NULL;
}

cudaError_t stream_add(cudaStream_t handle, struct operation *operation)
{
    struct cudasim_stream *stream = stream_of(handle);
    cudaError_t error = cudaSuccess;

    pthread_mutex_lock(&lock);
    if (stream->capture != NULL) {
        graph_add(stream->capture, operation);
    } else if (stream == &default_stream && captures_blocking()) {
        operation_free(operation);
        error = cudaErrorStreamCaptureImplicit;
    } else {
        enqueue(stream, operation);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* Called with the lock. */
static void wait_one(struct cudasim_stream *stream, uint64_t until)
{
    while (stream->first != NULL && stream->first->sequence <= until)
        (void)pthread_cond_wait(&changed, &lock);
}

static cudaError_t after_wait(void)
{
    return sim_failed(sim_device_error());
}

cudaError_t stream_wait(cudaStream_t handle)
{
    struct cudasim_stream *stream = stream_of(handle);

    pthread_mutex_lock(&lock);
    wait_one(stream, stream->added);
    pthread_mutex_unlock(&lock);
    return after_wait();
}

/* The first step of waiting calls. */
static cudaError_t enter_wait(void)
{
    cudaError_t error = sim_enter();

    if (error == cudaSuccess)
        error = sim_inject(SIM_SYNC);
    if (sim_is_sticky(error))
        sim_device_lose(error);
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const cudaError_t error = enter_wait();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (!stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    if (stream_capture(stream) != NULL)
        return sim_failed(cudaErrorStreamCaptureUnsupported);
    return stream_wait(stream);
}

static cudaError_t wait_all(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t until = last_sequence;
    bool captures = false;
    for (struct cudasim_stream *stream = streams; stream != NULL; stream = stream->next) {
        captures |= stream->capture != NULL;
        wait_one(stream, until);
    }
    pthread_mutex_unlock(&lock);
    return captures ? sim_failed(cudaErrorStreamCaptureUnsupported) : after_wait();
}

cudaError_t cudaDeviceSynchronize(void)
{
    const cudaError_t error = enter_wait();

    return error != cudaSuccess ? sim_failed(error) : wait_all();
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    const cudaError_t error = sim_enter();
    struct cudasim_stream *stream = stream_of(handle);

    if (error != cudaSuccess)
        return sim_failed(error);
    if (!stream_valid(handle))
        return sim_failed(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&lock);
    const bool idle = stream->first == NULL;
    pthread_mutex_unlock(&lock);
    return idle ? after_wait() : cudaErrorNotReady;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags)
{
    const cudaError_t error = sim_enter();

    *ret_stream = NULL;
    if (error != cudaSuccess || flags > 1)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidValue);
    struct cudasim_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return sim_failed(cudaErrorMemoryAllocation);
    stream->blocking = flags != cudaStreamNonBlocking;
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    *ret_stream = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *ret_stream)
{
    return cudaStreamCreateWithFlags(ret_stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret_stream, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(ret_stream, flags);
}

/* Unlike the real one it waits until queued work is done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (stream == NULL || !stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&lock);
    wait_one(stream, stream->added);
    struct cudasim_stream **link = &streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&lock);
    free(stream);
    return sim_failed(sim_device_error());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess || function == NULL)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidValue);
    struct operation *operation = operation_new(OPERATION_HOST);
    operation->function = function;
    operation->data = data;
    return sim_failed(stream_add(stream, operation));
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags)
{
    const cudaError_t error = sim_enter();

    *ret_event = NULL;
    if (error != cudaSuccess || flags > 3)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidValue);
    *ret_event = calloc(1, sizeof(**ret_event));
    if (*ret_event == NULL)
        return sim_failed(cudaErrorMemoryAllocation);
    (*ret_event)->timing = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *ret_event)
{
    return cudaEventCreateWithFlags(ret_event, cudaEventDefault);
}

static void wait_event(cudaEvent_t event, uint64_t record)
{
    while (event->completed < record)
        (void)pthread_cond_wait(&changed, &lock);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event == NULL)
        return sim_failed(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&lock);
    wait_event(event, event->recorded);
    pthread_mutex_unlock(&lock);
    free(event);
    return cudaSuccess;
}

static cudaError_t add_event(cudaStream_t stream, cudaEvent_t event, enum operation_kind kind)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (event == NULL || !stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    if (stream_capture(stream) != NULL) /* branches inside of a graph are not simulated */
        return sim_failed(cudaErrorNotSupported);
    struct operation *operation = operation_new(kind);
    operation->event = event;
    pthread_mutex_lock(&lock);
    operation->record = kind == OPERATION_RECORD ? ++event->recorded : event->recorded;
    pthread_mutex_unlock(&lock);
    return sim_failed(stream_add(stream, operation));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return add_event(stream, event, OPERATION_RECORD);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return flags != 0 ? sim_failed(cudaErrorInvalidValue)
                      : add_event(stream, event, OPERATION_WAIT);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess || event == NULL)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&lock);
    const bool done = event->completed >= event->recorded;
    pthread_mutex_unlock(&lock);
    return done ? after_wait() : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const cudaError_t error = enter_wait();

    if (error != cudaSuccess || event == NULL)
        return sim_failed(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&lock);
    wait_event(event, event->recorded);
    pthread_mutex_unlock(&lock);
    return after_wait();
}

cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t error = cudaSuccess;

    pthread_mutex_lock(&lock);
    if (!start->timing || !end->timing || start->recorded == 0 || end->recorded == 0)
        error = cudaErrorInvalidResourceHandle;
    else if (start->completed < start->recorded || end->completed < end->recorded)
        error = cudaErrorNotReady;
    else
        *ret_ms = (float)((double)(int64_t)(end->at_ns - start->at_ns) * 1e-6);
    pthread_mutex_unlock(&lock);
    return sim_failed(error);
}

/* ---- the whole device ---- */

/* Destroys the context: memory, queued work, attributes and the error. Handles stay valid only for
 * their destruction. */
cudaError_t cudaDeviceReset(void)
{
    if (sim_settings()->devices == 0)
        return sim_failed(cudaErrorNoDevice);
    (void)wait_all();
    sim_memory_reset();
    sim_functions_reset();
    (void)cudaGetLastError();
    return cudaSuccess;
}
