/* The runtime's behaviour: streams run in order and after the call, graphs keep their arguments,
 * errors come when and where CUDA reports them, limits are CUDA's. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "tests/cudasim/help.h"
#include "tests/cudasim/include/cudasim.h"
#include "tests/run_suite.h"

static struct toy writes_at(int *out, unsigned n, cudaStream_t stream)
{
    return (struct toy){.blocks = 1, .threads = 1, .out = out, .n = n, .stream = stream};
}

START_TEST(a_call_returns_before_its_work_is_done)
{
    cudaStream_t stream;
    int *mapped;
    void *device;

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaHostAlloc((void **)&mapped, 8, cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer(&device, mapped, 0));
    *mapped = 0;
    struct toy toy = writes_at(device, 7, stream);
    OK(toy_sleep(&toy));
    ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorNotReady);
    /* the host polls mapped memory, without a call */
    while (__atomic_load_n(mapped, __ATOMIC_ACQUIRE) != 7)
        ;
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamQuery(stream));
    OK(cudaStreamDestroy(stream));
    OK(cudaFreeHost(mapped));
}
END_TEST

START_TEST(the_host_sees_what_was_written_before_a_system_fence)
{
    enum { MOST = 300 };
    int *mapped;
    void *device;

    OK(cudaHostAlloc((void **)&mapped, (MOST + 1) * sizeof(int), cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer(&device, mapped, 0));
    for (unsigned n = MOST - 20; n < MOST; n++) {
        struct toy toy = {.blocks = 1, .threads = 64, .out = device, .n = n};
        memset(mapped, 0, (MOST + 1) * sizeof(int));
        OK(toy_publish(&toy));
        while (__atomic_load_n(mapped + n, __ATOMIC_ACQUIRE) != (int)n)
            ;
        for (unsigned i = 0; i < n; i++)
            ck_assert_int_eq(mapped[i], (int)(n + i));
        OK(cudaDeviceSynchronize());
    }
    OK(cudaFreeHost(mapped));
}
END_TEST

START_TEST(a_stream_is_in_order_and_an_event_orders_two)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    int got[2];

    (void)setenv("HEARTH_CUDASIM_ORDER", "1", 1); /* streams in any order */
    int *out = help_device(NULL, 2);
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (unsigned i = 0; i < 20; i++) {
        struct toy toy = writes_at(out, i, first);
        OK(toy_sleep(&toy));
        OK(cudaEventRecord(event, first));
        OK(cudaStreamWaitEvent(second, event, 0));
        OK(cudaMemcpyAsync(out + 1, out, sizeof(int), cudaMemcpyDeviceToDevice, second));
        OK(cudaStreamSynchronize(second));
        help_read(got, out, 2);
        ck_assert_int_eq(got[0], (int)i);
        ck_assert_int_eq(got[1], (int)i);
    }
    OK(cudaEventQuery(event));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}
END_TEST

START_TEST(pageable_memory_is_read_at_the_call)
{
    cudaStream_t stream;
    int value = 5, got;
    int *out = help_device(NULL, 2);

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    struct toy toy = writes_at(out, 1, stream);
    OK(toy_sleep(&toy));
    OK(cudaMemcpyAsync(out, &value, sizeof(value), cudaMemcpyHostToDevice, stream));
    value = 6;
    OK(cudaStreamSynchronize(stream));
    help_read(&got, out, 1);
    ck_assert_int_eq(got, 5);
    OK(cudaStreamDestroy(stream));
}
END_TEST

static size_t free_memory(void)
{
    size_t free_bytes, total;

    OK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* A function of the driver; nothing is linked with it on a GPU. */
static void *entry(const char *name)
{
    enum cudaDriverEntryPointQueryResult result;
    void *function;

    OK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result));
    ck_assert_int_eq(result,
                     function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound);
    return function;
}

