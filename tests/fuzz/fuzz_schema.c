/* Fuzzes the converter of JSON schemas. The first byte chooses how the others are read: as JSON; as
 * a pattern; or as the choices of a generator that always makes JSON of known keywords. A refusal
 * has one line that says why; an accepted schema gives a grammar that the daemon compiles, or
 * refuses for its size, or because no answer can satisfy it (an object that requires itself). */
#include "client/hearth.h"
#include "client/schema/schema.h"
#include "daemon/grammar/grammar.h"
#include "tests/fuzz/make_schema.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct made m;
    if (!size)
        return 0;
    m.at = data + 1;
    m.end = data + size;
    m.bytes = 0;
    m.n_keywords = MADE_PLAIN_KEYWORDS;
    if (data[0] % 4 == 0) {
        check((const char *)data + 1, size - 1);
        return 0;
    }
    if (data[0] % 4 == 1) {
        made_put(&m, "{\"pattern\":");
        made_pattern(&m);
        made_put(&m, "}");
    } else {
        made_schema(&m, 0);
    }
    check(m.text, m.bytes);
    return 0;
}
