/* schema_integer: integers between two bounds, as alternatives over their digits.
 *
 *   15 to 300    ([1] ([5-9]) | [2-9] [0-9])  |  ([1-2] [0-9]{2} | [3] "00")
 *   25 and up    [1] [0-9]{2,15} | [2] ([0-4] [0-9]{1,14} | [5-9] [0-9]{0,14}) | [3-9] [0-9]{1,15}
 *
 * An integer has at most SCHEMA_DIGITS digits; a bound beyond that is none. */
#include "client/schema/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST INT64_C(9999999999999999) /* of SCHEMA_DIGITS digits */

static void add_range(struct schema *c, struct buffer *t, char from, char to)
{
    if (from == to)
        schema_format(c, t, "[%c]", from);
    else
        schema_format(c, t, "[%c-%c]", from, to);
}

/* Adds [0-9], `least` to `most` times. most > 0 */
static void add_digits(struct schema *c, struct buffer *t, size_t least, size_t most)
{
    schema_add(c, t, "[0-9]");
    if (least != most)
        schema_format(c, t, "{%zu,%zu}", least, most);
    else if (least != 1)
        schema_format(c, t, "{%zu}", least);
}

static int is_all(const char *digits, char digit)
{
    while (*digits == digit)
        digits++;
    return *digits == 0;
}

static void fill(char *digits, char digit, size_t n)
{
    memset(digits, digit, n);
    digits[n] = 0;
}

/* Adds what lies between two numbers of the same length. */
static void add_same_length(struct schema *c, struct buffer *t, const char *from, const char *to)
{
    size_t i = 0;
    while (from[i] && from[i] == to[i])
        i++;
    if (i)
        schema_format(c, t, "\"%.*s\"%s", (int)i, from, from[i] ? " " : "");
    if (!from[i])
        return;
    from += i;
    to += i;
    size_t rest = strlen(from) - 1;
    if (!rest) {
        add_range(c, t, *from, *to);
        return;
    }
    char zeros[SCHEMA_DIGITS + 1], nines[SCHEMA_DIGITS + 1];
    int reaches_to = 0;
    fill(zeros, '0', rest);
    fill(nines, '9', rest);
    schema_add(c, t, "(");
    if (is_all(from + 1, '0')) {
        add_range(c, t, *from, (char)(*to - 1));
        schema_add(c, t, " ");
        add_digits(c, t, rest, rest);
    } else {
        schema_format(c, t, "[%c] (", *from);
        add_same_length(c, t, from + 1, nines);
        schema_add(c, t, ")");
        if (*from + 1 < *to) {
            reaches_to = is_all(to + 1, '9');
            schema_add(c, t, " | ");
            add_range(c, t, (char)(*from + 1), (char)(*to - !reaches_to));
            schema_add(c, t, " ");
            add_digits(c, t, rest, rest);
        }
    }
    if (!reaches_to) {
        schema_format(c, t, " | [%c] ", *to);
        add_same_length(c, t, zeros, to + 1);
    }
    schema_add(c, t, ")");
}

/* Adds the numbers from >= 0 to `to`. */
static void add_between(struct schema *c, struct buffer *t, int64_t from, int64_t to)
{
    char first[24], last[24];
    snprintf(first, sizeof(first), "%" PRId64, from);
    snprintf(last, sizeof(last), "%" PRId64, to);
    size_t longest = strlen(last);
    for (size_t n = strlen(first); n < longest; n++) {
        char nines[24];
        fill(nines, '9', n);
        add_same_length(c, t, first, nines);
        schema_add(c, t, " | ");
        fill(first, '0', n + 1);
        first[0] = '1';
    }
    add_same_length(c, t, first, last);
}

/* Adds the numbers of at most `left` digits that are at least `from`. lead: the lowest digit that a
 * longer one may begin with. */
