/* delta.c: recurrent layers. See delta.h. */
#include "kernels/cpu/delta.h"

#include <math.h>
#include <string.h>

#include "kernels/base/num.h"
#include "kernels/cpu/share.h"

/* ---- where things are ------------------------------------------------------------------------ */

static const struct state_layer *layer_of(const struct backend *b, const struct layer_op *op)
{
    return &b->states.geometry.layer[op->read.index];
}

float *delta_memory(const struct backend *b, int32_t state)
{
    return (float *)(void *)(b->states.memory + (size_t)state * b->states.geometry.state_bytes);
}

float *delta_record(const struct backend *b, int32_t state, uint32_t i)
{
    const struct state_geometry *g = &b->states.geometry;
    return (float *)(void *)(b->states.records + (size_t)state * g->record_bytes) + i * g->record;
}

static const struct pass_state *state_of(const struct backend *b, uint32_t sequence)
{
    return &b->pass->sequences[sequence].state;
}

static float *row_at(const struct backend *b, enum op_buffer buffer, uint32_t r)
{
    const struct cpu_input *x = &b->buffers.of[buffer];
    return x->f + (size_t)r * x->stride;
}

uint32_t delta_base(const struct backend *b, uint32_t sequence)
{
    const struct pass_state *s = state_of(b, sequence);
    return b->pass->rows[b->states.first[sequence]].position - s->apply - s->replay;
}

void delta_begin_pass(struct backend *b)
{
    struct cpu_states *x = &b->states;
    if (b->model->n_recurrent == 0)
        return;
    memset(x->rows, 0, b->pass->n_sequences * sizeof(x->rows[0]));
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        const uint32_t s = b->pass->rows[r].sequence;
        x->before[r] = x->after[r] = CPU_OK;
        if (x->rows[s]++ == 0) {
            x->first[s] = r;
        } else {
            x->before[r] = x->last[s];
            x->after[x->last[s]] = r;
        }
        x->last[s] = r;
    }
}

/* ---- the convolution ------------------------------------------------------------------------- */

/* The convolution's input of layer and sequence at `step`: 0 is that of the first record, the rows
 * of the pass follow the records; -1, -2, .. are those before, which the state holds. `row`: that
 * of the step, if it is a row's. */
static const float *input_at(const struct backend *b, const struct layer_op *op, uint32_t sequence,
                             int32_t step, uint32_t row)
{
    const struct state_layer *layer = layer_of(b, op);
    const struct pass_state *s = state_of(b, sequence);
    if (step >= (int32_t)(s->apply + s->replay))
        return row_at(b, BUFFER_MIXED, row);
    if (s->from == BACKEND_STATE_ZERO)
        return b->states.zero;
    return step >= 0 ? delta_record(b, s->from, (uint32_t)step) + layer->record
                     : delta_memory(b, s->from) + layer->inputs +
                           (size_t)((int32_t)layer->n_inputs + step) * layer->delta.channels;
}

/* How strongly each V head writes, and what it keeps. */
static void beta_and_decay(const struct backend *b, const struct layer_op *op, uint32_t r)
{
    const struct delta_geometry *g = &op->geometry->delta;
    const bool joined = op->from[1] == op->from[2];
    const float *a = cpu_vector_of(b, op, op->tensor[1]), *dt = cpu_vector_of(b, op, op->tensor[2]),
                *x = row_at(b, op->from[1], r), *l = row_at(b, op->from[2], r);
    float *beta = row_at(b, op->to[1], r), *decay = row_at(b, op->to[2], r);
    for (uint32_t h = 0; h < g->n_head_v; h++) {
        const uint32_t at = joined ? delta_beta_at(g, h) : h;
        beta[h] = num_sigmoid(x[at]);
        decay[h] = num_exp(a[h] * num_softplus(l[joined ? at + g->run : at] + dt[h]));
    }
}

/* The same of Mamba-2: both of a step's length. */
static void step_and_decay(const struct backend *b, const struct layer_op *op, uint32_t r)
{
    const float *a = cpu_vector_of(b, op, op->tensor[1]), *dt = cpu_vector_of(b, op, op->tensor[2]);
    const float *l = row_at(b, op->from[2], r);
    float *beta = row_at(b, op->to[1], r), *decay = row_at(b, op->to[2], r);
    for (uint32_t h = 0; h < op->geometry->delta.n_head_v; h++) {
        beta[h] = num_softplus(l[h] + dt[h]);
        decay[h] = num_exp(a[h] * beta[h]);
    }
}

