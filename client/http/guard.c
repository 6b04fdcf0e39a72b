/* guard: see guard.h. */
#include "client/http/guard.h"

#include <string.h>
#include <strings.h>

bool guard_host(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    if (!host)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) != 0)
            continue;
        if (!host[n])
            return true;
        if (host[n] == ':' && host[n + 1] &&
            strspn(host + n + 1, "0123456789") == strlen(host + n + 1))
            return true;
    }
    return false;
}

bool guard_origin(const struct guard *g, const char *origin)
{
    for (size_t i = 0; i < g->n_origins; i++)
        if (strcmp(g->origins[i], "*") == 0 || strcasecmp(g->origins[i], origin) == 0)
            return true;
    return false;
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
