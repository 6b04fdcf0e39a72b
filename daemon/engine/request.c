/* A request's memory and its two marks; its meaning is in ingest.c, verify.c and answer.c. */
#include "daemon/engine/request.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCK_KEPT = 65536 }; /* bytes of a block that stay for the next request */

struct request *request_open(uint32_t params_bytes, const uint32_t *suppressed,
                             uint32_t n_suppressed)
{
    struct request *request = calloc(1, sizeof(*request));
    if (!request)
        return NULL;
    void *block = mmap(NULL, params_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    request->suppressed = suppressed;
    request->n_suppressed = n_suppressed;
    request->bias = malloc(((size_t)PARAMS_BIAS_MAX + n_suppressed) * sizeof(*request->bias));
    if (block != MAP_FAILED) {
        madvise(block, params_bytes, MADV_NOHUGEPAGE); /* most requests touch one page of it */
        request->block = block;
        request->block_bytes = params_bytes;
    }
    if (request->block && request->bias)
        return request;
    request_close(request);
    return NULL;
}

void request_close(struct request *request)
{
    if (!request)
        return;
    if (request->block)
        munmap(request->block, request->block_bytes);
    free(request->bias);
    free(request);
}

void request_spare(struct request *request, uint32_t used)
{
    if (used > BLOCK_KEPT)
        madvise(request->block + BLOCK_KEPT, used - BLOCK_KEPT, MADV_DONTNEED);
}

bool request_void(const struct slot *slot)
{
    const struct up_slot *up = segment_up_slot(&slot->client->segment, slot->ring);
    return ring_generation(&up->generation) != slot->request->generation;
}

void request_end_all(struct slots *slots, int error, const char *text)
{
    for (uint32_t i = 0; i < slots->n; i++)
        if (slots->all[i].state != SLOT_IDLE && slots->all[i].state != SLOT_ENDING)
            request_end(slots, &slots->all[i], DONE_ERROR, error, text);
}

void request_end(struct slots *slots, struct slot *slot, enum done_reason reason, int error,
                 const char *text)
{
    slot->request->reason = reason;
    slot->request->error = error;
    slot->request->text = text;
    slots_set(slots, slot, SLOT_ENDING);
}
