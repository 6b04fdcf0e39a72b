/* guard: see guard.h. */
#include "client/http/guard.h"

#include <string.h>
#include <strings.h>

/* Is the header's host `name`, with a port or without? */
static bool is_host(const char *host, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(host, name, n) != 0)
        return false;
    const char *port = host + n + 1;
    return !host[n] || (host[n] == ':' && *port && strspn(port, "0123456789") == strlen(port));
}

bool guard_host(const struct guard *g, const char *host)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
    if (!host)
        return true;
    for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
        if (is_host(host, loopback[i]))
            return true;
    for (size_t i = 0; i < g->n_hosts; i++)
        if (is_host(host, g->hosts[i]))
            return true;
    return false;
}

bool guard_origin(const struct guard *g, const char *origin)
{
    for (size_t i = 0; i < g->n_origins; i++)
        if (strcmp(g->origins[i], "*") == 0 || strcasecmp(g->origins[i], origin) == 0)
            return true;
    return false;
}

bool guard_is_own(const char *host, const char *origin)
{
    static const char scheme[] = "http://";
    const size_t n = sizeof(scheme) - 1;
    return host && strncasecmp(origin, scheme, n) == 0 && strcasecmp(origin + n, host) == 0;
}

bool guard_is_foreign(const char *site)
{
    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
}

/* Takes the same time wherever the two differ. */
static bool equal(const char *key, const char *given)
{
    size_t n = strlen(key), n_given = strlen(given);
    unsigned char differs = n != n_given;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(key[i] ^ (n_given ? given[i % n_given] : 0));
    return !differs;
}

bool guard_key(const struct guard *g, const char *authorization, const char *key)
{
    static const char scheme[] = "Bearer ";
    bool ok = false;
    if (!g->n_keys)
        return true;
    if (authorization && strncasecmp(authorization, scheme, sizeof(scheme) - 1) == 0)
        key = authorization + sizeof(scheme) - 1;
    for (size_t i = 0; key && i < g->n_keys; i++)
        ok |= equal(g->keys[i], key);
    return ok;
}

bool guard_is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
           strcmp(host, "::1") == 0;
}
