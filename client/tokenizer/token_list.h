/* token_list: a growing list of token ids. */
#ifndef HEARTH_CLIENT_TOKENIZER_TOKEN_LIST_H
#define HEARTH_CLIENT_TOKENIZER_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

/* Owned by the caller; all zero is an empty one. */
struct token_list {
    uint32_t *ids; /* [n] */
    size_t n;
    size_t capacity;
};

void token_list_init(struct token_list *l);
void token_list_fini(struct token_list *l);
/* Makes room for `more` ids. Returns 0 or -ENOMEM; so do the calls that append. */
int token_list_reserve(struct token_list *l, size_t more);
int token_list_append(struct token_list *l, const uint32_t *ids, size_t n);
int token_list_push(struct token_list *l, uint32_t id);

#endif
