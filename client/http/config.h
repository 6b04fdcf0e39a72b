/* config: hearth-http's table of options. */
#ifndef HEARTH_CLIENT_HTTP_CONFIG_H
#define HEARTH_CLIENT_HTTP_CONFIG_H

#include "client/http/upstream.h"
#include "ipc/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* TEXT(field, name, value, help)   NUMBER(field, name, default, least, most, value, help)
 * BYTES(field, name, value, help): 64 bits
 * TEXTS(field, name, value, help): may be repeated    FLAG(field, name, help) */
#define HTTP_OPTIONS(TEXT, NUMBER, BYTES, TEXTS, FLAG)                                             \
    TEXT(daemon, "socket", "PATH", "hearthd's socket, if not the default")                         \
    TEXT(listen, "listen", "PATH", "listen on this Unix socket, if not the default")               \
    NUMBER(port, "port", NULL, 1, 65535, "N", "listen on this port of 127.0.0.1 and ::1")          \
    TEXT(host, "host", "ADDRESS", "only on this one: 127.0.0.1, ::1, localhost")                   \
    TEXT(chat_template, "chat-template", "NAME", "a family (chatml, ...), a FILE, or Jinja text")  \
    TEXTS(aliases, "alias", "NAME", "another name of the model; repeatable")                       \
    FLAG(strict_model, "strict-model", "404 for a 'model' that is not one of its names")           \
    TEXTS(api_keys, "api-key", "KEY", "clients must send this key; repeatable")                    \
    TEXT(api_key_file, "api-key-file", "FILE", "keys from a file, one per line (hidden from ps)")  \
    TEXTS(origins, "cors-origin", "ORIGIN", "allow its pages (http://localhost:3000); repeatable") \
    TEXTS(hosts, "allow-host", "NAME", "also answer requests for this host name; repeatable")      \
    BYTES(budget, "budget", "N", "start models asked for, in N bytes of memory in all")            \
    TEXTS(pins, "pin", "NAME", "start this model at once and keep it; repeatable")                 \
    NUMBER(idle_stop, "idle-stop", "900", 0, 1 << 24, "S", "stop models idle for S s; 0: never")   \
    NUMBER(stay, "stay", "30", 0, 1 << 24, "S", "a model stays S s before it gives way")           \
    TEXTS(upstream_entries, "upstream", "NAME=URL", "this model is served there; repeatable")      \
    TEXTS(upstream_keys, "upstream-key", "NAME=FILE", "its key, in a file of mode 0600")           \
    TEXT(upstream_ca, "upstream-ca", "FILE", "certificates that sign https servers', in PEM")      \
    NUMBER(upstream_wait, "upstream-wait", "600", 1, 86400, "S", "give up an upstream's answer")   \
    NUMBER(upstream_idle, "upstream-idle", "120", 1, 86400, "S", "the same, once it has begun")    \
    NUMBER(slots, "slots", "16", 1, 64, "N", "max requests that run at once")                      \
    NUMBER(queue, "queue", "64", 1, 4096, "N", "max queued requests; more get 503")                \
    NUMBER(connections, "connections", "128", 1, 4096, "N", "max open connections")                \
    NUMBER(max_body, "max-body", "8M", 1024, 256 << 20, "N", "max bytes of a request body")        \
    NUMBER(timeout, "timeout", "120", 1, 86400, "S", "close a connection idle for S seconds")      \
    NUMBER(resume_ms, "resume-ms", "30000", 0, 3600000, "N", "wait N ms for a daemon to return")   \
    NUMBER(grace, "grace", "10", 0, 3600, "S", "seconds to finish answers after SIGTERM")          \
    FLAG(keep_billing_header, "keep-billing-header",                                               \
         "keep Claude Code's first line of a system prompt")                                       \
    FLAG(version, "version", "print the version and exit")                                         \
    FLAG(help, "help", "print this help and exit")

struct http_config {
#define HTTP_TEXT(field, name, value, help) const char *field;
#define HTTP_NUMBER(field, name, def, least, most, value, help) uint32_t field;
#define HTTP_BYTES(field, name, value, help) uint64_t field;
#define HTTP_TEXTS(field, name, value, help) struct option_texts field;
#define HTTP_FLAG(field, name, help) int field;
    HTTP_OPTIONS(HTTP_TEXT, HTTP_NUMBER, HTTP_BYTES, HTTP_TEXTS, HTTP_FLAG)
#undef HTTP_TEXT
#undef HTTP_NUMBER
#undef HTTP_BYTES
#undef HTTP_TEXTS
#undef HTTP_FLAG
    char *key_text;              /* what --api-key-file holds; the keys point into it */
    struct upstreams *upstreams; /* of the entries and keys; NULL: there are none */
    char *template_text; /* what the file of --chat-template holds; chat_template points to it */
};

/* Fills *c, which keeps pointers into argv. Returns 0, or -EINVAL (usage), or of a file another
 * -errno, with one line in err. Call http_config_fini in either case. */
int http_config_read(struct http_config *c, int argc, char **argv, char *err, size_t err_bytes);

/* May requests do more than ask the models that run? Then a port needs a file of keys. */
bool http_config_needs_key(const struct http_config *c);

void http_config_fini(struct http_config *c);

void http_config_help(FILE *out);

/* Is `name` a name of the daemon's model, whose own name is `model`? */
bool http_config_names(const struct http_config *c, const char *model, const char *name);

#endif
