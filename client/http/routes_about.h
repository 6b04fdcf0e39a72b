/* routes_about: the endpoints that describe the gateway, its models and its daemons. */
#ifndef HEARTH_CLIENT_HTTP_ROUTES_ABOUT_H
#define HEARTH_CLIENT_HTTP_ROUTES_ABOUT_H

#include "client/http/exchange.h"

void routes_health(struct exchange *x);
void routes_models(struct exchange *x);
void routes_one_model(struct exchange *x); /* x->path_rest */
void routes_props(struct exchange *x);
void routes_slots(struct exchange *x);
void routes_metrics(struct exchange *x); /* for Prometheus: the gateway's and the daemon's */
void routes_status(struct exchange *x);  /* as hearthd says it: what hearth status --json prints */

#endif
