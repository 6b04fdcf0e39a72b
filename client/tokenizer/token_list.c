/* token_list: see token_list.h. */
#include "client/tokenizer/token_list.h"

#include <errno.h>
#include <stdlib.h>

void token_list_init(struct token_list *l)
{
    *l = (struct token_list){0};
}

void token_list_fini(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

int token_list_push(struct token_list *l, uint32_t id)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity < 32 ? 64 : 2 * l->capacity;
        uint32_t *ids = realloc(l->ids, capacity * sizeof(*ids));
        if (ids == NULL)
            return -ENOMEM;
        l->ids = ids;
        l->capacity = capacity;
    }
    l->ids[l->n++] = id;
    return 0;
}
