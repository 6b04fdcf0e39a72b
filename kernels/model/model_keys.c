/* The file's kind and the hyperparameters. Each number is range-checked where it is read, so later
 * products cannot overflow: the largest, heads times head size, is 2^18. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

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
    if (!gguf_u32(l->gguf, "split.count", &parts) && parts > 1)
        return FAIL(l, -ENOTSUP, "one of %u parts of a split model: merge them into one file first",
                    parts);
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

static int read_sizes(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_count(l, "block_count", MODEL_MAX_LAYERS, &m->n_layer);
    if (!rc)
        rc = read_count(l, "embedding_length", MODEL_MAX_EMBD, &m->n_embd);
    if (!rc)
        rc = read_count(l, "feed_forward_length", MODEL_MAX_FF, &m->n_ff);
    if (!rc)
        rc = read_count(l, "context_length", MODEL_MAX_CONTEXT, &m->n_context);
    return rc;
}

static int read_heads(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_count(l, "attention.head_count", MODEL_MAX_HEADS, &m->n_head);
    m->n_head_kv = m->n_head;
    if (!rc)
        rc = read_count(l, "attention.head_count_kv", MODEL_MAX_HEADS, &m->n_head_kv);
    if (rc)
        return rc;
    if (m->n_head % m->n_head_kv != 0)
        return FAIL(l, -EBADMSG, "malformed: %u heads over %u key/value heads", m->n_head,
                    m->n_head_kv);
    m->head_dim = m->n_embd % m->n_head == 0 ? m->n_embd / m->n_head : 0;
    if (m->head_dim == 0 && !gguf_find_key(l->gguf, key_of(l, "attention.key_length").name))
        return FAIL(l, -EBADMSG,
                    "malformed: embedding width %u is not a multiple of the head count %u",
                    m->n_embd, m->n_head);
    rc = read_count(l, "attention.key_length", UINT32_MAX, &m->head_dim);
    uint32_t value_dim = m->head_dim;
    if (!rc)
        rc = read_count(l, "attention.value_length", UINT32_MAX, &value_dim);
    m->rope_dim = m->head_dim;
    if (!rc)
        rc = read_count(l, "rope.dimension_count", UINT32_MAX, &m->rope_dim);
    if (rc)
        return rc;
    if (m->head_dim % 2 != 0 || m->head_dim > MODEL_MAX_HEAD_DIM)
        return FAIL(l, -ENOTSUP, "heads of %u dimensions: hearth takes even sizes up to %d",
                    m->head_dim, MODEL_MAX_HEAD_DIM);
    if (value_dim != m->head_dim)
        return FAIL(l, -ENOTSUP, "keys of %u, values of %u dimensions: hearth takes equal ones",
                    m->head_dim, value_dim);
    if (m->rope_dim > m->head_dim || m->rope_dim % 2 != 0)
        return FAIL(l, -ENOTSUP, "rope over %u of %u dimensions: hearth takes even numbers of them",
                    m->rope_dim, m->head_dim);
    return 0;
}

/* Linear scaling stands in one of two keys, the older one without a type; llama 3's is in a tensor,
 * which the tensors' table asks for. Others are refused: a file must never run as what it is not. */
