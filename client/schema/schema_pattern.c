/* schema_pattern: regular expressions of "pattern" as GBNF.
 *
 * Understood: texts, . [classes], (groups), (?:groups), alternation, * + ? {m} {m,} {m,n}, the
 * escapes \d \D \w \W \s \S \t \n \r \f \v \0 \xHH \uHHHH and those of punctuation; ^ at the
 * beginning and $ at the end of the whole pattern. Everything else is refused by name: a grammar
 * cannot express lookaround, backreferences or word boundaries.
 *
 * What is matched stands in a JSON string, so that classes leave out the quote, the backslash and
 * control characters, and take their escapes instead. Only a bare dot and a quote in a text are
 * llama.cpp's (client/README.md, "Schemas"). */
#include "client/schema/schema_class.h"

#include <string.h>

struct span { /* characters that match, SCHEMA_NO_MAX: any number */
    uint32_t least, most;
};

struct atom {
    struct buffer text; /* of a character: escaped, no quotes around */
    struct span span;
    int is_character, is_dot;
};

static uint32_t plus(uint32_t a, uint32_t b)
{
    return a > SCHEMA_NO_MAX - b ? SCHEMA_NO_MAX : a + b;
}

static uint32_t times(uint32_t a, uint32_t b)
{
    uint64_t product = (uint64_t)a * b;
    return a == 0 || b == 0 ? 0 : product > SCHEMA_NO_MAX ? SCHEMA_NO_MAX : (uint32_t)product;
}

/* ---- atoms ----------------------------------------------------------------------------------- */

static struct span read_choice(struct pattern *p, struct buffer *t);

static void read_group(struct pattern *p, struct atom *a)
{
    p->at++;
    if (p->end - p->at > 1 && *p->at == '?') {
        const char *name = p->at + 1;
        name += *name == 'P';
        const char *close =
            *name == '<' && name[1] != '=' && name[1] != '!' ? strchr(name, '>') : NULL;
        if (p->at[1] == ':')
            p->at += 2;
        else if (close && close < p->end)
            p->at = close + 1;
        else
            pattern_fail(p, "groups that look ahead, look behind or set flags are not supported");
    }
    if (p->nesting++ == SCHEMA_NESTING_MAX)
        pattern_fail(p, "too many nested groups");
    schema_add(p->c, &a->text, "(");
    if (!p->c->rc)
        a->span = read_choice(p, &a->text);
    schema_add(p->c, &a->text, ")");
    p->nesting--;
    if (p->at == p->end)
        pattern_fail(p, "( without )");
    else
        p->at++;
}

static void read_character(struct pattern *p, struct atom *a, uint32_t point)
{
    a->is_character = 1;
    pattern_character(p, &a->text, point);
}

static void read_atom(struct pattern *p, struct atom *a)
{
    a->span = (struct span){1, 1};
    switch (*p->at) {
    case '.':
        a->is_dot = 1;
        p->at++;
        return;
    case '(':
        read_group(p, a);
        return;
    case '[':
        pattern_class(p, &a->text);
        return;
    case '^':
    case '$':
        pattern_fail(p, "^ is supported only at the beginning of the pattern, $ only at its end");
        return;
    case '*':
    case '+':
    case '?':
    case '{':
        pattern_fail(
            p, "nothing before it to repeat: write \\ before it to match the character itself");
        return;
    case '\\':
        p->at++;
        if (p->at < p->end && pattern_shorthand(p, &a->text, *p->at))
            p->at++;
        else
            read_character(p, a, pattern_escape(p));
        return;
    default:
        read_character(p, a, schema_point(&p->at));
    }
}

/* ---- repetitions ----------------------------------------------------------------------------- */

/* A number of { }, `otherwise` where there is none. */
static uint32_t read_number(struct pattern *p, uint32_t otherwise)
{
    const uint32_t most = p->c->loosened ? SCHEMA_PARTS_REPEAT : SCHEMA_REPEAT_MAX;
    uint32_t n = 0;
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        n = n > most ? n : n * 10 + (uint32_t)(*p->at - '0');
    if (n > most)
        schema_fail(p->c, "the pattern '%.100s' at byte %zu: more than %u repetitions", p->begin,
                    (size_t)(begin - p->begin), most);
    return p->at == begin ? otherwise : n;
}

/* Reads what may stand after an atom. Returns the sign, 0 for none. */
static char read_times(struct pattern *p, uint32_t *ret_least, uint32_t *ret_most)
{
    char sign = p->at < p->end ? *p->at : 0;
    *ret_least = sign == '*' || sign == '?' ? 0 : 1;
    *ret_most = sign == '*' || sign == '+' ? SCHEMA_NO_MAX : 1;
    if (!sign || !strchr("*+?{", sign))
        return 0;
    const char *begin = p->at++;
    if (sign == '{') {
        *ret_most = *ret_least = read_number(p, 0);
        int is_empty = p->at == begin + 1;
        if (p->at < p->end && *p->at == ',') {
            p->at++;
            *ret_most = read_number(p, SCHEMA_NO_MAX);
            is_empty = p->at == begin + 2;
        }
        if (p->at == p->end || *p->at != '}' || is_empty || *ret_least > *ret_most) {
            p->at = begin;
            pattern_fail(
                p, "not a number of repetitions: write {3}, {3,} or {3,5}, or \\{ for the sign");
            return 0;
        }
        p->at++;
    }
    if (p->at < p->end && *p->at == '?')
        p->at++; /* as few as possible: the same texts match */
    else if (p->at < p->end && strchr("*+{", *p->at))
        pattern_fail(p, "a repetition of a repetition: put ( ) around the inner one");
    return sign;
}

