/* Models by name: hearth models, serve, stop, and --model, without a service manager. */
#include "ipc/listen.h"
#include "tests/e2e/harness.h"
#include "tests/rig/fake_daemon.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char home[FOLDER_BYTES];
static struct harness_output o;

/* A home whose models are `tiny` and `tinier`, links to one file and a copy. */
static void setup(void)
{
    char path[128], file[PATH_MAX];
    folder_make_home(home);
    setenv("HEARTH_MODELS", home, 1);
    ck_assert_ptr_nonnull(realpath(harness_tiny_model(), file));
    snprintf(path, sizeof(path), "%s/tiny:model.gguf", home);
    ck_assert_int_eq(symlink(file, path), 0);
    snprintf(path, sizeof(path), "%s/broken.gguf", home);
    FILE *broken = fopen(path, "w");
    ck_assert_ptr_nonnull(broken);
    fputs("no model", broken);
    fclose(broken);
}

static void run(int code, const char *const *arguments)
{
    harness_output_fini(&o);
    o = harness_run(NULL, NULL, arguments);
    ck_assert_msg(o.code == code, "exit code %d, not %d: %s%s", o.code, code, o.out, o.error);
}
#define RUN(code, ...) run(code, (const char *const[]){__VA_ARGS__, NULL})

static void teardown(void)
{
    harness_output_fini(&o);
    o = HARNESS_RUN(NULL, NULL, "stop", "tiny");
    harness_output_fini(&o);
    folder_remove(home);
}

START_TEST(models_are_listed_with_what_they_are)
{
    RUN(0, "models", "--json", "--context", "512");
    char *second = strchr(o.out, '\n');
    ck_assert_ptr_nonnull(second);
    *second++ = 0;
    json_t *broken = json_loads(o.out, 0, NULL), *tiny = json_loads(second, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(broken, "name")), "broken");
    ck_assert_str_eq(json_string_value(json_object_get(broken, "refused")),
                     "not a GGUF file: it starts with \"no m\", not \"GGUF\"");
    ck_assert_str_eq(json_string_value(json_object_get(tiny, "name")), "tiny:model");
    ck_assert_str_eq(json_string_value(json_object_get(tiny, "arch")), "llama");
    ck_assert_str_eq(json_string_value(json_object_get(tiny, "type")), "Q8_0");
    ck_assert_int_eq(json_integer_value(json_object_get(tiny, "context")), 512);
    ck_assert(json_is_true(json_object_get(tiny, "fits")));
    ck_assert(json_is_false(json_object_get(tiny, "agents")));
    json_decref(broken);
    json_decref(tiny);
}
END_TEST

START_TEST(a_model_is_served_asked_and_stopped_by_its_name)
{
    RUN(69, "run", "--model", "tiny", "--tokens", "1,2,3");
    RUN(0, "serve", "TINY", "--context", "512", "--", "--slots", "3", "--threads", "1");
    ck_assert_ptr_nonnull(strstr(o.out, "/hearth/tiny-model.sock\ncontext 512 of "));
    RUN(0, "serve", "tiny");
    ck_assert_ptr_nonnull(strstr(o.out, " already\n"));
    RUN(0, "run", "--model", "tiny", "--tokens", "1,2,3", "--max-tokens", "4", "--json");
    ck_assert_ptr_nonnull(strstr(o.out, "\"event\":\"done\",\"reason\":\"length\""));
    RUN(0, "status", "--model", "tiny:model", "--json");
    ck_assert_ptr_nonnull(strstr(o.out, "\"context\":512"));
    ck_assert_ptr_nonnull(strstr(o.out, "\"slots_total\":3"));
    RUN(0, "top", "--model", "tiny", "--once", "--interval", "0.1");
    ck_assert_ptr_nonnull(strstr(o.out, "tokens/s"));
    RUN(0, "stop", "tiny");
    RUN(69, "stop", "tiny");
    ck_assert_str_eq(o.error, "hearth: no daemon serves tiny: start it with hearth serve tiny\n");
}
END_TEST

