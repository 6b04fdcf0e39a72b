#include "tests/rig/double_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/base/num.h"

struct weights { /* a matrix as double, [rows][cols] */
    double *w;
    uint32_t rows, cols;
};

struct double_model {
    const struct model *m;
    uint32_t position;
    struct weights (*layers)[MODEL_N_LAYER_TENSORS];
    struct weights global[MODEL_N_GLOBAL];
    double *keys, *values; /* [layer][context][kv] */
    uint32_t context;
    bool kv_f16;
    double *x, *norm, *q, *out, *gate, *up, *logits;
};

static double *numbers(size_t n)
{
    double *p = calloc(n, sizeof *p);
    if (!p)
        abort();
    return p;
}

static struct weights load(const struct model_tensor *t)
{
    struct weights w = {NULL, t->rows, t->cols};
    if (!t->data)
        return w;
    float *row = malloc(t->cols * sizeof *row);
    w.w = numbers((size_t)t->rows * t->cols);
    for (uint32_t r = 0; r < t->rows && row; r++) {
        ref_matrix_row(t, r, row);
        for (uint32_t c = 0; c < t->cols; c++)
            w.w[(size_t)r * t->cols + c] = row[c];
    }
    free(row);
    return w;
}

struct double_model *double_model_open(const struct model *m, uint32_t context, bool kv_f16)
{
    struct double_model *d = calloc(1, sizeof *d);
    size_t kv = (size_t)m->n_head_kv * m->head_dim, q = (size_t)m->n_head * m->head_dim;
    if (!d)
        abort();
    d->m = m;
    d->context = context;
    d->kv_f16 = kv_f16;
    d->layers = calloc(m->n_layer, sizeof *d->layers);
    if (!d->layers)
        abort();
    for (uint32_t l = 0; l < m->n_layer; l++) {
        for (int t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            d->layers[l][t] = load(&m->layers[l].tensor[t]);
    }
    for (int t = 0; t < MODEL_N_GLOBAL; t++)
        d->global[t] = load(&m->global[t]);
    d->keys = numbers(m->n_layer * context * kv);
    d->values = numbers(m->n_layer * context * kv);
    d->x = numbers(m->n_embd);
    d->norm = numbers(m->n_embd);
    d->q = numbers(q);
    d->out = numbers(q);
    d->gate = numbers(m->n_ff);
    d->up = numbers(m->n_ff);
    d->logits = numbers(m->n_vocab);
    return d;
}

void double_model_close(struct double_model *d)
{
    for (uint32_t l = 0; l < d->m->n_layer; l++) {
        for (int t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            free(d->layers[l][t].w);
    }
    for (int t = 0; t < MODEL_N_GLOBAL; t++)
        free(d->global[t].w);
    double *parts[] = {d->keys, d->values, d->x, d->norm, d->q, d->out, d->gate, d->up, d->logits};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
    free(d->layers);
    free(d);
}

static void multiply(const struct weights *w, const double *x, double *y)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        double sum = 0;
        for (uint32_t c = 0; c < w->cols; c++)
            sum += w->w[(size_t)r * w->cols + c] * x[c];
        y[r] = sum;
    }
}

/* y may be x. */
static void rmsnorm(const struct double_model *d, const struct weights *w, const double *x,
                    double *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < w->cols; i++)
        sum += x[i] * x[i];
    double r = 1 / sqrt(sum / w->cols + (double)d->m->rms_eps);
    for (uint32_t i = 0; i < w->cols; i++)
        y[i] = x[i] * r * w->w[i];
}

