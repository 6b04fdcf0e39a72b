/* json_shortest: a value as JSON, with as few digits as give the same numbers: 0.1 stays 0.1. Pure; any
 * thread. */
#ifndef HEARTH_CLIENT_BASE_JSON_SHORTEST_H
#define HEARTH_CLIENT_BASE_JSON_SHORTEST_H

#include <jansson.h>

/* `flags` of json_dumps(); any value is taken. To be freed with free(); NULL without memory. */
char *json_shortest(const json_t *value, size_t flags);

#endif
