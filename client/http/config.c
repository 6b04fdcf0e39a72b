/* config: see config.h. */
#include "client/http/config.h"

#include "client/http/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct option_row rows[] = {
#define ROW_TEXT(id, name, value, help)                                                            \
    OPTION(struct http_config, id, name, 0, OPTION_TEXT, value, NULL, 0, 0, help),
#define ROW_NUMBER(id, name, def, least, most, value, help)                                        \
    OPTION(struct http_config, id, name, 0, OPTION_U32, value, def, least, most, help),
#define ROW_TEXTS(id, name, value, help)                                                           \
    OPTION(struct http_config, id, name, 0, OPTION_TEXTS, value, NULL, 1, 65536, help),
#define ROW_FLAG(id, name, help)                                                                   \
    OPTION(struct http_config, id, name, 0, OPTION_FLAG, NULL, NULL, 0, 0, help),
    HTTP_OPTIONS(ROW_TEXT, ROW_NUMBER, ROW_TEXTS, ROW_FLAG)};

static struct options table(struct http_config *c)
{
    return (struct options){.rows = rows, .n = sizeof(rows) / sizeof(rows[0]), .fields = c};
}

/* One key per line; empty lines and those that begin with # are skipped. */
static int read_keys(struct http_config *c, char *err, size_t err_bytes)
{
    enum { MOST = 65536 };
    FILE *f = fopen(c->api_key_file, "re");
    char *save = NULL;
    if (!f) {
        int rc = -errno;
        snprintf(err, err_bytes, "%s: %s: give a file with one key per line", c->api_key_file,
                 strerror(errno));
        return rc;
    }
    c->key_text = calloc(MOST + 2, 1);
    size_t n = c->key_text ? fread(c->key_text, 1, MOST + 1, f) : 0;
    fclose(f);
    if (!c->key_text)
        return -ENOMEM;
    if (n > MOST) { /* a truncated key would be a shorter one ... */
        snprintf(err, err_bytes, "%s: give a file of at most %d bytes", c->api_key_file, MOST);
        return -EINVAL;
    }
    if (strlen(c->key_text) != n) { /* as would one that ends in a zero byte */
        snprintf(err, err_bytes, "%s: it has a zero byte: save the file as plain text",
                 c->api_key_file);
        return -EINVAL;
    }
    size_t before = c->api_keys.n;
    for (char *line = strtok_r(c->key_text, "\r\n", &save); line && n;
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

int http_config_read(struct http_config *c, int argc, char **argv, char *err, size_t err_bytes)
{
    const struct options o = table(c);
    *c = (struct http_config){0};
    options_init(&o);
    int rc = options_parse(&o, argc - 1, argv + 1, err, err_bytes);
    if (!rc && c->api_key_file)
        rc = read_keys(c, err, err_bytes);
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
    return rc;
}

void http_config_fini(struct http_config *c)
{
    free(c->key_text);
    c->key_text = NULL;
}

void http_config_help(FILE *out)
{
    const struct options o = table(NULL);
    fputs("hearth-http: lets HTTP clients of llama-server or OpenAI talk to hearthd\n\n"
          "usage: hearth-http [OPTIONS]\n\n",
          out);
    options_help(&o, out);
    fputs("\nIn parentheses: the default. hearthd's socket is at $HEARTH_SOCKET, else\n"
          "$XDG_RUNTIME_DIR/hearth/hearth.sock, else /run/hearth/hearth.sock. Without\n"
          "--port and --listen, hearth-http listens at http.sock in\n"
          "$XDG_RUNTIME_DIR/hearth, else in /run/hearth. Numbers take K, M, G, T.\n",
          out);
}
