/* config: see config.h. */
#include "client/http/config.h"

#include "client/http/guard.h"
#include "client/jinja/jinja.h"
#include "client/prompt/chat_families.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct option_row rows[] = {
#define ROW_TEXT(id, name, value, help)                                                            \
    OPTION(struct http_config, id, name, 0, OPTION_TEXT, value, NULL, 0, 0, help),
#define ROW_NUMBER(id, name, def, least, most, value, help)                                        \
    OPTION(struct http_config, id, name, 0, OPTION_U32, value, def, least, most, help),
#define ROW_BYTES(id, name, value, help)                                                           \
    OPTION(struct http_config, id, name, 0, OPTION_U64, value, NULL, 1, OPTION_U64_MAX, help),
#define ROW_TEXTS(id, name, value, help)                                                           \
    OPTION(struct http_config, id, name, 0, OPTION_TEXTS, value, NULL, 1, 65536, help),
#define ROW_FLAG(id, name, help)                                                                   \
    OPTION(struct http_config, id, name, 0, OPTION_FLAG, NULL, NULL, 0, 0, help),
    HTTP_OPTIONS(ROW_TEXT, ROW_NUMBER, ROW_BYTES, ROW_TEXTS, ROW_FLAG)};

enum {
    KEYS_MOST = 64 << 10,
    TEMPLATE_MOST = 1 << 20,
    CERTIFICATES_MOST = 4 << 20
}; /* bytes of a file */

static struct options table(struct http_config *c)
{
    return (struct options){.rows = rows, .n = sizeof(rows) / sizeof(rows[0]), .fields = c};
}

/* The whole file with a 0 after it, at most `most` bytes; a zero byte in it is refused, for it would
 * end the text. `hint` says which file to give. Returns 0 with *ret_text, the caller's to free, or
 * -errno with one line. */
static int read_file(const char *path, size_t most, const char *hint, char **ret_text, char *err,
                     size_t err_bytes)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        int rc = -errno;
        snprintf(err, err_bytes, "%s: %s: give a file with %s", path, strerror(errno), hint);
        return rc;
    }
    char *text = calloc(most + 2, 1);
    size_t n = text ? fread(text, 1, most + 1, f) : 0;
    int failed = ferror(f) ? errno : 0;
    fclose(f);
    *ret_text = text;
    if (!text)
        return -ENOMEM;
    if (failed) {
        snprintf(err, err_bytes, "%s: %s: give a file with %s", path, strerror(failed), hint);
        return -failed;
    }
    if (n > most) { /* the first part of a key would be another key */
        snprintf(err, err_bytes, "%s: give a file of at most %zu bytes", path, most);
        return -EINVAL;
    }
    if (strlen(text) != n) {
        snprintf(err, err_bytes, "%s: it has a zero byte: save the file as plain text", path);
        return -EINVAL;
    }
    return 0;
}

/* One key per line; empty lines and those that begin with # are skipped. */
static int read_keys(struct http_config *c, char *err, size_t err_bytes)
{
    char *save = NULL;
    int rc =
        read_file(c->api_key_file, KEYS_MOST, "one key per line", &c->key_text, err, err_bytes);
    if (rc)
        return rc;
    size_t before = c->api_keys.n;
    for (char *line = strtok_r(c->key_text, "\r\n", &save); line;
         line = strtok_r(NULL, "\r\n", &save)) {
        if (*line == '#')
            continue;
        if (c->api_keys.n == OPTION_TEXTS_MAX) {
            snprintf(err, err_bytes, "%s: give at most %d keys", c->api_key_file, OPTION_TEXTS_MAX);
            return -EINVAL;
        }
        c->api_keys.items[c->api_keys.n++] = line;
    }
    if (c->api_keys.n > before)
        return 0;
    snprintf(err, err_bytes, "%s: it has no key: write one per line", c->api_key_file);
    return -EINVAL;
}

static bool is_jinja(const char *text)
{
    return strstr(text, "{{") || strstr(text, "{%");
}

static int check_template(const char *text, char *err, size_t err_bytes)
{
    char why[300] = "it is not Jinja: there is neither {{ nor {% in it";
    int rc = !is_jinja(text) ? -EINVAL : 0;
    if (!rc)
        rc = jinja_check(text, strlen(text), why, sizeof(why));
    if (rc)
        snprintf(err, err_bytes, "--chat-template: %s", why);
    return rc;
}

/* A template is a Jinja text, or a file if it looks like a path, or the name of a family. */
static int read_template(struct http_config *c, char *err, size_t err_bytes)
{
    const char *given = c->chat_template;
    size_t n = strlen(given);
    bool is_path = strchr(given, '/') || (n > 6 && strcmp(given + n - 6, ".jinja") == 0);
    if (is_jinja(given))
        return check_template(given, err, err_bytes);
    if (!is_path && chat_family_find(given, n))
        return 0;
    if (!is_path) {
        snprintf(
            err, err_bytes,
            "--chat-template %.64s: it is not a family: give a Jinja text, a FILE (with a / or "
            ".jinja in its name), or a family such as chatml, llama3 or mistral",
            given);
        return -EINVAL;
    }
    int rc = read_file(given, TEMPLATE_MOST, "a Jinja template", &c->template_text, err, err_bytes);
    c->chat_template = c->template_text;
    return rc ? rc : check_template(c->template_text, err, err_bytes);
}

