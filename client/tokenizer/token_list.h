/* token_list: a growing list of token ids. */
#ifndef HEARTH_CLIENT_TOKENIZER_TOKEN_LIST_H
#define HEARTH_CLIENT_TOKENIZER_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

/* Owned by the caller. */
struct token_list {
    uint32_t *ids; /* [n] */
    size_t n;
    size_t capacity;
};

void token_list_init(struct token_list *l);
void token_list_fini(struct token_list *l);
/* Appends one id. 0 or -ENOMEM. */
int token_list_push(struct token_list *l, uint32_t id);

#endif
