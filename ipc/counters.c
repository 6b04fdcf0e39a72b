/* counters.c: the table of counters.h, and its JSON text. */
#include "ipc/counters.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

const struct counter_info counters_table[COUNTERS_N] = {
#define COUNTERS_X(NAME, name, KIND, help) [COUNTER_##NAME] = {#name, help, COUNTER_KIND_##KIND},
    COUNTERS_ENGINE(COUNTERS_X) COUNTERS_CONTROL(COUNTERS_X)
#undef COUNTERS_X
};

uint64_t counters_get(const struct ctl *ctl, enum counter c)
{
    const _Atomic uint64_t *word =
        c < COUNTERS_ENGINE_N ? &ctl->engine[c] : &ctl->control[c - COUNTERS_ENGINE_N];
    return atomic_load_explicit(word, memory_order_relaxed);
}

int counters_json(const struct ctl *ctl, char *ret_text, size_t text_bytes)
{
    size_t used = 0;
    for (unsigned c = 0; c < COUNTERS_N; c++) {
        int n = snprintf(ret_text + used, text_bytes - used, "%s\"%s\":%" PRIu64, c ? "," : "",
                         counters_table[c].name, counters_get(ctl, (enum counter)c));
        if (n < 0 || (size_t)n >= text_bytes - used)
            return -ENOSPC;
        used += (size_t)n;
    }
    return (int)used;
}
