/* A request's memory and its two marks; its meaning is in ingest.c, verify.c and answer.c. */
#include "daemon/engine/request.h"

#include <stdlib.h>

struct request *request_open(uint32_t params_bytes)
{
    struct request *request = calloc(1, sizeof(*request));

    if (!request)
        return NULL;
    request->block = malloc(params_bytes);
    request->bias = malloc(PARAMS_BIAS_MAX * sizeof(*request->bias));
    if (request->block && request->bias)
        return request;
    request_close(request);
    return NULL;
}

void request_close(struct request *request)
{
    if (!request)
        return;
    free(request->block);
    free(request->bias);
    free(request);
}

bool request_void(const struct slot *slot)
{
    const struct up_slot *up = segment_up_slot(&slot->client->segment, slot->ring);

    return ring_generation(&up->generation) != slot->request->generation;
}

void request_end(struct slots *slots, struct slot *slot, enum done_reason reason, int error,
                 const char *text)
{
    slot->request->reason = reason;
    slot->request->error = error;
    slot->request->text = text;
    slots_set(slots, slot, SLOT_ENDING);
}