/* Two granules of three are mapped; memory is taken from its creation until it is released and unmapped. */
START_TEST(memory_is_there_where_it_is_mapped)
{
    enum { G = 4096, N = 2 * G / sizeof(int) };
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory[2];
    CUdeviceptr at;
    int got[N], put[N];

    (void)setenv("HEARTH_CUDASIM_GRANULE", "4096", 1);
    ck_assert_ptr_eq(entry("cuMemMap"), (void *)cuMemMap);
    ck_assert_ptr_null(entry("cuMemUnknown"));
    const size_t before = free_memory();
    OK(cuMemAddressReserve(&at, 3 * G, 0, 0, 0));
    ck_assert_uint_eq(free_memory(), before);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemCreate(&memory[i], G, &prop, 0));
        ck_assert_int_eq(cuMemSetAccess(at + i * G, G, &access, 1), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemMap(at + i * G, G, 0, memory[i], 0));
        OK(cuMemRelease(memory[i]));
        ck_assert_int_eq(cuMemMap(at + 2 * G, G, 0, memory[i], 0), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemSetAccess(at, 2 * G, &access, 1));
    ck_assert_uint_eq(free_memory(), before - 2 * G);
    for (int i = 0; i < (int)N; i++)
        put[i] = 3 * i;
    OK(cudaMemcpy((void *)at, put, sizeof(put), cudaMemcpyHostToDevice));
    help_read(got, (int *)at, N);
    ck_assert_mem_eq(got, put, sizeof(got));
    ck_assert_int_eq(cuMemAddressFree(at, 3 * G), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemUnmap(at + G, 2 * G), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, G));
    ck_assert_uint_eq(free_memory(), before - G);
    help_read(got, (int *)(at + G), N / 2); /* the other one's bytes are as they were */
    ck_assert_mem_eq(got, put + N / 2, sizeof(got) / 2);
    OK(cuMemUnmap(at + G, G));
    ck_assert_uint_eq(free_memory(), before);
    OK(cuMemAddressFree(at, 3 * G));
    ck_assert_int_eq(cuMemCreate(&memory[0], G + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemCreate(&memory[0], before / G * G + G, &prop, 0),
                     CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

/* Two kernels and a copy, captured: nothing runs until the launch, then all in order, each time. */
START_TEST(a_graph_replays_in_order_with_its_own_arguments)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    enum cudaStreamCaptureStatus status;
    size_t nodes;
    int got[2], start[2] = {0, 0};
    int *out = help_device(start, 2);

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned turn = 0; turn < 2; turn++) {
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(cudaStreamIsCapturing(stream, &status));
        ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
        ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
        struct toy toy = writes_at(out, 3 + turn, stream);
        OK(toy_sleep(&toy));
        OK(cudaMemcpyAsync(out + 1, out, sizeof(int), cudaMemcpyDeviceToDevice, stream));
        toy.n = 9;
        OK(toy_sleep(&toy));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphGetNodes(graph, NULL, &nodes));
        ck_assert_uint_eq(nodes, 3);
        if (turn == 0) {
            OK(cudaGraphInstantiate(&exec, graph, 0));
            OK(cudaGraphDestroy(graph));
            help_read(got, out, 2);
            ck_assert_int_eq(got[0], 0); /* nothing has run */
        } else {                         /* a queued launch keeps its arguments */
            OK(cudaMemsetAsync(out, 0, 8, stream));
            OK(cudaGraphLaunch(exec, stream));
            OK(cudaGraphExecUpdate(exec, graph, &info));
            ck_assert_int_eq(info.result, cudaGraphExecUpdateSuccess);
            OK(cudaGraphDestroy(graph));
            OK(cudaStreamSynchronize(stream));
            help_read(got, out, 2);
            ck_assert_int_eq(got[1], 3);
        }
        OK(cudaMemsetAsync(out, 0, 8, stream));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        help_read(got, out, 2);
        ck_assert_int_eq(got[0], 9);
        ck_assert_int_eq(got[1], 3 + (int)turn);
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_graph_of_another_shape_cannot_update)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    int *out = help_device(NULL, 2);
    struct toy toy = writes_at(out, 0, NULL);

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    toy.stream = stream;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(toy_sleep(&toy));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(out, 0, 4, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    ck_assert_int_eq(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    ck_assert_int_eq(info.result, cudaGraphExecUpdateErrorNodeTypeChanged);
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
}
END_TEST

static const float *unwritten;

static void read_unwritten(void)
{
    float got;
    (void)cudaMemcpy(&got, unwritten, sizeof(got), cudaMemcpyDeviceToHost);
}

/* y = w x of bf16 in a stream and captured; an unwritten row of x leaves its row of y unwritten. */
START_TEST(a_library_matmul_is_ordered_by_its_stream)
{
    enum { ONE = 0x3f80, TWO = 0x4000, MINUS_ONE = 0xbf80 };
    const uint16_t w[2][8] = {{ONE, TWO}, {MINUS_ONE, ONE}}, x[8] = {TWO, ONE};
    struct cudasim_matmul matmul = {
        .m = 2, .n = 2, .k = 8, .w_stride = 8, .x_stride = 8, .y_stride = 2, .bf16 = 1};
    uint16_t *weights, *inputs;
    float got[2] = {0};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaMalloc((void **)&weights, sizeof(w)));
    OK(cudaMalloc((void **)&inputs, 2 * sizeof(x)));
    OK(cudaMalloc((void **)&matmul.y, 4 * sizeof(float)));
    OK(cudaMemcpy(weights, w, sizeof(w), cudaMemcpyHostToDevice));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    matmul.w = weights;
    matmul.x = inputs;
    ck_assert_int_eq(cudasim_matmul(stream, &(struct cudasim_matmul){.w = w[0]}),
                     cudaErrorInvalidValue);
    (void)cudaGetLastError();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudasim_matmul(stream, &matmul));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaMemcpy(inputs + 8, x, sizeof(x), cudaMemcpyHostToDevice)); /* only its second row */
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(got, matmul.y + 2, sizeof(got), cudaMemcpyDeviceToHost));
    ck_assert_float_eq(got[0], 4);
    ck_assert_float_eq(got[1], -1);
    unwritten = matmul.y;
    help_reported(read_unwritten, "byte 0 was never written");
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}
END_TEST

