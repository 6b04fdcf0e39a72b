/* schema_fits: does a JSON value follow a schema? For what a grammar cannot bind: the keywords that
 * are refused there are checked here. Not looked at: "pattern" and "format" of texts, keys of
 * "patternProperties", references out of the schema. One thread at a time; keeps no state. */
#ifndef HEARTH_CLIENT_SCHEMA_SCHEMA_FITS_H
#define HEARTH_CLIENT_SCHEMA_SCHEMA_FITS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns false with one line that names the place in the value, as a JSON pointer, and the keyword.
 * True, too, where the check takes too many steps. */
bool schema_fits(const json_t *schema, const json_t *value, char *why, size_t why_bytes);

#endif
