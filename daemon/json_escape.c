#include "daemon/json_escape.h"

#include <stdio.h>

const char *json_escape(const char *from, char *to, size_t to_bytes)
{
    size_t n = 0;
    for (; *from && n + sizeof("\\u0000") <= to_bytes; from++) {
        unsigned char byte = (unsigned char)*from;
        if (byte < 0x20) {
            n += (size_t)snprintf(to + n, to_bytes - n, "\\u%04x", byte);
            continue;
        }
        if (byte == '"' || byte == '\\')
            to[n++] = '\\';
        to[n++] = *from;
    }
    to[n] = 0;
    return to;
}
