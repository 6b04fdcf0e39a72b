/* vocabulary.c: makes words and merges by their number. See vocabulary.h. */
#include "kernels/tools/vocabulary.h"

#include "kernels/gguf/gguf_vocab.h"
#include "kernels/base/num.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, LETTERS = 26, TEXT_BYTES = 40 };

/* Words of one form: `letters` letters, after a blank or not, split in two where they merge. In
 * SentencePiece the single letters and the blank are forms, too; byte-level BPE has them as
 * bytes. */
struct form {
    uint32_t letters;
    bool blank;
    uint32_t left; /* letters of the left part, which includes the blank */
    uint32_t count;
};

static const struct form spm_forms[] = {
    {0, true, 0, 1},
    {1, false, 0, 26},
};
static const struct form forms[] = {
    {1, true, 0, 26},     {2, false, 1, 676},  {2, true, 1, 676},
    {3, false, 2, 17576}, {3, true, 2, 17576}, {4, false, 2, 456976},
};

/* A special token, by its place after the last word. Other tokens of that range are reserved. */
struct special {
    uint32_t at;
    const char *name, *key; /* the key that names its id, or NULL */
    bool text;              /* user-defined: found in any text */
};

static const struct special qwen_specials[] = {
    {0, "<|endoftext|>", "tokenizer.ggml.bos_token_id", false},
    {1, "<|im_start|>", NULL, false},
    {2, "<|im_end|>", "tokenizer.ggml.eos_token_id", false},
    {3, "<|fim_prefix|>", "tokenizer.ggml.fim_pre_token_id", false},
    {4, "<|fim_middle|>", "tokenizer.ggml.fim_mid_token_id", false},
    {5, "<|fim_suffix|>", "tokenizer.ggml.fim_suf_token_id", false},
    {6, "<|fim_pad|>", "tokenizer.ggml.fim_pad_token_id", false},
    {7, "<|repo_name|>", "tokenizer.ggml.fim_rep_token_id", false},
    {8, "<|file_sep|>", "tokenizer.ggml.fim_sep_token_id", false},
};
static const struct special llama_specials[] = {
    {0, "<|begin_of_text|>", "tokenizer.ggml.bos_token_id", false},
    {1, "<|end_of_text|>", "tokenizer.ggml.eos_token_id", false},
    {6, "<|start_header_id|>", NULL, false},
    {7, "<|end_header_id|>", NULL, false},
    {8, "<|eom_id|>", "tokenizer.ggml.eom_token_id", false},
    {9, "<|eot_id|>", "tokenizer.ggml.eot_token_id", false},
};

static const struct special gemma_specials[] = {
    {0, "<pad>", "tokenizer.ggml.padding_token_id", false},
    {1, "<eos>", "tokenizer.ggml.eos_token_id", false},
    {2, "<bos>", "tokenizer.ggml.bos_token_id", false},
    {3, "<unk>", "tokenizer.ggml.unknown_token_id", false},
    {4, "<mask>", NULL, false},
    {5, "<start_of_turn>", NULL, false},
    {6, "<end_of_turn>", "tokenizer.ggml.eot_token_id", false},
    {7, "\n\n", NULL, true},
    {8, "\n\n\n", NULL, true},
    {9, "\t\t", NULL, true},
    {10, "  ", NULL, true},
    {11, "    ", NULL, true},
    {12, "        ", NULL, true},
};

static const struct special harmony_specials[] = {
    {0, "<|startoftext|>", "tokenizer.ggml.bos_token_id", false},
    {1, "<|endoftext|>", "tokenizer.ggml.padding_token_id", false},
    {4, "<|return|>", "tokenizer.ggml.eos_token_id", false},
    {5, "<|constrain|>", NULL, false},
    {7, "<|channel|>", NULL, false},
    {8, "<|start|>", NULL, false},
    {9, "<|end|>", NULL, false},
    {10, "<|message|>", NULL, false},
    {14, "<|call|>", NULL, false},
};

static const struct family {
    const char *model, *pre;
    bool add_bos;
    const struct special *specials;
    uint32_t n_specials;
} families[] = {
    [VOCABULARY_QWEN] = {"gpt2", "qwen2", false, qwen_specials,
                         sizeof(qwen_specials) / sizeof(qwen_specials[0])},
    [VOCABULARY_LLAMA] = {"gpt2", "llama-bpe", true, llama_specials,
                          sizeof(llama_specials) / sizeof(llama_specials[0])},
    [VOCABULARY_GEMMA] = {"llama", "default", true, gemma_specials,
                          sizeof(gemma_specials) / sizeof(gemma_specials[0])},
    [VOCABULARY_HARMONY] = {"gpt2", "gpt-4o", false, harmony_specials,
                            sizeof(harmony_specials) / sizeof(harmony_specials[0])},
};

static bool is_spm(const struct family *f)
{
    return strcmp(f->model, "llama") == 0;
}

/* The letter that byte-level BPE writes for a byte: itself if it is printable, else one from U+0100
 * on, in order. Writes UTF-8 into text; returns its bytes. */
static size_t byte_letter(uint32_t byte, char *text)
{
    bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    uint32_t letter = byte;
    if (!visible)
        letter = 0x100 + (byte <= 0x20 ? byte : byte < 0xad ? byte - 0x7f + 0x21 : 0x43);
    if (letter < 0x80) {
        text[0] = (char)letter;
        return 1;
    }
    text[0] = (char)(0xc0 | letter >> 6);
    text[1] = (char)(0x80 | (letter & 0x3f));
    return 2;
}

