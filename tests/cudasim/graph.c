/* Graphs: the operations that a stream captured, launched any number of times with the arguments
 * that the kernels had at the capture. */
#include "tests/cudasim/operation.h"

#include <stdlib.h>

struct cudasim_graph {
    struct operation *first, **end;
    size_t n;
};

struct cudasim_graph_exec {
    struct operations *operations;
};

void graph_add(cudaGraph_t graph, struct operation *operation)
{
    operation->next = NULL;
    *graph->end = operation;
    graph->end = &operation->next;
    graph->n++;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (stream == NULL)
        return sim_failed(cudaErrorStreamCaptureUnsupported);
    if (!stream_valid(stream) || (unsigned)mode > cudaStreamCaptureModeRelaxed)
        return sim_failed(cudaErrorInvalidValue);
    if (stream_capture(stream) != NULL)
        return sim_failed(cudaErrorIllegalState);
    cudaGraph_t graph = calloc(1, sizeof(*graph));
    if (graph == NULL)
        return sim_failed(cudaErrorMemoryAllocation);
    graph->end = &graph->first;
    stream_set_capture(stream, graph);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret_graph)
{
    *ret_graph = NULL;
    if (!stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    *ret_graph = stream_capture(stream);
    if (*ret_graph == NULL)
        return sim_failed(cudaErrorIllegalState);
    stream_set_capture(stream, NULL);
    return sim_failed(sim_device_error());
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *ret_status)
{
    if (!stream_valid(stream))
        return sim_failed(cudaErrorInvalidResourceHandle);
    *ret_status = stream_capture(stream) != NULL ? cudaStreamCaptureStatusActive
                                                 : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (graph == NULL)
        return sim_failed(cudaErrorInvalidValue);
    while (graph->first != NULL) {
        struct operation *operation = graph->first;

        graph->first = operation->next;
        operation_free(operation);
    }
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    size_t n = 0;

    for (struct operation *o = graph->first; nodes != NULL && o != NULL && n < *count; o = o->next)
        nodes[n++] = (cudaGraphNode_t)o;
    *count = graph->n;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_exec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    const cudaError_t error = sim_enter();

    *ret_exec = NULL;
    if (error != cudaSuccess)
        return sim_failed(error);
    if (graph == NULL || flags != 0)
        return sim_failed(cudaErrorInvalidValue);
    *ret_exec = calloc(1, sizeof(**ret_exec));
    if (*ret_exec == NULL)
        return sim_failed(cudaErrorMemoryAllocation);
    (*ret_exec)->operations = operations_copy(graph->first);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *ret_exec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return cudaGraphInstantiate(ret_exec, graph, flags);
}

/* Whether an instantiated node may be updated to the other. Kernels may change everything, copies
 * everything but their direction. */
static enum cudaGraphExecUpdateResult compare(const struct operation *a, const struct operation *b)
{
    if (a->kind != b->kind)
        return cudaGraphExecUpdateErrorNodeTypeChanged;
    if (a->kind == OPERATION_COPY &&
        (sim_is_device((uintptr_t)a->copy.to) != sim_is_device((uintptr_t)b->copy.to) ||
         sim_is_device((uintptr_t)a->copy.from) != sim_is_device((uintptr_t)b->copy.from)))
        return cudaGraphExecUpdateErrorParametersChanged;
    return cudaGraphExecUpdateSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *ret_info)
{
    const cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (exec == NULL || graph == NULL)
        return sim_failed(cudaErrorInvalidValue);
    struct operation *a = exec->operations->first, *b = graph->first;
    enum cudaGraphExecUpdateResult result = cudaGraphExecUpdateSuccess;
    for (; a != NULL && b != NULL && result == cudaGraphExecUpdateSuccess; a = a->next, b = b->next)
        result = compare(a, b);
    if (result == cudaGraphExecUpdateSuccess && (a != NULL || b != NULL))
        result = cudaGraphExecUpdateErrorTopologyChanged;
    *ret_info = (cudaGraphExecUpdateResultInfo){.result = result};
    if (result != cudaGraphExecUpdateSuccess)
        return sim_failed(cudaErrorGraphExecUpdateFailure);
    /* launches that are queued keep the old ones */
    operations_drop(exec->operations);
    exec->operations = operations_copy(graph->first);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    return exec == NULL || !stream_valid(stream) ? sim_failed(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t error = sim_enter();

    if (error != cudaSuccess)
        return sim_failed(error);
    if (exec == NULL || !stream_valid(stream))
        return sim_failed(cudaErrorInvalidValue);
    error = sim_inject(SIM_GRAPH);
    if (error != cudaSuccess && !sim_is_sticky(error))
        return sim_failed(error);
    struct operation *operation = operation_new(OPERATION_GRAPH);
    operation->fails = error;
    operation->graph = operations_hold(exec->operations);
    return sim_failed(stream_add(stream, operation));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    if (exec == NULL)
        return sim_failed(cudaErrorInvalidValue);
    operations_drop(exec->operations);
    free(exec);
    return cudaSuccess;
}
