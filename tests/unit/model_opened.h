/*
 * model_opened: opens a model from memory or from the test data, for tests. A header of static
 * functions, as gguf_writer.h is.
 */
#ifndef HEARTH_TESTS_UNIT_MODEL_OPENED_H
#define HEARTH_TESTS_UNIT_MODEL_OPENED_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/model.h"
#include "tests/unit/gguf_writer.h"

static char err[256];

/* An open model and what it stands on. */
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

#endif
