/* Fuzzes the handshake: the first byte chooses the message and whether its head is made valid, so
 * that the fields after it are reached; the rest is the message. Accepted messages must be in
 * range, and every refusal must leave one printable line. */
#include "ipc/hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_line(int rc, const char *line)
{
    must(rc == 0 || (line[0] != 0 && strchr(line, '\n') == NULL));
}

static void mend_head(uint8_t *message, size_t bytes, enum hello_kind kind)
{
    struct hello_head h = {.magic = HELLO_MAGIC,
                           .version = IPC_VERSION,
                           .kind = (uint16_t)kind,
                           .bytes = (uint32_t)bytes};

    if (bytes >= sizeof(h))
        memcpy(message, &h, sizeof(h));
}

static void check_hello(const uint8_t *message, size_t bytes)
{
    struct hello h;
    char line[HELLO_LINE_BYTES] = "";
    int rc = hello_check_hello(message, bytes, &h, line, sizeof(line));

    check_line(rc, line);
    if (rc != 0)
        return;
    must(bytes == sizeof(h) && h.slots <= LIMIT_SLOTS_MAX);
    must(h.slots > 0 || (h.name[0] == 0 && h.flags == 0));
    must(memchr(h.name, 0, sizeof(h.name)) != NULL);
    for (const char *c = h.name; *c != 0; c++)
        must(*c > 0x20 && *c < 0x7f);
}

static void check_welcome(const uint8_t *message, size_t bytes)
{
    struct hello_welcome w;
    char line[HELLO_LINE_BYTES] = "";
    int rc = hello_check_welcome(message, bytes, &w, line, sizeof(line));

    check_line(rc, line);
    if (rc != 0)
        return;
    must(w.limits.slots ? w.n_fds == HELLO_FDS || w.n_fds == HELLO_FDS - 1
                        : w.n_fds == HELLO_FDS_SHARED);
    must(strlen(w.model) < sizeof(w.model) && strlen(w.daemon) < sizeof(w.daemon));
}

static void check_refuse(const uint8_t *message, size_t bytes)
{
    struct hello_refuse r;

    if (hello_check_refuse(message, bytes, &r) == 0)
        must(r.code < 0 && strlen(r.line) < sizeof(r.line));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t bytes = size > 0 ? size - 1 : 0;
    uint8_t *message = malloc(bytes + (bytes == 0)); /* exact: a read past the end is seen */

    if (size == 0 || message == NULL) {
        free(message);
        return 0;
    }
    memcpy(message, data + 1, bytes);
    hello_kind(message, bytes);
    if (data[0] & 8)
        mend_head(message, bytes, (enum hello_kind)(data[0] % 3 + HELLO_HELLO));
    check_hello(message, bytes);
    check_welcome(message, bytes);
    check_refuse(message, bytes);
    free(message);
    return 0;
}
