/* The file's kind and the hyperparameters. Each number is range-checked where it is read, so later
 * products cannot overflow: all of them are far below 2^32. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/model/model_load.h"

/* ---- what kind of file ----------------------------------------------------------------------- */

int model_check_kind(struct model_loader *l)
{
    struct gguf_string text;
    uint32_t parts = 1;
    if (gguf_string(l->gguf, "general.architecture", &text))
        return FAIL(l, -ENOTSUP,
                    "valid GGUF, but no general.architecture: not a model hearth can run");
    l->arch = model_arch_find(text);
    if (!l->arch)
        return FAIL(l, -ENOTSUP, "architecture %.*s is not supported yet; supported: %s",
                    GGUF_SHOW(text), model_arch_names());
    if (!gguf_string(l->gguf, "general.type", &text) && !gguf_string_equal(text, "model"))
        return FAIL(l, -ENOTSUP, "valid GGUF, but of type %.*s: hearth runs models",
                    GGUF_SHOW(text));
    if (!l->gguf->next && !gguf_u32(l->gguf, "split.count", &parts) && parts > 1)
        return FAIL(l, -ENOTSUP, "one of %u parts of a model, without the others", parts);
    if (gguf_n_tensors(l->gguf) == 0)
        return FAIL(l, -ENOTSUP,
                    "valid GGUF, but no tensors: a vocabulary-only file serves `hearth tokenize "
                    "--model`, not hearthd");
    if (!gguf_has_data(l->gguf))
        return FAIL(l, -EBADMSG, "the file ends before its tensor data: download it again");
    l->model->arch = l->arch->name;
    l->model->rope = l->arch->rope;
    l->model->gate = l->arch->gate;
    (void)gguf_string(l->gguf, "general.name", &l->model->name);
    return 0;
}

/* ---- hyperparameters ------------------------------------------------------------------------- */

/* A key of this architecture. Room for every name in this file. */
struct arch_key {
    char name[96];
};

static struct arch_key key_of(const struct model_loader *l, const char *name)
{
    struct arch_key key;
    assert(l->arch);
    snprintf(key.name, sizeof(key.name), "%s.%s", l->arch->name, name);
    return key;
}

/* Reads a number between 1 and max. *ret holds the default, 0 when the key must be there. */
static int read_count(struct model_loader *l, const char *name, uint32_t max, uint32_t *ret)
{
    struct arch_key key = key_of(l, name);
    int rc = gguf_u32(l->gguf, key.name, ret);
    if (rc == -ENOENT && *ret > 0)
        return 0;
    if (rc == -ENOENT)
        return FAIL(l, -EBADMSG, "malformed: %s is missing", key.name);
    const struct gguf_key *found = gguf_find_key(l->gguf, key.name);
    if (rc == -EINVAL && found->type == GGUF_ARRAY)
        return FAIL(l, -ENOTSUP, "%s differs from layer to layer: not supported", key.name);
    if (rc == -EINVAL)
        return FAIL(l, -EBADMSG, "malformed: %s is a %s, not a whole number", key.name,
                    gguf_value_type_name(found->type));
    if (rc || *ret == 0 || *ret > max)
        return FAIL(l, -EBADMSG, "malformed: %s must be 1 to %u", key.name, max);
    return 0;
}

/* Reads a float; *ret holds the default, NaN when the key must be there. */
static int read_float(struct model_loader *l, const char *name, float *ret)
{
    struct arch_key key = key_of(l, name);
    int rc = gguf_f32(l->gguf, key.name, ret);
    if (rc == -EINVAL)
        return FAIL(l, -EBADMSG, "malformed: %s is a %s, not a float", key.name,
                    gguf_value_type_name(gguf_find_key(l->gguf, key.name)->type));
    if (rc == -ENOENT && isnan(*ret))
        return FAIL(l, -EBADMSG, "malformed: %s is missing", key.name);
    return 0;
}

/* Reads a number between 1 and max, one for all layers or one for each, of which some may be 0 if the
 * least is 0: ret [n_block]. */
static int read_counts(struct model_loader *l, const char *name, uint32_t least, uint32_t max,
                       uint32_t by_default, uint32_t *ret)
{
    const struct arch_key key = key_of(l, name);
    struct gguf_array array = {0};
    const bool by_layer = gguf_array(l->gguf, key.name, &array) == 0;
    int rc = by_layer ? 0 : read_count(l, name, max, &by_default);
    if (by_layer && (array.type > GGUF_I32 || array.count != l->n_block))
        return FAIL(l, -EBADMSG, "malformed: %s must be a number, or %u of them", key.name,
                    l->n_block);
    for (uint32_t i = 0; i < l->n_block && !rc; i++) {
        const int64_t n = by_layer ? gguf_array_i64(&array, i) : by_default;
        if (n < least || n > max)
            return FAIL(l, -EBADMSG, "malformed: %s holds %lld, must be %u to %u", key.name,
                        (long long)n, least, max);
        ret[i] = (uint32_t)n;
    }
    return rc;
}