static void add(double *x, const double *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void rotate(const struct double_model *d, bool local, double *x, uint32_t heads)
{
    const struct model *m = d->m;
    const double *divisor = local ? NULL : d->global[MODEL_ROPE_FREQS].w;
    double base = (double)(local ? m->local_rope_base : m->rope_base);
    double scale = local ? 1.0 : (double)m->rope_scale;
    bool halves = m->rope == MODEL_ROPE_HALVES;
    for (uint32_t h = 0; h < heads; h++, x += m->head_dim) {
        for (uint32_t i = 0; i < m->head_dim / 2; i++) {
            double a = d->position * pow(base, -2.0 * i / m->head_dim) / scale /
                       (divisor ? divisor[i] : 1.0);
            double *x0 = x + (halves ? i : 2 * i), *x1 = halves ? x0 + m->head_dim / 2 : x0 + 1;
            double x0_before = *x0;
            *x0 = *x0 * cos(a) - *x1 * sin(a);
            *x1 = *x1 * cos(a) + x0_before * sin(a);
        }
    }
}

/* Bias and norm per head, where the architecture has them. */
static void finish_heads(const struct double_model *d, double *x, uint32_t heads,
                         const struct weights *bias, const struct weights *norm)
{
    uint32_t dim = d->m->head_dim;
    if (bias->w)
        add(x, bias->w, heads * dim);
    for (uint32_t h = 0; norm && norm->w && h < heads; h++)
        rmsnorm(d, norm, x + (size_t)h * dim, x + (size_t)h * dim);
}

static void attend(struct double_model *d, bool local, const double *keys, const double *values)
{
    const struct model *m = d->m;
    uint32_t n = d->position + 1, from = local && n > m->local_window ? n - m->local_window : 0;
    size_t kv = (size_t)m->n_head_kv * m->head_dim;
    double *e = numbers(d->position + 1);
    for (uint32_t h = 0; h < m->n_head; h++) {
        size_t at = (size_t)(h / (m->n_head / m->n_head_kv)) * m->head_dim;
        const double *q = d->q + (size_t)h * m->head_dim;
        double max = -INFINITY, sum = 0, *out = d->out + (size_t)h * m->head_dim;
        for (uint32_t t = from; t < n; t++) {
            e[t] = 0;
            for (uint32_t i = 0; i < m->head_dim; i++)
                e[t] += q[i] * keys[t * kv + at + i];
            e[t] /= sqrt(m->score_divisor);
            max = e[t] > max ? e[t] : max;
        }
        memset(out, 0, m->head_dim * sizeof *out);
        for (uint32_t t = from; t < n; t++) {
            double w = exp(e[t] - max);
            sum += w;
            for (uint32_t i = 0; i < m->head_dim; i++)
                out[i] += w * values[t * kv + at + i];
        }
        for (uint32_t i = 0; i < m->head_dim; i++)
            out[i] /= sum;
    }
    free(e);
}

/* x += y, normed before where the architecture does so. */
static void add_part(const struct double_model *d, const struct weights *norm, double *y)
{
    if (norm->w)
        rmsnorm(d, norm, y, y);
    add(d->x, y, d->m->n_embd);
}

static double gate(const struct model *m, double x)
{
    double u = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    return m->gate == MODEL_GATE_GELU ? 0.5 * x * (1 + tanh(u)) : x / (1 + exp(-x));
}

static void run_layer(struct double_model *d, uint32_t l)
{
    const struct model *m = d->m;
    const struct weights *w = d->layers[l];
    bool local = m->layers[l].local;
    size_t kv = (size_t)m->n_head_kv * m->head_dim;
    double *keys = d->keys + l * d->context * kv, *values = d->values + l * d->context * kv;
    rmsnorm(d, &w[MODEL_ATTN_NORM], d->x, d->norm);
    multiply(&w[MODEL_ATTN_Q], d->norm, d->q);
    multiply(&w[MODEL_ATTN_K], d->norm, keys + d->position * kv);
    multiply(&w[MODEL_ATTN_V], d->norm, values + d->position * kv);
    finish_heads(d, d->q, m->n_head, &w[MODEL_ATTN_Q_BIAS], &w[MODEL_ATTN_Q_NORM]);
    finish_heads(d, keys + d->position * kv, m->n_head_kv, &w[MODEL_ATTN_K_BIAS],
                 &w[MODEL_ATTN_K_NORM]);
    finish_heads(d, values + d->position * kv, m->n_head_kv, &w[MODEL_ATTN_V_BIAS], NULL);
    rotate(d, local, d->q, m->n_head);
    rotate(d, local, keys + d->position * kv, m->n_head_kv);
    for (size_t i = d->position * kv; d->kv_f16 && i < (d->position + 1) * kv; i++) {
        keys[i] = (double)num_f32_from_f16(num_f16_from_f32((float)keys[i]));
        values[i] = (double)num_f32_from_f16(num_f16_from_f32((float)values[i]));
    }
    attend(d, local, keys, values);
    multiply(&w[MODEL_ATTN_OUTPUT], d->out, d->norm);
    add_part(d, &w[MODEL_ATTN_POST_NORM], d->norm);
    rmsnorm(d, &w[MODEL_FFN_NORM], d->x, d->norm);
    multiply(&w[MODEL_FFN_GATE], d->norm, d->gate);
    multiply(&w[MODEL_FFN_UP], d->norm, d->up);
    for (uint32_t i = 0; i < m->n_ff; i++)
        d->gate[i] = gate(m, d->gate[i]) * d->up[i];
    multiply(&w[MODEL_FFN_DOWN], d->gate, d->norm);
    add_part(d, &w[MODEL_FFN_POST_NORM], d->norm);
}

const double *double_model_step(struct double_model *d, uint32_t token)
{
    const struct weights *embedding = &d->global[MODEL_TOKEN_EMBD];
    for (uint32_t i = 0; i < embedding->cols; i++)
        d->x[i] = embedding->w[(size_t)token * embedding->cols + i] * (double)d->m->embd_scale;
    for (uint32_t l = 0; l < d->m->n_layer; l++)
        run_layer(d, l);
    rmsnorm(d, &d->global[MODEL_OUTPUT_NORM], d->x, d->norm);
    multiply(&d->global[MODEL_OUTPUT], d->norm, d->logits);
    d->position++;
    return d->logits;
}
