/* A daemon whose store is damaged, full, gone, or another's: every answer is the one of a daemon without a store. Each is a
 * row of a table. And with root's rights: two users. */
#include "ipc/store_file.h"
#include "tests/e2e/stored.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXTS = 4, TEXT = 600, OTHER_USER = 54321, OWN = 20, OUTPUT = 400, TRIES = 100 };

static struct stored_rig rig;
static uint32_t tokens[TEXTS][TEXT];

/* Few pages: a text evicts the one before it. */
static void setup(void)
{
    stored_init(&rig, (const char *const[]){"--kv-bytes", "327680", NULL});
    for (uint32_t i = 0; i < TEXTS; i++)
        stored_tokens(tokens[i], TEXT, 70 + i);
}

static void teardown(void)
{
    stored_fini(&rig);
}

/* Every text twice. */
static void ask_all(struct hearth *h)
{
    for (uint32_t i = 0; i < 2 * TEXTS; i++)
        stored_ask(&rig, h, tokens[i % TEXTS], TEXT);
}

static void connect_and_ask(void)
{
    struct hearth *h = stored_connect(rig.daemon.socket);
    ask_all(h);
    hearth_close(h);
}

static int64_t failures(void)
{
    return harness_counter(&rig.daemon, "store_failed");
}

__attribute__((format(printf, 1, 2))) static void run(const char *format, ...)
{
    char command[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* ---- files that are not what was written ----------------------------------------------------- */

static int open_segment(struct store_file_header *ret)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/*/*/*.kv", rig.folder);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    int fd = open(found.gl_pathv[0], O_RDWR | O_CLOEXEC);
    globfree(&found);
    ck_assert_int_eq(pread(fd, ret, sizeof(*ret), 0), sizeof(*ret));
    return fd;
}

static void flip_bits(void)
{
    struct store_file_header header;
    int fd = open_segment(&header);
    uint32_t seed = 5;
    for (uint32_t slot = 0; slot < 40; slot += 2) { /* a byte of every other payload */
        uint8_t byte = 0;
        off_t at = (off_t)(header.slots_at + slot * header.slot_bytes +
                           random_below(&seed, (uint32_t)header.payload_bytes));
        if (pread(fd, &byte, 1, at) != 1)
            break;
        byte ^= (uint8_t)(1u << random_below(&seed, 8));
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void cut_off(void)
{
    struct store_file_header header;
    int fd = open_segment(&header);
    ck_assert_int_eq(ftruncate(fd, (off_t)(header.slots_at + 9 * header.slot_bytes + 100)), 0);
    close(fd);
}

/* Payloads of one text and of another: attention does not see it where two pages of one text change places. */
static void swap_payloads(void)
{
    struct store_file_header header;
    int fd = open_segment(&header);
    const size_t bytes = header.payload_bytes;
    uint8_t *a = malloc(bytes), *b = malloc(bytes);
    for (uint32_t slot = 0; slot < 16; slot++) {
        off_t first = (off_t)(header.slots_at + slot * header.slot_bytes);
        off_t second = first + 24 * (off_t)header.slot_bytes;
        ck_assert_int_eq(pread(fd, a, bytes, first), (ssize_t)bytes);
        ck_assert_int_eq(pread(fd, b, bytes, second), (ssize_t)bytes);
        ck_assert_int_eq(pwrite(fd, b, bytes, first), (ssize_t)bytes);
        ck_assert_int_eq(pwrite(fd, a, bytes, second), (ssize_t)bytes);
    }
    free(a);
    free(b);
    close(fd);
}

/* Entry and payload of a text at another one's place: entries tell their text, so this is not damage. */
static void swap_entries(void)
{
    struct store_file_header header;
    struct store_file_entry a, b;
    int fd = open_segment(&header);
    for (uint32_t slot = 0; slot < 20; slot += 2) {
        off_t first = STORE_FILE_BLOCK + (off_t)(slot * sizeof(a)),
              second = first + (off_t)sizeof(a);
        ck_assert_int_eq(pread(fd, &a, sizeof(a), first), sizeof(a));
        ck_assert_int_eq(pread(fd, &b, sizeof(b), second), sizeof(b));
        ck_assert_int_eq(pwrite(fd, &b, sizeof(b), first), sizeof(b));
        ck_assert_int_eq(pwrite(fd, &a, sizeof(a), second), sizeof(a));
    }
    close(fd);
}

static void older_version(void)
{
    struct store_file_header header;
    int fd = open_segment(&header);
    header.version--;
    ck_assert_int_eq(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
    close(fd);
}

static void another_users(void)
{
    run("cd %s/*/ && mv $(id -u) 4711", rig.folder);
}

/* The model is the same, its KV of another type: so are its keys, and the sizes of its pages. */
static void another_models(void)
{
    const char *arguments[18];
    size_t n = 0;
    run("mv %s %s.f16", rig.folder, rig.folder);
    for (; rig.arguments[n]; n++)
        arguments[n] = rig.arguments[n];
    arguments[n] = "--kv-type";
    arguments[n + 1] = "q8_0";
    arguments[n + 2] = NULL;
    harness_start(&rig.daemon, harness_tiny_model(), arguments);
    struct hearth *h = stored_connect(rig.daemon.socket);
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct stored_answer answer = {.n = 0};
        stored_submit(h, tokens[i], TEXT, 1);
        stored_finish(h, &answer);
    }
    hearth_close(h);
    stored_stop(&rig);
    run("cd %s.f16/*/* && cp %s/*/*/0001.kv 0001.kv && rm -r %s && mv %s.f16 %s", rig.folder,
        rig.folder, rig.folder, rig.folder, rig.folder);
}

static void no_model_folder(void)
{
    run("rm -r %s/*/", rig.folder);
}

static const struct damage {
    void (*make)(void);
    bool all; /* nothing of what was stored may be used */
} damages[] = {
    {flip_bits, false},    {cut_off, false},      {swap_payloads, false}, {swap_entries, false},
    {older_version, true}, {another_users, true}, {another_models, true}, {no_model_folder, true},
};

START_TEST(what_is_damaged_or_anothers_changes_no_answer)
{
    const struct damage *damage = &damages[_i];
    connect_and_ask();
    stored_stop(&rig);
    damage->make();
    harness_start(&rig.daemon, harness_tiny_model(), rig.arguments);
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct hearth *h = stored_connect(rig.daemon.socket);
        const uint32_t stored = stored_ask(&rig, h, tokens[i], TEXT);
        ck_assert(i > 0 || !damage->all || stored == 0);
        hearth_close(h);
    }
    connect_and_ask();
    stored_expect(&rig, tokens[0], TEXT); /* what was computed anew is there again */
}
END_TEST

/* ---- disks that fail ------------------------------------------------------------------------- */

/* No file may grow beyond what it has: each write fails. */
static void is_full(void)
{
    const struct rlimit limit = {4096, RLIM_INFINITY};
    ck_assert_int_eq(prlimit(rig.daemon.pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

static void is_gone(void)
{
    run("rm -r %s", rig.folder);
}

static void may_not_be_entered(void)
{
    run("chmod 000 %s", rig.folder);
}

static void (*const troubles[])(void) = {is_full, is_gone, may_not_be_entered};

START_TEST(a_folder_that_fails_while_it_serves_changes_no_answer)
{
    struct hearth *h = stored_connect(rig.daemon.socket);
    ask_all(h);
    troubles[_i]();
    for (uint32_t i = 0; i < TEXTS; i += 2)
        stored_tokens(tokens[i], TEXT, 90 + i);
    ask_all(h);
    if (troubles[_i] == is_full)
        ck_assert_int_gt(failures(), 0);
    hearth_close(h);
    stored_stop(&rig);
    run("[ ! -e %s ] || chmod 700 %s", rig.folder, rig.folder);
    harness_start(&rig.daemon, harness_tiny_model(), rig.arguments);
    connect_and_ask();
    stored_expect(&rig, tokens[0], TEXT);
}
END_TEST

/* A small file system on the folder, in a namespace of the test's own. False: this user may not make one. */
static bool mount_small(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        printf("skip: only root can mount a small file system\n");
        return false;
    }
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount("none", rig.folder, "tmpfs", 0, "size=400k,mode=0700"), 0);
    return true;
}

/* While the disk is full, what is written fails, and an answer beside it goes on; when it has room again, the store is used
 * again. */
START_TEST(a_full_disk_changes_no_answer)
{
    static struct stored_answer other;
    uint32_t own[OWN];
    stored_stop(&rig);
    if (mount_small()) {
        harness_start(&rig.daemon, harness_tiny_model(), rig.arguments);
        struct hearth *streams = stored_connect(rig.daemon.socket),
                      *h = stored_connect(rig.daemon.socket);
        stored_tokens(own, OWN, 60);
        stored_submit(streams, own, OWN, OUTPUT);
        ask_all(h);
        stored_finish(streams, &other);
        stored_check(&rig, own, OWN, OUTPUT, &other);
        ck_assert_int_gt(failures(), 0);
        ck_assert_int_gt(harness_counter(&rig.daemon, "store_records"), 0);
        ck_assert_int_eq(mount("none", rig.folder, "tmpfs", MS_REMOUNT, "size=64m"), 0);
        const int64_t written = harness_counter(&rig.daemon, "store_written_bytes");
        for (uint32_t i = 0; i < TEXTS; i++)
            stored_tokens(tokens[i], TEXT, 90 + i);
        int64_t failed;
        do { /* until all that failed before has been counted */
            failed = failures();
            ask_all(h);
        } while (failures() > failed);
        ck_assert_int_gt(harness_counter(&rig.daemon, "store_written_bytes"), written);
        hearth_close(streams);
        hearth_close(h);
        stored_expect(&rig, tokens[0], TEXT);
        stored_stop(&rig);
        ck_assert_int_eq(umount2(rig.folder, MNT_DETACH), 0);
    }
    harness_start(&rig.daemon, harness_tiny_model(), rig.arguments);
}
END_TEST

/* ---- two users ------------------------------------------------------------------------------- */

/* Asks as that user; the answer must be right. Returns the tokens of the prompt that were not computed, from memory or from
 * the store. */
static int64_t ask_as(uid_t uid, const uint32_t *text)
{
    struct stored_answer answer = {.n = 0};
    int64_t before = harness_counter(&rig.daemon, "cached_tokens");
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(uid) < 0 || setuid(uid) < 0)
            _exit(2);
        struct hearth *h = stored_connect(rig.daemon.socket);
        stored_submit(h, text, TEXT, 10);
        stored_finish(h, &answer);
        hearth_close(h);
        _exit(write(ends[1], &answer, sizeof(answer)) != sizeof(answer));
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(read(ends[0], &answer, sizeof(answer)), sizeof(answer));
    close(ends[0]);
    close(ends[1]);
    stored_check(&rig, text, TEXT, 10, &answer);
    return harness_counter(&rig.daemon, "cached_tokens") - before;
}

static void restart_for_all(void)
{
    stored_restart(&rig);
    ck_assert_int_eq(chmod(rig.daemon.directory, 0755), 0);
    ck_assert_int_eq(chmod(rig.daemon.socket, 0666), 0);
}

/* What the user has in the store is read after one of the next starts. */
static void expect_read(uid_t uid)
{
    int64_t cached = 0;
    for (uint32_t i = 0; i < TRIES && cached == 0; i++) {
        restart_for_all();
        cached = ask_as(uid, tokens[0]);
    }
    ck_assert_int_gt(cached, 0);
    ck_assert_int_gt(harness_counter(&rig.daemon, "store_read_bytes"), 0);
}

static void expect_nothing(uid_t uid)
{
    restart_for_all();
    ck_assert_int_eq(ask_as(uid, tokens[0]), 0);
    ck_assert_int_eq(harness_counter(&rig.daemon, "store_read_bytes"), 0);
}

/* The second user asks what the first one has in the store: nothing of it is read, not even when someone has put the
 * first one's files among those of the second. */
START_TEST(a_user_gets_nothing_of_anothers)
{
    if (geteuid() != 0) {
        printf("skip: only root can run as a second user\n");
        return;
    }
    restart_for_all();
    ask_as(0, tokens[0]);
    expect_nothing(OTHER_USER);
    expect_read(0);
    stored_stop(&rig); /* each has its own now */
    run("cd %s/*/ && [ -e 0/0001.kv ] && [ -e %d/0002.kv ] && rm -r %d && cp -r 0 %d", rig.folder,
        OTHER_USER, OTHER_USER, OTHER_USER);
    harness_start(&rig.daemon, harness_tiny_model(), rig.arguments);
    expect_nothing(OTHER_USER);
    expect_read(OTHER_USER); /* its own */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_trouble");
    TCase *t = tcase_create("trouble");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_is_damaged_or_anothers_changes_no_answer, 0,
                        sizeof(damages) / sizeof(*damages));
    tcase_add_loop_test(t, a_folder_that_fails_while_it_serves_changes_no_answer, 0,
                        sizeof(troubles) / sizeof(*troubles));
    tcase_add_test(t, a_full_disk_changes_no_answer);
    tcase_add_test(t, a_user_gets_nothing_of_anothers);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
