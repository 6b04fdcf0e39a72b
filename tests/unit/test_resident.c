/* Which draft model goes with a model: one with the same tokens in the same places. */
#include "daemon/resident.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 6 };

struct opened {
    void *block;
    struct vocab vocab;
};

/* A vocabulary of the first `n` of these texts, number `odd` replaced. */
static void open_vocab(struct opened *v, uint32_t n, uint32_t odd, const char *text)
{
    static const char *const texts[TOKENS] = {"<unk>", "<s>", "</s>", "a", "b", "c"};
    struct vocab_string strings[TOKENS];
    struct vocab_desc desc;
    size_t bytes;
    char err[200] = "";

    for (uint32_t i = 0; i < n; i++) {
        const char *word = i == odd ? text : texts[i];
        strings[i] = (struct vocab_string){word, strlen(word)};
    }
    vocab_desc_init(&desc);
    desc.model = (struct vocab_string){"llama", 5};
    desc.n_tokens = n;
    desc.texts = strings;
    ck_assert_msg(vocab_build(&desc, &v->block, &bytes, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(vocab_open(v->block, bytes, &v->vocab, err, sizeof(err)) == 0, "%s", err);
}

static int compare(uint32_t n, uint32_t odd, const char *text, char *err, size_t err_bytes)
{
    struct opened model, draft;

    open_vocab(&model, TOKENS - 1, TOKENS, "");
    open_vocab(&draft, n, odd, text);
    err[0] = 0;
    int rc = resident_compare_vocab(&model.vocab, &draft.vocab, err, err_bytes);
    free(model.block);
    free(draft.block);
    return rc;
}

START_TEST(the_same_tokens_are_the_same_vocabulary)
{
    char err[200];

    ck_assert_int_eq(compare(TOKENS - 1, TOKENS, "", err, sizeof(err)), 0);
    ck_assert_str_eq(err, "");
}
END_TEST

START_TEST(the_first_difference_is_named)
{
    char err[200];

    ck_assert_int_eq(compare(TOKENS - 1, 3, "x", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err,
                     "the draft model has another vocabulary: token 3 is 'x', the model's is 'a'");
    ck_assert_int_eq(compare(TOKENS, 4, "bb", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err,
                     "the draft model has another vocabulary: token 4 is 'bb', the model's is 'b'");
}
END_TEST

START_TEST(so_is_another_number_of_tokens)
{
    char err[200];

    ck_assert_int_eq(compare(TOKENS, TOKENS, "", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, "the draft model has another vocabulary: 6 tokens, the model's has 5");
    ck_assert_int_eq(compare(TOKENS - 2, TOKENS, "", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, "the draft model has another vocabulary: 4 tokens, the model's has 5");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resident");
    TCase *t = tcase_create("resident");

    tcase_add_test(t, the_same_tokens_are_the_same_vocabulary);
    tcase_add_test(t, the_first_difference_is_named);
    tcase_add_test(t, so_is_another_number_of_tokens);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
