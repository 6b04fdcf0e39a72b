/* fim_form: see fim_form.h. */
#include "client/lib/fim_form.h"

#include <string.h>

/* A family whose suffix-first form is documented, known by a token's text. Others are asked prefix
 * first, as all were trained: Qwen2.5-Coder, DeepSeek-Coder, CodeGemma, GLM. */
static const struct family {
    const char *prefix; /* text of the token with role VOCAB_FIM_PREFIX */
    const char *also;   /* another token that the vocabulary has, or NULL */
    enum vocab_pre pre; /* VOCAB_PRE_NONE: any */
    enum fim_form form;
} families[] = {
    /* hearth-code, see daemon/models/README.md */
    {"<|fim_prefix|>", "<|begin|>", VOCAB_PRE_GPT2, FIM_SPM},
    /* Codestral: mistral-common's encode_fim */
    {"[PREFIX]", NULL, VOCAB_PRE_NONE, FIM_SPM_WITHOUT_MID},
    /* Seed-Coder's technical report */
    {"<[fim-prefix]>", NULL, VOCAB_PRE_NONE, FIM_SPM},
    /* Code Llama's paper and reference code: half of its samples are suffix first */
    {"\xe2\x96\x81<PRE>", NULL, VOCAB_PRE_NONE, FIM_SPM_MID_BEFORE},
    {"<PRE>", NULL, VOCAB_PRE_NONE, FIM_SPM_MID_BEFORE},
    /* SantaCoder, StarCoder 1 and 2, Granite code: half of their samples are suffix first */
    {"<fim-prefix>", NULL, VOCAB_PRE_NONE, FIM_SPM_MID_BEFORE},
    {"<fim_prefix>", NULL, VOCAB_PRE_STARCODER, FIM_SPM_MID_BEFORE},
    /* Mellum has StarCoder's names, cut as GPT-2 does */
    {"<fim_prefix>", "<filename>", VOCAB_PRE_GPT2, FIM_SPM},
};

static int is_family(const struct vocab *v, const struct family *f, const struct vocab_token *t)
{
    if (f->pre != VOCAB_PRE_NONE && f->pre != v->pre)
        return 0;
    if (f->also && vocab_find_text(v, f->also, strlen(f->also)) == VOCAB_NONE)
        return 0;
    return strlen(f->prefix) == t->text_bytes && memcmp(f->prefix, t->text, t->text_bytes) == 0;
}

static const struct family *find_family(const struct vocab *v)
{
    struct vocab_token t;
    if (!vocab_find_token(v, vocab_special(v, VOCAB_FIM_PREFIX), &t))
        return NULL;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (is_family(v, &families[i], &t))
            return &families[i];
    return NULL;
}

enum fim_form fim_find(const struct vocab *v, enum hearth_fim_order order)
{
    if (order == HEARTH_FIM_PLAIN)
        return FIM_PLAIN;
    const struct family *f = find_family(v);
    enum fim_form form = f ? f->form : FIM_SPM;
    if (order == HEARTH_FIM_PSM || (order == HEARTH_FIM_AUTO && !f))
        form = FIM_PSM;
    if (vocab_special(v, VOCAB_FIM_PREFIX) == VOCAB_NONE ||
        vocab_special(v, VOCAB_FIM_SUFFIX) == VOCAB_NONE)
        return FIM_NONE;
    if (form != FIM_SPM_WITHOUT_MID && vocab_special(v, VOCAB_FIM_MIDDLE) == VOCAB_NONE)
        return FIM_NONE;
    return form;
}
