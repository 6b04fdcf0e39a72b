/* balance: see balance.h. */
#include "tests/hostile/balance.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

enum {
    ROOM_KB = 2048, /* how much an allocator may vary */
    TRIES = 3000,
};

int balance_fds(pid_t pid)
{
    char path[64];
    int n = -2; /* . and .. */

    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

int64_t balance_resident_kb(pid_t pid)
{
    char path[64], line[256];
    long kb = -1;

    snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (kb < 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmRSS: %ld", &kb) != 1)
            kb = -1;
    fclose(file);
    return kb;
}

static int64_t resident_kb(const struct harness *d)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)d;
    return 0; /* they keep freed memory */
#else
    return balance_resident_kb(d->pid);
#endif
}

struct balance balance_take(const struct harness *d)
{
    static const char *const zero[] = {"clients", "slots_used", "slots_active", "slots_waiting",
                                       "slots_paused"};

    for (size_t i = 0; i < sizeof(zero) / sizeof(*zero); i++)
        ck_assert_msg(harness_wait_counter(d, zero[i], 0) == 0, "%s is left", zero[i]);
    harness_check_pages(d);
    harness_check_drafts(d);
    return (struct balance){
        .pages_free = harness_counter(d, "pages_free"),
        .fds = balance_fds(d->pid),
        .resident_kb = resident_kb(d),
    };
}

void balance_check(const struct harness *d, const struct balance *before)
{
    struct balance now = balance_take(d);

    /* The connection that read the counters may still be closing. */
    for (int i = 0; i < TRIES && now.fds > before->fds; i++, usleep(10000))
        now.fds = balance_fds(d->pid);
    ck_assert_int_eq(now.pages_free, before->pages_free);
    ck_assert_msg(now.fds <= before->fds, "%d descriptors, %d before", now.fds, before->fds);
    ck_assert_msg(now.resident_kb <= before->resident_kb + ROOM_KB,
                  "%lld KiB are resident, %lld before", (long long)now.resident_kb,
                  (long long)before->resident_kb);
}
