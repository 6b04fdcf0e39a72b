#include "tests/rig/double_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/base/num.h"

struct weights { /* a matrix as double, [rows][cols], those of experts one after the other */
    double *w;
    uint32_t rows, cols;
};

struct double_model {
    const struct model *m;
    uint32_t position;
    struct weights (*layers)[MODEL_N_LAYER_TENSORS]; /* [n_layer + 2] then enum model_global, and
                                                        the next-token layer's */
    double *hidden[2]; /* [n_embd] of the last token; of the last draft */
    uint32_t drafts;   /* since that token */
    double **state,
        **inputs;  /* [layer]: S [n_head_v][k_dim][v_dim], the last three inputs [3][channels] */
    double *kv[2]; /* K, V: [layer][context][kv_width] */
    size_t kv_width;
    uint32_t context;
    bool kv_f16;
    double *buffer[N_BUFFERS]; /* [layer_ops_rows of one][layer_ops.width] */
    uint32_t *chosen;          /* [layer_ops.n_expert_used] ascending */
    double *weight;            /* [layer_ops.n_expert_used] */
};

static double *numbers(size_t n)
{
    double *p = calloc(n, sizeof(*p));
    if (!p)
        abort();
    return p;
}

static struct weights load(const struct model_tensor *t)
{
    struct weights w = {NULL, t->rows, t->cols};
    if (!t->data)
        return w;
    float *row = malloc(t->cols * sizeof(*row));
    w.w = numbers(model_tensor_rows(t) * t->cols);
    for (uint32_t r = 0; r < model_tensor_rows(t) && row; r++) {
        ref_matrix_row(t, r, row);
        for (uint32_t c = 0; c < t->cols; c++)
            w.w[(size_t)r * t->cols + c] = row[c];
    }
    free(row);
    return w;
}

