/* status.c: describes the daemon for people and scripts. Names were made printable when they were
 * read. */
#include "daemon/control/status.h"

#include "daemon/json_escape.h"
#include "ipc/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void status_open(struct status_process *process)
{
    process->fds = opendir("/proc/self/fd");
    process->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

void status_close(struct status_process *process)
{
    if (process->fds)
        closedir(process->fds);
    if (process->statm_fd >= 0)
        close(process->statm_fd);
}

static uint64_t count_fds(const struct status_process *process)
{
    struct stat st;
    uint64_t n = 0;
    if (!process->fds)
        return 0;
    if (fstat(dirfd(process->fds), &st) == 0 && st.st_size > 0) /* since 6.2 their number */
        return (uint64_t)st.st_size;
    rewinddir(process->fds);
    while (readdir(process->fds))
        n++;
    return n > 2 ? n - 2 : 0; /* "." and ".." */
}

static uint64_t resident_bytes(const struct status_process *process)
{
    char line[128];
    unsigned long long size, pages = 0;
    ssize_t n = pread(process->statm_fd, line, sizeof(line) - 1, 0);
    line[n > 0 ? n : 0] = 0;
    if (sscanf(line, "%llu %llu", &size, &pages) != 2)
        pages = 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What the fast pass of a backend is, in the words of --proposer. */
static const char *const fast_names[] = {
    [BACKEND_FAST_NONE] = "none", [BACKEND_FAST_SHADOW] = "shadow", [BACKEND_FAST_NATIVE] = "fast"};

/* A JSON text that grows piece by piece; full: a piece did not fit, and nothing is written after
 * it. */
struct text {
    char *at;
    size_t room;
    bool full;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format,
                                                           ...)
{
    va_list args;
    if (text->full)
        return;
    va_start(args, format);
    int n = vsnprintf(text->at, text->room, format, args);
    va_end(args);
    text->full = n < 0 || (size_t)n >= text->room;
    if (text->full)
        return;
    text->at += n;
    text->room -= (size_t)n;
}

static void status_device(struct text *text, const struct status_facts *facts)
{
    const struct loaded_model *loaded = facts->loaded;
    char fingerprint[MODEL_FINGERPRINT_TEXT], name[160], draft[160], socket_path[240];
    model_fingerprint_text(loaded->fingerprint, fingerprint);
    text_add(text,
             "\"version\":\"%s\",\"pid\":%ld,\"socket\":\"%s\",\"model\":\"%s\",\"arch\":\"%s\","
             "\"type\":\"%s\",\"fingerprint\":\"%s\",\"numerics\":\"%s\",\"device\":\"%s\",",
             HEARTH_VERSION, (long)getpid(),
             json_escape(facts->socket, socket_path, sizeof(socket_path)),
             json_escape(loaded->name, name, sizeof(name)), loaded->model->arch,
             model_type_name(loaded->model), fingerprint, loaded->info.numerics, loaded->info.name);
    text_add(text,
             "\"isa\":\"%s\",\"threads\":%u,\"context\":%u,\"weight_bytes\":%zu,"
             "\"shadow_bytes\":%zu,\"page_bytes\":%zu,\"window_page_bytes\":%zu,"
             "\"state_bytes\":%zu,\"draft\":\"%s\",\"mtp\":%s,\"fast\":\"%s\",\"host_layers\":%u,"
             "\"host_bytes\":%zu,\"loop\":\"%s\",",
             loaded->info.isa, loaded->info.threads, loaded->limits.context,
             loaded->info.weight_bytes, loaded->info.shadow_bytes, loaded->info.page_bytes,
             loaded->info.window_page_bytes, loaded->info.state_bytes + loaded->info.record_bytes,
             loaded->draft ? json_escape(loaded->draft->name, draft, sizeof(draft)) : "",
             loaded->info.mtp ? "true" : "false", fast_names[loaded->info.fast],
             loaded->info.host_layers, loaded->info.host_bytes, facts->loop);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static const char *const state_names[] = {
    [DOWN_IDLE] = "idle",     [DOWN_QUEUED] = "queued", [DOWN_PREFILL] = "prefill",
    [DOWN_DECODE] = "decode", [DOWN_PAUSED] = "paused", [DOWN_READING] = "reading"};

static uint32_t word_of(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Each word is read by itself: a row may mix two steps. */
static void status_slot(struct text *text, const struct client *client, uint32_t slot, bool open)
{
    const struct down_slot *down = segment_down_slot(&client->segment, slot);
    char name[2 * SLOT_NAME_BYTES];
    text_add(text, "{\"client\":%llu,\"slot\":%u,\"uid\":%ld,", (unsigned long long)client->number,
             slot, (long)client->uid);
    if (open)
        text_add(text, "\"pid\":%ld,", (long)client->pid);
    if (open && slot == 0 && client->name[0])
        text_add(text, "\"name\":\"%s\",", json_escape(client->name, name, sizeof(name)));
    text_add(text,
             "\"state\":\"%s\",\"priority\":\"%s\",\"prompt\":%u,\"prefix_break\":%u,"
             "\"prefix_lost\":%u,\"kv\":%u,\"output\":%u,\"outputs\":%llu}",
             state_names[word_of(&down->state)], word_of(&down->batch) ? "batch" : "interactive",
             word_of(&down->prompt), word_of(&down->prefix_break), word_of(&down->prefix_lost),
             word_of(&down->prefill_done), word_of(&down->output),
             (unsigned long long)atomic_load_explicit(&down->outputs, memory_order_relaxed));
}

/* Writes the row of a slot, unless it is written already; `busy`: only if it serves a request.
 * Returns true if it did not fit. */
static bool status_row(struct text *text, struct client *client, uint32_t slot, uid_t asker,
                       bool busy, bool *first)
{
    struct text before = *text;
    uint64_t bit = 1ull << slot;
    bool open = asker == 0 || asker == client->uid;
    if (client->told & bit)
        return false;
    if (busy && word_of(&segment_down_slot(&client->segment, slot)->state) == DOWN_IDLE)
        return false;
    text_add(text, "%s", *first ? "" : ",");
    status_slot(text, client, slot, open);
    if (text->full) {
        *text = before;
        return true;
    }
    client->told |= bit;
    *first = false;
    return false;
}

/* Writes the rows of active slots, then the others (a state may change in between). Returns how
 * many rows did not fit. */
static uint32_t status_slots(struct text *text, const struct status_facts *facts)
{
    uint32_t left_out = 0;
    bool first = true;
    for (struct client *client = facts->clients; client; client = client->next) {
        client->told = 0;
        for (uint32_t i = 0; client->state == CLIENT_ATTACHED && i < client->n_slots; i++)
            status_row(text, client, i, facts->asker, true, &first);
    }
    for (struct client *client = facts->clients; client; client = client->next)
        for (uint32_t i = 0; client->state == CLIENT_ATTACHED && i < client->n_slots; i++)
            left_out += status_row(text, client, i, facts->asker, false, &first);
    return left_out;
}

enum { TAIL_BYTES = 48 }; /* room for what follows the rows */

int status_json(struct ctl *ctl, const struct status_facts *facts, char *text, size_t text_bytes)
{
    struct text out = {.at = text, .room = text_bytes};
    counters_set(ctl, COUNTER_FDS_OPEN, count_fds(facts->process));
    counters_set(ctl, COUNTER_RSS_BYTES, resident_bytes(facts->process));
    counters_set(ctl, COUNTER_UPTIME_S, facts->uptime_ns / 1000000000);
    text_add(&out, "{");
    status_device(&out, facts);
    if (out.full)
        return -ENOSPC;
    int n = counters_json(ctl, out.at, out.room);
    if (n < 0)
        return n;
    out.at += n;
    out.room -= (size_t)n;
    text_add(&out, ",\"slots\":[");
    if (out.full || out.room <= TAIL_BYTES)
        return -ENOSPC;
    out.room -= TAIL_BYTES;
    uint32_t left_out = status_slots(&out, facts);
    out.room += TAIL_BYTES;
    text_add(&out, "],\"slots_left_out\":%u}", left_out);
    return (int)(out.at - text);
}