static size_t byte_text(const struct family *f, uint32_t byte, char *text)
{
    if (is_spm(f))
        return (size_t)snprintf(text, TEXT_BYTES, "<0x%02X>", byte);
    return byte_letter(byte, text);
}

/* Writes a blank as it is encoded: U+2581, or the byte's letter. */
static size_t blank(const struct family *f, char *text)
{
    if (is_spm(f))
        return (size_t)snprintf(text, TEXT_BYTES, "\xe2\x96\x81");
    return byte_letter(' ', text);
}

/* The word `index` of a form, its two parts separated by a space if gap is set (a merge), else
 * joined (a token). */
static size_t word(const struct family *f, const struct form *form, uint32_t index, bool gap,
                   char *text)
{
    char letters[4] = {0};
    for (uint32_t i = form->letters; i-- > 0; index /= LETTERS)
        letters[i] = (char)('a' + index % LETTERS);
    size_t n = form->blank ? blank(f, text) : 0;
    for (uint32_t i = 0; i < form->letters; i++) {
        if (gap && i == form->left)
            text[n++] = ' ';
        text[n++] = letters[i];
    }
    return n;
}

static const struct special *find_special(const struct family *f, uint32_t at)
{
    for (uint32_t i = 0; i < f->n_specials; i++)
        if (f->specials[i].at == at)
            return &f->specials[i];
    return NULL;
}

static size_t special_text(const struct family *f, uint32_t at, char *text)
{
    const struct special *special = find_special(f, at);
    if (special)
        return (size_t)snprintf(text, TEXT_BYTES, "%s", special->name);
    return (size_t)snprintf(text, TEXT_BYTES, "<|reserved_special_token_%u|>", at);
}

/* Writes up to `left` words of one form; returns how many are left to write. */
static uint32_t put_form(const struct family *f, const struct form *form, struct gguf_out *out,
                         bool gap, uint32_t left)
{
    char text[TEXT_BYTES];
    uint32_t count = form->count < left ? form->count : left;
    for (uint32_t i = 0; i < count; i++)
        gguf_out_text(out, text, word(f, form, i, gap, text));
    return left - count;
}

/* All words of the vocabulary, as tokens or as merges. */
static void put_words(const struct model_shape *s, struct gguf_out *out, bool gap)
{
    const struct family *f = &families[s->vocabulary];
    uint32_t left = s->n_words - BYTES;
    for (size_t i = 0; is_spm(f) && i < sizeof(spm_forms) / sizeof(spm_forms[0]); i++)
        left = put_form(f, &spm_forms[i], out, gap, left);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        left = put_form(f, &forms[i], out, gap, left);
    assert(left == 0);
}

static uint32_t type_of(const struct model_shape *s, uint32_t id)
{
    const struct family *f = &families[s->vocabulary];
    if (id < BYTES && is_spm(f))
        return GGUF_TOKEN_BYTE;
    if (id < s->n_words)
        return GGUF_TOKEN_NORMAL;
    const struct special *special = find_special(f, id - s->n_words);
    return special && special->text ? GGUF_TOKEN_USER_DEFINED : GGUF_TOKEN_CONTROL;
}

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* The token's type, or its score: earlier tokens merge first. */
static uint32_t element_of(const struct model_shape *s, uint32_t id, bool score)
{
    float value = id < BYTES || id >= s->n_words ? 0.0f : (float)BYTES - (float)id;
    return score ? num_bits(value) : type_of(s, id);
}

/* An array of 32-bit elements, one per token. */
static int put_elements(const struct model_shape *s, struct gguf_out *out, const char *key,
                        bool score)
{
    uint8_t *bytes = calloc(s->n_vocab, 4); /* little-endian */
    if (!bytes)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        put_u32(bytes + 4 * (size_t)i, element_of(s, i, score));
    gguf_out_array(out, key, score ? GGUF_F32 : GGUF_I32, s->n_vocab, bytes,
                   4 * (size_t)s->n_vocab);
    free(bytes);
    return 0;
}

/* Writes how words are made of shorter ones: by scores or by merges. */
static int put_rules(const struct model_shape *s, struct gguf_out *out)
{
    if (is_spm(&families[s->vocabulary])) {
        gguf_out_bool(out, "tokenizer.ggml.add_space_prefix", false);
        return put_elements(s, out, "tokenizer.ggml.scores", true);
    }
    gguf_out_texts(out, "tokenizer.ggml.merges", s->n_words - BYTES);
    put_words(s, out, true);
    return 0;
}

int vocabulary_keys(const struct model_shape *s, struct gguf_out *out)
{
    const struct family *f = &families[s->vocabulary];
    char text[TEXT_BYTES];
    assert(s->n_words >= BYTES && s->n_words <= s->n_vocab);
    gguf_out_string(out, "tokenizer.ggml.model", f->model);
    gguf_out_string(out, "tokenizer.ggml.pre", f->pre);
    gguf_out_texts(out, "tokenizer.ggml.tokens", s->n_vocab);
    for (uint32_t i = 0; i < BYTES; i++)
        gguf_out_text(out, text, byte_text(f, i, text));
    put_words(s, out, false);
    for (uint32_t i = s->n_words; i < s->n_vocab; i++)
        gguf_out_text(out, text, special_text(f, i - s->n_words, text));
    int rc = put_elements(s, out, "tokenizer.ggml.token_type", false);
    if (!rc)
        rc = put_rules(s, out);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < f->n_specials; i++)
        if (f->specials[i].key && s->n_words + f->specials[i].at < s->n_vocab)
            gguf_out_u32(out, f->specials[i].key, s->n_words + f->specials[i].at);
    gguf_out_bool(out, "tokenizer.ggml.add_bos_token", f->add_bos);
    return 0;
}
