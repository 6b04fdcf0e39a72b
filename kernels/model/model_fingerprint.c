/* Writes the text which model.h defines and hashes it. The text is short: tensors stand in it as
 * their hashes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/pool.h"
#include "kernels/base/hash128.h"
#include "kernels/model/model.h"

static void hex(const uint8_t bytes[16], char text[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", bytes[i]);
}

static void write_hash(FILE *out, const uint8_t hash[16])
{
    char text[33];
    hex(hash, text);
    fprintf(out, " %s\n", text);
}

static void write_float(FILE *out, const char *name, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    fprintf(out, "%s %08" PRIx32 "\n", name, bits);
}

static void write_rope_scaling(FILE *out, const struct model *m)
{
    const struct model_rope_table *rope = &m->ropes[0];
    if (rope->scale != 1.0f)
        write_float(out, "rope_scale", rope->scale);
    if (rope->attention != 1.0f)
        write_float(out, "rope_attention", rope->attention);
    if (rope->divisors && (const void *)rope->divisors == m->global[MODEL_ROPE_LONG].data)
        fputs("rope_factors long\n", out);
    if (rope->yarn.original > 0) {
        fprintf(out, "yarn_original %u\n", rope->yarn.original);
        write_float(out, "yarn_fast", rope->yarn.fast);
        write_float(out, "yarn_slow", rope->yarn.slow);
        write_float(out, "yarn_log_multiplier", rope->yarn.log_multiplier);
    }
}

static void write_heads_kv(FILE *out, const struct model *m)
{
    bool differ = false;
    for (uint32_t i = 0; i < m->n_layer; i++)
        differ |= m->layers[i].geometry.n_head_kv != m->n_head_kv;
    if (!differ)
        return;
    fputs("layer_heads_kv", out);
    for (uint32_t i = 0; i < m->n_layer; i++)
        fprintf(out, " %u", m->layers[i].geometry.n_head_kv);
    fputc('\n', out);
}

static void write_ff(FILE *out, const struct model *m)
{
    bool differ = false;
    for (uint32_t i = 0; i < m->n_layer && m->n_expert == 0; i++)
        differ |= m->layers[i].geometry.n_ff != m->n_ff;
    if (!differ)
        return;
    fputs("layer_ff", out);
    for (uint32_t i = 0; i < m->n_layer; i++)
        fprintf(out, " %u", m->layers[i].geometry.n_ff);
    fputc('\n', out);
}

static void write_experts(FILE *out, const struct model *m)
{
    if (m->n_expert == 0)
        return;
    fprintf(out, "experts %u\nexperts_used %u\n", m->n_expert, m->n_expert_used);
    if (m->router.gating == MODEL_GATING_SIGMOID)
        fputs("router_sigmoid\n", out);
    if (!m->router.normed)
        fputs("router_unnormed\n", out);
    if (m->router.scale != 1.0f)
        write_float(out, "router_scale", m->router.scale);
}

static void write_recurrent(FILE *out, const struct model *m)
{
    const struct delta_geometry *d = &m->delta;
    if (m->n_recurrent == 0)
        return;
    fputs("layer_recurrent", out);
    for (uint32_t i = 0; i < m->n_layer; i++)
        fprintf(out, " %d", m->layers[i].geometry.recurrent);
    fputc('\n', out);
    if (d->n_head_v > 0)
        fprintf(out, "delta %u %u %u %u\n", d->n_head_k, d->n_head_v, d->k_dim, d->v_dim);
}

static void write_local(FILE *out, const struct model *m)
{
    if (m->local_sliding_window == 0)
        return;
    if (m->local_period > 0)
        fprintf(out, "local_period %u\n", m->local_period);
    else
        fputs("layer_local", out);
    for (uint32_t i = 0; i < m->n_layer && m->local_period == 0; i++)
        fprintf(out, " %d%s", m->layers[i].geometry.sliding_window != MODEL_NO_WINDOW,
                i + 1 == m->n_layer ? "\n" : "");
    fprintf(out, "local_window %u\n", m->local_sliding_window);
    if (m->n_ropes > 1)
        write_float(out, "local_rope_base", m->ropes[1].base);
    if (m->local_head_dim > 0)
        fprintf(out, "local_heads %u %u %u\n", m->local_head_dim, m->local_v_dim, m->ropes[1].n);
}

static void write_hyperparameters(FILE *out, const struct model *m)
{
    fprintf(out, "hearth-model 1\narch %s\nlayers %u\nembd %u\nff %u\n", m->arch, m->n_layer,
            m->n_embd, m->n_ff);
    fprintf(out, "heads %u\nheads_kv %u\nhead_dim %u\nrope_dim %u\n", m->n_head, m->n_head_kv,
            m->head_dim, m->ropes[0].n);
    if (m->v_dim != m->head_dim)
        fprintf(out, "v_dim %u\n", m->v_dim);
    write_heads_kv(out, m);
    write_ff(out, m);
    fprintf(out, "vocab %u\ncontext %u\n", m->n_vocab, m->n_context);
    write_experts(out, m);
    write_float(out, "rope_base", m->ropes[0].base);
    if (m->no_rope)
        fputs("no_rope\n", out);
    write_float(out, "rms_eps", m->rms_eps);
    write_rope_scaling(out, m);
    if (m->temperature_scale != 0) {
        write_float(out, "temperature_scale", m->temperature_scale);
        fprintf(out, "temperature_period %u\n", m->temperature_period);
    }
    write_recurrent(out, m);
    write_local(out, m);
    if (m->scales_given) {
        write_float(out, "embd_scale", m->embd_scale);
        write_float(out, "score_scale", m->score_scale);
        write_float(out, "residual_scale", m->residual_scale);
        write_float(out, "logit_scale", m->logit_scale);
    }
    if (m->n_shared_kv > 0)
        fprintf(out, "shared_kv %u\n", m->n_shared_kv);
    if (m->n_per_layer > 0)
        fprintf(out, "per_layer %u\n", m->n_per_layer);
    if (m->logit_cap != 0)
        write_float(out, "logit_cap", m->logit_cap);
}

/* A name may have any bytes: a line break in it must not look like the end of its line. */
static void write_name(FILE *out, const char *what, struct gguf_string name)
{
    fputs(what, out);
    for (uint64_t i = 0; i < name.bytes; i++) {
        if (name.data[i] == '\n' || name.data[i] == '\\')
            fputc('\\', out);
        fputc(name.data[i] == '\n' ? 'n' : name.data[i], out);
    }
}

