/* The jobs of a pass, made of the model's operations (kernels/model/layer_ops.h), and their
 * launches. What differs from pass to pass lies in device memory; only the grids depend on it,
 * so that the same launches, captured, serve every pass that they are large enough for. */
#include <assert.h>
#include <string.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/launch.h"

_Static_assert((int)CUDA_GATE_SILU + (int)MODEL_GATE_GELU == (int)CUDA_GATE_GELU &&
                   (int)CUDA_GATE_SILU + (int)MODEL_GATE_SWIGLU == (int)CUDA_GATE_SWIGLU &&
                   (int)CUDA_GATE_SILU + (int)MODEL_GATE_PRODUCT == (int)CUDA_GATE_PRODUCT &&
                   MODEL_GATE_SILU == 0,
               "the gates of kernels/model/model.h");
_Static_assert((int)CUDA_MAX_EXPERTS == (int)MODEL_MAX_EXPERTS &&
                   (int)CUDA_MAX_EXPERTS_USED == (int)MODEL_MAX_EXPERTS_USED,
               "the experts of kernels/model/model.h");
_Static_assert((int)CUDA_MAX_GROUPS == (int)MODEL_MAX_HEADS &&
                   (int)CUDA_MAX_STATE == (int)MODEL_MAX_STATE_DIM,
               "the heads of recurrent layers of kernels/model/model.h");

/* ---- what they are --------------------------------------------------------------------------- */

static const struct cuda_layer *layer_of(const struct backend *b, const struct layer_op *op)
{
    return &b->weights.layers[op->layer];
}

static float *floats_of(const struct backend *b, enum op_buffer buffer)
{
    return b->buffers.of[buffer].f;
}

static bool is_expert(const struct layer_op *op)
{
    return op->kind == OP_EXPERT_GATE || op->kind == OP_EXPERT_SUM;
}

/* How a matmul that reads what `op` writes needs it. Experts have no native matmuls; the CPU
 * makes its own blocks. */
static uint32_t forms_for(const struct backend *b, const struct layer_op *reader)
{
    uint32_t forms = 0;
    if (is_expert(reader) && cuda_on_host(b, reader->layer))
        return FORM_FLOATS;
    for (uint32_t i = 0; i < reader->n_parts; i++) {
        const uint32_t type = layer_of(b, reader)->matrix[reader->tensor[i]].type;
        const bool native = b->tensors && !is_expert(reader);
        forms |= type == QUANT_F32             ? FORM_FLOATS
                 : native && type == QUANT_F16 ? FORM_F16
                 : native                      ? FORM_BF16
                 : layout_quantized(type)      ? FORM_BLOCKS
                                               : FORM_FLOATS;
    }
    return forms;
}

static uint32_t forms_of(const struct backend *b, const struct layer_op *op)
{
    uint32_t forms = 0;
    for (const struct layer_op *const *reader = op->readers; *reader; reader++)
        forms |= forms_for(b, *reader);
    return forms;
}

/* Where the operation's keys and values lie. */
static struct cuda_kv kv_of(const struct backend *b, struct op_memory memory)
{
    const struct kv_layer *g = &b->geometry.layer[memory.index];
    return (struct cuda_kv){
        .memory = b->array[g->class].base,
        .page_bytes = b->geometry.page_bytes[g->class],
        .offset = g->offset,
        .k_bytes = g->k_bytes,
        .v_bytes = g->v_bytes,
        .n_head_kv = g->n_head_kv,
        .k_dim = g->k_dim,
        .v_dim = g->v_dim,
        .type = g->type,
        .pages = g->class,
        .v_blocks = g->v_blocks,
    };
}

static struct embed_job lookup_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct embed_job){
        .pass = b->upload.to,
        .embedding = layer_of(b, op)->matrix[op->tensor[0]],
        .x = floats_of(b, op->to[0]),
        .stride = b->buffers.of[op->to[0]].stride,
        .scale = op->factor,
    };
}

struct embed_job cuda_embed_job(const struct backend *b)
{
    struct embed_job job = lookup_job_of(b, &b->model->ops.op[0]);
    for (int i = 0; i < PAGE_CLASSES; i++) {
        job.kv[i] = b->array[i].base;
        job.page_bytes[i] = b->geometry.page_bytes[i];
    }
    return job;
}

