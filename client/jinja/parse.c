/* Statements: text, {{ output }} and {% tags %}. */
#include "client/jinja/node.h"

#include <errno.h>

static void expect_end(struct parser *p)
{
    if (p->t->kind != TOKEN_TAG_END)
        parser_fault(p, "the end of the tag");
    p->t++;
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* Statements up to a tag of one of these names ("" for an unused place), which is not consumed: the
 * parser stands at its name. */
static struct node *parse_body(struct parser *p, const char *const ends[3]);

/* The body up to {% END %}, and that tag. */
static struct node *parse_to(struct parser *p, const char *end)
{
    const char *const ends[3] = {end, "", ""};
    struct node *body = parse_body(p, ends);
    p->t++;
    expect_end(p);
    return body;
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[3] = {"elif", "else", "endif"};
    struct node *first = NULL, *n = NULL;
    do { /* at `if` or `elif` */
        struct node *last = n;
        p->t++;
        n = parser_node(p, NODE_IF);
        n->a = parse_tuple(p, true);
        expect_end(p);
        n->b = parse_body(p, ends);
        if (last) {
            last->flag = true;
            last->c = n;
        } else {
            first = n;
        }
    } while (parser_is_name(p, "elif"));
    if (parser_skip_name(p, "else")) {
        expect_end(p);
        n->c = parse_to(p, "endif");
    } else {
        p->t++;
        expect_end(p);
    }
    return first;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[3] = {"else", "endfor", ""};
    struct node *n = parser_node(p, NODE_FOR);
    p->t++;
    n->a = parse_target(p);
    if (!parser_skip_name(p, "in"))
        parser_fault(p, "'in'");
    n->b = parse_tuple(p, false);
    if (parser_skip_name(p, "if"))
        n->c = parse_expression(p);
    n->flag = parser_skip_name(p, "recursive");
    expect_end(p);
    n->d = parse_body(p, ends);
    if (parser_skip_name(p, "else")) {
        expect_end(p);
        n->e = parse_to(p, "endfor");
    } else {
        p->t++;
        expect_end(p);
    }
    return n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parser_node(p, NODE_SET);
    p->t++;
    n->a = parse_target(p);
    if (parser_skip_sign(p, '=')) {
        n->b = parse_tuple(p, true);
        expect_end(p);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    if (parser_skip_sign(p, '|'))
        n->c = parse_filters(p);
    expect_end(p);
    n->b = parse_to(p, "endset");
    return n;
}

/* Parameters up to the parenthesis, with their defaults. */
static struct node *parse_parameters(struct parser *p)
{
    struct chain all = {0};
    while (!parser_skip_sign(p, ')')) {
        struct node *n = parser_node(p, NODE_KEYWORD);
        n->name = parser_take_name(p);
        if (parser_skip_sign(p, '='))
            n->a = parse_expression(p);
        chain_add(&all, n);
        if (!parser_is_sign(p, ')'))
            parser_expect_sign(p, ',');
    }
    return all.first;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parser_node(p, NODE_MACRO);
    p->t++;
    n->name = parser_take_name(p);
    parser_expect_sign(p, '(');
    n->a = parse_parameters(p);
    expect_end(p);
    n->b = parse_to(p, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = parser_node(p, NODE_CALL_BLOCK), *block = parser_node(p, NODE_MACRO);
    p->t++;
    block->name = names_find(p->names, "caller", 6);
    if (parser_skip_sign(p, '('))
        block->a = parse_parameters(p);
    n->a = parse_primary_call(p);
    expect_end(p);
    block->b = parse_to(p, "endcall");
    n->b = block;
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parser_node(p, NODE_FILTER_BLOCK);
    p->t++;
    n->a = parse_filters(p);
    expect_end(p);
    n->b = parse_to(p, "endfilter");
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = parser_node(p, NODE_WITH);
    struct chain sets = {0};
    p->t++;
    while (p->t->kind != TOKEN_TAG_END) {
        struct node *set = parser_node(p, NODE_SET);
        set->a = parser_node(p, NODE_NAME);
        set->a->name = parser_take_name(p);
        parser_expect_sign(p, '=');
        set->b = parse_expression(p);
        chain_add(&sets, set);
        if (!parser_skip_sign(p, ','))
            break;
    }
    expect_end(p);
    n->a = sets.first;
    n->b = parse_to(p, "endwith");
    return n;
}

static struct node *parse_generation(struct parser *p)
{
    struct node *n = parser_node(p, NODE_SCOPE);
    p->t++;
    expect_end(p);
    n->b = parse_to(p, "endgeneration");
    return n;
}

static struct node *parse_do(struct parser *p)
{
    struct node *n = parser_node(p, NODE_DO);
    p->t++;
    n->a = parse_tuple(p, true);
    expect_end(p);
    return n;
}

static struct node *parse_break(struct parser *p)
{
    struct node *n = parser_node(p, NODE_BREAK);
    p->t++;
    expect_end(p);
    return n;
}

static struct node *parse_continue(struct parser *p)
{
    struct node *n = parse_break(p);
    n->kind = NODE_CONTINUE;
    return n;
}

static const struct {
    const char *name;
    struct node *(*parse)(struct parser *p);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"do", parse_do},
    {"break", parse_break},
    {"continue", parse_continue},
};

static struct node *parse_tag(struct parser *p)
{
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++)
        if (parser_is_name(p, tags[i].name)) {
            parser_enter(p);
            struct node *n = tags[i].parse(p);
            parser_leave(p);
            return n;
        }
    parser_fault(p, "a tag that hearth knows");
}

static struct node *parse_output(struct parser *p)
{
    struct node *n = parser_node(p, NODE_OUTPUT);
    n->a = parse_tuple(p, true);
    if (p->t->kind != TOKEN_OUTPUT_END)
        parser_fault(p, "'}}'");
    p->t++;
    return n;
}

static struct node *parse_body(struct parser *p, const char *const ends[3])
{
    struct chain all = {0};
    for (;;) {
        const struct token *t = p->t;
        p->heap->line = t->line;
        if (t->kind == TOKEN_END) {
            if (!*ends[0])
                return all.first;
            heap_fault(p->heap, -EINVAL, "the template ends without {%% %s %%}",
                       *ends[2]   ? ends[2]
                       : *ends[1] ? ends[1]
                                  : ends[0]);
        }
        p->t++;
        if (t->kind == TOKEN_DATA) {
            struct node *n = parser_node(p, NODE_TEXT);
            n->value = value_text(t->text, t->bytes);
            chain_add(&all, n);
            continue;
        }
        if (t->kind == TOKEN_OUTPUT_BEGIN) {
            chain_add(&all, parse_output(p));
            continue;
        }
        for (int i = 0; i < 3; i++)
            if (*ends[i] && parser_is_name(p, ends[i]))
                return all.first;
        chain_add(&all, parse_tag(p));
    }
}

struct node *parse(struct names *names, const char *source, size_t bytes)
{
    static const char *const none[3] = {"", "", ""};
    struct parser p = {.heap = names->heap, .names = names};
    p.t = lex(names->heap, source, bytes);
    return parse_body(&p, none);
}