/* Reads a number that may be 0, which is also the default. */
static int read_optional(struct model_loader *l, const char *name, uint32_t max, uint32_t *ret)
{
    *ret = 0;
    const int rc = gguf_u32(l->gguf, key_of(l, name).name, ret);
    return rc == -ENOENT || (!rc && *ret == 0) ? 0 : read_count(l, name, max, ret);
}

static bool arch_has(const struct model_loader *l, enum model_layer_tensor tensor)
{
    return l->arch->tensors >> tensor & 1;
}

/* What a router makes of scores: the file says it by a number. */
static int read_gating(struct model_loader *l)
{
    enum { GATING_NONE, GATING_SOFTMAX, GATING_SIGMOID, GATING_SOFTMAX_OF_CHOSEN };
    struct model_router *router = &l->model->router;
    const struct arch_key key = key_of(l, "expert_gating_func");
    uint32_t gating = GATING_NONE;
    int rc = gguf_u32(l->gguf, key.name, &gating);
    if ((rc && rc != -ENOENT) || gating > GATING_SOFTMAX_OF_CHOSEN ||
        (gating == GATING_SOFTMAX_OF_CHOSEN && arch_has(l, MODEL_FFN_CHOICE_BIAS)))
        return FAIL(
            l, -ENOTSUP,
            "a router of kind %u (%s) is not supported for %s: hearth takes softmax (1) and "
            "sigmoid (2), and softmax of the chosen (3) where no bias helps to choose",
            gating, key.name, l->arch->name);
    if (gating != GATING_NONE)
        router->gating = gating == GATING_SIGMOID ? MODEL_GATING_SIGMOID : MODEL_GATING_SOFTMAX;
    router->normed |= gating == GATING_SOFTMAX_OF_CHOSEN;
    return 0;
}

/* How the weights of experts follow from scores. */
static int read_router(struct model_loader *l)
{
    struct model_router *router = &l->model->router;
    struct arch_key key = key_of(l, "expert_weights_norm");
    *router = (struct model_router){l->arch->gating, !l->arch->unnormed, 1.0f};
    int rc = gguf_bool(l->gguf, key.name, &router->normed);
    if (rc && rc != -ENOENT)
        return FAIL(l, -EBADMSG, "malformed: %s is not a truth value", key.name);
    rc = read_float(l, "expert_weights_scale", &router->scale);
    if (!rc && router->scale == 0.0f) /* some converters write it for none */
        router->scale = 1.0f;
    if (!rc && !(router->scale > 0 && router->scale <= 1e6f))
        return FAIL(l, -EBADMSG, "malformed: %s must be above 0, at most 1e6",
                    key_of(l, "expert_weights_scale").name);
    return rc ? rc : read_gating(l);
}

/* What some layers have beside experts, or in place of them. */
static int read_around_experts(struct model_loader *l)
{
    uint32_t shared = 0, groups = 0, step = 0;
    int rc = read_optional(l, "leading_dense_block_count", l->model->n_layer, &l->n_dense);
    if (!rc && (l->n_dense > 0 || l->arch->beside))
        rc = read_counts(l, "feed_forward_length", 1, MODEL_MAX_FF, 0, l->n_ff);
    if (!rc)
        rc = read_optional(l, "expert_shared_count", MODEL_MAX_EXPERTS_USED, &shared);
    l->n_ff_shared = shared * l->model->n_ff;
    if (!rc && gguf_find_key(l->gguf, key_of(l, "expert_shared_feed_forward_length").name))
        rc = read_optional(l, "expert_shared_feed_forward_length", MODEL_MAX_FF, &l->n_ff_shared);
    if (!rc)
        rc = read_optional(l, "expert_group_count", MODEL_MAX_EXPERTS, &groups);
    if (!rc)
        rc = read_optional(l, "interleave_moe_layer_step", MODEL_MAX_LAYERS, &step);
    if (rc)
        return rc;
    if (step > 1)
        return FAIL(l, -ENOTSUP, "experts in every %u-th layer (%s) are not supported", step,
                    key_of(l, "interleave_moe_layer_step").name);
    if (groups > 1)
        return FAIL(l, -ENOTSUP, "experts in %u groups (%s) are not supported", groups,
                    key_of(l, "expert_group_count").name);
    if (l->n_ff_shared > MODEL_MAX_FF)
        return FAIL(l, -EBADMSG, "malformed: a width of %u for %u shared experts, must be up to %d",
                    l->n_ff_shared, shared, MODEL_MAX_FF);
    if ((l->n_dense > 0 && !arch_has(l, MODEL_FFN_GATE)) ||
        (l->n_ff_shared > 0 && !arch_has(l, MODEL_FFN_UP_SHARED)))
        return FAIL(l, -ENOTSUP, "%s with %s is not supported", l->arch->name,
                    l->n_dense > 0 ? "layers without experts" : "a shared expert");
    return 0;
}

