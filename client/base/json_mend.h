/* json_mend: JSON that is right but for things that programs write all the same. Any thread. */
#ifndef HEARTH_CLIENT_BASE_JSON_MEND_H
#define HEARTH_CLIENT_BASE_JSON_MEND_H

#include <jansson.h>

/* As json_loadb(), which refuses halves of surrogate pairs and numbers that do not fit: an escape of
 * a half alone, as programs in JavaScript cut texts, becomes U+FFFD, and a number that does not fit
 * a string of its digits. A text that needs neither is read as it is. */
json_t *json_mend(const char *text, size_t bytes, size_t flags, json_error_t *error);

#endif
