/* make_schema: JSON schemas out of a fuzzer's bytes, of known keywords. A header of static functions.
 * The order of its tables is that of the corpora. */
#ifndef HEARTH_TESTS_FUZZ_MAKE_SCHEMA_H
#define HEARTH_TESTS_FUZZ_MAKE_SCHEMA_H

#include <stdint.h>
#include <string.h>

struct made {
    const uint8_t *at, *end;
    char text[32768];
    size_t bytes;
    unsigned n_keywords; /* of the table below */
};

static inline unsigned made_take(struct made *m)
{
    return m->at < m->end ? *m->at++ : 0;
}

static inline void made_put(struct made *m, const char *text)
{
    size_t n = strlen(text);
    if (m->bytes + n < sizeof(m->text)) {
        memcpy(m->text + m->bytes, text, n);
        m->bytes += n;
    }
}

static inline void made_schema(struct made *m, unsigned depth);

static inline void made_pattern(struct made *m)
{
    static const char signs[] = "abz09.*+?|()[]{}^$-,:= dws";
    made_put(m, "\"^");
    for (unsigned n = made_take(m) % 24; n; n--) {
        unsigned b = made_take(m);
        char one[4] = {b >= 200 ? '\\' : signs[b % (sizeof(signs) - 1)], 0};
        if (b >= 200)
            one[1] = '\\';
        made_put(m, one);
    }
    made_put(m, "$\"");
}

static inline void made_list(struct made *m, unsigned depth)
{
    made_put(m, "[");
    for (unsigned n = made_take(m) % 4; n; n--) {
        made_schema(m, depth);
        made_put(m, n > 1 ? "," : "");
    }
    made_put(m, "]");
}

enum made_kind { PLAIN, PATTERN, SCHEMA, LIST, MAP };

static const struct {
    const char *key;
    enum made_kind kind;
    const char *values[8]; /* of a plain keyword, ends with NULL */
} made_keywords[] = {
    {"type",
     PLAIN,
     {"\"object\"", "\"array\"", "\"string\"", "\"integer\"", "[\"string\",\"null\"]",
      "\"number\""}},
    {"enum", PLAIN, {"[1,\"a\",null,[2]]", "[1.5]", "[]"}},
    {"const", PLAIN, {"\"a\\\"b\"", "1"}},
    {"minimum", PLAIN, {"-7", "0", "99.5", "123456789012345678"}},
    {"maximum", PLAIN, {"1234", "-12", "0.25", "9999999999999999"}},
    {"exclusiveMinimum", PLAIN, {"true", "15", "-0.125"}},
    {"exclusiveMaximum", PLAIN, {"false", "1000", "3e300"}},
    {"minLength", PLAIN, {"0", "2", "-1"}},
    {"maxLength", PLAIN, {"9", "1", "10000"}},
    {"minItems", PLAIN, {"1", "3"}},
    {"maxItems", PLAIN, {"0", "1", "4"}},
    {"nullable", PLAIN, {"true", "false"}},
    {"format", PLAIN, {"\"date-time\"", "\"uuid\"", "\"email\""}},
    {"required", PLAIN, {"[\"a\",\"q\"]", "[\"b\"]"}},
    {"$ref", PLAIN, {"\"#/$defs/a\"", "\"#\"", "\"#/$defs/ab\"", "\"#/items\""}},
    {"additionalProperties", PLAIN, {"true", "false", "{}"}},
    {"pattern", PATTERN, {NULL}},
    {"items", SCHEMA, {NULL}},
    {"prefixItems", LIST, {NULL}},
    {"anyOf", LIST, {NULL}},
    {"oneOf", LIST, {NULL}},
    {"allOf", LIST, {NULL}},
    {"properties", MAP, {NULL}},
    {"$defs", MAP, {NULL}},
    /* what no grammar can say */
    {"multipleOf", PLAIN, {"5", "0.25"}},
    {"uniqueItems", PLAIN, {"true", "false"}},
    {"minProperties", PLAIN, {"1", "2"}},
    {"not", SCHEMA, {NULL}},
    {"contains", SCHEMA, {NULL}},
    {"propertyNames", SCHEMA, {NULL}},
    {"patternProperties", MAP, {NULL}},
    {"dependentSchemas", MAP, {NULL}},
};
enum { MADE_KEYWORDS = sizeof(made_keywords) / sizeof(made_keywords[0]), MADE_PLAIN_KEYWORDS = 24 };

/* The value of keyword i. */
static inline void made_value(struct made *m, unsigned depth, unsigned i)
{
    unsigned n = 1;
    switch (made_keywords[i].kind) {
    case PLAIN:
        while (n < 8 && made_keywords[i].values[n])
            n++;
        made_put(m, made_keywords[i].values[made_take(m) % n]);
        return;
    case PATTERN:
        made_pattern(m);
        return;
    case SCHEMA:
        made_schema(m, depth);
        return;
    case LIST:
        made_list(m, depth);
        return;
    case MAP:
        made_put(m, "{\"a\":");
        made_schema(m, depth);
        made_put(m, made_take(m) & 1 ? ",\"ab\":" : ",\"\":");
        made_schema(m, depth);
        made_put(m, "}");
    }
}

static inline void made_schema(struct made *m, unsigned depth)
{
    uint32_t used = 0; /* no keyword twice: that would be refused first */
    made_put(m, "{");
    for (unsigned n = depth > 6 ? 0 : made_take(m) % 5; n; n--) {
        unsigned i = made_take(m) % m->n_keywords;
        if (used & 1u << i)
            continue;
        used |= 1u << i;
        made_put(m, "\"");
        made_put(m, made_keywords[i].key);
        made_put(m, "\":");
        made_value(m, depth + 1, i);
        made_put(m, ",");
    }
    made_put(m, "\"title\":0}");
}

#endif
