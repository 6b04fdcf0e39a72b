/* doctor: judges the facts; and `hearth doctor` itself. See doctor.h. */
#include "client/cli/doctor.h"

#include "client/base/printable.h"
#include "client/cli/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SMALL_KIB = 64 << 10 }; /* huge pages would not matter there */

struct judge {
    struct doctor_line *lines;
    uint32_t n;
};

__attribute__((format(printf, 4, 5))) static struct doctor_line *
say(struct judge *j, enum doctor_verdict verdict, const char *name, const char *format, ...)
{
    struct doctor_line *line = &j->lines[j->n++];
    va_list args;
    *line = (struct doctor_line){.verdict = verdict, .name = name};
    va_start(args, format);
    vsnprintf(line->text, sizeof(line->text), format, args);
    va_end(args);
    printable_mask(line->text); /* some of it a daemon says, and names are anybody's */
    return line;
}

__attribute__((format(printf, 2, 3))) static void mend(struct doctor_line *line, const char *format,
                                                       ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(line->mend, sizeof(line->mend), format, args);
    va_end(args);
    printable_mask(line->mend);
}

static void judge_kernel(struct judge *j, const struct doctor_facts *f)
{
    if (!f->seal_error)
        say(j, DOCTOR_OK, "kernel", "Linux %s, memory can be sealed", f->kernel);
    else
        mend(say(j, DOCTOR_BAD, "kernel", "Linux %s cannot seal memory against writers: %s",
                 f->kernel, strerror(f->seal_error)),
             "use Linux 5.4 or later");
    if (!f->uring_error)
        say(j, DOCTOR_OK, "io_uring", "available");
    else if (f->uring_error == EPERM && f->uring_disabled)
        mend(say(j, DOCTOR_NOTE, "io_uring", "switched off, epoll is used instead"),
             "sudo sysctl kernel.io_uring_disabled=0");
    else
        mend(say(j, DOCTOR_NOTE, "io_uring", "refused (%s), epoll is used instead",
                 strerror(f->uring_error)),
             "%s",
             f->uring_error == ENOSYS ? "use Linux 5.11 or later"
                                      : "allow io_uring_setup in the container's seccomp profile");
    if (f->pidfd_error)
        say(j, DOCTOR_NOTE, "pidfd", "refused (%s): a client's death is seen by its socket alone",
            strerror(f->pidfd_error));
}

static void judge_processor(struct judge *j, const struct doctor_facts *f)
{
    static const char *const names[] = {"neither AVX2 nor AVX-512: the plain C kernels, slow",
                                        "AVX2", "AVX2 with AVX-VNNI", "AVX-512 with VNNI"};
    say(j, f->isa == DOCTOR_NO_ISA ? DOCTOR_NOTE : DOCTOR_OK, "processor", "%u core%s, %s",
        f->cores, f->cores == 1 ? "" : "s", names[f->isa]);
    if (!strcmp(f->governor, "powersave") || !strcmp(f->governor, "conservative"))
        mend(say(j, DOCTOR_NOTE, "clock", "governor %s: first tokens wait for the clock to rise",
                 f->governor),
             "sudo cpupower frequency-set -g schedutil");
}

static void judge_memory(struct judge *j, const struct doctor_facts *f)
{
    if (f->memory_kib)
        say(j, DOCTOR_OK, "memory", "%.1f GiB, %.1f available", (double)f->memory_kib / (1 << 20),
            (double)f->available_kib / (1 << 20));
    if (!strcmp(f->huge_pages, "always") || !strcmp(f->huge_pages, "madvise"))
        say(j, DOCTOR_OK, "huge pages", "%s", f->huge_pages);
    else
        mend(say(j, DOCTOR_NOTE, "huge pages", "%s: weights are read slower",
                 f->huge_pages[0] ? f->huge_pages : "none in this kernel"),
             "%s",
             f->huge_pages[0] ? "echo madvise | sudo tee "
                                "/sys/kernel/mm/transparent_hugepage/enabled"
                              : "");
    if (f->files < 4096)
        mend(say(j, DOCTOR_NOTE, "files", "a process may open %llu: room for about %llu clients",
                 (unsigned long long)f->files, (unsigned long long)f->files / 8),
             "LimitNOFILE=65536 in the service, or nofile in /etc/security/limits.conf");
    else
        say(j, DOCTOR_OK, "files", "a process may open %llu", (unsigned long long)f->files);
}

enum { LOCKED_BYTES = 8 << 20 }; /* two rings of 4096 entries, and some to spare */

