/* What a stream does, one after another: the unit of stream.c's queues and of graph.c's graphs.
 *
 * Owns: nothing but itself; a staged copy's bytes belong to it. */
#ifndef HEARTH_TESTS_CUDASIM_OPERATION_H
#define HEARTH_TESTS_CUDASIM_OPERATION_H

#include "tests/cudasim/sim.h"

enum operation_kind {
    OPERATION_KERNEL,
    OPERATION_COPY,
    OPERATION_SET,
    OPERATION_HOST,
    OPERATION_RECORD,
    OPERATION_WAIT,
    OPERATION_GRAPH,
    OPERATION_MATMUL,
};

struct operation {
    enum operation_kind kind;
    struct operation *next; /* younger, in its queue or graph */
    uint64_t sequence;      /* over all streams, in the order of the calls */
    cudaError_t fails;      /* the device is lost here with this error, instead */
    struct sim_kernel *kernel;
    struct {
        void *to;
        const void *from;
        size_t bytes;
        void *staged; /* the source as it was at the call; NULL: read when the copy runs */
    } copy;
    int value; /* OPERATION_SET, into copy.to */
    cudaHostFn_t function;
    void *data;
    cudaEvent_t event;
    uint64_t record; /* of the event: which one this makes, or waits for */
    struct operations *graph;
    struct cudasim_matmul matmul;
};

/* The operations of a graph that can be launched; shared by its launches, never changed. */
struct operations {
    _Atomic unsigned references;
    struct operation *first;
};

struct operation *operation_new(enum operation_kind kind);
struct operation *operation_copy(const struct operation *operation);
void operation_free(struct operation *operation);
/* Runs it on the calling thread; events are stream.c's. Does nothing when the device is lost. */
void operation_run(const struct operation *operation);

/* Checks that [pointer, + bytes) is allocated device memory, apart from gaps, and, where asked, all
 * written. Reports a violation in the name of `call`. */
void operation_check(const char *call, const void *pointer, size_t bytes, bool written);
/* The last step of the calls: the stream takes the operation, unless an error is injected at this
 * event. */
cudaError_t operation_add(cudaStream_t stream, struct operation *operation, enum sim_event event);

/* matmul.c */
void matmul_run(const struct cudasim_matmul *matmul);

struct operations *operations_copy(const struct operation *first);
struct operations *operations_hold(struct operations *operations);
void operations_drop(struct operations *operations);

/* stream.c: gives the operation to the stream (or to the graph that it captures) and takes it
 * over. */
cudaError_t stream_add(cudaStream_t stream, struct operation *operation);
/* The graph that the stream captures into; NULL: none. */
cudaGraph_t stream_capture(cudaStream_t stream);
void stream_set_capture(cudaStream_t stream, cudaGraph_t graph);
bool stream_valid(cudaStream_t stream);
cudaError_t stream_wait(cudaStream_t stream);

/* graph.c: appends to a graph that is being captured. */
void graph_add(cudaGraph_t graph, struct operation *operation);

#endif
