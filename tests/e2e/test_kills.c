/* Clients killed during their answers leak nothing: no slot, page, descriptor or memory, and
 * nothing that the kernel keeps for the daemon. HEARTH_KILLS=N: N kills instead of 100. */
#include "tests/e2e/harness.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KILLS = 100,
    TOKENS = 60,
    ROOM_BYTES = 1 << 20, /* how much a daemon's memory may vary; 1,000 leaked pages are more */
};

static struct harness daemon_;

/* Submits a request of four cells per token, which cannot finish unread, writes a byte to `began`,
 * and reads on until it is killed. */
static void reader_process(int began, uint32_t number)
{
    const struct hearth_event *event;
    struct hearth_request request;
    uint32_t tokens[40], state = number;
    char name[16], err[256];
    struct hearth_options options;
    struct hearth *h;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hearth_options_init(&options, sizeof(options));
    snprintf(name, sizeof(name), "n%u", number % 7);
    options.slot_name = number % 3 == 0 ? name : NULL;
    if (hearth_connect(daemon_.socket, &options, &h, err, sizeof(err)) < 0) {
        fprintf(stderr, "%s\n", err);
        _exit(1);
    }
    for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++)
        tokens[i] = 3 + next_random(&state) % 250;
    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = sizeof(tokens) / sizeof(*tokens);
    request.max_tokens = 400;
    request.temperature = 1;
    request.seed = number;
    request.logprobs = 20;
    for (uint32_t n = 0;; n++) {
        if (hearth_submit(h, 0, &request) < 0 || hearth_next(h, 0, &event, 60000) < 0 ||
            (n == 0 && write(began, "!", 1) != 1))
            _exit(1);
        while (event->kind != HEARTH_DONE && hearth_next(h, 0, &event, 60000) > 0)
            ;
    }
}

/* Starts a reader and kills it `after_us` after its answer began. */
static void kill_one(uint32_t number, useconds_t after_us)
{
    int began[2], status;
    char byte;

    ck_assert_int_eq(pipe(began), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        reader_process(began[1], number);
    close(began[1]);
    ck_assert_int_eq(read(began[0], &byte, 1), 1);
    close(began[0]);
    usleep(after_us);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void get_answer(struct hearth *h, uint32_t *ids)
{
    const struct hearth_event *event;
    struct hearth_request request;
    uint32_t token = 5, n = 0;

    hearth_request_init(&request, sizeof(request));
    request.tokens = &token;
    request.n_tokens = 1;
    request.max_tokens = TOKENS;
    request.temperature = 0.9f;
    request.seed = 3;
    memset(ids, 0, TOKENS * sizeof(*ids));
    ck_assert_int_eq(hearth_submit(h, 0, &request), 0);
    do {
        ck_assert_int_eq(hearth_next(h, 0, &event, 60000), 1);
        for (uint32_t i = 0; i < event->n_tokens; i++)
            ids[n++] = event->tokens[i];
    } while (event->kind != HEARTH_DONE);
    ck_assert_uint_eq(event->result->output_tokens, n);
}

/* Polls of the daemon's rings, as the kernel lists them; each holds a file that need not be among
 * the descriptors. */
static int count_polls(void)
{
    char path[300], line[256];
    int polls = 0;

    snprintf(path, sizeof(path), "/proc/%ld/fdinfo", (long)daemon_.pid);
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%ld/fdinfo/%.16s", (long)daemon_.pid, entry->d_name);
        FILE *file = fopen(path, "r");
        bool listed = false;
        while (file && fgets(line, sizeof(line), file)) {
            listed = *line == ' ' ? listed : !strncmp(line, "PollList:", 9);
            polls += listed && strstr(line, "op=") != NULL;
        }
        if (file)
            fclose(file);
    }
    closedir(folder);
    return polls;
}

/* The least of many counts, until it is `few`: the connection that last read the counters may still
 * be closing. */
static int rest_polls(int few)
{
    int least = count_polls();

    for (int i = 0; i < (few ? 6000 : 50) && least > few; i++, usleep(10000)) {
        int now = count_polls();
        least = now < least ? now : least;
    }
    return least;
}

static void run_kills(const char *const *arguments)
{
    const char *env = getenv("HEARTH_KILLS");
    uint32_t kills = env ? (uint32_t)atoi(env) : KILLS, alone[TOKENS], ids[TOKENS], state = 11;

    harness_start(&daemon_, harness_tiny_model(), arguments);
    int64_t fds = harness_counter(&daemon_, "fds_open");
    struct hearth *good = harness_connect(&daemon_, 1, NULL);
    get_answer(good, alone);
    int64_t rss = 0;
    int polls = 0;
    for (uint32_t i = 0; i < kills; i++) {
        kill_one(i, next_random(&state) % 4000);
        get_answer(good, ids);
        ck_assert_msg(!memcmp(ids, alone, sizeof(ids)), "another answer after kill %u", i);
        if (i != kills / 4)
            continue; /* by now all one-time allocations are done */
        ck_assert_int_eq(harness_wait_counter(&daemon_, "clients", 1), 1);
        rss = harness_counter(&daemon_, "rss_bytes");
        polls = rest_polls(0);
    }
    ck_assert_int_eq(harness_wait_counter(&daemon_, "clients", 1), 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep freed memory */
    ck_assert_int_le(harness_counter(&daemon_, "rss_bytes"), rss + ROOM_BYTES);
#endif
    (void)rss;
    ck_assert_int_le(rest_polls(polls), polls);
    hearth_close(good);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_used", 0), 0);
    ck_assert_int_eq(harness_wait_counter(&daemon_, "slots_active", 0), 0);
    ck_assert_int_le(harness_wait_counter(&daemon_, "fds_open", fds), fds);
    ck_assert_int_eq(harness_counter(&daemon_, "protocol_errors"), 0);
    ck_assert_int_eq(harness_counter(&daemon_, "rescans_found"), 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}

START_TEST(clients_killed_mid_answer_leak_nothing)
{
    /* Little memory for KV: all of it is soon in use. */
    run_kills((const char *const[]){"--threads", "1", "--slots", "8", "--context", "512",
                                    "--kv-bytes", "1M", "--event-loop", _i ? "epoll" : "auto",
                                    NULL});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kills");
    TCase *tcase = tcase_create("kills");
    tcase_set_timeout(tcase, 1800);
    tcase_add_loop_test(tcase, clients_killed_mid_answer_leak_nothing, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