/* What the system lets this user do. */
static void judge_permissions(struct judge *j, const struct doctor_facts *f)
{
    if (f->memlock == UINT64_MAX)
        say(j, DOCTOR_OK, "memlock", "a process may lock all memory");
    else if (f->old_kernel && f->memlock < LOCKED_BYTES)
        mend(say(j, DOCTOR_NOTE, "memlock",
                 "a process may lock %llu KiB: this kernel counts io_uring there, and refuses it",
                 (unsigned long long)f->memlock >> 10),
             "LimitMEMLOCK=infinity in the service, or memlock in /etc/security/limits.conf");
    else
        say(j, DOCTOR_OK, "memlock", "a process may lock %llu KiB",
            (unsigned long long)f->memlock >> 10);
    if (!f->folder_error)
        say(j, DOCTOR_OK, "socket", "a daemon of yours can listen in %s", f->socket_folder);
    else if (f->folder_error == EPERM)
        mend(say(j, DOCTOR_NOTE, "socket", "%s: every user may put a socket there",
                 f->socket_folder),
             "chmod 0700 %s", f->socket_folder);
    else if (f->daemon_error)
        mend(say(j, DOCTOR_NOTE, "socket", "a daemon of yours cannot listen in %s: %s",
                 f->socket_folder, strerror(f->folder_error)),
             "export HEARTH_SOCKET=$HOME/.hearth.sock");
    if (f->in_group > 0)
        say(j, DOCTOR_OK, "group", "you are in the group hearth, and may ask the machine's daemon");
    else if (f->in_group == 0 && f->daemon_error)
        mend(say(j, DOCTOR_NOTE, "group",
                 "you are not in the group hearth: the machine's daemon is "
                 "not for you"),
             "sudo usermod -aG hearth $USER, then log in again");
}

static void judge_gpu(struct judge *j, const struct doctor_facts *f)
{
    if (!f->has_nvidia)
        say(j, DOCTOR_OK, "gpu", "no NVIDIA device: the processor computes");
    else if (f->nvidia_error)
        mend(say(j, DOCTOR_NOTE, "gpu", "an NVIDIA device is there, this user may not open it: %s",
                 strerror(f->nvidia_error)),
             "sudo usermod -aG video $USER, then log in again");
    else if (!f->has_libcuda)
        mend(say(j, DOCTOR_NOTE, "gpu", "there is an NVIDIA device, but no libcuda.so.1"),
             "sudo apt install libcuda1");
    else
        say(j, DOCTOR_OK, "gpu",
            "an NVIDIA device and its driver are there; hearthd --check says whether it uses them");
    if (f->has_libcuda && !f->has_libcublas)
        mend(say(j, DOCTOR_NOTE, "cublas",
                 "NVIDIA's libcublas is not there: draft models in F16 or BF16 read long prompts "
                 "slower"),
             "install libcublas: libcublas-13-0 of NVIDIA's packages, libcublas12 of Debian's");
}

static void judge_daemon(struct judge *j, const struct doctor_facts *f)
{
    if (f->daemon_error) {
        say(j, DOCTOR_NOTE, "daemon", "%s", f->daemon_problem);
        return;
    }
    say(j, DOCTOR_OK, "daemon", "serves %s at %s", f->model, f->socket);
    if (strcmp(f->daemon_version, "hearthd " HEARTH_VERSION) != 0)
        mend(say(j, DOCTOR_NOTE, "version", "the daemon is %s, this is hearth %s",
                 f->daemon_version, HEARTH_VERSION),
             "restart the daemon after an upgrade");
    if (!f->resident_kib)
        return;
    /* The files of model and programs are not counted. */
    say(j, f->huge_kib || f->resident_kib < SMALL_KIB ? DOCTOR_OK : DOCTOR_NOTE, "resident",
        "%llu MiB, %llu of them in huge pages", (unsigned long long)f->resident_kib / 1024,
        (unsigned long long)f->huge_kib / 1024);
}

uint32_t doctor_judge(const struct doctor_facts *f, struct doctor_line lines[DOCTOR_LINES])
{
    struct judge j = {.lines = lines};
    judge_kernel(&j, f);
    judge_processor(&j, f);
    judge_memory(&j, f);
    judge_permissions(&j, f);
    judge_gpu(&j, f);
    judge_daemon(&j, f);
    return j.n;
}

/* ---- the command ----------------------------------------------------------------------------- */

static const char *const verdicts[] = {"ok", "note", "bad"};

static void add_text(struct buffer *out, const struct doctor_line *line)
{
    buffer_format(out, "%-5s %-11s ", verdicts[line->verdict], line->name);
    buffer_text(out, line->text);
    if (line->mend[0]) {
        buffer_text(out, "\n                    fix: ");
        buffer_text(out, line->mend);
    }
    buffer_text(out, "\n");
}

static void add_json(struct buffer *out, const struct doctor_line *line)
{
    buffer_format(out, "{\"check\":\"%s\",\"verdict\":\"%s\",\"text\":", line->name,
                  verdicts[line->verdict]);
    json_text(out, line->text, strlen(line->text));
    buffer_text(out, ",\"mend\":");
    json_text(out, line->mend, strlen(line->mend));
    buffer_text(out, "}\n");
}

int cli_doctor(const struct cli_options *o)
{
    struct doctor_facts facts;
    struct doctor_line lines[DOCTOR_LINES];
    struct buffer out = {0};
    int code = CLI_OK;
    cli_stop_at_once(1); /* one that hangs is waited for */
    doctor_gather("", &facts);
    doctor_ask(o, "", &facts);
    uint32_t n = doctor_judge(&facts, lines);
    for (uint32_t i = 0; i < n; i++) {
        if (o->json)
            add_json(&out, &lines[i]);
        else
            add_text(&out, &lines[i]);
        if (lines[i].verdict == DOCTOR_BAD)
            code = CLI_SYSTEM;
    }
    int printed = cli_print(&out);
    return printed ? printed : code;
}
