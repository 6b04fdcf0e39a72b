/* Fuzzes the converter of JSON schemas. The first byte chooses how the others are read: as JSON; as
 * a pattern; or as the choices of a generator that always makes JSON of known keywords. A refusal
 * has one line that says why; an accepted schema gives a grammar that the daemon compiles, or
 * refuses for its size, or because no answer can satisfy it (an object that requires itself). */
#include "client/hearth.h"
#include "client/schema/schema.h"
#include "daemon/grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void compile(const char *text, size_t bytes)
{
    static const char *const limits[] = {"more than", "too large", "too many", "forever", "above"};
    static const struct grammar_token a = {.bytes = "a", .n_bytes = 1};
    static struct grammar_vocab *v;
    struct grammar *g = NULL;
    char err[400] = "";
    must(v || grammar_vocab_open(&a, 1, 1, &v) == 0);
    int rc = grammar_open(v, text, bytes, &g, err, sizeof(err)), is_limit = 0;
    if (rc == 0) {
        grammar_close(g);
        return;
    }
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        is_limit |= strstr(err, limits[i]) != NULL;
    must(rc == -EINVAL && is_limit);
}

static void check(const char *json, size_t bytes)
{
    static char grammar[SCHEMA_GRAMMAR_MAX + 1];
    char err[600] = "", *exact = malloc(bytes + !bytes); /* a read past the end is seen */
    must(exact != NULL);
    memcpy(exact, json, bytes);
    int64_t n = hearth_schema(exact, bytes, grammar, sizeof(grammar), err, sizeof(err));
    free(exact);
    if (n < 0) {
        must(n == -EINVAL && strncmp(err, "schema", 6) == 0);
        for (const char *p = err; *p; p++)
            must((unsigned char)*p >= 32);
        return;
    }
    must((size_t)n == strlen(grammar) && grammar[n - 1] == '\n' && !err[0]);
    must(strncmp(grammar, "root ::= ", 9) == 0 || strstr(grammar, "\nroot ::= "));
    compile(grammar, (size_t)n);
}

struct generator {
    const uint8_t *at, *end;
    char text[32768];
    size_t bytes;
};

static unsigned take(struct generator *m)
{
    return m->at < m->end ? *m->at++ : 0;
}

static void put(struct generator *m, const char *text)
{
    size_t n = strlen(text);
    if (m->bytes + n < sizeof(m->text)) {
        memcpy(m->text + m->bytes, text, n);
        m->bytes += n;
    }
}

static void put_schema(struct generator *m, unsigned depth);

static void put_pattern(struct generator *m)
{
    static const char signs[] = "abz09.*+?|()[]{}^$-,:= dws";
    put(m, "\"^");
    for (unsigned n = take(m) % 24; n; n--) {
        unsigned b = take(m);
        char one[4] = {b >= 200 ? '\\' : signs[b % (sizeof(signs) - 1)], 0};
        if (b >= 200)
            one[1] = '\\';
        put(m, one);
    }
    put(m, "$\"");
}

static void put_list(struct generator *m, unsigned depth)
{
    put(m, "[");
    for (unsigned n = take(m) % 4; n; n--) {
        put_schema(m, depth);
        put(m, n > 1 ? "," : "");
    }
    put(m, "]");
}

enum kind { PLAIN, PATTERN, SCHEMA, LIST, MAP };

static const struct {
    const char *key;
    enum kind kind;
    const char *values[8]; /* of a plain keyword, ends with NULL */
} keywords[] = {
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
};
enum { N_KEYWORDS = sizeof(keywords) / sizeof(keywords[0]) };

/* The value of keyword i. */
static void put_value(struct generator *m, unsigned depth, unsigned i)
{
    unsigned n = 1;
    switch (keywords[i].kind) {
    case PLAIN:
        while (n < 8 && keywords[i].values[n])
            n++;
        put(m, keywords[i].values[take(m) % n]);
        return;
    case PATTERN:
        put_pattern(m);
        return;
    case SCHEMA:
        put_schema(m, depth);
        return;
    case LIST:
        put_list(m, depth);
        return;
    case MAP:
        put(m, "{\"a\":");
        put_schema(m, depth);
        put(m, take(m) & 1 ? ",\"ab\":" : ",\"\":");
        put_schema(m, depth);
        put(m, "}");
    }
}

static void put_schema(struct generator *m, unsigned depth)
{
    uint32_t used = 0; /* no keyword twice: that would be refused first */
    put(m, "{");
    for (unsigned n = depth > 6 ? 0 : take(m) % 5; n; n--) {
        unsigned i = take(m) % N_KEYWORDS;
        if (used & 1u << i)
            continue;
        used |= 1u << i;
        put(m, "\"");
        put(m, keywords[i].key);
        put(m, "\":");
        put_value(m, depth + 1, i);
        put(m, ",");
    }
    put(m, "\"title\":0}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct generator m;
    if (!size)
        return 0;
    m.at = data + 1;
    m.end = data + size;
    m.bytes = 0;
    if (data[0] % 4 == 0) {
        check((const char *)data + 1, size - 1);
        return 0;
    }
    if (data[0] % 4 == 1) {
        put(&m, "{\"pattern\":");
        put_pattern(&m);
        put(&m, "}");
    } else {
        put_schema(&m, 0);
    }
    check(m.text, m.bytes);
    return 0;
}
