/* The daemon described for people and scripts. Names with odd bytes were made printable at load. */
#include "daemon/status.h"

#include "ipc/counters.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (!directory)
        return 0;
    while (readdir(directory))
        n++;
    closedir(directory);
    return n > 3 ? n - 3 : 0; /* ".", "..", and the directory itself */
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size, pages = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &pages) != 2)
        pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* JSON string contents: quotes, backslashes and control characters escaped. `to` is cut to fit. */
static const char *escape(const char *from, char *to, size_t to_bytes)
{
    size_t n = 0;

    for (; *from && n + sizeof("\\u0000") <= to_bytes; from++) {
        unsigned char byte = (unsigned char)*from;
        if (byte < 0x20) {
            n += (size_t)snprintf(to + n, to_bytes - n, "\\u%04x", byte);
            continue;
        }
        if (byte == '"' || byte == '\\')
            to[n++] = '\\';
        to[n++] = *from;
    }
    to[n] = 0;
    return to;
}

/* What a fast pass is, in the words of --proposer. */
static const char *const fast_names[] = {
    [BACKEND_FAST_NONE] = "none", [BACKEND_FAST_SHADOW] = "shadow", [BACKEND_FAST_NATIVE] = "fast"};

int status_json(struct ctl *ctl, const struct status_facts *facts, char *text, size_t text_bytes)
{
    const struct resident *resident = facts->resident;
    char fingerprint[MODEL_FINGERPRINT_TEXT], name[160], draft[160], socket_path[240];
    int n, more;

    counters_set(ctl, COUNTER_FDS_OPEN, count_fds());
    counters_set(ctl, COUNTER_RSS_BYTES, resident_bytes());
    counters_set(ctl, COUNTER_UPTIME_S, facts->uptime_ns / 1000000000);
    model_fingerprint_text(resident->fingerprint, fingerprint);
    n = snprintf(
        text, text_bytes,
        "{\"version\":\"%s\",\"pid\":%ld,\"socket\":\"%s\",\"model\":\"%s\",\"arch\":\"%s\","
        "\"type\":\"%s\",\"fingerprint\":\"%s\",\"numerics\":\"%s\",\"device\":\"%s\",\"isa\":\"%"
        "s\","
        "\"threads\":%u,\"context\":%u,\"weight_bytes\":%zu,\"shadow_bytes\":%zu,\"page_bytes\":%"
        "zu,\"draft\":\"%s\","
        "\"fast\":\"%s\",\"loop\":\"%s\",",
        HEARTH_VERSION, (long)getpid(), escape(facts->socket, socket_path, sizeof(socket_path)),
        escape(resident->name, name, sizeof(name)), resident->model->arch,
        model_type_name(resident->model), fingerprint, resident->info.numerics, resident->info.name,
        resident->info.isa, resident->info.threads, resident->limits.context,
        resident->info.weight_bytes, resident->info.shadow_bytes, resident->info.page_bytes,
        resident->draft ? escape(resident->draft->name, draft, sizeof(draft)) : "",
        fast_names[resident->info.fast], facts->loop);
    if (n < 0 || (size_t)n >= text_bytes)
        return -ENOSPC;
    more = counters_json(ctl, text + n, text_bytes - (size_t)n);
    if (more < 0 || (size_t)(n + more) + 2 > text_bytes)
        return -ENOSPC;
    memcpy(text + n + more, "}", 2);
    return n + more + 1;
}
