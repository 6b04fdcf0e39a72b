/* Ids to bytes: no invented spaces, nothing lost. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/tokenizer/detokenizer.h"
#include "client/tokenizer/tokenizer.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"

static void *block;

static void close_block(void)
{
    free(block);
}

static struct vocab open_bytes(struct tiny *t)
{
    tiny_init_bpe(t, "gpt-2");
    tiny_merge(t, "a", "b");
    tiny_add(t, "<|end|>", VOCAB_TYPE_CONTROL, 0);
    return tiny_open(t, &block);
}

/* The bytes of `ids`, which end with END. */
#define END UINT32_MAX
static const char *text_of(const struct vocab *v, bool control, const uint32_t *ids)
{
    static char text[256];
    struct buffer out = {0};
    size_t n = 0;
    while (ids[n] != END)
        n++;
    ck_assert_uint_eq(detokenize(v, ids, n, control, &out), n);
    snprintf(text, sizeof(text), "%s", out.data ? out.data : "");
    buffer_fini(&out);
    return text;
}
#define TEXT(v, control, ...) text_of(v, control, (const uint32_t[]){__VA_ARGS__, END})

START_TEST(every_byte_is_given)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    ck_assert_str_eq(TEXT(&v, true, 0xe2, 0xff, 256, 0x82), "\xe2\xff"
                                                            "ab\x82");
    ck_assert_str_eq(TEXT(&v, true, END), "");
}
END_TEST

START_TEST(control_tokens_may_be_left_out)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    ck_assert_str_eq(TEXT(&v, false, 0xc3, 257, 0xa9), "\xc3\xa9");
    ck_assert_str_eq(TEXT(&v, true, 256, 257), "ab<|end|>");
}
END_TEST

START_TEST(marks_of_harmonys_messages_are_text)
{
    static const char *const names[] = {"<|channel|>", "<|message|>", "<|end|>", "<|return|>",
                                        "<|call|>"};
    struct tiny t;
    tiny_init_bpe(&t, "gpt-4o");
    tiny_merge(&t, "a", "b");
    for (int i = 0; i < 5; i++)
        tiny_add(&t, names[i], VOCAB_TYPE_CONTROL, 0);
    struct vocab v = tiny_open(&t, &block);
    ck_assert_str_eq(TEXT(&v, false, 257, 'x', 258, 256, 259, 260),
                     "<|channel|>x<|message|>ab<|end|>");
    ck_assert_str_eq(TEXT(&v, true, 256, 260), "ab<|return|>");
}
END_TEST

START_TEST(an_unknown_id_ends_it)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    struct buffer out = {0};
    const uint32_t ids[] = {256, v.n_tokens, 256};
    ck_assert_uint_eq(detokenize(&v, ids, 3, true, &out), 1);
    ck_assert_str_eq(out.data, "ab");
    buffer_fini(&out);
}
END_TEST

static uint32_t low, low_a, user;

static struct vocab open_spm(struct tiny *t)
{
    tiny_init_spm(t, 1);
    low = tiny_add(t, "\xe2\x96\x81", VOCAB_TYPE_NORMAL, -1);
    low_a = tiny_add(t,
                     "\xe2\x96\x81"
                     "a",
                     VOCAB_TYPE_NORMAL, -2);
    tiny_add(t, "a", VOCAB_TYPE_NORMAL, -3);
    user = tiny_add(t, "<user>", VOCAB_TYPE_USER_DEFINED, 0);
    return tiny_open(t, &block);
}

START_TEST(the_leading_space_is_dropped)
{
    struct tiny t;
    struct vocab v = open_spm(&t);
    ck_assert_str_eq(TEXT(&v, false, 1, low_a, low_a), "a a"); /* 1: bos */
    /* " a" was the text: one space is the tokenizer's */
    ck_assert_str_eq(TEXT(&v, true, low, low_a), " a");
    ck_assert_str_eq(TEXT(&v, true, 3 + 'x', low_a), "x a");
}
END_TEST

START_TEST(the_space_after_a_special_token_is_dropped)
{
    struct tiny t;
    struct vocab v = open_spm(&t);
    ck_assert_str_eq(TEXT(&v, true, low_a, 2, low_a, user, user, low_a, low),
                     "a</s>a<user><user>a ");
    ck_assert_str_eq(TEXT(&v, false, low_a, 2, low_a), "aa");
}
END_TEST

START_TEST(a_vocabulary_without_prefix_keeps_spaces)
{
    struct tiny t;
    open_spm(&t);
    free(block);
    t.desc.add_space_prefix = 0;
    struct vocab v = tiny_open(&t, &block);
    ck_assert_str_eq(TEXT(&v, true, low_a, 1, low_a), " a<s> a");
}
END_TEST

/* Back and forth gives the text, for any bytes, with special tokens in them. */
START_TEST(detokenizing_undoes_tokenizing)
{
    static const char *const bits[] = {" ",        "a",    "  ", "\n", "<user>", "</s>",
                                       "\xc3\xa9", "\xff", "x",  "<s", "a a",    "\xe2\x82",
                                       "\t",       "<s>",  "b",  "1"};
    struct tiny t;
    struct vocab v = _i == 0 ? open_spm(&t) : open_bytes(&t);
    uint64_t state = 3;
    struct token_list l;
    token_list_init(&l);
    for (int turn = 0; turn < 500; turn++) {
        char text[128], err[256];
        size_t n = 0;
        for (int k = 0; k < turn % 12; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            const char *bit = bits[state >> 60];
            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
        l.n = 0;
        unsigned flags = turn % 2 == 0 ? TOKENIZE_PARSE_SPECIAL : 0;
        ck_assert_int_eq(tokenize(&v, text, n, flags, &l, err, sizeof(err)), 0);
        struct buffer got = {0};
        ck_assert_uint_eq(detokenize(&v, l.ids, l.n, true, &got), l.n);
        ck_assert_msg(got.bytes == n && (!n || memcmp(got.data, text, n) == 0),
                      "<%.*s> gave <%.*s>", (int)n, text, (int)got.bytes, got.data);
        buffer_fini(&got);
    }
    token_list_fini(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("detokenizer");
    TCase *c = tcase_create("detokenizer");
    tcase_add_checked_fixture(c, NULL, close_block);
    tcase_add_test(c, every_byte_is_given);
    tcase_add_test(c, an_unknown_id_ends_it);
    tcase_add_test(c, control_tokens_may_be_left_out);
    tcase_add_test(c, marks_of_harmonys_messages_are_text);
    tcase_add_test(c, the_leading_space_is_dropped);
    tcase_add_test(c, the_space_after_a_special_token_is_dropped);
    tcase_add_test(c, a_vocabulary_without_prefix_keeps_spaces);
    tcase_add_loop_test(c, detokenizing_undoes_tokenizing, 0, 2);
    suite_add_tcase(s, c);
    return run_suite(s);
}
