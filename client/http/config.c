/* config.c - see config.h. */
#include "client/http/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, NUMBER, TEXTS, FLAG };

struct row {
    enum kind kind;
    const char *name, *metavar, *help;
    size_t field;
    uint32_t least, most, value; /* value: the default */
};

static const struct row rows[] = {
#define FIELD(field) offsetof(struct http_config, field)
#define ROW_TEXT(field, name, metavar, help) {TEXT, name, metavar, help, FIELD(field), 0, 0, 0},
#define ROW_NUMBER(field, name, def, least, most, help)                                            \
    {NUMBER, name, "N", help, FIELD(field), least, most, def},
#define ROW_TEXTS(field, name, most, metavar, help)                                                \
    {TEXTS, name, metavar, help, FIELD(field), 0, most, 0},
#define ROW_FLAG(field, name, help) {FLAG, name, NULL, help, FIELD(field), 0, 0, 0},
    HTTP_OPTIONS(ROW_TEXT, ROW_NUMBER, ROW_TEXTS, ROW_FLAG)};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const struct row *find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
            return &rows[i];
    return NULL;
}

static int set_number(const struct row *r, uint32_t *field, const char *text, char *err,
                      size_t err_bytes)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end != text && *end && !end[1]) {
        static const char suffixes[] = "KMG";
        const char *s = strchr(suffixes, *end);
        if (s && value <= UINT32_MAX) {
            value <<= 10 * (s - suffixes + 1);
            end++;
        }
    }
    if (*text < '0' || *text > '9' || *end || value < r->least || value > r->most) {
        snprintf(err, err_bytes, "--%s %s: give a number from %u to %u", r->name, text, r->least,
                 r->most);
        return -EINVAL;
    }
    *field = (uint32_t)value;
    return 0;
}

static int set_value(struct http_config *c, const struct row *r, const char *text, char *err,
                     size_t err_bytes)
{
    void *field = (char *)c + r->field;
    if (r->kind == NUMBER)
        return set_number(r, field, text, err, err_bytes);
    if (r->kind == TEXT) {
        *(const char **)field = text;
        return 0;
    }
    struct http_texts *t = field;
    if (t->n == r->most) {
        snprintf(err, err_bytes, "--%s: give at most %u", r->name, r->most);
        return -EINVAL;
    }
    t->items[t->n++] = text;
    return 0;
}

static int read_arguments(struct http_config *c, int argc, char **argv, char *err, size_t err_bytes)
{
    for (int i = 1; i < argc; i++) {
        const char *word = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        const char *name = word + 2, *value = strchr(word, '=');
        bool is_option = strncmp(word, "--", 2) == 0;
        size_t n = value ? (size_t)(value - name) : is_option ? strlen(name) : 0;
        const struct row *r = is_option ? find(name, n) : NULL;
        if (!r) {
            snprintf(err, err_bytes, "%s: no such option: see hearth-http --help", argv[i]);
            return -EINVAL;
        }
        if (r->kind == FLAG && value) {
            snprintf(err, err_bytes, "--%s takes no value", r->name);
            return -EINVAL;
        }
        if (r->kind == FLAG) {
            *(int *)((char *)c + r->field) = 1;
            continue;
        }
        value = value ? value + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value) {
            snprintf(err, err_bytes, "--%s: give %s", r->name, r->metavar);
            return -EINVAL;
        }
        int rc = set_value(c, r, value, err, err_bytes);
        if (rc)
            return rc;
    }
    return 0;
}

/* A key a line; empty lines and those with # in front are none. */
static int read_keys(struct http_config *c, char *err, size_t err_bytes)
{
    enum { MOST = 65536 };
    FILE *f = fopen(c->api_key_file, "re");
    char *save = NULL;
    if (!f) {
        int rc = -errno;
        snprintf(err, err_bytes, "%s: %s: give a file with a key a line", c->api_key_file,
                 strerror(errno));
        return rc;
    }
    c->key_text = calloc(MOST + 2, 1);
    size_t n = c->key_text ? fread(c->key_text, 1, MOST + 1, f) : 0;
    fclose(f);
    if (!c->key_text)
        return -ENOMEM;
    if (n > MOST) { /* a key that is cut would be a shorter one */
        snprintf(err, err_bytes, "%s: give a file of at most %d bytes", c->api_key_file, MOST);
        return -EINVAL;
    }
    size_t before = c->api_keys.n;
    for (char *line = strtok_r(c->key_text, "\r\n", &save); line && n;
         line = strtok_r(NULL, "\r\n", &save)) {
        if (*line == '#')
            continue;
        if (c->api_keys.n == GUARD_KEYS_MAX) {
            snprintf(err, err_bytes, "%s: give at most %d keys", c->api_key_file, GUARD_KEYS_MAX);
            return -EINVAL;
        }
        c->api_keys.items[c->api_keys.n++] = line;
    }
    if (c->api_keys.n > before)
        return 0;
    snprintf(err, err_bytes, "%s: no key in it: write one a line", c->api_key_file);
    return -EINVAL;
}

int http_config_read(struct http_config *c, int argc, char **argv, char *err, size_t err_bytes)
{
    *c = (struct http_config){0};
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].kind == NUMBER)
            *(uint32_t *)((char *)c + rows[i].field) = rows[i].value;
    int rc = read_arguments(c, argc, argv, err, err_bytes);
    if (!rc && c->api_key_file)
        rc = read_keys(c, err, err_bytes);
    for (size_t i = 0; i < c->api_keys.n && !rc; i++)
        if (!*c->api_keys.items[i]) {
            snprintf(err, err_bytes, "--api-key: an empty key is none: leave the option out");
            rc = -EINVAL;
        }
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
    fputs("hearth-http: existing HTTP clients talk to hearthd, as to llama-server or OpenAI\n\n"
          "usage: hearth-http [OPTIONS]\n\n",
          out);
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", r->name, r->metavar ? r->metavar : "");
        fprintf(out, "  %-24s %s", left, r->help);
        if (r->value)
            fprintf(out, " (%u)", r->value);
        fputc('\n', out);
    }
    fputs("\nIn parentheses: the default. hearthd's socket is at $HEARTH_SOCKET, else\n"
          "$XDG_RUNTIME_DIR/hearth/hearth.sock, else /run/hearth/hearth.sock; without\n"
          "--port and --listen ours is http.sock in $XDG_RUNTIME_DIR/hearth, else in\n"
          "/run/hearth.\n",
          out);
}
