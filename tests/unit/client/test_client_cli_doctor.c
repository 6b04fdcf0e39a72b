/* `hearth doctor`: facts from files below a root of our own, and what is made of facts. */
#include "client/cli/doctor.c"
#include "client/cli/doctor_facts.c"
#include "client/cli/json.c"
#include "client/cli/options.c"
#include "client/cli/process.c"
#include "client/cli/util.c"
#include "tests/rig/fake_daemon.h"
#include "tests/run_suite.h"

/* The command has a struct row of its own. */
#define row kernels_row
#include "kernels/cpu/cpu.h"
#undef row

#include <check.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct doctor_line lines[DOCTOR_LINES];
static uint32_t n_lines;

/* A machine on which all is well. */
static struct doctor_facts good(void)
{
    return (struct doctor_facts){
        .kernel = "6.1.0-test",
        .huge_pages = "madvise",
        .isa = DOCTOR_AVX512,
        .cores = 4,
        .memory_kib = 32u << 20,
        .available_kib = 20u << 20,
        .files = 524288,
        .memlock = 8 << 20,
        .in_group = -1,
        .socket_folder = "/run/user/7/hearth",
        .model = "some model",
        .daemon_version = "hearthd " HEARTH_VERSION,
        .socket = "/run/hearth/hearth.sock",
        .resident_kib = 600 << 10,
        .huge_kib = 512 << 10,
    };
}

static const struct doctor_line *judged(const struct doctor_facts *f, const char *name)
{
    n_lines = doctor_judge(f, lines);
    ck_assert_uint_le(n_lines, DOCTOR_LINES);
    for (uint32_t i = 0; i < n_lines; i++)
        if (!strcmp(lines[i].name, name))
            return &lines[i];
    return NULL;
}

/* Exactly this line is worse than ok, and it says that. */
static void expect(const struct doctor_facts *f, const char *name, enum doctor_verdict verdict,
                   const char *text, const char *mended_by)
{
    const struct doctor_line *line = judged(f, name);

    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(line->verdict, verdict);
    ck_assert_msg(strstr(line->text, text) != NULL, "%s", line->text);
    ck_assert_msg(strstr(line->mend, mended_by) != NULL, "%s", line->mend);
    for (uint32_t i = 0; i < n_lines; i++)
        ck_assert_msg(&lines[i] == line || lines[i].verdict == DOCTOR_OK, "%s: %s", lines[i].name,
                      lines[i].text);
}

START_TEST(a_good_machine_gets_no_advice)
{
    struct doctor_facts f = good();

    ck_assert_ptr_nonnull(judged(&f, "kernel"));
    for (uint32_t i = 0; i < n_lines; i++) {
        ck_assert_int_eq(lines[i].verdict, DOCTOR_OK);
        ck_assert_str_eq(lines[i].mend, "");
    }
    ck_assert_str_eq(judged(&f, "resident")->text, "600 MiB, 512 of them in huge pages");
    ck_assert_str_eq(judged(&f, "memory")->text, "32.0 GiB, 20.0 available");
    ck_assert_str_eq(judged(&f, "daemon")->text, "serves some model at /run/hearth/hearth.sock");
}
END_TEST

/* A daemon, and who named its model, may be anybody. */
START_TEST(what_a_daemon_says_drives_no_terminal)
{
    struct doctor_facts f = good();

    snprintf(f.model, sizeof(f.model), "a\xe2\x80\xae");
    snprintf(f.daemon_version, sizeof(f.daemon_version), "\033[2J");
    ck_assert_str_eq(judged(&f, "daemon")->text, "serves a??? at /run/hearth/hearth.sock");
    ck_assert_ptr_null(strchr(judged(&f, "version")->text, '\033'));
    f.daemon_error = -EBUSY;
    snprintf(f.daemon_problem, sizeof(f.daemon_problem), "\xc2\x9b\x31m");
    ck_assert_str_eq(judged(&f, "daemon")->text, "??1m");
}
END_TEST

