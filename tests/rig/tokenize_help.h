/* tokenize_help: assertions on the ids of a text, for Check tests. */
#ifndef HEARTH_TESTS_RIG_TOKENIZE_HELP_H
#define HEARTH_TESTS_RIG_TOKENIZE_HELP_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "client/tokenizer/tokenizer.h"

static inline void assert_ids(const struct vocab *v, const char *text, size_t bytes, unsigned flags,
                              const uint32_t *want, size_t n_want)
{
    char err[256] = "", got[512] = "";
    struct token_list l;
    token_list_init(&l);
    int rc = tokenize(v, text, bytes, flags, &l, err, sizeof(err));
    ck_assert_msg(rc == 0, "'%s': %d %s", text, rc, err);
    for (size_t i = 0; i < l.n && strlen(got) + 12 < sizeof(got); i++)
        sprintf(got + strlen(got), " %u", l.ids[i]);
    bool equal = l.n == n_want && (n_want == 0 || memcmp(l.ids, want, n_want * sizeof(*want)) == 0);
    ck_assert_msg(equal, "'%s' gave%s", text, got);
    token_list_fini(&l);
}

/* assert_ids for a literal text and the ids written after it. */
#define ASSERT_IDS(v, text, flags, ...)                                                            \
    assert_ids(v, text, sizeof(text) - 1, flags, (const uint32_t[]){__VA_ARGS__},                  \
               sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define ASSERT_NO_IDS(v, text, flags) assert_ids(v, text, sizeof(text) - 1, flags, NULL, 0)

#endif