static struct inputs_job inputs_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct inputs_job){
        .pass = b->upload.to,
        .looked_up = floats_of(b, op->from[1]),
        .weight = layer_of(b, op)->vector[op->tensor[0]],
        .x = floats_of(b, op->to[0]),
        .stride = b->buffers.of[op->to[0]].stride,
        .n = b->model->n_per_layer,
        .n_layer = b->model->n_layer,
        .factor = op->factor,
        .eps = b->model->rms_eps,
    };
}

/* What no matmul reads is floats: the input of a short convolution. */
static struct gate_job gate_job_of(const struct backend *b, const struct layer_op *op)
{
    const uint32_t forms = forms_of(b, op);
    return (struct gate_job){
        .pass = b->upload.to,
        .from = floats_of(b, op->from[0]),
        .by = floats_of(b, op->from[1]) + op->from_at,
        .out = b->buffers.of[op->to[0]],
        .from_stride = b->buffers.of[op->from[0]].stride,
        .stride = b->buffers.of[op->from[1]].stride,
        .n = op->n,
        .gate = CUDA_GATE_SILU + op->gate,
        .forms = forms ? forms : FORM_FLOATS,
    };
}

/* What an OP_ADD leaves to the norm after it: x is a part's output then, the residual is still
 * to be made. */
static void take_added(const struct backend *b, const struct layer_op *add, struct norm_job *job)
{
    /* which several blocks read */
    assert(add->to[0] != add->residual && add->to[0] != add->from[0]);
    job->x = floats_of(b, add->from[0]);
    job->added = (struct norm_added){
        .bias = layer_of(b, add)->vector[add->tensor[1]],
        .weight = layer_of(b, add)->vector[add->tensor[0]],
        .residual = add->residual ? floats_of(b, add->residual) : NULL,
        .scale = layer_of(b, add)->vector[add->tensor[2]],
        .to = floats_of(b, add->to[0]),
        .factor = add->factor,
        .check = add->check,
        .layer = add->layer,
    };
}

/* Whether an OP_ADD is computed by the norm after it. */
static bool is_added_by_norm(const struct layer_op *add)
{
    return add->kind == OP_ADD && add[1].kind == OP_NORM && !add[1].wanted &&
           add[1].from[0] == add->to[0];
}

/* A norm of all rows, with the OP_ADD before it; or one of those with wants. What no matmul
 * reads is floats: Q and K. */
static struct norm_job norm_job_of(const struct backend *b, const struct layer_op *op)
{
    const uint32_t forms = forms_of(b, op);
    struct norm_job job = {
        .pass = b->upload.to,
        .x = floats_of(b, op->from[0]),
        .weight = layer_of(b, op)->vector[op->tensor[0]],
        .out = b->buffers.of[op->to[0]],
        .stride = b->buffers.of[op->from[0]].stride,
        .n = op->n,
        .group = op->n / op->groups,
        .forms = forms ? forms : FORM_FLOATS,
        .wanted = op->wanted,
        .factor = op->factor,
        .eps = b->model->rms_eps,
    };
    if (is_added_by_norm(&op[-1]))
        take_added(b, &op[-1], &job);
    return job;
}

/* An OP_ADD that no norm computes: a norm without weights, whose output is the sum in those other
 * forms that matmuls read. */
static struct norm_job add_job_of(const struct backend *b, const struct layer_op *op)
{
    struct norm_job job = {
        .pass = b->upload.to,
        .out = b->buffers.of[op->to[0]],
        .stride = b->buffers.of[op->to[0]].stride,
        .n = op->n,
        .group = op->n,
        .forms = forms_of(b, op) & ~(uint32_t)FORM_FLOATS,
        .factor = 1.0f,
        .eps = b->model->rms_eps,
    };
    take_added(b, op, &job);
    return job;
}

/* Whether a matmul computes the OP_GATE after it. */
static bool is_gated(const struct layer_op *matmul)
{
    return !matmul->wanted && matmul[1].kind == OP_GATE && matmul->n_parts == 2;
}

/* Matrices that read one input; with the OP_GATE after them. */
static struct matmul_job matmul_job_of(const struct backend *b, const struct layer_op *op)
{
    const bool gated = is_gated(op);
    struct matmul_job job = {
        .pass = b->upload.to,
        .x = b->buffers.of[op->from[0]],
        .gate = gated ? CUDA_GATE_SILU + op[1].gate : CUDA_GATE_NONE,
        .wanted = op->wanted,
        .layer = op->layer,
        .native = b->tensors,
    };
    for (uint32_t i = 0; i < op->n_parts; i++) {
        job.part[i].matrix = layer_of(b, op)->matrix[op->tensor[i]];
        job.groups += gated && i > 0 ? 0 : job.part[i].matrix.groups;
        if (gated)
            continue;
        job.part[i].y = floats_of(b, op->to[i]);
        job.part[i].stride = b->buffers.of[op->to[i]].stride;
        job.part[i].residual = op->residual ? floats_of(b, op->residual) : NULL;
        job.part[i].check = op->check;
    }
    if (gated) {
        job.out = b->buffers.of[op[1].to[0]];
        job.forms = forms_of(b, &op[1]);
    }
    return job;
}

