/* explore: depth first over all choices: the thread that runs, the message a load takes. An execution is
 * run from its start with the choices so far, then one that was not made yet; one that comes to a
 * state which was there before ends there. Threads are contexts that stop before each access which
 * another thread can notice. */
#include "tests/model/explore.h"

#include <assert.h> /* a failed one of the real code is a failure of the execution */
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    WORDS = 1024, /* of shared memory, 4 bytes each */
    LOCATIONS = 24,
    MESSAGES = 24, /* of one location */
    FDS = 4,
    NAMES = 16,
    STACK_BYTES = 1 << 16,
    CHOICES = 4096,
    SEEN_START = 1 << 16,
};

/* What a thread has seen, or has once it reads a message: the oldest message of each
 * location that is still to be had, and how far each thread's plain accesses are ordered before. */
struct view {
    uint8_t oldest[LOCATIONS];
    uint16_t clock[MODEL_THREADS];
};

_Static_assert(sizeof(struct view) % 8 == 0, "add_view() takes eight bytes at a time");

struct message {
    uint64_t value;
    struct view view;
};

struct location {
    struct message messages[MESSAGES]; /* in modification order: there is one writer */
    uint32_t n;
    int writer; /* -1: none yet */
};

struct thread {
    ucontext_t context;
    struct view now;             /* what its next load must not be older than */
    struct view acquired;        /* the same after an acquire fence */
    struct view released;        /* of its last release fence: what its relaxed stores tell */
    uint64_t history;            /* hash of every value that it got: decides its private state */
    uint64_t accessed;           /* hash of its last accesses */
    const volatile void *asleep; /* on this futex */
    uint32_t waits;              /* for these descriptors */
    int stored;                  /* in this step: a load begins the next one */
    int over;
};

/* Kinds of accesses, and each thread's last one of a kind to a word, by its clock. */
enum { STORE = 1, PLAIN = 2, KINDS = 4 };
typedef uint16_t access_clocks[KINDS][MODEL_THREADS];

static _Alignas(64) uint32_t memory[WORDS];
static access_clocks accesses[WORDS];
static uint32_t memory_used;       /* words */
static uint8_t location_of[WORDS]; /* number + 1; once given it stays */
static struct location locations[LOCATIONS];
static uint32_t n_locations;
static struct thread threads[MODEL_THREADS];
static uint32_t n_threads;
static struct view fence_view; /* of all seq_cst fences so far; clocks are not handed on by it */
static struct view fd_view[FDS];
static uint32_t fd_ready, n_fds;
static uint8_t stacks[MODEL_THREADS][STACK_BYTES];
static ucontext_t scheduler;
static int current; /* -1: setup and check */

static const struct litmus *litmus;
struct model_run model_run;

static struct choice {
    uint16_t chosen, of;
} choices[CHOICES];
static uint32_t n_choices, at; /* those to repeat, and where we are */
static const char *failed;
static int cut; /* nothing more to learn from this execution */
static int printing;

static struct seen {
    uint64_t (*keys)[2];
    size_t n, room;
} seen;

static struct name {
    const uint32_t *from;
    size_t words;
    const char *name;
} names[NAMES];
static uint32_t n_names;

/* ---- printing -------------------------------------------------------------------------------- */

void model_name(const void *word, size_t bytes, const char *name)
{
    assert(n_names < NAMES);
    names[n_names++] = (struct name){.from = word, .words = bytes / 4, .name = name};
}

static const char *name_of(const volatile void *address)
{
    static char text[64];
    const uint32_t *word = (const uint32_t *)(uintptr_t)address;

    snprintf(text, sizeof(text), "word %d", (int)(word - memory));
    for (uint32_t i = 0; i < n_names; i++)
        if (word == names[i].from)
            return names[i].name;
        else if (word > names[i].from && word < names[i].from + names[i].words)
            snprintf(text, sizeof(text), "%s+%d", names[i].name, (int)(word - names[i].from));
    return text;
}

const char *model_order(int order)
{
    static const char *const orders[] = {"none",    "relaxed", "consume", "acquire",
                                         "release", "acq_rel", "seq_cst"};

    return orders[order + 1];
}

