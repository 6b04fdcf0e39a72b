/* Segments: their layout, what a client can and cannot do to them, and surviving a failed page.
 * Client and daemon are one process here; the mappings are the real ones. */
#include "ipc/counters.h"
#include "ipc/event.h"
#include "ipc/segment.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ipc_limits limits = {
    .slots = 3, .context = 5000, .submit_cells = 16, .event_cells = 64, .params_bytes = 1024};
static struct segment d, c; /* the daemon's and the client's view of one pair */
static char err[256];

static void setup(void)
{
    ck_assert_int_eq(segment_guard_init(), 0);
    ck_assert_msg(segment_open(&d, &limits, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(segment_map(&c, d.up_fd, d.down_fd, &limits, err, sizeof(err)) == 0, "%s", err);
}

static void teardown(void)
{
    segment_close(&c);
    segment_close(&d);
}

/* ---- plan ------------------------------------------------------------------------------------ */

START_TEST(areas_neither_overlap_nor_leave_the_segment)
{
    static const struct ipc_limits many[] = {
        {1, 1, 4, 32, 256},
        {8, 131072, 64, 256, 65536},
        {256, 5000, 1024, 65536, 4096},
        {3, 1025, 16, 64, 320},
        {256, 1u << 22, 65536, 65536, 1u << 22},
    };
    static const uint32_t shifts[] = {0, 128, 3968, 2048, 1024};

    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
        const struct ipc_limits *l = &many[i];
        struct segment_plan p;

        ck_assert_int_eq(segment_plan(l, shifts[i], &p, err, sizeof(err)), 0);
        ck_assert_uint_eq(p.up_head, shifts[i]);
        ck_assert_uint_ge(p.down_head, shifts[i] + sizeof(struct down_about));
        ck_assert_uint_eq(p.down_head % 128, 0);
        ck_assert_uint_ge(p.up_slots, p.up_head + sizeof(struct up_head));
        ck_assert_uint_ge(p.up_submit, p.up_slots + l->slots * sizeof(struct up_slot));
        ck_assert_uint_ge(p.up_params, p.up_submit + (uint64_t)l->submit_cells * 64);
        ck_assert_uint_ge(p.up_arenas, p.up_params + (uint64_t)l->slots * l->params_bytes);
        ck_assert_uint_ge(p.arena_bytes, (uint64_t)l->context * 4);
        ck_assert_uint_ge(p.up_bytes, p.up_arenas + l->slots * p.arena_bytes);
        ck_assert_uint_ge(p.down_slots, p.down_head + sizeof(struct down_head));
        ck_assert_uint_ge(p.down_events, p.down_slots + l->slots * sizeof(struct down_slot));
        ck_assert_uint_ge(p.down_bytes, p.down_events + (uint64_t)l->slots * l->event_cells * 64);
        ck_assert_uint_eq((p.up_submit | p.up_params | p.down_events) % 64, 0);
        ck_assert_uint_eq((p.up_arenas | p.up_bytes | p.down_bytes | p.arena_bytes) % 4096, 0);
    }
}
END_TEST

START_TEST(limits_out_of_bounds_are_refused)
{
    static const struct ipc_limits bad[] = {
        {0, 100, 16, 64, 1024},        {257, 100, 16, 64, 1024},
        {1, 0, 16, 64, 1024},          {1, (1u << 22) + 1, 16, 64, 1024},
        {1, UINT32_MAX, 16, 64, 1024}, {1, 100, 0, 64, 1024},
        {1, 100, 2, 64, 1024},         {1, 100, 17, 64, 1024},
        {1, 100, 1u << 17, 64, 1024},  {1, 100, 16, 16, 1024},
        {1, 100, 16, 63, 1024},        {1, 100, 16, 1u << 17, 1024},
        {1, 100, 16, 64, 0},           {1, 100, 16, 64, 192},
        {1, 100, 16, 64, 1000},        {1, 100, 16, 64, (1u << 22) + 64},
    };
    static const uint32_t bad_shifts[] = {1, 64, 4096, UINT32_MAX};
    struct segment_plan p;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err[0] = 0;
        ck_assert_int_eq(segment_plan(&bad[i], 0, &p, err, sizeof(err)), -EINVAL);
        ck_assert_uint_gt(strlen(err), 0);
        ck_assert_int_eq(segment_open(&d, &bad[i], err, sizeof(err)), -EINVAL);
    }
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(segment_plan(&limits, bad_shifts[i], &p, err, sizeof(err)), -EINVAL);
}
END_TEST

