/* The daemon is killed repeatedly while clients stream: every answer equals the undisturbed one.
 * HEARTH_RESUME=N: N kills under 16 clients instead of 20 under 4. Of attention alone, and of recurrent models. */
#include "kernels/quant/quant_types.h"
#include "tests/e2e/harness.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS_MAX = 16, KINDS = 6, OUTPUT_MAX = 480, KILLS = 20, CLIENTS = 4 };

struct answer {
    uint32_t n, reason, text_bytes;
    uint32_t ids[OUTPUT_MAX];
    char text[OUTPUT_MAX * 24];
    char receipt[160];
};

/* Shared with the clients. */
struct shared {
    struct answer alone[KINDS];
    _Atomic uint32_t connected, stop, answers;
    _Atomic uint32_t resumed; /* answers during which it died */
};

static const char *const archs[] = {NULL, "qwen35", "lfm2", "granitehybrid"};
static const char *const arguments[] = {"--slots", "20", "--threads", "1", NULL};
static struct harness d;
static struct shared *shared;

static void submit(struct hearth *h, uint32_t kind)
{
    static const char *const stops[] = {"zzzz"};
    struct hearth_request r;
    uint32_t prompt[40], state = 5 + kind;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 1 + kind * 6;
    for (uint32_t i = 0; i < r.n_tokens; i++)
        prompt[i] = 3 + next_random(&state) % 250;
    r.max_tokens = OUTPUT_MAX - kind * 20;
    r.temperature = kind % 2 ? 0.9f : 0;
    r.seed = kind;
    r.repeat_penalty = kind % 3 ? 1.1f : 1;
    r.logprobs = kind == 4 ? 2 : -1;
    r.stops = stops;
    r.n_stops = kind % 2;
    ck_assert_msg(hearth_submit(h, 0, &r) == 0, "%s", hearth_error(h));
}

/* Reads one answer like a caller that appends every event. */
static void read_answer(struct hearth *h, uint32_t kind, struct answer *a)
{
    const struct hearth_event *e;
    memset(a, 0, sizeof(*a));
    do {
        int rc = hearth_next(h, 0, &e, 120000);
        ck_assert_msg(rc == 1, "kind %u: %d %s", kind, rc, hearth_error(h));
        ck_assert(e->kind == HEARTH_PROGRESS || e->position == 1 + kind * 6 + a->n);
        ck_assert_uint_le(a->n + e->n_tokens, OUTPUT_MAX);
        if (e->n_tokens)
            memcpy(a->ids + a->n, e->tokens, e->n_tokens * sizeof(*a->ids));
        a->n += e->n_tokens;
        ck_assert_uint_le(a->text_bytes + e->text_bytes, sizeof(a->text));
        memcpy(a->text + a->text_bytes, e->text, e->text_bytes);
        a->text_bytes += (uint32_t)e->text_bytes;
        ck_assert(kind != 4 || !e->n_tokens || e->logprobs);
    } while (e->kind != HEARTH_DONE);
    a->reason = e->result->reason;
    ck_assert_msg(a->reason != HEARTH_ERROR, "kind %u: %s", kind, e->result->error_text);
    ck_assert_uint_eq(e->result->output_tokens, a->n);
    ck_assert_uint_eq(e->result->prompt_tokens, 1 + kind * 6);
    snprintf(a->receipt, sizeof(a->receipt), "%s", e->result->receipt);
}