/* Files of llama and granitemoe have one width, that of an expert. */
static const char *expert_width_key(const struct model_loader *l)
{
    static const char OWN[] = "expert_feed_forward_length", ANY[] = "feed_forward_length";
    return l->arch->beside || gguf_find_key(l->gguf, key_of(l, OWN).name) ||
                   !gguf_find_key(l->gguf, key_of(l, ANY).name)
               ? OWN
               : ANY;
}

static int read_experts(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_count(l, "expert_count", MODEL_MAX_EXPERTS, &m->n_expert);
    if (!rc)
        rc = read_count(l, "expert_used_count", MODEL_MAX_EXPERTS_USED, &m->n_expert_used);
    if (!rc)
        rc = read_count(l, expert_width_key(l), MODEL_MAX_FF, &m->n_ff);
    if (!rc && m->n_expert_used > m->n_expert)
        return FAIL(l, -EBADMSG, "malformed: %u of %u experts used", m->n_expert_used, m->n_expert);
    if (!rc)
        rc = read_around_experts(l);
    return rc ? rc : read_router(l);
}

/* Layers that draft tokens ahead (MTP) follow those of a pass. */
static int read_layers(struct model_loader *l)
{
    uint32_t n_draft = 0;
    int rc = read_count(l, "block_count", MODEL_MAX_LAYERS, &l->n_block);
    if (!rc)
        rc = read_optional(l, "nextn_predict_layers", l->n_block - 1, &n_draft);
    l->model->n_layer = l->n_block - n_draft;
    return rc;
}

/* The widths of feed-forward parts of a model without experts. */
static int read_widths(struct model_loader *l)
{
    struct model *m = l->model;
    const int rc = read_counts(l, "feed_forward_length", 1, MODEL_MAX_FF, 0, l->n_ff);
    for (uint32_t i = 0; i < m->n_layer && !rc; i++)
        m->n_ff = l->n_ff[i] > m->n_ff ? l->n_ff[i] : m->n_ff;
    return rc;
}

static bool names_experts(const struct model_loader *l)
{
    uint32_t count = 0;
    const int rc = gguf_u32(l->gguf, key_of(l, "expert_count").name, &count);
    return (rc && rc != -ENOENT) || count > 0;
}

static int read_sizes(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_layers(l);
    if (!rc)
        rc = read_count(l, "embedding_length", MODEL_MAX_EMBD, &m->n_embd);
    if (!rc)
        rc = l->arch->experts || (arch_has(l, MODEL_FFN_ROUTER) && names_experts(l))
                 ? read_experts(l)
                 : read_widths(l);
    if (!rc)
        rc = read_count(l, "context_length", MODEL_MAX_CONTEXT, &m->n_context);
    return rc;
}

/* The KV heads of each layer: one number for all, or one for each. Of some architectures a layer that has none is
 * recurrent. */
static int read_kv_heads(struct model_loader *l)
{
    struct model *m = l->model;
    const uint32_t least = l->arch->short_conv || l->arch->mamba ? 0 : 1;
    const int rc =
        read_counts(l, "attention.head_count_kv", least, MODEL_MAX_HEADS, m->n_head, l->n_head_kv);
    m->n_head_kv = m->n_head;
    for (uint32_t i = 0; i < l->n_block && !rc; i++) {
        const uint32_t n = l->n_head_kv[i];
        l->recurrent[i] = n == 0;
        m->n_recurrent += n == 0 && i < m->n_layer;
        if (n > 0 && m->n_head % n != 0)
            return FAIL(l, -EBADMSG, "malformed: %u heads over %u key/value heads", m->n_head, n);
        if (i < m->n_layer && n > 0 && n < m->n_head_kv)
            m->n_head_kv = n;
    }
    for (uint32_t i = 0; i < l->n_block && !rc; i++)
        l->n_head_kv[i] = l->recurrent[i] ? m->n_head_kv : l->n_head_kv[i];
    return rc;
}

static int check_head_dim(struct model_loader *l, uint32_t dim)
{
    if (dim % 2 != 0 || dim > MODEL_MAX_HEAD_DIM)
        return FAIL(l, -ENOTSUP, "heads of %u dimensions: hearth takes even sizes up to %d", dim,
                    MODEL_MAX_HEAD_DIM);
    return 0;
}

static int check_rope_dim(struct model_loader *l, uint32_t n_rot, uint32_t dim)
{
    if (n_rot > dim || n_rot % 2 != 0)
        return FAIL(l, -ENOTSUP, "rope over %u of %u dimensions: hearth takes even numbers of them",
                    n_rot, dim);
    return 0;
}

