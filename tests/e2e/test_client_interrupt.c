/* The hearth command when it is interrupted, killed, or left by its reader or its daemon: it ends, and
 * leaves nothing behind. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Shared by all tests: started before the first of them. A long context, so that an answer can be
 * interrupted: a small model has made 512 tokens before a signal arrives. */
static struct harness d;

static void start(void)
{
    static const char *const arguments[] = {"--context", "30000", "--slots", "8",
                                            "--threads", "1",     NULL};
    harness_start(&d, harness_model(), arguments);
}

static void stop(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
}

static const char *const long_answer[] = {"run", "--max-tokens", "29000", "--tokens",
                                          "1",   "--json",       NULL};

static int64_t pages_free_before;

static pid_t spawn_long(int *ret_fd)
{
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
    pages_free_before = harness_counter(&d, "pages_free");
    pid_t pid = harness_spawn(&d, ret_fd, long_answer);
    char c;
    ck_assert_int_eq(read(*ret_fd, &c, 1), 1); /* the answer has begun */
    return pid;
}

/* Nothing is left of it: not the slot, not its pages. */
static void assert_freed(void)
{
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
    ck_assert_int_eq(harness_wait_counter(&d, "slots_active", 0), 0);
    ck_assert_int_eq(harness_wait_counter(&d, "pages_free", pages_free_before), pages_free_before);
}

START_TEST(ctrl_c_ends_the_answer_and_frees_the_slot)
{
    const int signals[] = {SIGINT, SIGTERM};
    int fd;
    pid_t pid = spawn_long(&fd);
    kill(pid, signals[_i]);
    char *text = NULL;
    size_t bytes = 0;
    FILE *rest =
        fdopen(fd, "r"); /* what else it printed: whole lines, the last one says cancelled */
    ck_assert_int_ge((int)getdelim(&text, &bytes, 0, rest), 0);
    ck_assert_int_eq(harness_wait(pid), 130);
    ck_assert_ptr_nonnull(strstr(text, "\"reason\":\"cancelled\""));
    fclose(rest);
    free(text);
    assert_freed();
}
END_TEST

/* A daemon that listens and never answers. */
START_TEST(ctrl_c_ends_a_command_that_waits_for_the_daemon)
{
    static const char *const commands[][3] = {{"run", "x"}, {"status"}, {"doctor"}};
    struct harness silent = {0};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char message[512];
    int out, listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(silent.socket, sizeof(silent.socket), "%s/silent", d.directory);
    memcpy(a.sun_path, silent.socket, strlen(silent.socket));
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    pid_t pid = harness_spawn(&silent, &out, commands[_i / 2]);
    int connection = accept(listener, NULL, NULL);
    ck_assert_int_gt(recv(connection, message, sizeof(message), 0), 0);
    kill(pid, _i % 2 ? SIGTERM : SIGINT);
    ck_assert_int_eq(harness_wait(pid), 130);
    unlink(silent.socket);
    close(connection);
    close(listener);
    close(out);
}
END_TEST

START_TEST(a_closed_stdout_ends_the_answer_and_frees_the_slot)
{
    int fd;
    pid_t pid = spawn_long(&fd);
    close(fd);
    ck_assert_int_eq(harness_wait(pid), 130);
    assert_freed();
}
END_TEST

START_TEST(a_killed_client_frees_the_slot)
{
    int fd;
    pid_t pid = spawn_long(&fd);
    kill(pid, SIGKILL);
    ck_assert_int_eq(harness_wait(pid), 128 + SIGKILL);
    close(fd);
    assert_freed();
}
END_TEST

START_TEST(a_dying_daemon_is_reported_in_one_line)
{
    struct harness own = {0};
    static const char *const arguments[] = {"--context", "30000", "--slots", "8",
                                            "--threads", "1",     NULL};
    harness_start(&own, harness_model(), arguments);
    struct hearth *h = harness_connect(&own, 1, NULL);
    struct hearth_request r;
    const struct hearth_event *e;
    hearth_request_init(&r, sizeof(r));
    const uint32_t bos[] = {1};
    r.tokens = bos;
    r.n_tokens = 1;
    r.max_tokens = 29000;
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    ck_assert_int_eq(hearth_next(h, 0, &e, 60000), 1);
    harness_kill(&own);
    uint32_t tokens = e->n_tokens;
    int rc;
    while ((rc = hearth_next(h, 0, &e, 60000)) == 1 && e->kind != HEARTH_DONE)
        tokens += e->n_tokens;
    ck_assert_int_eq(rc, 1);
    ck_assert_uint_eq(e->result->reason, HEARTH_ERROR);
    ck_assert_int_eq(e->result->error, -ECONNRESET);
    ck_assert_uint_eq(e->result->n_ids, tokens);
    hearth_close(h);
    own.pid = 0;
    unlink(own.socket);
    unlink(own.log);
    rmdir(own.directory);
}
END_TEST

int main(void)
{
    if (!harness_model()) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set and there is no bundled model\n");
        return EXIT_SUCCESS;
    }
    Suite *suite = suite_create("client_interrupt");
    TCase *t = tcase_create("interrupt");
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, ctrl_c_ends_the_answer_and_frees_the_slot, 0, 2);
    tcase_add_loop_test(t, ctrl_c_ends_a_command_that_waits_for_the_daemon, 0, 6);
    tcase_add_test(t, a_closed_stdout_ends_the_answer_and_frees_the_slot);
    tcase_add_test(t, a_killed_client_frees_the_slot);
    tcase_add_test(t, a_dying_daemon_is_reported_in_one_line);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
