/* catalog: the models that a request may name, for the endpoints that list them.
 *
 * Those that daemons serve, or would serve once a request starts them; those of upstreams; with
 * --budget, those on the disk. To list them starts and loads nothing. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_CATALOG_H
#define HEARTH_CLIENT_HTTP_CATALOG_H

#include "client/http/exchange.h"

#include <jansson.h>

struct catalog_entry {
    const char *name;
    const struct served *served; /* whose daemon is there; else NULL */
    bool is_upstream;
    uint64_t bytes; /* of its file, or in memory; 0: not known */
};

/* Calls `tell` once it is known what lies on the disk, unless the client hung up meanwhile. */
void catalog_look(struct exchange *x, void (*tell)(struct exchange *x));

/* An array of what `object` makes of each entry, after catalog_look(). */
json_t *catalog_list(struct exchange *x, json_t *(*object)(const struct catalog_entry *e));

#endif
