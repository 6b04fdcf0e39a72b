/*
 * config: hearthd's options. One table makes the command line, the configuration file, --help, the
 * range checks and the start-up dump; names are the same everywhere (`--kv-bytes 2G`, `kv-bytes =
 * 2G`).
 *
 * Main thread, at start. Precedence: command line, then --config FILE, or the first that exists of
 * $XDG_CONFIG_HOME/hearth/hearthd.conf (~/.config without it) and the machine's, config_machine_path;
 * then defaults. Owns its strings until config_fini.
 */
#ifndef HEARTH_DAEMON_CONFIG_H
#define HEARTH_DAEMON_CONFIG_H

#include "ipc/layout.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef HEARTH_FAULTS
#define HEARTHD_FAULT_OPTION(TEXT)                                                                 \
    TEXT(fault, "fault", "NAME=RATE,...", "inject faults (fault.h; a test build)")
#else
#define HEARTHD_FAULT_OPTION(TEXT)
#endif

/* TEXT(field, name, metavar, help)
 *
 * NUMBER(field, name, default, min, max, metavar, help): accepts the suffixes K, M, G, T
 * (powers of 1024)
 *
 * CHOICE(field, name, default, "a|b|c", help): the field is the index
 *
 * FLAG(field, name, help): present or not; in a file, `name = yes` */
#define HEARTHD_OPTIONS(TEXT, NUMBER, CHOICE, FLAG)                                                \
    TEXT(model, "model", "FILE", "the GGUF model to serve (needed)")                               \
    TEXT(draft, "draft", "FILE", "a small GGUF model of the same vocabulary, to draft")            \
    TEXT(socket, "socket", "PATH", "listen here, not at the default path")                         \
    TEXT(config, "config", "FILE", "read this configuration file, and no other")                   \
    CHOICE(device, "device", 0, "auto|cpu|cuda", "where the model runs")                           \
    CHOICE(numerics, "numerics", 0, "portable|native", "canonical arithmetic; native: on a GPU")   \
    CHOICE(kv_type, "kv-type", 0, "f16|q8_0", "KV in q8_0: 0.56 x the memory, other answers")      \
    CHOICE(shadow, "shadow", 0, "no|yes", "a 4-bit copy of the weights that drafts")               \
    NUMBER(context, "context", 0, 0, LIMIT_CONTEXT_MAX, "N",                                       \
           "positions of a slot (0: the model's own)")                                             \
    NUMBER(slots, "slots", 64, 1, 1024, "N", "slots in all: sequences served at once")             \
    NUMBER(client_slots, "client-slots", 8, 1, 64, "N", "slots that one client may hold")          \
    NUMBER(user_slots, "user-slots", 0, 0, 1024, "N", "slots that one user may hold (0: all)")     \
    NUMBER(clients, "clients", 256, 1, 1024, "N", "clients connected at once")                     \
    NUMBER(threads, "threads", 0, 0, 256, "N", "compute threads (0: one a core)")                  \
    NUMBER(kv_bytes, "kv-bytes", 0, 0, 1ull << 46, "N",                                            \
           "memory for KV (0: what slots need, at most a share)")                                  \
    NUMBER(rows, "rows", 256, 8, 4096, "N", "most rows in one pass")                               \
    NUMBER(pass_ms, "pass-ms", 40, 1, 10000, "N", "most time of a pass when others wait")          \
    NUMBER(linger_us, "linger-us", 200, 0, 1000000, "N", "keep looking so long before sleeping")   \
    NUMBER(idle_stop, "idle-stop", 0, 0, 1 << 24, "S",                                             \
           "stop after S s without clients (0: never)")                                            \
    CHOICE(event_loop, "event-loop", 0, "auto|io_uring|epoll", "how it waits")                     \
    CHOICE(isa, "isa", 0, "auto|ref|avx2|avxvnni|avx512", "CPU kernels, same answers")             \
    CHOICE(rescan, "rescan", 0, "yes|no", "look at all rings once a second, too")                  \
    CHOICE(log_level, "log-level", 2, "error|warning|info|debug", "what to say on stderr")         \
    HEARTHD_FAULT_OPTION(TEXT)                                                                     \
    FLAG(check, "check", "start but for listening, say what it is, and exit")                      \
    FLAG(version, "version", "print the version and exit")                                         \
    FLAG(help, "help", "print this and exit")

struct config {
#define CONFIG_TEXT(field, name, metavar, help) char *field;
#define CONFIG_NUMBER(field, name, def, min, max, metavar, help) uint64_t field;
#define CONFIG_CHOICE(field, name, def, choices, help) uint32_t field;
#define CONFIG_FLAG(field, name, help) uint32_t field;
    HEARTHD_OPTIONS(CONFIG_TEXT, CONFIG_NUMBER, CONFIG_CHOICE, CONFIG_FLAG)
#undef CONFIG_TEXT
#undef CONFIG_NUMBER
#undef CONFIG_CHOICE
#undef CONFIG_FLAG
};

/* Reads the command line and the file. Returns 0; or -EINVAL (usage), -ENOENT (no such file),
 * -ENOMEM, with one line in err. --help, --version skip the file. Call config_fini in any case. */
int config_load(struct config *config, int argc, char **argv, char *err, size_t err_bytes);
void config_fini(struct config *config);

/* The machine's configuration file, where make install puts it: /etc/hearth/hearthd.conf for the
 * program PREFIX/bin/NAME where PREFIX is /usr or /usr/local, else PREFIX/etc/hearth/hearthd.conf. */
void config_machine_path(const char *program, char *path, size_t path_bytes);

/* The name of the chosen value of a CHOICE option: config_choice("device", config.device). */
const char *config_choice(const char *name, uint32_t index, char *text, size_t text_bytes);

void config_help(FILE *out);

/* One line a value that differs from its default, for the start-up log: `slots = 8`. */
void config_dump(const struct config *config, void (*line)(const char *text));

#endif
