/* fim: what `hearth fim` fills in: files, and the place between prefix and suffix. */
#include "client/cli/fim.h"

#include <stdlib.h>
#include <string.h>

/* ---- the place ------------------------------------------------------------------------------- */

/* Where the byte at line and column (both from 1; column 0: after the line's last) stands in text.
 * Returns -1 for a line that is not there, -2 for such a column. */
static int64_t find_place(const char *text, size_t bytes, uint32_t line, uint32_t column)
{
    size_t at = 0;
    for (uint32_t i = 1; i < line; i++) {
        const char *end = at < bytes ? memchr(text + at, '\n', bytes - at) : NULL;
        if (!end)
            return -1;
        at = (size_t)(end - text) + 1;
    }
    const char *end = at < bytes ? memchr(text + at, '\n', bytes - at) : NULL;
    size_t length = (end ? (size_t)(end - text) : bytes) - at;
    if (!column)
        return (int64_t)(at + length);
    return column - 1 > length ? -2 : (int64_t)(at + column - 1);
}

/* Cuts ":NUMBER" off the end of name. Returns the number, or -1 without one. */
static int32_t cut_number(char *name)
{
    char *colon = strrchr(name, ':'), *end;
    if (!colon || colon == name || colon[1] < '0' || colon[1] > '9')
        return -1;
    unsigned long n = strtoul(colon + 1, &end, 10);
    if (*end || n > 1u << 30)
        return -1;
    *colon = 0;
    return (int32_t)n;
}

/* FILE, FILE:LINE and FILE:LINE:COL; the options say the place where they are given. */
static int read_place(const struct cli_options *o, struct cli_fim *f, uint32_t *ret_line,
                      uint32_t *ret_column)
{
    *ret_line = o->line;
    *ret_column = o->col;
    if (o->line)
        return 0;
    int32_t last = cut_number(f->name), before = last < 0 ? -1 : cut_number(f->name);
    if (last < 0)
        return cli_fail(CLI_USAGE, "no place to fill in: give FILE:LINE:COL, --line and --col, or "
                                   "--prefix-file and --suffix-file");
    if (last == 0 || before == 0)
        return cli_fail(CLI_USAGE, "'%s': lines and columns count from 1", o->words[0]);
    *ret_line = (uint32_t)(before < 0 ? last : before);
    *ret_column = before < 0 ? o->col : (uint32_t)last;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_buffer(const struct cli_options *o, struct cli_fim *f)
{
    uint32_t line, column;
    if (o->n_words > 1)
        return cli_fail(CLI_USAGE, "'%s': give one FILE:LINE:COL", o->words[1]);
    f->name = strdup(o->n_words ? o->words[0] : "-");
    if (!f->name)
        return cli_no_memory();
    int code = read_place(o, f, &line, &column);
    if (!code)
        code = cli_read_file(f->name, &f->text);
    if (code)
        return code;
    int64_t at = find_place(f->text.data, f->text.bytes, line, column);
    if (at == -1)
        return cli_fail(CLI_BAD_INPUT, "%s has no line %u: give one that it has", f->name, line);
    if (at < 0)
        return cli_fail(CLI_BAD_INPUT, "%s: line %u has no column %u: leave it out for its end",
                        f->name, line, column);
    f->request.prefix = f->text.data;
    f->request.prefix_bytes = (size_t)at;
    f->request.suffix = f->text.data ? f->text.data + at : NULL;
    f->request.suffix_bytes = f->text.bytes - (size_t)at;
    f->request.name = strcmp(f->name, "-") != 0 ? f->name : NULL;
    return CLI_OK;
}

static int read_both(const struct cli_options *o, struct cli_fim *f)
{
    if (o->n_words || o->line || o->col)
        return cli_fail(CLI_USAGE, "--prefix-file and --suffix-file give the place already: leave "
                                   "out FILE, --line and --col");
    if (o->prefix_file && o->suffix_file && strcmp(o->prefix_file, "-") == 0 &&
        strcmp(o->suffix_file, "-") == 0)
        return cli_fail(CLI_USAGE, "stdin cannot be both prefix and suffix: name a file for one");
    int code = o->prefix_file ? cli_read_file(o->prefix_file, &f->text) : CLI_OK;
    if (!code && o->suffix_file)
        code = cli_read_file(o->suffix_file, &f->after);
    f->request.prefix = f->text.data;
    f->request.prefix_bytes = f->text.bytes;
    f->request.suffix = f->after.data;
    f->request.suffix_bytes = f->after.bytes;
    return code;
}

static int read_extra(const struct cli_options *o, struct cli_fim *f)
{
    int code = CLI_OK;
    if (!o->extra.n)
        return CLI_OK;
    f->files = calloc(o->extra.n, sizeof(*f->files));
    f->chunks = calloc(o->extra.n, sizeof(*f->chunks));
    if (!f->files || !f->chunks)
        return cli_no_memory();
    for (uint32_t i = 0; i < o->extra.n && !code; i++) {
        code = cli_read_file(o->extra.items[i], &f->files[i]);
        f->n_files = i + 1;
        f->chunks[i] = (struct hearth_chunk){
            .name = o->extra.items[i], .text = f->files[i].data, .text_bytes = f->files[i].bytes};
    }
    f->request.extra = f->chunks;
    f->request.n_extra = f->n_files;
    return code;
}

int cli_fim_read(const struct cli_options *o, struct cli_fim *f)
{
    memset(f, 0, sizeof(*f));
    hearth_fim_init(&f->request, sizeof(f->request));
    f->request.order = o->order;
    f->request.repo = o->repo;
    f->request.max_tokens = o->prompt_tokens;
    int code = o->prefix_file || o->suffix_file ? read_both(o, f) : read_buffer(o, f);
    return code ? code : read_extra(o, f);
}

void cli_fim_fini(struct cli_fim *f)
{
    for (uint32_t i = 0; i < f->n_files; i++)
        buffer_fini(&f->files[i]);
    buffer_fini(&f->text);
    buffer_fini(&f->after);
    free(f->files);
    free(f->chunks);
    free(f->name);
    memset(f, 0, sizeof(*f));
}

int cli_fim_tokens(struct hearth *h, const struct cli_fim *f, struct cli_ids *ids)
{
    int64_t n = hearth_fim(h, &f->request, NULL, 0);
    if (n < 0)
        return cli_fail(cli_exit_request((int)n), "%s", hearth_error(h));
    ids->items = calloc((size_t)n + 1, sizeof(*ids->items));
    if (!ids->items)
        return cli_no_memory();
    ids->n = (uint32_t)n;
    if (hearth_fim(h, &f->request, ids->items, ids->n) != n)
        return cli_fail(CLI_SYSTEM, "%s", hearth_error(h));
    return CLI_OK;
}
