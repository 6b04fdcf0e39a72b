/* Memory of a request; its meaning is in ingest.c, verify.c and answer.c. */
#include "daemon/engine/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int request_init(struct request *request, uint32_t params_bytes)
{
    memset(request, 0, sizeof(*request));
    request->block = malloc(params_bytes);
    request->bias = malloc(PARAMS_BIAS_MAX * sizeof(*request->bias));
    return request->block && request->bias ? 0 : -ENOMEM;
}

void request_fini(struct request *request)
{
    free(request->block);
    free(request->bias);
    request->block = NULL;
    request->bias = NULL;
}
