/*
 * model_opened: opens a model from memory or from the test data, for tests, and checks the
 * result. A header of static functions like gguf_writer.h.
 */
#ifndef HEARTH_TESTS_RIG_MODEL_OPENED_H
#define HEARTH_TESTS_RIG_MODEL_OPENED_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/model/model.h"
#include "tests/rig/gguf_writer.h"

static char err[512];

/* An open model and the file it points into. */
struct opened {
    uint8_t *file;
    struct gguf *gguf;
    struct model *model;
};

static inline int open_file(uint8_t *file, size_t bytes, struct opened *ret)
{
    *ret = (struct opened){.file = file};
    err[0] = 0;
    int rc = gguf_open_memory(file, bytes, &ret->gguf, err, sizeof(err));
    if (!rc)
        rc = model_open(ret->gguf, &ret->model, err, sizeof(err));
    return rc;
}

static inline void close_opened(struct opened *o)
{
    model_close(o->model);
    gguf_close(o->gguf);
    free(o->file);
}

static inline void open_spec(const struct gw_llama *spec, struct opened *ret)
{
    size_t bytes;
    uint8_t *file = gw_llama_file(spec, &bytes, NULL);
    int rc = open_file(file, bytes, ret);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
}

static inline void open_testdata(const char *name, struct opened *ret)
{
    char path[1024];
    *ret = (struct opened){0};
    snprintf(path, sizeof(path), "%s/models/%s.gguf", getenv("HEARTH_TESTDATA"), name);
    int rc = gguf_open(path, &ret->gguf, err, sizeof(err));
    if (!rc)
        rc = model_open(ret->gguf, &ret->model, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s: %s", path, err);
}

/* Finishes the writer; model_open must refuse it with `code` and a line that holds `part`. */
static inline void check_refused(struct gw *w, int code, const char *part)
{
    struct opened o;
    size_t bytes;
    uint8_t *file = gw_finish(w, &bytes, NULL);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == code, "returned %d, not %d, for \"%s\": %s", rc, code, part, err);
    ck_assert_msg(strstr(err, part) != NULL, "\"%s\" is not in: %s", part, err);
    ck_assert_ptr_nonnull(o.gguf); /* the container itself was valid */
    ck_assert_ptr_null(o.model);
    close_opened(&o);
}

static inline void check_opens(struct gw *w)
{
    struct opened o;
    size_t bytes;
    uint8_t *file = gw_finish(w, &bytes, NULL);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    close_opened(&o);
}

#endif
