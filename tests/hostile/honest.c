/* honest: see honest.h. */
#include "tests/hostile/honest.h"

#include "ipc/bell.h"
#include "tests/e2e/harness.h"
#include "tests/hostile/attack.h"
#include "tests/random.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WAIT_S = 120,
    ROUGH_WAIT_S = 600,
    PROMPT_MAX = 128,
    OUTPUT = 30,
    REQUESTS_EACH = 32 /* of a connection */
};

void *honest_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

static uint32_t wait_s(const struct honest *h)
{
    return h->is_rough ? ROUGH_WAIT_S : WAIT_S;
}

struct hearth *honest_connect(const struct honest *h)
{
    struct hearth_options options;
    struct hearth *handle = NULL;
    char err[256];
    int rc;

    hearth_options_init(&options, sizeof(options));
    options.connect_timeout_ms = options.resume_ms = (int)wait_s(h) * 1000;
    for (uint64_t start = bell_now_ns();; usleep(5000)) {
        rc = hearth_connect(h->socket, &options, &handle, err, sizeof(err));
        if (rc == 0 || !h->is_rough || bell_now_ns() - start > wait_s(h) * 1000000000ull)
            break;
    }
    if (rc < 0)
        fprintf(stderr, "an honest user cannot connect: %s\n", err);
    return rc < 0 ? NULL : handle;
}

static int honest_submit(struct hearth *handle, uint32_t kind)
{
    uint32_t prompt[PROMPT_MAX], state = 3 + kind;
    struct hearth_request r;

    hearth_request_init(&r, sizeof(r));
    r.n_tokens = 1 + kind * kind % PROMPT_MAX;
    for (uint32_t i = 0; i < r.n_tokens; i++)
        prompt[i] = 3 + random_below(&state, 250);
    r.tokens = prompt;
    r.max_tokens = OUTPUT;
    r.temperature = kind % 2 ? 0.9f : 0;
    r.seed = kind;
    r.repeat_penalty = kind % 3 ? 1 : 1.1f;
    r.logprobs = kind % 4 == 3 ? 2 : -1;
    return hearth_submit(handle, 0, &r);
}

static void honest_note(struct honest_times *times, uint64_t since_ns, uint64_t now_ns)
{
    times->us[times->n++ % HONEST_TIMES] = (uint32_t)((now_ns - since_ns) / 1000);
}

/* As hearth_next(). Looks so many times for a second each: a process that gets no processor looks less
 * often. */
static int honest_next(const struct honest *h, struct hearth *handle,
                       const struct hearth_event **ret_event)
{
    int rc = 0;

    for (uint32_t looks = 0; rc == 0 && looks < wait_s(h); looks++)
        rc = hearth_next(handle, 0, ret_event, 1000);
    return rc;
}

uint64_t honest_ask(const struct honest *h, struct hearth *handle, uint32_t kind,
                    struct honest_user *user)
{
    const struct hearth_event *event;
    uint64_t hash = 1469598103934665603u, last = bell_now_ns(), start = last;
    uint32_t tokens = 0;
    int rc = honest_submit(handle, kind);

    while (rc >= 0 && (rc = honest_next(h, handle, &event)) > 0) {
        for (uint32_t i = 0; i < event->n_tokens; i++)
            hash = (hash ^ event->tokens[i]) * 1099511628211u;
        if (event->n_tokens && user) {
            uint64_t now = bell_now_ns();
            honest_note(tokens ? &user->between : &user->first, last, now);
            last = now;
        }
        tokens += event->n_tokens;
        if (event->kind != HEARTH_DONE)
            continue;
        if (event->result->reason != HEARTH_ERROR && event->result->output_tokens == tokens)
            return hash ^ event->result->reason;
        fprintf(stderr, "an answer ended by reason %d, error %d, with %u of %u tokens: %s\n",
                (int)event->result->reason, event->result->error, tokens,
                event->result->output_tokens, event->result->error_text);
        return 0;
    }
    fprintf(stderr, "no answer: %s; it began %llu ms ago, and has %u tokens\n",
            rc ? strerror(-rc) : "nothing came",
            (unsigned long long)(bell_now_ns() - start) / 1000000, tokens);
    return 0;
}

void honest_alone(struct honest *h)
{
    struct hearth *handle = honest_connect(h);

    ck_assert_ptr_nonnull(handle);
    for (uint32_t kind = 0; kind < HONEST_KINDS; kind++) {
        h->alone[kind] = honest_ask(h, handle, kind, NULL);
        ck_assert_uint_ne(h->alone[kind], 0);
    }
    hearth_close(handle);
}

static _Noreturn void honest_process(struct honest *h, uint32_t number)
{
    struct honest_user *user = &h->users[number];
    struct hearth *handle = NULL;

    attack_become(h->is_rough ? getuid() : HONEST_USER + number);
    for (uint32_t i = 0; !atomic_load(&h->stop); i++) {
        uint32_t kind = (i + number) % HONEST_KINDS;
        if (i % REQUESTS_EACH == 0) {
            hearth_close(handle);
            handle = honest_connect(h);
            if (!handle)
                _exit(2);
        }
        uint64_t hash = honest_ask(h, handle, kind, user);
        if (hash != h->alone[kind]) {
            fprintf(stderr, "user %u, request %u: %s\n", number, kind,
                    hash ? "another answer than alone" : hearth_error(handle));
            _exit(2);
        }
        atomic_fetch_add(&user->answers, 1);
    }
    hearth_close(handle);
    _exit(0);
}

pid_t honest_spawn(struct honest *h, uint32_t number)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        honest_process(h, number);
    return pid;
}

void honest_start(struct honest *h)
{
    atomic_store(&h->stop, 0);
    for (uint32_t i = 0; i < HONEST_USERS; i++) {
        atomic_store(&h->users[i].answers, 0);
        h->users[i].first.n = h->users[i].between.n = 0;
        h->pids[i] = honest_spawn(h, i);
    }
}

static bool honest_ended(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0;
}

void honest_await(const struct honest *h, uint32_t answers)
{
    for (uint32_t i = 0; i < HONEST_USERS; i++)
        while (atomic_load(&h->users[i].answers) < answers && !honest_ended(h->pids[i]))
            usleep(2000);
}

void honest_stop(struct honest *h)
{
    atomic_store(&h->stop, 1);
    for (uint32_t i = 0; i < HONEST_USERS; i++) {
        ck_assert_int_eq(harness_wait(h->pids[i]), 0);
        ck_assert_uint_gt(atomic_load(&h->users[i].answers), 0);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

uint32_t honest_p99(const struct honest *h, enum honest_time which)
{
    static uint32_t all[HONEST_USERS * HONEST_TIMES];
    size_t n = 0;

    for (uint32_t i = 0; i < HONEST_USERS; i++) {
        const struct honest_user *user = &h->users[i];
        const struct honest_times *times = which == HONEST_FIRST ? &user->first : &user->between;
        size_t have = times->n < HONEST_TIMES ? times->n : HONEST_TIMES;
        memcpy(all + n, times->us, have * sizeof(*all));
        n += have;
    }
    qsort(all, n, sizeof(*all), compare);
    return n ? all[n - 1 - n / 100] : 0;
}
