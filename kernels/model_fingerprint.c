/* Writes the text which model.h defines and hashes it. The text is short: tensors stand in it as
 * their hashes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/pool.h"
#include "kernels/hash128.h"
#include "kernels/model.h"

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

static void write_hyperparameters(FILE *out, const struct model *m)
{
    fprintf(out, "hearth-model 1\narch %s\nlayers %u\nembd %u\nff %u\n", m->arch, m->n_layer,
            m->n_embd, m->n_ff);
    fprintf(out, "heads %u\nheads_kv %u\nhead_dim %u\nrope_dim %u\n", m->n_head, m->n_head_kv,
            m->head_dim, m->rope_dim);
    fprintf(out, "vocab %u\ncontext %u\n", m->n_vocab, m->n_context);
    write_float(out, "rope_base", m->rope_base);
    write_float(out, "rms_eps", m->rms_eps);
    if (m->rope_scale != 1.0f)
        write_float(out, "rope_scale", m->rope_scale);
    if (m->local_period > 0) {
        fprintf(out, "local_period %u\nlocal_window %u\n", m->local_period, m->local_window);
        write_float(out, "local_rope_base", m->local_rope_base);
    }
}

static void write_keys(FILE *out, const struct gguf *gguf)
{
    static const char PREFIX[] = "tokenizer.ggml.";
    for (uint64_t i = 0; i < gguf->n_keys; i++) {
        const struct gguf_key *key = &gguf->keys[gguf->keys_by_name[i]];
        if (key->name.bytes < strlen(PREFIX) || memcmp(key->name.data, PREFIX, strlen(PREFIX)) != 0)
            continue;
        fputs("key ", out);
        fwrite(key->name.data, 1, key->name.bytes, out);
        fprintf(out, " %u", key->type);
        uint8_t hash[16];
        hash128(key->raw, key->raw_bytes, hash);
        write_hash(out, hash);
    }
}

/* ---- tensors: hashed side by side, the largest first ----------------------------------------- */

struct tensor_hash {
    uint64_t bytes;
    uint32_t index; /* in gguf->tensors */
};

struct hash_job {
    const struct gguf *gguf;
    struct tensor_hash *order; /* [n_tensors] */
    uint8_t (*hash)[16];       /* [n_tensors] by index in gguf->tensors */
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
    hash128(job->gguf->tensors[index].data, job->gguf->tensors[index].bytes, job->hash[index]);
}

static int hash_tensors(struct hash_job *job, uint32_t threads)
{
    uint32_t n = (uint32_t)job->gguf->n_tensors;
    struct pool *pool;
    int rc = pool_open(threads, &pool);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        job->order[i] = (struct tensor_hash){job->gguf->tensors[i].bytes, i};
    qsort(job->order, n, sizeof(job->order[0]), larger_first);
    pool_run(pool, hash_tensor, job, n);
    pool_close(pool);
    return 0;
}

static void write_tensors(FILE *out, const struct hash_job *job)
{
    const struct gguf *gguf = job->gguf;
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        uint32_t index = gguf->tensors_by_name[i];
        const struct gguf_tensor *t = &gguf->tensors[index];
        fputs("tensor ", out);
        fwrite(t->name.data, 1, t->name.bytes, out);
        fprintf(out, " %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, t->type, t->ne[0],
                t->ne[1], t->ne[2], t->ne[3]);
        write_hash(out, job->hash[index]);
    }
}

/* Returns 0 with the text, to be freed, or -ENOMEM. */
static int write_text(const struct model *model, const struct hash_job *job, char **ret_text,
                      size_t *ret_bytes)
{
    FILE *out = open_memstream(ret_text, ret_bytes);
    if (!out)
        return -ENOMEM;
    write_hyperparameters(out, model);
    write_keys(out, model->gguf);
    write_tensors(out, job);
    int failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return 0;
    free(*ret_text);
    return -ENOMEM;
}

int model_fingerprint(const struct model *model, uint32_t threads,
                      uint8_t ret[MODEL_FINGERPRINT_BYTES])
{
    const struct gguf *gguf = model->gguf;
    struct hash_job job = {.gguf = gguf};
    char *text = NULL;
    size_t bytes = 0;
    job.order = malloc(gguf->n_tensors * sizeof(job.order[0]));
    job.hash = malloc(gguf->n_tensors * sizeof(job.hash[0]));
    int rc = job.order && job.hash ? hash_tensors(&job, threads) : -ENOMEM;
    if (!rc)
        rc = write_text(model, &job, &text, &bytes);
    if (!rc) {
        hash128(text, bytes, ret);
        free(text);
    }
    free(job.order);
    free(job.hash);
    return rc;
}

void model_fingerprint_text(const uint8_t fingerprint[MODEL_FINGERPRINT_BYTES],
                            char text[MODEL_FINGERPRINT_TEXT])
{
    hex(fingerprint, text);
}