START_TEST(each_problem_is_named_with_its_fix)
{
    struct doctor_facts f;

    f = good(), f.seal_error = EINVAL;
    expect(&f, "kernel", DOCTOR_BAD, "Linux 6.1.0-test cannot seal memory", "5.4");
    f = good(), f.uring_error = EPERM, f.uring_disabled = 2;
    expect(&f, "io_uring", DOCTOR_NOTE, "epoll", "kernel.io_uring_disabled=0");
    f = good(), f.uring_error = EPERM;
    expect(&f, "io_uring", DOCTOR_NOTE, "epoll", "seccomp");
    f = good(), f.uring_error = ENOSYS;
    expect(&f, "io_uring", DOCTOR_NOTE, "epoll", "Linux 5.11");
    f = good(), f.pidfd_error = ENOSYS;
    expect(&f, "pidfd", DOCTOR_NOTE, "socket alone", "");
    f = good(), f.isa = DOCTOR_NO_ISA;
    expect(&f, "processor", DOCTOR_NOTE, "4 cores, neither", "");
    f = good(), strcpy(f.governor, "powersave");
    expect(&f, "clock", DOCTOR_NOTE, "governor powersave", "cpupower");
    f = good(), strcpy(f.huge_pages, "never");
    expect(&f, "huge pages", DOCTOR_NOTE, "never", "echo madvise");
    f = good(), f.huge_pages[0] = 0;
    expect(&f, "huge pages", DOCTOR_NOTE, "none in this kernel", "");
    f = good(), f.files = 1024;
    expect(&f, "files", DOCTOR_NOTE, "about 128 clients", "LimitNOFILE");
    f = good(), f.memlock = 65536, f.old_kernel = 1;
    expect(&f, "memlock", DOCTOR_NOTE, "64 KiB", "LimitMEMLOCK");
    f = good(), f.folder_error = EPERM;
    expect(&f, "socket", DOCTOR_NOTE, "every user", "chmod 0700 /run/user/7/hearth");
    f = good(), f.has_nvidia = 1, f.nvidia_error = EACCES;
    expect(&f, "gpu", DOCTOR_NOTE, "Permission denied", "usermod");
    f = good(), f.has_nvidia = 1;
    expect(&f, "gpu", DOCTOR_NOTE, "libcuda.so.1", "libcuda1");
    f = good(), f.has_nvidia = f.has_libcuda = 1;
    expect(&f, "cublas", DOCTOR_NOTE, "draft models", "libcublas-13-0");
    f.has_libcublas = 1;
    ck_assert_ptr_null(judged(&f, "cublas"));
    f = good(), f.daemon_error = -ENOENT, strcpy(f.daemon_problem, "no daemon at X: start one");
    expect(&f, "daemon", DOCTOR_NOTE, "no daemon at X: start one", "");
    f = good(), strcpy(f.daemon_version, "hearthd 9.9.9");
    expect(&f, "version", DOCTOR_NOTE, "hearthd 9.9.9", "restart");
    f = good(), f.huge_kib = 0;
    expect(&f, "resident", DOCTOR_NOTE, "600 MiB, 0 of them", "");
}
END_TEST

/* Without a daemon to talk to, what keeps one from being there. */
START_TEST(permissions_are_checked_only_without_a_daemon)
{
    struct doctor_facts f = good();

    f.in_group = 0, f.folder_error = EACCES;
    ck_assert_ptr_null(judged(&f, "group")); /* there is one that answers */
    ck_assert_ptr_null(judged(&f, "socket"));
    f.daemon_error = -ENOENT;
    ck_assert_int_eq(judged(&f, "group")->verdict, DOCTOR_NOTE);
    ck_assert_ptr_nonnull(strstr(judged(&f, "group")->mend, "usermod -aG hearth"));
    ck_assert_int_eq(judged(&f, "socket")->verdict, DOCTOR_NOTE);
    ck_assert_ptr_nonnull(strstr(judged(&f, "socket")->mend, "HEARTH_SOCKET"));
    f.in_group = 1;
    ck_assert_int_eq(judged(&f, "group")->verdict, DOCTOR_OK);
}
END_TEST

START_TEST(all_problems_at_once_fit)
{
    struct doctor_facts f = good();

    f.seal_error = f.uring_error = f.pidfd_error = EPERM;
    f.isa = DOCTOR_NO_ISA;
    strcpy(f.governor, "powersave");
    f.has_nvidia = 1;
    strcpy(f.daemon_version, "");
    f.old_kernel = 1, f.memlock = 0, f.folder_error = EPERM, f.in_group = 1;
    judged(&f, "kernel");
    ck_assert_uint_gt(n_lines, 10);
}
END_TEST

static char root[] = "/tmp/hearth-doctor-XXXXXX";

