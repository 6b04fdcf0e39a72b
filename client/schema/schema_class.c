/* schema_class: the characters of a pattern: classes in brackets, escapes, and how each stands in
 * a JSON string. */
#include "client/schema/schema_class.h"

#include "client/base/utf8.h"

#include <string.h>

void pattern_fail(struct pattern *p, const char *what)
{
    schema_fail(p->c, "the pattern '%.100s' at byte %zu: %s", p->begin, (size_t)(p->at - p->begin),
                what);
}

enum { RANGES_MAX = 256, RANGES_SHORT = 24, LAST_POINT = 0x10ffff };

struct char_class {
    uint32_t from[RANGES_MAX], to[RANGES_MAX];
    uint32_t n;
    int is_negated;
};

static const char specials[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";

/* ---- characters ------------------------------------------------------------------------------ */

static void add_utf8(struct pattern *p, struct buffer *t, uint32_t point)
{
    char bytes[4];
    schema_escape(p->c, t, bytes, utf8_put(point, bytes));
}

/* A control character as JSON writes it, for the inside of a GBNF literal. */
static void add_control(struct pattern *p, struct buffer *t, uint32_t point)
{
    const char *special = point ? strchr(specials, (int)point) : NULL;
    if (special)
        schema_format(p->c, t, "\\\\%s%c", letters[special - specials] == '\\' ? "\\" : "",
                      letters[special - specials]);
    else
        schema_format(p->c, t, "\\\\u%04X", point);
}

static uint32_t read_hex(struct pattern *p, int digits)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        char d = p->at < p->end ? *p->at : 0;
        int v = d >= '0' && d <= '9'                 ? d - '0'
                : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10
                                                     : -1;
        if (v < 0) {
            pattern_fail(p, "\\x takes 2 and \\u takes 4 hexadecimal digits");
            return 0;
        }
        value = value << 4 | (uint32_t)v;
        p->at++;
    }
    return value;
}

/* The character of \uHHHH, two of which may be one. */
static uint32_t read_unicode(struct pattern *p)
{
    uint32_t high = read_hex(p, 4);
    if (high < 0xd800 || high > 0xdfff)
        return high;
    uint32_t low = 0;
    if (p->end - p->at > 2 && p->at[0] == '\\' && p->at[1] == 'u') {
        p->at += 2;
        low = read_hex(p, 4);
    }
    if (high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        pattern_fail(p, "half of a surrogate pair: write \\uD83D\\uDE00, or the character itself");
    return 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
}

/* The character that an escape means; p->at is after the backslash, at `letter`. */
uint32_t pattern_escape(struct pattern *p)
{
    if (p->at == p->end) {
        pattern_fail(p, "a backslash at the end: write \\\\ for one");
        return 0;
    }
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
    char letter = *p->at;
    const char *found = strchr(from, letter);
    if (letter == 'x' || letter == 'u') {
        p->at++;
        return letter == 'x' ? read_hex(p, 2) : read_unicode(p);
    }
    if (found && letter) {
        p->at++;
        return (unsigned char)to[found - from];
    }
    int is_word =
        (letter >= '0' && letter <= '9') || ((letter | 32) >= 'a' && (letter | 32) <= 'z');
    if (is_word)
        pattern_fail(
            p, "this escape is not supported: no back-references, word boundaries or properties");
    return schema_point(&p->at);
}

/* ---- classes --------------------------------------------------------------------------------- */

static void add_to_class(struct pattern *p, struct char_class *k, uint32_t from, uint32_t to)
{
    if (from > to)
        pattern_fail(p, "a range in [ ] that begins above its end");
    else if (k->n == RANGES_MAX)
        pattern_fail(p, "too many ranges in one [ ]");
    else {
        k->from[k->n] = from;
        k->to[k->n++] = to;
    }
}

/* Adds what \d, \w, \s mean, or with a capital letter all others. Returns 0 for any other letter.
 * Engines differ in which blanks beyond ASCII \s takes: so \S excludes what any of them takes. */
static int add_shorthand(struct pattern *p, struct char_class *k, char letter)
{
    static const struct {
        char letter;
        const uint32_t ranges[RANGES_SHORT]; /* ascending, ended by 0 */
    } all[] = {
        {'d', {'0', '9'}},
        {'D', {1, '0' - 1, '9' + 1, LAST_POINT}},
        {'w', {'a', 'z', 'A', 'Z', '0', '9', '_', '_'}},
        {'W', {1, '0' - 1, '9' + 1, 'A' - 1, 'Z' + 1, '_' - 1, '`', '`', 'z' + 1, LAST_POINT}},
        {'s', {' ', ' ', '\t', '\r'}},
        {'S', {1,          '\t' - 1,   '\r' + 1,   0x1c - 1,   ' ' + 1,    0x85 - 1,
               0x85 + 1,   0xa0 - 1,   0xa0 + 1,   0x1680 - 1, 0x1680 + 1, 0x2000 - 1,
               0x200a + 1, 0x2028 - 1, 0x2029 + 1, 0x202f - 1, 0x202f + 1, 0x205f - 1,
               0x205f + 1, 0x3000 - 1, 0x3000 + 1, 0xfeff - 1, 0xfeff + 1, LAST_POINT}},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].letter != letter)
            continue;
        for (const uint32_t *r = all[i].ranges; r < all[i].ranges + RANGES_SHORT && *r; r += 2)
            add_to_class(p, k, r[0], r[1]);
        return 1;
    }
    return 0;
}

static int has(const struct char_class *k, uint32_t point)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (point >= k->from[i] && point <= k->to[i])
            return 1;
    return 0;
}