/* ---- both views ------------------------------------------------------------------------------ */

START_TEST(each_side_sees_the_other_sides_writes)
{
    struct ring_reader submit_in, events_in;
    struct ring_writer submit_out, events_out;
    struct submit_cell cell = {.opcode = SUBMIT_REQUEST, .slot = 2, .generation = 7, .length = 3};
    struct submit_cell got;
    uint32_t tokens[3] = {11, 22, 33}, copy[3];
    struct event_run run;

    segment_submit_reader(&d, &submit_in);
    segment_submit_writer(&c, &submit_out);
    segment_event_writer(&d, 2, &events_out);
    segment_event_reader(&c, 2, &events_in);

    ring_generation_start(&segment_up_slot(&c, 2)->generation, 7);
    segment_copy_out(segment_arena(&c, 2), tokens, sizeof(tokens));
    ck_assert_int_eq(ring_space(&submit_out), 16);
    ring_push(&submit_out, &cell);

    ck_assert_int_eq(ring_peek(&submit_in, &got), 1);
    ck_assert_uint_eq(got.slot, 2);
    ck_assert_int_eq(segment_copy_in(&d, copy, segment_arena(&d, 2), sizeof(copy)), 0);
    ck_assert_mem_eq(copy, tokens, sizeof(tokens));
    ck_assert(ring_generation_live(&segment_up_slot(&d, 2)->generation, 7));
    ring_release(&submit_in, 1);
    ck_assert_int_eq(ring_space(&submit_out), 16);

    ck_assert_int_eq(event_put_tokens(&events_out, 7, 3, tokens, 3), 0);
    ck_assert_int_eq(event_next(&events_in, &run), 1);
    ck_assert_uint_eq(run.generation, 7);
    ring_release(&events_in, run.cells);
    ck_assert_int_eq(ring_space(&events_out), 64);
}
END_TEST

static uint64_t held_bytes(int fd)
{
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Memory is charged to the process that touches it first, and a client may keep it. */
START_TEST(the_client_touches_the_pages_first)
{
    struct segment daemon, client;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), held;
    uint8_t copy[64] = {1};

    ck_assert_int_eq(segment_open(&daemon, &limits, err, sizeof(err)), 0);
    ck_assert_uint_eq(held_bytes(daemon.up_fd), 0);
    ck_assert_uint_le(held_bytes(daemon.down_fd), page); /* down_about */
    ck_assert(!segment_is_touched(&daemon));
    ck_assert_int_eq(segment_map(&client, daemon.up_fd, daemon.down_fd, &limits, err, sizeof(err)),
                     0);
    ck_assert_uint_ge(held_bytes(daemon.down_fd), daemon.plan.down_bytes);
    ck_assert(segment_is_touched(&daemon));
    ck_assert_uint_ge(held_bytes(daemon.up_fd), daemon.plan.up_params);
    held = held_bytes(daemon.up_fd);
    ck_assert_int_eq(segment_copy_in(&daemon, copy, segment_arena(&daemon, 2), sizeof(copy)), 0);
    ck_assert_uint_eq(held_bytes(daemon.up_fd),
                      held); /* of a request that claims what is not there */
    for (size_t i = 0; i < sizeof(copy); i++)
        ck_assert_uint_eq(copy[i], 0);
    segment_close(&client);
    segment_close(&daemon);
}
END_TEST

START_TEST(slots_do_not_overlap)
{
    for (uint32_t slot = 0; slot < limits.slots; slot++) {
        memset(segment_arena(&c, slot), 0x40 + (int)slot, limits.context * 4);
        memset(segment_params(&c, slot), 0x50 + (int)slot, limits.params_bytes);
        atomic_store(&segment_up_slot(&c, slot)->generation, slot);
        atomic_store(&segment_up_slot(&c, slot)->events, 100 + slot);
    }
    for (uint32_t slot = 0; slot < limits.slots; slot++) {
        ck_assert_uint_eq(((uint8_t *)segment_arena(&d, slot))[0], 0x40 + slot);
        ck_assert_uint_eq(((uint8_t *)segment_arena(&d, slot))[limits.context * 4 - 1],
                          0x40 + slot);
        ck_assert_uint_eq(segment_params(&d, slot)[0], 0x50 + slot);
        ck_assert_uint_eq(segment_params(&d, slot)[limits.params_bytes - 1], 0x50 + slot);
        ck_assert_uint_eq(ring_generation(&segment_up_slot(&d, slot)->generation), slot);
        ck_assert_uint_eq(atomic_load(&segment_up_slot(&d, slot)->events), 100 + slot);
    }
    ck_assert_uint_eq(atomic_load(&segment_up_head(&d)->waiting), 0);
}
END_TEST