static void add_from(struct schema *c, struct buffer *t, const char *from, size_t left, char lead)
{
    size_t n = strlen(from);
    if (is_all(from, '0')) {
        add_digits(c, t, n, left);
        return;
    }
    if (*from > lead && left > n) {
        add_range(c, t, lead, (char)(*from - 1));
        schema_add(c, t, " ");
        add_digits(c, t, n, left - 1);
        schema_add(c, t, " | ");
    }
    if (n == 1) {
        add_range(c, t, *from, '9');
        if (left > 1) {
            schema_add(c, t, " ");
            add_digits(c, t, 0, left - 1);
        }
        return;
    }
    schema_format(c, t, "[%c] (", *from);
    add_from(c, t, from + 1, left - 1, '0');
    schema_add(c, t, ")");
    if (*from < '9') {
        schema_add(c, t, " | ");
        add_range(c, t, (char)(*from + 1), '9');
        schema_add(c, t, " ");
        add_digits(c, t, n - 1, left - 1);
    }
}

static void add_up(struct schema *c, struct buffer *t, int64_t from)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, from);
    if (from)
        add_from(c, t, digits, SCHEMA_DIGITS, '1');
    else
        schema_add(c, t, "[0] | [1-9] [0-9]{0,15}");
}

static void add_down(struct schema *c, struct buffer *t, int64_t to)
{
    if (to >= 0) {
        schema_add(c, t, "\"-\" [1-9] [0-9]{0,15} | ");
        add_between(c, t, 0, to);
        return;
    }
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, -to);
    schema_add(c, t, "\"-\" (");
    /* For one digit this is llama.cpp's text, which its vectors pin: a zero may lead there. */
    add_from(c, t, digits, SCHEMA_DIGITS, digits[1] ? '1' : '0');
    schema_add(c, t, ")");
}

/* A bound as an integer in +-(MOST + 1), rounded up if `up`, else down; beside: the bound itself is
 * excluded. */
static int64_t whole(const json_t *value, int up, int beside)
{
    double number = json_number_value(value);
    if (number > (double)MOST)
        return MOST + 1;
    if (number < -(double)MOST)
        return -MOST - 1;
    if (json_is_integer(value) || number == floor(number))
        return (json_is_integer(value) ? json_integer_value(value) : (int64_t)number) +
               (beside ? up ? 1 : -1 : 0);
    return (int64_t)(up ? ceil(number) : floor(number));
}

void schema_integer(struct schema *c, struct buffer *t, const json_t *schema)
{
    const json_t *least = json_object_get(schema, "minimum");
    const json_t *most = json_object_get(schema, "maximum");
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    const json_t *below = json_object_get(schema, "exclusiveMaximum");
    int64_t from = least ? whole(least, 1, json_is_true(above)) : -MOST - 1;
    int64_t to = most ? whole(most, 0, json_is_true(below)) : MOST + 1;
    if (json_is_number(above) && whole(above, 1, 1) > from)
        from = whole(above, 1, 1);
    if (json_is_number(below) && whole(below, 0, 1) < to)
        to = whole(below, 0, 1);
    int has_from = from > -MOST, has_to = to < MOST;
    if (from > to || from > MOST || to < -MOST)
        schema_fail(c, "no integer of at most %d digits lies between the bounds", SCHEMA_DIGITS);
    else if (!has_from && !has_to)
        schema_format(c, t, "\"-\"? %s", schema_builtin(c, "integral-part", NULL));
    else if (!has_from)
        add_down(c, t, to);
    else if (!has_to && from >= 0)
        add_up(c, t, from);
    else if (from >= 0)
        add_between(c, t, from, to);
    else {
        schema_add(c, t, "\"-\" (");
        add_between(c, t, to < 0 ? -to : 0, -from);
        schema_add(c, t, to < 0 ? ")" : ") | ");
        if (!has_to)
            add_up(c, t, 0);
        else if (to >= 0)
            add_between(c, t, 0, to);
    }
}
