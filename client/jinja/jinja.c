/* jinja: see jinja.h. */
#include "client/jinja/jinja.h"

#include "client/jinja/eval.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 256 << 20, MOST_STEPS = 20 * 1000 * 1000, MOST_DEPTH = 150 };

struct job {
    struct heap heap;
    struct names names;
    struct eval eval;
    struct buf out;
    const struct jinja_desc *desc;
    struct jinja_output *ret;
};

/* ---- input ----------------------------------------------------------------------------------- */

static struct value import(struct job *j, const char *key, const json_t *value, unsigned depth);

static struct value import_string(struct job *j, const char *key, const json_t *value)
{
    struct value v = value_text(json_string_value(value), json_string_length(value));
    bool word = key && j->desc->is_word && j->desc->is_word(key, v.text, v.bytes);
    v.origin = word ? ORIGIN_TEMPLATE : ORIGIN_INPUT;
    return v;
}

static struct value import_object(struct job *j, const json_t *value, unsigned depth)
{
    struct value v = value_dict(&j->heap);
    /* The iterator of a const object is not written through. */
    for (void *at = json_object_iter((json_t *)value); at;
         at = json_object_iter_next((json_t *)value, at)) {
        const char *name = json_object_iter_key(at);
        struct value key = value_literal(name);
        key.origin = ORIGIN_INPUT;
        dict_add(&j->heap, v.dict, key, import(j, name, json_object_iter_value(at), depth + 1));
    }
    return v;
}

static struct value import_array(struct job *j, const json_t *value, unsigned depth)
{
    struct value v = value_list(&j->heap);
    for (size_t i = 0; i < json_array_size(value); i++)
        list_push(&j->heap, v.list, import(j, NULL, json_array_get(value, i), depth + 1));
    return v;
}

static struct value import(struct job *j, const char *key, const json_t *value, unsigned depth)
{
    heap_charge(&j->heap, 1);
    if (depth > MOST_DEPTH)
        heap_fault(&j->heap, -EINVAL, "an input value is nested too deeply");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return import_object(j, value, depth);
    case JSON_ARRAY:
        return import_array(j, value, depth);
    case JSON_STRING:
        return import_string(j, key, value);
    case JSON_INTEGER:
        return value_integer(json_integer_value(value));
    case JSON_REAL:
        return value_float(json_real_value(value));
    case JSON_TRUE:
    case JSON_FALSE:
        return value_bool(json_is_true(value));
    default:
        return value_none();
    }
}

static void define_all(struct job *j)
{
    struct scope *root = heap_take(&j->heap, sizeof(*root));
    struct scope *top = heap_take(&j->heap, sizeof(*top));
    for (size_t i = 0; i < n_globals; i++)
        scope_set(&j->eval, root, names_find(&j->names, globals[i].name, strlen(globals[i].name)),
                  (struct value){.kind = VALUE_BUILTIN, .builtin = &globals[i]});
    for (uint32_t i = 0; i < j->desc->n_variables; i++) {
        const struct jinja_variable *v = &j->desc->variables[i];
        struct value value =
            v->value ? import(j, NULL, v->value, 0) : value_text(v->text, v->bytes);
        scope_set(&j->eval, root, names_find(&j->names, v->name, strlen(v->name)), value);
    }
    top->up = root;
    j->eval.scope = top;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* The next part of s from input values at or after *at; false: none. */
static bool next_input(struct value s, size_t *at, struct token_span *ret)
{
    if (s.origin != ORIGIN_MIXED) {
        *ret = (struct token_span){*at, s.bytes - *at};
        *at = s.bytes;
        return s.origin == ORIGIN_INPUT && ret->bytes > 0;
    }
    while (*at < s.bytes && s.origins[*at] != ORIGIN_INPUT)
        ++*at;
    ret->at = *at;
    while (*at < s.bytes && s.origins[*at] == ORIGIN_INPUT)
        ++*at;
    ret->bytes = *at - ret->at;
    return ret->bytes > 0;
}

static void give_out(struct job *j)
{
    struct value s = buf_value(&j->out);
    struct token_span span;
    size_t n = 0;
    for (size_t at = 0; next_input(s, &at, &span);)
        n++;
    /* Spans first, for their alignment. */
    struct token_span *inputs = malloc(n * sizeof(*inputs) + s.bytes + 1);
    if (!inputs)
        heap_fault(&j->heap, -ENOMEM, "out of memory: free some and try again");
    n = 0;
    for (size_t at = 0; next_input(s, &at, &span);)
        inputs[n++] = span;
    char *text = (char *)(inputs + n);
    if (s.bytes)
        memcpy(text, s.text, s.bytes);
    text[s.bytes] = 0;
    *j->ret =
        (struct jinja_output){.text = text, .bytes = s.bytes, .inputs = inputs, .n_inputs = n};
}

/* Everything that may fault. */
static void run(struct job *j)
{
    const struct node *tree = parse(&j->names, j->desc->source, j->desc->source_bytes);
    j->heap.line = 0;
    define_all(j);
    exec_nodes(&j->eval, tree);
    if (j->eval.flow != FLOW_ON)
        heap_fault(&j->heap, -EINVAL, "break or continue outside of a loop");
    give_out(j);
}

static void check(struct job *j)
{
    (void)parse(&j->names, j->desc->source, j->desc->source_bytes);
}

static int work(void (*what)(struct job *), const struct jinja_desc *desc, struct jinja_output *ret,
                char *err, size_t err_bytes)
{
    struct job *j = calloc(1, sizeof(*j));
    const locale_t plain = j ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
    if (!plain) {
        free(j);
        snprintf(err, err_bytes, "out of memory: free some and try again");
        return -ENOMEM;
    }
    /* The locale of the program that asks would write 0,5 for 0.5, and months in its language. */
    const locale_t before = uselocale(plain);
    heap_init(&j->heap, MOST_BYTES, MOST_STEPS);
    j->heap.err = err;
    j->heap.err_bytes = err_bytes;
    j->names.heap = &j->heap;
    j->desc = desc;
    j->ret = ret;
    j->out.heap = &j->heap;
    j->eval = (struct eval){.heap = &j->heap, .names = &j->names, .out = &j->out, .now = desc->now};
    if (setjmp(j->heap.escape) == 0)
        what(j);
    int code = j->heap.code;
    (void)uselocale(before);
    freelocale(plain);
    heap_fini(&j->heap);
    free(j);
    return code;
}

int jinja_render(const struct jinja_desc *desc, struct jinja_output *ret, char *err,
                 size_t err_bytes)
{
    memset(ret, 0, sizeof(*ret));
    return work(run, desc, ret, err, err_bytes);
}

int jinja_check(const char *source, size_t source_bytes, char *err, size_t err_bytes)
{
    const struct jinja_desc desc = {.source = source, .source_bytes = source_bytes};
    return work(check, &desc, NULL, err, err_bytes);
}

void jinja_output_fini(struct jinja_output *o)
{
    free((void *)o->inputs);
    memset(o, 0, sizeof(*o));
}