/* A character inside [ ]; a dash stands for itself only at the end, ^ only after the beginning. */
static void add_class_point(struct pattern *p, struct buffer *t, uint32_t point, int may_be_caret)
{
    if (point == ']' || point == '[')
        schema_format(p->c, t, "\\%c", (int)point);
    else if (point == '-' || (point == '^' && !may_be_caret))
        schema_format(p->c, t, "\\x%02X", point);
    else
        add_utf8(p, t, point);
}

static void add_class_range(struct pattern *p, struct buffer *t, uint32_t from, uint32_t to,
                            int *has_dash)
{
    if (from == '-' && to == '-') {
        *has_dash = 1;
        return;
    }
    add_class_point(p, t, from, t->bytes > 0);
    if (from == to)
        return;
    schema_add(p->c, t, "-");
    add_class_point(p, t, to, 1);
}

/* The characters of a class that may stand in a JSON string as they are, without [ ]. */
static void add_plain_ranges(struct pattern *p, struct buffer *t, const struct char_class *k)
{
    static const uint32_t cuts[] = {' ', '"', '\\',
                                    LAST_POINT + 1}; /* first character after each */
    int has_dash = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t from = k->from[i];
        for (int cut = 0; cut < 4 && from <= k->to[i]; cut++) {
            uint32_t last = cuts[cut] - 1 < k->to[i] ? cuts[cut] - 1 : k->to[i];
            if (from <= last && cut)
                add_class_range(p, t, from, last, &has_dash);
            uint32_t next = cut ? cuts[cut] + 1 : cuts[cut];
            from = from < next ? next : from;
        }
    }
    schema_add(p->c, t, has_dash ? "-" : "");
}

/* Adds escapes for the characters that may not: ` | [\\] ["\\bfnrt]`, and of other control
 * characters. */
static void add_escapes(struct pattern *p, struct buffer *t, const struct char_class *k)
{
    struct buffer found = {0};
    for (const char *s = specials; *s; s++)
        if (has(k, (unsigned char)*s) != k->is_negated)
            schema_escape(p->c, &found, letters + (s - specials), 1);
    if (found.bytes)
        schema_format(p->c, t, "%s[\\\\] [%s]", t->bytes ? " | " : "", schema_get(&found));
    buffer_fini(&found);
    for (uint32_t point = 1; point < ' ' && !k->is_negated; point++)
        if (has(k, point) && !has(k, LAST_POINT) && !strchr(specials, (int)point)) {
            schema_add(p->c, t, t->bytes ? " | \"" : "\"");
            add_control(p, t, point);
            schema_add(p->c, t, "\"");
        }
}

static void write_class(struct pattern *p, struct buffer *t, const struct char_class *k)
{
    struct buffer inside = {0}, whole = {0};
    int has_dash = 0;
    if (k->is_negated) {
        for (uint32_t i = 0; i < k->n; i++)
            if (k->from[i] > ' ' - 1)
                add_class_range(p, &inside, k->from[i], k->to[i], &has_dash);
            else if (k->to[i] > ' ' - 1)
                add_class_range(p, &inside, ' ', k->to[i], &has_dash);
        schema_add(p->c, &whole, "[^");
        schema_add(p->c, &whole, schema_get(&inside));
        schema_add(p->c, &whole, "\"\\\\\\x7F\\x00-\\x1F");
        schema_add(p->c, &whole, has_dash ? "-]" : "]");
    } else {
        add_plain_ranges(p, &inside, k);
        if (inside.bytes) {
            schema_add(p->c, &whole, "[");
            schema_add(p->c, &whole, schema_get(&inside));
            schema_add(p->c, &whole, "]");
        }
    }
    size_t plain = whole.bytes;
    add_escapes(p, &whole, k);
    schema_add(p->c, t, whole.bytes > plain ? "(" : "");
    schema_add(p->c, t, schema_get(&whole));
    schema_add(p->c, t, whole.bytes > plain ? ")" : "");
    buffer_fini(&inside);
    buffer_fini(&whole);
}

/* One character of a class; NONE where it was a shorthand such as \d. */
#define NONE UINT32_MAX
static uint32_t read_class_point(struct pattern *p, struct char_class *k)
{
    if (*p->at != '\\')
        return schema_point(&p->at);
    p->at++;
    if (p->at < p->end && add_shorthand(p, k, *p->at)) {
        p->at++;
        return NONE;
    }
    if (p->at < p->end && *p->at == 'b') {
        p->at++;
        return '\b';
    }
    return pattern_escape(p);
}

void pattern_class(struct pattern *p, struct buffer *t)
{
    struct char_class k = {.n = 0};
    p->at++;
    if (p->at < p->end && *p->at == '^') {
        k.is_negated = 1;
        p->at++;
    }
    while (p->at < p->end && *p->at != ']' && !p->c->rc) {
        uint32_t from = read_class_point(p, &k), to = from;
        if (from != NONE && p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            to = read_class_point(p, &k);
            if (to == NONE) { /* [a-\d]: the dash is one */
                add_to_class(p, &k, '-', '-');
                to = from;
            }
        }
        if (from != NONE)
            add_to_class(p, &k, from, to);
    }
    if (p->at == p->end)
        pattern_fail(p, "[ without ]");
    else if (!k.n)
        pattern_fail(p, "an empty [ ]");
    else
        p->at++;
    if (!p->c->rc)
        write_class(p, t, &k);
}

int pattern_shorthand(struct pattern *p, struct buffer *t, char letter)
{
    struct char_class k = {.n = 0};
    if (!add_shorthand(p, &k, letter))
        return 0;
    write_class(p, t, &k);
    return 1;
}

void pattern_character(struct pattern *p, struct buffer *t, uint32_t point)
{
    if (point < ' ' || point == '\\')
        add_control(p, t, point);
    else
        add_utf8(p, t, point);
}