START_TEST(blobs_are_shared_read_only)
{
    uint8_t bytes[10000];
    const void *base;
    struct ctl *ctl;
    int fd;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 31);
    fd = segment_seal("test-vocab", bytes, sizeof(bytes), err, sizeof(err));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(segment_map_constant(fd, sizeof(bytes), &base, err, sizeof(err)), 0);
    ck_assert_mem_eq(base, bytes, sizeof(bytes));
    munmap((void *)(uintptr_t)base, sizeof(bytes));
    ck_assert_int_eq(segment_map_constant(fd, sizeof(bytes) + 1, &base, err, sizeof(err)), -EPROTO);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    ck_assert_int_eq((int)pwrite(fd, "x", 1, 0), -1);
    close(fd);

    fd = segment_ctl_open(&ctl, err, sizeof(err));
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_eq(ctl->magic, CTL_MAGIC);
    ck_assert_uint_eq(ctl->engine_counters, COUNTERS_ENGINE_N);
    ck_assert_int_eq(segment_map_sealed(fd, sizeof(*ctl), &base, err, sizeof(err)), 0);
    counters_set(ctl, COUNTER_CLIENTS, 42);
    ck_assert_uint_eq(counters_get(base, COUNTER_CLIENTS), 42);
    munmap((void *)(uintptr_t)base, sizeof(*ctl));
    segment_ctl_close(ctl, fd);
}
END_TEST

/* ---- hostile clients ------------------------------------------------------------------------- */

static void refused(int result)
{
    ck_assert_int_eq(result, -1);
    ck_assert_int_eq(errno, EPERM);
}

START_TEST(neither_segment_can_change_size_or_seals)
{
    int fds[2] = {d.up_fd, d.down_fd};

    for (int i = 0; i < 2; i++) {
        refused(ftruncate(fds[i], 0));
        refused(ftruncate(fds[i], 1 << 24));
        refused(fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE));
    }
}
END_TEST

START_TEST(down_cannot_be_written_by_a_client)
{
    char path[64];
    void *base;
    int again;

    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, d.down_fd, 0),
                     MAP_FAILED);
    refused((int)pwrite(d.down_fd, "x", 1, 0));
    refused(fallocate(d.down_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    base = mmap(NULL, 4096, PROT_READ, MAP_SHARED, d.down_fd, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    ck_assert_int_eq(mprotect(base, 4096, PROT_READ | PROT_WRITE), -1);
    ck_assert_int_eq(madvise(base, 4096, MADV_REMOVE), -1);
    munmap(base, 4096);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", d.down_fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
        ck_assert_ptr_eq(base, MAP_FAILED);
        close(again);
    }
    segment_down_about(&d)->magic++; /* the daemon still can */
}
END_TEST

START_TEST(a_hole_reads_as_zeroes_and_the_ring_says_so)
{
    struct ring_reader in;
    struct ring_writer out;
    struct submit_cell cell = {.opcode = SUBMIT_NOP};

    segment_submit_reader(&d, &in);
    segment_submit_writer(&c, &out);
    for (uint32_t i = 0; i < limits.submit_cells + 3; i++) {
        ck_assert_int_gt(ring_space(&out), 0);
        ring_push(&out, &cell);
        ck_assert_int_eq(ring_peek(&in, &cell), 1);
        ring_release(&in, 1);
    }
    ck_assert_int_eq(ring_peek(&in, &cell), 0);
    ck_assert_int_eq(
        fallocate(d.up_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)d.plan.up_bytes),
        0);
    ck_assert_int_eq(ring_peek(&in, &cell), -EPROTO);
    ck_assert(!segment_broken(&d));
}
END_TEST

