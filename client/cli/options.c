/* cli_options.c - the parser over the table in cli_options.h. */
#include "client/cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *name, *argument;
    uint32_t commands;
    enum cli_kind kind;
    size_t field; /* offset in struct cli_options */
    double least, most;
    const char *help;
};

static const struct row rows[] = {
#define O(name, argument, commands, kind, field, least, most, help)                                \
    {name, argument, commands, kind, offsetof(struct cli_options, field), least, most, help},
    CLI_OPTIONS(O)
#undef O
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

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

static int texts_add(struct cli_texts *t, const char *text)
{
    void *items = t->items;
    int rc = cli_grow(&items, t->n, sizeof *t->items);
    t->items = items;
    if (!rc)
        t->items[t->n++] = text;
    return rc;
}

static int ids_add(struct cli_ids *l, uint32_t id)
{
    void *items = l->items;
    int rc = cli_grow(&items, l->n, sizeof *l->items);
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

static int parse_bias(const struct row *r, struct cli_biases *b, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long id = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || *end != '=' || id > UINT32_MAX)
        return -EINVAL;
    const char *number = end + 1;
    double value = strtod(number, &end);
    int in_range = (isinf(value) && value < 0) || (value >= r->least && value <= r->most);
    if (end == number || *end || !in_range)
        return -EINVAL;
    void *items = b->items;
    int rc = cli_grow(&items, b->n, sizeof *b->items);
    b->items = items;
    if (!rc)
        b->items[b->n++] = (struct hearth_bias){.token = (uint32_t)id, .value = (float)value};
    return rc;
}

static int parse_choice(const char *list, const char *text, uint32_t *ret)
{
    size_t bytes = strlen(text);
    for (uint32_t i = 0;; i++) {
        size_t item = strcspn(list, "|");
        if (item == bytes && memcmp(list, text, bytes) == 0) {
            *ret = i;
            return 0;
        }
        if (!list[item])
            return -EINVAL;
        list += item + 1;
    }
}

/* A number in the row's range, or NAN. */
static double parse_number(const struct row *r, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    int hex = text[0] && strpbrk(text, "xXnN") != NULL; /* also inf and nan */
    if (end == text || *end || hex || !(value >= r->least && value <= r->most))
        return NAN;
    if (r->kind != CLI_F32 && value != (double)(int64_t)value)
        return NAN;
    return value;
}

static int parse_u64(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno ? -EINVAL : 0;
}

static int parse_value(const struct row *r, void *field, const char *text)
{
    const char *bad;
    double value;
    uint32_t choice;
    switch (r->kind) {
    case CLI_FLAG:
        *(int *)field = 1;
        return 0;
    case CLI_U32:
    case CLI_I32:
    case CLI_F32:
        value = parse_number(r, text);
        if (isnan(value))
            return -EINVAL;
        if (r->kind == CLI_U32)
            *(uint32_t *)field = (uint32_t)value;
        else if (r->kind == CLI_I32)
            *(int32_t *)field = (int32_t)value;
        else
            *(float *)field = (float)value;
        return 0;
    case CLI_U64:
        return parse_u64(text, field);
    case CLI_CHOICE:
        return parse_choice(r->argument, text, field);
    case CLI_WORD:
        *(const char **)field = text;
        return parse_choice(r->argument, text, &choice);
    case CLI_TEXT:
        *(const char **)field = text;
        return *text ? 0 : -EINVAL;
    case CLI_TEXTS:
        value = (double)strlen(text);
        if (value < r->least || value > r->most ||
            ((const struct cli_texts *)field)->n == CLI_TEXTS_MAX)
            return -EINVAL;
        return texts_add(field, text);
    case CLI_IDS:
        ((struct cli_ids *)field)->given = 1;
        if (strcmp(text, "-") == 0)
            return 0;
        return *text ? cli_ids_parse(field, text, strlen(text), &bad) : -EINVAL;
    case CLI_BIAS:
        return parse_bias(r, field, text);
    }
    return -EINVAL;
}

static int tell_bad_value(const struct row *r, const char *text, char *err, size_t err_bytes)
{
    switch (r->kind) {
    case CLI_U32:
    case CLI_I32:
        snprintf(err, err_bytes, "--%s %s: give a whole number from %.0f to %.0f", r->name, text,
                 r->least, r->most);
        break;
    case CLI_F32:
        snprintf(err, err_bytes, "--%s %s: give a number from %g to %g", r->name, text, r->least,
                 r->most);
        break;
    case CLI_U64:
        snprintf(err, err_bytes, "--%s %s: give a whole number from 0 to 2^64 - 1", r->name, text);
        break;
    case CLI_TEXTS:
        snprintf(err, err_bytes, "--%s '%.40s': give %.0f to %.0f bytes, and %d of them at most",
                 r->name, text, r->least, r->most, CLI_TEXTS_MAX);
        break;
    case CLI_BIAS:
        snprintf(err, err_bytes, "--%s '%s': give %s, the value from %.0f to %.0f, or -inf",
                 r->name, text, r->argument, r->least, r->most);
        break;
    default:
        snprintf(err, err_bytes, "--%s '%s': give %s", r->name, text, r->argument);
    }
    return -EINVAL;
}

static const struct row *find(uint32_t command, const char *name, size_t bytes)
{
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].commands & command && strlen(rows[i].name) == bytes &&
            memcmp(rows[i].name, name, bytes) == 0)
            return &rows[i];
    return NULL;
}