static bool writes(const struct layer_op *op, enum op_buffer buffer)
{
    return op->to[0] == buffer || op->to[1] == buffer || op->to[2] == buffer;
}

static bool reads(const struct layer_op *op, enum op_buffer buffer)
{
    return op->from[0] == buffer || op->from[1] == buffer || op->from[2] == buffer ||
           op->residual == buffer;
}

/* Whether an operation is a matmul of all rows that can norm what it reads from `buffer`. */
static bool can_norm(const struct backend *b, const struct layer_op *op, enum op_buffer buffer)
{
    if (op->kind != OP_MATMUL || op->wanted || op->residual == buffer)
        return false;
    const struct matmul_job job = matmul_job_of(b, op);
    return cuda_takes_norm(&job);
}

/* Whether matmuls of a pass of one row compute this norm themselves: nothing else reads it, and
 * its input stays until they have. */
static bool is_normed_by_matmuls(const struct backend *b, const struct layer_op *norm)
{
    const struct layer_ops *ops = &b->model->ops;
    const enum op_buffer to = norm->to[0];
    bool stays = true;
    if (norm->kind != OP_NORM || norm->wanted || norm->groups != 1 || is_added_by_norm(&norm[-1]) ||
        !layer_of(b, norm)->vector[norm->tensor[0]] || !norm->readers[0] ||
        (forms_of(b, norm) & ~(uint32_t)(FORM_BLOCKS | FORM_FLOATS)))
        return false;
    for (const struct layer_op *op = norm + 1; op < ops->op + ops->end && op->layer == norm->layer;
         op++) {
        if (reads(op, to) && (!stays || !can_norm(b, op, to)))
            return false;
        if (writes(op, to))
            break;
        stays = stays && !writes(op, norm->from[0]);
    }
    return true;
}

static struct row_norm row_norm_of(const struct backend *b, const struct layer_op *norm)
{
    return (struct row_norm){
        .x = floats_of(b, norm->from[0]),
        .weight = layer_of(b, norm)->vector[norm->tensor[0]],
        .n = norm->n,
        .factor = norm->factor,
        .eps = b->model->rms_eps,
    };
}

/* The norm that makes a matmul's input, if the matmul computes it in a pass of one row. */
static const struct layer_op *norm_before(const struct backend *b, const struct layer_op *matmul)
{
    const struct layer_op *op = matmul - 1;
    while (op > b->model->ops.op && !writes(op, matmul->from[0]))
        op--;
    return op->layer == matmul->layer && is_normed_by_matmuls(b, op) ? op : NULL;
}

static struct qkv_finish_job qkv_finish_job_of(const struct backend *b, const struct layer_op *op)
{
    const struct layer_geometry *g = op->geometry;
    const struct cuda_layer *l = layer_of(b, op);
    const bool append = op->append.class == MEMORY_PAGES, queries = op->to[0] != BUFFER_NONE;
    struct qkv_finish_job job = {
        .pass = b->upload.to,
        .kv = kv_of(b, append ? op->append : op[1].read),
        .norm = {l->vector[op->head_norm[0]], l->vector[op->head_norm[1]]},
        .rope = g->rope == MODEL_NO_ROPE ? NULL : b->weights.rope[g->rope],
        .q_dim = g->q_dim,
        .n_head = queries ? g->n_head : 0,
        .n_rot = g->rope == MODEL_NO_ROPE ? 0 : b->model->ropes[g->rope].n,
        .halves = b->model->rope == MODEL_ROPE_HALVES,
        .layer = op->layer,
        .check = op->check,
        .query_factors = b->weights.query_factors,
        .query_period = b->model->temperature_period,
        .native = b->tensors,
        .value_norm = g->value_norm,
        .eps = b->model->rms_eps,
    };
    if (!append)
        job.kv.n_head_kv = 0;
    for (uint32_t i = 0; i < (append ? 3 : 1); i++) {
        job.values[i] = floats_of(b, op->from[i]);
        job.stride[i] = b->buffers.of[op->from[i]].stride;
        job.bias[i] = l->vector[op->tensor[i]];
    }
    return job;
}

