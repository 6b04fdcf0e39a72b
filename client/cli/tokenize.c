/* tokenize: `hearth tokenize` and `hearth detokenize`: stdin to stdout, with the vocabulary
 * of the daemon or of a file. */
#include "client/cli/cli.h"
#include "client/cli/json.h"
#include "client/cli/vocab.h"
#include "client/tokenizer/detokenizer.h"
#include "client/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdlib.h>

/* ---- with a file ----------------------------------------------------------------------------- */

static int tokenize_file(const struct cli_options *o, const struct buffer *text, struct buffer *out)
{
    struct vocab v;
    void *block;
    char err[512];
    int code = cli_vocab_open(o->model, &v, &block);
    if (code)
        return code;
    struct token_list ids;
    token_list_init(&ids);
    int rc = tokenize(&v, text->data, text->bytes, o->special ? TOKENIZE_PARSE_SPECIAL : 0, &ids,
                      err, sizeof(err));
    if (rc == 0)
        json_ids(out, ids.ids, ids.n);
    else
        code = rc == -ENOMEM ? cli_no_memory() : cli_fail(CLI_BAD_INPUT, "%s", err);
    token_list_fini(&ids);
    free(block);
    return code;
}

static int detokenize_file(const struct cli_options *o, const struct cli_ids *ids,
                           struct buffer *out)
{
    struct vocab v;
    void *block;
    int code = cli_vocab_open(o->model, &v, &block);
    if (code)
        return code;
    size_t n = detokenize(&v, ids->items, ids->n, o->special, out);
    if (n < ids->n)
        code = cli_fail(CLI_BAD_INPUT, "token %u is not in the vocabulary: ids go from 0 to %u",
                        ids->items[n], v.n_tokens - 1);
    free(block);
    return code;
}

/* ---- with the daemon ------------------------------------------------------------------------- */

static int tokenize_daemon(const struct cli_options *o, const struct buffer *text,
                           struct buffer *out)
{
    struct hearth *h;
    int code = cli_connect(o, 0, &h);
    if (code)
        return code;
    uint32_t flags = o->special ? HEARTH_SPECIAL : 0, *ids = NULL;
    int64_t n = hearth_tokenize(h, text->data, text->bytes, flags, NULL, 0);
    if (n > 0) {
        ids = malloc((size_t)n * sizeof(*ids));
        n = ids ? hearth_tokenize(h, text->data, text->bytes, flags, ids, (size_t)n) : -ENOMEM;
    }
    if (n >= 0)
        json_ids(out, ids, (size_t)n);
    else
        code = n == -ENOMEM ? cli_no_memory()
                            : cli_fail(cli_exit_request((int)n), "%s", hearth_error(h));
    free(ids);
    hearth_close(h);
    return code;
}

static int detokenize_daemon(const struct cli_options *o, const struct cli_ids *ids,
                             struct buffer *out)
{
    struct hearth *h;
    int code = cli_connect(o, 0, &h);
    if (code)
        return code;
    uint32_t flags = o->special ? HEARTH_SPECIAL : 0;
    char *text = NULL;
    int64_t n = hearth_detokenize(h, ids->items, ids->n, flags, NULL, 0);
    if (n > 0) {
        text = malloc((size_t)n);
        n = text ? hearth_detokenize(h, ids->items, ids->n, flags, text, (size_t)n) : -ENOMEM;
    }
    if (n >= 0)
        buffer_add(out, text, (size_t)n);
    else
        code = n == -ENOMEM ? cli_no_memory()
                            : cli_fail(cli_exit_request((int)n), "%s", hearth_error(h));
    free(text);
    hearth_close(h);
    return code;
}

/* ---- the commands ---------------------------------------------------------------------------- */

int cli_read_ids(struct cli_ids *ids)
{
    struct buffer text = {0};
    int code = cli_read_file("-", &text);
    const char *bad = text.data;
    int rc = code ? 0 : cli_ids_parse(ids, text.data, text.bytes, &bad);
    if (rc == -ENOMEM)
        code = cli_no_memory();
    else if (rc)
        code = cli_fail(CLI_BAD_INPUT,
                        "stdin: byte %zu is not a token id: give a JSON array such as [1,2,3]",
                        (size_t)(bad - text.data));
    buffer_fini(&text);
    return code;
}

int cli_tokenize(const struct cli_options *o)
{
    struct buffer text = {0}, out = {0};
    int code = cli_read_file("-", &text);
    if (!code)
        code = o->model ? tokenize_file(o, &text, &out) : tokenize_daemon(o, &text, &out);
    if (!code) {
        buffer_add(&out, "\n", 1);
        code = cli_print(&out);
    }
    buffer_fini(&out);
    buffer_fini(&text);
    return code;
}

int cli_detokenize(const struct cli_options *o)
{
    struct buffer out = {0};
    struct cli_ids ids = {0};
    int code = cli_read_ids(&ids);
    if (!code)
        code = o->model ? detokenize_file(o, &ids, &out) : detokenize_daemon(o, &ids, &out);
    if (!code)
        code = cli_print(&out);
    buffer_fini(&out);
    free(ids.items);
    return code;
}
