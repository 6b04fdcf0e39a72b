/* json_scan: see json_scan.h. */
#include "client/events/json_scan.h"

#include <stdbool.h>
#include <string.h>

enum state {
    BEFORE_VALUE,
    FIRST_ITEM, /* of a list: or its end */
    FIRST_KEY,  /* of an object: or its end */
    BEFORE_KEY,
    BEFORE_COLON,
    AFTER_VALUE,
    IN_STRING,
    IN_KEY,
    ESCAPE, /* after a backslash; `left` is the state to go back to */
    KEY_ESCAPE,
    HEX, /* `left` digits */
    KEY_HEX,
    WORD,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool in_list(const struct json_scan *s)
{
    unsigned at = s->depth - 1u;
    return (s->lists[at / 64] >> at % 64 & 1) != 0;
}

static enum json_scan_result end_value(struct json_scan *s)
{
    s->state = AFTER_VALUE;
    return s->depth ? JSON_GOES_ON : JSON_ENDS;
}

static enum json_scan_result go(struct json_scan *s, enum state state)
{
    s->state = (uint8_t)state;
    return JSON_GOES_ON;
}

static enum json_scan_result open_level(struct json_scan *s, bool list)
{
    if (s->depth == JSON_SCAN_DEPTH)
        return JSON_BROKEN;
    uint64_t bit = 1ull << s->depth % 64, *word = &s->lists[s->depth / 64];
    *word = list ? *word | bit : *word & ~bit;
    s->depth++;
    return go(s, list ? FIRST_ITEM : FIRST_KEY);
}

static enum json_scan_result close_level(struct json_scan *s, bool list)
{
    if (in_list(s) != list)
        return JSON_BROKEN;
    s->depth--;
    return end_value(s);
}

static enum json_scan_result begin_value(struct json_scan *s, char c)
{
    static const char *const words[] = {"true", "false", "null"};
    if (is_space(c))
        return JSON_GOES_ON;
    if (c == '{' || c == '[')
        return open_level(s, c == '[');
    if (c == '"')
        return go(s, IN_STRING);
    if (c == '-')
        return go(s, MINUS);
    if (is_digit(c))
        return go(s, c == '0' ? ZERO : DIGITS);
    for (int i = 0; i < 3; i++)
        if (c == words[i][0]) {
            s->word = words[i] + 1;
            return go(s, WORD);
        }
    return JSON_BROKEN;
}

static enum json_scan_result after_value(struct json_scan *s, char c)
{
    if (is_space(c))
        return JSON_GOES_ON;
    if (c == ',')
        return go(s, in_list(s) ? BEFORE_VALUE : BEFORE_KEY);
    return c == ']' || c == '}' ? close_level(s, c == ']') : JSON_BROKEN;
}

/* A number ends with the byte after it, which the level around it sees. */
static enum json_scan_result end_number(struct json_scan *s, char c)
{
    s->state = AFTER_VALUE;
    return s->depth ? after_value(s, c) : JSON_ENDED_BEFORE;
}

static enum json_scan_result number(struct json_scan *s, char c)
{
    bool digit = is_digit(c), exponent = c == 'e' || c == 'E';
    switch (s->state) {
    case MINUS:
        return digit ? go(s, c == '0' ? ZERO : DIGITS) : JSON_BROKEN;
    case ZERO:
    case DIGITS:
        if (digit)
            return s->state == DIGITS ? JSON_GOES_ON : JSON_BROKEN;
        return c == '.' ? go(s, POINT) : exponent ? go(s, EXPONENT) : end_number(s, c);
    case POINT:
        return digit ? go(s, FRACTION) : JSON_BROKEN;
    case FRACTION:
        return digit ? JSON_GOES_ON : exponent ? go(s, EXPONENT) : end_number(s, c);
    case EXPONENT:
        if (c == '+' || c == '-')
            return go(s, EXPONENT_SIGN);
        return digit ? go(s, EXPONENT_DIGITS) : JSON_BROKEN;
    case EXPONENT_SIGN:
        return digit ? go(s, EXPONENT_DIGITS) : JSON_BROKEN;
    default:
        return digit ? JSON_GOES_ON : end_number(s, c);
    }
}

static enum json_scan_result string(struct json_scan *s, char c)
{
    bool key = s->state == IN_KEY;
    if (c == '\\')
        return go(s, key ? KEY_ESCAPE : ESCAPE);
    if (c == '"')
        return key ? go(s, BEFORE_COLON) : end_value(s);
    return (unsigned char)c < 0x20 ? JSON_BROKEN : JSON_GOES_ON;
}

static enum json_scan_result escape(struct json_scan *s, char c)
{
    bool key = s->state == KEY_ESCAPE;
    if (c == 'u') {
        s->left = 4;
        return go(s, key ? KEY_HEX : HEX);
    }
    return c && strchr("\"\\/bfnrt", c) ? go(s, key ? IN_KEY : IN_STRING) : JSON_BROKEN;
}

static enum json_scan_result hex(struct json_scan *s, char c)
{
    bool is_hex = is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
    if (!is_hex)
        return JSON_BROKEN;
    return --s->left ? JSON_GOES_ON : go(s, s->state == KEY_HEX ? IN_KEY : IN_STRING);
}

enum json_scan_result json_scan_byte(struct json_scan *s, char c)
{
    switch (s->state) {
    case BEFORE_VALUE:
        return begin_value(s, c);
    case FIRST_ITEM:
        return c == ']' ? close_level(s, true) : is_space(c) ? JSON_GOES_ON : begin_value(s, c);
    case FIRST_KEY:
    case BEFORE_KEY:
        if (is_space(c))
            return JSON_GOES_ON;
        if (c == '}' && s->state == FIRST_KEY)
            return close_level(s, false);
        return c == '"' ? go(s, IN_KEY) : JSON_BROKEN;
    case BEFORE_COLON:
        return is_space(c) ? JSON_GOES_ON : c == ':' ? go(s, BEFORE_VALUE) : JSON_BROKEN;
    case AFTER_VALUE:
        return after_value(s, c);
    case IN_STRING:
    case IN_KEY:
        return string(s, c);
    case ESCAPE:
    case KEY_ESCAPE:
        return escape(s, c);
    case HEX:
    case KEY_HEX:
        return hex(s, c);
    case WORD:
        if (c != *s->word)
            return JSON_BROKEN;
        return *++s->word ? JSON_GOES_ON : end_value(s);
    default:
        return number(s, c);
    }
}
