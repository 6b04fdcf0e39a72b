/* Byte-level BPE on vocabularies whose ids can be worked out by hand: a byte is its own id. */
#include <errno.h>
#include <stdlib.h>

#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"
#include "tests/rig/tokenize_help.h"

static void *block;

static void close_block(void)
{
    free(block);
}

START_TEST(pairs_join_by_rank)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t bc = tiny_merge(&t, "b", "c");
    uint32_t ab = tiny_merge(&t, "a", "b");
    uint32_t aa = tiny_merge(&t, "a", "a");
    uint32_t bcbc = tiny_merge(&t, "bc", "bc");
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "abc", 0, 'a', bc); /* "b c" ranks before "a b" */
    ASSERT_IDS(&v, "ab", 0, ab);
    ASSERT_IDS(&v, "aaa", 0, aa, 'a'); /* of equal ranks the leftmost */
    ASSERT_IDS(&v, "aaaa", 0, aa, aa);
    ASSERT_IDS(&v, "bcbcbc", 0, bcbc, bc);
    ASSERT_IDS(&v, "aab", 0, 'a', ab);
    ASSERT_NO_IDS(&v, "", 0);
}
END_TEST

START_TEST(words_do_not_join)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t space_a = tiny_merge(&t, " ", "a");
    tiny_merge(&t, "a", " ");
    tiny_merge(&t, "a", "1");
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "a a", 0, 'a', space_a);
    ASSERT_IDS(&v, "a1", 0, 'a', '1');
    ASSERT_IDS(&v, "a ", 0, 'a', ' ');
}
END_TEST

START_TEST(the_pre_tokenizer_decides)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t d12 = tiny_merge(&t, "1", "2");
    uint32_t d123 = tiny_merge(&t, "12", "3");
    uint32_t d1234 = tiny_merge(&t, "123", "4");
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "1234", 0, d1234);
    free(block);
    t.desc.pre = (struct vocab_string){"dbrx", 4}; /* cuts as Llama 3 */
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "1234", 0, d123, '4');
    free(block);
    t.desc.pre = (struct vocab_string){"qwen2", 5};
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "1234", 0, '1', '2', '3', '4');
    ck_assert_uint_lt(d12, d123);
}
END_TEST

START_TEST(a_whole_word_may_beat_its_merges)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t xy = tiny_merge(&t, "x", "y");
    uint32_t word =
        tiny_add(&t, "\xc4\xa0xyz", VOCAB_TYPE_NORMAL, 0); /* " xyz", merged from nothing */
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, " xyz", 0, ' ', xy, 'z');
    free(block);
    t.desc.pre = (struct vocab_string){"llama-bpe", 9};
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, " xyz", 0, word);
    ASSERT_IDS(&v, " xyzz", 0, ' ', xy, 'z', 'z');
    ASSERT_IDS(&v, "\n xyz\xc3\xa9", 0, '\n', ' ', xy, 'z', 0xc3, 0xa9);
    free(block);
    t.desc.pre = (struct vocab_string){"glm4", 4};
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, " xyz", 0, word);
    ck_assert_uint_eq(v.flags & VOCAB_ADD_BOS, 0);
}
END_TEST

START_TEST(any_bytes_are_kept)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    tiny_merge(&t, "a", "b");
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "\xff\0\xc3\xa9\xe2", 0, 0xff, 0, 0xc3, 0xa9, 0xe2);
}
END_TEST

START_TEST(a_byte_without_token_is_a_broken_character)
{
    struct tiny t;
    char err[256];
    struct token_list list;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t ab = tiny_merge(&t, "a", "b");
    t.texts[0xff] = (struct vocab_string){"gone", 4};
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v,
               "ab\xff"
               "ab",
               0, ab, 0xef, 0xbf, 0xbd, ab);
    free(block);
    t.texts[0xbf] = (struct vocab_string){"gone too", 8};
    v = tiny_open(&t, &block);
    token_list_init(&list);
    ck_assert_int_eq(tokenize(&v, "ab ab\xff", 6, 0, &list, err, sizeof(err)), -EILSEQ);
    ck_assert_str_eq(err, "the vocabulary has no token for the text at byte 5");
    ck_assert_uint_eq(list.n, 0);
    token_list_fini(&list);
}
END_TEST