void delta_convolve_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    (void)worker;
    const struct delta_geometry *g = &op->geometry->delta;
    const struct cpu_layer *l = &b->use->layers[op->layer];
    const uint32_t sequence = b->pass->rows[r].sequence;
    const float *x[MODEL_TAPS];
    float *y = row_at(b, op->to[0], r);
    const float scale = 1.0f / sqrtf((float)g->k_dim);
    int32_t step = (int32_t)(b->pass->rows[r].position - delta_base(b, sequence));
    for (uint32_t j = g->taps, row = r; j-- > 0; step--) {
        x[j] = input_at(b, op, sequence, step, row);
        row = row == CPU_OK ? row : b->states.before[row];
    }
    b->isa->convolve(&(struct cpu_convolution){.x = x,
                                               .taps = l->vector[op->tensor[0]],
                                               .bias = cpu_vector_of(b, op, op->bias[0]),
                                               .n_taps = g->taps,
                                               .n = g->channels,
                                               .silu = g->n_head_v > 0,
                                               .y = y});
    if (g->n_head_v == 0)
        return;
    if (g->mamba) {
        step_and_decay(b, op, r);
        return;
    }
    for (uint32_t h = 0; h < 2 * g->n_head_k; h++)
        b->isa->unit(y + (size_t)h * g->k_dim, g->k_dim, h < g->n_head_k ? scale : 1.0f);
    beta_and_decay(b, op, r);
}

/* ---- the recurrence -------------------------------------------------------------------------- */

/* A block of a sequence's state on its way through records and rows. */
struct walk {
    const struct backend *b;
    const struct layer_op *op;
    const struct state_layer *layer;
    const struct pass_state *s;
    uint32_t sequence, base;
    uint32_t head, column, columns;  /* of V: the block's first column, and how many it has */
    size_t block;                    /* floats from the layer's S to the block */
    uint32_t records, folded, steps; /* the first steps are records; so many move the state; all */
    uint32_t row;                    /* of the next step that is not a record */
};

static float *block_of(const struct walk *w, int32_t state)
{
    return delta_memory(w->b, state) + w->layer->scan + w->block;
}

/* The head's q, k or v (part 0, 1, 2) of row r. */
static float *part_of(const struct walk *w, uint32_t r, uint32_t part)
{
    const struct delta_geometry *g = &w->layer->delta;
    const size_t key = (size_t)delta_k_head(g, w->head) * g->k_dim;
    return row_at(w->b, w->op->from[0], r) +
           (part == 0   ? g->q_at + key
            : part == 1 ? g->k_at + key
                        : g->v_at + (size_t)w->head * g->v_dim + w->column);
}

/* The key whose chain over the state a step begins with: that of row r, if there is one. Mamba-2 has no such chain. */
static const float *key_of(const struct walk *w, uint32_t r)
{
    return r == CPU_OK || w->layer->delta.mamba ? NULL : part_of(w, r, 1);
}

/* Copies the state if the pass keeps the one after this many tokens. */
static void keep(const struct walk *w, uint32_t position, const float *state)
{
    for (uint32_t i = 0; i < w->s->n_keep; i++)
        if (w->s->keep[i].position == position)
            memcpy(block_of(w, w->s->keep[i].id), state, w->layer->block * sizeof(float));
}

/* Step t: moves `from` to `to`, by a record, or by a row, whose outputs it writes and whose v
 * becomes d. p: chains of its k over `from`, afterwards of the next row's. */
static void step(struct walk *w, uint32_t t, const float *from, float *to, float p[STATE_COLUMNS])
{
    const struct backend *b = w->b;
    const struct delta_geometry *g = &w->layer->delta;
    float d[STATE_COLUMNS] = {0}, o[STATE_COLUMNS];
    struct cpu_delta a = {.from = from, .to = to, .n = g->k_dim, .d = d, .o = o, .p = p};
    if (t < w->records) {
        const float *record = delta_record(b, w->s->from, t);
        a.k = record + w->layer->k + (size_t)delta_k_head(g, w->head) * g->k_dim;
        a.decay = record[w->layer->decay + w->head];
        memcpy(d, record + w->layer->d + (size_t)w->head * g->v_dim + w->column,
               w->columns * sizeof(float));
        a.next_k = t + 1 == w->records ? key_of(w, w->row) : NULL;
        b->isa->delta_step(&a);
        return;
    }
    const uint32_t r = w->row;
    const float beta = row_at(b, w->op->from[1], r)[w->head];
    float *v = part_of(w, r, 2);
    a.decay = row_at(b, w->op->from[2], r)[w->head];
    a.k = part_of(w, r, 1);
    a.q = part_of(w, r, 0);
    for (uint32_t j = 0; j < w->columns; j++)
        d[j] = (g->mamba ? v[j] : v[j] - p[j] * a.decay) * beta;
    w->row = b->states.after[r];
    a.next_k = key_of(w, w->row);
    b->isa->delta_step(&a);
    if (g->mamba)
        for (uint32_t j = 0; j < w->columns; j++)
            o[j] = fmaf(cpu_vector_of(b, w->op, w->op->tensor[0])[w->head], v[j], o[j]);
    memcpy(v, d, w->columns * sizeof(float));
    memcpy(row_at(b, w->op->to[0], r) + (size_t)w->head * g->v_dim + w->column, o,
           w->columns * sizeof(float));
}

