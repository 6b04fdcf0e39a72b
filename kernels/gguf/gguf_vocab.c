/* gguf_vocab.c: every value is checked before the arrays are allocated from it, so a failed open
 * has little to undo. */
#include "kernels/gguf/gguf_vocab.h"

#include "kernels/base/fail.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct error {
    char *text;
    size_t bytes;
};

/* A missing key leaves *ret unchanged; another type is an error. */
static int read_text(const struct gguf *gguf, const char *key, struct gguf_string *ret,
                     struct error e)
{
    int rc = gguf_string(gguf, key, ret);
    if (rc == 0 || rc == -ENOENT)
        return 0;
    return fail(e.text, e.bytes, -EBADMSG, "malformed: %s is a %s, not a string", key,
                gguf_value_type_name(gguf_find_key(gguf, key)->type));
}

/* A missing key sets *ret_there to false; another element type or count is an error. `count` 0:
 * any. */
static int read_array(const struct gguf *gguf, const char *key, bool (*wanted)(uint32_t type),
                      uint64_t count, struct gguf_array *ret, bool *ret_there, struct error e)
{
    int rc = gguf_array(gguf, key, ret);
    *ret_there = rc == 0;
    if (rc == -ENOENT)
        return 0;
    if (rc)
        return fail(e.text, e.bytes, -EBADMSG, "malformed: %s is a %s, not an array", key,
                    gguf_value_type_name(gguf_find_key(gguf, key)->type));
    if (!wanted(ret->type))
        return fail(e.text, e.bytes, -EBADMSG, "malformed: %s is an array of %s", key,
                    gguf_value_type_name(ret->type));
    if (count > 0 && ret->count != count)
        return fail(e.text, e.bytes, -EBADMSG,
                    "malformed: %s has %llu elements, but there are %llu tokens", key,
                    (unsigned long long)ret->count, (unsigned long long)count);
    return 0;
}

static bool is_string(uint32_t type)
{
    return type == GGUF_STRING;
}

static bool is_float(uint32_t type)
{
    return type == GGUF_F32 || type == GGUF_F64;
}

static bool is_integer(uint32_t type)
{
    return !is_string(type) && !is_float(type) && type != GGUF_BOOL && type != GGUF_ARRAY;
}

/* Copies the views of a string array. Returns NULL if there is no memory. */
static struct gguf_string *copy_strings(const struct gguf_array *array)
{
    struct gguf_string *strings = calloc(array->count + 1, sizeof(*strings));
    uint64_t at = 0;
    for (uint64_t i = 0; strings && i < array->count; i++)
        if (!gguf_array_next_string(array, &at, &strings[i]))
            break;
    return strings;
}

static int read_tokens(const struct gguf *gguf, struct gguf_vocab *v, struct error e)
{
    static const char KEY[] = "tokenizer.ggml.tokens";
    struct gguf_array tokens;
    bool there;
    int rc = read_array(gguf, KEY, is_string, 0, &tokens, &there, e);
    if (rc)
        return rc;
    if (!there)
        return fail(e.text, e.bytes, -ENOENT, "the file has no tokenizer (no %s)", KEY);
    if (tokens.count == 0 || tokens.count > GGUF_VOCAB_MAX_TOKENS)
        return fail(e.text, e.bytes, -EBADMSG, "malformed: %llu tokens, must be 1 to %d",
                    (unsigned long long)tokens.count, GGUF_VOCAB_MAX_TOKENS);
    v->n_tokens = (uint32_t)tokens.count;
    v->tokens = copy_strings(&tokens);
    if (!v->tokens)
        return fail(e.text, e.bytes, -ENOMEM, "not enough memory for the vocabulary");
    return 0;
}

static int read_merges(const struct gguf *gguf, struct gguf_vocab *v, struct error e)
{
    struct gguf_array merges;
    bool there;
    int rc = read_array(gguf, "tokenizer.ggml.merges", is_string, 0, &merges, &there, e);
    if (rc || !there || merges.count == 0)
        return rc;
    if (merges.count > 4 * (uint64_t)GGUF_VOCAB_MAX_TOKENS)
        return fail(e.text, e.bytes, -EBADMSG, "malformed: %llu merges, must be at most %d",
                    (unsigned long long)merges.count, 4 * GGUF_VOCAB_MAX_TOKENS);
    v->n_merges = (uint32_t)merges.count;
    v->merges = copy_strings(&merges);
    if (!v->merges)
        return fail(e.text, e.bytes, -ENOMEM, "not enough memory for the merges");
    return 0;
}

static int read_types(const struct gguf *gguf, struct gguf_vocab *v, struct error e)
{
    static const char KEY[] = "tokenizer.ggml.token_type";
    struct gguf_array types;
    bool there;
    int rc = read_array(gguf, KEY, is_integer, v->n_tokens, &types, &there, e);
    if (rc)
        return rc;
    v->types = calloc(v->n_tokens, sizeof(*v->types));
    if (!v->types)
        return fail(e.text, e.bytes, -ENOMEM, "not enough memory for the vocabulary");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        int64_t type = there ? gguf_array_i64(&types, i) : GGUF_TOKEN_NORMAL;
        if (type < 0 || type > INT32_MAX)
            return fail(e.text, e.bytes, -EBADMSG, "malformed: %s of token %u is %lld, not a type",
                        KEY, i, (long long)type);
        v->types[i] = (int32_t)type;
    }
    return 0;
}

