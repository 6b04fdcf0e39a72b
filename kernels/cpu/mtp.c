/* mtp.c: hidden rows. See mtp.h. */
#include "kernels/cpu/mtp.h"

#include <string.h>

#include "kernels/cpu/delta.h"

/* The hidden row of a sequence at `step`: -1 is that of the last token of its state, 0 that of the
 * first record; the rows of the pass follow the records. `row`: that of the step, if it is a row's. */
static const float *hidden_at(const struct backend *b, uint32_t sequence, int32_t step,
                              uint32_t row)
{
    const struct pass_state *s = &b->pass->sequences[sequence].state;
    const struct state_geometry *g = &b->states.geometry;
    const struct cpu_input *hidden = &b->buffers.of[BUFFER_HIDDEN];
    if (step >= (int32_t)(s->apply + s->replay))
        return hidden->f + (size_t)row * hidden->stride;
    if (s->from == BACKEND_STATE_ZERO)
        return b->states.zero;
    return step >= 0 ? delta_record(b, s->from, (uint32_t)step) + g->record_hidden
                     : delta_memory(b, s->from) + g->hidden;
}

void mtp_join_row(struct backend *b, const struct layer_op *op, uint32_t r)
{
    const uint32_t n = b->model->n_embd, sequence = b->pass->rows[r].sequence;
    const int32_t step = (int32_t)(b->pass->rows[r].position - delta_base(b, sequence)) - 1;
    const float *hidden = hidden_at(b, sequence, step, b->states.before[r]);
    const struct cpu_layer *l = &b->use->layers[op->layer];
    float *x = b->buffers.of[op->to[0]].f + (size_t)r * b->buffers.of[op->to[0]].stride;
    b->isa->norm(x, l->vector[op->tensor[0]], n, b->model->rms_eps, x);
    b->isa->norm(hidden, l->vector[op->tensor[1]], n, b->model->rms_eps, x + n);
}

/* The hidden row before token `position` becomes that of a memory. */
static void put_hidden(struct backend *b, uint32_t sequence, int32_t state, uint32_t position)
{
    const struct pass_state *s = &b->pass->sequences[sequence].state;
    const uint32_t records = s->apply + s->replay, base = delta_base(b, sequence);
    const int32_t step = (int32_t)(position - base) - 1;
    uint32_t row = b->states.first[sequence];
    for (int32_t i = (int32_t)records; i < step; i++)
        row = b->states.after[row];
    const float *from = hidden_at(b, sequence, step, row);
    float *to = delta_memory(b, state) + b->states.geometry.hidden;
    if (from != to)
        memcpy(to, from, b->model->n_embd * sizeof(float));
}

void mtp_remember(struct backend *b, const struct layer_op *op, uint32_t sequence, uint32_t worker)
{
    (void)op, (void)worker;
    const struct pass_state *s = &b->pass->sequences[sequence].state;
    const struct state_geometry *g = &b->states.geometry;
    const size_t bytes = b->model->n_embd * sizeof(float);
    uint32_t n = 0, i = 0;
    if (b->states.rows[sequence] == 0)
        return;
    const uint32_t base = delta_base(b, sequence);
    for (uint32_t k = 0; k < s->n_keep; k++)
        put_hidden(b, sequence, s->keep[k].id, s->keep[k].position);
    put_hidden(b, sequence, s->own, base + s->apply + s->commit);
    for (; n < s->replay; n++)
        if (s->apply > 0 || s->from != s->own)
            memcpy(delta_record(b, s->own, n) + g->record_hidden,
                   delta_record(b, s->from, s->apply + n) + g->record_hidden, bytes);
    for (uint32_t row = b->states.first[sequence]; row != CPU_OK; row = b->states.after[row], i++)
        if (i >= s->commit)
            memcpy(delta_record(b, s->own, n++) + g->record_hidden,
                   hidden_at(b, sequence, (int32_t)(s->apply + s->replay + i), row), bytes);
}
