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

/* Statements up to a tag with one of these names ("": unused). The tag is not consumed: the parser
 * then stands at its name. */
static struct node *parse_body(struct parser *p, const char *const ends[3]);

/* After what a tag says: its end, the body, and {% END %}. */
static struct node *parse_to(struct parser *p, const char *end)
{
    const char *const ends[3] = {end, "", ""};
    expect_end(p);
    struct node *body = parse_body(p, ends);
    p->t++;
    expect_end(p);
    return body;
}

/* After a body: the statements of {% else %}, if any, and {% END %}. */
static struct node *parse_else(struct parser *p, const char *end)
{
    if (parser_skip_name(p, "else"))
        return parse_to(p, end);
    p->t++;
    expect_end(p);
    return NULL;
}

/* The parser of a tag stands after the tag's name. */
static void parse_if(struct parser *p, struct node *n)
{
    static const char *const ends[3] = {"elif", "else", "endif"};
    for (;;) {
        n->a = parse_tuple(p, true);
        expect_end(p);
        n->b = parse_body(p, ends);
        if (!parser_is_name(p, "elif"))
            break;
        n->flag = true;
        n->c = parser_node(p, NODE_IF);
        n = n->c;
        p->t++;
    }
    n->c = parse_else(p, "endif");
}

static void parse_for(struct parser *p, struct node *n)
{
    static const char *const ends[3] = {"else", "endfor", ""};
    n->a = parse_target(p);
    if (!parser_skip_name(p, "in"))
        parser_fault(p, "'in'");
    n->b = parse_tuple(p, false);
    if (parser_skip_name(p, "if"))
        n->c = parse_expression(p);
    n->flag = parser_skip_name(p, "recursive");
    expect_end(p);
    n->d = parse_body(p, ends);
    n->e = parse_else(p, "endfor");
}

static void parse_set(struct parser *p, struct node *n)
{
    n->a = parse_target(p);
    if (parser_skip_sign(p, '=')) {
        n->b = parse_tuple(p, true);
        expect_end(p);
        return;
    }
    n->kind = NODE_SET_BLOCK;
    if (parser_skip_sign(p, '|'))
        n->c = parse_filters(p);
    n->b = parse_to(p, "endset");
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

static void parse_macro(struct parser *p, struct node *n)
{
    n->name = parser_take_name(p);
    parser_expect_sign(p, '(');
    n->a = parse_parameters(p);
    n->b = parse_to(p, "endmacro");
}

static void parse_call_block(struct parser *p, struct node *n)
{
    n->b = parser_node(p, NODE_MACRO);
    n->b->name = names_find(p->names, "caller", 6);
    if (parser_skip_sign(p, '('))
        n->b->a = parse_parameters(p);
    n->a = parse_primary_call(p);
    n->b->b = parse_to(p, "endcall");
}

static void parse_filter_block(struct parser *p, struct node *n)
{
    n->a = parse_filters(p);
    n->b = parse_to(p, "endfilter");
}

static void parse_with(struct parser *p, struct node *n)
{
    struct chain sets = {0};
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
    n->a = sets.first;
    n->b = parse_to(p, "endwith");
}

static void parse_generation(struct parser *p, struct node *n)
{
    n->b = parse_to(p, "endgeneration");
}

static void parse_do(struct parser *p, struct node *n)
{
    n->a = parse_tuple(p, true);
    expect_end(p);
}

static void parse_word(struct parser *p, struct node *n)
{
    (void)n;
    expect_end(p);
}

static const struct {
    const char *name;
    enum node_kind kind;
    void (*parse)(struct parser *p, struct node *n);
} tags[] = {
    {"if", NODE_IF, parse_if},
    {"for", NODE_FOR, parse_for},
    {"set", NODE_SET, parse_set},
    {"macro", NODE_MACRO, parse_macro},
    {"call", NODE_CALL_BLOCK, parse_call_block},
    {"filter", NODE_FILTER_BLOCK, parse_filter_block},
    {"with", NODE_WITH, parse_with},
    {"generation", NODE_SCOPE, parse_generation},
    {"do", NODE_DO, parse_do},
    {"break", NODE_BREAK, parse_word},
    {"continue", NODE_CONTINUE, parse_word},
};

static struct node *parse_tag(struct parser *p)
{
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++)
        if (parser_is_name(p, tags[i].name)) {
            struct node *n = parser_node(p, tags[i].kind);
            parser_enter(p);
            p->t++;
            tags[i].parse(p, n);
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
