/* config.h: hearthd's options. One table makes the command line, the configuration file, --help,
 * the range checks and the start-up dump; names are the same everywhere (`--kv-bytes 2G`, `kv-bytes
 * = 2G`).
 *
 * Main thread, at start. Precedence: command line, then a file, then defaults. The file is that of
 * --config, or the first that exists of $XDG_CONFIG_HOME/hearth/hearthd.conf (~/.config if not set)
 * and config_machine_path(). Texts point into argv, or are the config's own until config_fini. */
#ifndef HEARTH_DAEMON_CONFIG_H
#define HEARTH_DAEMON_CONFIG_H

#include "ipc/layout.h"
#include "ipc/options.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef HEARTH_FAULTS
#define HEARTHD_FAULT_OPTION(TEXT)                                                                 \
    TEXT(fault, "fault", "NAME=RATE,...", "inject faults (fault.h; a test build)")
#else
#define HEARTHD_FAULT_OPTION(TEXT)
#endif

/* TEXT(field, name, value, help)
 * NUMBER(field, name, default, least, most, value, help)
 * CHOICE(field, name, default, "a|b|c", help): the field is the index
 * FLAG(field, name, help): given or not; in a file, `name = yes` */
#define HEARTHD_OPTIONS(TEXT, NUMBER, CHOICE, FLAG)                                                \
    TEXT(model, "model", "FILE", "the GGUF model to serve (required)")                             \
    TEXT(draft, "draft", "FILE", "a small GGUF draft model with the same vocabulary")              \
    TEXT(socket, "socket", "PATH", "listen here instead of at the default path")                   \
    TEXT(config, "config", "FILE", "read this configuration file only")                            \
    CHOICE(device, "device", "auto", "auto|cpu|cuda", "where the model runs")                      \
    CHOICE(numerics, "numerics", "auto", "auto|portable|native", "native: a GPU's own arithmetic") \
    CHOICE(kv_type, "kv-type", "f16", "f16|q8_0", "q8_0: 0.56x the memory, results differ")        \
    TEXT(weights_cache, "weights-cache", "DIR", "keep repacked weights here for the next start")   \
    TEXT(kv_store, "kv-store", "DIR", "keep KV and slots here for the next start")                 \
    NUMBER(kv_store_bytes, "kv-store-bytes", 0, 0, 1ull << 40, "N",                                \
           "most bytes in that folder (0: 16 GiB)")                                                \
    NUMBER(kv_store_min, "kv-store-min", 1024, 0, LIMIT_CONTEXT_MAX, "TOKENS",                     \
           "shorter texts only if seen twice")                                                     \
    NUMBER(kv_store_writes, "kv-store-writes", 0, 0, 1ull << 46, "BYTES",                          \
           "most bytes written to it in a day (0: 32 GiB)")                                        \
    CHOICE(shadow, "shadow", "no", "no|yes", "draft with a 4-bit copy of the weights")             \
    NUMBER(context, "context", 0, 0, LIMIT_CONTEXT_MAX, "N",                                       \
           "context length of a slot (0: what memory holds)")                                      \
    TEXT(rope_scaling, "rope-scaling", "KIND",                                                     \
         "none, linear:N or yarn:N[:CONTEXT], not the file's")                                     \
    NUMBER(slots, "slots", 64, 1, 1024, "N", "sequences served at once, over all clients")         \
    NUMBER(client_slots, "client-slots", 8, 1, 64, "N", "slots that one client may hold")          \
    NUMBER(user_slots, "user-slots", 0, 0, 1024, "N",                                              \
           "slots of one user (0: half if others may connect)")                                    \
    NUMBER(clients, "clients", 256, 1, 1024, "N", "clients connected at once")                     \
    NUMBER(threads, "threads", 0, 0, 256, "N", "compute threads (0: one per core)")                \
    NUMBER(kv_bytes, "kv-bytes", 0, 0, 1ull << 46, "N",                                            \
           "KV cache memory (0: from what weights leave)")                                         \
    NUMBER(gpu_bytes, "gpu-bytes", 0, 0, 1ull << 46, "N",                                          \
           "most memory to take of a GPU (0: what it has free)")                                   \
    NUMBER(rows, "rows", 512, 8, 4096, "N", "max tokens per forward pass")                         \
    NUMBER(pass_ms, "pass-ms", 40, 1, 10000, "N", "max time of a pass while others wait")          \
    NUMBER(linger_us, "linger-us", 200, 0, 1000000, "N", "spin this long before sleeping")         \
    NUMBER(idle_stop, "idle-stop", 0, 0, 1 << 24, "S",                                             \
           "stop after S seconds without clients (0: never)")                                      \
    CHOICE(event_loop, "event-loop", "auto", "auto|io_uring|epoll", "how it waits")                \
    CHOICE(isa, "isa", "auto", "auto|ref|avx2|avxvnni|avx512", "CPU kernels, same bits")           \
    CHOICE(rescan, "rescan", "yes", "yes|no", "also rescan all rings every second")                \
    CHOICE(log_level, "log-level", "info", "error|warning|info|debug", "how much to log")          \
    HEARTHD_FAULT_OPTION(TEXT)                                                                     \
    FLAG(check, "check", "load the model, print a summary and exit")                               \
    FLAG(describe, "describe", "describe the model as JSON, without loading it")                   \
    FLAG(version, "version", "print the version and exit")                                         \
    FLAG(help, "help", "print this help and exit")

struct config {
#define CONFIG_TEXT(field, name, value, help) const char *field;
#define CONFIG_NUMBER(field, name, def, least, most, value, help) uint64_t field;
#define CONFIG_CHOICE(field, name, def, choices, help) uint32_t field;
#define CONFIG_FLAG(field, name, help) uint32_t field;
    HEARTHD_OPTIONS(CONFIG_TEXT, CONFIG_NUMBER, CONFIG_CHOICE, CONFIG_FLAG)
#undef CONFIG_TEXT
#undef CONFIG_NUMBER
#undef CONFIG_CHOICE
#undef CONFIG_FLAG
    struct config_text *texts; /* text values that came from the file */
};

/* Reads the command line and the file. Returns 0; or -EINVAL (usage), -ENOENT (no such file),
 * -ENOMEM, with one line in err. --help, --version skip the file. Call config_fini either way. */
int config_load(struct config *config, int argc, char **argv, char *err, size_t err_bytes);
void config_fini(struct config *config);

/* The machine's configuration file, where make install puts it: /etc/hearth/hearthd.conf for the
 * program PREFIX/bin/NAME where PREFIX is /usr or /usr/local, else
 * PREFIX/etc/hearth/hearthd.conf. */
void config_machine_path(const char *program, char *path, size_t path_bytes);

/* The name of the chosen value of a CHOICE option: config_choice("device", config.device). */
const char *config_choice(const char *name, uint32_t index, char *text, size_t text_bytes);

void config_help(FILE *out);

/* One line for each value that is not the default, for the start-up log: `slots = 8`. */
void config_dump(struct config *config, void (*line)(const char *text));

#endif
