/* options: see options.h. */
#include "client/cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int cli_grow(void **items, uint32_t n, size_t item_bytes)
{
    if (n && (n & (n - 1)))
        return 0;
    if (n >= UINT32_MAX / 2)
        return -ENOMEM;
    void *more = realloc(*items, (n ? (size_t)n * 2 : 1) * item_bytes);
    if (!more)
        return -ENOMEM;
    *items = more;
    return 0;
}

static int ids_add(struct cli_ids *l, uint32_t id)
{
    void *items = l->items;
    int rc = cli_grow(&items, l->n, sizeof(*l->items));
    l->items = items;
    if (!rc)
        l->items[l->n++] = id;
    return rc;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int cli_ids_parse(struct cli_ids *ids, const char *text, size_t bytes, const char **ret_bad)
{
    const char *p = text, *end = text + bytes;
    int bracket = 0, comma = 0; /* comma: one came, so a number must follow */
    ids->given = 1;
    for (;;) {
        while (p < end && is_blank(*p))
            p++;
        *ret_bad = p;
        if (p == end)
            return comma || bracket == 1 ? -EINVAL : 0;
        if (*p == '[' && bracket == 0 && !ids->n) {
            bracket = 1;
            p++;
            continue;
        }
        if (*p == ']' && bracket == 1 && !comma) {
            bracket = 2;
            p++;
            continue;
        }
        uint64_t id = 0;
        const char *digits = p;
        while (p < end && *p >= '0' && *p <= '9' && id <= UINT32_MAX)
            id = id * 10 + (uint64_t)(*p++ - '0');
        if (p == digits || id > UINT32_MAX || bracket == 2 || (p < end && *p >= '0' && *p <= '9'))
            return -EINVAL;
        int rc = ids_add(ids, (uint32_t)id);
        if (rc)
            return rc;
        while (p < end && is_blank(*p))
            p++;
        comma = p < end && *p == ',';
        p += comma;
    }
}

static int read_ids(const struct option_row *row, void *field, const char *text)
{
    const char *bad;
    (void)row;
    ((struct cli_ids *)field)->given = 1;
    if (strcmp(text, "-") == 0)
        return 0;
    return *text ? cli_ids_parse(field, text, strlen(text), &bad) : -EINVAL;
}

static int read_bias(const struct option_row *row, void *field, const char *text)
{
    struct cli_biases *b = field;
    char *end;
    errno = 0;
    unsigned long long id = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || *end != '=' || id > UINT32_MAX)
        return -EINVAL;
    const char *number = end + 1;
    double value = strtod(number, &end);
    int in_range = (isinf(value) && value < 0) || (value >= row->least && value <= row->most);
    if (end == number || *end || !in_range)
        return -EINVAL;
    void *items = b->items;
    int rc = cli_grow(&items, b->n, sizeof(*b->items));
    b->items = items;
    if (!rc)
        b->items[b->n++] = (struct hearth_bias){.token = (uint32_t)id, .value = (float)value};
    return rc;
}

static const struct option_row rows[] = {
#define O(name_, value_, commands_, kind_, id, def_, least_, most_, help_)                         \
    {.name = name_,                                                                                \
     .value = value_,                                                                              \
     .def = def_,                                                                                  \
     .help = help_,                                                                                \
     .field = offsetof(struct cli_options, id),                                                    \
     .kind = kind_,                                                                                \
     .least = least_,                                                                              \
     .most = most_,                                                                                \
     .commands = commands_,                                                                        \
     .read = offsetof(struct cli_options, id) == offsetof(struct cli_options, bias) ? read_bias    \
                                                                                    : read_ids},
    CLI_OPTIONS(O)
#undef O
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static struct options table(struct cli_options *o, uint32_t command)
{
    return (struct options){
        .rows = rows, .n = N_ROWS, .fields = o, .commands = command, .takes_words = true};
}

int cli_options_parse(struct cli_options *o, uint32_t command, int argc, char **argv, char *err,
                      size_t err_bytes)
{
    const struct options t = table(o, command);
    memset(o, 0, sizeof(*o));
    o->command = command;
    hearth_request_init(&o->request, sizeof(o->request));
    options_init(&t);
    int n = options_parse(&t, argc, argv, err, err_bytes);
    o->words = argv;
    o->n_words = n > 0 ? (uint32_t)n : 0;
    return n < 0 ? n : 0;
}

void cli_options_fini(struct cli_options *o)
{
    free(o->tokens.items);
    free(o->stop_tokens.items);
    free(o->bias.items);
    memset(o, 0, sizeof(*o));
}

void cli_options_help(uint32_t command, FILE *out)
{
    const struct options t = table(NULL, command);
    options_help(&t, out);
}
