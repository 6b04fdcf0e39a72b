/* upstream: models that other servers serve: the entries of --upstream and --upstream-key.
 *
 * An entry is NAME=URL: requests for the model NAME go to that server, which knows the model by the
 * same name. A key is NAME=FILE. One thread, at start-up; never prints. */
#ifndef HEARTH_CLIENT_HTTP_UPSTREAM_H
#define HEARTH_CLIENT_HTTP_UPSTREAM_H

#include "ipc/options.h"

#include <stddef.h>
#include <stdint.h>

enum { UPSTREAM_NAME_BYTES = 128, UPSTREAM_URL_BYTES = 512, UPSTREAM_KEY_BYTES = 1024 };

struct upstream {
    char name[UPSTREAM_NAME_BYTES];
    char url[UPSTREAM_URL_BYTES]; /* http or https; without a slash, and without /v1, at its end */
    char key[UPSTREAM_KEY_BYTES]; /* "": none is sent */
    uint32_t n_running;           /* requests */
};

struct upstreams {
    struct upstream all[OPTION_TEXTS_MAX]; /* [n] */
    uint32_t n;
};

/* Reads the entries, and the files of keys: of mode 0600 or less, and ours. Returns 0, or -EINVAL, or
 * of a file another -errno, with one line that has no part of a key. */
int upstreams_read(struct upstreams *ret, const struct option_texts *entries,
                   const struct option_texts *keys, char *err, size_t err_bytes);

/* The one for that model, or NULL. */
struct upstream *upstreams_find(struct upstreams *u, const char *model);

#endif
