/* fail.h: one line about what went wrong, for the caller's buffer. Private to ipc/.
 *
 * Any thread; owns nothing; leaves errno alone. Prints nothing: whoever has a terminal or a log
 * does.
 */
#ifndef HEARTH_IPC_FAIL_H
#define HEARTH_IPC_FAIL_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the line to err[err_bytes] (nothing when that is 0) and returns `code`. */
__attribute__((format(printf, 4, 5))) static inline int ipc_fail(char *err, size_t err_bytes,
                                                                 int code, const char *format, ...)
{
    int saved = errno;
    va_list args;

    va_start(args, format);
    if (err_bytes > 0)
        vsnprintf(err, err_bytes, format, args);
    va_end(args);
    errno = saved;
    return code;
}

#endif
