/* gguf_parts.c: opens a model that lies in several files. The first one has all keys; the others
 * have tensors, and keys that say which part they are. See gguf.h. */
#include "kernels/gguf/gguf_impl.h"

#include "kernels/base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    struct gguf *first;
    uint32_t n;
    uint64_t header_bytes; /* of those that are open */
    const char *path;      /* of the first */
    char *err;
    size_t err_bytes;
};

#define FAIL(p, code, ...) fail((p)->err, (p)->err_bytes, code, __VA_ARGS__)

/* The end of a part's name; i from 1. */
static void name_end(char end[24], uint32_t i, uint32_t n)
{
    snprintf(end, 24, "-%05u-of-%05u.gguf", i, n);
}

/* Is the given file the first part, and called so? */
static int check_first(const struct parts *p)
{
    uint32_t number = 0;
    char end[24];
    const size_t bytes = strlen(p->path);
    if (p->n > GGUF_MAX_PARTS)
        return FAIL(p, -ENOTSUP, "a model in %u parts: hearth reads up to %d, merge them", p->n,
                    GGUF_MAX_PARTS);
    gguf_u32(p->first, "split.no", &number);
    name_end(end, 1, p->n);
    if (number != 0)
        return FAIL(p, -EBADMSG, "this is part %u of %u: give the first part, NAME%s", number + 1,
                    p->n, end);
    if (bytes < strlen(end) || strcmp(p->path + bytes - strlen(end), end) != 0)
        return FAIL(p, -EBADMSG,
                    "the first of %u parts is not called NAME%s, so the others cannot be found: "
                    "rename it",
                    p->n, end);
    return 0;
}

/* Does part i say that it is that, of a model in as many parts with as many tensors? */
static int check_part(const struct parts *p, const struct gguf *part, uint32_t i)
{
    uint32_t number = 0, count = 0;
    uint64_t tensors = 0, wanted = 0;
    gguf_u32(part, "split.no", &number);
    gguf_u32(part, "split.count", &count);
    gguf_u64(part, "split.tensors.count", &tensors);
    gguf_u64(p->first, "split.tensors.count", &wanted);
    if (number + 1 != i || count != p->n)
        return FAIL(p, -EBADMSG, "part %u of %u says that it is part %u of %u", i, p->n, number + 1,
                    count);
    if (tensors != wanted)
        return FAIL(p, -EBADMSG,
                    "part %u of %u is of a model of %llu tensors, the first of one of %llu", i,
                    p->n, (unsigned long long)tensors, (unsigned long long)wanted);
    if (part->n_tensors > 0 && !part->has_data)
        return FAIL(p, -EBADMSG, "part %u of %u ends before its tensor data: download it again", i,
                    p->n);
    return 0;
}

/* Opens part i. `last`: the part before it. */
static int open_part(struct parts *p, struct gguf *last, uint32_t i)
{
    char end[24], line[256];
    name_end(end, i, p->n);
    char *path = strdup(p->path);
    if (!path)
        return FAIL(p, -ENOMEM, "not enough memory to open the file");
    memcpy(path + strlen(path) - strlen(end), end, strlen(end) + 1);
    int rc = gguf_open(path, &last->next, line, sizeof(line));
    free(path);
    if (rc)
        return FAIL(p, rc, "part %u of %u: %s", i, p->n, line);
    p->header_bytes += last->next->header_bytes;
    if (p->header_bytes > GGUF_MAX_HEADER)
        return FAIL(p, -EBADMSG,
                    "malformed: the keys and lists of tensors of %u of %u parts take more than %d "
                    "MiB",
                    i, p->n, GGUF_MAX_HEADER >> 20);
    return check_part(p, last->next, i);
}

/* The first part's list becomes that of all. */
static int merge_tensors(const struct parts *p)
{
    struct gguf *first = p->first;
    uint64_t n = 0, wanted = 0;
    gguf_u64(first, "split.tensors.count", &wanted);
    for (const struct gguf *part = first; part; part = part->next)
        n += part->n_tensors;
    if (n != wanted || n > GGUF_MAX_ENTRIES)
        return FAIL(p, -EBADMSG, "malformed: %llu tensors in %u parts, split.tensors.count is %llu",
                    (unsigned long long)n, p->n, (unsigned long long)wanted);
    struct gguf_tensor *all = realloc(first->tensors, (n + 1) * sizeof(*all));
    if (!all)
        return FAIL(p, -ENOMEM, "not enough memory for the list of tensors");
    first->tensors = all;
    first->has_data = first->has_data || first->n_tensors == 0;
    for (const struct gguf *part = first->next; part; part = part->next) {
        if (part->n_tensors > 0)
            memcpy(all + first->n_tensors, part->tensors, part->n_tensors * sizeof(*all));
        first->n_tensors += part->n_tensors;
    }
    free(first->tensors_by_name);
    first->tensors_by_name = NULL;
    return gguf_index_tensors(first, p->err, p->err_bytes);
}

int gguf_open_parts(const char *path, struct gguf **ret_gguf, char *err, size_t err_bytes)
{
    struct parts p = {.n = 1, .path = path, .err = err, .err_bytes = err_bytes};
    int rc = gguf_open(path, &p.first, err, err_bytes);
    if (rc)
        return rc;
    p.header_bytes = p.first->header_bytes;
    gguf_u32(p.first, "split.count", &p.n);
    if (p.n > 1)
        rc = check_first(&p);
    struct gguf *last = p.first;
    for (uint32_t i = 2; i <= p.n && !rc; i++) {
        rc = open_part(&p, last, i);
        last = last->next;
    }
    if (!rc && p.n > 1)
        rc = merge_tensors(&p);
    if (rc)
        gguf_close(p.first);
    else
        *ret_gguf = p.first;
    return rc;
}
