/* log.h: lines on stderr. Any thread; a line is one write(2), so lines are never mixed.
 *
 * If stderr goes to the journal (JOURNAL_STREAM, systemd.exec(5)) a line begins with its priority,
 * `<6>`, which the journal strips. Nothing is logged on the normal path of the step loop. */
#ifndef HEARTH_DAEMON_LOG_H
#define HEARTH_DAEMON_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Call once, before threads start. */
void log_init(enum log_level level);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
