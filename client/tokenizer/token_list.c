/* token_list: see token_list.h. */
#include "client/tokenizer/token_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void token_list_init(struct token_list *l)
{
    *l = (struct token_list){0};
}

void token_list_fini(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

int token_list_reserve(struct token_list *l, size_t more)
{
    if (more <= l->capacity - l->n)
        return 0;
    size_t capacity = 2 * (l->n + more) < 64 ? 64 : 2 * (l->n + more);
    uint32_t *ids = realloc(l->ids, capacity * sizeof(*ids));
    if (ids == NULL)
        return -ENOMEM;
    l->ids = ids;
    l->capacity = capacity;
    return 0;
}

int token_list_append(struct token_list *l, const uint32_t *ids, size_t n)
{
    int rc = token_list_reserve(l, n);
    if (rc == 0 && n > 0)
        memcpy(l->ids + l->n, ids, n * sizeof(*ids));
    if (rc == 0)
        l->n += n;
    return rc;
}

int token_list_push(struct token_list *l, uint32_t id)
{
    return token_list_append(l, &id, 1);
}
