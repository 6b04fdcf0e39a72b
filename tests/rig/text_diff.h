/* text_diff: asserts that two texts are equal and shows only where they differ, since Check
 * truncates messages. */
#ifndef HEARTH_TESTS_RIG_TEXT_DIFF_H
#define HEARTH_TESTS_RIG_TEXT_DIFF_H

#include <check.h>
#include <string.h>

static inline void assert_same_text(const char *name, const char *got, const char *want)
{
    size_t at = 0;
    while (got[at] && got[at] == want[at])
        at++;
    if (got[at] == want[at])
        return;
    size_t from = at > 60 ? at - 60 : 0;
    ck_assert_msg(0, "%.200s: at byte %zu '%.120s' is not '%.120s'", name, at, got + from,
                  want + from);
}

#endif