static int read_head_sizes(struct model_loader *l)
{
    struct model *m = l->model;
    m->head_dim = m->n_embd % m->n_head == 0 ? m->n_embd / m->n_head : 0;
    if (m->head_dim == 0 && !gguf_find_key(l->gguf, key_of(l, "attention.key_length").name))
        return FAIL(l, -EBADMSG,
                    "malformed: embedding width %u is not a multiple of the head count %u",
                    m->n_embd, m->n_head);
    int rc = read_count(l, "attention.key_length", UINT32_MAX, &m->head_dim);
    m->v_dim = m->ropes[0].n = m->head_dim;
    if (!rc)
        rc = read_count(l, "attention.value_length", UINT32_MAX, &m->v_dim);
    if (!rc)
        rc = read_count(l, "rope.dimension_count", UINT32_MAX, &m->ropes[0].n);
    if (!rc)
        rc = check_head_dim(l, m->head_dim);
    return rc ? rc : check_head_dim(l, m->v_dim);
}

static int read_heads(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_count(l, "attention.head_count", MODEL_MAX_HEADS, &m->n_head);
    if (!rc)
        rc = read_kv_heads(l);
    if (!rc)
        rc = read_head_sizes(l);
    if (rc)
        return rc;
    return check_rope_dim(l, m->ropes[0].n, m->head_dim);
}

/* ---- recurrent layers ------------------------------------------------------------------------ */

/* Which layers are recurrent: as an array says, or all but every n-th. */
static int read_recurrent(struct model_loader *l)
{
    struct model *m = l->model;
    const struct arch_key key = key_of(l, "attention.recurrent_layers");
    struct gguf_array array = {0};
    uint32_t period = l->arch->recurrent_period;
    int rc = gguf_array(l->gguf, key.name, &array);
    const bool by_layer = rc != -ENOENT;
    if (by_layer && (rc || array.type != GGUF_BOOL || array.count != l->n_block))
        return FAIL(l, -EBADMSG, "malformed: %s must be %u booleans", key.name, l->n_block);
    rc = by_layer ? 0 : read_count(l, "full_attention_interval", MODEL_MAX_LAYERS, &period);
    for (uint32_t i = 0; i < m->n_layer && !rc; i++) {
        l->recurrent[i] = by_layer ? gguf_array_i64(&array, i) != 0 : (i + 1) % period != 0;
        m->n_recurrent += l->recurrent[i];
    }
    return rc;
}

static int refuse_all_recurrent(struct model_loader *l)
{
    if (l->model->n_recurrent == l->model->n_layer)
        return FAIL(l, -ENOTSUP, "%s without attention in any layer is not supported",
                    l->arch->name);
    return 0;
}

/* The sizes of the gated delta rule, named after another recurrence's. */
static int read_delta(struct model_loader *l)
{
    struct delta_geometry *d = &l->model->delta;
    uint32_t taps = 0, inner = 0;
    int rc = read_count(l, "ssm.conv_kernel", UINT32_MAX, &taps);
    if (!rc)
        rc = read_count(l, "ssm.state_size", MODEL_MAX_STATE_DIM, &d->k_dim);
    if (!rc)
        rc = read_count(l, "ssm.group_count", MODEL_MAX_HEADS, &d->n_head_k);
    if (!rc)
        rc = read_count(l, "ssm.time_step_rank", MODEL_MAX_HEADS, &d->n_head_v);
    if (!rc)
        rc = read_count(l, "ssm.inner_size", UINT32_MAX, &inner);
    if (rc)
        return rc;
    d->taps = taps;
    if (taps != MODEL_TAPS)
        return FAIL(l, -ENOTSUP, "a convolution of %u positions (%s): hearth takes %d", taps,
                    key_of(l, "ssm.conv_kernel").name, MODEL_TAPS);
    d->v_dim = inner / d->n_head_v;
    if (d->n_head_v % d->n_head_k != 0 || inner % d->n_head_v != 0 || d->v_dim == 0 ||
        d->v_dim > MODEL_MAX_STATE_DIM)
        return FAIL(l, -EBADMSG,
                    "malformed: %u values of %u heads over %u (ssm.inner_size, "
                    "ssm.time_step_rank, ssm.group_count)",
                    inner, d->n_head_v, d->n_head_k);
    d->channels = 2 * d->n_head_k * d->k_dim + inner;
    d->k_at = d->n_head_k * d->k_dim;
    d->v_at = 2 * d->k_at;
    d->run = l->arch->v_runs ? d->n_head_v / d->n_head_k : 1;
    return l->arch->recurrent_period > 0 ? read_recurrent(l) : 0;
}

/* Mamba-2 has sizes of the same names, and x, B and C one after the other. */
static int read_mamba(struct model_loader *l)
{
    struct delta_geometry *d = &l->model->delta;
    const int rc = read_delta(l);
    d->mamba = true;
    d->v_at = 0;
    d->k_at = d->n_head_v * d->v_dim;
    d->q_at = d->k_at + d->n_head_k * d->k_dim;
    return rc ? rc : refuse_all_recurrent(l);
}

/* A short convolution in place of attention. */
static int read_short_conv(struct model_loader *l)
{
    struct delta_geometry *d = &l->model->delta;
    const int rc = read_count(l, "shortconv.l_cache", UINT32_MAX, &d->taps);
    if (!rc && (d->taps < 2 || d->taps > MODEL_TAPS))
        return FAIL(l, -ENOTSUP, "a convolution of %u positions (%s): hearth takes 2 to %d",
                    d->taps, key_of(l, "shortconv.l_cache").name, MODEL_TAPS);
    *d = (struct delta_geometry){.taps = d->taps, .channels = l->model->n_embd};
    return rc ? rc : refuse_all_recurrent(l);
}