/* Over splits, and the splits combined, and with the OP_HEAD_GATE after it gated. */
static struct attention_job attention_job_of(const struct backend *b, const struct layer_op *op)
{
    const struct layer_geometry *g = op->geometry;
    const struct cuda_buffers *u = &b->buffers;
    const bool gated = op[1].kind == OP_HEAD_GATE;
    return (struct attention_job){
        .attend = {.pass = b->upload.to,
                   .kv = kv_of(b, op->read),
                   .q = floats_of(b, op->from[0]),
                   .part_ml = u->part_ml,
                   .part_o = u->part_o,
                   .sliding_window = g->sliding_window,
                   .local = g->sliding_window != MODEL_NO_WINDOW,
                   .stride = u->of[op->from[0]].stride,
                   .n_head = g->n_head,
                   .q_dim = g->q_dim,
                   .scale = b->model->score_scale,
                   .native = b->tensors},
        .combine = {.pass = b->upload.to,
                    .part_ml = u->part_ml,
                    .part_o = u->part_o,
                    .sinks = layer_of(b, op)->vector[op->tensor[0]],
                    .gate = gated ? floats_of(b, op[1].from[1]) + g->k_dim : NULL,
                    .gate_stride = u->of[op->from[0]].stride,
                    .q_dim = g->q_dim,
                    .out = u->of[op->to[0]],
                    .sliding_window = g->sliding_window,
                    .n_head = g->n_head,
                    .v_dim = g->v_dim,
                    .forms = forms_of(b, gated ? &op[1] : op)},
    };
}

/* Where the operation's states and records lie. */
static struct cuda_states states_of(const struct backend *b, struct op_memory memory)
{
    const struct state_layer *l = &b->state_geometry.layer[memory.index];
    const bool heads = l->delta.n_head_v > 0 && !l->delta.mamba;
    return (struct cuda_states){
        .memory = b->array[CUDA_STATES].base,
        .records = b->array[CUDA_RECORDS].base,
        .state_bytes = b->state_geometry.state_bytes,
        .record_bytes = b->state_geometry.record_bytes,
        .record = b->state_geometry.record,
        .scan = l->scan,
        .inputs = l->inputs,
        .input = l->record,
        .k = l->k,
        .d = l->d,
        .decay = l->decay,
        .end = l->decay + l->delta.n_head_v,
        .n_head_k = l->delta.n_head_k,
        .n_head_v = l->delta.n_head_v,
        .k_dim = l->delta.k_dim,
        .v_dim = l->delta.v_dim,
        .channels = l->delta.channels,
        .taps = l->delta.taps,
        .q_at = l->delta.q_at,
        .k_at = l->delta.k_at,
        .v_at = l->delta.v_at,
        .unit = heads ? 2 * l->delta.n_head_k : 0,
        .n_part =
            heads ? l->delta.n_head_v : (l->delta.channels + CUDA_MAX_STATE - 1) / CUDA_MAX_STATE,
        .part = heads ? l->delta.v_dim : CUDA_MAX_STATE,
        .mamba = l->delta.mamba,
        .run = l->delta.run,
        .blocks = l->blocks,
    };
}

static struct convolve_job convolve_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct convolve_job){
        .pass = b->upload.to,
        .states = states_of(b, op->read),
        .mixed = floats_of(b, op->from[0]),
        .convolved = floats_of(b, op->to[0]),
        .from = {floats_of(b, op->from[1]), floats_of(b, op->from[2])},
        .beta = floats_of(b, op->to[1]),
        .decay = floats_of(b, op->to[2]),
        .taps = layer_of(b, op)->vector[op->tensor[0]],
        .added = layer_of(b, op)->vector[op->bias[0]],
        .a = layer_of(b, op)->vector[op->tensor[1]],
        .bias = layer_of(b, op)->vector[op->tensor[2]],
        .stride = b->buffers.of[op->to[0]].stride,
        .head_stride = b->buffers.of[op->to[1]].stride,
        .from_stride = b->buffers.of[op->from[1]].stride,
        .joined = op->from[1] == BUFFER_BETA_ALPHA,
    };
}

