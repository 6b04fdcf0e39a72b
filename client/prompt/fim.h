/* fim: a fill-in-the-middle prompt out of a buffer's text, for a vocabulary.
 *
 * Which tokens stand where is the model's training: see client/lib/fim_form.h. One thread per
 * fim_text; nothing is kept but in it. It never prints. */
#ifndef HEARTH_CLIENT_PROMPT_FIM_H
#define HEARTH_CLIENT_PROMPT_FIM_H

#include "client/hearth.h"
#include "client/prompt/fim_text.h"

/* Puts the prompt's ids in *out, instead of what it holds. `context` is the model's. Returns 0; or
 * as fim_text_add, -ENOTSUP, -EINVAL, -E2BIG, with one line in err. */
int fim_prompt(const struct vocab *v, struct fim_text *text, const struct hearth_fim *f,
               uint32_t context, struct token_list *out, char *err, size_t err_bytes);

#endif
