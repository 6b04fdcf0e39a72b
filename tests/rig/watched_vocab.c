/* watched_vocab: see watched_vocab.h. */
#include "tests/rig/watched_vocab.h"

#include "ipc/vocab_layout.h"

#include <check.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

static char *watched;
static size_t n_watched, n_read;

static void on_read(int sig, siginfo_t *info, void *context)
{
    char *page = (char *)info->si_addr - (uintptr_t)info->si_addr % PAGE_BYTES;
    (void)context;
    if (page < watched || page >= watched + n_watched)
        signal(sig, SIG_DFL); /* a fault of another kind */
    else
        mprotect(page, PAGE_BYTES, PROT_READ);
    n_read++;
}

struct vocab watched_vocab_open(const void *block, size_t bytes)
{
    const struct sigaction action = {.sa_sigaction = on_read, .sa_flags = SA_SIGINFO};
    struct vocab v;
    char err[256];
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(copy, MAP_FAILED);
    memcpy(copy, block, bytes);
    ck_assert_int_eq(vocab_open(copy, bytes, &v, err, sizeof(err)), 0);
    watched = (char *)v.tokens + PAGE_BYTES - (uintptr_t)v.tokens % PAGE_BYTES;
    n_watched =
        ((size_t)((const char *)(v.tokens + v.n_tokens) - watched)) / PAGE_BYTES * PAGE_BYTES;
    n_read = 0;
    ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
    ck_assert_int_eq(mprotect(watched, n_watched, PROT_NONE), 0);
    return v;
}

size_t watched_vocab_pages(void)
{
    return n_watched / PAGE_BYTES;
}

size_t watched_vocab_read(void)
{
    return n_read;
}