/* Reads the convolution's inputs again, for records. */
static struct delta_job delta_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct delta_job){
        .pass = b->upload.to,
        .states = states_of(b, op->append),
        .mixed = floats_of(b, BUFFER_MIXED),
        .convolved = floats_of(b, op->from[0]),
        .added = layer_of(b, op)->vector[op->tensor[0]],
        .beta = floats_of(b, op->from[1]),
        .decay = floats_of(b, op->from[2]),
        .to = floats_of(b, op->to[0]),
        .stride = b->buffers.of[op->from[0]].stride,
        .head_stride = b->buffers.of[op->from[2]].stride,
        .to_stride = b->buffers.of[op->to[0]].stride,
    };
}

/* Where the hidden rows are that the next-token layer reads: the last inputs of a convolution of
 * two taps. */
static struct cuda_states hidden_states_of(const struct backend *b)
{
    const struct state_geometry *g = &b->state_geometry;
    return (struct cuda_states){
        .memory = b->array[CUDA_STATES].base,
        .records = b->array[CUDA_RECORDS].base,
        .state_bytes = g->state_bytes,
        .record_bytes = g->record_bytes,
        .record = g->record,
        .inputs = g->hidden,
        .input = g->record_hidden,
        .end = g->record_hidden + g->n_hidden,
        .channels = g->n_hidden,
        .taps = 2,
    };
}

static struct join_job join_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct join_job){
        .pass = b->upload.to,
        .states = hidden_states_of(b),
        .embedding = b->weights.layers[b->model->n_layer].matrix[MODEL_TOKEN_EMBD],
        .mixed = floats_of(b, op->from[0]),
        .weight = {layer_of(b, op)->vector[op->tensor[0]], layer_of(b, op)->vector[op->tensor[1]]},
        .out = b->buffers.of[op->to[0]],
        .stride = b->buffers.of[op->from[0]].stride,
        .n = b->model->n_embd,
        .forms = forms_of(b, op),
        .eps = b->model->rms_eps,
    };
}

/* Of OP_REMEMBER: a settle_item. */
static struct delta_job remember_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct delta_job){
        .pass = b->upload.to,
        .states = hidden_states_of(b),
        .mixed = floats_of(b, op->from[0]),
        .stride = b->buffers.of[op->from[0]].stride,
    };
}

static struct head_gate_job head_gate_job_of(const struct backend *b, const struct layer_op *op)
{
    const struct delta_geometry *g = &op->geometry->delta;
    return (struct head_gate_job){
        .pass = b->upload.to,
        .x = floats_of(b, op->from[0]),
        .gate = floats_of(b, op->from[1]),
        .weight = layer_of(b, op)->vector[op->tensor[0]],
        .out = b->buffers.of[op->to[0]],
        .gate_stride = b->buffers.of[op->from[1]].stride,
        .n_head = g->n_head_v,
        .n = g->v_dim,
        .forms = forms_of(b, op),
        .eps = b->model->rms_eps,
    };
}

static struct cuda_experts experts_of(const struct backend *b, const struct layer_op *op)
{
    struct cuda_experts experts = b->buffers.experts;
    experts.n_expert = op->geometry->n_expert;
    experts.n_used = op->geometry->n_expert_used;
    return experts;
}

static struct route_job route_job_of(const struct backend *b, const struct layer_op *op)
{
    const struct model_router *router = &b->model->router;
    return (struct route_job){
        .pass = b->upload.to,
        .experts = experts_of(b, op),
        .score = floats_of(b, op->from[0]),
        .own_bias = layer_of(b, op)->vector[op->bias[0]],
        .bias = layer_of(b, op)->vector[op->tensor[0]],
        .factors = layer_of(b, op)->vector[op->tensor[1]],
        .stride = b->buffers.of[op->from[0]].stride,
        .layer = op->layer,
        .sigmoid = router->gating == MODEL_GATING_SIGMOID,
        .normed = router->normed,
        .scale = router->scale,
        .most = CUDA_TILE,
    };
}

/* The job of OP_EXPERT_GATE (f(gate) * up of each pair) or of OP_EXPERT_SUM. */
static struct expert_job expert_job_of(const struct backend *b, const struct layer_op *op)
{
    const bool gated = op->kind == OP_EXPERT_GATE;
    const struct cuda_buffers *u = &b->buffers;
    struct expert_job job = {
        .matmul = {.pass = b->upload.to, .x = u->of[op->from[0]], .layer = op->layer},
        .experts = experts_of(b, op),
        .gathered = gated,
    };
    for (uint32_t i = 0; i < op->n_parts; i++) {
        job.matmul.part[i].matrix = layer_of(b, op)->matrix[op->tensor[i]];
        job.bias[i] = layer_of(b, op)->vector[op->bias[i]];
    }
    job.matmul.groups = job.matmul.part[0].matrix.groups;
    if (gated) {
        job.matmul.gate = CUDA_GATE_SILU + op->gate;
        job.matmul.out = u->of[op->to[0]];
        job.matmul.forms = forms_of(b, op);
    } else {
        job.matmul.part[0].y = u->expert_y;
        job.matmul.part[0].stride = u->of[op->to[0]].stride;
    }
    return job;
}

