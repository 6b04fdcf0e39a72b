/* Rates, and a random generator of their own, so that no answer depends on it except through a
 * fault. */
#include "daemon/policy/fault.h"

#ifdef HEARTH_FAULTS

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[FAULT_COUNT] = {
    [FAULT_DRAFT_MISMATCH] = "draft-mismatch", [FAULT_REFUSE_PAGES] = "refuse-pages",
    [FAULT_DELAY_PASS] = "delay-pass",         [FAULT_STORE_FAIL] = "store-fail",
    [FAULT_STORE_TEAR] = "store-tear",         [FAULT_STORE_SLOW] = "store-slow",
    [FAULT_ACCEPT_DRAFTS] = "accept-drafts",
};

static uint32_t rates[FAULT_COUNT]; /* of 2^32 */
static uint64_t state;

static int fault_set(const char *name, size_t name_bytes, const char *rate_text)
{
    char *end;
    double rate = strtod(rate_text, &end);
    if (end == rate_text || (*end && *end != ',') || !(rate >= 0 && rate <= 1))
        return -EINVAL;
    for (int i = 0; i < FAULT_COUNT; i++) {
        if (strlen(names[i]) != name_bytes || memcmp(names[i], name, name_bytes) != 0)
            continue;
        rates[i] = (uint32_t)(rate * 4294967295.0);
        return 0;
    }
    return -EINVAL;
}

int fault_parse(const char *text, uint64_t seed, char *err, size_t err_bytes)
{
    state = seed * 0x9E3779B185EBCA87u | 1;
    while (*text) {
        size_t name_bytes = strcspn(text, "=,");
        if (text[name_bytes] != '=' || fault_set(text, name_bytes, text + name_bytes + 1) < 0) {
            snprintf(err, err_bytes,
                     "fault '%s': give NAME=RATE, a rate from 0 to 1, NAME one of draft-mismatch, "
                     "refuse-pages, delay-pass, store-fail, store-tear, store-slow, "
                     "accept-drafts",
                     text);
            return -EINVAL;
        }
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return 0;
}

bool fault_hits(enum fault fault)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return rates[fault] > 0 && (uint32_t)(state >> 32) <= rates[fault];
}

#endif
