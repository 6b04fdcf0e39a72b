/* options: see options.h. */
#include "ipc/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static int refuse(char *err, size_t err_bytes,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, err_bytes, format, args);
    va_end(args);
    return -EINVAL;
}

static void *field_of(const struct options *o, const struct option_row *row)
{
    return (char *)o->fields + row->field;
}

static bool applies(const struct options *o, const struct option_row *row)
{
    return !o->commands || !row->commands || o->commands & row->commands;
}

const struct option_row *options_find(const struct options *o, const char *name, size_t bytes)
{
    for (size_t i = 0; i < o->n; i++)
        if (applies(o, &o->rows[i]) && strlen(o->rows[i].name) == bytes &&
            memcmp(o->rows[i].name, name, bytes) == 0)
            return &o->rows[i];
    return NULL;
}

static const struct option_row *find_letter(const struct options *o, char letter)
{
    if (letter == 'h')
        return options_find(o, "help", 4);
    for (size_t i = 0; i < o->n; i++)
        if (applies(o, &o->rows[i]) && letter && o->rows[i].letter == letter)
            return &o->rows[i];
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Digits and an optional K, M, G or T. */
static int read_whole(const char *text, uint64_t *ret)
{
    static const char suffixes[] = "KkMmGgTt";
    char *end;
    unsigned shift = 0;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno)
        return -EINVAL;
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        shift = 10 * ((unsigned)(suffix - suffixes) / 2 + 1);
        end++;
    }
    if (*end || value > UINT64_MAX >> shift)
        return -EINVAL;
    *ret = (uint64_t)value << shift;
    return 0;
}

static int read_number(const struct option_row *row, void *field, const char *text)
{
    bool is_negative = row->kind == OPTION_I32 && *text == '-';
    uint64_t whole = 0;
    double value;
    if (row->kind == OPTION_F32) {
        char *end;
        value = strtod(text, &end);
        if (end == text || *end || strpbrk(text, "xXnN")) /* hexadecimal, inf, nan */
            return -EINVAL;
    } else {
        if (read_whole(text + is_negative, &whole))
            return -EINVAL;
        value = is_negative ? -(double)whole : (double)whole;
    }
    if (!(value >= row->least && value <= row->most))
        return -EINVAL;
    if (row->kind == OPTION_F32)
        *(float *)field = (float)value;
    else if (row->kind == OPTION_I32)
        *(int32_t *)field = (int32_t)value;
    else if (row->kind == OPTION_U32)
        *(uint32_t *)field = (uint32_t)whole;
    else
        *(uint64_t *)field = whole;
    return 0;
}

static int read_choice(const char *list, const char *text, uint32_t *ret)
{
    size_t bytes = strlen(text);
    for (uint32_t i = 0;; i++) {
        size_t word = strcspn(list, "|");
        if (word == bytes && memcmp(list, text, bytes) == 0) {
            *ret = i;
            return 0;
        }
        if (!list[word])
            return -EINVAL;
        list += word + 1;
    }
}

static int read_texts(const struct option_row *row, struct option_texts *texts, const char *text)
{
    double bytes = (double)strlen(text);
    if (bytes < row->least || bytes > row->most || texts->n == OPTION_TEXTS_MAX)
        return -EINVAL;
    texts->items[texts->n++] = text;
    return 0;
}

static int read_value(const struct option_row *row, void *field, const char *text)
{
    uint32_t index;
    switch (row->kind) {
    case OPTION_FLAG:
    case OPTION_SWITCH:
        return read_choice("no|yes", text, field);
    case OPTION_U32:
    case OPTION_I32:
    case OPTION_U64:
    case OPTION_F32:
        return read_number(row, field, text);
    case OPTION_CHOICE:
        return read_choice(row->value, text, field);
    case OPTION_WORD:
        *(const char **)field = text;
        return read_choice(row->value, text, &index);
    case OPTION_TEXT:
        *(const char **)field = text;
        return *text ? 0 : -EINVAL;
    case OPTION_TEXTS:
        return read_texts(row, field, text);
    case OPTION_OTHER:
        return row->read(row, field, text);
    }
    return -EINVAL;
}

/* Why a value was refused. */
static int refuse_value(const struct option_row *row, const char *text, char *err, size_t err_bytes)
{
    switch (row->kind) {
    case OPTION_U32:
    case OPTION_I32:
    case OPTION_U64:
        if (row->most >= OPTION_U64_MAX)
            return refuse(err, err_bytes, "%s '%s': give a whole number from %.0f to 2^64 - 1",
                          row->name, text, row->least);
        return refuse(err, err_bytes, "%s '%s': give a whole number from %.0f to %.0f", row->name,
                      text, row->least, row->most);
    case OPTION_F32:
        return refuse(err, err_bytes, "%s '%s': give a number from %g to %g", row->name, text,
                      row->least, row->most);
    case OPTION_SWITCH:
        return refuse(err, err_bytes, "%s '%s': give yes or no", row->name, text);
    case OPTION_CHOICE:
    case OPTION_WORD:
        return refuse(err, err_bytes, "%s '%s': give one of %s", row->name, text, row->value);
    case OPTION_TEXT:
        return refuse(err, err_bytes, "%s is empty: give %s", row->name, row->value);
    case OPTION_TEXTS:
        return refuse(err, err_bytes, "%s '%.40s': give %.0f to %.0f bytes, and %d of them at most",
                      row->name, text, row->least, row->most, OPTION_TEXTS_MAX);
    default:
        return refuse(err, err_bytes, "%s '%s': give %s", row->name, text, row->value);
    }
}