/* In text all sections of rope have the same position, so that it is plain rope if every pair
 * belongs to one: pair i to section i mod 3, as far as that goes. */
static int check_sections(struct model_loader *l)
{
    const struct arch_key key = key_of(l, "rope.dimension_sections");
    struct gguf_array array = {0};
    int rc = gguf_array(l->gguf, key.name, &array);
    if (rc == -ENOENT)
        return 0;
    bool covered = !rc && array.count == 4 && array.type <= GGUF_I32;
    for (uint32_t i = 0; covered && i < l->model->ropes[0].n / 2; i++)
        covered = i / 3 < gguf_array_i64(&array, i % 3);
    if (!covered || gguf_array_i64(&array, 3) != 0)
        return FAIL(l, -ENOTSUP, "sections of rope (%s) that do not hold all of its %u pairs",
                    key.name, l->model->ropes[0].n / 2);
    return 0;
}

/* ---- rope ------------------------------------------------------------------------------------ */

/* A base of rope's frequencies; *ret holds what counts where the file does not say. */
static int read_rope_base(struct model_loader *l, const char *name, float *ret)
{
    int rc = read_float(l, name, ret);
    if (!rc && !(*ret >= 1 && *ret <= MODEL_MAX_ROPE_BASE))
        return FAIL(l, -EBADMSG, "malformed: %s must be 1 to %g", key_of(l, name).name,
                    MODEL_MAX_ROPE_BASE);
    return rc;
}

enum scaling_kind { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3, SCALING_LONGROPE, SCALING_YARN };

static const char *const SCALINGS[] = {"none", "linear", "llama3", "longrope", "yarn"};
enum { N_SCALINGS = sizeof(SCALINGS) / sizeof(SCALINGS[0]) };

/* A file that does not say has linear scaling, by 1 unless there is a factor. Two kinds stand in
 * tensors. */
static int read_scaling_kind(struct model_loader *l, enum scaling_kind *ret)
{
    struct gguf_string type = {.data = "linear", .bytes = 6};
    struct arch_key key = key_of(l, "rope.scaling.type");
    const bool factors = gguf_find_tensor(l->gguf, "rope_factors_long.weight") != NULL;
    uint32_t kind = 0;
    int rc = gguf_string(l->gguf, key.name, &type);
    while (kind < N_SCALINGS && !gguf_string_equal(type, SCALINGS[kind]))
        kind++;
    *ret = factors ? SCALING_LONGROPE : (enum scaling_kind)kind;
    if ((rc && rc != -ENOENT) || kind == N_SCALINGS)
        return FAIL(l, -ENOTSUP,
                    "rope scaling of type %.*s (%s) is not supported: hearth takes none, linear, "
                    "llama3, longrope and yarn",
                    GGUF_SHOW(type), key.name);
    const char *needed = kind == SCALING_LLAMA3 ? "rope_freqs.weight" : "rope_factors_long.weight";
    if ((kind == SCALING_LLAMA3 || kind == SCALING_LONGROPE) && !gguf_find_tensor(l->gguf, needed))
        return FAIL(l, -ENOTSUP,
                    "rope scaling of type %s without the tensor %s: convert the model again with "
                    "a newer converter",
                    SCALINGS[kind], needed);
    return 0;
}

/* Another scaling than the file's, and the context that the model has with it (model.h). */
static int choose_scaling(struct model_loader *l, enum scaling_kind *kind, float *factor)
{
    struct model *m = l->model;
    char name[8] = "";
    int end = 0;
    *factor = 1.0f;
    const int n = sscanf(l->rope_scaling, "%7[a-z]%n:%f%n:%u%n", name, &end, factor, &end,
                         &l->original_context, &end);
    const bool none = n == 1 && strcmp(name, "none") == 0, yarn = strcmp(name, "yarn") == 0;
    if (l->rope_scaling[end] || !(none || (n >= 2 && (yarn || strcmp(name, "linear") == 0))))
        return FAIL(l, -EINVAL,
                    "rope-scaling %s: give none, linear:FACTOR or yarn:FACTOR, the last two with "
                    ":CONTEXT where the file does not say what context the model was trained for",
                    l->rope_scaling);
    if (*kind == SCALING_LONGROPE && !none)
        return FAIL(l, -ENOTSUP,
                    "rope-scaling %s: the model has LongRoPE: give none, or leave it out",
                    l->rope_scaling);
    const double context = (double)l->original_context * (double)*factor;
    if (!(context >= 1 && context <= MODEL_MAX_CONTEXT))
        return FAIL(l, -EINVAL, "rope-scaling %s: a context of %g, must be 1 to %d",
                    l->rope_scaling, context, MODEL_MAX_CONTEXT);
    m->n_context = (uint32_t)context;
    *kind = yarn ? SCALING_YARN : none ? SCALING_NONE : SCALING_LINEAR;
    return 0;
}