START_TEST(a_client_checks_the_segments_it_receives)
{
    struct segment other;
    struct ipc_limits wrong = limits;
    int bare = memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        null = open("/dev/null", O_RDWR);

    ck_assert_int_eq(ftruncate(bare, (off_t)d.plan.up_bytes), 0);
    ck_assert_int_eq(segment_map(&other, bare, d.down_fd, &limits, err, sizeof(err)), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err, "seals"));
    ck_assert_int_eq(segment_map(&other, null, d.down_fd, &limits, err, sizeof(err)), -EPROTO);
    ck_assert_int_eq(segment_map(&other, d.up_fd, null, &limits, err, sizeof(err)), -EPROTO);
    ck_assert_int_eq(segment_map(&other, d.down_fd, d.up_fd, &limits, err, sizeof(err)), -EPROTO);
    wrong.slots = 2;
    ck_assert_int_eq(segment_map(&other, d.up_fd, d.down_fd, &wrong, err, sizeof(err)), -EPROTO);
    wrong = limits;
    wrong.slots = 0;
    ck_assert_int_eq(segment_map(&other, d.up_fd, d.down_fd, &wrong, err, sizeof(err)), -EPROTO);
    segment_down_about(&d)->shift = 64;
    ck_assert_int_eq(segment_map(&other, d.up_fd, d.down_fd, &limits, err, sizeof(err)), -EINVAL);
    segment_down_about(&d)->magic++;
    ck_assert_int_eq(segment_map(&other, d.up_fd, d.down_fd, &limits, err, sizeof(err)), -EPROTO);
    close(bare);
    close(null);
}
END_TEST