#define TELL(...)                                                                                  \
    do {                                                                                           \
        if (printing && current >= 0) {                                                            \
            printf("      %-8s", litmus->threads[current].name);                                   \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* ---- choices --------------------------------------------------------------------------------- */

static uint32_t choose(uint32_t of)
{
    if (of == 1)
        return 0;
    assert(at < CHOICES);
    if (at == n_choices)
        choices[n_choices++] = (struct choice){.of = (uint16_t)of};
    assert(choices[at].of == of); /* or the program is not a function of its choices */
    return choices[at++].chosen;
}

/* Back to the scheduler for good. */
static _Noreturn void leave(void)
{
    setcontext(&scheduler);
    abort();
}

static void fail(const char *what)
{
    failed = what;
    TELL("FAILS: %s", what);
    if (current >= 0)
        leave();
}

void model_expect(int holds, const char *what)
{
    if (!holds)
        fail(what);
}

/* What assert() of the C library calls. */
void __assert_fail(const char *expression, const char *file, unsigned line, const char *function)
{
    if (current >= 0)
        fail(expression);
    fprintf(stderr, "%s:%u: %s: %s\n", file, line, function, expression);
    abort();
}

void model_poll(int found)
{
    cut = !found;
    if (cut)
        leave();
}

int model_mutant(const char *name)
{
    return model_run.mutant && !strcmp(model_run.mutant, name);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static struct thread *self(void)
{
    return &threads[current];
}

/* Others may go on before what comes now. */
static void turn(void)
{
    swapcontext(&self()->context, &scheduler);
}

/* Where they need not. A load takes the same message when it comes later, past what others do: it
 * may be old. A store tells the same when it comes earlier. So loads, then at most one of what is
 * neither (a fence of all, the kernel), then stores are one step. */
static void step(int load)
{
    if (self()->stored)
        turn();
    self()->stored = !load;
}

void model_know(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;

    for (size_t i = 0; i < n; i++)
        self()->history = mix(self()->history, b[i]);
}

void model_forget(void)
{
    self()->history = self()->accessed;
}

uint32_t model_choose(uint32_t n, const char *what)
{
    uint32_t chosen = choose(n);

    self()->history = mix(self()->history, chosen + 1);
    TELL("chooses %s: %u", what, chosen);
    return chosen;
}

/* ---- views ----------------------------------------------------------------------------------- */

static void join(struct view *into, const struct view *from)
{
    for (uint32_t i = 0; i < n_locations; i++)
        if (into->oldest[i] < from->oldest[i])
            into->oldest[i] = from->oldest[i];
    for (uint32_t i = 0; i < n_threads; i++)
        if (into->clock[i] < from->clock[i])
            into->clock[i] = from->clock[i];
}

static uint32_t word_of(const volatile void *address)
{
    return (uint32_t)((const volatile uint32_t *)address - memory);
}

static int is_shared(const volatile void *address)
{
    return (uintptr_t)address - (uintptr_t)memory < sizeof(memory);
}

/* One more thing was done: where the thread is in its program. */
static void tick(void)
{
    self()->history = mix(self()->history, 1);
}

/* Its view was handed out: what it does from here on is not ordered before the thread that takes
 * it. */
static void tick_clock(void)
{
    self()->now.clock[current]++;
    self()->acquired.clock[current]++;
}

/* Two accesses of two threads, one of them a store and one of them plain, need an order. */
static void check_race(uint32_t word, int kind)
{
    struct thread *t = self();

    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < (int)n_threads && ((k | kind) & STORE) && ((k | kind) & PLAIN); i++)
            if (i != current && accesses[word][k][i] > t->now.clock[i]) {
                TELL("%s of %s", kind & STORE ? "store" : "load", name_of(&memory[word]));
                fail("a data race: nothing orders this access and one of another thread");
            }
    uint16_t *last = &accesses[word][kind][current];
    uint64_t which = (uint64_t)word * KINDS + (uint64_t)kind;
    t->accessed ^= mix(which, *last); /* of all words together */
    *last = t->now.clock[current];
    t->accessed ^= mix(which, *last);
}

static struct location *locate(const volatile void *word, uint32_t *ret_number)
{
    uint32_t w = word_of(word);

    assert(is_shared(word) && (uintptr_t)word % 4 == 0);
    if (!location_of[w]) {
        assert(n_locations < LOCATIONS);
        location_of[w] = (uint8_t)++n_locations;
    }
    *ret_number = location_of[w] - 1u;
    struct location *l = &locations[*ret_number];
    if (l->n == 0) {
        l->n = 1;
        l->writer = -1;
        l->messages[0] = (struct message){.value = memory[w]};
    }
    return l;
}

/* The order that this operation has in this run. */
static int order_at(const char *kind, int order, const char *function)
{
    struct model_site *s = model_run.sites;

    if (order == memory_order_relaxed)
        return order;
    while (s < model_run.sites + model_run.n_sites &&
           (strcmp(s->function, function) != 0 || strcmp(s->kind, kind) != 0 || s->order != order))
        s++;
    if (s == model_run.weak)
        return model_run.weak_order;
    if (!model_run.collect)
        return order;
    if (s == model_run.sites + model_run.n_sites) {
        assert(model_run.n_sites < MODEL_SITES);
        *s = (struct model_site){.function = function, .kind = kind, .order = order};
        model_run.n_sites++;
    }
    if (s->n_in == 0 || s->in[s->n_in - 1] != litmus)
        s->in[s->n_in++] = litmus;
    return order;
}

/* ---- what the real code does ----------------------------------------------------------------- */

uint64_t model_load(const volatile void *word, size_t bytes, int order, const char *function)
{
    uint32_t number;

    if (!is_shared(word))
        return bytes == 8 ? *(const volatile uint64_t *)word : *(const volatile uint32_t *)word;
    if (current < 0)
        return memory[word_of(word)];
    assert(bytes == 4);
    struct location *l = locate(word, &number);
    if (l->writer != current) /* its own stores it sees at any time */
        step(1);
    struct thread *t = self();
    order = order_at("load", order, function);
    tick();
    check_race(word_of(word), 0);
    /* The newest first: an execution that fails is easier to read the fewer old ones it takes. */
    uint32_t from = t->now.oldest[number], behind = choose(l->n - from);
    uint32_t taken = l->n - 1 - behind;
    const struct message *m = &l->messages[taken];
    t->now.oldest[number] = (uint8_t)taken;
    if (t->acquired.oldest[number] < taken)
        t->acquired.oldest[number] = (uint8_t)taken;
    join(order == memory_order_relaxed ? &t->acquired : &t->now, &m->view);
    join(&t->acquired, &t->now);
    t->history = mix(t->history, m->value + 3);
    TELL("%-22s load  %-7s %s = %u%s", function, model_order(order), name_of(word),
         (uint32_t)m->value, behind ? "   (there is a newer one)" : "");
    return m->value;
}

void model_store(volatile void *word, size_t bytes, uint64_t value, int order, const char *function)
{
    uint32_t number;

    if (current < 0 || !is_shared(word)) {
        if (bytes == 8)
            *(volatile uint64_t *)word = value;
        else
            *(volatile uint32_t *)word = (uint32_t)value;
        return;
    }
    assert(bytes == 4);
    struct location *l = locate(word, &number);
    struct thread *t = self();
    t->stored = 1;
    order = order_at("store", order, function);
    assert(l->writer < 0 || l->writer == current); /* no word has two writers (layout.h) */
    assert(l->n < MESSAGES);
    l->writer = current;
    tick();
    check_race(word_of(word), STORE);
    t->now.oldest[number] = t->acquired.oldest[number] = (uint8_t)l->n;
    struct message *m = &l->messages[l->n++];
    m->value = value;
    m->view = order == memory_order_relaxed ? t->released : t->now;
    m->view.oldest[number] = t->now.oldest[number];
    memory[word_of(word)] = (uint32_t)value;
    tick_clock();
    TELL("%-22s store %-7s %s = %u", function, model_order(order), name_of(word), (uint32_t)value);
}

/* A seq_cst fence of a user or in the kernel. */
static void fence_all(void)
{
    struct thread *t = self();

    t->now = t->acquired;
    join(&t->now, &fence_view);
    fence_view = t->acquired = t->released = t->now;
    memset(fence_view.clock, 0, sizeof(fence_view.clock));
    tick_clock();
}

void model_fence(int order, const char *function)
{
    if (current < 0)
        return;
    if (order == memory_order_seq_cst)
        step(0);
    order = order_at("fence", order, function);
    struct thread *t = self();
    tick();
    if (order == memory_order_seq_cst)
        fence_all();
    if (order == memory_order_acquire || order == memory_order_acq_rel)
        t->now = t->acquired;
    if (order == memory_order_release || order == memory_order_acq_rel)
        t->released = t->now;
    tick_clock();
    TELL("%-22s fence %s", function, model_order(order));
}

const uint8_t *model_files[1];

ssize_t model_pread(int fd, void *to, size_t bytes, off_t at, const char *function)
{
    uint32_t *words = to;

    for (size_t i = 0; i < bytes / 4; i++)
        words[i] =
            (uint32_t)model_load(model_files[fd] + at + 4 * i, 4, memory_order_relaxed, function);
    return (ssize_t)bytes;
}

void *model_copy(void *to, const void *from, size_t bytes, const char *function)
{
    int store = is_shared(to), load = is_shared(from);
    const void *shared = store ? to : from;

    if (current >= 0 && (store || load) && bytes) {
        uint32_t first = word_of(shared), last = word_of((const uint8_t *)shared + bytes - 1);
        assert(!store || !load);
        for (uint32_t w = first; w <= last; w++)
            check_race(w, PLAIN | (store ? STORE : 0));
        TELL("%-22s %s plain   %s, %zu bytes", function, store ? "store" : "load ", name_of(shared),
             bytes);
    }
    return memmove(to, from, bytes);
}

/* The kernel's promise: it counts the sleeper, fences, then compares the word; the waker
 * fences after changing the word (kernel/futex/waitwake.c, "ordering guarantees"). */
long model_futex(const volatile void *word, int operation, uint32_t value)
{
    uint32_t number;

    step(0);
    struct location *l = locate(word, &number);
    struct thread *t = self();
    tick();
    check_race(word_of(word), 0);
    fence_all();
    if (operation == FUTEX_WAKE) {
        TELL("futex wake %s", name_of(word));
        for (uint32_t i = 0; i < n_threads; i++)
            if (threads[i].asleep == word)
                threads[i].asleep = NULL;
        return 0;
    }
    assert(operation == FUTEX_WAIT);
    uint32_t taken = l->n - 1 - choose(l->n - t->now.oldest[number]);
    t->now.oldest[number] = t->acquired.oldest[number] = (uint8_t)taken;
    uint64_t found = l->messages[taken].value;
    t->history = mix(t->history, found + 5);
    TELL("futex wait %s while it is %u: %s", name_of(word), value,
         found == value ? "sleeps" : "it is not");
    if (found != value) {
        errno = EAGAIN;
        return -1;
    }
    t->asleep = word;
    turn();
    tick();
    return 0;
}

int model_eventfd(void)
{
    assert(n_fds < FDS);
    return (int)n_fds++;
}

/* A write and the wait that it ends take the descriptor's lock in the kernel, one after the other:
 * a release and an acquire. */
long model_write(int fd, const char *function)
{
    step(0);
    tick();
    join(&fd_view[fd], &self()->now);
    fd_ready |= 1u << fd;
    tick_clock();
    TELL("%-22s write eventfd %d", function, fd);
    return 8;
}

void model_wait(uint32_t fds)
{
    struct thread *t = self();

    TELL("waits");
    t->waits = fds;
    turn();
    t->waits = 0;
    t->stored = 1;
    tick();
    for (uint32_t i = 0; i < n_fds; i++)
        if ((fd_ready & fds) >> i & 1)
            join(&t->now, &fd_view[i]);
    join(&t->acquired, &t->now);
    fd_ready &= ~fds;
    TELL("is woken");
}

void *model_alloc(size_t bytes)
{
    void *at_word = &memory[memory_used];

    assert(current < 0);
    memory_used += (uint32_t)((bytes + 63) / 64 * 16);
    assert(memory_used <= WORDS);
    return at_word;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void add(uint64_t hash[2], uint64_t value)
{
    hash[0] = mix(hash[0], value);
    hash[1] = mix(hash[1] + 0x632be59bd9b4e019u, value);
}

static void add_view(uint64_t hash[2], const struct view *v)
{
    uint64_t eights[sizeof(*v) / 8];

    memcpy(eights, v, sizeof(*v));
    for (size_t i = 0; i < sizeof(*v) / 8; i++)
        add(hash, eights[i]);
}

/* Returns 1 when the key is new. */
static int remember(const uint64_t key[2])
{
    if (seen.n * 2 >= seen.room) {
        struct seen old = seen;
        seen = (struct seen){.room = old.room ? old.room * 2 : SEEN_START};
        seen.keys = calloc(seen.room, sizeof(*seen.keys));
        assert(seen.keys);
        for (size_t i = 0; i < old.room; i++)
            if (old.keys[i][1])
                remember(old.keys[i]);
        free(old.keys);
    }
    size_t i = key[0] & (seen.room - 1);
    for (; seen.keys[i][1]; i = (i + 1) & (seen.room - 1))
        if (!memcmp(seen.keys[i], key, sizeof(*seen.keys)))
            return 0;
    memcpy(seen.keys[i], key, sizeof(*seen.keys));
    seen.n++;
    return 1;
}

/* Was this state there before? A thread's private state and what it has plainly accessed follow
 * from the values that it got, so these stand for it. */
static int was_here(void)
{
    uint64_t key[2] = {1, 2};

    for (uint32_t i = 0; i < n_threads; i++) {
        const struct thread *t = &threads[i];
        add(key, t->history);
        add(key, (uint64_t)(uintptr_t)t->asleep << 32 | t->waits << 1 | (uint32_t)t->over);
        add_view(key, &t->now);
        add_view(key, &t->acquired);
        add_view(key, &t->released);
    }
    for (uint32_t i = 0; i < n_locations; i++) {
        add(key, locations[i].n + !locations[i].n);
        for (uint32_t k = 1; k < locations[i].n; k++) {
            add(key, locations[i].messages[k].value);
            add_view(key, &locations[i].messages[k].view);
        }
    }
    add_view(key, &fence_view);
    add(key, fd_ready);
    for (uint32_t i = 0; i < n_fds; i++)
        add_view(key, &fd_view[i]);
    key[1] |= 1; /* 0: the place is free */
    return !remember(key);
}

/* ---- one execution, all of them -------------------------------------------------------------- */

static void thread_main(void)
{
    litmus->threads[current].run();
    self()->over = 1;
    leave();
}

static void begin(void)
{
    memset(memory, 0, sizeof(memory));
    memset(accesses, 0, sizeof(accesses));
    memset(threads, 0, sizeof(threads));
    memset(fd_view, 0, sizeof(fd_view));
    memset(&fence_view, 0, sizeof(fence_view));
    for (uint32_t i = 0; i < LOCATIONS; i++)
        locations[i].n = 0;
    memory_used = n_fds = fd_ready = n_names = at = n_threads = 0;
    failed = NULL;
    cut = 0;
    current = -1;
    litmus->setup();
    while (n_threads < MODEL_THREADS && litmus->threads[n_threads].name)
        n_threads++;
    for (current = 0; current < (int)n_threads && !failed && !cut; current++) {
        struct thread *t = self();
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = stacks[current];
        t->context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&t->context, thread_main, 0);
        t->stored = 1;
        t->now.clock[current] = t->acquired.clock[current] = 1;
        swapcontext(&scheduler, &t->context); /* to where it meets the others */
    }
}

/* Threads that could go on, the last one first: few changes are easier to read. */
static uint32_t enabled(int last, int *ret)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_threads; i++) {
        int k = ((last < 0 ? 0 : last) + (int)i) % (int)n_threads;
        const struct thread *t = &threads[k];
        if (!t->over && !t->asleep && (!t->waits || (t->waits & fd_ready)))
            ret[n++] = k;
    }
    return n;
}