/* attention_factor of a model's configuration replaces the correction that YaRN makes by itself. */
static int read_yarn(struct model_loader *l, struct model_rope_table *rope)
{
    struct model_yarn *yarn = &rope->yarn;
    float extrapolation = 1.0f, attention = 0.0f;
    *yarn = (struct model_yarn){.original = l->original_context,
                                .fast = 32.0f,
                                .slow = 1.0f,
                                .truncated = !l->arch->yarn_untruncated};
    int rc = read_float(l, "rope.scaling.yarn_beta_fast", &yarn->fast);
    if (!rc)
        rc = read_float(l, "rope.scaling.yarn_beta_slow", &yarn->slow);
    if (!rc)
        rc = read_float(l, "rope.scaling.yarn_log_multiplier", &yarn->log_multiplier);
    if (!rc)
        rc = read_float(l, "rope.scaling.yarn_ext_factor", &extrapolation);
    if (!rc)
        rc = read_float(l, "rope.scaling.yarn_attn_factor", &attention);
    if (rc)
        return rc;
    if (attention != 0.0f) {
        rope->attention *= attention;
        yarn->log_multiplier = 1.0f;
    }
    if (extrapolation != 1.0f)
        return FAIL(l, -ENOTSUP, "YaRN with an extrapolation of %g (%s) is not supported",
                    (double)extrapolation, key_of(l, "rope.scaling.yarn_ext_factor").name);
    if (!(yarn->slow > 0 && yarn->fast > yarn->slow && yarn->fast <= 1e6f && rope->base > 1.0f))
        return FAIL(l, -EBADMSG, "malformed: YaRN between %g and %g turns, of base %g",
                    (double)yarn->slow, (double)yarn->fast, (double)rope->base);
    if (!(yarn->log_multiplier >= 0 && yarn->log_multiplier <= 100))
        return FAIL(l, -EBADMSG, "malformed: %s must be 0 to 100",
                    key_of(l, "rope.scaling.yarn_log_multiplier").name);
    return 0;
}

/* The key is that of another thing: converters write it for a model without rope. */
static int read_whether_rope(struct model_loader *l)
{
    const struct arch_key key = key_of(l, "rope.scaling.finetuned");
    bool has_rope = true;
    const int rc = gguf_bool(l->gguf, key.name, &has_rope);
    if (rc && rc != -ENOENT)
        return FAIL(l, -EBADMSG, "malformed: %s is not a truth value", key.name);
    l->model->no_rope = !has_rope;
    return 0;
}

/* Linear scaling stands in one of two keys, the older one without a type; llama3's and LongRoPE's
 * divisors are tensors. Others are refused: a file must never run as what it is not. */
static int read_rope(struct model_loader *l)
{
    struct model *m = l->model;
    struct model_rope_table *rope = &m->ropes[0];
    enum scaling_kind kind = SCALING_NONE;
    float factor = 1.0f;
    *rope =
        (struct model_rope_table){.n = rope->n, .base = 10000.0f, .scale = 1.0f, .attention = 1.0f};
    m->n_ropes = 1;
    l->original_context = m->n_context;
    int rc = read_rope_base(l, "rope.freq_base", &rope->base);
    if (!rc)
        rc = read_scaling_kind(l, &kind);
    if (!rc && kind == SCALING_LINEAR)
        rc = read_float(l, "rope.scale_linear", &factor);
    if (!rc)
        rc = read_float(l, "rope.scaling.factor", &factor);
    if (!rc)
        rc = read_float(l, "rope.scaling.attn_factor", &rope->attention);
    if (!rc)
        rc = read_count(l, "rope.scaling.original_context_length", MODEL_MAX_CONTEXT,
                        &l->original_context);
    if (!rc && l->rope_scaling)
        rc = choose_scaling(l, &kind, &factor);
    if (rc)
        return rc;
    if ((kind == SCALING_LINEAR || kind == SCALING_YARN) && factor != 0.0f)
        rope->scale = factor; /* 0: converters write it for none */
    if (!(rope->scale >= (float)MODEL_MIN_ROPE_DIVISOR &&
          rope->scale <= (float)MODEL_MAX_ROPE_SCALE))
        return FAIL(l, -EBADMSG, "malformed: rope scaled by %g, must be %g to %g",
                    (double)rope->scale, MODEL_MIN_ROPE_DIVISOR, MODEL_MAX_ROPE_SCALE);
    rc = kind == SCALING_YARN ? read_yarn(l, rope) : 0;
    if (!rc && l->arch->mamba)
        rc = read_whether_rope(l);
    if (!rc && !(rope->attention > 0 && rope->attention <= 100))
        return FAIL(l, -EBADMSG,
                    "malformed: attention scaled by %g (%s), must be above 0, at most "
                    "100",
                    (double)rope->attention, key_of(l, "rope.scaling.attn_factor").name);
    return rc;
}

