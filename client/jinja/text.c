/* text: see text.h. */
#include "client/jinja/text.h"

#include "client/base/unicode.h"
#include "client/base/utf8.h"

static bool in(uint32_t code, uint32_t first, uint32_t last)
{
    return code >= first && code <= last;
}

/* Ranges where each upper-case letter stands before its lower-case one, at an even (odd) code. */
static bool pairs_even(uint32_t code)
{
    return in(code, 0x100, 0x12f) || in(code, 0x132, 0x137) || in(code, 0x14a, 0x177) ||
           in(code, 0x460, 0x481) || in(code, 0x48a, 0x4bf) || in(code, 0x4d0, 0x52f) ||
           in(code, 0x1e00, 0x1e95) || in(code, 0x1ea0, 0x1eff);
}

static bool pairs_odd(uint32_t code)
{
    return in(code, 0x139, 0x148) || in(code, 0x179, 0x17e);
}

uint32_t text_upper(uint32_t code)
{
    if (in(code, 'a', 'z') || (in(code, 0xe0, 0xfe) && code != 0xf7) || in(code, 0x3b1, 0x3c1) ||
        in(code, 0x3c3, 0x3cb) || in(code, 0x430, 0x44f))
        return code - 32;
    if (in(code, 0x450, 0x45f))
        return code - 80;
    if (code == 0xff)
        return 0x178;
    if (pairs_even(code))
        return code & ~1u;
    return pairs_odd(code) && code % 2 == 0 ? code - 1 : code;
}

uint32_t text_lower(uint32_t code)
{
    if (in(code, 'A', 'Z') || (in(code, 0xc0, 0xde) && code != 0xd7) || in(code, 0x391, 0x3a1) ||
        in(code, 0x3a3, 0x3ab) || in(code, 0x410, 0x42f))
        return code + 32;
    if (in(code, 0x400, 0x40f))
        return code + 80;
    if (code == 0x178)
        return 0xff;
    if (pairs_even(code))
        return code | 1;
    return pairs_odd(code) && code % 2 == 1 ? code + 1 : code;
}

bool text_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || in(code, '\t', '\r') || in(code, 0x1c, 0x1f);
    return unicode_class_of(code) == UNICODE_SPACE;
}

bool text_is_letter(uint32_t code)
{
    return in(unicode_class_of(code), UNICODE_LU, UNICODE_LO);
}

uint32_t text_code(const char *text, size_t bytes, size_t *ret_bytes)
{
    uint32_t code = (unsigned char)*text;
    *ret_bytes = 1;
    if (code < 0x80)
        return code;
    int step = utf8_step(text, bytes, &code);
    if (step <= 0)
        return UTF8_REPLACEMENT;
    *ret_bytes = (size_t)step;
    return code;
}
