#include "tests/rig/schema_convert.h"

#include "client/hearth.h"
#include "daemon/grammar/grammar.h"
#include "tests/rig/grammar_whole.h"

#include <check.h>
#include <errno.h>
#include <string.h>

char schema_grammar[SCHEMA_GRAMMAR_MAX + 1], schema_err[600];

int64_t schema_convert(const char *json)
{
    return hearth_schema(json, strlen(json), schema_grammar, sizeof(schema_grammar), schema_err,
                         sizeof(schema_err));
}

/* A vocabulary of single bytes and an end token. */
static struct grammar_vocab *open_bytes(void)
{
    static struct grammar_token tokens[257];
    static char bytes[256];
    for (uint32_t i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token){.bytes = &bytes[i], .n_bytes = 1};
    }
    tokens[256].is_end = true;
    struct grammar_vocab *v;
    ck_assert_int_eq(grammar_vocab_open(tokens, 257, 257, &v), 0);
    return v;
}

bool schema_takes(const char *name, const char *text)
{
    return schema_grammar_takes(name, schema_grammar, strlen(schema_grammar), text);
}

bool schema_grammar_takes(const char *name, const char *grammar, size_t bytes, const char *text)
{
    struct grammar_vocab *v = open_bytes();
    struct grammar *g;
    struct grammar_run run;
    int rc = grammar_open(v, grammar, bytes, &g, schema_err, sizeof(schema_err));
    ck_assert_msg(rc == 0, "%.200s: %s\n%.2000s", name, schema_err, grammar);
    grammar_begin(g, false, &run);
    for (const char *p = text; !rc && *p; p++)
        rc = grammar_accept(&run, (uint8_t)*p);
    ck_assert(rc == 0 || rc == -EPERM);
    rc = rc ? rc : grammar_accept(&run, 256);
    grammar_end(&run);
    grammar_close(g);
    grammar_vocab_close(v);
    return rc == 0;
}
