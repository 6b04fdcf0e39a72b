/* doctor_facts: gathers the facts about this machine; see doctor.h. */
#include "client/cli/doctor.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static int open_below(const char *root, const char *path, int flags)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    return open(whole, flags | O_CLOEXEC);
}

/* Reads a small file, without its last newline. Returns whether there is one. */
static int read_below(const char *root, const char *path, char *text, size_t text_bytes)
{
    int fd = open_below(root, path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, text_bytes - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return n > 0;
}

/* The number after "NAME:" at the beginning of a line of /proc/meminfo or its like; 0: none. */
static uint64_t number_of(const char *root, const char *path, const char *name)
{
    char text[8192] = "";
    int fd = open_below(root, path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            return strtoull(line + strlen(name) + 1, NULL, 10);
    }
    return 0;
}

static int try_seal(void)
{
    int fd = memfd_create("hearth-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

static int try_uring(void)
{
    struct io_uring_params params = {0};
    long fd = syscall(SYS_io_uring_setup, 1, &params);
    if (fd < 0)
        return errno;
    close((int)fd);
    return 0;
}

static int try_pidfd(void)
{
    long fd = syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0)
        return errno;
    close((int)fd);
    return 0;
}

/* As the daemon chooses (kernels/cpu/isa_x86.c). */
static enum doctor_isa find_isa(void)
{
#ifdef __x86_64__
    unsigned eax, ebx, ecx, edx;
    int has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    int has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vnni");
    if (!has_f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return DOCTOR_NO_ISA;
    if (has_avx512)
        return DOCTOR_AVX512;
    int has_avxvnni = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && eax >= 1 &&
                      __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & bit_AVXVNNI);
    return has_avxvnni ? DOCTOR_AVXVNNI : DOCTOR_AVX2;
#else
    return DOCTOR_NO_ISA;
#endif
}

/* "always [madvise] never": the word in brackets. */
static void find_huge_pages(const char *root, char *word, size_t word_bytes)
{
    char text[128];
    word[0] = 0;
    if (!read_below(root, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)))
        return;
    const char *from = strchr(text, '[');
    if (from)
        snprintf(word, word_bytes, "%.*s", (int)strcspn(from + 1, "]"), from + 1);
}

static int is_there(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

static void find_nvidia(const char *root, struct doctor_facts *f)
{
    int fd = open_below(root, "/dev/nvidia0", O_PATH);
    f->has_nvidia = fd >= 0;
    if (fd >= 0)
        close(fd);
    if (!f->has_nvidia)
        return;
    fd = open_below(root, "/dev/nvidiactl", O_RDWR);
    f->nvidia_error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    f->has_libcuda = is_there("libcuda.so.1");
    f->has_libcublas =
        f->has_libcuda && (is_there("libcublas.so.13") || is_there("libcublas.so.12"));
}

/* Is this process's user in the group, as the session has it? A user added since then must log in
 * again. */
static int find_group(const char *name)
{
    gid_t groups[256];
    const struct group *group = getgrnam(name);
    int n = getgroups(256, groups);
    if (!group || geteuid() == 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (groups[i] == group->gr_gid)
            return 1;
    return getegid() == group->gr_gid;
}

/* Cuts a path down to the folder that it lies in. */
static void cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    else
        memcpy(path, ".", 2);
}

/* Where hearthd, started by us, makes its socket: $HEARTH_SOCKET's folder, else the session's. If
 * that folder is missing, the one above it is looked at, since hearthd makes only the last one. */
static void find_socket_folder(const char *root, struct doctor_facts *f)
{
    const char *named = getenv("HEARTH_SOCKET"), *session = getenv("XDG_RUNTIME_DIR");
    char path[512];
    struct stat st;
    if (named && *named)
        snprintf(path, sizeof(path), "%s", named);
    else if (session && *session)
        snprintf(path, sizeof(path), "%s/hearth/hearth.sock", session);
    else
        snprintf(path, sizeof(path), "%s/run/hearth/hearth.sock", root);
    for (int up = 0; up < 2; up++) {
        cut_name(path);
        if (!up)
            snprintf(f->socket_folder, sizeof(f->socket_folder), "%.127s", path);
        if (stat(path, &st) < 0 && errno == ENOENT)
            continue;
        if (access(path, W_OK | X_OK) < 0)
            f->folder_error = errno;
        else if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
            f->folder_error = EPERM;
        return;
    }
    f->folder_error = ENOENT;
}

void doctor_gather(const char *root, struct doctor_facts *f)
{
    struct utsname name;
    struct rlimit files, locked;
    unsigned major, minor;
    cpu_set_t cores;
    char text[32];
    *f = (struct doctor_facts){0};
    if (uname(&name) == 0)
        snprintf(f->kernel, sizeof(f->kernel), "%.64s", name.release);
    f->seal_error = try_seal();
    f->uring_error = try_uring();
    f->pidfd_error = try_pidfd();
    f->isa = find_isa();
    if (read_below(root, "/proc/sys/kernel/io_uring_disabled", text, sizeof(text)))
        f->uring_disabled = atoi(text);
    find_huge_pages(root, f->huge_pages, sizeof(f->huge_pages));
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
        f->cores = (uint32_t)CPU_COUNT(&cores);
    read_below(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", f->governor,
               sizeof(f->governor));
    f->memory_kib = number_of(root, "/proc/meminfo", "MemTotal");
    f->available_kib = number_of(root, "/proc/meminfo", "MemAvailable");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        f->files = files.rlim_max;
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
        f->memlock = locked.rlim_max == RLIM_INFINITY ? UINT64_MAX : locked.rlim_max;
    f->old_kernel = sscanf(f->kernel, "%u.%u", &major, &minor) == 2 &&
                    (major < 5 || (major == 5 && minor < 12));
    f->in_group = find_group("hearth");
    find_socket_folder(root, f);
    find_nvidia(root, f);
}

void doctor_ask(const struct cli_options *o, const char *root, struct doctor_facts *f)
{
    struct hearth_options options;
    struct hearth_info info = {.size = sizeof(info)};
    struct hearth *h;
    char path[64];
    hearth_options_init(&options, sizeof(options));
    options.slots = 0;
    f->daemon_error =
        hearth_connect(o->socket, &options, &h, f->daemon_problem, sizeof(f->daemon_problem));
    if (f->daemon_error)
        return;
    if (hearth_info(h, &info) == 0) {
        snprintf(f->model, sizeof(f->model), "%s", info.model);
        snprintf(f->daemon_version, sizeof(f->daemon_version), "%s", info.server_version);
        snprintf(f->socket, sizeof(f->socket), "%s", info.socket_path);
        snprintf(path, sizeof(path), "/proc/%d/smaps_rollup",
                 (int)cli_find_process(info.socket_path));
        f->resident_kib = number_of(root, path, "Rss");
        f->huge_kib = number_of(root, path, "AnonHugePages");
    }
    hearth_close(h);
}
