/*
 * gguf_opened: opens what a gguf_writer wrote, and checks the result. A header of static
 * functions like gguf_writer.h.
 */
#ifndef HEARTH_TESTS_RIG_GGUF_OPENED_H
#define HEARTH_TESTS_RIG_GGUF_OPENED_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gguf/gguf.h"
#include "tests/rig/gguf_writer.h"

static char err[256];

/* The error must be one non-empty line of printable ASCII. */
static inline void check_line(void)
{
    ck_assert_uint_gt(strlen(err), 0);
    ck_assert_uint_lt(strlen(err), sizeof(err));
    for (const char *p = err; *p; p++)
        ck_assert_msg(*p >= 0x20 && *p <= 0x7e, "byte %02x in the line", (unsigned char)*p);
}

/* Finishes the writer and opens the result. *ret_file is to be freed after the gguf. */
static inline int open_writer(struct gw *w, struct gguf **ret_gguf, uint8_t **ret_file)
{
    size_t bytes;
    *ret_file = gw_finish(w, &bytes, NULL);
    err[0] = 0;
    *ret_gguf = NULL;
    return gguf_open_memory(*ret_file, bytes, ret_gguf, err, sizeof(err));
}

static inline void check_opens(struct gw *w)
{
    struct gguf *g;
    uint8_t *file;
    int rc = open_writer(w, &g, &file);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    gguf_close(g);
    free(file);
}

static inline void check_refused(struct gw *w, int code, const char *part)
{
    struct gguf *g;
    uint8_t *file;
    int rc = open_writer(w, &g, &file);
    ck_assert_msg(rc == code, "returned %d, not %d, for \"%s\": %s", rc, code, part, err);
    ck_assert_msg(strstr(err, part) != NULL, "\"%s\" is not in: %s", part, err);
    ck_assert_ptr_null(g);
    check_line();
    free(file);
}

#endif
