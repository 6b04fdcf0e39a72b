/* jinja_render: renders a template with variables from a JSON text. */
#ifndef HEARTH_TESTS_RIG_JINJA_RENDER_H
#define HEARTH_TESTS_RIG_JINJA_RENDER_H

#include "client/jinja/jinja.h"

/* The error of the last template that failed. */
extern char jinja_err[400];

/* data: a JSON object of variables, or NULL. A value "user" of a key `role` counts as the
 * template's own text, not as input. */
int jinja_with(const char *source, size_t bytes, const char *data, struct jinja_output *o);

void jinja_prints(const char *source, const char *data, const char *want);
void jinja_fails(const char *source, int code, const char *part);

#endif
