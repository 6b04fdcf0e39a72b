/* The pass contract on the CUDA backend, cost of starting a pass: it uploads its own rows in one
 * copy, however many rows the limits allow. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"

enum { LIMIT_ROWS = 512, HELD = 40 };

/* Runs a pass while copies to the device of more than `bytes` fail. Returns its code. */
static int in_copies_of(struct subject *s, struct backend *b, struct mixed *x, uint32_t bytes)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", bytes);
    setenv("HEARTH_CUDASIM_COPY", text, 1);
    const int rc = run_mixed(s, b, x, PASS_CANONICAL);
    unsetenv("HEARTH_CUDASIM_COPY");
    return rc;
}

/* The limit is 512 rows: a sequence decodes, alone and with others, and one prefills. 128 bytes
 * hold counts; a row adds 24, an item of attention 24, a page 4, a sample 112. */
void a_pass_uploads_only_its_own_rows(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    struct sampler_params params;
    struct mixed x = {.n = 0};
    uint32_t pages[SUBJECT_PAGES];
    if (!may_fail())
        return;
    sampler_params_init(&params);
    subject_init(&s, &shape, 64);
    subject_pages(7, pages);
    struct backend *b = subject_open(&s, &s.device, LIMIT_ROWS, SUBJECT_PAGES);
    for (uint32_t i = 0; i <= OTHERS; i++) {
        x.sequences[i] = (struct pass_sequence){
            .pages = pages + 4 * i, .tokens = s.tokens, .prompt_length = 1, .sampler = &params};
        add_rows(&x, i, s.tokens, 0, i ? 4 : HELD, 0);
    }
    int rc = run_mixed(&s, b, &x, PASS_CANONICAL);
    x.n = 0;
    add_rows(&x, 0, s.tokens, HELD, 1, ROW_SAMPLE);
    const int alone = in_copies_of(&s, b, &x, 128 + 2 * 24 + 24 + 2 * 4 + 4 + 112);
    for (uint32_t i = 1; i <= OTHERS; i++)
        add_rows(&x, i, s.tokens, 4, 1, ROW_SAMPLE);
    const int together = in_copies_of(&s, b, &x, 128 + 5 * 24 + 4 * 24 + 5 * 4 + 4 + 4 * 112);
    x.n = 0;
    add_rows(&x, 0, s.tokens, 0, 64, 0);
    const int many = in_copies_of(&s, b, &x, 128 + 65 * 24 + 64 * 24 + 2 * 4);
    const int none = in_copies_of(&s, b, &x, 128);
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0, "the first pass: %d", rc);
    EXPECT(alone == 0, "a row and a sample take more: %d", alone);
    EXPECT(together == 0, "four rows and samples take more: %d", together);
    EXPECT(many == 0, "64 rows of a sequence take more: %d", many);
    EXPECT(none == -EIO, "64 rows took no more than none: %d", none);
}
