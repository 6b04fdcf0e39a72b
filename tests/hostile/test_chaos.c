/* Chaos: daemon, gateway and clients are killed at random, stopped and continued, run out of
 * descriptors, memory and disk, and get a wrong time. Every finished answer is the undisturbed one,
 * every request ends, also where nothing happens any more, and afterwards the daemon holds what it
 * held at its start. HEARTH_CHAOS=SECONDS instead of 20. */
#include "tests/e2e/gateway.h"
#include "tests/hostile/balance.h"
#include "tests/hostile/honest.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SECONDS = 20,
    PART_S = 900, /* of a long run: libcheck fails where a test takes longer than 35 minutes */
    FEW_FDS = 2,
    LITTLE_MEMORY = 1 << 20,
    MOST_WRONG_S = 3600, /* how much a clock is wrong by, either way */
    KINDS = 10,
    STORM = 24,       /* events between two calms */
    CALM_ANSWERS = 2, /* of each client in a calm: the first one began in the storm */
    SERVING_MS = 1000
};

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
static const char *const arguments[] = {"--threads", "1",          "--slots", "12", "--context",
                                        "512",       "--kv-bytes", "16M",     NULL};
static const char body[] = "{\"prompt\":\"import os\",\"n_predict\":40,\"temperature\":0.8,"
                           "\"top_k\":0,\"top_p\":1,\"min_p\":0,\"seed\":3}";

static struct harness d;
static struct gateway gate;
static struct honest *steady, *mortal;
static struct web {                                /* the gateway's client */
    _Atomic uint32_t stop, answers, refused, calm; /* calm: which one it is; 0: none */
    pid_t pid;
    char want[1024]; /* the undisturbed text */
} * web;
static bool has_disk;
static _Atomic int64_t *wrong_by; /* the clock of daemon and gateway, in ns; NULL: it is not */
static bool is_starting;          /* the daemon may have run out of something before it served */
static uint32_t revived;

/* ---- the gateway's client ---------------------------------------------------------------------- */

static int try_gateway(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof(to.sun_path), "%.107s", gate.socket);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    usleep(5000);
    return -1;
}

/* Asks once. Returns the status, 0 where the connection ended; *ret_text is the caller's. */
static int ask_gateway(char **ret_text)
{
    int fd = try_gateway();

    *ret_text = NULL;
    if (fd < 0)
        return 0;
    http_send(fd, "POST", "/completion", "", body);
    struct http_answer a = http_receive(fd);
    close(fd);
    json_t *o = a.is_whole ? json_loadb(a.body, a.bytes, 0, NULL) : NULL;
    const char *content = json_string_value(json_object_get(o, "content"));
    *ret_text = content ? strdup(content) : NULL;
    int status = o ? a.status : 0;
    json_decref(o);
    http_answer_fini(&a);
    return status;
}

static _Noreturn void web_process(void)
{
    char *text;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!atomic_load(&web->stop)) {
        uint32_t calm = atomic_load(&web->calm);
        int status = ask_gateway(&text);
        if (status == 0 && calm && calm == atomic_load(&web->calm)) {
            fprintf(stderr, "the gateway gave no answer, and nothing disturbed it\n");
            _exit(2);
        }
        if (status == 200 && (!text || strcmp(text, web->want) != 0)) {
            fprintf(stderr, "the gateway's answer is another one: %s\n", text ? text : "none");
            _exit(2);
        }
        if (status != 200)
            usleep(5000);
        atomic_fetch_add(status == 200 ? &web->answers : &web->refused, 1);
        free(text);
    }
    _exit(0);
}

/* ---- what happens ------------------------------------------------------------------------------ */

static void start_gateway(void)
{
    gateway_start(&gate, &d, false, (const char *const[]){"--slots", "2", NULL});
}

static siginfo_t ended(pid_t pid)
{
    siginfo_t info = {0};

    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info;
}

/* As a service manager does: a daemon that got no memory or descriptor for its start is started
 * again. */
static void revive_daemon(void)
{
    waitpid(d.pid, NULL, 0);
    harness_restart(&d, model, arguments);
    is_starting = false;
    revived++;
}

static void kill_daemon(uint32_t *random)
{
    harness_kill(&d);
    usleep(random_below(random, 60000));
    harness_restart(&d, model, arguments);
    is_starting = false;
}

static void kill_gateway(uint32_t *random)
{
    kill(gate.pid, SIGKILL);
    waitpid(gate.pid, NULL, 0);
    usleep(random_below(random, 30000));
    start_gateway();
}

static void kill_client(uint32_t *random)
{
    uint32_t i = random_below(random, HONEST_USERS);

    kill(mortal->pids[i], SIGKILL);
    waitpid(mortal->pids[i], NULL, 0);
    mortal->pids[i] = honest_spawn(mortal, i);
}

static void signal_all(int sig)
{
    const pid_t pids[] = {steady->pids[0], mortal->pids[0], d.pid,   gate.pid,
                          steady->pids[1], mortal->pids[1], web->pid};

    for (size_t i = 0; i < sizeof(pids) / sizeof(*pids); i++)
        kill(pids[i], sig);
}

