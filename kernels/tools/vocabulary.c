#include "kernels/tools/vocabulary.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gguf_vocab.h"

enum { BYTES = 256, LETTERS = 26, TEXT_BYTES = 40 };

/* Words of one form: `letters` of them, behind a blank or not, cut in two where they merge. */
struct form {
    uint32_t letters;
    bool blank;
    uint32_t left; /* letters of the left part; a blank belongs to it */
    uint32_t count;
};

static const struct form forms[] = {
    {1, true, 0, 26},     {2, false, 1, 676},  {2, true, 1, 676},
    {3, false, 2, 17576}, {3, true, 2, 17576}, {4, false, 2, 456976},
};

/* A special token, by its place behind the last word. Others of that range are reserved. */
struct special {
    uint32_t at;
    const char *name, *key; /* the key that names its id, or NULL */
};

static const struct special qwen_specials[] = {
    {0, "<|endoftext|>", "tokenizer.ggml.bos_token_id"},
    {1, "<|im_start|>", NULL},
    {2, "<|im_end|>", "tokenizer.ggml.eos_token_id"},
    {3, "<|fim_prefix|>", "tokenizer.ggml.fim_pre_token_id"},
    {4, "<|fim_middle|>", "tokenizer.ggml.fim_mid_token_id"},
    {5, "<|fim_suffix|>", "tokenizer.ggml.fim_suf_token_id"},
    {6, "<|fim_pad|>", "tokenizer.ggml.fim_pad_token_id"},
    {7, "<|repo_name|>", "tokenizer.ggml.fim_rep_token_id"},
    {8, "<|file_sep|>", "tokenizer.ggml.fim_sep_token_id"},
};
static const struct special llama_specials[] = {
    {0, "<|begin_of_text|>", "tokenizer.ggml.bos_token_id"},
    {1, "<|end_of_text|>", "tokenizer.ggml.eos_token_id"},
    {6, "<|start_header_id|>", NULL},
    {7, "<|end_header_id|>", NULL},
    {8, "<|eom_id|>", "tokenizer.ggml.eom_token_id"},
    {9, "<|eot_id|>", "tokenizer.ggml.eot_token_id"},
};

static const struct family {
    const char *pre;
    bool add_bos;
    const struct special *specials;
    uint32_t n_specials;
} families[] = {
    [VOCABULARY_QWEN] = {"qwen2", false, qwen_specials,
                         sizeof qwen_specials / sizeof qwen_specials[0]},
    [VOCABULARY_LLAMA] = {"llama-bpe", true, llama_specials,
                          sizeof llama_specials / sizeof llama_specials[0]},
};

/* The letter that byte-level BPE writes for a byte: itself where it is visible, else one from
 * U+0100 on, in order. UTF-8 into text; returns its bytes. */
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

/* The word `index` of a form, the parts apart where gap is set (a merge) or together (a token). */
static size_t word(const struct form *form, uint32_t index, bool gap, char *text)
{
    char letters[4];
    for (uint32_t i = form->letters; i-- > 0; index /= LETTERS)
        letters[i] = (char)('a' + index % LETTERS);
    size_t n = form->blank ? byte_letter(' ', text) : 0;
    for (uint32_t i = 0; i < form->letters; i++) {
        if (gap && i == form->left)
            text[n++] = ' ';
        text[n++] = letters[i];
    }
    return n;
}

static size_t special_text(const struct family *f, uint32_t at, char *text)
{
    for (uint32_t i = 0; i < f->n_specials; i++)
        if (f->specials[i].at == at)
            return (size_t)snprintf(text, TEXT_BYTES, "%s", f->specials[i].name);
    return (size_t)snprintf(text, TEXT_BYTES, "<|reserved_special_token_%u|>", at);
}

/* All words of the vocabulary, as tokens or as merges. */
static void put_words(const struct shape *s, struct gguf_out *out, bool gap)
{
    char text[TEXT_BYTES];
    uint32_t left = s->n_words - BYTES;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        uint32_t count = forms[f].count < left ? forms[f].count : left;
        for (uint32_t i = 0; i < count; i++)
            gguf_out_text(out, text, word(&forms[f], i, gap, text));
        left -= count;
    }
    assert(left == 0);
}

int vocabulary_keys(const struct shape *s, struct gguf_out *out)
{
    const struct family *f = &families[s->vocabulary];
    char text[TEXT_BYTES];
    uint8_t *types = calloc(s->n_vocab, 4); /* int32, low byte first */
    assert(s->n_words >= BYTES && s->n_words <= s->n_vocab);
    if (!types)
        return -ENOMEM;
    gguf_out_string(out, "tokenizer.ggml.model", "gpt2");
    gguf_out_string(out, "tokenizer.ggml.pre", f->pre);
    gguf_out_texts(out, "tokenizer.ggml.tokens", s->n_vocab);
    for (uint32_t i = 0; i < BYTES; i++)
        gguf_out_text(out, text, byte_letter(i, text));
    put_words(s, out, false);
    for (uint32_t i = s->n_words; i < s->n_vocab; i++)
        gguf_out_text(out, text, special_text(f, i - s->n_words, text));
    for (uint32_t i = 0; i < s->n_vocab; i++)
        types[4 * (size_t)i] = i < s->n_words ? GGUF_TOKEN_NORMAL : GGUF_TOKEN_CONTROL;
    gguf_out_array(out, "tokenizer.ggml.token_type", GGUF_I32, s->n_vocab, types,
                   4 * (size_t)s->n_vocab);
    free(types);
    gguf_out_texts(out, "tokenizer.ggml.merges", s->n_words - BYTES);
    put_words(s, out, true);
    for (uint32_t i = 0; i < f->n_specials; i++)
        if (f->specials[i].key && s->n_words + f->specials[i].at < s->n_vocab)
            gguf_out_u32(out, f->specials[i].key, s->n_words + f->specials[i].at);
    gguf_out_bool(out, "tokenizer.ggml.add_bos_token", f->add_bos);
    return 0;
}
