/* clock: preloaded into a program, it makes its clocks of monotonic and of wall time wrong by as many
 * nanoseconds as the file of descriptor HEARTH_TEST_CLOCK says at that moment. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000 };

static const _Atomic int64_t *wrong_by;

__attribute__((constructor)) static void clock_open(void)
{
    const char *text = getenv("HEARTH_TEST_CLOCK");
    int fd = text ? (int)strtol(text, NULL, 10) : -1;
    void *map = mmap(NULL, sizeof(*wrong_by), PROT_READ, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        abort();
    wrong_by = map;
    close(fd);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ret);

    if (rc == 0 && wrong_by && (id == CLOCK_MONOTONIC || id == CLOCK_REALTIME)) {
        int64_t ns = (int64_t)ret->tv_sec * SECOND + ret->tv_nsec + atomic_load(wrong_by);
        ret->tv_sec = (time_t)(ns / SECOND);
        ret->tv_nsec = (long)(ns % SECOND);
    }
    return rc;
}