static void put(const char *path, const char *text)
{
    char whole[512];

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = whole + sizeof(root); (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(whole, 0700);
    }
    FILE *file = fopen(whole, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

START_TEST(facts_are_read_from_the_system_s_files)
{
    struct doctor_facts f;

    ck_assert_ptr_nonnull(mkdtemp(root));
    doctor_gather(root, &f); /* nothing there */
    ck_assert_str_eq(f.huge_pages, "");
    ck_assert_str_eq(f.governor, "");
    ck_assert_uint_eq(f.memory_kib, 0);
    ck_assert_int_eq(f.uring_disabled, 0);
    ck_assert_int_eq(f.has_nvidia, 0);
    ck_assert_uint_gt(f.cores, 0);
    ck_assert_uint_gt(strlen(f.kernel), 0);

    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    put("/proc/sys/kernel/io_uring_disabled", "2\n");
    put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:  777 kB\n");
    put("/dev/nvidia0", "");
    doctor_gather(root, &f);
    ck_assert_str_eq(f.huge_pages, "never");
    ck_assert_str_eq(f.governor, "performance");
    ck_assert_uint_eq(f.memory_kib, 16384);
    ck_assert_uint_eq(f.available_kib, 777);
    ck_assert_int_eq(f.uring_disabled, 2);
    ck_assert_int_eq(f.has_nvidia, 1);
    ck_assert_int_eq(f.nvidia_error, ENOENT);
    struct stat st;
    char own[600];
    snprintf(own, sizeof(own), "%s/session", root);
    mkdir(own, 0700);
    unsetenv("HEARTH_SOCKET");
    setenv("XDG_RUNTIME_DIR", own, 1);
    doctor_gather(root, &f);
    ck_assert_int_eq(f.folder_error, 0); /* hearthd makes its folder there */
    ck_assert_ptr_nonnull(strstr(f.socket_folder, "/session/hearth"));
    chmod(own, 0777);
    doctor_gather(root, &f);
    ck_assert_int_eq(f.folder_error, EPERM);
    setenv("XDG_RUNTIME_DIR", "/nonexistent/session", 1);
    doctor_gather(root, &f);
    ck_assert_int_eq(f.folder_error, ENOENT);
    ck_assert_int_eq(stat(own, &st), 0);
    setenv("HEARTH_SOCKET", "/hearth.sock", 1);
    doctor_gather(root, &f);
    ck_assert_str_eq(f.socket_folder, "/");
    setenv("HEARTH_SOCKET", "hearth.sock", 1);
    doctor_gather(root, &f);
    ck_assert_str_eq(f.socket_folder, ".");
    unsetenv("HEARTH_SOCKET");
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* A daemon may name another process of ours: its memory is not the daemon's. */
START_TEST(the_memory_is_that_of_the_process_that_answers)
{
    static struct fake_daemon fake;
    struct cli_options o = {0};
    struct doctor_facts f = {0};
    char path[64], command[64];
    ck_assert_ptr_nonnull(mkdtemp(root));
    fake_open(&fake);
    fake.pid = getpid();
    pid_t daemon = fork();
    for (; daemon == 0; fake_hang_up(&fake)) {
        fake_start(&fake);
        fake_join(&fake);
    }
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)getpid());
    put(path, "Rss: 99 kB\n");
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)daemon);
    put(path, "Rss: 7 kB\n");
    o.socket = fake.path;
    doctor_ask(&o, root, &f);
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    fake_close(&fake);
    ck_assert_int_eq(f.daemon_error, 0);
    ck_assert_uint_eq(f.resident_kib, 7);
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* It looks by itself, without the daemon's code. */
START_TEST(the_instruction_set_is_the_one_that_hearthd_takes)
{
    enum doctor_isa want = DOCTOR_NO_ISA;
#if defined(__x86_64__)
    if (cpu_isa_avx2.usable())
        want = DOCTOR_AVX2;
    if (cpu_isa_avxvnni.usable())
        want = DOCTOR_AVXVNNI;
    if (cpu_isa_avx512.usable())
        want = DOCTOR_AVX512;
#endif
    ck_assert_int_eq(find_isa(), want);
}
END_TEST

START_TEST(every_instruction_set_has_a_name)
{
    static const char *const names[] = {"neither", "AVX2", "AVX-VNNI", "AVX-512"};
    struct doctor_facts f = good();

    for (int isa = DOCTOR_NO_ISA; isa <= DOCTOR_AVX512; isa++) {
        f.isa = (enum doctor_isa)isa;
        const struct doctor_line *line = judged(&f, "processor");
        ck_assert_ptr_nonnull(line);
        ck_assert_ptr_nonnull(strstr(line->text, names[isa]));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_doctor");
    TCase *t = tcase_create("doctor");
    tcase_add_test(t, a_good_machine_gets_no_advice);
    tcase_add_test(t, what_a_daemon_says_drives_no_terminal);
    tcase_add_test(t, each_problem_is_named_with_its_fix);
    tcase_add_test(t, permissions_are_checked_only_without_a_daemon);
    tcase_add_test(t, all_problems_at_once_fit);
    tcase_add_test(t, facts_are_read_from_the_system_s_files);
    tcase_add_test(t, the_memory_is_that_of_the_process_that_answers);
    tcase_add_test(t, the_instruction_set_is_the_one_that_hearthd_takes);
    tcase_add_test(t, every_instruction_set_has_a_name);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
