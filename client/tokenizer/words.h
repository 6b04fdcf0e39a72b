/* words: cuts a text into the words that byte-level BPE merges within, as each family's
 * pre-tokenizer does. The families publish regular expressions; here they are matchers written by
 * hand, with the expression beside each. Any thread; allocates only the list it returns. */
#ifndef HEARTH_CLIENT_TOKENIZER_WORDS_H
#define HEARTH_CLIENT_TOKENIZER_WORDS_H

#include "client/base/unicode.h"
#include "ipc/vocab.h"

#include <stddef.h>
#include <stdint.h>

struct word_list {
    uint32_t *end; /* [n] index of the letter after each word; ascending, the last is letters->n */
    size_t n;
};

/* Cuts all of l; a text without letters has no words. Returns 0, -ENOMEM, or -EINVAL for a
 * pre-tokenizer that cuts nothing (VOCAB_PRE_NONE). */
int words_open(struct word_list *w, enum vocab_pre pre, const struct letters *l);
void words_close(struct word_list *w);

#endif