/* A factor that must be there where the architecture has it, above 0. */
static int read_factor(struct model_loader *l, const char *name, float *ret)
{
    *ret = NAN;
    int rc = read_float(l, name, ret);
    if (!rc && !(*ret > 0 && *ret <= 1e6f))
        return FAIL(l, -EBADMSG, "malformed: %s must be above 0, at most 1e6",
                    key_of(l, name).name);
    return rc;
}

static int read_scales(struct model_loader *l)
{
    struct model *m = l->model;
    m->scales_given = true;
    int rc = read_factor(l, "embedding_scale", &m->embd_scale);
    if (!rc)
        rc = read_factor(l, "attention.scale", &m->score_scale);
    if (!rc)
        rc = read_factor(l, "residual_scale", &m->residual_scale);
    return rc ? rc : read_factor(l, "logit_scale", &m->logit_scale);
}

/* Which layers are local: as an array says, or all but every n-th. Returns -ENOENT where none is. */
static int read_pattern(struct model_loader *l)
{
    static const char NAME[] = "attention.sliding_window_pattern";
    struct model *m = l->model;
    const struct arch_key key = key_of(l, NAME);
    struct gguf_array array = {0};
    int rc = gguf_array(l->gguf, key.name, &array);
    const bool by_layer = rc != -ENOENT && gguf_find_key(l->gguf, key.name)->type == GGUF_ARRAY;
    bool any = false;
    if (by_layer && (rc || array.type != GGUF_BOOL || array.count != l->n_block))
        return FAIL(l, -EBADMSG, "malformed: %s must be a number, or %u booleans", key.name,
                    l->n_block);
    m->local_period = by_layer || l->arch->local_given ? 0 : l->arch->local_period;
    rc = by_layer ? 0 : read_count(l, NAME, MODEL_MAX_LAYERS, &m->local_period);
    for (uint32_t i = 0; i < m->n_layer && !rc; i++) {
        l->local[i] = by_layer ? gguf_array_i64(&array, i) != 0 : (i + 1) % m->local_period != 0;
        any |= l->local[i];
    }
    return rc ? rc : any ? 0 : -ENOENT;
}

/* Local layers whose heads have sizes of their own, and how much of them rope turns. */
static int read_local_heads(struct model_loader *l)
{
    struct model *m = l->model;
    uint32_t *n_rot = &m->ropes[1].n;
    int rc = read_count(l, "attention.key_length_swa", UINT32_MAX, &m->local_head_dim);
    if (!rc)
        rc = read_count(l, "attention.value_length_swa", UINT32_MAX, &m->local_v_dim);
    *n_rot = m->local_head_dim;
    if (!rc)
        rc = read_count(l, "rope.dimension_count_swa", UINT32_MAX, n_rot);
    if (!rc)
        rc = check_head_dim(l, m->local_head_dim);
    if (!rc)
        rc = check_head_dim(l, m->local_v_dim);
    return rc ? rc : check_rope_dim(l, *n_rot, m->local_head_dim);
}

/* Layers that attend in a window, between others that see all: the window's length must be there,
 * which layers these are and their rope's base may be. Where they have no rope of their own its base
 * is the others'. */
static int read_local_layers(struct model_loader *l)
{
    struct model *m = l->model;
    const float base = m->ropes[0].base;
    int rc = read_pattern(l);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    m->ropes[1] =
        (struct model_rope_table){.n = m->ropes[0].n,
                                  .base = l->arch->local_base > 0 ? l->arch->local_base : base,
                                  .scale = 1.0f,
                                  .attention = 1.0f};
    m->n_ropes = l->arch->local_rope ? 2 : 1;
    rc = read_count(l, "attention.sliding_window", MODEL_MAX_CONTEXT, &m->local_sliding_window);
    if (!rc && l->arch->local_heads)
        rc = read_local_heads(l);
    if (!rc)
        rc = read_rope_base(l, "rope.freq_base_swa", &m->ropes[1].base);
    if (!rc && m->n_ropes == 1 && m->ropes[1].base != base)
        return FAIL(l, -ENOTSUP, "%s with a rope of its own in local layers (%s) is not supported",
                    l->arch->name, key_of(l, "rope.freq_base_swa").name);
    return rc;
}

/* What gemma does to its embedding; and the root that divides scores, which no key holds: of the head's size, but in
 * the model of 62 layers the width over the heads. */
static int set_scales(struct model_loader *l)
{
    enum { GEMMA3_27B_LAYERS = 62 };
    struct model *m = l->model;
    bool by_width = l->arch->local_rope && !l->arch->unit_scores && m->n_layer == GEMMA3_27B_LAYERS;
    if (by_width && m->n_embd < m->n_head)
        return FAIL(l, -EBADMSG, "malformed: %u heads in a width of %u", m->n_head, m->n_embd);
    m->score_scale = l->arch->unit_scores
                         ? 1.0f
                         : 1.0f / sqrtf((float)(by_width ? m->n_embd / m->n_head : m->head_dim));
    m->residual_scale = m->logit_scale = 1.0f;
    m->embd_scale = l->arch->embedding_scaled ? sqrtf((float)m->n_embd) : 1.0f;
    return l->arch->scales ? read_scales(l) : 0;
}

