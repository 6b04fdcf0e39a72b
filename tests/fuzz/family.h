/* family: the form of calls that a target is about: that of FAMILY, for which it is built (fuzz_chat_hermes),
 * else one that the input chooses. A header of static functions. */
#ifndef HEARTH_TESTS_FUZZ_FAMILY_H
#define HEARTH_TESTS_FUZZ_FAMILY_H

#include "client/events/call_form.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* n: how many choices there are; those after the forms are none, NULL. */
static inline const struct call_form *family_form(uint8_t byte, size_t n)
{
#ifdef FAMILY
    (void)byte, (void)n;
    for (size_t i = 0; i < n_call_forms; i++)
        if (strcmp(call_forms[i].name, FAMILY) == 0)
            return &call_forms[i];
    abort();
#else
    size_t form = byte % n;
    return form < n_call_forms ? &call_forms[form] : NULL;
#endif
}

#endif