/* Of the CPU's experts, whose sums are there. */
static struct cuda_experts experts_to_sum(const struct backend *b, const struct layer_op *op)
{
    struct cuda_experts experts = experts_of(b, op);
    if (cuda_on_host(b, op->layer))
        experts.n_used = 0;
    return experts;
}

static struct expert_sum_job expert_sum_job_of(const struct backend *b, const struct layer_op *op)
{
    return (struct expert_sum_job){
        .pass = b->upload.to,
        .experts = experts_to_sum(b, op),
        .y = b->buffers.expert_y,
        .shared = op->from[1] ? floats_of(b, op->from[1]) : NULL,
        .shared_gate = op->from[2] ? floats_of(b, op->from[2]) : NULL,
        .residual = op->residual ? floats_of(b, op->residual) : NULL,
        .to = floats_of(b, op->to[0]),
        .gate_stride = b->buffers.of[op->from[2]].stride,
        .stride = b->buffers.of[op->to[0]].stride,
        .n = op->n,
        .check = op->check,
        .layer = op->layer,
    };
}

enum { OP_JOBS = 2 };

static uint32_t make_expert_jobs(const struct backend *b, const struct layer_op *op,
                                 struct cuda_job job[OP_JOBS])
{
    uint32_t n = 0;
    if (!cuda_on_host(b, op->layer)) {
        job[n].kind = CUDA_JOB_EXPERT;
        job[n++].of.expert = expert_job_of(b, op);
    }
    if (op->kind == OP_EXPERT_GATE)
        return n;
    job[n].kind = CUDA_JOB_EXPERT_SUM;
    job[n++].of.expert_sum = expert_sum_job_of(b, op);
    return n;
}

/* Of a recurrent layer; and an OP_HEAD_GATE of attention, which its own job computes. */
static uint32_t make_delta_jobs(const struct backend *b, const struct layer_op *op,
                                struct cuda_job job[OP_JOBS])
{
    if (op->kind == OP_CONVOLVE) {
        job[0].kind = CUDA_JOB_CONVOLVE;
        job[0].of.convolve = convolve_job_of(b, op);
        return 1;
    }
    if (op->kind == OP_DELTA) {
        job[0].kind = CUDA_JOB_DELTA;
        job[0].of.delta = delta_job_of(b, op);
        return 1;
    }
    if (op->kind == OP_SETTLE) {
        job[0].kind = CUDA_JOB_SETTLE;
        job[0].of.delta = delta_job_of(b, op);
        return 1;
    }
    if (op[-1].kind != OP_DELTA)
        return 0;
    job[0].kind = CUDA_JOB_HEAD_GATE;
    job[0].of.head_gate = head_gate_job_of(b, op);
    return 1;
}

/* Of the next-token layer's hidden rows. */
static uint32_t make_hidden_job(const struct backend *b, const struct layer_op *op,
                                struct cuda_job *job)
{
    if (op->kind == OP_JOIN) {
        job->kind = CUDA_JOB_JOIN;
        job->of.join = join_job_of(b, op);
    } else {
        job->kind = CUDA_JOB_SETTLE;
        job->of.delta = remember_job_of(b, op);
    }
    return 1;
}

/* The jobs of an operation; returns how many: 0 where another operation's job computes
 * it. */