static struct hearth *connect_client(void)
{
    struct hearth_options o;
    struct hearth *h;
    char err[256];
    hearth_options_init(&o, sizeof(o));
    o.resume_ms = 120000;
    int rc = hearth_connect(d.socket, &o, &h, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    return h;
}

static void stream(struct hearth *h, uint32_t number)
{
    static struct answer a;
    for (uint32_t kind = number % KINDS; !atomic_load(&shared->stop); kind = (kind + 1) % KINDS) {
        struct hearth_info before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
        hearth_info(h, &before);
        submit(h, kind);
        read_answer(h, kind, &a);
        hearth_info(h, &after);
        ck_assert_msg(memcmp(&a, &shared->alone[kind], sizeof(a)) == 0,
                      "client %u, kind %u: another answer (%u tokens, %u alone; %s, %s alone)",
                      number, kind, a.n, shared->alone[kind].n, a.receipt,
                      shared->alone[kind].receipt);
        atomic_fetch_add(&shared->answers, 1);
        atomic_fetch_add(&shared->resumed, after.resumes != before.resumes);
    }
}

START_TEST(repeated_kills_of_the_daemon_keep_every_answer)
{
    const char *env = getenv("HEARTH_RESUME"),
               *model = harness_tiny_model_of(archs[_i], QUANT_Q8_0);
    uint32_t kills = env ? (uint32_t)atoi(env) : KILLS, n = env ? CLIENTS_MAX : CLIENTS;
    uint32_t state = 42;
    pid_t pids[CLIENTS_MAX];
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    memset(&d, 0, sizeof(d));
    harness_start(&d, model, arguments);
    struct hearth *h = connect_client();
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        submit(h, kind);
        read_answer(h, kind, &shared->alone[kind]);
    }
    hearth_close(h);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0) {
            h = connect_client();
            atomic_fetch_add(&shared->connected, 1);
            stream(h, i);
            hearth_close(h);
            _exit(0);
        }
    }
    while (atomic_load(&shared->connected) < n) {
        for (uint32_t i = 0; i < n; i++)
            ck_assert_int_eq(waitpid(pids[i], NULL, WNOHANG), 0);
        usleep(1000);
    }
    /* Some of the kills must hit an answer: on a loaded machine more kills are needed. */
    for (uint32_t i = 0; i < kills || (!atomic_load(&shared->resumed) && i < 10 * kills); i++) {
        usleep(20000 + next_random(&state) % 150000);
        harness_kill(&d);
        usleep(next_random(&state) % 60000);
        harness_restart(&d, model, arguments);
    }
    atomic_store(&shared->stop, 1);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(harness_wait(pids[i]), 0);
    fprintf(stderr, "%u kills: %u answers, %u of them resumed\n", kills,
            atomic_load(&shared->answers), atomic_load(&shared->resumed));
    ck_assert_uint_gt(atomic_load(&shared->resumed), 0);
    ck_assert_int_eq(harness_stop(&d), 0);
    munmap(shared, sizeof(*shared));
}
END_TEST

static const char *const long_arguments[] = {"--slots",   "2",     "--threads", "1",
                                             "--context", "20000", NULL};

/* Longer than the buffers on its way hold at one token per cell. */
#define LONG_ANSWER "run", "--max-tokens", "8000", "--tokens", "1,70,80", "--proposer", "none"

START_TEST(the_command_reports_a_resume_on_stderr_only)
{
    struct harness_running r;
    memset(&d, 0, sizeof(d));
    harness_start(&d, harness_tiny_model(), long_arguments);
    harness_begin(&r, &d, (const char *const[]){LONG_ANSWER, NULL});
    harness_kill(&d);
    harness_await(&r, "hearth: the daemon is gone, waiting for it\n");
    harness_restart(&d, harness_tiny_model(), long_arguments);
    struct harness_output cut = harness_finish(&r);
    ck_assert_str_eq(cut.error, "hearth: the daemon is gone, waiting for it\n"
                                "hearth: the daemon is back, resuming\n");
    ck_assert_int_eq(cut.code, 0);
    struct harness_output whole = HARNESS_RUN(&d, NULL, LONG_ANSWER);
    ck_assert_int_eq(whole.code, 0);
    ck_assert_str_eq(whole.error, "");
    ck_assert_uint_eq(cut.out_bytes, whole.out_bytes);
    ck_assert_int_eq(memcmp(cut.out, whole.out, whole.out_bytes), 0);
    harness_output_fini(&cut);
    harness_output_fini(&whole);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

START_TEST(the_command_gives_up_after_its_resume_time)
{
    struct harness_running r;
    memset(&d, 0, sizeof(d));
    harness_start(&d, harness_tiny_model(), long_arguments);
    harness_begin(&r, &d, (const char *const[]){LONG_ANSWER, "--resume-ms", "0", NULL});
    harness_kill(&d);
    struct harness_output o = harness_finish(&r);
    ck_assert_int_eq(o.code, 69);
    ck_assert_ptr_nonnull(strstr(o.error, "went away"));
    harness_output_fini(&o);
    unlink(d.socket);
    unlink(d.log);
    rmdir(d.directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resume");
    TCase *t = tcase_create("resume");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, repeated_kills_of_the_daemon_keep_every_answer, 0,
                        sizeof(archs) / sizeof(archs[0]));
    tcase_add_test(t, the_command_reports_a_resume_on_stderr_only);
    tcase_add_test(t, the_command_gives_up_after_its_resume_time);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
