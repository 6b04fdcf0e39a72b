/* One request, one answer: with any other clients, any cache contents, any proposer, on any kernels
 * and threads, after any restart. Answers are compared with log-probabilities, bit by bit.
 *
 * A daemon answers every request alone, without drafts; every later answer of every client of every
 * daemon must be equal. In a round each request is sent once more, in an order, by a number of
 * clients (1 to 32) and at times that the round draws, with other requests of a real service's
 * lengths in between, some of them given up. On a build with fault injection drafts are corrupted,
 * pages evicted and passes delayed, and a control shows that an answer changed by drafts would be
 * noticed. `make check` runs a short form. The environment selects others:
 *
 *     HEARTH_DETERMINISM=N             N rounds for each configuration (make determinism)
 *     HEARTH_DETERMINISM_EVERY=N       only every N-th request
 *     HEARTH_DETERMINISM_TYPE=NAME     a model of this type, not Q8_0
 *     HEARTH_DETERMINISM_ARCH=NAME     a model of this architecture, not llama
 *     HEARTH_DETERMINISM_KV=q8_0       the other KV type
 *     HEARTH_DETERMINISM_DEVICE=cuda   the configurations that name no kernels run on a GPU, whose
 *                                      answers must equal the CPU's
 */
#include "ipc/bell.h"
#include "kernels/kv.h"
#include "kernels/model/model.h"
#include "kernels/quant/quant_types.h"
#include "kernels/state.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/traffic.h"
#include "tests/random.h"
#include "tests/rig/every_type.h"
#include "tests/rig/folder.h"
#include "tests/rig/tiny_model.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a daemon is started. */
struct configuration {
    const char *isa; /* NULL: the fastest there is */
    const char *threads;
    const char *state;   /* what else is special, for the table */
    const char *more[8]; /* further arguments */
    const char *fault;   /* needs a build that injects faults */
    bool restarts;       /* the daemon is killed in every round */
};

static char store[96];     /* a folder, the same for all daemons */
static char few_pages[16]; /* bytes of two whole contexts, the model's and the draft model's */

static const struct configuration configurations[] = {
    {"ref", "1", "none", {0}, NULL, false},
    {"ref", "2", "none", {0}, NULL, false},
    {"avx2", "1", "none", {0}, NULL, false},
    {"avx2", "2", "none", {0}, NULL, false},
    {"avxvnni", "1", "none", {0}, NULL, false},
    {"avxvnni", "2", "none", {0}, NULL, false},
    {"avx512", "1", "none", {0}, NULL, false},
    {"avx512", "2", "none", {0}, NULL, false},
    {NULL, "2", "few pages and rows", {"--kv-bytes", few_pages, "--rows", "40"}, NULL, false},
    {NULL, "1", "epoll, no linger", {"--event-loop", "epoll", "--linger-us", "0"}, NULL, false},
    {NULL, "2", "daemon killed", {0}, NULL, true},
    {NULL,
     "2",
     "few pages, small store",
     {"--kv-bytes", few_pages, "--kv-store", store, "--kv-store-min", "32", "--kv-store-bytes",
      "1500000"},
     NULL,
     false},
    {NULL,
     "2",
     "store, daemon killed",
     {"--kv-bytes", few_pages, "--kv-store", store, "--kv-store-min", "32"},
     NULL,
     true},
};

static const struct configuration faulty[] = {
    {NULL, "2", "mismatch 0.5", {0}, "draft-mismatch=0.5", false},
    {"ref", "1", "mismatch 0.5", {0}, "draft-mismatch=0.5", false},
    {NULL,
     "1",
     "mismatch, pages, delays",
     {0},
     "draft-mismatch=0.2,refuse-pages=0.05,delay-pass=0.02",
     false},
    {NULL, "2", "mismatch, killed", {0}, "draft-mismatch=0.5", true},
    {NULL,
     "2",
     "store fails",
     {"--kv-bytes", few_pages, "--kv-store", store, "--kv-store-min", "32"},
     "refuse-pages=0.05,store-fail=0.1,store-tear=0.1,store-slow=0.02",
     false},
};