/* The state moves in its own memory as far as rows are folded in, from there on in `scratch`. */
static void walk(struct walk *w, float *scratch)
{
    float *own = block_of(w, w->s->own), p[STATE_COLUMNS];
    const float *now = own;
    if (w->s->from == BACKEND_STATE_ZERO)
        memset(own, 0, w->layer->block * sizeof(float));
    else if (w->s->from != w->s->own)
        memcpy(own, block_of(w, w->s->from), w->layer->block * sizeof(float));
    keep(w, w->base, now);
    if (w->records == 0 && key_of(w, w->row))
        w->b->isa->delta_read(now, key_of(w, w->row), w->layer->delta.k_dim, p);
    for (uint32_t t = 0; t < w->steps; t++) {
        float *to = t < w->folded ? own : t + 1 < w->steps ? scratch : NULL;
        step(w, t, now, to, p);
        now = to;
        if (t < w->folded)
            keep(w, w->base + t + 1, own);
    }
}

static void delta_item(struct backend *b, const struct layer_op *op, uint32_t item, uint32_t worker)
{
    const struct state_layer *layer = layer_of(b, op);
    const uint32_t per = layer->delta.n_head_v * layer->blocks, sequence = item / per,
                   block = item % per;
    struct walk w = {.b = b,
                     .op = op,
                     .layer = layer,
                     .s = state_of(b, sequence),
                     .sequence = sequence,
                     .head = block / layer->blocks,
                     .column = block % layer->blocks * STATE_COLUMNS,
                     .block = block * layer->block};
    if (b->states.rows[sequence] == 0)
        return;
    w.base = delta_base(b, sequence);
    w.columns = layer->delta.v_dim - w.column < STATE_COLUMNS ? layer->delta.v_dim - w.column
                                                              : STATE_COLUMNS;
    w.records = w.s->apply + w.s->replay;
    w.folded = w.s->apply + w.s->commit;
    w.steps = w.records + b->states.rows[sequence];
    w.row = b->states.first[sequence];
    walk(&w, b->states.scratch + worker * b->states.block);
}

void delta_run(struct backend *b, const struct layer_op *op)
{
    const struct state_layer *layer = layer_of(b, op);
    const uint32_t n = b->pass->n_sequences;
    share_items(b, delta_item, op, n * layer->delta.n_head_v * layer->blocks,
                layer->block * (b->pass->n_rows / n + 1));
}

/* ---- after it -------------------------------------------------------------------------------- */

/* The last inputs before `step` go to a memory. Where they come from the same one they move towards
 * its beginning. */
static void put_inputs(struct backend *b, const struct layer_op *op, uint32_t sequence,
                       int32_t state, uint32_t step)
{
    const struct state_layer *layer = layer_of(b, op);
    const struct pass_state *s = state_of(b, sequence);
    const uint32_t records = s->apply + s->replay, n = layer->delta.channels;
    uint32_t row = b->states.first[sequence];
    for (uint32_t i = records + layer->n_inputs; i < step; i++)
        row = b->states.after[row];
    for (int32_t i = 0; i < (int32_t)layer->n_inputs; i++) {
        const int32_t at = (int32_t)step - (int32_t)layer->n_inputs + i;
        const float *from = input_at(b, op, sequence, at, row);
        float *to = delta_memory(b, state) + layer->inputs + (size_t)i * n;
        if (from != to)
            memcpy(to, from, n * sizeof(float));
        if (at >= (int32_t)records)
            row = b->states.after[row];
    }
}

static void put_record(struct backend *b, const struct layer_op *op, uint32_t r, float *record)
{
    const struct state_layer *layer = layer_of(b, op);
    const struct delta_geometry *g = &layer->delta;
    const size_t keys = (size_t)g->n_head_k * g->k_dim;
    memcpy(record + layer->record, row_at(b, BUFFER_MIXED, r), g->channels * sizeof(float));
    if (g->n_head_v == 0)
        return;
    const float *y = row_at(b, op->from[0], r);
    memcpy(record + layer->k, y + g->k_at, keys * sizeof(float));
    memcpy(record + layer->d, y + g->v_at, (size_t)g->n_head_v * g->v_dim * sizeof(float));
    memcpy(record + layer->decay, row_at(b, op->from[2], r), g->n_head_v * sizeof(float));
}

void delta_settle(struct backend *b, const struct layer_op *op, uint32_t sequence, uint32_t worker)
{
    (void)worker;
    const struct state_layer *layer = layer_of(b, op);
    const struct pass_state *s = state_of(b, sequence);
    const size_t end = layer->decay + layer->delta.n_head_v;
    uint32_t row = b->states.first[sequence], n = 0;
    if (b->states.rows[sequence] == 0)
        return;
    for (uint32_t i = 0; i < s->n_keep; i++)
        put_inputs(b, op, sequence, s->keep[i].id, s->keep[i].position - delta_base(b, sequence));
    put_inputs(b, op, sequence, s->own, s->apply + s->commit);
    for (; n < s->replay; n++)
        if (s->apply > 0 || s->from != s->own)
            memcpy(delta_record(b, s->own, n) + layer->record,
                   delta_record(b, s->from, s->apply + n) + layer->record,
                   (end - layer->record) * sizeof(float));
    for (uint32_t i = 0; row != CPU_OK; row = b->states.after[row], i++)
        if (i >= s->commit)
            put_record(b, op, row, delta_record(b, s->own, n++));
}
