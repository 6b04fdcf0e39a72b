/* grammar_reference: see grammar_reference.h. */
#include "tests/rig/grammar_reference.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 64 };

/* ---- productive nodes ------------------------------------------------------------------------ */

static bool find_productive(const struct reference *r, const struct ast *node)
{
    const struct ast_tree *t = &r->tree;
    switch (node->kind) {
    case AST_LITERAL:
    case AST_CLASS:
        return true;
    case AST_RULE:
        return r->productive[t->rules[node->a].tree];
    case AST_SEQUENCE:
        for (uint32_t i = node->a; i != GRAMMAR_NONE; i = t->nodes[i].sibling)
            if (!r->productive[i])
                return false;
        return true;
    case AST_CHOICE:
        for (uint32_t i = node->a; i != GRAMMAR_NONE; i = t->nodes[i].sibling)
            if (r->productive[i])
                return true;
        return false;
    case AST_REPEAT:
        return node->b == 0 || r->productive[node->a];
    }
    return false;
}

int reference_open(struct reference *r, const char *grammar, size_t bytes)
{
    char err[200];
    *r = (struct reference){.text = malloc(bytes + 1)};
    assert(r->text);
    memcpy(r->text, grammar, bytes);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): reference_close frees the text */
    int rc = grammar_parse(r->text, bytes, &r->tree, err, sizeof(err));
    if (rc < 0) {
        reference_close(r);
        return rc;
    }
    size_t n = r->tree.n_nodes;
    r->productive = calloc(n, 1);
    r->known = calloc(n, PLACES);
    r->ends = calloc(n * PLACES, sizeof(*r->ends));
    r->partial = calloc(n, PLACES);
    assert(r->productive && r->known && r->ends && r->partial);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < n; i++)
            if (!r->productive[i] && find_productive(r, &r->tree.nodes[i]))
                r->productive[i] = changed = true;
    }
    return 0;
}

void reference_close(struct reference *r)
{
    grammar_tree_free(&r->tree);
    free(r->text);
    free(r->productive);
    free(r->known);
    free(r->ends);
    free(r->partial);
}

/* ---- characters ------------------------------------------------------------------------------ */

static bool in_class(const struct reference *r, const struct ast *node, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < node->b; i++) {
        const struct ast_range *range = &r->tree.ranges[node->a + i];
        if (range->from <= to && from <= range->to)
            return true;
    }
    return false;
}

/* The code points whose encoding of `length` bytes begins with the text's bytes [i, n), or is the
 * bytes at i: [*from, *to]. False when there is none. */
static bool points_of(const struct reference *r, uint32_t i, uint32_t length, uint32_t *from,
                      uint32_t *to)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    static const uint32_t most[5] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
    uint32_t low = 0, high = 0;
    for (uint32_t k = 0; k < length; k++) {
        uint32_t lead = length == 1 ? 0 : 0xf00u >> length & 0xff;
        uint32_t bits = k > 0 ? 6 : length == 1 ? 7 : 7 - length;
        uint32_t mask = (1u << bits) - 1;
        low <<= bits;
        high <<= bits;
        if (i + k >= r->n) {
            high |= mask;
            continue;
        }
        uint8_t byte = r->bytes[i + k];
        if ((byte & ~mask & 0xff) != (k > 0 ? 0x80 : lead))
            return false;
        low |= byte & mask;
        high |= byte & mask;
    }
    *from = low > least[length] ? low : least[length];
    *to = high < most[length] ? high : most[length];
    return *from <= *to;
}