/* hearth top, where nothing names a daemon. */
static void run_top(void)
{
    static const struct harness none; /* with the socket "", which names none */
    harness_output_fini(&o);
    o = HARNESS_RUN(&none, NULL, "top", "--interval", "0.1");
    ck_assert_msg(o.code == 0, "%s", o.error);
}

START_TEST(top_shows_all_that_run)
{
    char other[128], idle[128], err[256];
    snprintf(other, sizeof(other), "%s/other.gguf", home);
    RUN(0, "serve", "tiny", "--context", "512", "--", "--threads", "1");
    ck_assert_int_eq(symlink("tiny:model.gguf", other), 0);
    RUN(0, "serve", other, "--context", "512", "--", "--threads", "1");
    snprintf(idle, sizeof(idle), "%s/hearth/activated.sock", home);
    int fd = listen_open(idle, SOCK_SEQPACKET, "socket", err,
                         sizeof(err)); /* as a service manager does */
    ck_assert_int_ge(fd, 0);
    run_top();
    ck_assert_ptr_nonnull(strstr(o.out, "2 models  "));
    ck_assert_ptr_nonnull(strstr(o.out, "\nother "));
    ck_assert_ptr_nonnull(strstr(o.out, "\ntiny-model "));
    ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
    listen_close(idle, SOCK_SEQPACKET, fd);
    RUN(0, "stop", "other");
    run_top();
    ck_assert_ptr_nonnull(strstr(o.out, "\nrequests 0 finished")); /* one: all about it */
    RUN(0, "stop", "tiny");
}
END_TEST

/* Versions have dots: files that begin alike up to one are two models. */
START_TEST(a_file_is_named_by_all_of_its_name)
{
    char one[128], two[128];
    snprintf(one, sizeof(one), "%s/m1.5-a.gguf", home);
    snprintf(two, sizeof(two), "%s/m1.5-b\033.gguf", home);
    ck_assert_int_eq(symlink("tiny:model.gguf", one), 0);
    ck_assert_int_eq(symlink("tiny:model.gguf", two), 0);
    RUN(0, "serve", one, "--context", "512", "--", "--threads", "1");
    ck_assert_ptr_nonnull(strstr(o.out, "m1.5-a is served at "));
    RUN(0, "serve", two, "--context", "512", "--", "--threads", "1");
    ck_assert_ptr_nonnull(strstr(o.out, "m1.5-b? is served at "));
    ck_assert_ptr_null(strstr(o.out, " already\n"));
    RUN(0, "stop", "m1.5-a");
    RUN(0, "stop", "m1.5-b");
}
END_TEST

/* Ollama has such names of Hugging Face's files. */
START_TEST(a_name_may_end_as_a_file_does)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/odd.gguf.gguf", home);
    ck_assert_int_eq(symlink("tiny:model.gguf", path), 0);
    RUN(0, "serve", "odd.gguf", "--context", "512", "--", "--threads", "1");
    ck_assert_ptr_nonnull(strstr(o.out, "odd.gguf is served at "));
    RUN(0, "stop", "odd.gguf");
    RUN(66, "serve", "none.gguf");
    ck_assert_str_eq(o.error, "hearth: none.gguf: No such file or directory\n");
}
END_TEST

/* Names that are one as a socket's: what is asked for is not what is served there. */
START_TEST(another_model_of_a_name_that_is_alike_is_not_served_already)
{
    char path[128], file[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("daemon/models/hearth-code-5m-f16.gguf", file));
    snprintf(path, sizeof(path), "%s/tiny-model.gguf", home);
    ck_assert_int_eq(symlink(file, path), 0);
    RUN(0, "serve", "tiny:model", "--context", "512", "--", "--threads", "1");
    RUN(73, "serve", "tiny-model");
    ck_assert_msg(strstr(o.error, "hearth: tiny-model: another model is served at ") != NULL, "%s",
                  o.error);
    RUN(0, "serve", "tiny:model");
    ck_assert_ptr_nonnull(strstr(o.out, " already\n"));
}
END_TEST