int options_set(const struct options *o, const struct option_row *row, const char *text, char *err,
                size_t err_bytes)
{
    int rc = read_value(row, field_of(o, row), text);
    if (rc == -EINVAL)
        return refuse_value(row, text, err, err_bytes);
    if (rc)
        refuse(err, err_bytes, "%s: out of memory", row->name);
    return rc;
}

void options_init(const struct options *o)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->rows[i].def)
            (void)read_value(&o->rows[i], field_of(o, &o->rows[i]), o->rows[i].def);
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Takes the option at argv[*at]; moves *at to the last word that it used. */
static int parse_option(const struct options *o, int argc, char **argv, int *at, char *err,
                        size_t err_bytes)
{
    const char *word = argv[*at], *value = NULL;
    const struct option_row *row;
    if (word[1] == '-') {
        size_t bytes = strcspn(word + 2, "=");
        row = options_find(o, word + 2, bytes);
        value = word[2 + bytes] ? word + 3 + bytes : NULL;
    } else {
        row = find_letter(o, word[1]);
        value = word[1] && word[2] ? word + 2 : NULL;
    }
    if (!row)
        return refuse(err, err_bytes, "unknown option %s: see --help%s", word,
                      o->takes_words ? ", or put -- before a word that is not an option" : "");
    if (row->kind == OPTION_FLAG && value)
        return refuse(err, err_bytes, "--%s takes no value: leave out '%s'", row->name, value);
    if (!value && (row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH))
        value = "yes";
    else if (!value && *at + 1 < argc)
        value = argv[++*at];
    if (!value)
        return refuse(err, err_bytes, "--%s needs a value: %s", row->name, row->value);
    if (o->given)
        o->given[row - o->rows] = true;
    snprintf(err, err_bytes, "--");
    return options_set(o, row, value, err + 2, err_bytes - 2);
}

int options_parse(const struct options *o, int argc, char **argv, char *err, size_t err_bytes)
{
    int n_words = 0;
    bool only_words = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        int rc = 0;
        if (!only_words && word[0] == '-' && word[1] && strcmp(word, "--") != 0)
            rc = parse_option(o, argc, argv, &i, err, err_bytes);
        else if (!o->takes_words)
            rc = refuse(err, err_bytes, "'%s' is not an option: see --help", word);
        else if (!only_words && strcmp(word, "--") == 0)
            only_words = true;
        else
            argv[n_words++] = word;
        if (rc)
            return rc;
    }
    return n_words;
}

/* ---- what people read ------------------------------------------------------------------------ */

void options_help(const struct options *o, FILE *out)
{
    bool has_letters = false;
    for (size_t i = 0; i < o->n; i++)
        has_letters |= o->rows[i].letter != 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct option_row *row = &o->rows[i];
        char left[96], letter[8] = "    ";
        if (!applies(o, row))
            continue;
        if (row->letter)
            snprintf(letter, sizeof(letter), "-%c, ", row->letter);
        snprintf(left, sizeof(left), "%s--%s %s", has_letters ? letter : "", row->name,
                 row->value ? row->value : "");
        fprintf(out, "  %-26s %s", left, row->help);
        if (row->def)
            fprintf(out, " (%s)", row->def);
        fputc('\n', out);
    }
}

const char *option_choice(const char *list, uint32_t index, char *text, size_t bytes)
{
    while (index-- && *list)
        list += strcspn(list, "|") + 1;
    snprintf(text, bytes, "%.*s", (int)strcspn(list, "|"), list);
    return text;
}

const char *options_value(const struct options *o, const struct option_row *row, char *text,
                          size_t bytes)
{
    const void *field = field_of(o, row);
    const char *def = row->def ? row->def : "0";
    switch (row->kind) {
    case OPTION_TEXT:
    case OPTION_WORD:
        return *(const char *const *)field;
    case OPTION_U32:
        snprintf(text, bytes, "%" PRIu32, *(const uint32_t *)field);
        break;
    case OPTION_U64:
        snprintf(text, bytes, "%" PRIu64, *(const uint64_t *)field);
        break;
    case OPTION_CHOICE:
        option_choice(row->value, *(const uint32_t *)field, text, bytes);
        break;
    default:
        return NULL;
    }
    return strcmp(text, def) == 0 ? NULL : text;
}