/* One option at argv[*i]; moves *i to the last word it used. */
static int parse_option(struct cli_options *o, int argc, char **argv, int *i, char *err,
                        size_t err_bytes)
{
    const char *name = argv[*i] + 2;
    size_t bytes = strcspn(name, "=");
    const struct row *r = find(o->command, name, bytes);
    if (!r) {
        snprintf(err, err_bytes, "unknown option --%.*s: see --help", (int)bytes, name);
        return -EINVAL;
    }
    const char *value = name[bytes] ? name + bytes + 1 : NULL;
    if (r->kind == CLI_FLAG && value) {
        snprintf(err, err_bytes, "--%s takes no value: leave out '=%s'", r->name, value);
        return -EINVAL;
    }
    if (r->kind != CLI_FLAG && !value) {
        if (*i + 1 >= argc) {
            snprintf(err, err_bytes, "--%s has no value: give %s", r->name, r->argument);
            return -EINVAL;
        }
        value = argv[++*i];
    }
    int rc = parse_value(r, (char *)o + r->field, value ? value : "");
    if (rc == -ENOMEM)
        snprintf(err, err_bytes, "out of memory: free some and try again");
    return rc == -EINVAL ? tell_bad_value(r, value, err, err_bytes) : rc;
}

int cli_options_parse(struct cli_options *o, uint32_t command, int argc, char **argv, char *err,
                      size_t err_bytes)
{
    memset(o, 0, sizeof *o);
    o->command = command;
    o->resume_ms = 30000;
    o->interval = 1;
    hearth_request_init(&o->request, sizeof o->request);
    int only_words = 0;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        int rc = 0;
        if (only_words || word[0] != '-' || !word[1])
            rc = texts_add(&o->words, word);
        else if (strcmp(word, "--") == 0)
            only_words = 1;
        else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            o->help = 1;
        else if (word[1] == '-')
            rc = parse_option(o, argc, argv, &i, err, err_bytes);
        else {
            snprintf(err, err_bytes, "unknown option %s: see --help, or put -- before text", word);
            rc = -EINVAL;
        }
        if (rc)
            return rc;
    }
    return 0;
}

void cli_options_fini(struct cli_options *o)
{
    free(o->tokens.items);
    free(o->stop_tokens.items);
    free(o->stops.items);
    free(o->extra.items);
    free(o->words.items);
    free(o->bias.items);
    memset(o, 0, sizeof *o);
}

size_t cli_options_help(uint32_t command, char *text, size_t max)
{
    size_t at = 0;
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        if (!(r->commands & command))
            continue;
        char left[64];
        snprintf(left, sizeof left, "--%s %s", r->name, r->argument);
        int n = snprintf(at < max ? text + at : NULL, at < max ? max - at : 0, "  %-28s %s\n", left,
                         r->help);
        at += (size_t)(n > 0 ? n : 0);
    }
    return at;
}