START_TEST(names_in_other_letters_are_two_models)
{
    char one[128], two[128];
    snprintf(one, sizeof(one), "%s/\xe5\xad\x97.gguf", home);
    snprintf(two, sizeof(two), "%s/\xe6\x96\x87.gguf", home);
    ck_assert_int_eq(symlink("tiny:model.gguf", one), 0);
    ck_assert_int_eq(symlink("tiny:model.gguf", two), 0);
    RUN(0, "serve", one, "--context", "512", "--", "--threads", "1");
    RUN(0, "serve", two, "--context", "1024", "--", "--threads", "1");
    ck_assert_ptr_null(strstr(o.out, " already\n"));
    RUN(0, "status", "--model", "\xe6\x96\x87", "--json");
    ck_assert_ptr_nonnull(strstr(o.out, "\"context\":1024"));
    RUN(0, "stop", "\xe5\xad\x97");
    RUN(0, "stop", "\xe6\x96\x87");
}
END_TEST

/* A process that SIGTERM ends: the test's own handler would end all of them. */
static pid_t fork_plain(void)
{
    pid_t pid = fork();
    if (pid == 0)
        signal(SIGTERM, SIG_DFL);
    return pid;
}

/* A daemon that says it is this process, in another one. `on_stop`: what SIGTERM does to it. */
static pid_t start_liar(pid_t names, void (*on_stop)(int))
{
    static struct fake_daemon f;
    char path[128];
    fake_open(&f);
    f.pid = names;
    snprintf(path, sizeof(path), "%s/hearth", home);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/hearth/liar.sock", home);
    ck_assert_int_eq(rename(f.path, path), 0);
    pid_t pid = fork_plain();
    if (pid == 0)
        signal(SIGTERM, on_stop);
    for (; pid == 0; fake_hang_up(&f)) {
        fake_start(&f);
        fake_join(&f);
    }
    fake_close(&f);
    return pid;
}

START_TEST(the_process_that_answers_is_stopped)
{
    pid_t other = fork_plain();
    if (other == 0)
        for (;;)
            pause();
    pid_t liar = start_liar(other, SIG_DFL);
    int status = 0;
    RUN(0, "stop", "liar");
    ck_assert_int_eq(waitpid(other, &status, WNOHANG), 0); /* it runs on */
    ck_assert_int_eq(waitpid(liar, &status, 0), liar);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGTERM);
    kill(other, SIGKILL);
}
END_TEST

static int stopping[2]; /* a pipe */

static void tell_stop(int number)
{
    (void)number;
    ck_assert_int_eq((int)write(stopping[1], "", 1), 1);
}

/* Ctrl-C in `hearth stop` while the daemon takes its time: nobody is told that it has ended. */
START_TEST(a_stop_that_is_interrupted_says_so)
{
    static const char *const stop[] = {"stop", "liar", NULL};
    char byte;
    int out;
    ck_assert_int_eq(pipe(stopping), 0);
    pid_t slow = start_liar(0, tell_stop);
    pid_t pid = harness_spawn(NULL, &out, stop);
    ck_assert_int_eq((int)read(stopping[0], &byte, 1), 1);
    kill(pid, SIGINT);
    ck_assert_int_eq(harness_wait(pid), 130);
    kill(slow, SIGKILL);
    waitpid(slow, NULL, 0);
    close(stopping[0]);
    close(stopping[1]);
    close(out);
}
END_TEST

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* A service manager to which all units are active. It notes what it was asked to stop. */
static void make_manager(void)
{
    char path[128], programs[160];
    snprintf(path, sizeof(path), "%s/systemd", home);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/systemd/private", home);
    write_file(path, "");
    snprintf(path, sizeof(path), "%s/systemctl", home);
    write_file(path, "#!/bin/sh\n"
                     "[ \"$3\" != stop ] || echo \"$4 $5\" >>\"$HOME/stopped\"\n");
    ck_assert_int_eq(chmod(path, 0700), 0);
    snprintf(programs, sizeof(programs), "%s:/usr/bin:/bin", home);
    setenv("PATH", programs, 1);
}

