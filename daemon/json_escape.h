/* json_escape.h: texts inside of JSON strings. Pure; any thread. */
#ifndef HEARTH_DAEMON_JSON_ESCAPE_H
#define HEARTH_DAEMON_JSON_ESCAPE_H

#include <stddef.h>

/* Copies `from` with quotes, backslashes and control characters escaped, cut to fit, and returns
 * `to`. */
const char *json_escape(const char *from, char *to, size_t to_bytes);

#endif
