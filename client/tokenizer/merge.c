/* merge: see merge.h. */
#include "client/tokenizer/merge.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int merge_reserve(struct merge *m, size_t n)
{
    if (n <= m->capacity)
        return 0;
    size_t capacity = n < 64 ? 64 : n + n / 2;
    merge_fini(m);
    m->links = malloc(capacity * sizeof(*m->links));
    m->pairs = malloc(2 * capacity * sizeof(*m->pairs));
    if (m->links == NULL || m->pairs == NULL) {
        merge_fini(m);
        return -ENOMEM;
    }
    m->capacity = capacity;
    return 0;
}

void merge_fini(struct merge *m)
{
    free(m->links);
    free(m->pairs);
    m->links = NULL;
    m->pairs = NULL;
    m->capacity = 0;
    m->n = 0;
}

void merge_reset(struct merge *m)
{
    m->n = 0;
    m->n_pairs = 0;
}

void merge_push(struct merge *m, uint32_t at, uint32_t bytes, uint32_t id)
{
    assert(m->n < m->capacity);
    uint32_t i = m->n++;
    m->links[i] = (struct merge_link){at, bytes, i - 1, MERGE_NO_LINK, id}; /* 0 - 1 is NO_LINK */
    if (i > 0)
        m->links[i - 1].next = i;
}

static void heap_up(struct merge_pair *heap, uint32_t i)
{
    struct merge_pair p = heap[i];
    while (i > 0 && heap[(i - 1) / 2].key > p.key) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = p;
}

/* Removes heap[0] of n pairs. */
static void heap_pop(struct merge_pair *heap, uint32_t n)
{
    struct merge_pair p = heap[n - 1];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < n - 1; i = child) {
        if (child + 1 < n - 1 && heap[child + 1].key < heap[child].key)
            child++;
        if (heap[child].key >= p.key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = p;
}

static void propose(struct merge *m, uint32_t left)
{
    uint32_t right = left == MERGE_NO_LINK ? MERGE_NO_LINK : m->links[left].next;
    uint32_t order, id;
    if (right == MERGE_NO_LINK || !m->rule(m, &m->links[left], &m->links[right], &order, &id))
        return;
    /* n - 1 pairs at first, and each of at most n - 1 joins takes one and proposes two. */
    assert(m->n_pairs < 2 * m->capacity);
    m->pairs[m->n_pairs] = (struct merge_pair){
        .key = (uint64_t)order << 32 | left,
        .bytes = m->links[left].bytes + m->links[right].bytes,
        .right = right,
        .id = id,
    };
    heap_up(m->pairs, m->n_pairs++);
}

void merge_run(struct merge *m)
{
    for (uint32_t i = 0; i + 1 < m->n; i++)
        propose(m, i);
    while (m->n_pairs > 0) {
        struct merge_pair p = m->pairs[0];
        heap_pop(m->pairs, m->n_pairs--);
        uint32_t at = (uint32_t)p.key;
        struct merge_link *left = &m->links[at], *right = &m->links[p.right];
        /* Links only grow or go, so equal lengths mean that neither changed since. */
        if (left->bytes == 0 || right->bytes == 0 || left->bytes + right->bytes != p.bytes)
            continue;
        left->bytes = p.bytes;
        left->id = p.id;
        left->next = right->next;
        right->bytes = 0;
        if (left->next != MERGE_NO_LINK)
            m->links[left->next].prev = at;
        propose(m, left->prev);
        propose(m, at);
    }
}
