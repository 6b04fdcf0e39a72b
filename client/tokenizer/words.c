/* words: see words.h. */
#include "client/tokenizer/words.h"

#include "client/tokenizer/words_match.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_STAGES = 6 };

/* A pre-tokenizer is a list of stages. Each stage goes over every piece that the stage before left:
 * its matches become pieces, and what lies between two matches becomes one. */
static words_matcher *const stages[VOCAB_PRE_COUNT][MAX_STAGES + 1] = {
    [VOCAB_PRE_GPT2] = {words_match_gpt2},
    [VOCAB_PRE_LLAMA3] = {words_match_llama3},
    [VOCAB_PRE_QWEN2] = {words_match_qwen2},
    [VOCAB_PRE_QWEN35] = {words_match_qwen35},
    [VOCAB_PRE_STARCODER] = {words_match_digit, words_match_gpt2},
    [VOCAB_PRE_DEEPSEEK_LLM] = {words_match_newline, words_match_cased_letters,
                                words_match_wide_punctuation, words_match_last_space,
                                words_match_cjk, words_match_digits},
    [VOCAB_PRE_DEEPSEEK_CODER] = {words_match_newline, words_match_letters, words_match_punctuation,
                                  words_match_cjk, words_match_digit},
    [VOCAB_PRE_DEEPSEEK_V3] = {words_match_three_digits, words_match_kana, words_match_deepseek_v3},
    [VOCAB_PRE_FALCON] = {words_match_signs, words_match_gpt2, words_match_ascii_triple},
    [VOCAB_PRE_TEKKEN] = {words_match_tekken},
    [VOCAB_PRE_GPT4O] = {words_match_gpt4o},
    [VOCAB_PRE_DEFAULT] = {words_match_plain_signs, words_match_gpt2, words_match_digits,
                           words_match_ascii_triple},
    [VOCAB_PRE_SEED_CODER] = {words_match_seed_coder},
    [VOCAB_PRE_MELLUM2] = {words_match_digit, words_match_gpt2},
    [VOCAB_PRE_LAGUNA] = {words_match_line, words_match_qwen2},
    [VOCAB_PRE_MINICPM5] = {words_match_three_digits, words_match_llama3},
    [VOCAB_PRE_UFAKZEKA] = {words_match_ufakzeka},
    [VOCAB_PRE_JAIS2] = {words_match_jais2},
    [VOCAB_PRE_EXAONE_MOE] = {words_match_exaone_moe},
    [VOCAB_PRE_BLOOM] = {words_match_bloom},
    [VOCAB_PRE_VIKING] = {words_match_bloom, words_match_digit},
    [VOCAB_PRE_YOUTU] = {words_match_youtu_scripts, words_match_youtu},
    [VOCAB_PRE_SPARK] = {words_match_digit, words_match_kana, words_match_spark},
    [VOCAB_PRE_AFMOE] = {words_match_digits, words_match_digit_groups, words_match_asian,
                         words_match_deepseek_v3},
    [VOCAB_PRE_KIMI_K2] = {words_match_kimi_k2},
};

/* Appends the pieces of c[begin, end) to `out`; returns how many there are now. */
static size_t cut_piece(words_matcher *match, const uint32_t *c, size_t begin, size_t end,
                        uint32_t *out, size_t n)
{
    size_t start = begin; /* of the text since the last match */
    for (size_t at = begin; at < end;) {
        size_t stop = match(c, begin, at, end);
        if (stop == at) {
            at++;
            continue;
        }
        if (at > start)
            out[n++] = (uint32_t)at;
        out[n++] = (uint32_t)stop;
        start = at = stop;
    }
    if (start < end)
        out[n++] = (uint32_t)end;
    return n;
}

int words_open(struct word_list *w, enum vocab_pre pre, const struct letters *l)
{
    *w = (struct word_list){0};
    if ((unsigned)pre >= VOCAB_PRE_COUNT || stages[pre][0] == NULL)
        return -EINVAL;
    if (l->n == 0)
        return 0;
    /* There are at most as many pieces as letters. */
    uint32_t *from = malloc(l->n * sizeof(*from));
    uint32_t *to = malloc(l->n * sizeof(*to));
    if (from == NULL || to == NULL) {
        free(from);
        free(to);
        return -ENOMEM;
    }
    from[0] = (uint32_t)l->n;
    size_t n_from = 1;
    for (words_matcher *const *stage = stages[pre]; *stage != NULL; stage++) {
        size_t begin = 0, n_to = 0;
        for (size_t i = 0; i < n_from; i++) {
            n_to = cut_piece(*stage, l->letter, begin, from[i], to, n_to);
            begin = from[i];
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
        n_from = n_to;
    }
    free(to);
    w->end = from;
    w->n = n_from;
    return 0;
}

void words_close(struct word_list *w)
{
    free(w->end);
    *w = (struct word_list){0};
}
