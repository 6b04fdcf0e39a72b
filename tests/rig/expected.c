#include "tests/rig/expected.h"

#include <check.h>
#include <stdlib.h>

void expected_random_tokens(uint64_t seed, const struct model *m, uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)(help_random(&seed) % m->n_vocab);
}

void expected_page_ids(uint64_t seed, uint32_t pages[EXPECTED_PAGES])
{
    for (uint32_t i = 0; i < EXPECTED_PAGES; i++)
        pages[i] = i;
    for (uint32_t i = EXPECTED_PAGES - 1; i > 0 && seed > 0; i--) {
        uint32_t j = (uint32_t)(help_random(&seed) % (i + 1)), page = pages[i];
        pages[i] = pages[j];
        pages[j] = page;
    }
}

void expected_open(struct expected *e, const struct tiny_model *shape, const char *isa, uint32_t n)
{
    help_model_tiny(&e->m, shape);
    expected_random_tokens(shape->seed, e->m.model, e->tokens, n);
    expected_page_ids(0, e->pages);
    e->n = n;
    e->logits = help_memory((size_t)n * shape->n_vocab * sizeof(float));
    struct backend *b = help_backend(&e->m, isa, 1, n, EXPECTED_PAGES);
    help_logits(b, e->m.model, e->tokens, n, 0, e->pages, e->logits);
    backend_cpu.close(b);
}

void expected_close(struct expected *e)
{
    help_model_close(&e->m);
    free(e->logits);
}

void expected_same(const struct expected *e, const float *got, const char *what)
{
    size_t n = (size_t)e->n * e->m.model->n_vocab, at = help_differs(e->logits, got, n);
    ck_assert_msg(at == n, "%s: row %zu differs at token %zu: %a for %a", what,
                  at / e->m.model->n_vocab, at % e->m.model->n_vocab, (double)got[at],
                  (double)e->logits[at]);
}

void expected_add(struct expected_rows *x, uint32_t s, const uint32_t *tokens, uint32_t position,
                  uint32_t count, uint32_t wants)
{
    for (uint32_t i = 0; i < count; i++)
        x->rows[x->n++] = (struct row){s, position + i, tokens[position + i], wants, NULL};
}

void expected_run(struct backend *b, enum pass_kind kind, struct expected_rows *x,
                  uint32_t n_sequences)
{
    struct pass pass = {kind, x->n, x->rows, x->sequences, x->results, n_sequences};
    help_pass(b, &pass);
}

const uint32_t expected_types[EXPECTED_TYPES] = {QUANT_F32,  QUANT_F16,  QUANT_BF16,  QUANT_Q8_0,
                                                 QUANT_Q4_0, TINY_MIXED, TINY_MIXED_K};

uint32_t expected_type(int i)
{
    return expected_types[i % EXPECTED_TYPES];
}

bool expected_q8_0(int i)
{
    return i >= EXPECTED_TYPES;
}