static int read_rope_scaling(struct model_loader *l)
{
    struct model *m = l->model;
    struct gguf_string type = {.data = "linear", .bytes = 6};
    struct arch_key key = key_of(l, "rope.scaling.type");
    int rc = gguf_string(l->gguf, key.name, &type);
    bool linear = gguf_string_equal(type, "linear"), llama3 = gguf_string_equal(type, "llama3");
    if ((rc && rc != -ENOENT) || !(linear || llama3 || gguf_string_equal(type, "none")))
        return FAIL(l, -ENOTSUP,
                    "rope scaling of type %.*s (%s) is not supported: hearth takes none, linear, "
                    "and llama3 with the tensor rope_freqs.weight",
                    GGUF_SHOW(type), key.name);
    if (llama3 && !gguf_find_tensor(l->gguf, "rope_freqs.weight"))
        return FAIL(l, -ENOTSUP,
                    "rope scaling of type llama3 without the tensor rope_freqs.weight: convert "
                    "the model again with a newer converter");
    if (gguf_find_tensor(l->gguf, "rope_factors_long.weight"))
        return FAIL(l, -ENOTSUP,
                    "rope scaled by LongRoPE (tensor rope_factors_long.weight) is not supported");
    float factor = 1.0f, attention = 1.0f, *scale = &m->ropes[0].scale;
    *scale = 1.0f;
    rc = linear ? read_float(l, "rope.scale_linear", &factor) : 0;
    if (!rc && linear)
        rc = read_float(l, "rope.scaling.factor", &factor);
    if (!rc)
        rc = read_float(l, "rope.scaling.attn_factor", &attention);
    if (rc)
        return rc;
    if (attention != 1.0f)
        return FAIL(l, -ENOTSUP, "attention scaled by %g (%s) is not supported", (double)attention,
                    key_of(l, "rope.scaling.attn_factor").name);
    if (linear && factor != 0.0f) /* 0: converters write it for none */
        *scale = factor;
    if (!(*scale >= (float)MODEL_MIN_ROPE_DIVISOR && *scale <= (float)MODEL_MAX_ROPE_DIVISOR))
        return FAIL(l, -EBADMSG, "malformed: rope scaled by %g, must be %g to %g", (double)*scale,
                    MODEL_MIN_ROPE_DIVISOR, MODEL_MAX_ROPE_DIVISOR);
    return 0;
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

/* A base of rope's frequencies; *ret holds what counts where the file does not say. */
static int read_rope_base(struct model_loader *l, const char *name, float *ret)
{
    int rc = read_float(l, name, ret);
    if (!rc && !(*ret >= 1 && *ret <= MODEL_MAX_ROPE_BASE))
        return FAIL(l, -EBADMSG, "malformed: %s must be 1 to %g", key_of(l, name).name,
                    MODEL_MAX_ROPE_BASE);
    return rc;
}

/* Layers that attend in a window, between others that see all: the window's length must be there,
 * which layers these are and their rope's base may be. */
static int read_local_layers(struct model_loader *l)
{
    struct model *m = l->model;
    m->local_period = l->arch->local_period;
    m->ropes[1] = (struct model_rope_table){.base = 10000.0f, .scale = 1.0f};
    m->n_ropes = 2;
    int rc = read_count(l, "attention.sliding_window", MODEL_MAX_CONTEXT, &m->local_sliding_window);
    if (!rc)
        rc = read_count(l, "attention.sliding_window_pattern", MODEL_MAX_LAYERS, &m->local_period);
    if (!rc)
        rc = read_rope_base(l, "rope.freq_base_swa", &m->ropes[1].base);
    return rc;
}

/* What gemma does to its embedding; and the root that divides scores, which no key holds: of the head's size, but in
 * the model of 62 layers the width over the heads. */
static int set_scales(struct model_loader *l)
{
    enum { GEMMA3_27B_LAYERS = 62 };
    struct model *m = l->model;
    bool by_width = l->arch->local_period > 0 && m->n_layer == GEMMA3_27B_LAYERS;
    if (by_width && m->n_embd < m->n_head)
        return FAIL(l, -EBADMSG, "malformed: %u heads in a width of %u", m->n_head, m->n_embd);
    m->score_scale = 1.0f / sqrtf((float)(by_width ? m->n_embd / m->n_head : m->head_dim));
    m->residual_scale = m->logit_scale = 1.0f;
    m->embd_scale = l->arch->embedding_scaled ? sqrtf((float)m->n_embd) : 1.0f;
    return l->arch->scales ? read_scales(l) : 0;
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

/* Features that would change the numbers and that hearth does not compute. */
static int refuse_features(struct model_loader *l)
{
    const struct gguf *g = l->gguf;
    uint32_t count = 0;
    bool causal = true;
    struct arch_key key = key_of(l, "expert_count");
    int rc = gguf_u32(g, key.name, &count);
    if ((rc && rc != -ENOENT) || count > 0)
        return FAIL(l, -ENOTSUP, "a mixture of experts (%s) is not supported", key.name);
    rc = refuse_softcap(l, "attn_logit_softcapping");
    if (!rc)
        rc = refuse_softcap(l, "final_logit_softcapping");
    if (rc)
        return rc;
    rc = gguf_bool(g, key_of(l, "attention.causal").name, &causal);
    if ((rc && rc != -ENOENT) || !causal)
        return FAIL(l, -ENOTSUP, "attention that is not causal: hearth runs text generators");
    return 0;
}

int model_read_keys(struct model_loader *l)
{
    struct model *m = l->model;
    int rc = read_sizes(l);
    m->n_ropes = 1;
    if (!rc)
        rc = read_heads(l);
    if (!rc)
        rc = refuse_features(l);
    if (!rc)
        rc = read_rope_scaling(l);
    if (!rc)
        rc = l->arch->local_period > 0 ? read_local_layers(l) : read_window(l);
    m->ropes[0].base = 10000.0f;
    m->rms_eps = NAN;
    if (!rc)
        rc = read_rope_base(l, "rope.freq_base", &m->ropes[0].base);
    if (!rc)
        rc = read_float(l, "attention.layer_norm_rms_epsilon", &m->rms_eps);
    if (rc)
        return rc;
    if (!(m->rms_eps >= 0 && m->rms_eps <= 1))
        return FAIL(l, -EBADMSG, "malformed: %s must be 0 to 1",
                    key_of(l, "attention.layer_norm_rms_epsilon").name);
    return set_scales(l);
}
