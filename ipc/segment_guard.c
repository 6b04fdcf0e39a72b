/* segment_guard.c: the daemon survives a page of a client's segment that fails.
 *
 * The handler runs on the faulting thread. It uses a fixed table of words, and mmap and sigaction,
 * which are plain system calls. An entry is in use while its base is not 0; a thread faults only in
 * a range that it has mapped, so an entry cannot go away while the handler needs it. */
#include "ipc/segment.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD_RANGES 4096u /* two for each of 1,024 clients, and as many to spare */

struct guard_range {
    _Atomic uintptr_t base; /* 0: free; stored last */
    _Atomic size_t bytes;
    _Atomic uint32_t *_Atomic broken;
};

static struct guard_range guard_ranges[GUARD_RANGES];
static _Atomic uint32_t guard_used; /* ranges [0, guard_used) may be in use */
static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction guard_previous;
static int guard_installed;
static size_t guard_page_bytes; /* of the kernel; larger than IPC_PAGE on some machines */

static struct guard_range *guard_find(uintptr_t address)
{
    uint32_t used = atomic_load(&guard_used);
    for (uint32_t i = 0; i < used; i++) {
        uintptr_t base = atomic_load(&guard_ranges[i].base);
        if (base != 0 && address - base < atomic_load(&guard_ranges[i].bytes))
            return &guard_ranges[i];
    }
    return NULL;
}

static void guard_on_sigbus(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    struct guard_range *g = info->si_code > 0 ? guard_find(address) : NULL;
    void *page = (uint8_t *)info->si_addr - address % guard_page_bytes;
    (void)context;
    if (g != NULL && mmap(page, guard_page_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
        atomic_store(atomic_load(&g->broken), 1);
    } else {
        /* Not our memory: restore the previous handler, which gets the fault when the access is
         * retried. A signal sent by kill() is not repeated by itself. */
        sigaction(SIGBUS, &guard_previous, NULL);
        if (info->si_code <= 0)
            raise(sig);
    }
    errno = saved;
}

int segment_guard_init(void)
{
    struct sigaction action = {.sa_sigaction = guard_on_sigbus, .sa_flags = SA_SIGINFO};
    int rc = 0;
    pthread_mutex_lock(&guard_lock);
    sigemptyset(&action.sa_mask);
    guard_page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (!guard_installed && sigaction(SIGBUS, &action, &guard_previous) < 0)
        rc = -errno;
    guard_installed |= rc == 0;
    pthread_mutex_unlock(&guard_lock);
    return rc;
}

int segment_guard_add(const void *base, size_t bytes, _Atomic uint32_t *broken)
{
    int rc = -ENOSPC;
    assert((uintptr_t)base % IPC_PAGE == 0);
    pthread_mutex_lock(&guard_lock);
    for (uint32_t i = 0; i < GUARD_RANGES; i++) {
        struct guard_range *g = &guard_ranges[i];
        if (atomic_load(&g->base) != 0)
            continue;
        atomic_store(&g->bytes, bytes);
        atomic_store(&g->broken, broken);
        atomic_store(&g->base, (uintptr_t)base);
        if (i >= atomic_load(&guard_used))
            atomic_store(&guard_used, i + 1);
        rc = 0;
        break;
    }
    pthread_mutex_unlock(&guard_lock);
    return rc;
}

void segment_guard_remove(const void *base)
{
    pthread_mutex_lock(&guard_lock);
    for (uint32_t i = 0; i < atomic_load(&guard_used); i++)
        if (atomic_load(&guard_ranges[i].base) == (uintptr_t)base)
            atomic_store(&guard_ranges[i].base, 0);
    pthread_mutex_unlock(&guard_lock);
}
