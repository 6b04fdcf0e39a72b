/*
 * cpu_help: what the tests of the CPU backend share: random and adversarial floats, the instruction
 * sets of this machine, and a model opened together with a backend. Failures name the seed.
 */
#ifndef HEARTH_TESTS_RIG_CPU_HELP_H
#define HEARTH_TESTS_RIG_CPU_HELP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/gguf/gguf.h"
#include "kernels/model/model.h"
#include "tests/rig/tiny_model.h"

/* ---- numbers ----------------------------------------------------------------------------------
 */

uint64_t help_random(uint64_t *state);
float help_normal(uint64_t *state); /* about -3.5 .. 3.5 */

enum help_kind {
    HELP_NORMAL,
    HELP_WIDE,     /* magnitudes from 2^-60 to 2^60, both signs */
    HELP_DENORMAL, /* denormals, zeros of both signs and a few ordinary numbers */
    HELP_ZERO,     /* +0 and -0 */
    HELP_SPIKE,    /* small numbers with a few large ones */
    HELP_KINDS
};

void help_fill(uint64_t *state, enum help_kind kind, float *x, size_t n);

/* Zeroed memory aligned to 64; free() it. */
void *help_memory(size_t bytes);

/* A copy of x [n] (NULL: unset) that ends where its allocation ends, so that a sanitizer sees an
 * overrun; free() it. */
float *help_exact(const float *x, size_t n);

/* This machine's instruction sets except "ref"; returns how many. */
enum { HELP_ISAS = 3 };
int help_isas(const struct cpu_isa *isas[HELP_ISAS]);

/* For each of them: const struct cpu_isa *isa. */
#define FOR_ISAS(isa)                                                                              \
    const struct cpu_isa *isas_[HELP_ISAS];                                                        \
    for (int n_ = help_isas(isas_), i_ = 0; i_ < n_; i_++)                                         \
        for (const struct cpu_isa *isa = isas_[i_]; isa; isa = NULL)

/* Names on stderr the instruction sets that hearth supports and this machine lacks: they are not
 * tested. */
void help_say_missing_isas(void);

/* True for "ref" and for those. */
bool help_has_isa(const char *name);

/* Index of the first float whose bits differ, or n. */
size_t help_differs(const float *a, const float *b, size_t n);

/* ---- a model with a backend -------------------------------------------------------------------
 */

struct help_model {
    uint8_t *file; /* NULL when it was opened from a path */
    struct gguf *gguf;
    struct model *model;
    float *sinks; /* tiny_model_sinks, or NULL */
    bool kv_q8_0; /* how help_backend opens it */
};

void help_model_tiny(struct help_model *m, const struct tiny_model *shape);
void help_model_file(struct help_model *m, const char *path);
void help_model_close(struct help_model *m);

/* With HELP_STATES states, where the model has recurrent layers. */
enum { HELP_STATES = 8 };
struct backend *help_backend(const struct help_model *m, const char *isa, uint32_t threads,
                             uint32_t rows, uint32_t pages);

/* The path of a test-data file, static; NULL without HEARTH_TESTDATA. */
const char *help_testdata(const char *name);

/* Runs one pass and checks that it was accepted. */
void help_pass(struct backend *b, const struct pass *pass);

/* Logits [n][n_vocab] of a sequence of n tokens, computed in chunks of `chunk` rows (0: all) over
 * pages[]; in state 0. */
void help_logits(struct backend *b, const struct model *m, const uint32_t *tokens, uint32_t n,
                 uint32_t chunk, const uint32_t *pages, float *logits);

#endif