/* Its maker keeps a writable mapping from before it was sealed. */
START_TEST(what_its_maker_can_still_write_to_is_no_constant)
{
    const void *base;
    int fd = memfd_create("changing", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    char *kept = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(kept, MAP_FAILED);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_int_eq(
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
    ck_assert_int_eq(segment_map_constant(fd, 4096, &base, err, sizeof(err)), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err, "seals"));
    munmap(kept, 4096);
    close(fd);
}
END_TEST

START_TEST(a_forked_child_has_no_segments)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        unsigned char v;

        _exit(mincore(c.up, 4096, &v) == -1 && errno == ENOMEM ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* ---- the guard ------------------------------------------------------------------------------- */

/* Two pages, the second beyond the file's end: reading it raises SIGBUS, like a page that a memory
 * limit refuses. */
static uint8_t *failing_pages(int *ret_fd)
{
    int fd = memfd_create("failing", MFD_CLOEXEC);
    uint8_t *base;

    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    base = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    ck_assert_int_eq((int)pwrite(fd, "good", 4, 0), 4);
    ck_assert_int_eq((int)pwrite(fd, "lost", 4, 4096), 4);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    if (ret_fd)
        *ret_fd = fd;
    else
        close(fd);
    return base;
}

START_TEST(copy_in_survives_a_failed_page)
{
    struct segment s = {.plan = {.up_bytes = 8192}};
    uint8_t copy[8192];

    s.up = failing_pages(&s.up_fd);
    ck_assert_int_eq(segment_guard_add(s.up, 8192, &s.broken), 0);
    ck_assert_int_eq(segment_copy_in(&s, copy, s.up, 4096), 0);
    ck_assert_int_eq(segment_copy_in(&s, copy, s.up, 8192), -EFAULT);
    ck_assert_mem_eq(copy, "good", 4);
    ck_assert_uint_eq(s.up[4096], 0); /* a load is guarded */
    ck_assert(segment_broken(&s));
    ck_assert_int_eq(segment_copy_in(&s, copy, s.up, 64), -EFAULT); /* and stays failed */
    segment_guard_remove(s.up);
    close(s.up_fd);
    munmap(s.up, 8192);
}
END_TEST

START_TEST(plain_loads_survive_and_only_that_segment_is_broken)
{
    uint8_t *pages = failing_pages(NULL);
    _Atomic uint32_t broken = 0;

    ck_assert_int_eq(segment_guard_add(pages, 8192, &broken), 0);
    ck_assert_uint_eq(atomic_load((_Atomic uint32_t *)(void *)(pages + 4096)), 0);
    ck_assert_uint_eq(broken, 1);
    ck_assert(!segment_broken(&d));
    segment_guard_remove(pages);
    munmap(pages, 8192);
}
END_TEST

START_TEST(a_fault_elsewhere_still_kills)
{
    volatile uint8_t *pages = failing_pages(NULL);

    (void)pages[4096];
}
END_TEST

START_TEST(a_sent_sigbus_still_kills)
{
    kill(getpid(), SIGBUS);
    sleep(10);
}
END_TEST

START_TEST(removed_ranges_are_not_guarded)
{
    uint8_t *pages = failing_pages(NULL);
    _Atomic uint32_t broken = 0;

    ck_assert_int_eq(segment_guard_add(pages, 8192, &broken), 0);
    segment_guard_remove(pages);
    (void)*(volatile uint8_t *)(pages + 4096);
}
END_TEST

START_TEST(the_guards_table_fills_and_empties)
{
    static _Atomic uint32_t broken;
    uintptr_t n = 0;

    while (segment_guard_add((void *)(0x100000000000u + n * 4096), 4096, &broken) == 0)
        n++;
    ck_assert_uint_ge(n, 2 * 1024);
    for (uintptr_t i = 0; i < n; i++)
        segment_guard_remove((void *)(0x100000000000u + i * 4096));
    ck_assert_int_eq(segment_guard_add((void *)0x100000000000u, 4096, &broken), 0);
    segment_guard_remove((void *)0x100000000000u);
}
END_TEST

START_TEST(neighbouring_segments_have_different_page_offsets)
{
    struct segment s[32];
    uint32_t seen = 0;

    for (int i = 0; i < 32; i++) {
        ck_assert_int_eq(segment_open(&s[i], &limits, err, sizeof(err)), 0);
        seen |= 1u << s[i].plan.up_head / 128;
    }
    ck_assert_uint_eq(seen, UINT32_MAX);
    for (int i = 0; i < 32; i++)
        segment_close(&s[i]);
}
END_TEST

START_TEST(opening_and_closing_leaks_no_descriptor)
{
    int before = dup(0), after;

    close(before);
    for (int i = 0; i < 50; i++) {
        struct segment s;

        ck_assert_int_eq(segment_open(&s, &limits, err, sizeof(err)), 0);
        segment_close(&s);
    }
    after = dup(0);
    ck_assert_int_eq(after, before);
    close(after);
}
END_TEST

START_TEST(without_descriptors_the_error_says_so)
{
    struct rlimit few;
    struct segment s;
    int free_fd = dup(0);

    close(free_fd);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
    few.rlim_cur = (rlim_t)free_fd;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(segment_open(&s, &limits, err, sizeof(err)), -EMFILE);
    few.rlim_cur++; /* for one of the two */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(segment_open(&s, &limits, err, sizeof(err)), -EMFILE);
    ck_assert_int_eq(dup(0), free_fd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("segment");
    TCase *plan = tcase_create("plan"), *pair = tcase_create("pair"),
          *guard = tcase_create("guard");

    signal(SIGBUS, SIG_DFL); /* sanitizers install their own handler */
    tcase_add_test(plan, areas_neither_overlap_nor_leave_the_segment);
    tcase_add_test(plan, limits_out_of_bounds_are_refused);
    tcase_add_test(plan, blobs_are_shared_read_only);
    tcase_add_test(plan, neighbouring_segments_have_different_page_offsets);
    tcase_add_test(plan, opening_and_closing_leaks_no_descriptor);
    tcase_add_test(plan, without_descriptors_the_error_says_so);
    suite_add_tcase(s, plan);
    tcase_add_checked_fixture(pair, setup, teardown);
    tcase_add_test(pair, each_side_sees_the_other_sides_writes);
    tcase_add_test(pair, the_client_touches_the_pages_first);
    tcase_add_test(pair, slots_do_not_overlap);
    tcase_add_test(pair, neither_segment_can_change_size_or_seals);
    tcase_add_test(pair, down_cannot_be_written_by_a_client);
    tcase_add_test(pair, a_hole_reads_as_zeroes_and_the_ring_says_so);
    tcase_add_test(pair, a_client_checks_the_segments_it_receives);
    tcase_add_test(pair, what_its_maker_can_still_write_to_is_no_constant);
    tcase_add_test(pair, a_forked_child_has_no_segments);
    suite_add_tcase(s, pair);
    tcase_add_checked_fixture(guard, setup, teardown);
    tcase_add_test(guard, copy_in_survives_a_failed_page);
    tcase_add_test(guard, plain_loads_survive_and_only_that_segment_is_broken);
    tcase_add_test(guard, the_guards_table_fills_and_empties);
    tcase_add_test_raise_signal(guard, a_fault_elsewhere_still_kills, SIGBUS);
    tcase_add_test_raise_signal(guard, a_sent_sigbus_still_kills, SIGBUS);
    tcase_add_test_raise_signal(guard, removed_ranges_are_not_guarded, SIGBUS);
    suite_add_tcase(s, guard);
    return run_suite(s);
}
