/* upstream: see upstream.h. */
#include "client/http/upstream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(char *err, size_t err_bytes, const char *option, const char *name,
                  size_t name_bytes, const char *why)
{
    snprintf(err, err_bytes, "--%s %.*s: %s", option, (int)name_bytes, name, why);
    return -EINVAL;
}

/* What is wrong with a URL, or NULL. */
static const char *check_url(const char *url)
{
    static const char *const schemes[] = {"http://", "https://"};
    const char *host = NULL;
    for (int i = 0; i < 2; i++)
        if (strncasecmp(url, schemes[i], strlen(schemes[i])) == 0)
            host = url + strlen(schemes[i]);
    for (const char *c = url; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127)
            return "the URL has a blank or a character that is not ASCII: leave it out";
    if (!host || !*host || *host == '/')
        return "give NAME=http://HOST[:PORT] or NAME=https://HOST[:PORT]";
    if (strchr(host, '@'))
        return "the URL has a user or password: give a key with --upstream-key NAME=FILE";
    if (strpbrk(host, "?#"))
        return "the URL has a query or a fragment: leave it out";
    return NULL;
}

/* Clients of OpenAI are given URLs with /v1, which is part of each path here. */
static void cut_end(char *url)
{
    char *host = strstr(url, "://") + 3;
    size_t n = strlen(host);
    while (n && host[n - 1] == '/')
        host[--n] = 0;
    if (n > 3 && strcmp(host + n - 3, "/v1") == 0)
        host[n - 3] = 0;
}

static int read_entry(struct upstreams *u, const char *text, char *err, size_t err_bytes)
{
    struct upstream *one = &u->all[u->n];
    const char *equals = strchr(text, '=');
    const size_t bytes = equals ? (size_t)(equals - text) : 0;
    const char *why = NULL;
    if (!bytes || bytes >= sizeof(one->name) || strlen(equals + 1) >= sizeof(one->url))
        why = "give NAME=URL, with fewer than 128 and 512 bytes";
    else
        why = check_url(equals + 1);
    if (why)
        return refuse(err, err_bytes, "upstream", text, equals ? bytes : strlen(text), why);
    snprintf(one->name, sizeof(one->name), "%.*s", (int)bytes, text);
    snprintf(one->url, sizeof(one->url), "%s", equals + 1);
    cut_end(one->url);
    if (upstreams_find(u, one->name))
        return refuse(err, err_bytes, "upstream", one->name, bytes, "it is given twice");
    u->n++;
    return 0;
}

/* NULL, or why the file cannot hold a key that is this user's alone. */
static const char *check_file(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return "it is not a file";
    if (st.st_uid != geteuid())
        return "it belongs to another user: others must not be able to change the key";
    if (st.st_mode & 077)
        return "others can read it: chmod 600";
    return NULL;
}

static const char *check_key(const char *key)
{
    for (const char *c = key; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127)
            return "its first line is not a key: a blank, or not ASCII";
    return *key ? NULL : "it has no key: write one in its first line";
}

static int read_key(struct upstream *one, const char *path, char *err, size_t err_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        int rc = -errno;
        snprintf(err, err_bytes, "%s: %s: give a file with the key", path, strerror(errno));
        return rc;
    }
    const char *why = check_file(fd);
    ssize_t n = why ? 0 : read(fd, one->key, sizeof(one->key));
    close(fd);
    if (n < 0 || n == sizeof(one->key)) {
        why = "it cannot be read, or is longer than a key";
        n = 0;
    }
    one->key[n] = 0;
    one->key[strcspn(one->key, "\r\n")] = 0;
    if (!why)
        why = check_key(one->key);
    if (!why)
        return 0;
    one->key[0] = 0;
    snprintf(err, err_bytes, "%s: %s", path, why);
    return -EINVAL;
}

int upstreams_read(struct upstreams *ret, const struct option_texts *entries,
                   const struct option_texts *keys, char *err, size_t err_bytes)
{
    int rc = 0;
    ret->n = 0;
    for (uint32_t i = 0; i < entries->n && !rc; i++)
        rc = read_entry(ret, entries->items[i], err, err_bytes);
    for (uint32_t i = 0; i < keys->n && !rc; i++) {
        char name[UPSTREAM_NAME_BYTES];
        const char *text = keys->items[i], *equals = strchr(text, '=');
        const size_t bytes = equals ? (size_t)(equals - text) : strlen(text);
        snprintf(name, sizeof(name), "%.*s", (int)bytes, text);
        struct upstream *one = equals ? upstreams_find(ret, name) : NULL;
        rc = one ? read_key(one, equals + 1, err, err_bytes)
                 : refuse(err, err_bytes, "upstream-key", text, bytes,
                          "give NAME=FILE, with the NAME of an --upstream");
    }
    return rc;
}

struct upstream *upstreams_find(struct upstreams *u, const char *model)
{
    for (uint32_t i = 0; model && i < u->n; i++)
        if (strcmp(u->all[i].name, model) == 0)
            return &u->all[i];
    return NULL;
}