/* The name of the rule for something that is repeated {m,n} times. */
static const char *sub_rule(struct pattern *p, const char *text)
{
    const char *known = json_string_value(json_object_get(p->subs, text));
    if (known || p->c->rc)
        return known ? known : "";
    struct buffer name = {0};
    schema_format(p->c, &name, "%s-%zu", p->name, json_object_size(p->subs) + 1);
    const char *got = schema_rule(p->c, NULL, schema_get(&name), text);
    if (!p->c->rc && json_object_set_new_nocheck(p->subs, text, json_string_nocheck(got)))
        schema_no_memory(p->c);
    buffer_fini(&name);
    return got;
}

static void write_atom(struct pattern *p, struct buffer *t, struct atom *a, char sign,
                       uint32_t least, uint32_t most)
{
    struct buffer quoted = {0};
    const char *item = schema_get(&a->text);
    if (a->is_dot) {
        item = sign ? schema_builtin(p->c, "char", NULL)
                    : schema_rule(p->c, NULL, "dot", "[^\\x0A\\x0D]");
    } else if (a->is_character) {
        schema_format(p->c, &quoted, "\"%s\"", item);
        item = schema_get(&quoted);
    } else if (sign == '{') {
        item = sub_rule(p, item);
    }
    if (sign && most == 0)
        schema_add(p->c, t, "\"\"");
    else if (sign)
        schema_repeat(p->c, t, item, least, most, "");
    else
        schema_add(p->c, t, item);
    buffer_fini(&quoted);
}

static void flush(struct pattern *p, struct buffer *t, struct buffer *pending, int *n)
{
    if (!pending->bytes)
        return;
    schema_add(p->c, t, (*n)++ ? " \"" : "\"");
    schema_add(p->c, t, schema_get(pending));
    schema_add(p->c, t, "\"");
    pending->bytes = 0;
}

static struct span read_sequence(struct pattern *p, struct buffer *t)
{
    struct buffer pending = {0}; /* characters that nothing repeats: one literal */
    struct span sum = {0, 0};
    int n = 0;
    while (p->at < p->end && *p->at != '|' && *p->at != ')' && !p->c->rc) {
        struct atom a = {.is_dot = 0};
        uint32_t least, most;
        read_atom(p, &a);
        char sign = read_times(p, &least, &most);
        if (most == SCHEMA_NO_MAX && a.span.least == 0)
            pattern_fail(
                p,
                "an unbounded repetition may match nothing: make it match at least one character");
        sum.least = plus(sum.least, times(a.span.least, least));
        sum.most = plus(sum.most, times(a.span.most, most));
        if (a.is_character && !sign) {
            schema_add(p->c, &pending, schema_get(&a.text));
        } else {
            flush(p, t, &pending, &n);
            schema_add(p->c, t, n++ ? " " : "");
            write_atom(p, t, &a, sign, least, most);
        }
        buffer_fini(&a.text);
    }
    flush(p, t, &pending, &n);
    schema_add(p->c, t, n ? "" : "\"\"");
    buffer_fini(&pending);
    return sum;
}

static struct span read_choice(struct pattern *p, struct buffer *t)
{
    struct span all = read_sequence(p, t);
    while (p->at < p->end && *p->at == '|' && !p->c->rc) {
        p->at++;
        schema_add(p->c, t, " | ");
        struct span one = read_sequence(p, t);
        all.least = one.least < all.least ? one.least : all.least;
        all.most = one.most > all.most ? one.most : all.most;
    }
    return all;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int ends_with_anchor(const char *begin, const char *end)
{
    size_t slashes = 0;
    if (end == begin || end[-1] != '$')
        return 0;
    for (const char *q = end - 1; q > begin && q[-1] == '\\'; q--)
        slashes++;
    return slashes % 2 == 0;
}

void schema_pattern(struct schema *c, struct buffer *t, const char *pattern, const char *name,
                    uint32_t least, uint32_t most)
{
    struct pattern p = {.c = c, .begin = pattern, .at = pattern, .name = name};
    p.end = pattern + strlen(pattern);
    p.subs = json_object();
    if (!p.subs) {
        schema_no_memory(c);
        return;
    }
    int is_first = *p.at == '^', is_last = ends_with_anchor(p.at + is_first, p.end);
    p.at += is_first;
    p.end -= is_last;
    /* Without an anchor there may be anything on that side. */
    if (!is_first || !is_last)
        schema_format(c, t, "%s(", is_first ? "" : "char* ");
    struct span span = read_choice(&p, t);
    if (!is_first || !is_last) {
        schema_builtin(c, "char", NULL);
        schema_add(c, t, is_last ? ")" : ") char*");
        span.most = SCHEMA_NO_MAX;
    }
    if (p.at < p.end)
        pattern_fail(&p, ") without (");
    if (span.least < least || span.most > most)
        schema_fail(c,
                    "\"pattern\" with a \"minLength\" or \"maxLength\" that it does not satisfy by "
                    "itself is not supported: put the length into the pattern, as in ^.{1,20}$");
    json_decref(p.subs);
}