START_TEST(special_tokens_cut_the_text)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t ab = tiny_merge(&t, "a", "b");
    uint32_t end = tiny_add(&t, "<|end|>", VOCAB_TYPE_CONTROL, 0);
    uint32_t think = tiny_add(&t, "<think>", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t four = tiny_add(&t, "    ", VOCAB_TYPE_USER_DEFINED, 0);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "ab<|end|>ab", TOKENIZE_PARSE_SPECIAL, ab, end, ab);
    ASSERT_IDS(&v, "<|end|", TOKENIZE_PARSE_SPECIAL, '<', '|', 'e', 'n', 'd', '|');
    ASSERT_IDS(&v, "<|end|>", 0, '<', '|', 'e', 'n', 'd', '|', '>');
    ASSERT_IDS(&v, "ab<think>ab", 0, ab, think, ab);
    ASSERT_IDS(&v, "     ab", 0, four, ' ', ab);
}
END_TEST

START_TEST(a_list_grows_by_appending)
{
    struct tiny t;
    char err[256];
    struct token_list list;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t ab = tiny_merge(&t, "a", "b");
    struct vocab v = tiny_open(&t, &block);
    token_list_init(&list);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(tokenize(&v, "abc", 3, 0, &list, err, sizeof(err)), 0);
    ck_assert_uint_eq(list.n, 200);
    ck_assert_uint_eq(list.ids[198], ab);
    ck_assert_uint_eq(list.ids[199], 'c');
    token_list_fini(&list);
    ck_assert_ptr_null(list.ids);
}
END_TEST

START_TEST(too_long_a_text_is_refused)
{
    struct tiny t;
    char err[256];
    struct token_list list;
    tiny_init_bpe(&t, "gpt-2");
    tiny_merge(&t, "a", "b");
    struct vocab v = tiny_open(&t, &block);
    token_list_init(&list);
    size_t n = (size_t)TOKENIZE_MAX_BYTES + 1; /* never looked at */
    ck_assert_int_eq(tokenize(&v, "a", n, 0, &list, err, sizeof(err)), -E2BIG);
    ck_assert_ptr_nonnull(strstr(err, "67108865 bytes"));
    token_list_fini(&list);
}
END_TEST

START_TEST(one_long_word_is_quick)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t id = tiny_merge(&t, "a", "a");
    id = tiny_merge(&t, "aa", "aa");
    struct vocab v = tiny_open(&t, &block);
    size_t n = 200000;
    char err[256], *text = malloc(n);
    struct token_list list;
    memset(text, 'a', n);
    token_list_init(&list);
    ck_assert_int_eq(tokenize(&v, text, n, 0, &list, err, sizeof(err)), 0);
    ck_assert_uint_eq(list.n, n / 4);
    for (size_t i = 0; i < list.n; i++)
        if (list.ids[i] != id)
            ck_abort_msg("id %zu", i);
    token_list_fini(&list);
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer_bpe");
    TCase *c = tcase_create("tokenizer_bpe");
    tcase_add_checked_fixture(c, NULL, close_block);
    tcase_add_test(c, pairs_join_by_rank);
    tcase_add_test(c, words_do_not_join);
    tcase_add_test(c, the_pre_tokenizer_decides);
    tcase_add_test(c, a_whole_word_may_beat_its_merges);
    tcase_add_test(c, any_bytes_are_kept);
    tcase_add_test(c, a_byte_without_token_is_a_broken_character);
    tcase_add_test(c, special_tokens_cut_the_text);
    tcase_add_test(c, a_list_grows_by_appending);
    tcase_add_test(c, too_long_a_text_is_refused);
    tcase_add_test(c, one_long_word_is_quick);
    suite_add_tcase(s, c);
    return run_suite(s);
}