START_TEST(launches_outside_of_the_limits_are_refused)
{
    int *out = help_device(NULL, 4);
    struct toy toy = writes_at(out, 0, NULL);

    toy.threads = 1025;
    ck_assert_int_eq(toy_identity(&toy), cudaErrorInvalidConfiguration);
    toy.threads = 32;
    toy.shared_bytes = 48 * 1024 + 1;
    ck_assert_int_eq(toy_identity(&toy), cudaErrorInvalidConfiguration);
    toy.shared_bytes = 0;
    toy.blocks = 0;
    ck_assert_int_eq(toy_identity(&toy), cudaErrorInvalidConfiguration);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidConfiguration);
    OK(cudaGetLastError());
}
END_TEST

START_TEST(allocations_fail_when_memory_is_full)
{
    size_t free_bytes, total;
    void *most, *more;

    (void)setenv("HEARTH_CUDASIM_MEMORY", "1048576", 1);
    OK(cudaMemGetInfo(&free_bytes, &total));
    ck_assert_uint_eq(total, 1048576);
    OK(cudaMalloc(&most, free_bytes));
    ck_assert_uint_eq((uintptr_t)most % 256, 0);
    ck_assert_int_eq(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    ck_assert_ptr_null(more);
    OK(cudaFree(most));
    OK(cudaMalloc(&more, 1));
    ck_assert_ptr_ne(more, most); /* addresses are never reused */
    ck_assert_int_eq(cudaFree(most), cudaErrorInvalidValue);
}
END_TEST

START_TEST(a_machine_without_a_device_says_so)
{
    int count;
    void *memory;

    (void)setenv("HEARTH_CUDASIM_DEVICES", "0", 1);
    ck_assert_int_eq(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    ck_assert_int_eq(count, 0);
    ck_assert_int_eq(cudaSetDevice(0), cudaErrorNoDevice);
    ck_assert_int_eq(cudaMalloc(&memory, 4), cudaErrorNoDevice);
}
END_TEST

START_TEST(injected_errors_come_at_their_call)
{
    void *memory;

    (void)setenv("HEARTH_CUDASIM_FAIL", "malloc@2=2,launch@3=701", 1);
    OK(cudaMalloc(&memory, 4));
    struct toy toy = writes_at(memory, 0, NULL);
    ck_assert_int_eq(cudaMalloc(&memory, 4), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&memory, 4));
    OK(toy_sleep(&toy));
    OK(toy_sleep(&toy));
    ck_assert_int_eq(toy_sleep(&toy), cudaErrorLaunchOutOfResources);
    OK(toy_sleep(&toy));
    (void)setenv("HEARTH_CUDASIM_FAIL", "launch@2=701", 1); /* counted from here */
    OK(toy_sleep(&toy));
    ck_assert_int_eq(toy_sleep(&toy), cudaErrorLaunchOutOfResources);
    OK(toy_sleep(&toy));
    OK(cudaDeviceSynchronize());
}
END_TEST

START_TEST(a_copy_larger_than_the_set_limit_fails)
{
    int from[2] = {1, 2};
    int *memory = help_device(from, 2);

    (void)setenv("HEARTH_CUDASIM_COPY", "4", 1);
    OK(cudaMemcpy(memory, from, 4, cudaMemcpyHostToDevice));
    ck_assert_int_eq(cudaMemcpy(memory, from, 5, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    OK(cudaMemcpy(from, memory, 8, cudaMemcpyDeviceToHost));
    (void)unsetenv("HEARTH_CUDASIM_COPY");
    OK(cudaMemcpy(memory, from, 8, cudaMemcpyHostToDevice));
}
END_TEST

/* As with a real device: the launch itself succeeds, the next wait fails, and so does every later
 * call until the context is reset. */
START_TEST(a_lost_device_stays_lost_until_it_is_reset)
{
    int *memory, got;

    (void)setenv("HEARTH_CUDASIM_FAIL", "launch@2=719", 1);
    memory = help_device(NULL, 1);
    struct toy toy = writes_at(memory, 0, NULL);
    OK(toy_sleep(&toy));
    OK(cudaDeviceSynchronize());
    OK(toy_sleep(&toy));
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaMemcpy(&got, memory, 4, cudaMemcpyDeviceToHost), cudaErrorLaunchFailure);
    ck_assert_int_eq(toy_sleep(&toy), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorLaunchFailure);
    OK(cudaDeviceReset());
    toy.out = help_device(NULL, 1);
    OK(toy_sleep(&toy));
    help_read(&got, toy.out, 1);
}
END_TEST

START_TEST(copies_in_the_wrong_direction_are_refused)
{
    int host = 0, *device = help_device(&host, 1);

    ck_assert_int_eq(cudaMemcpy(&host, device, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device, &host, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemset(&host, 0, 4), cudaErrorInvalidValue);
    OK(cudaMemcpy(device, &host, 4, cudaMemcpyDefault));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runtime");
    TCase *tests = tcase_create("runtime");

    tcase_add_test(tests, a_call_returns_before_its_work_is_done);
    tcase_add_test(tests, the_host_sees_what_was_written_before_a_system_fence);
    tcase_add_test(tests, a_stream_is_in_order_and_an_event_orders_two);
    tcase_add_test(tests, pageable_memory_is_read_at_the_call);
    tcase_add_test(tests, memory_is_there_where_it_is_mapped);
    tcase_add_test(tests, a_graph_replays_in_order_with_its_own_arguments);
    tcase_add_test(tests, a_graph_of_another_shape_cannot_update);
    tcase_add_test(tests, a_library_matmul_is_ordered_by_its_stream);
    tcase_add_test(tests, launches_outside_of_the_limits_are_refused);
    tcase_add_test(tests, allocations_fail_when_memory_is_full);
    tcase_add_test(tests, a_machine_without_a_device_says_so);
    tcase_add_test(tests, injected_errors_come_at_their_call);
    tcase_add_test(tests, a_copy_larger_than_the_set_limit_fails);
    tcase_add_test(tests, a_lost_device_stays_lost_until_it_is_reset);
    tcase_add_test(tests, copies_in_the_wrong_direction_are_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
