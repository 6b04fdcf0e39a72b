/* status: see status.h. */
#include "client/http/status.h"

#include <stdlib.h>

enum { STATUS_BYTES = 65536 };

json_t *status_ask(struct hearth *h)
{
    size_t room = STATUS_BYTES;
    json_t *status = NULL;
    int64_t n = 1;
    for (int i = 0; !status && n > 0 && i < 2; i++) { /* again, where it is longer */
        char *text = malloc(room);
        n = text ? hearth_status(h, text, room) : -1;
        if (n > 0 && (size_t)n < room)
            status = json_loadb(text, (size_t)n, 0, NULL);
        room = n > 0 ? (size_t)n + 1 : room;
        free(text);
    }
    return status;
}

static uint64_t number(const json_t *status, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(status, name));
    return value > 0 ? (uint64_t)value : 0;
}

uint64_t status_bytes(const json_t *status)
{
    return number(status, "weight_bytes") + number(status, "shadow_bytes") +
           number(status, "host_bytes") +
           number(status, "page_bytes") * number(status, "pages_total") +
           number(status, "window_page_bytes") * number(status, "window_pages_total") +
           number(status, "state_bytes") * number(status, "states_total");
}
