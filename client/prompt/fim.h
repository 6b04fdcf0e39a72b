/* fim: a fill-in-the-middle prompt out of a buffer's text, for a vocabulary.
 *
 * Which tokens stand where is the model's training: `fim_find` knows it from the vocabulary's token
 * texts (fim.c has the list). One thread per fim_text; nothing is kept but in it. It never prints.
 */
#ifndef HEARTH_CLIENT_PROMPT_FIM_H
#define HEARTH_CLIENT_PROMPT_FIM_H

#include "client/prompt/fim_text.h"
#include "client/hearth.h"

/* Where the parts stand. PRE, SUF and MID are the tokens; "prefix" goes up to the cursor. */
enum fim_form {
    FIM_NONE = 0,        /* no such tokens */
    FIM_PSM,             /* PRE prefix SUF suffix MID */
    FIM_SPM,             /* SUF suffix PRE prefix MID */
    FIM_SPM_MID_BEFORE,  /* PRE SUF suffix MID prefix */
    FIM_SPM_WITHOUT_MID, /* SUF suffix PRE prefix */
    FIM_PLAIN,           /* prefix */
};

/* The form for a vocabulary: with HEARTH_FIM_AUTO the one it was trained for, suffix first where it
 * was trained for both. FIM_NONE where it lacks the tokens. */
enum fim_form fim_find(const struct vocab *v, enum hearth_fim_order order);

/* Puts the prompt's ids in *out, instead of what it holds. `context` is the model's. Returns 0; or
 * as fim_text_add, -ENOTSUP, -EINVAL, -E2BIG, with one line in err. */
int fim_prompt(const struct vocab *v, struct fim_text *text, const struct hearth_fim *f,
               uint32_t context, struct token_list *out, char *err, size_t err_bytes);

#endif
