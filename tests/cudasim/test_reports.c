/* Every error that the simulator detects, made on purpose: it must end the process with one line
 * that names the kernel, the block, the thread, the place and the error. */
#include <stdlib.h>
#include <unistd.h>

#include <cuda.h>

#include "kernels/cuda/arena.h"
#include "tests/cudasim/help.h"
#include "tests/run_suite.h"

static struct toy toy_of(unsigned threads, unsigned n)
{
    return (struct toy){.blocks = 1, .threads = threads, .n = n, .shared_bytes = 4096};
}

/* A launch with 64 written ints and 64 unwritten ones. */
#define MISTAKE(name, threads_n, n_value)                                                          \
    static void do_##name(void)                                                                    \
    {                                                                                              \
        static const int zeros[64];                                                                \
        struct toy toy = toy_of(threads_n, n_value);                                               \
        toy.in = help_device(zeros, 64);                                                           \
        toy.out = help_device(NULL, 64);                                                           \
        OK(toy_##name(&toy));                                                                      \
    }

MISTAKE(barrier_left, 64, 40)
MISTAKE(barrier_other, 64, 40)
MISTAKE(shuffle_left, 32, 3)
MISTAKE(shuffle_masks, 32, 0)
MISTAKE(shuffle_out, 32, 20)
MISTAKE(shuffle_barrier, 32, 5)
MISTAKE(read_at, 1, 64)
MISTAKE(write_at, 1, 64)
MISTAKE(shared_unwritten, 1, 9)
MISTAKE(shared_race, 64, 0)
MISTAKE(lane_race, 32, 0)
MISTAKE(write_race, 64, 0)
MISTAKE(copy_no_wait, 1, 0)
MISTAKE(misaligned, 1, 0)
MISTAKE(stack, 32, 0)

START_TEST(a_barrier_after_a_thread_has_ended)
{
    help_reported(do_barrier_left, "barrier_left block (0,0,0) thread (|__syncthreads|toys.cu:");
}
END_TEST

START_TEST(a_barrier_while_others_wait_at_another)
{
    help_reported(do_barrier_other, "barrier_other|wait at another one|toys.cu:");
}
END_TEST

START_TEST(a_shuffle_with_a_lane_that_has_ended)
{
    help_reported(do_shuffle_left, "shuffle_left block (0,0,0)|__shfl_xor_sync|toys.cu:");
}
END_TEST

START_TEST(shuffles_with_masks_that_overlap)
{
    help_reported(do_shuffle_masks, "shuffle_masks|__shfl_sync (mask 0xffff0000) meets|0x0001ffff");
}
END_TEST

START_TEST(a_shuffle_from_a_lane_outside_of_the_mask)
{
    help_reported(do_shuffle_out, "shuffle_out|reads lane 20, which is not in the mask 0x0000ffff");
}
END_TEST

START_TEST(a_shuffle_with_a_lane_that_waits_elsewhere)
{
    help_reported(do_shuffle_barrier,
                  "shuffle_barrier|__shfl_sync waits for lane 5|waits at|toys.cu:");
}
END_TEST

/* A kernel reads from addresses that are reserved, where memory was mapped and is not any more. */
static void do_read_unmapped(void)
{
    enum { G = 4096 };
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at;
    struct toy toy = toy_of(1, 3);

    OK(cuMemAddressReserve(&at, G, 0, 0, 0));
    OK(cuMemCreate(&memory, G, &prop, 0));
    OK(cuMemMap(at, G, 0, memory, 0));
    OK(cuMemSetAccess(at, G, &access, 1));
    OK(cudaMemset((void *)at, 0, G));
    OK(cudaDeviceSynchronize());
    OK(cuMemUnmap(at, G));
    toy.in = (int *)at;
    toy.out = help_device(NULL, 64);
    OK(toy_read_at(&toy));
}

START_TEST(a_read_where_no_memory_is_mapped)
{
    help_reported(do_read_unmapped,
                  "read_at|reads 4 bytes at 12 of reserved addresses, where no memory is mapped");
}
END_TEST

START_TEST(a_read_past_the_end)
{
    help_reported(do_read_at,
                  "read_at block (0,0,0) thread (0,0,0): reads 4 bytes at 256, outside of "
                  "allocation 1 (256 bytes)|toys.cu:");
}
END_TEST

START_TEST(a_write_past_the_end)
{
    help_reported(do_write_at, "write_at|writes 4 bytes at 256, outside of allocation 2|toys.cu:");
}
END_TEST

static void read_unwritten(void)
{
    struct toy toy = toy_of(1, 3);

    toy.in = help_device(NULL, 64);
    toy.out = help_device(NULL, 64);
    OK(toy_read_at(&toy));
}

START_TEST(a_read_of_unwritten_memory)
{
    help_reported(read_unwritten, "read_at|reads 4 bytes at 12 of allocation 1 (256 bytes), never "
                                  "written|toys.cu:");
}
END_TEST

static void read_freed(void)
{
    struct toy toy = toy_of(1, 3);

    toy.in = help_device(NULL, 64);
    toy.out = help_device(NULL, 64);
    OK(cudaFree((void *)(uintptr_t)toy.in));
    OK(toy_read_at(&toy));
}

START_TEST(a_read_of_freed_memory)
{
    help_reported(read_freed, "read_at|reads 4 bytes at 12 of allocation 1|has been freed");
}
END_TEST

static void read_host(void)
{
    struct toy toy = toy_of(1, 0);
    int *host = malloc(sizeof(int));

    toy.in = host;
    toy.out = help_device(NULL, 64);
    OK(toy_read_at(&toy));
    (void)cudaDeviceSynchronize();
    free(host);
}

START_TEST(a_host_pointer_in_a_kernel)
{
    help_reported(read_host, "read_at|reads 4 bytes at 0x|host memory");
}
END_TEST

static void read_null(void)
{
    struct toy toy = toy_of(1, 0);

    toy.out = help_device(NULL, 64);
    OK(toy_read_at(&toy));
}

START_TEST(a_null_pointer)
{
    help_reported(read_null, "read_at|null pointer");
}
END_TEST

START_TEST(another_threads_stack)
{
    help_reported(do_stack, "stack block (0,0,0) thread (1,0,0)|another thread's stack");
}
END_TEST

START_TEST(a_read_of_unwritten_shared_memory)
{
    help_reported(do_shared_unwritten, "shared_unwritten|reads 4 bytes at 36 of shared memory, "
                                       "never written|toys.cu:");
}
END_TEST

static void shared_outside(void)
{
    struct toy toy = toy_of(1, 4);

    toy.shared_bytes = 16;
    toy.out = help_device(NULL, 64);
    OK(toy_shared_unwritten(&toy));
}

START_TEST(a_read_past_the_end_of_shared_memory)
{
    help_reported(shared_outside, "reads 4 bytes at 16, outside of its 16 bytes of shared memory");
}
END_TEST

START_TEST(a_race_in_shared_memory)
{
    help_reported(do_shared_race,
                  "shared_race|of shared memory that thread (|no barrier between|toys.cu:");
}
END_TEST

START_TEST(a_race_of_two_lanes)
{
    help_reported(do_lane_race, "lane_race|no barrier between|toys.cu:");
}
END_TEST

START_TEST(a_race_of_two_writes)
{
    help_reported(do_write_race, "write_race|writes 4 bytes at 0|wrote|no barrier between");
}
END_TEST

START_TEST(an_asynchronous_copy_without_its_wait)
{
    help_reported(do_copy_no_wait, "copy_no_wait|asynchronous copy|toys.cu:");
}
END_TEST

static void wgmma(unsigned mistake)
{
    static const int zeros[1536];
    struct toy toy = toy_of(128, mistake);

    toy.shared_bytes = 4096;
    toy.in = help_device(zeros, 1536);
    toy.out = help_device(NULL, 128);
    OK(toy_wgmma(&toy));
}

static void do_wgmma_written(void)
{
    wgmma(1);
}

static void do_wgmma_sums(void)
{
    wgmma(2);
}

static void do_wgmma_left(void)
{
    wgmma(3);
}

START_TEST(a_wgmma_that_is_not_waited_for)
{
    help_reported(do_wgmma_written, "wgmma|written before its end|toys.cu:");
    help_reported(do_wgmma_sums, "wgmma|d is not what it was|toys.cu:");
    help_reported(do_wgmma_left, "wgmma|ends before its wgmma");
}
END_TEST

START_TEST(a_misaligned_load)
{
    help_reported(do_misaligned, "misaligned block (0,0,0)|not aligned to 16 bytes|toys.cu:");
}
END_TEST

static void poll_another(void)
{
    static const int zero;
    struct toy toy = toy_of(1, 2);

    toy.blocks = 3;
    toy.out = help_device(&zero, 1);
    OK(toy_poll(&toy));
}

START_TEST(a_block_that_waits_for_another_one)
{
    help_reported(poll_another, "poll block|no thread of its block changes|toys.cu:");
}
END_TEST

static unsigned mistake;

static void block_race(void)
{
    static const int zeros[4];
    struct toy toy = toy_of(1, mistake);

    toy.blocks = 2;
    toy.out = help_device(zeros, 4);
    struct toy writes = toy;
    writes.blocks = 1;
    writes.threads = 4;
    OK(toy_identity(&writes)); /* races of memory that no kernel has written are not looked for */
    OK(toy_block_race(&toy));
}

START_TEST(a_race_between_blocks)
{
    static const char *const wanted[] = {
        "block_race|writes 4 bytes at|has read without a release and an acquire|toys.cu:",
        "block_race|writes 4 bytes at|has written without a release and an acquire|toys.cu:",
        "block_race|reads 4 bytes at|has written without a release and an acquire|toys.cu:",
        "block_race|reads 4 bytes at|has written without a release and an acquire|toys.cu:"};

    mistake = (unsigned)_i;
    help_reported(block_race, wanted[_i]);
}
END_TEST

static void publish_early(void)
{
    static const int zero;
    struct toy toy = toy_of(64, mistake);
    int *mapped;

    toy.blocks = mistake == 1 ? 1 : 2;
    toy.in = help_device(&zero, 1);
    OK(cudaHostAlloc((void **)&mapped, 129 * sizeof(int), cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer((void **)&toy.out, mapped, 0));
    OK(toy_publish_early(&toy));
}

START_TEST(a_flag_to_the_host_before_its_data)
{
    static const char *const wanted[] = {
        "publish_early block (1,0,0)|of another block|fence of that one|toys.cu:",
        "publish_early block (0,0,0)|of its block|fence of its own|toys.cu:",
        "publish_early block (1,0,0)|of another block|fence of that one|toys.cu:"};

    mistake = (unsigned)_i;
    help_reported(publish_early, wanted[_i]);
}
END_TEST

static void early(void)
{
    static const int zeros[64];
    struct toy toy = toy_of(1, 0), first = toy;

    first.out = help_device(zeros, 64);
    toy.in = first.out;
    toy.out = help_device(NULL, 64);
    toy.dependent = 1;
    OK(toy_write_at(&first));
    OK(toy_early(&toy));
}

START_TEST(a_read_before_the_previous_kernel_is_done)
{
    help_reported(early, "early block (0,0,0)|before it waits for the kernel before it|toys.cu:");
}
END_TEST

static void copy_outside(void)
{
    static int host[65];

    (void)cudaMemcpy(help_device(NULL, 64), host, sizeof(host), cudaMemcpyHostToDevice);
}

static void copy_unwritten(void)
{
    static int host[4];

    (void)cudaMemcpy(host, help_device(NULL, 64), sizeof(host), cudaMemcpyDeviceToHost);
}

START_TEST(copies_beyond_an_allocation_and_of_unwritten_bytes)
{
    help_reported(copy_outside,
                  "cudaMemcpy: 260 bytes at 0 of allocation 1, which do not lie in it");
    help_reported(copy_unwritten,
                  "cudaMemcpy: 16 bytes at 0 of allocation 1: byte 0 was never written");
}
END_TEST

/* An arena cut into two pieces of 60 ints, all written. */
static void shared_out(int *pieces[2])
{
    static const int zeros[60];
    struct cuda_arena arena = {NULL, 0};

    for (int real = 0; real < 2; real++) {
        for (int i = 0; i < 2; i++)
            pieces[i] = cuda_take(&arena, sizeof(zeros));
        if (!real)
            OK(cuda_arena_open(&arena));
    }
    OK(cudaMemset(arena.base, 7, arena.used)); /* spans the gaps */
    OK(cudaMemcpy(pieces[0], zeros, sizeof(zeros), cudaMemcpyHostToDevice));
}

static void write_next(void)
{
    struct toy toy = toy_of(1, 60);
    int *pieces[2];

    shared_out(pieces);
    toy.out = pieces[0];
    OK(toy_write_at(&toy));
}

static void read_next(void)
{
    struct toy toy = toy_of(1, (512 + 240 + 240) / 4); /* past the second piece */
    int *pieces[2];

    shared_out(pieces);
    toy.in = pieces[0];
    toy.out = pieces[1];
    OK(toy_read_at(&toy));
}

/* A matmul of rows of eight with eight inputs; inputs and weights are in the second piece. */
static void multiply_beyond(void)
{
    int *pieces[2];

    shared_out(pieces);
    const uint16_t *halves = (const uint16_t *)(const void *)pieces[1];
    const struct cudasim_matmul matmul = {.w = halves,
                                          .x = halves,
                                          .y = (float *)(void *)pieces[0],
                                          .m = 8,
                                          .n = 8,
                                          .k = 8,
                                          .w_stride = 8,
                                          .x_stride = 8,
                                          .y_stride = 8};
    OK(cudasim_matmul(NULL, &matmul));
    OK(cudaDeviceSynchronize());
}

START_TEST(accesses_between_two_pieces_of_an_allocation)
{
    help_reported(multiply_beyond, "cublasGemmEx, outputs|lies between two pieces");

    help_reported(write_next, "write_at|writes 4 bytes at 240 of allocation 1, between the pieces "
                              "that it was cut into|toys.cu:");
    help_reported(read_next, "read_at|reads 4 bytes at 992 of allocation 1, between the pieces");
}
END_TEST

static void read_left(void)
{
    struct toy toy = toy_of(1, 5);
    int *pieces[2], seen = 1;

    shared_out(pieces);
    toy.in = pieces[0];
    toy.out = pieces[1];
    OK(toy_read_at(&toy));
    help_read(&seen, toy.out, 1);
    if (seen != 0)
        _exit(0); /* no report: the test fails */
    cuda_forget(pieces[0], 60 * sizeof(int));
    OK(toy_read_at(&toy));
}

START_TEST(a_read_of_bytes_forgotten_between_uses)
{
    help_reported(read_left, "read_at|reads 4 bytes at 20 of allocation 1|never written");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reports");
    TCase *threads = tcase_create("threads"), *memory = tcase_create("memory");

    tcase_add_test(threads, a_barrier_after_a_thread_has_ended);
    tcase_add_test(threads, a_barrier_while_others_wait_at_another);
    tcase_add_test(threads, a_shuffle_with_a_lane_that_has_ended);
    tcase_add_test(threads, shuffles_with_masks_that_overlap);
    tcase_add_test(threads, a_shuffle_from_a_lane_outside_of_the_mask);
    tcase_add_test(threads, a_shuffle_with_a_lane_that_waits_elsewhere);
    tcase_add_test(threads, a_block_that_waits_for_another_one);
    tcase_add_loop_test(threads, a_race_between_blocks, 0, 4);
    tcase_add_loop_test(threads, a_flag_to_the_host_before_its_data, 0, 3);
    tcase_add_test(threads, a_read_before_the_previous_kernel_is_done);
    tcase_add_test(memory, a_read_where_no_memory_is_mapped);
    tcase_add_test(memory, a_read_past_the_end);
    tcase_add_test(memory, a_write_past_the_end);
    tcase_add_test(memory, a_read_of_unwritten_memory);
    tcase_add_test(memory, a_read_of_freed_memory);
    tcase_add_test(memory, a_host_pointer_in_a_kernel);
    tcase_add_test(memory, a_null_pointer);
    tcase_add_test(memory, another_threads_stack);
    tcase_add_test(memory, a_read_of_unwritten_shared_memory);
    tcase_add_test(memory, a_read_past_the_end_of_shared_memory);
    tcase_add_test(memory, a_race_in_shared_memory);
    tcase_add_test(memory, a_race_of_two_lanes);
    tcase_add_test(memory, a_race_of_two_writes);
    tcase_add_test(memory, an_asynchronous_copy_without_its_wait);
    tcase_add_test(memory, a_wgmma_that_is_not_waited_for);
    tcase_add_test(memory, a_misaligned_load);
    tcase_add_test(memory, copies_beyond_an_allocation_and_of_unwritten_bytes);
    tcase_add_test(memory, accesses_between_two_pieces_of_an_allocation);
    tcase_add_test(memory, a_read_of_bytes_forgotten_between_uses);
    suite_add_tcase(suite, threads);
    suite_add_tcase(suite, memory);
    return run_suite(suite);
}