static const struct configuration control = {
    NULL, "2", "control", {0}, "draft-mismatch=0.2,accept-drafts=0.5", false};

enum { CLIENTS_MAX = 32 };

static struct harness daemon_;
static struct traffic traffic = {.socket = daemon_.socket, .every = 1};
static uint64_t stored;    /* tokens read from the store, by daemons that were stopped */
static uint64_t evictions; /* evicted pages of all daemons that were stopped, not killed */
static char best_isa[16];
static const char *model, *draft;
static bool has_mtp; /* the model has a next-token layer */

/* ---- rounds ---------------------------------------------------------------------------------- */

static void run_round(uint32_t round, uint32_t seed, const char *const *restart)
{
    pid_t pids[CLIENTS_MAX];
    uint32_t state = seed, dice = next_random(&state) % 3;
    uint32_t n = dice == 0 ? 1 : 2 + next_random(&state) % (dice == 1 ? 7 : CLIENTS_MAX - 1);

    traffic.row.clients = ledger_row(traffic.ledger, "clients",
                                     n == 1  ? "1"
                                     : n < 9 ? "2 to 8"
                                             : "9 to 32");
    traffic_round(&traffic, round, seed);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0)
            traffic_client(&traffic, i, seed);
    }
    if (restart) {
        uint32_t when = 1 + next_random(&state) % (traffic.shared->n_jobs / 2);
        while (atomic_load(&traffic.shared->next_job) < when)
            usleep(200);
        harness_kill(&daemon_);
        harness_restart(&daemon_, model, restart);
    }
    for (uint32_t i = 0; i < n; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                      "round %u, seed %u, client %u: status %x", round, seed, i, status);
    }
}

/* The state of a daemon after its clients have gone. */
static void check_rest(void)
{
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    ck_assert_int_eq(harness_counter(&daemon_, "rescans_found"), 0);
    ck_assert_int_eq(harness_counter(&daemon_, "protocol_errors"), 0);
    harness_check_drafts(&daemon_);
    evictions += (uint64_t)harness_counter(&daemon_, "evictions");
}

static uint32_t wanted_rounds(void)
{
    const char *rounds = getenv("HEARTH_DETERMINISM");

    return rounds ? (uint32_t)strtoul(rounds, NULL, 10) : 1;
}

/* 0 and invalid values mean all of them. */
static uint32_t wanted_every(void)
{
    const char *of = getenv("HEARTH_DETERMINISM_EVERY");
    unsigned long n = of ? strtoul(of, NULL, 10) : 1;

    return n >= 1 && n <= TRAFFIC_KINDS ? (uint32_t)n : 1;
}

static const char *kv_type(void)
{
    const char *type = getenv("HEARTH_DETERMINISM_KV");

    return type ? type : "f16";
}

static const char *device(void)
{
    const char *name = getenv("HEARTH_DETERMINISM_DEVICE");

    return name ? name : "cpu";
}

/* With --device cuda requested, a configuration that names no kernels runs on the GPU. */
static bool on_device(const struct configuration *c)
{
    return !c->isa && !strcmp(device(), "cuda");
}

static bool has_proposer(uint32_t proposer)
{
    for (uint32_t i = 0; i < traffic.n_proposers; i++)
        if (traffic.proposers[i] == proposer)
            return true;
    return false;
}

