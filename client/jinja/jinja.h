/* jinja: renders chat templates, as far as the `transformers` library does: Jinja with
 * trim_blocks, lstrip_blocks and loop controls, values as Python prints them, and the functions
 * raise_exception and strftime_now.
 *
 * A template is an untrusted program: memory, steps and nesting are bounded, it reads and
 * calls only what it is given, and any error is one line. The output says which of
 * its parts came from input values, whatever was done to them (trimmed, joined,
 * replaced, dumped as JSON), so that a message cannot bring control tokens of its own.
 *
 * Any thread; nothing is shared between calls. It never prints. */
#ifndef HEARTH_CLIENT_JINJA_JINJA_H
#define HEARTH_CLIENT_JINJA_JINJA_H

#include "client/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_variable {
    const char *name;
    const json_t *value; /* an input value; NULL: `text` */
    const char *text;    /* the template's own, such as the text of a control token */
    size_t bytes;
};

struct jinja_desc {
    const char *source; /* [source_bytes] the template */
    size_t source_bytes;
    const struct jinja_variable *variables; /* [n_variables] the later wins */
    uint32_t n_variables;
    int64_t now; /* seconds since 1970, shown by strftime_now in local time */
    /* Is the member `key` of an object, with this text, a word that the template may put into a
     * control token (a role, in "<|user|>")? Then it counts as the template's own. NULL: none
     * is. */
    bool (*is_word)(const char *key, const char *text, size_t bytes);
};

struct jinja_output {
    char *text; /* [bytes] and a 0; text and inputs are one allocation */
    size_t bytes;
    const struct token_span *inputs; /* [n_inputs] parts from input values, ascending */
    size_t n_inputs;
};

/* Renders. Returns 0, to be ended by jinja_output_fini; -EINVAL with one line for an error in the
 * template or one that it raises, and where something is nested too deeply; -E2BIG where it takes
 * too much, which less of its input may help; -ENOMEM. */
int jinja_render(const struct jinja_desc *desc, struct jinja_output *ret, char *err,
                 size_t err_bytes);
void jinja_output_fini(struct jinja_output *o);

/* Is this a template? What it does with its input is not known before it renders. Returns as
 * jinja_render. */
int jinja_check(const char *source, size_t source_bytes, char *err, size_t err_bytes);

#endif