bool http_config_needs_key(const struct http_config *c)
{
    return (c->budget || c->upstream_entries.n) && !c->api_key_file;
}

static int check_budget(const struct http_config *c, char *err, size_t err_bytes)
{
    const char *named = getenv("HEARTH_SOCKET");
    const char *what = NULL;
    if (c->pins.n && !c->budget)
        what = "--pin: give a --budget, too";
    else if (c->budget && (c->daemon || (named && *named)))
        what = "--budget: with --socket or HEARTH_SOCKET there is one daemon: leave them out";
    else if (c->port && http_config_needs_key(c))
        what =
            "--port with --budget or --upstream: every user of this machine could start models, or "
            "spend its key: give an --api-key-file";
    if (what)
        snprintf(err, err_bytes, "%s", what);
    return what ? -EINVAL : 0;
}

/* libcurl reads it again with each connection; a wrong one is to be known at once. */
static int check_certificates(const struct http_config *c, char *err, size_t err_bytes)
{
    char *text = NULL;
    int rc =
        read_file(c->upstream_ca, CERTIFICATES_MOST, "certificates in PEM", &text, err, err_bytes);
    if (!rc && !strstr(text, "-----BEGIN CERTIFICATE-----")) {
        snprintf(err, err_bytes, "%s: it has no certificate in PEM", c->upstream_ca);
        rc = -EINVAL;
    }
    free(text);
    return rc;
}

static int read_upstreams(struct http_config *c, char *err, size_t err_bytes)
{
    c->upstreams = calloc(1, sizeof(*c->upstreams));
    if (!c->upstreams)
        return -ENOMEM;
    return upstreams_read(c->upstreams, &c->upstream_entries, &c->upstream_keys, err, err_bytes);
}

int http_config_read(struct http_config *c, int argc, char **argv, char *err, size_t err_bytes)
{
    const struct options o = table(c);
    *c = (struct http_config){0};
    options_init(&o);
    int rc = options_parse(&o, argc - 1, argv + 1, err, err_bytes);
    if (!rc && c->api_key_file)
        rc = read_keys(c, err, err_bytes);
    if (!rc && c->chat_template)
        rc = read_template(c, err, err_bytes);
    if (!rc && c->host && !guard_is_loopback(c->host)) {
        snprintf(err, err_bytes,
                 "--host %s: hearth-http listens on loopback only: give 127.0.0.1, ::1 or "
                 "localhost, and put a proxy with TLS in front for other machines",
                 c->host);
        rc = -EINVAL;
    }
    if (!rc && c->host && !c->port) {
        snprintf(err, err_bytes, "--host %s: give a --port, too", c->host);
        rc = -EINVAL;
    }
    if (!rc && c->listen && !strchr(c->listen, '/') && strchr(c->listen, ':')) {
        snprintf(err, err_bytes, "--listen %s: that is a socket's path: for TCP give --port %s",
                 c->listen, strrchr(c->listen, ':') + 1);
        rc = -EINVAL;
    }
    if (!rc)
        rc = check_budget(c, err, err_bytes);
    if (!rc && (c->upstream_entries.n || c->upstream_keys.n))
        rc = read_upstreams(c, err, err_bytes);
    if (!rc && c->upstream_ca)
        rc = check_certificates(c, err, err_bytes);
    return rc;
}

void http_config_fini(struct http_config *c)
{
    free(c->key_text);
    if (c->upstreams)
        explicit_bzero(c->upstreams, sizeof(*c->upstreams));
    free(c->upstreams);
    free(c->template_text);
    c->key_text = c->template_text = NULL;
    c->upstreams = NULL;
}

void http_config_help(FILE *out)
{
    const struct options o = table(NULL);
    fputs("hearth-http: hearthd for HTTP clients of llama-server, OpenAI and others\n\n"
          "usage: hearth-http [OPTIONS]\n\n",
          out);
    options_help(&o, out);
    fputs("\nIn parentheses: the default. hearthd's socket is at $HEARTH_SOCKET, else\n"
          "$XDG_RUNTIME_DIR/hearth/hearth.sock, else /run/hearth/hearth.sock. Without\n"
          "--port and --listen, hearth-http listens at http.sock in\n"
          "$XDG_RUNTIME_DIR/hearth, else in /run/hearth. Numbers take K, M, G, T.\n",
          out);
}

bool http_config_names(const struct http_config *c, const char *model, const char *name)
{
    if (strcmp(name, model) == 0)
        return true;
    for (uint32_t i = 0; i < c->aliases.n; i++)
        if (strcmp(name, c->aliases.items[i]) == 0)
            return true;
    return false;
}