static void run_configuration(const struct configuration *c, uint32_t rounds)
{
    const char *isa = c->isa ? c->isa : on_device(c) ? "cuda" : best_isa, *arguments[26];
    uint32_t n = 0, seed = (uint32_t)bell_now_ns();

    arguments[n++] = on_device(c) ? "--device" : "--isa";
    arguments[n++] = isa;
    arguments[n++] = "--numerics";
    arguments[n++] = "portable";
    arguments[n++] = "--threads";
    arguments[n++] = c->threads;
    arguments[n++] = "--kv-type";
    arguments[n++] = kv_type();
    arguments[n++] = "--draft";
    arguments[n++] = draft;
    arguments[n++] = "--shadow";
    arguments[n++] = has_proposer(TRAFFIC_SHADOW) ? "yes" : "no";
    for (uint32_t i = 0; i < 8 && c->more[i]; i++)
        arguments[n++] = c->more[i];
    if (c->fault) {
        arguments[n++] = "--fault";
        arguments[n++] = c->fault;
    }
    arguments[n] = NULL;
    traffic.row.kernel = ledger_row(traffic.ledger, "kernels", isa);
    traffic.row.threads = ledger_row(traffic.ledger, "threads", c->threads);
    traffic.row.state = ledger_row(traffic.ledger, "faults", c->state);
    harness_start(&daemon_, model, arguments);
    for (uint32_t round = 0; round < rounds; round++)
        run_round(round, seed + round * 7919, c->restarts ? arguments : NULL);
    check_rest();
    stored += (uint64_t)harness_counter(&daemon_, "stored_tokens");
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

/* True when a daemon starts with this option. */
static bool accepts(const char *option, const char *value)
{
    struct harness_output o = harness_run_hearthd(
        (const char *const[]){"--check", "--model", model, option, value, NULL});
    bool does = o.code == 0;

    ck_assert_msg(does || o.code == 65, "--check %s %s: %d %s", option, value, o.code, o.error);
    harness_output_fini(&o);
    return does;
}

static void run_configurations(const struct configuration *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!c[i].isa || accepts("--isa", c[i].isa))
            run_configuration(&c[i], wanted_rounds());
        else
            printf("skip: the kernels %s do not run on this machine\n", c[i].isa);
    }
}

/* Every request once, alone and without drafts: the reference for all later answers. */
static void get_alone(void)
{
    struct hearth_info info = {.size = sizeof(info)};
    uint32_t tokens[TRAFFIC_CONTEXT];

    harness_start(&daemon_, model,
                  (const char *const[]){"--numerics", "portable", "--threads", "1", "--kv-type",
                                        kv_type(), NULL});
    struct hearth *h = harness_connect(&daemon_, 1, NULL);
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.context, TRAFFIC_CONTEXT);
    traffic.n_vocab = info.n_vocab;
    traffic.shared->alone_ns = bell_now_ns();
    for (uint32_t kind = 0; kind < TRAFFIC_KINDS; kind++) {
        struct hearth_request request;
        struct traffic_answer got;
        traffic_request(&traffic, kind, tokens, &request);
        ck_assert_msg(traffic_ask(&traffic, h, &request, TRAFFIC_NO_PROPOSER, &got) >= 0,
                      "kind %u: %s", kind, hearth_error(h));
        traffic.ledger->alone[kind] = got.answer;
        traffic.shared->n_guess[kind] = got.n < TRAFFIC_GUESSES ? got.n : TRAFFIC_GUESSES;
        memcpy(traffic.shared->guess[kind], got.guess, sizeof(got.guess));
    }
    traffic.shared->alone_ns = bell_now_ns() - traffic.shared->alone_ns;
    hearth_close(h);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

/* The requested type, by default Q8_0. */
static uint32_t wanted_type(void)
{
    const char *name = getenv("HEARTH_DETERMINISM_TYPE");

    for (size_t i = 0; name && i < EVERY_TYPE; i++)
        if (!strcmp(quant_name(every_type[i]), name))
            return every_type[i];
    ck_assert_msg(!name, "HEARTH_DETERMINISM_TYPE=%s: no such type", name);
    return QUANT_Q8_0;
}

/* The requested architecture, by default NULL (llama). */
static const char *wanted_arch(void)
{
    return getenv("HEARTH_DETERMINISM_ARCH");
}

/* Bytes of a whole context of the model in a file: the pages, with window pages or without, those of a
 * window of 20 in a pass of 40 rows, and the states of a text. */
