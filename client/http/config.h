/* config.h - hearth-http's options: one table makes the parser, the range checks and --help. */
#ifndef HEARTH_CLIENT_HTTP_CONFIG_H
#define HEARTH_CLIENT_HTTP_CONFIG_H

#include "client/http/guard.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* TEXT(field, name, metavar, help)   NUMBER(field, name, default, least, most, help)
 * TEXTS(field, name, most, metavar, help): may be repeated    FLAG(field, name, help) */
#define HTTP_OPTIONS(TEXT, NUMBER, TEXTS, FLAG)                                                    \
    TEXT(daemon, "socket", "PATH", "where hearthd listens, if not as below")                       \
    TEXT(listen, "listen", "PATH", "listen on this Unix socket, if not as below")                  \
    NUMBER(port, "port", 0, 1, 65535, "listen on this port of 127.0.0.1 and ::1")                  \
    TEXT(host, "host", "ADDRESS", "of these only one: 127.0.0.1, ::1, localhost")                  \
    TEXT(chat_template, "chat-template", "NAME", "a family (chatml, ...), or a Jinja text")        \
    TEXTS(api_keys, "api-key", GUARD_KEYS_MAX, "KEY", "who asks must send it; repeatable")         \
    TEXT(api_key_file, "api-key-file", "FILE", "the same, a key a line, which nobody sees")        \
    TEXTS(origins, "cors-origin", GUARD_ORIGINS_MAX, "ORIGIN",                                     \
          "let its pages ask: http://localhost:3000; repeatable")                                  \
    NUMBER(slots, "slots", 16, 1, 64, "most requests that run at once")                            \
    NUMBER(queue, "queue", 64, 1, 4096, "most requests that wait for a slot; then 503")            \
    NUMBER(connections, "connections", 128, 1, 4096, "most connections open at once")              \
    NUMBER(max_body, "max-body", 8 << 20, 1024, 256 << 20, "most bytes of a request")              \
    NUMBER(timeout, "timeout", 120, 1, 86400, "seconds until a connection at rest is closed")      \
    NUMBER(resume_ms, "resume-ms", 30000, 0, 3600000, "how long a daemon that left is waited for") \
    NUMBER(grace, "grace", 10, 0, 3600, "seconds that answers may go on after SIGTERM")            \
    FLAG(version, "version", "print the version and exit")                                         \
    FLAG(help, "help", "print this and exit")

struct http_texts {
    const char *items[GUARD_KEYS_MAX]; /* [n] */
    size_t n;
};

struct http_config {
#define HTTP_TEXT(field, name, metavar, help) const char *field;
#define HTTP_NUMBER(field, name, def, least, most, help) uint32_t field;
#define HTTP_TEXTS(field, name, most, metavar, help) struct http_texts field;
#define HTTP_FLAG(field, name, help) int field;
    HTTP_OPTIONS(HTTP_TEXT, HTTP_NUMBER, HTTP_TEXTS, HTTP_FLAG)
#undef HTTP_TEXT
#undef HTTP_NUMBER
#undef HTTP_TEXTS
#undef HTTP_FLAG
    char *key_text; /* what --api-key-file holds; the keys point into it */
};

/* Fills *c, which keeps pointers into argv. Returns 0, or -EINVAL (usage), or of the key file
 * another -errno, with one line in err. Call http_config_fini in either case. */
int http_config_read(struct http_config *c, int argc, char **argv, char *err, size_t err_bytes);
void http_config_fini(struct http_config *c);

void http_config_help(FILE *out);

#endif