static int read_scores(const struct gguf *gguf, struct gguf_vocab *v, struct error e)
{
    static const char KEY[] = "tokenizer.ggml.scores";
    struct gguf_array scores;
    bool there;
    int rc = read_array(gguf, KEY, is_float, v->n_tokens, &scores, &there, e);
    if (rc || !there)
        return rc;
    v->scores = calloc(v->n_tokens, sizeof(*v->scores));
    if (!v->scores)
        return fail(e.text, e.bytes, -ENOMEM, "not enough memory for the vocabulary");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        v->scores[i] = gguf_array_f32(&scores, i);
        if (isnan(v->scores[i]))
            return fail(e.text, e.bytes, -EBADMSG, "malformed: %s of token %u is not a number", KEY,
                        i);
    }
    return 0;
}

#define ID(name) offsetof(struct gguf_vocab_ids, name)

/* Special tokens under their current key and under the one in older files. */
static const struct {
    const char *key;
    const char *old_key;
    size_t at;   /* offset of the int32_t in struct gguf_vocab_ids */
    bool strict; /* an id out of range is an error; otherwise it means there is no such token */
} ID_KEYS[] = {
    {"tokenizer.ggml.bos_token_id", NULL, ID(bos), true},
    {"tokenizer.ggml.eos_token_id", NULL, ID(eos), true},
    {"tokenizer.ggml.unknown_token_id", NULL, ID(unk), true},
    /* spelled like this in the format */
    {"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id", ID(sep), false},
    {"tokenizer.ggml.padding_token_id", NULL, ID(pad), false},
    {"tokenizer.ggml.eot_token_id", NULL, ID(eot), true},
    {"tokenizer.ggml.eom_token_id", NULL, ID(eom), true},
    {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id", ID(fim_pre), false},
    {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id", ID(fim_suf), false},
    {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id", ID(fim_mid), false},
    {"tokenizer.ggml.fim_pad_token_id", NULL, ID(fim_pad), false},
    {"tokenizer.ggml.fim_rep_token_id", NULL, ID(fim_rep), false},
    {"tokenizer.ggml.fim_sep_token_id", NULL, ID(fim_sep), false},
};

static int read_ids(const struct gguf *gguf, struct gguf_vocab *v, struct error e)
{
    for (size_t i = 0; i < sizeof(ID_KEYS) / sizeof(ID_KEYS[0]); i++) {
        const char *key = ID_KEYS[i].key;
        if (!gguf_find_key(gguf, key) && ID_KEYS[i].old_key)
            key = ID_KEYS[i].old_key;
        uint64_t id = UINT32_MAX;
        int32_t value = -1;
        int rc = gguf_u64(gguf, key, &id);
        if (rc == -EINVAL)
            return fail(e.text, e.bytes, -EBADMSG, "malformed: %s is a %s, not a token id", key,
                        gguf_value_type_name(gguf_find_key(gguf, key)->type));
        /* Some writers use a negative number (-ERANGE) or UINT32_MAX for "none". */
        if (id < v->n_tokens)
            value = (int32_t)id;
        else if (id != UINT32_MAX && ID_KEYS[i].strict)
            return fail(e.text, e.bytes, -EBADMSG, "malformed: %s is %llu, but there are %u tokens",
                        key, (unsigned long long)id, v->n_tokens);
        memcpy((char *)&v->ids + ID_KEYS[i].at, &value, sizeof(value));
    }
    return 0;
}

static int read_switch(const struct gguf *gguf, const char *key, int8_t *ret, struct error e)
{
    bool value = false;
    int rc = gguf_bool(gguf, key, &value);
    if (rc && rc != -ENOENT)
        return fail(e.text, e.bytes, -EBADMSG, "malformed: %s is a %s, not a bool", key,
                    gguf_value_type_name(gguf_find_key(gguf, key)->type));
    *ret = rc ? -1 : value;
    return 0;
}

static int read_vocab(const struct gguf *gguf, struct gguf_vocab *v, struct error e)
{
    int rc = read_text(gguf, "tokenizer.ggml.model", &v->model, e);
    if (!rc && !v->model.data)
        rc = fail(e.text, e.bytes, -ENOENT, "the file has no tokenizer (no tokenizer.ggml.model)");
    if (!rc)
        rc = read_text(gguf, "tokenizer.ggml.pre", &v->pre, e);
    if (!rc)
        rc = read_text(gguf, "tokenizer.chat_template", &v->chat_template, e);
    if (!rc)
        rc = read_text(gguf, "tokenizer.chat_template.tool_use", &v->chat_template_tools, e);
    if (!rc)
        rc = read_tokens(gguf, v, e);
    if (!rc)
        rc = read_types(gguf, v, e);
    if (!rc)
        rc = read_scores(gguf, v, e);
    if (!rc)
        rc = read_merges(gguf, v, e);
    if (!rc)
        rc = read_ids(gguf, v, e);
    if (!rc)
        rc = read_switch(gguf, "tokenizer.ggml.add_bos_token", &v->add_bos, e);
    if (!rc)
        rc = read_switch(gguf, "tokenizer.ggml.add_eos_token", &v->add_eos, e);
    if (!rc)
        rc = read_switch(gguf, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, e);
    return rc;
}

int gguf_vocab_open(const struct gguf *gguf, struct gguf_vocab *ret, char *err, size_t err_bytes)
{
    memset(ret, 0, sizeof(*ret));
    /* never NULL, so that length 0 is not a special case */
    ret->pre.data = ret->chat_template.data = ret->chat_template_tools.data = "";
    int rc = read_vocab(gguf, ret, (struct error){.text = err, .bytes = err_bytes});
    if (rc)
        gguf_vocab_close(ret);
    return rc;
}

void gguf_vocab_close(struct gguf_vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->merges);
    free(vocab->types);
    free(vocab->scores);
    memset(vocab, 0, sizeof(*vocab));
}