static uint64_t match_class(const struct reference *r, const struct ast *node, uint32_t i,
                            bool *ret_partial)
{
    uint64_t ends = 0;
    *ret_partial = i == r->n;
    for (uint32_t length = 1; length <= 4 && i < r->n; length++) {
        uint32_t from, to;
        if (!points_of(r, i, length, &from, &to) || !in_class(r, node, from, to))
            continue;
        if (i + length <= r->n)
            ends |= (uint64_t)1 << (i + length);
        else
            *ret_partial = true;
    }
    return ends;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint64_t match(struct reference *r, uint32_t index, uint32_t i, bool *ret_partial);

/* The ends of matches of `index` from any place in `from`. */
static uint64_t match_all(struct reference *r, uint32_t index, uint64_t from, bool *ret_partial)
{
    uint64_t ends = 0;
    *ret_partial = false;
    for (uint32_t i = 0; i <= r->n; i++) {
        bool partial = false;
        if ((from >> i & 1) != 0)
            ends |= match(r, index, i, &partial);
        *ret_partial |= partial;
    }
    return ends;
}

static uint64_t match_sequence(struct reference *r, const struct ast *node, uint32_t i,
                               bool *ret_partial)
{
    uint64_t at = (uint64_t)1 << i;
    *ret_partial = false;
    for (uint32_t k = node->a; k != GRAMMAR_NONE; k = r->tree.nodes[k].sibling) {
        bool partial, rest = true;
        at = match_all(r, k, at, &partial);
        for (uint32_t j = r->tree.nodes[k].sibling; j != GRAMMAR_NONE; j = r->tree.nodes[j].sibling)
            rest = rest && r->productive[j];
        *ret_partial |= partial && rest;
    }
    return at;
}

static uint64_t match_repeat(struct reference *r, const struct ast *node, uint32_t i,
                             bool *ret_partial)
{
    uint64_t at = (uint64_t)1 << i, ends = node->b == 0 ? at : 0;
    *ret_partial = false;
    for (uint32_t k = 1; k <= node->c && at != 0; k++) {
        bool partial;
        uint64_t before = at;
        at = match_all(r, node->a, at, &partial);
        *ret_partial |= partial && r->productive[node->a];
        if (k >= node->b) {
            if (at == before || (node->c == GRAMMAR_NONE && (ends | at) == ends))
                return ends | at; /* further repeats add nothing */
            ends |= at;
        } else if (at == before && at != 0 && k > PLACES) {
            return ends | at; /* only the empty text repeats */
        }
    }
    return ends;
}

static uint64_t match_choice(struct reference *r, const struct ast *node, uint32_t i,
                             bool *ret_partial)
{
    uint64_t ends = 0;
    *ret_partial = false;
    for (uint32_t k = node->a; k != GRAMMAR_NONE; k = r->tree.nodes[k].sibling) {
        bool partial;
        ends |= match(r, k, i, &partial);
        *ret_partial |= partial && r->productive[k];
    }
    return ends;
}

static uint64_t match_literal(const struct reference *r, const struct ast *node, uint32_t i,
                              bool *ret_partial)
{
    uint32_t n = node->b < r->n - i ? node->b : r->n - i;
    bool same = n == 0 || !memcmp(r->tree.bytes + node->a, r->bytes + i, n);
    *ret_partial = same && n < node->b;
    return same && n == node->b ? (uint64_t)1 << (i + n) : 0;
}

static uint64_t match(struct reference *r, uint32_t index, uint32_t i, bool *ret_partial)
{
    const struct ast *node = &r->tree.nodes[index];
    size_t cell = (size_t)index * PLACES + i;
    bool partial = false;
    if (!r->known[cell]) {
        r->ends[cell] = node->kind == AST_LITERAL    ? match_literal(r, node, i, &partial)
                        : node->kind == AST_CLASS    ? match_class(r, node, i, &partial)
                        : node->kind == AST_SEQUENCE ? match_sequence(r, node, i, &partial)
                        : node->kind == AST_CHOICE   ? match_choice(r, node, i, &partial)
                        : node->kind == AST_REPEAT
                            ? match_repeat(r, node, i, &partial)
                            : match(r, r->tree.rules[node->a].tree, i, &partial);
        r->partial[cell] = partial;
        r->known[cell] = 1;
    }
    *ret_partial = r->partial[cell];
    return r->ends[cell];
}

bool reference_match(struct reference *r, const void *bytes, uint32_t n, bool *ret_whole)
{
    bool partial;
    assert(n <= REFERENCE_BYTES_MAX);
    r->bytes = bytes;
    r->n = n;
    memset(r->known, 0, (size_t)r->tree.n_nodes * PLACES);
    uint64_t ends = match(r, r->tree.rules[r->tree.root].tree, 0, &partial);
    *ret_whole = (ends >> n & 1) != 0;
    return partial || *ret_whole;
}
