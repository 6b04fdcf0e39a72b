/* tokenize_plain(): control tokens are found outside of the plain parts only, and that is the only
 * difference they make; on vocabularies made by hand, and on qwen2's from the folder in
 * HEARTH_TESTDATA. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tokenizer/tokenizer.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"
#include "tests/rig/vocab_file.h"

enum { END = 264, USER, TOOL };
static char err[512];

static struct vocab small_vocab(void **ret_block)
{
    struct tiny t;
    static const char *const merges[][2] = {{"a", "b"}, {" ", "ab"}, {"<", "|"}, {"|", ">"},
                                            {"e", "n"}, {"en", "d"}, {"c", "d"}, {"ab", "cd"}};
    tiny_init_bpe(&t, "qwen2");
    for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++)
        tiny_merge(&t, merges[i][0], merges[i][1]);
    ck_assert_uint_eq(tiny_add(&t, "<|end|>", VOCAB_TYPE_CONTROL, 0), END);
    ck_assert_uint_eq(tiny_add(&t, "<|end|><|user|>", VOCAB_TYPE_CONTROL, 0), USER);
    ck_assert_uint_eq(tiny_add(&t, "<tool>", VOCAB_TYPE_USER_DEFINED, 0), TOOL);
    return tiny_open(&t, ret_block);
}

/* The text's parts between [ and ] are plain; `want` is what its ids detokenize to, with # for
 * END, @ for USER, $ for TOOL. */
static void assert_plain(const struct vocab *v, const char *marked, const char *want)
{
    char text[256], got[256];
    struct token_span spans[8];
    size_t n = 0, n_spans = 0, n_got = 0;
    struct token_list l;
    for (const char *c = marked; *c; c++) {
        if (*c == '[')
            spans[n_spans].at = n;
        else if (*c == ']')
            spans[n_spans].bytes = n - spans[n_spans].at, n_spans++;
        else
            text[n++] = *c;
    }
    token_list_init(&l);
    ck_assert_int_eq(tokenize_plain(v, text, n, TOKENIZE_PARSE_SPECIAL,
                                    &(struct token_spans){spans, n_spans}, &l, err, sizeof(err)),
                     0);
    for (size_t i = 0; i < l.n; i++) {
        uint32_t bytes;
        const char *s = vocab_bytes(v, l.ids[i], &bytes);
        if (l.ids[i] >= END && l.ids[i] <= TOOL)
            got[n_got++] = "#@$"[l.ids[i] - END];
        else
            for (uint32_t k = 0; k < bytes; k++)
                got[n_got++] = s[k];
    }
    got[n_got] = 0;
    ck_assert_msg(strcmp(got, want) == 0, "%s gave %s", marked, got);
    token_list_fini(&l);
}

START_TEST(control_tokens_are_found_outside_of_plain_parts)
{
    void *block;
    struct vocab v = small_vocab(&block);
    assert_plain(&v, "<|end|>x<|end|>", "#x#");
    assert_plain(&v, "[<|end|>]x<|end|>", "<|end|>x#");
    assert_plain(&v, "<|end|>[<|end|>]<|end|>", "#<|end|>#");
    assert_plain(&v, "[a<|end|>b]", "a<|end|>b");
    /* No byte of one may be of a plain part. */
    assert_plain(&v, "<|[end]|>", "<|end|>");
    assert_plain(&v, "[<]|end|>", "<|end|>");
    assert_plain(&v, "<|end|[>]", "<|end|>");
    /* A longer one that does not fit leaves the shorter one. */
    assert_plain(&v, "<|end|><|user|>", "@");
    assert_plain(&v, "<|end|>[<|user|>]", "#<|user|>");
    /* Empty parts change nothing; user-defined tokens are found everywhere. */
    assert_plain(&v, "<|end|>[]<|end|>", "##");
    assert_plain(&v, "[<tool>]<to[ol]>", "$$");
    free(block);
}
END_TEST

