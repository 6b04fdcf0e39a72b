/* schema_fits: does a JSON value follow a schema? For what a grammar cannot bind: the keywords that
 * are refused there are checked here. Not looked at: "pattern" and "format" of texts, keys of
 * "patternProperties", references out of the schema. One thread at a time; keeps no state. */
#ifndef HEARTH_CLIENT_SCHEMA_SCHEMA_FITS_H
#define HEARTH_CLIENT_SCHEMA_SCHEMA_FITS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* For the calls of one answer, some tenths of a second at most. */
enum { SCHEMA_FITS_STEPS = 200000 };

/* Returns false with one line that names the place in the value, as a JSON pointer, and the keyword.
 * Each part of the schema or the value that is looked at is a step, also inside of constants that are
 * compared; *steps says how many there may be, and then how many are left. True, too, where there
 * were too few. */
bool schema_fits(const json_t *schema, const json_t *value, size_t *steps, char *why,
                 size_t why_bytes);

#endif
