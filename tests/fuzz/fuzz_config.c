/* Fuzzes configuration: with an even first byte the rest is hearthd's file; with an odd one
 * hearth-http's command line, words that end in a 0, where a word "=" is a file of keys with
 * what follows. A refusal says why; what is accepted is in the range that the table says. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/http/config.h"
#include "daemon/config.h"

enum { WORDS_MAX = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_line(int rc, const char *err)
{
    must(rc == 0 || (rc < 0 && err[0] != 0));
}

/* The path of a file that holds this. */
static const char *file_of(const uint8_t *data, size_t size)
{
    static char path[40];
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}

static void check_ranges(const struct config *c)
{
#define IGNORE(...)
#define NUMBER(field, name, def, least, most, value, help)                                         \
    must(c->field + 1 >= (uint64_t)(least) + 1 && c->field <= (uint64_t)(most));
#define CHOICE(field, name, def, choices, help) must(c->field < 8);
    HEARTHD_OPTIONS(IGNORE, NUMBER, CHOICE, IGNORE)
#undef NUMBER
#undef CHOICE
}

static void read_daemon(const uint8_t *data, size_t size)
{
    char name[] = "hearthd", option[] = "--config", path[40], err[5000] = "";
    strcpy(path, file_of(data, size));
    char *argv[] = {name, option, path, NULL};
    struct config c;
    int rc = config_load(&c, 3, argv, err, sizeof(err));
    check_line(rc, err);
    must(rc == 0 || strchr(err, '\n') == NULL);
    if (rc == 0)
        check_ranges(&c);
    config_fini(&c);
}

/* Cuts the text at its zeros. Returns the number of words. */
static int words(char *text, size_t size, char **argv)
{
    static char option[] = "--api-key-file", path[40];
    int n = 1;
    for (char *end = text + size; text < end && n < WORDS_MAX; text += strlen(text) + 1) {
        if (!strncmp(text, "--api-key-file", 14)) /* no other file is opened */
            continue;
        argv[n++] = text;
        if (strcmp(text, "=") != 0)
            continue;
        text += 2;
        strcpy(path, file_of((const uint8_t *)text, text < end ? (size_t)(end - text) : 0));
        argv[n - 1] = option;
        argv[n++] = path;
        break;
    }
    return n;
}

static void read_http(const uint8_t *data, size_t size)
{
    char name[] = "hearth-http", *argv[WORDS_MAX + 2] = {name}, err[5000] = "";
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    struct http_config c;
    int rc = http_config_read(&c, words(text, size, argv), argv, err, sizeof(err));
    check_line(rc, err);
    if (rc == 0) {
        must(c.slots >= 1 && c.slots <= 64 && c.max_body >= 1024 && c.port <= 65535);
        must(!c.host || c.port);
        for (uint32_t i = 0; i < c.api_keys.n; i++)
            must(c.api_keys.items[i][0] != 0);
    }
    http_config_fini(&c);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] & 1)
        read_http(data + 1, size - 1);
    else if (size > 0)
        read_daemon(data + 1, size - 1);
    return 0;
}
