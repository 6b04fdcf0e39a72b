/* request: a request under libmicrohttpd: access, its body, its response.
 *
 * The callbacks of libmicrohttpd; what is asked for is the exchange's. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_REQUEST_H
#define HEARTH_CLIENT_HTTP_REQUEST_H

#include "client/http/state.h"

#include <microhttpd.h>

/* A connection. libmicrohttpd keeps the pointer. */
struct conn {
    struct watch watch; /* of its hang-up */
    struct server *server;
    struct MHD_Connection *mhd;
    struct exchange *x; /* what it is about now */
    struct conn *next, **link;
    uint64_t since_ns; /* when it was made, or its last answer went out */
    bool is_tcp, hung_up;
    bool is_spared; /* it had a second chance to send a request */
};

/* Called with the headers, with each part of the body, at its end, and when a suspended connection
 * goes on. cls: the server; *con_cls: the exchange. */
enum MHD_Result request_on(void *cls, struct MHD_Connection *mhd, const char *url,
                           const char *method, const char *version, const char *data,
                           size_t *data_bytes, void **con_cls);

/* The response went out, or never will. */
void request_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                          enum MHD_RequestTerminationCode code);

#endif