static size_t context_bytes(const char *path, bool window_pages, bool *ret_recurrent, bool *ret_mtp)
{
    struct gguf *gguf;
    struct model *opened;
    struct kv_geometry kv;
    struct state_geometry state;
    char err[300];

    ck_assert_msg(gguf_open(path, &gguf, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(model_open(gguf, &opened, err, sizeof(err)) == 0, "%s", err);
    kv_geometry_init(&kv, opened, !strcmp(kv_type(), "q8_0"), window_pages);
    state_geometry_init(&state, opened);
    *ret_recurrent = opened->n_recurrent > 0;
    *ret_mtp = opened->mtp != NULL;
    model_close(opened);
    gguf_close(gguf);
    return kv_pages(TRAFFIC_CONTEXT) * kv.page_bytes[PAGES_FULL] + 3 * kv.page_bytes[PAGES_WINDOW] +
           5 * (state.state_bytes + state.record_bytes);
}

/* A model drafts for itself, unless it is recurrent. */
static void choose_models(void)
{
    bool recurrent, mtp;

    model = strdup(harness_tiny_model_of(wanted_arch(), wanted_type()));
    size_t bytes = context_bytes(model, true, &recurrent, &has_mtp);
    draft = recurrent ? harness_tiny_model_of(NULL, wanted_type()) : model;
    bytes += context_bytes(draft, false, &recurrent, &mtp);
    snprintf(few_pages, sizeof(few_pages), "%zu", 2 * bytes);
}

static void choose_proposers(void)
{
    const bool cpu = strcmp(device(), "cuda") != 0;

    for (uint32_t i = 0; i < TRAFFIC_PROPOSERS; i++)
        if (i == TRAFFIC_SHADOW ? cpu && accepts("--shadow", "yes")
            : i == TRAFFIC_MTP  ? cpu && has_mtp
                                : true)
            traffic.proposers[traffic.n_proposers++] = i;
}

static void make_store(void)
{
    snprintf(store, sizeof(store), "/tmp/hearth-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(store));
}

static void prepare(void)
{
    static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
    static const char *const caches[] = {"cold", "part of the prompt", "all but a page"};
    static const char *const samplings[] = {"greedy", "temperature 0.8"};

    traffic.shared = mmap(NULL, sizeof(*traffic.shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(traffic.shared, MAP_FAILED);
    traffic.every = wanted_every();
    choose_models();
    choose_proposers();
    for (uint32_t i = 0; i < sizeof(isas) / sizeof(*isas); i++)
        if (accepts("--isa", isas[i]))
            snprintf(best_isa, sizeof(best_isa), "%s", isas[i]);
    traffic.row.all = ledger_row(traffic.ledger, "all", "");
    for (uint32_t i = 0; i < TRAFFIC_PROPOSERS; i++)
        traffic.row.proposer[i] = ledger_row(traffic.ledger, "proposer", traffic_proposers[i]);
    for (uint32_t i = 0; i < 3; i++)
        traffic.row.cache[i] = ledger_row(traffic.ledger, "cache", caches[i]);
    for (uint32_t i = 0; i < 2; i++)
        traffic.row.sampling[i] = ledger_row(traffic.ledger, "sampling", samplings[i]);
    get_alone();
}

static uint64_t sum(const _Atomic uint64_t *of_proposer)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < TRAFFIC_PROPOSERS; i++)
        all += of_proposer[i];
    return all;
}

static void say(const char *what)
{
    const struct ledger_row *all = &traffic.ledger->rows[traffic.row.all];

    printf("ok: %s%s%s%s: %llu answers to %u requests, each %u at least, at most %u different; "
           "company %llu, resumed %llu; drafts %llu, accepted %llu, rollbacks %llu; pages taken "
           "back %llu, read from the store %llu tokens; arrivals: %s\n",
           what, wanted_arch() ? wanted_arch() : "", wanted_arch() ? " " : "",
           quant_name(wanted_type()), (unsigned long long)ledger_answers(all), ledger_asked(all),
           ledger_least(all), ledger_distinct(all), (unsigned long long)traffic.shared->company,
           (unsigned long long)traffic.shared->resumed,
           (unsigned long long)sum(traffic.shared->drafted),
           (unsigned long long)sum(traffic.shared->accepted),
           (unsigned long long)traffic.shared->rollbacks, (unsigned long long)evictions,
           (unsigned long long)stored, arrivals_source());
    for (uint32_t i = 0; i < TRAFFIC_PROPOSERS; i++)
        printf("    %-8s drafts %9llu, accepted %9llu\n", traffic_proposers[i],
               (unsigned long long)traffic.shared->drafted[i],
               (unsigned long long)traffic.shared->accepted[i]);
}

/* Checks that rollbacks, evictions, warm prompts and kills did occur: without them equal answers
 * prove little. */
static void check_tried(void)
{
    for (uint32_t k = 0; k < traffic.n_proposers; k++) {
        uint32_t i = traffic.proposers[k];
        bool drafts = i != TRAFFIC_NO_PROPOSER;
        ck_assert_msg((traffic.shared->drafted[i] > 0) == drafts &&
                          (traffic.shared->accepted[i] > 0) == drafts,
                      "proposer %s: drafts %llu, accepted %llu", traffic_proposers[i],
                      (unsigned long long)traffic.shared->drafted[i],
                      (unsigned long long)traffic.shared->accepted[i]);
    }
    ck_assert_uint_gt(traffic.shared->rollbacks, 0);
    if (wanted_rounds() < 8)
        return; /* one round may have one client, and a kill that hits no answer */
    ck_assert_uint_gt(evictions, 0);
    ck_assert_uint_gt(traffic.shared->resumed, 0);
}

static void check_one_answer(void)
{
    for (uint32_t i = 0; i < traffic.ledger->n_rows; i++)
        ck_assert_msg(ledger_answers(&traffic.ledger->rows[i]) == 0 ||
                          ledger_distinct(&traffic.ledger->rows[i]) == 1,
                      "%s %s: %u different answers to one request", traffic.ledger->rows[i].group,
                      traffic.ledger->rows[i].name, ledger_distinct(&traffic.ledger->rows[i]));
}

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

START_TEST(every_request_has_one_answer)
{
    prepare();
    make_store();
    run_configurations(configurations, COUNT(configurations));
    say("");
    folder_remove(store);
    ck_assert(wanted_rounds() < 8 || stored > 0);
    check_one_answer();
    ck_assert_uint_eq(ledger_asked(&traffic.ledger->rows[traffic.row.all]),
                      (TRAFFIC_KINDS + traffic.every - 1) / traffic.every);
    ck_assert_uint_ge(ledger_least(&traffic.ledger->rows[traffic.row.all]), wanted_rounds());
    ck_assert_uint_gt(ledger_answers(&traffic.ledger->rows[traffic.row.cache[0]]), 0);
    ck_assert_uint_gt(ledger_answers(&traffic.ledger->rows[traffic.row.cache[1]]) +
                          ledger_answers(&traffic.ledger->rows[traffic.row.cache[2]]),
                      0);
    check_tried();
}
END_TEST

/* Corrupted drafts, evicted pages and delayed passes cause many rollbacks and evictions. */
START_TEST(injected_faults_keep_every_answer)
{
    prepare();
    make_store();
    run_configurations(faulty, COUNT(faulty));
    say("with faults ");
    folder_remove(store);
    check_one_answer();
    check_tried();
    ck_assert_uint_gt(traffic.shared->rollbacks, 100);
}
END_TEST

/* The control: accepted unverified drafts must be noticed, or this suite proves nothing. */
START_TEST(the_control_that_accepts_unverified_drafts_is_noticed)
{
    traffic.ledger = ledger_open(); /* its findings do not belong in the table */
    prepare();
    traffic.every = 1;
    run_configuration(&control, 1);
    uint32_t differing = ledger_differing(&traffic.ledger->rows[traffic.row.all]);
    printf("ok: the control saw %u of %d requests with another output\n", differing, TRAFFIC_KINDS);
    ck_assert_uint_gt(differing, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("determinism");
    TCase *tcase = tcase_create("determinism");
    tcase_set_timeout(tcase, 36000);
    tcase_add_test(tcase, every_request_has_one_answer);
    if (harness_has_faults()) {
        tcase_add_test(tcase, injected_faults_keep_every_answer);
        tcase_add_test(tcase, the_control_that_accepts_unverified_drafts_is_noticed);
    } else {
        puts("skip: this build injects no faults: make determinism has one that does");
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    traffic.ledger = ledger_open();
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    ledger_print(traffic.ledger);
    return failed != 0;
}
