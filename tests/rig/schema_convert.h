/* schema_convert: a schema's grammar, and whether it accepts a text. */
#ifndef HEARTH_TESTS_RIG_SCHEMA_CONVERT_H
#define HEARTH_TESTS_RIG_SCHEMA_CONVERT_H

#include "client/schema/schema.h"

#include <stdbool.h>

/* The results of the last conversion. */
extern char schema_grammar[SCHEMA_GRAMMAR_MAX + 1], schema_err[600];

/* Converts like hearth_schema. */
int64_t schema_convert(const char *json);

/* True when the last grammar accepts the whole text. name: for messages. */
bool schema_takes(const char *name, const char *text);

/* The same of any grammar. */
bool schema_grammar_takes(const char *name, const char *grammar, size_t bytes, const char *text);

#endif