START_TEST(words_may_cross_the_ends_of_plain_parts)
{
    void *block;
    struct vocab v = small_vocab(&block);
    struct token_list l;
    const struct token_span spans[] = {{1, 1}, {3, 1}};
    token_list_init(&l);
    ck_assert_int_eq(tokenize_plain(&v, "abcd", 4, TOKENIZE_PARSE_SPECIAL,
                                    &(struct token_spans){spans, 2}, &l, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(l.n, 1);
    ck_assert_uint_eq(l.ids[0], 263);
    token_list_fini(&l);
    free(block);
}
END_TEST

/* ---- a real vocabulary ----------------------------------------------------------------------- */

static uint32_t sample(uint32_t *random, uint32_t n)
{
    return next_random(random) % n;
}

/* Chats of parts that look like nothing special, between the template's marks: the ids are those of
 * the whole text, wherever the parts lie. */
static void check_same(const struct vocab *v, uint32_t *random)
{
    static const char *const parts[] = {"Hello",      " world",       "\n",   "  ",
                                        "it's 12345", "\xe4\xbd\xa0", "<",    "|",
                                        ">",          "im_end",       " <b>", "\n\n"};
    static const char *const marks[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    char text[512] = "";
    struct token_span spans[16];
    size_t n = 0, n_spans = 0;
    for (int i = 0; i < 16; i++) {
        const char *part = parts[sample(random, 6)];
        if (i % 3 == 0) {
            part = marks[sample(random, 3)];
        } else if (sample(random, 2)) {
            part = parts[sample(random, 12)];
            spans[n_spans++] = (struct token_span){n, strlen(part)};
        }
        strcpy(text + n, part);
        n += strlen(part);
    }
    struct token_list a, b;
    token_list_init(&a);
    token_list_init(&b);
    ck_assert_int_eq(tokenize(v, text, n, TOKENIZE_PARSE_SPECIAL, &a, err, sizeof(err)), 0);
    ck_assert_int_eq(tokenize_plain(v, text, n, TOKENIZE_PARSE_SPECIAL,
                                    &(struct token_spans){spans, n_spans}, &b, err, sizeof(err)),
                     0);
    ck_assert_msg(a.n == b.n && memcmp(a.ids, b.ids, a.n * sizeof(*a.ids)) == 0, "%s", text);
    token_list_fini(&a);
    token_list_fini(&b);
}

START_TEST(a_message_changes_no_ids_but_those_of_control_tokens)
{
    const char *folder = getenv("HEARTH_TESTDATA");
    char path[1024];
    struct vocab v;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/tokenizers/ggml-vocab-qwen2.gguf", folder);
    void *block = vocab_file_build(path, &bytes);
    ck_assert_msg(vocab_open(block, bytes, &v, err, sizeof(err)) == 0, "%s", err);
    uint32_t random = 7;
    for (int i = 0; i < 2000; i++)
        check_same(&v, &random);
    /* The text of a message is the ids of the same text without special tokens. */
    static const char text[] = "<|im_start|>user\nsay <|im_end|> twice<|im_end|>\n";
    const struct token_span span = {17, 20};
    struct token_list l, inside;
    token_list_init(&l);
    token_list_init(&inside);
    ck_assert_int_eq(tokenize_plain(&v, text, sizeof(text) - 1, TOKENIZE_PARSE_SPECIAL,
                                    &(struct token_spans){&span, 1}, &l, err, sizeof(err)),
                     0);
    ck_assert_int_eq(tokenize(&v, "user\nsay <|im_end|> twice", 25, 0, &inside, err, sizeof(err)),
                     0);
    ck_assert_uint_eq(l.n, inside.n + 3);
    ck_assert_uint_eq(l.ids[0], 151644);
    ck_assert_mem_eq(l.ids + 1, inside.ids, inside.n * sizeof(*l.ids));
    ck_assert_uint_eq(l.ids[l.n - 2], 151645);
    token_list_fini(&l);
    token_list_fini(&inside);
    free(block);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer_plain");
    TCase *c = tcase_create("tokenizer_plain");
    tcase_add_test(c, control_tokens_are_found_outside_of_plain_parts);
    tcase_add_test(c, words_may_cross_the_ends_of_plain_parts);
    if (getenv("HEARTH_TESTDATA"))
        tcase_add_test(c, a_message_changes_no_ids_but_those_of_control_tokens);
    else
        printf("skip: qwen2's vocabulary: HEARTH_TESTDATA is not set\n");
    tcase_set_timeout(c, 120);
    suite_add_tcase(s, c);
    return run_suite(s);
}
