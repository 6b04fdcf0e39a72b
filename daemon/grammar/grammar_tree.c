/* grammar_tree.c: the tree's arrays, its rules by name, and the error line. */
#include "daemon/grammar/grammar_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NAME_SHOWN = 40, LINE_SHOWN = 160 };

int grammar_grow(void **items, uint32_t *room, uint32_t n, size_t item_bytes)
{
    if (n < *room)
        return 0;
    const uint32_t more = *room > 0 ? *room * 2 : 16;
    void *grown = realloc(*items, more * item_bytes);
    if (grown == NULL)
        return -ENOMEM;
    *items = grown;
    *room = more;
    return 0;
}

int grammar_draw_key(uint64_t *ret)
{
    return getrandom(ret, sizeof(*ret), 0) == sizeof(*ret) ? 0 : -ENOMEM;
}

int grammar_fail(const struct ast_tree *t, uint32_t at, const char *format, ...)
{
    uint32_t line = 1, column = 1;
    for (uint32_t i = 0; i < at && i < t->text_bytes; i++) {
        const uint8_t byte = (uint8_t)t->text[i];
        column += (byte & 0xc0) != 0x80; /* counts code points */
        if (byte == '\n') {
            line++;
            column = 1;
        }
    }
    char what[LINE_SHOWN];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (t->err_bytes > 0)
        snprintf(t->err, t->err_bytes, "grammar line %u, column %u: %s", line, column, what);
    for (size_t i = 0; i < t->err_bytes && t->err[i] != 0; i++) /* names are the client's */
        if (t->err[i] < 0x20 || t->err[i] > 0x7e)
            t->err[i] = '?';
    return -EINVAL;
}

/* ---- rules by name --------------------------------------------------------------------------- */

static uint32_t hash_name(const struct ast_tree *t, uint32_t at, uint32_t bytes)
{
    uint64_t hash = t->key;
    for (uint32_t k = 0; k < bytes; k++) {
        hash = (hash ^ (uint8_t)t->text[at + k]) * 0x9e3779b185ebca87u;
        hash ^= hash >> 32; /* all of the key tells what the next byte does */
    }
    return (uint32_t)hash;
}

static int grow_names(struct ast_tree *t)
{
    const uint32_t n = t->n_names > 0 ? t->n_names * 2 : 64;
    uint32_t *names = calloc(n, sizeof(*names));
    if (names == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < t->n_names; i++) {
        if (t->names[i] == 0)
            continue;
        const struct ast_rule *r = &t->rules[t->names[i] - 1];
        uint32_t slot = hash_name(t, r->name_at, r->name_bytes) & (n - 1);
        while (names[slot] != 0)
            slot = (slot + 1) & (n - 1);
        names[slot] = t->names[i];
    }
    free(t->names);
    t->names = names;
    t->n_names = n;
    return 0;
}

int64_t grammar_find_rule(struct ast_tree *t, uint32_t at, uint32_t bytes)
{
    if (t->n_rules * 2 >= t->n_names && grow_names(t) < 0)
        return -ENOMEM;
    uint32_t slot = hash_name(t, at, bytes) & (t->n_names - 1);
    for (; t->names[slot] != 0; slot = (slot + 1) & (t->n_names - 1)) {
        const struct ast_rule *r = &t->rules[t->names[slot] - 1];
        if (r->name_bytes == bytes && memcmp(t->text + r->name_at, t->text + at, bytes) == 0)
            return t->names[slot] - 1;
    }
    if (t->n_rules == GRAMMAR_RULES_MAX)
        return grammar_fail(t, at, "more than %d rules", GRAMMAR_RULES_MAX);
    if (GROW(t->rules, t->room_rules, t->n_rules) < 0)
        return -ENOMEM;
    t->rules[t->n_rules] = (struct ast_rule){at, bytes, GRAMMAR_NONE, at};
    t->names[slot] = ++t->n_rules;
    return t->n_rules - 1;
}

int grammar_check_rules(struct ast_tree *t)
{
    t->root = GRAMMAR_NONE;
    for (uint32_t i = 0; i < t->n_rules; i++) {
        const struct ast_rule *r = &t->rules[i];
        const int shown = (int)(r->name_bytes < NAME_SHOWN ? r->name_bytes : NAME_SHOWN);
        if (r->tree == GRAMMAR_NONE)
            return grammar_fail(t, r->at, "rule %.*s is not defined", shown, t->text + r->name_at);
        if (r->name_bytes == 4 && memcmp(t->text + r->name_at, "root", 4) == 0)
            t->root = i;
    }
    if (t->root == GRAMMAR_NONE)
        return grammar_fail(t, 0, "missing rule 'root' (the start rule)");
    return 0;
}

void grammar_tree_free(struct ast_tree *t)
{
    free(t->nodes);
    free(t->rules);
    free(t->names);
    free(t->bytes);
    free(t->ranges);
}
