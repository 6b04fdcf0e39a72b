/*
 * sample_fixture: logits, a history and scratch that the tests of kernels/sample/sample.h share.
 * A header of static functions like gguf_writer.h.
 */
#ifndef HEARTH_TESTS_RIG_SAMPLE_FIXTURE_H
#define HEARTH_TESTS_RIG_SAMPLE_FIXTURE_H

#include <check.h>

#include "kernels/sample/sample.h"

enum { N = 1000 };

static struct sampler_scratch *scratch; /* for N tokens */
static float logits[N];
static uint32_t history[N]; /* history[i] = i % 7 */

static inline void fill(void)
{
    for (uint32_t i = 0; i < N; i++) {
        logits[i] =
            (float)((i * 7919u) % 1009u) * 0.0125f - 6.0f; /* distinct: 7919 and 1009 are coprime */
        history[i] = i % 7;
    }
}

static inline void setup(void)
{
    ck_assert_int_eq(sampler_scratch_open(N, &scratch), 0);
    fill();
}

static inline void teardown(void)
{
    sampler_scratch_close(scratch);
}

static inline int sample_at(const struct sampler_params *p, uint32_t position, struct sample *ret)
{
    return sample_token(p, logits, N, history, position, 0, scratch, ret);
}

static inline struct sampler_params sampling(float temperature)
{
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = temperature;
    return p;
}

#endif
