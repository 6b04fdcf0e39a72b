/*
 * ingest: from submit cells to requests, and to the end of those that their clients voided.
 */
#ifndef HEARTH_DAEMON_ENGINE_INGEST_H
#define HEARTH_DAEMON_ENGINE_INGEST_H

#include "daemon/engine/client.h"
#include "daemon/engine/constrain.h"
#include "daemon/engine/drafters.h"
#include "daemon/steady.h"

/* Is there a submit cell that could be taken now, or a reason to close the client? */
bool ingest_ready(struct client *client);

/* Takes submit cells: one at a time, from the least recently served user, and from that user's
 * least recently served client. Beside answers all together take an eighth of the time of passes;
 * the others wait for the next steps. Then ends what a newer generation made void: cancelled, as
 * far as we know here (a newer request's cell was taken before, unless it waits). Returns the work:
 * cells that were taken, and clients that wait. */
uint32_t ingest_step(struct attached *clients, struct slots *slots, struct drafters *drafters,
                     struct constrain *constrain, const struct loaded_model *loaded,
                     struct steady *clock);

#endif