/* Queries far from the beginning are made larger, for attention to stay sharp (mistral3). */
static int read_temperature(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_float(l, "attention.temperature_scale", &m->temperature_scale);
    m->temperature_period = l->original_context;
    if (!rc && !(m->temperature_scale >= 0 && m->temperature_scale <= 100))
        return FAIL(l, -EBADMSG, "malformed: %s must be 0 to 100",
                    key_of(l, "attention.temperature_scale").name);
    return rc;
}

/* Up to the window's length attention in a window is attention to all, so that is the context. */
static int read_window(struct model_loader *l)
{
    struct model *m = l->model;
    uint32_t window = 0;
    struct arch_key key = key_of(l, "attention.sliding_window");
    int rc = gguf_u32(l->gguf, key.name, &window);
    if (rc && rc != -ENOENT)
        return FAIL(l, -ENOTSUP, "attention in a sliding window (%s) that is not a number",
                    key.name);
    m->sliding_window = window;
    if (window > 0 && window < m->n_context)
        m->n_context = window;
    return 0;
}

static int refuse_softcap(struct model_loader *l, const char *name)
{
    float cap = 0;
    int rc = read_float(l, name, &cap);
    if (!rc && cap != 0)
        return FAIL(l, -ENOTSUP, "logits capped at %g (%s) are not supported", (double)cap,
                    key_of(l, name).name);
    return rc;
}

static int read_cap(struct model_loader *l)
{
    float *cap = &l->model->logit_cap;
    int rc = read_float(l, "final_logit_softcapping", cap);
    if (!rc && !(*cap == 0 || (*cap >= 1e-3f && *cap <= 1e6f)))
        return FAIL(l, -EBADMSG, "malformed: %s must be 0, or 0.001 to 1e6",
                    key_of(l, "final_logit_softcapping").name);
    return rc;
}

/* The last layers that have no KV of their own, and what layers are given beside the residual. */
static int read_layer_parts(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = l->arch->shared_kv
                 ? read_optional(l, "attention.shared_kv_layers", m->n_layer - 1, &m->n_shared_kv)
                 : 0;
    if (!rc && l->arch->per_layer)
        rc = read_optional(l, "embedding_length_per_layer_input", MODEL_MAX_PER_LAYER,
                           &m->n_per_layer);
    return rc;
}

/* Features that would change the numbers and that hearth does not compute. */
static int refuse_features(struct model_loader *l)
{
    const struct gguf *g = l->gguf;
    bool causal = true;
    if (!arch_has(l, MODEL_FFN_ROUTER) && names_experts(l))
        return FAIL(l, -ENOTSUP, "a mixture of experts (%s) is not supported for %s",
                    key_of(l, "expert_count").name, l->arch->name);
    int rc = refuse_softcap(l, "attn_logit_softcapping");
    if (!rc)
        rc = l->arch->logit_cap ? read_cap(l) : refuse_softcap(l, "final_logit_softcapping");
    if (rc)
        return rc;
    rc = gguf_bool(g, key_of(l, "attention.causal").name, &causal);
    if ((rc && rc != -ENOENT) || !causal)
        return FAIL(l, -ENOTSUP, "attention that is not causal: hearth runs text generators");
    return 0;
}

static bool has_local_layers(const struct model_loader *l)
{
    uint32_t window = 0;
    const int rc = gguf_u32(l->gguf, key_of(l, "attention.sliding_window").name, &window);
    const bool none = rc == -ENOENT || (!rc && window == 0);
    return l->arch->local_period > 0 && !(l->arch->local_optional && none);
}

int model_read_keys(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_sizes(l);
    if (!rc)
        rc = read_heads(l);
    if (!rc && l->arch->recurrent_period > 0)
        rc = read_delta(l);
    if (!rc && l->arch->short_conv)
        rc = read_short_conv(l);
    if (!rc && l->arch->mamba)
        rc = read_mamba(l);
    if (!rc)
        rc = refuse_features(l);
    if (!rc)
        rc = check_sections(l);
    if (!rc)
        rc = read_rope(l);
    if (!rc)
        rc = read_temperature(l);
    if (!rc)
        rc = has_local_layers(l) ? read_local_layers(l) : read_window(l);
    if (!rc)
        rc = read_layer_parts(l);
    m->rms_eps = NAN;
    if (!rc)
        rc = read_float(l, "attention.layer_norm_rms_epsilon", &m->rms_eps);
    if (rc)
        return rc;
    if (!(m->rms_eps >= 0 && m->rms_eps <= 1))
        return FAIL(l, -EBADMSG, "malformed: %s must be 0 to 1",
                    key_of(l, "attention.layer_norm_rms_epsilon").name);
    return set_scales(l);
}