/* Of a model whose name has a dot, not that of one that is called like the part before it. */
START_TEST(the_unit_of_the_whole_name_is_stopped)
{
    static const char *const names[] = {"m1", "m1.5-a", "hearth"};
    char path[128], line[128], err[256];
    int fds[3];
    snprintf(path, sizeof(path), "%s/hearth", home);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/hearth/%s.sock", home, names[i]);
        fds[i] = listen_open(path, SOCK_SEQPACKET, "socket", err, sizeof(err));
        ck_assert_int_ge(fds[i], 0);
    }
    make_manager();
    RUN(0, "stop", "m1.5-a");
    RUN(0, "stop", "hear"); /* the first letters will do */
    snprintf(path, sizeof(path), "%s/stopped", home);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
    ck_assert_str_eq(line, "hearth@m1.5-a.socket hearth@m1.5-a.service\n");
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
    ck_assert_str_eq(line, "hearthd.socket hearthd.service\n");
    fclose(file);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}
END_TEST

START_TEST(what_cannot_be_served_is_one_line)
{
    RUN(64, "serve");
    RUN(64, "stop");
    RUN(66, "serve", "other");
    ck_assert_ptr_nonnull(strstr(o.error, "no model other"));
    RUN(65, "serve", "broken");
    ck_assert_str_eq(o.error, "hearth: broken: not a GGUF file: it starts with \"no m\", not "
                              "\"GGUF\"\n");
    RUN(64, "serve", "tiny", "--", "--no-such-option");
    ck_assert_ptr_nonnull(strstr(o.error, "hearth: unknown option --no-such-option: see --help"));
    RUN(64, "serve", "tiny", "--", "--slots=3", "--kv-store", "kv");
    ck_assert_str_eq(o.error, "hearth: --kv-store kv: give the whole path: hearthd does not run "
                              "here\n");
    RUN(64, "serve", "tiny", "--", "--weights-cache=./w");
    ck_assert_ptr_nonnull(strstr(o.error, "hearth: --weights-cache ./w: give the whole path"));
}
END_TEST

/* The last of seventy words counts as the first one does. */
START_TEST(no_option_of_the_daemon_is_left_out)
{
    const char *words[4 + 70 + 1] = {"serve", "tiny", "--"};
    for (int i = 3; i < 73; i += 2) {
        words[i] = "--threads";
        words[i + 1] = "1";
    }
    words[73] = "--no-such-option";
    run(64, words);
    ck_assert_msg(strstr(o.error, "hearth: unknown option --no-such-option: see --help") != NULL,
                  "%s", o.error);
}
END_TEST

/* Nothing is downloaded: the command of a program that would is shown. */
START_TEST(a_program_that_downloads_models_is_named)
{
    static const char hint[] = "; to download one: ollama pull NAME\n";
    char path[128];
    setenv("PATH", home, 1);
    RUN(66, "serve", "other");
    ck_assert_ptr_null(strstr(o.error, "download"));
    snprintf(path, sizeof(path), "%s/ollama", home);
    ck_assert_int_eq(symlink("/proc/self/exe", path), 0);
    RUN(66, "serve", "other");
    ck_assert_ptr_nonnull(strstr(o.error, hint));
    snprintf(path, sizeof(path), "%s/none", home);
    setenv("HEARTH_MODELS", path, 1);
    RUN(66, "models");
    ck_assert_ptr_nonnull(strstr(o.error, hint));
}
END_TEST

START_TEST(a_context_that_memory_does_not_hold_is_refused_with_one_that_fits)
{
    RUN(71, "serve", "tiny", "--kv-bytes", "512G");
    ck_assert_ptr_nonnull(strstr(o.error, " are available: --context "));
}
END_TEST

/* hearth runs the hearthd beside it: a script. Puts both into `home`/bin. */
static void make_programs(const char *script)
{
    char path[128], command[PATH_MAX + 128];
    snprintf(path, sizeof(path), "%s/bin", home);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/bin/hearthd", home);
    write_file(path, script);
    ck_assert_int_eq(chmod(path, 0700), 0);
    snprintf(command, sizeof(command), "cp %s %s/bin", harness_program("hearth"), home);
    ck_assert_int_eq(system(command), 0);
}

