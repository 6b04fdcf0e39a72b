/* grammar: the grammar that an answer follows: --grammar, --grammar-file, --json-schema. */
#include "client/cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is this text a file's name, with the @ forgotten? */
static int looks_like_file(const char *schema)
{
    size_t bytes = strlen(schema);
    if (schema[strspn(schema, " \t\r\n")] == '{')
        return 0;
    return (bytes > 5 && strcmp(schema + bytes - 5, ".json") == 0) || access(schema, F_OK) == 0;
}

/* The grammar of a schema, "@FILE" or its text, into *text. Returns 0 or an exit code. */
static int read_schema(const char *schema, struct buffer *text)
{
    struct buffer json = {0};
    char err[512] = "";
    int is_file = *schema == '@';
    int code = is_file ? cli_read_file(schema + 1, &json) : CLI_OK;
    if (!is_file)
        buffer_text(&json, schema);
    int64_t bytes = code || json.failed ? -ENOMEM
                                        : hearth_schema(json.data ? json.data : "", json.bytes,
                                                        NULL, 0, err, sizeof(err));
    char *grammar = bytes > 0 ? malloc((size_t)bytes + 1) : NULL;
    if (grammar) {
        (void)hearth_schema(json.data, json.bytes, grammar, (size_t)bytes + 1, err, sizeof(err));
        buffer_add(text, grammar, (size_t)bytes);
    } else if (!code && bytes == -EINVAL && !is_file && looks_like_file(schema)) {
        code = cli_fail(CLI_BAD_INPUT, "--json-schema %s: for a file give @%s", schema, schema);
    } else if (!code && bytes == -EINVAL) {
        code = cli_fail(CLI_BAD_INPUT, "%s", err);
    } else {
        text->failed = !code;
    }
    free(grammar);
    buffer_fini(&json);
    return code;
}

int cli_grammar_read(const struct cli_options *o, struct buffer *text)
{
    int code = CLI_OK;
    int sources = (o->grammar != NULL) + (o->grammar_file != NULL) + (o->json_schema != NULL);
    if (sources > 1)
        return cli_fail(CLI_USAGE, "two grammars: give --grammar, --grammar-file or --json-schema");
    if (!sources)
        return CLI_OK;
    if (o->json_schema)
        code = read_schema(o->json_schema, text);
    else if (o->grammar_file)
        code = cli_read_file(o->grammar_file, text);
    else
        buffer_text(text, o->grammar);
    if (!code && !text->failed && !text->bytes)
        code = cli_fail(CLI_BAD_INPUT, "%s: no grammar in it: give a rule root", o->grammar_file);
    buffer_add(text, "", 1);
    return code || !text->failed ? code : cli_no_memory();
}
