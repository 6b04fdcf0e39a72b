/* parser: what the three files of the parser build on: names, nodes, chains and tokens. */
#include "client/jinja/node.h"

#include <errno.h>
#include <string.h>

enum { MOST_DEPTH = 120 };

const struct name *names_find(struct names *n, const char *text, size_t bytes)
{
    uint32_t hash = 2166136261u;
    heap_charge(n->heap, bytes / 32);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    struct name **at = &n->buckets[(hash ^ hash >> 16) % NAME_BUCKETS];
    for (; *at; at = &(*at)->next) {
        heap_charge(n->heap, 1 + ((*at)->bytes == bytes ? bytes / 64 : 0));
        if ((*at)->bytes == bytes && memcmp((*at)->text, text, bytes) == 0)
            return *at;
    }
    *at = heap_take(n->heap, sizeof(**at));
    **at = (struct name){.text = text, .bytes = bytes};
    return *at;
}

void chain_add(struct chain *c, struct node *n)
{
    *(c->last ? &c->last->next : &c->first) = n;
    c->last = n;
}

struct node *parser_node(struct parser *p, enum node_kind kind)
{
    struct node *n = heap_take(p->heap, sizeof(*n));
    n->kind = (uint8_t)kind;
    n->line = p->t->line;
    p->heap->line = p->t->line;
    return n;
}

struct node *parser_binary(struct parser *p, enum node_kind kind, unsigned op, struct node *a,
                           struct node *b)
{
    struct node *n = parser_node(p, kind);
    n->op = (uint16_t)op;
    n->a = a;
    n->b = b;
    return n;
}

void parser_enter(struct parser *p)
{
    p->heap->line = p->t->line;
    if (++p->depth > MOST_DEPTH)
        heap_fault(p->heap, -EINVAL, "it is nested too deeply");
}

void parser_leave(struct parser *p)
{
    p->depth--;
}

void parser_fault(struct parser *p, const char *wanted)
{
    p->heap->line = p->t->line;
    if (p->t->kind == TOKEN_END)
        heap_fault(p->heap, -EINVAL, "the template ends where %s should be", wanted);
    heap_fault(p->heap, -EINVAL, "found '%.*s' where %s should be",
               (int)(p->t->bytes < 40 ? p->t->bytes : 40), p->t->text, wanted);
}

bool parser_is_sign(const struct parser *p, unsigned sign)
{
    return p->t->kind == TOKEN_SIGN && p->t->sign == sign;
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return p->t->kind == TOKEN_NAME && p->t->bytes == strlen(name) &&
           memcmp(p->t->text, name, p->t->bytes) == 0;
}

bool parser_skip_sign(struct parser *p, unsigned sign)
{
    bool there = parser_is_sign(p, sign);
    p->t += there;
    return there;
}

bool parser_skip_name(struct parser *p, const char *name)
{
    bool there = parser_is_name(p, name);
    p->t += there;
    return there;
}

void parser_expect_sign(struct parser *p, unsigned sign)
{
    char wanted[4] = {'\'', (char)sign, '\'', 0};
    if (!parser_skip_sign(p, sign))
        parser_fault(p, wanted);
}

const struct name *parser_take_name(struct parser *p)
{
    if (p->t->kind != TOKEN_NAME)
        parser_fault(p, "a name");
    const struct name *name = names_find(p->names, p->t->text, p->t->bytes);
    p->t++;
    return name;
}
