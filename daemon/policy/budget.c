#include "daemon/policy/budget.h"

#include <errno.h>
#include <stdio.h>

static uint64_t pages_of(const struct budget_facts *f, uint32_t context)
{
    return ((uint64_t)context + f->positions - 1) / f->positions;
}

static uint64_t left(const struct budget_facts *f)
{
    return f->available > f->loaded ? (f->available - f->loaded) / 4 * 3 : 0;
}

/* The model's own context, or as much of it as `bytes` of KV hold. */
static uint32_t fitting_context(const struct budget_facts *f, uint64_t bytes)
{
    uint64_t fits = bytes / f->page * f->positions;
    if (fits >= f->model_context)
        return f->model_context;
    fits = fits / BUDGET_CONTEXT_STEP * BUDGET_CONTEXT_STEP;
    if (fits < BUDGET_LEAST_CONTEXT)
        fits = BUDGET_LEAST_CONTEXT;
    return fits < f->model_context ? (uint32_t)fits : f->model_context;
}

static int refuse(const struct budget_facts *f, uint64_t pages, uint64_t most, uint32_t context,
                  char *err, size_t err_bytes)
{
    const unsigned long long one = pages_of(f, context), bytes = f->kv_bytes;
    if (pages > most)
        snprintf(err, err_bytes,
                 "kv-bytes %llu holds %llu pages, more than the %llu possible: give at most %llu",
                 bytes, (unsigned long long)pages, (unsigned long long)most,
                 (unsigned long long)(most * f->page));
    else
        snprintf(err, err_bytes,
                 "kv-bytes %llu holds %llu pages, but a context of %u needs %llu: give at least "
                 "%llu",
                 bytes, (unsigned long long)pages, context, one, one * f->page);
    return -EINVAL;
}

int budget_choose(const struct budget_facts *f, struct budget *ret, char *err, size_t err_bytes)
{
    const uint64_t most = UINT32_MAX / f->positions;
    const uint64_t bytes = f->kv_bytes ? f->kv_bytes : left(f);
    const uint32_t context = f->context ? f->context : fitting_context(f, bytes);
    const uint64_t one = pages_of(f, context);
    uint64_t pages = bytes / f->page;
    if (f->kv_bytes && (pages > most || pages < one))
        return refuse(f, pages, most, context, err, err_bytes);
    if (!f->kv_bytes) {
        pages = pages < one ? one : pages;
        pages = pages > f->slots * one ? f->slots * one : pages;
        pages = pages > most ? most : pages;
    }
    *ret = (struct budget){.context = context, .pages = (uint32_t)pages};
    return 0;
}

void budget_describe(const struct budget_facts *f, const struct budget *chosen, char *text,
                     size_t text_bytes)
{
    const double gib = 1 << 30;
    snprintf(text, text_bytes,
             "context %u of the model's %u, %.1f GiB for KV: weights and scratch take %.1f of "
             "%.1f GiB available%s%s",
             chosen->context, f->model_context, (double)(chosen->pages * f->page) / gib,
             (double)f->loaded / gib, (double)f->available / gib,
             f->context ? "; context as asked for" : "", f->kv_bytes ? "; KV as asked for" : "");
}