static void write_keys(FILE *out, const struct gguf *gguf)
{
    static const char PREFIX[] = "tokenizer.ggml.";
    for (uint64_t i = 0; i < gguf->n_keys; i++) {
        const struct gguf_key *key = &gguf->keys[gguf->keys_by_name[i]];
        if (key->name.bytes < strlen(PREFIX) || memcmp(key->name.data, PREFIX, strlen(PREFIX)) != 0)
            continue;
        write_name(out, "key ", key->name);
        fprintf(out, " %u", key->type);
        uint8_t hash[16];
        hash128(key->raw, key->raw_bytes, hash);
        write_hash(out, hash);
    }
}

/* ---- tensors: hashed side by side, the largest first ----------------------------------------- */

void model_note_hash(const struct model *model, const struct model_tensor *tensor,
                     const uint8_t hash[16])
{
    struct model_hash *noted = &model->hashes[tensor->index];
    if (tensor->bytes != model->gguf->tensors[tensor->index].bytes)
        return; /* a view of some of its rows */
    memcpy(noted->bytes, hash, sizeof(noted->bytes));
    noted->known = true;
}

struct tensor_hash {
    uint64_t bytes;
    uint32_t index; /* in gguf->tensors */
};

struct hash_job {
    const struct model *model;
    struct tensor_hash *order; /* [n] those that are not known */
    uint32_t n;
};

static int larger_first(const void *a, const void *b)
{
    const struct tensor_hash *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static void hash_tensor(void *arg, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const struct hash_job *job = arg;
    uint32_t index = job->order[chunk].index;
    const struct gguf_tensor *t = &job->model->gguf->tensors[index];
    hash128(t->data, t->bytes, job->model->hashes[index].bytes);
    job->model->hashes[index].known = true;
}

/* Hashes tensors without a noted hash: small parts of a model that a backend was opened on, or all of it. */
static int hash_tensors(const struct model *model, uint32_t threads)
{
    const struct gguf *gguf = model->gguf;
    struct hash_job job = {.model = model};
    struct thread_pool *pool;
    job.order = malloc(gguf->n_tensors * sizeof(job.order[0]));
    int rc = job.order ? pool_open(threads, &pool) : -ENOMEM;
    if (rc)
        goto out_free;
    for (uint32_t i = 0; i < gguf->n_tensors; i++)
        if (!model->hashes[i].known && !model->hashes[i].unused)
            job.order[job.n++] = (struct tensor_hash){gguf->tensors[i].bytes, i};
    qsort(job.order, job.n, sizeof(job.order[0]), larger_first);
    pool_run(pool, hash_tensor, &job, job.n);
    pool_close(pool);
out_free:
    free(job.order);
    return rc;
}

static void write_tensors(FILE *out, const struct model *model)
{
    const struct gguf *gguf = model->gguf;
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        uint32_t index = gguf->tensors_by_name[i];
        const struct gguf_tensor *t = &gguf->tensors[index];
        if (model->hashes[index].unused)
            continue;
        write_name(out, "tensor ", t->name);
        fprintf(out, " %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, t->type, t->ne[0],
                t->ne[1], t->ne[2], t->ne[3]);
        write_hash(out, model->hashes[index].bytes);
    }
}

/* Returns 0 with the text, to be freed, or -ENOMEM. */
static int write_text(const struct model *model, char **ret_text, size_t *ret_bytes)
{
    FILE *out = open_memstream(ret_text, ret_bytes);
    if (!out)
        return -ENOMEM;
    write_hyperparameters(out, model);
    write_keys(out, model->gguf);
    write_tensors(out, model);
    int failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return 0;
    free(*ret_text);
    return -ENOMEM;
}

int model_fingerprint(const struct model *model, uint32_t threads,
                      uint8_t ret[MODEL_FINGERPRINT_BYTES])
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = hash_tensors(model, threads);
    if (!rc)
        rc = write_text(model, &text, &bytes);
    if (rc)
        return rc;
    hash128(text, bytes, ret);
    free(text);
    return 0;
}

void model_fingerprint_text(const uint8_t fingerprint[MODEL_FINGERPRINT_BYTES],
                            char text[MODEL_FINGERPRINT_TEXT])
{
    hex(fingerprint, text);
}