struct double_model *double_model_open(const struct model *m, uint32_t context, bool kv_f16)
{
    struct double_model *d = calloc(1, sizeof(*d));
    if (!d)
        abort();
    d->m = m;
    d->context = context;
    d->kv_f16 = kv_f16;
    d->layers = calloc(m->n_layer + 2, sizeof(*d->layers));
    if (!d->layers)
        abort();
    for (uint32_t l = 0; l < m->n_layer; l++) {
        for (int t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            d->layers[l][t] = load(&m->layers[l].tensor[t]);
    }
    for (int t = 0; t < MODEL_N_GLOBAL; t++)
        d->layers[m->n_layer][t] = load(&m->global[t]);
    const uint32_t *width = m->ops.width;
    d->kv_width = width[BUFFER_K] > width[BUFFER_V] ? width[BUFFER_K] : width[BUFFER_V];
    for (int i = 0; i < 2; i++)
        d->kv[i] = numbers((m->n_layer + 1) * context * d->kv_width);
    for (int i = 0; i < 2; i++)
        d->hidden[i] = numbers(m->n_embd);
    for (int t = 0; t < MODEL_N_LAYER_TENSORS && m->mtp; t++)
        d->layers[m->n_layer + 1][t] = load(&m->mtp->layer.tensor[t]);
    d->state = calloc(m->n_layer, sizeof(*d->state));
    d->inputs = calloc(m->n_layer, sizeof(*d->inputs));
    if (!d->state || !d->inputs)
        abort();
    for (uint32_t l = 0; l < m->n_layer; l++) {
        const struct delta_geometry *g = &m->layers[l].geometry.delta;
        d->state[l] = numbers((size_t)g->n_head_v * g->k_dim * g->v_dim + 1);
        d->inputs[l] = numbers((size_t)MODEL_TAPS * g->channels + 1);
    }
    for (int i = 0; i < N_BUFFERS; i++)
        d->buffer[i] = numbers((size_t)width[i] * layer_ops_rows(&m->ops, i, 1) + 1);
    d->chosen = calloc(m->ops.n_expert_used + 1, sizeof(*d->chosen));
    d->weight = numbers(m->ops.n_expert_used + 1);
    return d;
}

void double_model_close(struct double_model *d)
{
    for (uint32_t l = 0; l < d->m->n_layer + 2; l++) {
        for (int t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            free(d->layers[l][t].w);
    }
    for (uint32_t l = 0; l < d->m->n_layer; l++) {
        free(d->state[l]);
        free(d->inputs[l]);
    }
    free(d->state);
    free(d->inputs);
    for (int i = 0; i < N_BUFFERS; i++)
        free(d->buffer[i]);
    for (int i = 0; i < 2; i++) {
        free(d->kv[i]);
        free(d->hidden[i]);
    }
    free(d->layers);
    free(d->chosen);
    free(d->weight);
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

/* y may be x; without weights they are 1. */
static void rmsnorm(const struct double_model *d, const struct weights *w, const double *x,
                    double *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < w->cols; i++)
        sum += x[i] * x[i];
    double r = 1 / sqrt(sum / w->cols + (double)d->m->rms_eps);
    for (uint32_t i = 0; i < w->cols; i++)
        y[i] = x[i] * r * (w->w ? w->w[i] : 1);
}

static void add(double *x, const double *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* The frequency of pair i. */
static double frequency(const struct model_rope_table *t, uint32_t i)
{
    const uint32_t n = t->n;
    const struct model_yarn *yarn = &t->yarn;
    const double pi = acos(-1), base = (double)t->base, scale = (double)t->scale;
    const double own = pow(base, -2.0 * i / n) / (t->divisors ? (double)t->divisors[i] : 1.0);
    if (yarn->original == 0)
        return own / scale;
    double lo = n * log(yarn->original / (2 * pi * (double)yarn->fast)) / (2 * log(base));
    double hi = n * log(yarn->original / (2 * pi * (double)yarn->slow)) / (2 * log(base));
    lo = fmax(yarn->truncated ? floor(lo) : lo, 0);
    hi = fmin(yarn->truncated ? ceil(hi) : hi, n - 1);
    const double share = fmin(fmax((i - lo) / fmax(hi - lo, 0.001), 0), 1);
    return own * (1 - share) + own / scale * share;
}

/* What rope multiplies q and k by. */
static double magnitude(const struct model_rope_table *t)
{
    const double ln_scale = log((double)t->scale);
    if (t->yarn.original == 0 || ln_scale <= 0)
        return (double)t->attention;
    return (double)t->attention * (0.1 * ln_scale + 1) /
           (0.1 * (double)t->yarn.log_multiplier * ln_scale + 1);
}

/* Rotates the beginnings of heads of `dim` values by the table at the position. */
static void rope(const struct double_model *d, const struct model_rope_table *table, double *x,
                 uint32_t heads, uint32_t dim)
{
    const uint32_t n = table->n;
    const bool halves = d->m->rope == MODEL_ROPE_HALVES;
    const double m = magnitude(table);
    for (uint32_t h = 0; h < heads; h++, x += dim) {
        for (uint32_t i = 0; i < n / 2; i++) {
            double a = d->position * frequency(table, i);
            double *x0 = x + (halves ? i : 2 * i), *x1 = halves ? x0 + n / 2 : x0 + 1;
            double x0_before = *x0;
            *x0 = m * (*x0 * cos(a) - *x1 * sin(a));
            *x1 = m * (*x1 * cos(a) + x0_before * sin(a));
        }
    }
}

/* Bias, norm per head, rope: what the model has of them. part: 0 Q, 1 K, 2 V. */
static void finish_heads(const struct double_model *d, const struct layer_op *op, int part)
{
    const struct weights *w = d->layers[op->layer], *bias = &w[op->tensor[part]];
    const struct layer_geometry *g = op->geometry;
    const uint32_t heads = part == 0 ? g->n_head : g->n_head_kv,
                   dim = part == 2 ? g->v_dim : g->k_dim, step = part == 0 ? g->q_dim : dim;
    double *x = d->buffer[op->to[part]];
    if (op->from[part] != op->to[part])
        memcpy(x, d->buffer[op->from[part]], (size_t)heads * dim * sizeof(*x));
    if (bias->w)
        add(x, bias->w, heads * dim);
    const struct weights ones = {NULL, 1, dim}, *norm = part < 2 ? &w[op->head_norm[part]] : &ones;
    const bool normed = part < 2 ? norm->w != NULL : g->value_norm;
    for (uint32_t h = 0; normed && h < heads; h++)
        rmsnorm(d, norm, x + (size_t)h * step, x + (size_t)h * step);
    if (part < 2 && g->rope != MODEL_NO_ROPE)
        rope(d, &d->m->ropes[g->rope], x, heads, step);
    if (part != 0 || d->m->temperature_scale == 0)
        return;
    const double periods = floor((double)d->position / d->m->temperature_period);
    for (uint32_t i = 0; i < heads * dim; i++)
        x[i] *= 1 + (double)d->m->temperature_scale * log(1 + periods);
}

/* K (0) or V (1) at a position of a layer of MEMORY_PAGES. */
static double *kv_at(const struct double_model *d, int part, uint32_t index, uint32_t position)
{
    return d->kv[part] + ((size_t)index * d->context + position) * d->kv_width;
}

static void heads(const struct double_model *d, const struct layer_op *op)
{
    const struct layer_geometry *g = op->geometry;
    const bool append = op->append.class == MEMORY_PAGES;
    if (op->to[0])
        finish_heads(d, op, 0);
    for (int part = 2; part > 0 && append; part--) /* V may come from K before its norm */
        finish_heads(d, op, part);
    for (int part = 0; part < 2 && append; part++) {
        const uint32_t n = g->n_head_kv * (part == 0 ? g->k_dim : g->v_dim);
        const double *x = d->buffer[op->to[1 + part]];
        double *to = kv_at(d, part, op->append.index, d->position);
        for (uint32_t i = 0; i < n; i++)
            to[i] = d->kv_f16 ? (double)num_f32_from_f16(num_f16_from_f32((float)x[i])) : x[i];
    }
}

/* One head: softmax of its scores over positions [from, position], times V. */
static void attend_head(const struct double_model *d, const struct layer_op *op, uint32_t h,
                        uint32_t from, double *e)
{
    const struct layer_geometry *g = op->geometry;
    const double *sinks = d->layers[op->layer][op->tensor[0]].w;
    const size_t head_kv = h / (g->n_head / g->n_head_kv);
    const double *q = d->buffer[op->from[0]] + (size_t)h * g->q_dim;
    double max = -INFINITY, sum = 0, *out = d->buffer[op->to[0]] + (size_t)h * g->v_dim;
    for (uint32_t t = from; t <= d->position; t++) {
        const double *k = kv_at(d, 0, op->read.index, t) + head_kv * g->k_dim;
        e[t] = 0;
        for (uint32_t i = 0; i < g->k_dim; i++)
            e[t] += q[i] * k[i];
        e[t] *= (double)d->m->score_scale;
        max = e[t] > max ? e[t] : max;
    }
    memset(out, 0, g->v_dim * sizeof(*out));
    for (uint32_t t = from; t <= d->position; t++) {
        const double *v = kv_at(d, 1, op->read.index, t) + head_kv * g->v_dim;
        double w = exp(e[t] - max);
        sum += w;
        for (uint32_t i = 0; i < g->v_dim; i++)
            out[i] += w * v[i];
    }
    sum += sinks ? exp(sinks[h] - max) : 0;
    for (uint32_t i = 0; i < g->v_dim; i++)
        out[i] /= sum;
}

static void attend(const struct double_model *d, const struct layer_op *op)
{
    const uint32_t n = d->position + 1, window = op->geometry->sliding_window;
    double *e = numbers(n);
    for (uint32_t h = 0; h < op->geometry->n_head; h++)
        attend_head(d, op, h, n > window ? n - window : 0, e);
    free(e);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Heads of attention by their gates, heads of a recurrent layer normed and by theirs. */
static void head_gate(const struct double_model *d, const struct layer_op *op)
{
    const struct layer_geometry *g = op->geometry;
    const struct weights *norm = &d->layers[op->layer][op->tensor[0]];
    const uint32_t dim = norm->w ? g->delta.v_dim : g->v_dim;
    for (uint32_t h = 0; h < op->n / dim; h++) {
        double *x = d->buffer[op->to[0]] + (size_t)h * dim;
        const double *z = d->buffer[op->from[1]] + (norm->w ? h * dim : h * g->q_dim + g->k_dim);
        if (norm->w)
            rmsnorm(d, norm, x, x);
        for (uint32_t i = 0; i < dim; i++)
            x[i] *= norm->w ? z[i] * sigmoid(z[i]) : sigmoid(z[i]);
    }
}

/* The convolution over the last inputs, q and k of length 1 / sqrt(k_dim) and 1, beta and decay. */
static void convolve(const struct double_model *d, const struct layer_op *op)
{
    const struct delta_geometry *g = &op->geometry->delta;
    const struct weights *w = d->layers[op->layer];
    double *x = d->inputs[op->layer], *y = d->buffer[op->to[0]];
    memmove(x, x + g->channels, 3 * (size_t)g->channels * sizeof(*x));
    memcpy(x + 3 * (size_t)g->channels, d->buffer[op->from[0]], g->channels * sizeof(*x));
    for (uint32_t c = 0; c < g->channels; c++) {
        y[c] = w[op->bias[0]].w ? w[op->bias[0]].w[c] : 0;
        for (uint32_t j = 0; j < g->taps; j++)
            y[c] += w[op->tensor[0]].w[g->taps * (size_t)c + j] *
                    x[(size_t)(MODEL_TAPS - g->taps + j) * g->channels + c];
        if (g->n_head_v > 0)
            y[c] *= sigmoid(y[c]);
    }
    for (uint32_t h = 0; h < 2 * g->n_head_k && !g->mamba; h++, y += g->k_dim) {
        double sum = 1e-6;
        for (uint32_t i = 0; i < g->k_dim; i++)
            sum += y[i] * y[i];
        for (uint32_t i = 0; i < g->k_dim; i++)
            y[i] /= sqrt(h < g->n_head_k ? sum * g->k_dim : sum);
    }
    for (uint32_t h = 0; h < g->n_head_v; h++) {
        const bool joined = op->from[1] == op->from[2] && !g->mamba;
        const double b = d->buffer[op->from[1]][joined ? h / g->run * 2 * g->run + h % g->run : h],
                     l = d->buffer[op->from[2]]
                                  [joined ? (h / g->run * 2 + 1) * g->run + h % g->run : h];
        const double step = log1p(exp(l + w[op->tensor[2]].w[h]));
        d->buffer[op->to[1]][h] = g->mamba ? step : sigmoid(b);
        d->buffer[op->to[2]][h] = exp(w[op->tensor[1]].w[h] * step);
    }
}

/* S = decay S + k beta (v - decay S^T k)^T; out = S^T q. Of Mamba-2 S = decay S + k beta v^T; out = S^T q + D v. */
static void delta(const struct double_model *d, const struct layer_op *op)
{
    const struct delta_geometry *g = &op->geometry->delta;
    const double *x = d->buffer[op->from[0]];
    for (uint32_t h = 0; h < g->n_head_v; h++)
        for (uint32_t j = 0; j < g->v_dim; j++) {
            const size_t key = (size_t)(h / g->run % g->n_head_k) * g->k_dim,
                         at = (size_t)h * g->v_dim + j;
            const double *qh = x + g->q_at + key, *k = x + g->k_at + key, v = x[g->v_at + at],
                         *added = d->layers[op->layer][op->tensor[0]].w;
            double *s = d->state[op->layer] + (size_t)h * g->k_dim * g->v_dim + j;
            double p = 0, *o = d->buffer[op->to[0]] + at;
            for (uint32_t i = 0; i < g->k_dim; i++)
                s[(size_t)i * g->v_dim] *= d->buffer[op->from[2]][h];
            for (uint32_t i = 0; i < g->k_dim && !g->mamba; i++)
                p += s[(size_t)i * g->v_dim] * k[i];
            *o = added ? added[h] * v : 0;
            p = d->buffer[op->from[1]][h] * (v - p);
            for (uint32_t i = 0; i < g->k_dim; i++)
                *o += (s[(size_t)i * g->v_dim] += k[i] * p) * qh[i];
        }
}

static double gated(uint32_t gate, double g, double u)
{
    const double t = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g), a = fmin(g, 7);
    return gate == MODEL_GATE_PRODUCT  ? g * u
           : gate == MODEL_GATE_GELU   ? 0.5 * g * (1 + tanh(t)) * u
           : gate == MODEL_GATE_SWIGLU ? a / (1 + exp(-1.702 * a)) * (fmin(fmax(u, -7), 7) + 1)
                                       : g / (1 + exp(-g)) * u;
}

/* p [n]: what an expert's score is among those of all. */
static void probabilities(const struct model_router *router, const double *score, uint32_t n,
                          double *p)
{
    double max = score[0], sum = 0;
    for (uint32_t e = 0; e < n; e++)
        max = fmax(max, score[e]);
    for (uint32_t e = 0; e < n; e++)
        sum += exp(score[e] - max);
    for (uint32_t e = 0; e < n; e++)
        p[e] =
            router->gating == MODEL_GATING_SIGMOID ? sigmoid(score[e]) : exp(score[e] - max) / sum;
}

/* The experts with the largest scores, or probabilities with their bias, of equal ones the lower id; and their
 * probabilities, which are divided by their sum in a router that norms them. */
static void route(struct double_model *d, const struct layer_op *op)
{
    const struct model_router *router = &d->m->router;
    const uint32_t n = op->geometry->n_expert_used;
    const double *bias = d->layers[op->layer][op->tensor[0]].w,
                 *own = d->layers[op->layer][op->bias[0]].w,
                 *factor = d->layers[op->layer][op->tensor[1]].w;
    double *score = d->buffer[op->from[0]];
    double sum = 0, *p = numbers(op->n), *by = numbers(op->n);
    uint32_t used = 0;
    if (own)
        add(score, own, op->n);
    probabilities(router, score, op->n, p);
    for (uint32_t e = 0; e < op->n; e++)
        by[e] = bias ? p[e] + bias[e] : score[e];
    for (uint32_t e = 0; e < op->n; e++) {
        uint32_t better = 0;
        for (uint32_t i = 0; i < op->n; i++)
            better += by[i] > by[e] || (by[i] == by[e] && i < e);
        if (better < n)
            d->chosen[used++] = e;
    }
    for (uint32_t i = 0; i < n; i++)
        sum += p[d->chosen[i]];
    for (uint32_t i = 0; i < n; i++)
        d->weight[i] = (double)router->scale * p[d->chosen[i]] / (router->normed ? sum : 1) *
                       (factor ? factor[d->chosen[i]] : 1);
    free(p);
    free(by);
}

/* y = a matrix of an expert times x, with its bias; x [cols]. Returns cols. */
static uint32_t multiply_expert(const struct double_model *d, const struct layer_op *op, int part,
                                uint32_t e, const double *x, double *y)
{
    struct weights w = d->layers[op->layer][op->tensor[part]];
    const struct weights *bias = &d->layers[op->layer][op->bias[part]];
    w.w += (size_t)e * w.rows * w.cols;
    multiply(&w, x, y);
    if (bias->w)
        add(y, bias->w + (size_t)e * w.rows, w.rows);
    return w.cols;
}

static void expert_gate(const struct double_model *d, const struct layer_op *op)
{
    double *up = numbers(op->n);
    for (uint32_t i = 0; i < op->geometry->n_expert_used; i++) {
        double *to = d->buffer[op->to[0]] + (size_t)i * op->n;
        multiply_expert(d, op, 0, d->chosen[i], d->buffer[op->from[0]], to);
        multiply_expert(d, op, 1, d->chosen[i], d->buffer[op->from[0]], up);
        for (uint32_t j = 0; j < op->n; j++)
            to[j] = gated(op->gate, to[j], up[j]);
    }
    free(up);
}

static void expert_sum(const struct double_model *d, const struct layer_op *op)
{
    double *y = numbers(op->n), *to = d->buffer[op->to[0]];
    const double *from = d->buffer[op->from[0]];
    memset(to, 0, op->n * sizeof(*to));
    for (uint32_t i = 0; i < op->geometry->n_expert_used; i++) {
        from += multiply_expert(d, op, 0, d->chosen[i], from, y);
        for (uint32_t j = 0; j < op->n; j++)
            to[j] += d->weight[i] * y[j];
    }
    const double gate = op->from[2] ? sigmoid(d->buffer[op->from[2]][0]) : 1;
    for (uint32_t j = 0; j < op->n && op->from[1]; j++)
        to[j] += gate * d->buffer[op->from[1]][j];
    if (op->residual)
        add(to, d->buffer[op->residual], op->n);
    free(y);
}

/* Norms and sums over the width. */
static void run_row(const struct double_model *d, const struct layer_op *op, uint32_t token)
{
    const struct weights *w = &d->layers[op->layer][op->tensor[0]],
                         *bias = &d->layers[op->layer][op->tensor[1]];
    const bool embed = op->kind == OP_EMBED || op->kind == OP_LOOKUP;
    const double factor = (double)op->factor;
    double *to = d->buffer[op->to[0]];
    memcpy(to, embed ? w->w + (size_t)token * w->cols : d->buffer[op->from[0]],
           op->n * sizeof(*to));
    if (op->kind == OP_ADD && bias->w)
        add(to, bias->w, op->n);
    const uint32_t n = op->n / op->groups;
    for (uint32_t i = 0; !embed && w->w && i < op->n; i += n)
        rmsnorm(d, &(struct weights){w->w + i, 1, n}, to + i, to + i);
    for (uint32_t i = 0; i < op->n; i++)
        to[i] *= factor;
    if (op->residual)
        add(to, d->buffer[op->residual], op->n);
    const double *last = op->kind == OP_ADD ? d->layers[op->layer][op->tensor[2]].w : NULL;
    for (uint32_t i = 0; last && i < op->n; i++)
        to[i] *= last[0];
}

/* What each layer is given of the token. */
static void inputs(const struct double_model *d, const struct layer_op *op)
{
    const uint32_t n = d->m->n_per_layer;
    double *x = d->buffer[op->to[0]];
    for (uint32_t i = 0; i < op->n; i++)
        x[i] *= (double)op->factor;
    for (uint32_t i = 0; i < op->n; i += n)
        rmsnorm(d, &d->layers[op->layer][op->tensor[0]], x + i, x + i);
    add(x, d->buffer[op->from[1]], op->n);
    for (uint32_t i = 0; i < op->n; i++)
        x[i] /= sqrt(2);
}

/* The normed embedding of the token, the normed hidden row before it. */
static void join(const struct double_model *d, const struct layer_op *op, uint32_t token)
{
    const struct weights *w = d->layers[op->layer],
                         *embedding = &d->layers[d->m->n_layer][MODEL_TOKEN_EMBD];
    double *to = d->buffer[op->to[0]];
    rmsnorm(d, &w[op->tensor[0]], embedding->w + (size_t)token * embedding->cols, to);
    rmsnorm(d, &w[op->tensor[1]], d->hidden[d->drafts > 0], to + embedding->cols);
}

static void run(struct double_model *d, const struct layer_op *op, uint32_t token)
{
    double *const *buffer = d->buffer;
    switch (op->kind) {
    case OP_MATMUL:
        for (uint32_t i = 0; i < op->n_parts; i++)
            multiply(&d->layers[op->layer][op->tensor[i]], buffer[op->from[0]], buffer[op->to[i]]);
        if (op->residual)
            add(buffer[op->to[0]], buffer[op->residual], op->n);
        break;
    case OP_QKV_FINISH:
        heads(d, op);
        break;
    case OP_ATTEND:
        attend(d, op);
        break;
    case OP_GATE:
        for (uint32_t i = 0; i < op->n; i++)
            buffer[op->to[0]][i] =
                gated(op->gate, buffer[op->from[0]][i], buffer[op->from[1]][i + op->from_at]);
        break;
    case OP_INPUTS:
        inputs(d, op);
        break;
    case OP_CAP:
        for (uint32_t i = 0; i < op->n; i++)
            buffer[op->to[0]][i] =
                (double)op->factor * tanh(buffer[op->to[0]][i] / (double)op->factor);
        break;
    case OP_HEAD_GATE:
        head_gate(d, op);
        break;
    case OP_CONVOLVE:
        convolve(d, op);
        break;
    case OP_DELTA:
        delta(d, op);
        break;
    case OP_ROUTE:
        route(d, op);
        break;
    case OP_EXPERT_GATE:
        expert_gate(d, op);
        break;
    case OP_EXPERT_SUM:
        expert_sum(d, op);
        break;
    case OP_JOIN:
        join(d, op, token);
        break;
    case OP_SETTLE:   /* the state has moved */
    case OP_REMEMBER: /* by double_model_step and double_model_draft */
        break;
    default:
        run_row(d, op, token);
    }
}

static void remember(struct double_model *d, int i)
{
    if (d->m->mtp)
        memcpy(d->hidden[i], d->buffer[BUFFER_HIDDEN], d->m->n_embd * sizeof(double));
}

const double *double_model_step(struct double_model *d, uint32_t token)
{
    const struct layer_ops *ops = &d->m->ops;
    d->drafts = 0;
    for (uint32_t i = 0; i < ops->draft; i++)
        run(d, &ops->op[i], token);
    remember(d, 0);
    d->position++;
    return d->buffer[BUFFER_LOGITS];
}

const double *double_model_draft(struct double_model *d, uint32_t token)
{
    const struct layer_ops *ops = &d->m->ops;
    d->position += d->drafts;
    for (uint32_t i = ops->draft; i < ops->end; i++)
        run(d, &ops->op[i], token);
    d->position -= d->drafts++;
    remember(d, 1);
    return d->buffer[BUFFER_LOGITS];
}
