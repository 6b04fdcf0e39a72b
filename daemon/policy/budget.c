#include "daemon/policy/budget.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

static uint64_t pages_of(const struct budget_facts *f, uint32_t context)
{
    return ((uint64_t)context + f->positions - 1) / f->positions;
}

static uint64_t left(const struct budget_facts *f)
{
    return f->available > f->loaded ? (f->available - f->loaded) / 4 * 3 : 0;
}

/* Does a context have so many pages that window pages save memory? */
static bool has_windows(const struct budget_facts *f, uint64_t pages)
{
    return f->window > 0 && f->pass < pages;
}

/* Bytes of the states of one text. */
static uint64_t text_states(const struct budget_facts *f)
{
    return BUDGET_STATES * f->state;
}

/* Bytes of KV. */
static uint64_t bytes_of(const struct budget_facts *f, uint64_t pages, uint64_t windows)
{
    return windows ? pages * (f->page - f->window) + windows * f->window : pages * f->page;
}

/* The least for one context: its pages, and all that it needs. */
static uint64_t least_pages(const struct budget_facts *f, uint64_t one)
{
    return bytes_of(f, one, has_windows(f, one) ? f->pass : 0);
}

static uint64_t least(const struct budget_facts *f, uint64_t one)
{
    return least_pages(f, one) + text_states(f);
}

/* The model's own context, or as much of it as `bytes` of KV hold. */
static uint32_t fitting_context(const struct budget_facts *f, uint64_t bytes)
{
    const uint64_t pass = f->pass * f->window;
    uint64_t fits;
    bytes -= bytes < text_states(f) ? bytes : text_states(f);
    fits = bytes / f->page;
    if (has_windows(f, fits))
        fits = (bytes - pass) / (f->page - f->window);
    fits *= f->positions;
    if (fits >= f->model_context)
        return f->model_context;
    fits = fits / BUDGET_CONTEXT_STEP * BUDGET_CONTEXT_STEP;
    if (fits < BUDGET_LEAST_CONTEXT)
        fits = BUDGET_LEAST_CONTEXT;
    return fits < f->model_context ? (uint32_t)fits : f->model_context;
}

uint64_t budget_least_bytes(const struct budget_facts *f)
{
    return least(f, pages_of(f, f->context ? f->context : fitting_context(f, 0)));
}

uint64_t budget_leave_out(struct budget_facts *f)
{
    const uint64_t wanted = f->kv_bytes ? f->kv_bytes : budget_least_bytes(f);
    const uint64_t quarter = f->kv_bytes ? 0 : f->available / 4;
    const uint64_t kv = wanted > quarter ? wanted : quarter,
                   most = f->available > kv ? f->available - kv : 0;
    if (f->loaded + wanted <= f->available)
        return 0;
    const uint64_t over = f->loaded - most, left_out = over < f->experts ? over : f->experts;
    f->loaded -= left_out;
    return left_out;
}

/* How many states to allocate of `bytes`, which hold at least `one` context and its states. */
static uint64_t choose_states(const struct budget_facts *f, uint64_t bytes, uint64_t one)
{
    if (f->state == 0)
        return 0;
    const uint64_t most = BUDGET_STATES * f->slots;
    uint64_t states = BUDGET_STATES + (bytes - least(f, one)) / 2 / f->state;
    return states < most ? states : most;
}

/* What `bytes`, which hold `one` context, are divided into. */
static void divide(const struct budget_facts *f, uint64_t bytes, uint64_t one, uint64_t *ret_pages,
                   uint64_t *ret_windows)
{
    uint64_t windows = 0;
    if (has_windows(f, one)) {
        const uint64_t most = BUDGET_WINDOWS * f->slots * f->pass;
        windows = f->pass + (bytes - least_pages(f, one)) / 2 / f->window;
        windows = windows < most ? windows : most;
    }
    *ret_pages = windows ? (bytes - windows * f->window) / (f->page - f->window) : bytes / f->page;
    *ret_windows = windows < *ret_pages ? windows : *ret_pages;
}

static int refuse_few(const struct budget_facts *f, uint32_t context, char *err, size_t err_bytes)
{
    const unsigned long long one = pages_of(f, context), bytes = f->kv_bytes;
    char windows[64] = "", states[64] = "";
    if (has_windows(f, one))
        snprintf(windows, sizeof(windows), " and %llu window pages", (unsigned long long)f->pass);
    if (f->state > 0)
        snprintf(states, sizeof(states), " and %d states of %llu bytes", BUDGET_STATES,
                 (unsigned long long)f->state);
    snprintf(
        err, err_bytes,
        "kv-bytes %llu holds %llu pages, but a context of %u needs %llu%s%s: give at least %llu",
        bytes, bytes / (unsigned long long)f->page, context, one, windows, states,
        (unsigned long long)least(f, one));
    return -EINVAL;
}

static int refuse_many(const struct budget_facts *f, uint64_t pages, uint64_t most, char *err,
                       size_t err_bytes)
{
    snprintf(err, err_bytes,
             "kv-bytes %llu holds %llu pages, more than the %llu possible: give at most %llu",
             (unsigned long long)f->kv_bytes, (unsigned long long)pages, (unsigned long long)most,
             (unsigned long long)most * f->page);
    return -EINVAL;
}

int budget_choose(const struct budget_facts *f, struct budget *ret, char *err, size_t err_bytes)
{
    const uint64_t most = UINT32_MAX / f->positions;
    uint64_t bytes = f->kv_bytes ? f->kv_bytes : left(f), pages, windows;
    const uint32_t context = f->context ? f->context : fitting_context(f, bytes);
    const uint64_t one = pages_of(f, context);
    if (f->kv_bytes && bytes < least(f, one))
        return refuse_few(f, context, err, err_bytes);
    if (!f->kv_bytes) {
        const uint64_t all =
            f->slots *
            (bytes_of(f, one, has_windows(f, one) ? BUDGET_WINDOWS * f->pass : 0) + text_states(f));
        bytes = bytes < least(f, one) ? least(f, one) : bytes;
        bytes = bytes > all ? all : bytes;
    }
    const uint64_t states = choose_states(f, bytes, one);
    divide(f, bytes - states * f->state, one, &pages, &windows);
    if (f->kv_bytes && pages > most)
        return refuse_many(f, pages, most, err, err_bytes);
    *ret = (struct budget){.context = context,
                           .pages = (uint32_t)(pages < most ? pages : most),
                           .window_pages = (uint32_t)(windows < most ? windows : most),
                           .states = (uint32_t)states};
    return 0;
}

uint64_t budget_kv_bytes(const struct budget_facts *f, const struct budget *chosen)
{
    return bytes_of(f, chosen->pages, chosen->window_pages) + chosen->states * f->state;
}

void budget_describe(const struct budget_facts *f, const struct budget *chosen, char *text,
                     size_t text_bytes)
{
    const double gib = 1 << 30;
    snprintf(text, text_bytes,
             "context %u of the model's %u, %.1f GiB for KV: weights and scratch take %.1f of "
             "%.1f GiB available%s%s",
             chosen->context, f->model_context, (double)budget_kv_bytes(f, chosen) / gib,
             (double)f->loaded / gib, (double)f->available / gib,
             f->context ? "; context as asked for" : "", f->kv_bytes ? "; KV as asked for" : "");
}
