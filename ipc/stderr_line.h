/* stderr_line: a log line that never blocks: a server must not wait for whoever reads its stderr. Any
 * thread. */
#ifndef HEARTH_IPC_STDERR_LINE_H
#define HEARTH_IPC_STDERR_LINE_H

#include <stddef.h>

/* Writes the line, with its end, whole; or drops it where stderr has no room for it, and says before the next
 * one, after `prefix`, how many were dropped. Only another process that writes to the same pipe can make this
 * wait. */
void stderr_line(const char *prefix, const char *line, size_t bytes);

#endif