static void stop_all(uint32_t *random)
{
    signal_all(SIGSTOP);
    usleep(random_below(random, 600000));
    signal_all(SIGCONT);
}

static void stop_daemon(uint32_t *random)
{
    kill(d.pid, SIGSTOP);
    usleep(random_below(random, 400000));
    kill(d.pid, SIGCONT);
}

static void stop_gateway(uint32_t *random)
{
    kill(gate.pid, SIGSTOP);
    usleep(random_below(random, 400000));
    kill(gate.pid, SIGCONT);
}

static bool is_serving(void)
{
    struct hearth_options options;
    struct hearth *handle;
    char err[256];

    hearth_options_init(&options, sizeof(options));
    options.slots = 0;
    options.connect_timeout_ms = SERVING_MS;
    int rc = hearth_connect(d.socket, &options, &handle, err, sizeof(err));
    if (rc == 0)
        hearth_close(handle);
    return rc == 0;
}

/* Lowers a limit of the daemon for a moment. One that serves survives it. */
static void limit_daemon(int resource, rlim_t limit, uint32_t *random)
{
    struct rlimit before, low;

    is_starting = is_starting || !is_serving();
    if (prlimit(d.pid, (enum __rlimit_resource)resource, NULL, &before) < 0)
        return;
    low = (struct rlimit){.rlim_cur = limit, .rlim_max = before.rlim_max};
    prlimit(d.pid, (enum __rlimit_resource)resource, &low, NULL);
    usleep(100000 + random_below(random, 200000));
    prlimit(d.pid, (enum __rlimit_resource)resource, &before, NULL);
}

static void use_up_descriptors(uint32_t *random)
{
    limit_daemon(RLIMIT_NOFILE, (rlim_t)balance_fds(d.pid) + FEW_FDS, random);
}

static void use_up_memory(uint32_t *random)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)random; /* they end a process that gets no memory */
#else
    char path[64];
    unsigned long pages = 0;

    snprintf(path, sizeof(path), "/proc/%ld/statm", (long)d.pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%lu", &pages) == 1)
        limit_daemon(RLIMIT_AS, (rlim_t)pages * 4096 + LITTLE_MEMORY, random);
    if (file)
        fclose(file);
#endif
}

/* The clock of daemon and gateway jumps, and is right again after a while or with the next jump. */
static void set_clock(uint32_t *random)
{
    if (!wrong_by)
        return;
    int64_t s = (int64_t)random_below(random, 2 * MOST_WRONG_S) - MOST_WRONG_S;
    atomic_store(wrong_by, s * 1000000000);
    usleep(random_below(random, 300000));
    if (random_below(random, 2))
        atomic_store(wrong_by, 0);
}

/* The disk with the sockets and the log is full, or is not any more. */
static void fill_disk(uint32_t *random)
{
    static const char zeroes[4096];
    char path[160];

    snprintf(path, sizeof(path), "%s/full", d.directory);
    if (!has_disk || unlink(path) == 0)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0 && write(fd, zeroes, sizeof(zeroes)) > 0)
        ;
    close(fd);
    kill_daemon(random); /* a start without a byte of room */
}

static const struct {
    const char *name;
    void (*happen)(uint32_t *random);
} kinds[KINDS] = {
    {"daemon killed", kill_daemon},         {"gateway killed", kill_gateway},
    {"client killed", kill_client},         {"all stopped", stop_all},
    {"daemon stopped", stop_daemon},        {"gateway stopped", stop_gateway},
    {"no descriptors", use_up_descriptors}, {"no memory", use_up_memory},
    {"disk full or not", fill_disk},        {"clock set", set_clock},
};

/* ---- calm -------------------------------------------------------------------------------------- */

static uint32_t answers_of(uint32_t client)
{
    return client < HONEST_USERS ? atomic_load(&steady->users[client].answers)
                                 : atomic_load(&web->answers);
}

/* What runs ends by this process alone, but for a daemon that ran out of something while it started. */
static void check_running(void)
{
    siginfo_t daemon = ended(d.pid);

    if (daemon.si_pid && daemon.si_code == CLD_EXITED && is_starting)
        revive_daemon();
    else
        ck_assert_msg(!daemon.si_pid, "the daemon ended: code %d, status %d", daemon.si_code,
                      daemon.si_status);
    ck_assert_msg(!ended(gate.pid).si_pid, "the gateway ended");
    for (uint32_t i = 0; i < HONEST_USERS; i++) {
        ck_assert_msg(!ended(steady->pids[i]).si_pid, "user %u ended", i);
        ck_assert_msg(!ended(mortal->pids[i]).si_pid, "mortal user %u ended", i);
    }
    ck_assert_msg(!ended(web->pid).si_pid, "the gateway's client ended");
}

/* Nothing happens until each client has got answers: what is lost is not found again by the next
 * disturbance, and however slow the machine is, no client starves. */