static uint32_t make_jobs(const struct backend *b, const struct layer_op *op,
                          struct cuda_job job[OP_JOBS])
{
    memset(job, 0, OP_JOBS * sizeof(*job));
    switch (op->kind) {
    case OP_LOOKUP:
        job->kind = CUDA_JOB_EMBED;
        job->of.embed = lookup_job_of(b, op);
        return 1;
    case OP_INPUTS:
        job->kind = CUDA_JOB_INPUTS;
        job->of.inputs = inputs_job_of(b, op);
        return 1;
    case OP_GATE:
        if (is_gated(&op[-1]))
            return 0;
        job->kind = CUDA_JOB_GATE;
        job->of.gate = gate_job_of(b, op);
        return 1;
    case OP_NORM:
        job->kind = CUDA_JOB_NORM;
        job->of.norm = norm_job_of(b, op);
        return 1;
    case OP_ADD:
        if (is_added_by_norm(op))
            return 0;
        job->kind = CUDA_JOB_NORM;
        job->of.norm = add_job_of(b, op);
        return 1;
    case OP_MATMUL:
        job->kind = CUDA_JOB_MATMUL;
        job->of.matmul = matmul_job_of(b, op);
        return 1;
    case OP_QKV_FINISH:
        job->kind = CUDA_JOB_QKV_FINISH;
        job->of.qkv_finish = qkv_finish_job_of(b, op);
        return 1;
    case OP_ATTEND:
        job->kind = CUDA_JOB_ATTEND;
        job->of.attention = attention_job_of(b, op);
        return 1;
    case OP_ROUTE:
        job->kind = CUDA_JOB_ROUTE;
        job->of.route = route_job_of(b, op);
        return 1;
    case OP_EXPERT_GATE:
    case OP_EXPERT_SUM:
        return make_expert_jobs(b, op, job);
    case OP_CONVOLVE:
    case OP_DELTA:
    case OP_HEAD_GATE:
    case OP_SETTLE:
        return make_delta_jobs(b, op, job);
    case OP_JOIN:
    case OP_REMEMBER:
        return make_hidden_job(b, op, job);
    default:
        return 0;
    }
}

uint32_t cuda_layer_jobs(const struct backend *b, uint32_t i, struct layer_jobs *ret)
{
    const struct layer_ops *ops = &b->model->ops;
    const uint32_t layer = ops->op[i].layer;
    ret->n = 0;
    for (; i < ops->n && ops->op[i].layer == layer; i++) {
        struct cuda_job job[OP_JOBS];
        const uint32_t n = make_jobs(b, &ops->op[i], job);
        assert(ret->n + n <= CUDA_LAYER_JOBS);
        memcpy(&ret->job[ret->n], job, n * sizeof(*job));
        ret->n += n;
    }
    return i;
}

struct sample_job cuda_sample_job(const struct backend *b)
{
    const struct cuda_buffers *u = &b->buffers;
    return (struct sample_job){
        .pass = b->upload.to,
        .results = b->results_device,
        .logits = u->of[BUFFER_LOGITS].f,
        .work = u->work,
        .ids = u->ids,
        .blocks = u->blocks,
        .raw_blocks = u->raw_blocks,
        .parts = u->parts,
        .stride = u->of[BUFFER_LOGITS].stride,
        .n_vocab = b->model->n_vocab,
        .cap = b->model->logit_cap,
    };
}

/* ---- launched -------------------------------------------------------------------------------- */

static void run_matmul(struct backend *b, const struct matmul_job *job, uint32_t rows)
{
    if (!job->wanted && cuda_blas_takes(b, rows))
        cuda_blas_matmul(b, job, rows, "a matmul");
    else
        cuda_ok(b, cuda_launch_matmul(&b->queue, job, rows), "a matmul");
}

static void run_attention(struct backend *b, const struct attention_job *job)
{
    const struct cuda_grid *grid = &b->grid;
    cuda_ok(b, cuda_launch_attend(&b->queue, &job->attend, grid->items, grid->kinds), "attention");
    cuda_ok(b, cuda_launch_combine(&b->queue, &job->combine, grid->rows),
            "attention's combined splits");
}

/* What an instance that breaks says. */
static const char *const job_names[] = {
    [CUDA_JOB_EMBED] = "a look-up",
    [CUDA_JOB_INPUTS] = "the inputs of layers",
    [CUDA_JOB_GATE] = "a gate",
    [CUDA_JOB_NORM] = "a norm",
    [CUDA_JOB_QKV_FINISH] = "rope and append",
    [CUDA_JOB_ROUTE] = "a router",
    [CUDA_JOB_EXPERT] = "experts",
    [CUDA_JOB_EXPERT_SUM] = "the sum of experts",
    [CUDA_JOB_CONVOLVE] = "a convolution",
    [CUDA_JOB_DELTA] = "a recurrent state",
    [CUDA_JOB_HEAD_GATE] = "gates of heads",
    [CUDA_JOB_SETTLE] = "records of a recurrent state",
    [CUDA_JOB_JOIN] = "the next-token layer's input",
};

