/* Writes the text which model.h defines and hashes it. The text is short: tensors stand in it as
 * their hashes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/hash128.h"
#include "kernels/model.h"

static void hex(const uint8_t bytes[16], char text[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", bytes[i]);
}

static void write_hash(FILE *out, const void *data, size_t bytes)
{
    uint8_t hash[16];
    char text[33];
    hash128(data, bytes, hash);
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
        write_hash(out, key->raw, key->raw_bytes);
    }
}

static void write_tensors(FILE *out, const struct gguf *gguf)
{
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &gguf->tensors[gguf->tensors_by_name[i]];
        fputs("tensor ", out);
        fwrite(t->name.data, 1, t->name.bytes, out);
        fprintf(out, " %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, t->type, t->ne[0],
                t->ne[1], t->ne[2], t->ne[3]);
        write_hash(out, t->data, t->bytes);
    }
}

int model_fingerprint(const struct model *model, uint8_t ret[MODEL_FINGERPRINT_BYTES])
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return -ENOMEM;
    write_hyperparameters(out, model);
    write_keys(out, model->gguf);
    write_tensors(out, model->gguf);
    int failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(text);
        return -ENOMEM;
    }
    hash128(text, bytes, ret);
    free(text);
    return 0;
}

void model_fingerprint_text(const uint8_t fingerprint[MODEL_FINGERPRINT_BYTES],
                            char text[MODEL_FINGERPRINT_TEXT])
{
    hex(fingerprint, text);
}