/* Here it notes what it is to tell its state to. */
START_TEST(no_other_user_tells_that_a_daemon_is_ready)
{
    static const char script[] =
        "#!/bin/sh\n"
        "case \"$*\" in *--describe*) echo '{\"fits\":true}'; exit;; esac\n"
        "stat -c '%a %F' \"$NOTIFY_SOCKET\" >\"$HOME/told\"\n"
        "echo 'hearthd: no more' >&2; exit 75\n";
    char path[128], command[512], told[64] = "";
    make_programs(script);
    snprintf(command, sizeof(command), "%s/bin/hearth serve %s/tiny:model.gguf 2>%s/error", home,
             home, home);
    ck_assert_int_eq(WEXITSTATUS(system(command)), 75);
    snprintf(path, sizeof(path), "%s/told", home);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(told, sizeof(told), file));
    fclose(file);
    ck_assert_str_eq(told, "600 socket\n");
    snprintf(command, sizeof(command), "ls %s/hearth/*.notify 2>/dev/null", home);
    ck_assert_int_ne(WEXITSTATUS(system(command)), 0); /* it is gone */
}
END_TEST

/* Else a script's lock is held, and a pipe of its never ends, for as long as the daemon runs. */
START_TEST(a_daemon_gets_no_descriptor_of_the_caller)
{
    static const char script[] =
        "#!/bin/sh\n"
        "case \"$*\" in *--describe*) echo '{\"fits\":true}'; exit;; esac\n"
        "[ -e /proc/$$/fd/9 ] || exit 75\n"
        "exit 74\n";
    char command[512];
    make_programs(script);
    snprintf(command, sizeof(command), "%s/bin/hearth serve tiny 9>%s/lock 2>%s/error", home, home,
             home);
    ck_assert_int_eq(WEXITSTATUS(system(command)), 75);
}
END_TEST

/* A signal while files are looked at: no half of a list, and no daemon. */
START_TEST(a_signal_ends_a_look_at_files)
{
    static const char script[] =
        "#!/bin/sh\n"
        "case \"$*\" in *--describe*) ;; *) echo >\"$HOME/started\"; exit 75;; esac\n"
        "kill -TERM $PPID; sleep 0.2; echo '{\"fits\":true}'\n";
    static const char *const commands[] = {"models", "serve tiny"};
    char command[256], path[128];
    struct stat st;
    make_programs(script);
    snprintf(command, sizeof(command), "%s/bin/hearth %s >%s/out", home, commands[_i], home);
    ck_assert_int_eq(WEXITSTATUS(system(command)), 130);
    snprintf(path, sizeof(path), "%s/out", home);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq((int)st.st_size, 0);
    snprintf(path, sizeof(path), "%s/started", home);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve");
    TCase *c = tcase_create("serve");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, models_are_listed_with_what_they_are);
    tcase_add_test(c, a_model_is_served_asked_and_stopped_by_its_name);
    tcase_add_test(c, a_file_is_named_by_all_of_its_name);
    tcase_add_test(c, a_name_may_end_as_a_file_does);
    tcase_add_test(c, another_model_of_a_name_that_is_alike_is_not_served_already);
    tcase_add_test(c, names_in_other_letters_are_two_models);
    tcase_add_test(c, top_shows_all_that_run);
    tcase_add_test(c, the_process_that_answers_is_stopped);
    tcase_add_test(c, a_stop_that_is_interrupted_says_so);
    tcase_add_test(c, the_unit_of_the_whole_name_is_stopped);
    tcase_add_test(c, what_cannot_be_served_is_one_line);
    tcase_add_test(c, no_option_of_the_daemon_is_left_out);
    tcase_add_test(c, no_other_user_tells_that_a_daemon_is_ready);
    tcase_add_test(c, a_daemon_gets_no_descriptor_of_the_caller);
    tcase_add_loop_test(c, a_signal_ends_a_look_at_files, 0, 2);
    tcase_add_test(c, a_program_that_downloads_models_is_named);
    tcase_add_test(c, a_context_that_memory_does_not_hold_is_refused_with_one_that_fits);
    suite_add_tcase(s, c);
    return run_suite(s);
}
