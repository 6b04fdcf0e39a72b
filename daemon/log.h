/* log.h: lines on stderr. Any thread; a line is one write(2), so lines are never mixed. What is not
 * printable ASCII becomes '?'.
 *
 * Logging never waits: a line for which a pipe, a socket or a terminal has no room is dropped, and
 * the next one that finds room is preceded by one that says how many.
 *
 * If stderr goes to the journal (JOURNAL_STREAM, systemd.exec(5)) a line begins with its priority,
 * `<6>`, which the journal strips. Nothing is logged on the normal path of the step loop. */
#ifndef HEARTH_DAEMON_LOG_H
#define HEARTH_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Call once, before threads start. */
void log_init(enum log_level level);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Limits lines that a client can cause: LOG_BURST at once, then one in ten seconds. All zero at
 * first; one thread's. */
enum { LOG_BURST = 16 };
struct log_limit {
    uint64_t due_ns;
    uint64_t left_out;
};

/* True if such a line may be logged now. Before the first one after a gap it logs how many were
 * left out. */
bool log_allowed(struct log_limit *limit, uint64_t now_ns);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