static int launch_job(const struct backend *b, const struct cuda_job *job, uint32_t rows)
{
    const struct cuda_queue *queue = &b->queue;
    switch (job->kind) {
    case CUDA_JOB_EMBED:
        return cuda_launch_embed(queue, &job->of.embed, rows);
    case CUDA_JOB_INPUTS:
        return cuda_launch_inputs(queue, &job->of.inputs, rows);
    case CUDA_JOB_GATE:
        return cuda_launch_gate(queue, &job->of.gate, rows);
    case CUDA_JOB_NORM:
        return cuda_launch_norm(queue, &job->of.norm, rows);
    case CUDA_JOB_QKV_FINISH:
        return cuda_launch_qkv_finish(queue, &job->of.qkv_finish, rows);
    case CUDA_JOB_ROUTE:
        return cuda_launch_route(queue, &job->of.route, rows);
    case CUDA_JOB_EXPERT:
        return cuda_launch_expert(queue, &job->of.expert, rows);
    case CUDA_JOB_EXPERT_SUM:
        return cuda_launch_expert_sum(queue, &job->of.expert_sum, rows);
    case CUDA_JOB_CONVOLVE:
        return cuda_launch_convolve(queue, &job->of.convolve, rows);
    case CUDA_JOB_DELTA:
        return cuda_launch_delta(queue, &job->of.delta, b->grid.states);
    case CUDA_JOB_HEAD_GATE:
        return cuda_launch_head_gate(queue, &job->of.head_gate, rows);
    case CUDA_JOB_JOIN:
        return cuda_launch_join(queue, &job->of.join, rows);
    default:
        return cuda_launch_settle(queue, &job->of.delta, b->grid.states);
    }
}

static void run_op(struct backend *b, const struct layer_op *op, uint32_t rows)
{
    struct cuda_job job[OP_JOBS];
    if (rows == 1 && is_normed_by_matmuls(b, op))
        return;
    const uint32_t n = make_jobs(b, op, job);
    const struct layer_op *norm = rows == 1 && op->kind == OP_MATMUL ? norm_before(b, op) : NULL;
    if (norm)
        job->of.matmul.norm = row_norm_of(b, norm);
    for (uint32_t i = 0; i < n; i++)
        if (job[i].kind == CUDA_JOB_MATMUL)
            run_matmul(b, &job[i].of.matmul, rows);
        else if (job[i].kind == CUDA_JOB_ATTEND)
            run_attention(b, &job[i].of.attention);
        else
            cuda_ok(b, launch_job(b, &job[i], rows), job_names[job[i].kind]);
}

static void run_samples(struct backend *b)
{
    const struct sample_job job = cuda_sample_job(b);
    cuda_ok(b, cuda_launch_sample(&b->queue, &job, b->grid.wanted), "samples");
}

/* Ends a pass without a head. */
static void run_end(struct backend *b)
{
    const struct end_job job = {b->upload.to, b->results_device};
    cuda_ok(b, cuda_launch_end(&b->queue, &job), "the end of a pass");
}

static void run_embedding(struct backend *b)
{
    const struct embed_job job = cuda_embed_job(b);
    cuda_ok(b, cuda_launch_embed(&b->queue, &job, b->grid.rows), "the embedding");
}

/* Operations [first, end). */
static void run_ops(struct backend *b, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end && !b->broken; i++) {
        const struct layer_op *op = &b->model->ops.op[i];
        run_op(b, op, op->wanted ? b->grid.wanted : b->grid.rows);
    }
}

/* The embedding also clears pages that begin with a pass, those of drafts, too. */
void cuda_run_jobs(struct backend *b, struct cuda_grid grid, uint32_t piece)
{
    const struct layer_ops *ops = &b->model->ops;
    const bool last = piece == cuda_last_piece(b, grid.kind), wanted = grid.wanted > 0;
    b->grid = grid;
    if (piece == 0)
        run_embedding(b);
    if (grid.kind == PASS_MTP)
        run_ops(b, ops->draft, wanted ? ops->end : ops->draft_head);
    else
        run_ops(b, piece == 0 ? 1 : b->cut.begin[piece],
                !last    ? b->cut.begin[piece + 1]
                : wanted ? ops->n
                         : ops->head);
    if (last && grid.kind != PASS_MTP && cuda_has(b, PASS_MTP))
        run_ops(b, ops->n, ops->draft);
    if (b->broken || !last) /* broken: a launch failed, so nothing wrote logits */
        return;
    if (wanted)
        run_samples(b);
    else
        run_end(b);
}
