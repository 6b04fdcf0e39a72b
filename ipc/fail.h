/* fail.h: one line about what went wrong, written to the caller's buffer. Private to ipc/.
 *
 * Any thread; owns nothing; leaves errno unchanged. Prints nothing: that is left to the programs.
 */
#ifndef HEARTH_IPC_FAIL_H
#define HEARTH_IPC_FAIL_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the line to err[err_bytes]; nothing when that is 0. */
__attribute__((format(printf, 3, 4))) static inline void ipc_line(char *err, size_t err_bytes,
                                                                  const char *format, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, format);
    if (err_bytes > 0)
        vsnprintf(err, err_bytes, format, args);
    va_end(args);
    errno = saved;
}

/* The same as an expression with the value `code`. A macro, so that a static analyser sees the
 * value. */
#define ipc_fail(err, err_bytes, code, ...) (ipc_line(err, err_bytes, __VA_ARGS__), (code))

#endif
