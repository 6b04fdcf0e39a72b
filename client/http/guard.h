/* guard: access: keys, and headers that only another site's web page would send.
 *
 * A web page can reach loopback under a name of its own that points there (DNS rebinding), or with
 * cross-origin requests. So on TCP the Host header must name this machine, an Origin header must be
 * one that was allowed, and without one a browser must not say that another page asks. Pure
 * functions. */
#ifndef HEARTH_CLIENT_HTTP_GUARD_H
#define HEARTH_CLIENT_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>

enum { GUARD_KEYS_MAX = 64, GUARD_ORIGINS_MAX = 64, GUARD_HOSTS_MAX = 64 };

struct guard {
    const char *keys[GUARD_KEYS_MAX]; /* [n_keys]; none: open to all */
    size_t n_keys;
    const char *origins[GUARD_ORIGINS_MAX]; /* [n_origins], "*" is any */
    size_t n_origins;
    const char *hosts[GUARD_HOSTS_MAX]; /* [n_hosts] names of this machine besides loopback's */
    size_t n_hosts;
};

/* "localhost", "127.0.0.1", "[::1]" or one of g->hosts, with a port or without. NULL (HTTP/1.0) is
 * accepted. */
bool guard_host(const struct guard *g, const char *host);

bool guard_origin(const struct guard *g, const char *origin);

/* Is the page that asks our own: of the host, with its port, that it asks? */
bool guard_is_own(const char *host, const char *origin);

/* What a browser says in Sec-Fetch-Site of a request without an Origin, or NULL: is it that of a
 * page of another site or port, which has a picture or a script from here? */
bool guard_is_foreign(const char *site);

/* `authorization`: "Bearer KEY", or NULL; `key`: that of X-Api-Key, or NULL. The time it takes
 * depends on the number and length of the keys only. */
bool guard_key(const struct guard *g, const char *authorization, const char *key);

/* Is it a loopback address to listen at? */
bool guard_is_loopback(const char *host);

#endif
