/* gen_params_grammar: what an answer must look like: a grammar, or a JSON schema that becomes
 * one. */
#include "client/http/fields.h"
#include "client/http/gen_params.h"

#include <stdlib.h>
#include <string.h>

enum { GRAMMAR_ROOM = 16384 };

/* a->grammar of a schema; true is any JSON. */
static int from_schema(struct gen_params *a, const json_t *schema, const char *name, struct fail *f)
{
    char err[300] = "", *json = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    size_t room = GRAMMAR_ROOM;
    int64_t n = 0;
    for (int i = 0; json && i < 2; i++) { /* again, where it is longer */
        free(a->grammar);
        a->grammar = malloc(room);
        n = a->grammar ? hearth_schema(json, strlen(json), a->grammar, room, err, sizeof(err)) : -1;
        if (n < (int64_t)room)
            break;
        room = (size_t)n + 1;
    }
    bool no_memory = !json || !a->grammar;
    free(json);
    if (no_memory)
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again");
    if (n < 0)
        return fail_set(f, 400, FAIL_INVALID, "'%s': %s", name,
                        *err ? err : hearth_strerror((int)n));
    a->base.grammar = a->grammar;
    a->base.grammar_bytes = (size_t)n;
    return 0;
}

/* {"type": "json_schema", "json_schema": {"schema": ...}} of OpenAI, and llama-server's shorter
 * forms of it: "schema" beside the type, of json_object, too. */
static int read_format(struct gen_params *a, const json_t *format, struct fail *f)
{
    const char *type = NULL;
    json_t *named = NULL, *schema = json_object_get(format, "schema");
    if (field_text(format, "type", &type, NULL, f) < 0 ||
        field_object(format, "json_schema", &named, f) < 0)
        return -1;
    if (named && json_object_get(named, "schema"))
        schema = json_object_get(named, "schema");
    if (!type || strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_object") == 0 && !schema) {
        json_t *any = json_pack("{s:s}", "type", "object");
        int rc = from_schema(a, any, "response_format", f);
        json_decref(any);
        return rc;
    }
    if (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0)
        return fail_set(
            f, 400, FAIL_INVALID,
            "'response_format': type '%.40s' is unknown: text, json_object or json_schema", type);
    if (!schema)
        return fail_set(f, 400, FAIL_INVALID, "'response_format': 'json_schema' needs a 'schema'");
    return from_schema(a, schema, "response_format", f);
}

int gen_params_read_grammar(struct gen_params *a, struct fail *f)
{
    const json_t *schema = json_object_get(a->root, "json_schema");
    json_t *format = NULL;
    const char *grammar = NULL;
    size_t bytes = 0;
    if (field_text(a->root, "grammar", &grammar, &bytes, f) < 0 ||
        field_object(a->root, "response_format", &format, f) < 0)
        return -1;
    bool has_schema = schema && !json_is_null(schema);
    if (has_schema && bytes)
        return fail_set(f, 400, FAIL_INVALID, "give either 'grammar' or 'json_schema', not both");
    if (has_schema)
        return from_schema(a, schema, "json_schema", f);
    if (bytes) {
        a->base.grammar = grammar;
        a->base.grammar_bytes = bytes;
        return 0;
    }
    return format ? read_format(a, format, f) : 0;
}
