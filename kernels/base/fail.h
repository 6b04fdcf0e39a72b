/* fail.h: fills the caller's error line. A library of hearth prints nothing: it returns -errno and
 * leaves one line of text, saying what is wrong and what to do, in a buffer of the caller. Called
 * from any thread; owns nothing; leaves errno unchanged. */
#ifndef HEARTH_KERNELS_BASE_FAIL_H
#define HEARTH_KERNELS_BASE_FAIL_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Writes the formatted line to err[err_bytes] (nothing when err_bytes is 0) and returns `code`.
 * Bytes that are not printable ASCII become '?': names in the line come from files, and the line
 * goes to terminals and logs. */
__attribute__((format(printf, 4, 5))) static inline int fail(char *err, size_t err_bytes, int code,
                                                             const char *format, ...)
{
    int saved_errno = errno;
    va_list args;
    va_start(args, format);
    if (err_bytes > 0)
        vsnprintf(err, err_bytes, format, args);
    va_end(args);
    for (size_t i = 0; i < err_bytes && err[i] != 0; i++)
        if (err[i] < 0x20 || err[i] > 0x7e)
            err[i] = '?';
    errno = saved_errno;
    return code;
}

#endif
