/* utf8: see utf8.h. */
#include "client/base/utf8.h"

int utf8_step(const char *s, size_t n, uint32_t *ret_code)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned first = u[0];
    if (first < 0x80) {
        *ret_code = first;
        return 1;
    }
    if (first < 0xc2 || first > 0xf4)
        return -1;
    int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t code = first & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n)
            return 0;
        /* The second byte's range is narrower where the first is at an edge. */
        unsigned low = 0x80, high = 0xbf;
        if (i == 1) {
            low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
            high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        }
        if (u[i] < low || u[i] > high)
            return -i;
        code = code << 6 | (u[i] & 0x3fu);
    }
    *ret_code = code;
    return length;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

size_t utf8_put(uint32_t code, char out[4])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[n] | code);
    return n;
}