static void execute(void)
{
    uint32_t known = n_choices, n;
    int can[MODEL_THREADS], last = -1;

    begin();
    if (failed || cut)
        return;
    while ((n = enabled(last, can)) > 0) {
        current = -1;
        if (at >= known && !printing && was_here())
            return;
        current = last = can[choose(n)];
        swapcontext(&scheduler, &threads[current].context);
        if (failed || cut)
            return;
    }
    for (current = 0; current < (int)n_threads; current++) {
        if (self()->over)
            continue;
        failed = "a sleeper that nothing will wake";
        TELL("sleeps, and nothing will wake it");
    }
    current = -1;
    if (!failed && litmus->check)
        litmus->check();
}

const char *model_explore(const struct litmus *program, size_t *ret_states)
{
    litmus = program;
    n_choices = n_locations = 0;
    memset(location_of, 0, sizeof(location_of));
    free(seen.keys);
    memset(&seen, 0, sizeof(seen));
    do {
        execute();
        n_choices = at;
        while (!failed && n_choices > 0 &&
               choices[n_choices - 1].chosen + 1 == choices[n_choices - 1].of)
            n_choices--;
        if (!failed && n_choices > 0)
            choices[n_choices - 1].chosen++;
    } while (!failed && n_choices > 0);
    *ret_states = seen.n;
    return failed;
}

void model_print(void)
{
    printing = 1;
    execute();
    printing = 0;
    printf("      so: %s\n", failed);
}