static void calm(uint32_t number)
{
    atomic_store(&web->calm, number);
    for (uint32_t i = 0; i <= HONEST_USERS; i++)
        for (uint32_t want = answers_of(i) + CALM_ANSWERS; answers_of(i) < want; usleep(5000))
            check_running();
    atomic_store(&web->calm, 0);
}

/* ---- the test ---------------------------------------------------------------------------------- */

/* A small disk of our own for sockets and log, which ends with this process. */
static void mount_disk(void)
{
    strcpy(d.directory, "/tmp/hearth-chaos-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(d.directory));
    snprintf(d.socket, sizeof(d.socket), "%s/hearth.sock", d.directory);
    snprintf(d.log, sizeof(d.log), "%s/log", d.directory);
    has_disk = unshare(CLONE_NEWNS) == 0 &&
               mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", d.directory, "tmpfs", 0, "size=256k") == 0;
    if (!has_disk)
        printf("skip: no disk can be mounted here: it does not become full\n");
    ck_assert_int_eq(chmod(d.directory, 0755), 0);
}

/* What daemon and gateway take for the time is in a file that they inherit. */
static void open_clock(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skip: sanitized programs get no clock of their own\n");
#else
    char path[512], number[16];
    const char *build = getenv("BUILD");
    int fd = memfd_create("clock", 0);

    ck_assert_int_eq(ftruncate(fd, sizeof(*wrong_by)), 0);
    wrong_by = mmap(NULL, sizeof(*wrong_by), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(wrong_by, MAP_FAILED);
    snprintf(path, sizeof(path), "%s/tests/hostile/clock.so", build ? build : "build");
    snprintf(number, sizeof(number), "%d", fd);
    ck_assert_msg(access(path, R_OK) == 0, "%s is missing: build it", path);
    setenv("LD_PRELOAD", path, 1);
    setenv("HEARTH_TEST_CLOCK", number, 1);
#endif
}

/* The undisturbed answers of all clients, while nothing happens. */
static struct balance start_all(void)
{
    char *text;

    mount_disk();
    open_clock();
    harness_start(&d, model, arguments);
    steady = honest_share(sizeof(*steady));
    mortal = honest_share(sizeof(*mortal));
    web = honest_share(sizeof(*web));
    steady->socket = mortal->socket = d.socket;
    steady->is_rough = mortal->is_rough = true;
    honest_alone(steady);
    memcpy(mortal->alone, steady->alone, sizeof(mortal->alone));
    struct balance before = balance_take(&d);
    start_gateway();
    ck_assert_int_eq(ask_gateway(&text), 200);
    ck_assert(text && strlen(text) < sizeof(web->want));
    strcpy(web->want, text);
    free(text);
    honest_start(steady);
    honest_start(mortal);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        web_process();
    web->pid = pid;
    return before;
}

static void end_all(const struct balance *before)
{
    char directory[sizeof(d.directory)];

    honest_stop(steady);
    honest_stop(mortal);
    atomic_store(&web->stop, 1);
    ck_assert_int_eq(harness_wait(web->pid), 0);
    ck_assert_int_eq(gateway_stop(&gate), 0);
    balance_check(&d, before);
    memcpy(directory, d.directory, sizeof(directory));
    ck_assert_int_eq(harness_stop(&d), 0);
    umount2(directory, MNT_DETACH);
    rmdir(directory);
}

static int seconds(void)
{
    const char *env = getenv("HEARTH_CHAOS");

    return env ? atoi(env) : SECONDS;
}

/* Of one part. */
static int seconds_of(int part)
{
    int left = seconds() - part * PART_S;

    return left < PART_S ? left : PART_S;
}

START_TEST(what_dies_or_stops_or_runs_out_changes_no_answer)
{
    uint32_t random = 23 + (uint32_t)_i, counts[KINDS] = {0}, n = 0;
    struct timespec now;

    struct balance before = start_all();
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (time_t end = now.tv_sec + seconds_of(_i); now.tv_sec < end;
         clock_gettime(CLOCK_MONOTONIC, &now)) {
        uint32_t kind = random_below(&random, KINDS);
        usleep(random_below(&random, 300000));
        check_running();
        kinds[kind].happen(&random);
        counts[kind]++;
        if (++n % STORM == 0)
            calm(n);
    }
    calm(n + 1);
    for (uint32_t i = 0; i < KINDS; i++)
        printf("%u x %s%s", counts[i], kinds[i].name, i + 1 < KINDS ? ", " : "\n");
    printf("%u x started again\n", revived);
    printf("%u and %u steady answers, %u by the gateway (%u refused)\n",
           atomic_load(&steady->users[0].answers), atomic_load(&steady->users[1].answers),
           atomic_load(&web->answers), atomic_load(&web->refused));
    fflush(stdout);
    end_all(&before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chaos");
    TCase *tcase = tcase_create("chaos");

    tcase_set_timeout(tcase, getenv("HEARTH_CHAOS") ? 36000 : 600);
    tcase_add_loop_test(tcase, what_dies_or_stops_or_runs_out_changes_no_answer, 0,
                        (seconds() + PART_S - 1) / PART_S);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
