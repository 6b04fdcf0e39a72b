/* SentencePiece BPE on vocabularies whose ids can be worked out by hand. */
#include <errno.h>
#include <stdlib.h>

#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"
#include "tests/rig/tokenize_help.h"

#define LOW "\xe2\x96\x81" /* U+2581, a space */

enum { BYTE = 3 }; /* id of <0x00> */
static uint32_t space, h, e, l, o, he, ll, hell;
static void *block;

/* The pieces of "hello" but not the word, with byte tokens if `bytes`. */
static struct vocab open_hello(struct tiny *t, int bytes)
{
    tiny_init_spm(t, bytes);
    space = tiny_add(t, LOW, VOCAB_TYPE_NORMAL, -10);
    h = tiny_add(t, "h", VOCAB_TYPE_NORMAL, -20);
    e = tiny_add(t, "e", VOCAB_TYPE_NORMAL, -21);
    l = tiny_add(t, "l", VOCAB_TYPE_NORMAL, -22);
    o = tiny_add(t, "o", VOCAB_TYPE_NORMAL, -23);
    he = tiny_add(t, "he", VOCAB_TYPE_NORMAL, -1);
    ll = tiny_add(t, "ll", VOCAB_TYPE_NORMAL, -2);
    hell = tiny_add(t, "hell", VOCAB_TYPE_NORMAL, -3);
    return tiny_open(t, &block);
}

static void close_block(void)
{
    free(block);
}

START_TEST(pairs_join_by_score)
{
    struct tiny t;
    struct vocab v = open_hello(&t, 1);
    ASSERT_IDS(&v, "hello", 0, space, hell, o);
    ASSERT_IDS(&v, "helo", 0, space, he, l, o);
    ASSERT_IDS(&v, "lll", 0, space, ll, l); /* of equal scores the leftmost */
    ASSERT_IDS(&v, "llll", 0, space, ll, ll);
}
END_TEST

START_TEST(the_higher_score_goes_first)
{
    struct tiny t;
    tiny_init_spm(&t, 0);
    uint32_t a = tiny_add(&t, "a", VOCAB_TYPE_NORMAL, -9);
    uint32_t b = tiny_add(&t, "b", VOCAB_TYPE_NORMAL, -9);
    uint32_t c = tiny_add(&t, "c", VOCAB_TYPE_NORMAL, -9);
    uint32_t ab = tiny_add(&t, "ab", VOCAB_TYPE_NORMAL, -2);
    uint32_t bc = tiny_add(&t, "bc", VOCAB_TYPE_NORMAL, -1);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "abc", TOKENIZE_CONTINUE, a, bc);
    free(block);
    t.scores[ab] = 0.5f; /* positive beats negative */
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "abc", TOKENIZE_CONTINUE, ab, c);
    free(block);
    t.scores[ab] = 0.0f;
    t.scores[bc] = -0.0f; /* equal zeros: the leftmost */
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "abc", TOKENIZE_CONTINUE, ab, c);
    free(block);
    t.scores[ab] = -0.0f;
    t.scores[bc] = 0.0f;
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "abc", TOKENIZE_CONTINUE, ab, c);
    ck_assert_uint_lt(a, b);
}
END_TEST

START_TEST(a_space_stands_before_the_text)
{
    struct tiny t;
    struct vocab v = open_hello(&t, 1);
    ASSERT_IDS(&v, " hello", 0, space, space, hell, o);
    ASSERT_IDS(&v, " ", 0, space, space);
    ASSERT_NO_IDS(&v, "", 0);
    ASSERT_IDS(&v, "hello", TOKENIZE_CONTINUE, hell, o);
    ASSERT_IDS(&v, " hello", TOKENIZE_CONTINUE, space, hell, o);
    ASSERT_IDS(&v, LOW "o", 0, space, space, o); /* the sign itself is a space */
    free(block);
    t.desc.add_space_prefix = 0;
    v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "hello", 0, hell, o);
}
END_TEST

START_TEST(unknown_characters_become_bytes)
{
    struct tiny t;
    struct vocab v = open_hello(&t, 1);
    ASSERT_IDS(&v, "\xc3\xa9o", 0, space, BYTE + 0xc3, BYTE + 0xa9, o);
    ASSERT_IDS(&v, "\n", 0, space, BYTE + '\n');
    ASSERT_IDS(&v, "o\0o", 0, space, o, BYTE, o);
    ASSERT_IDS(&v, "\xff\xc3", 0, space, BYTE + 0xff, BYTE + 0xc3); /* no characters at all */
}
END_TEST

START_TEST(unknown_characters_become_unk)
{
    struct tiny t;
    struct vocab v = open_hello(&t, 0);
    ASSERT_IDS(&v, "\xc3\xa9o", 0, space, 0, o);
    ASSERT_IDS(&v, "\xc3\xa9\xe2\x82\xac", 0, space, 0, 0); /* one for each character */
    ASSERT_IDS(&v, "\xff\xff", 0, space, 0, 0);
}
END_TEST

START_TEST(a_vocabulary_without_spaces_has_bytes)
{
    struct tiny t;
    tiny_init_spm(&t, 1);
    uint32_t a = tiny_add(&t, "a", VOCAB_TYPE_NORMAL, 0);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "a", 0, BYTE + 0xe2, BYTE + 0x96, BYTE + 0x81, a);
}
END_TEST

START_TEST(no_token_at_all_is_an_error)
{
    struct tiny t;
    struct token_list list;
    char err[256];
    tiny_init(&t, "llama", "");
    tiny_add(&t, "a", VOCAB_TYPE_NORMAL, 0);
    t.desc.add_space_prefix = 0;
    struct vocab v = tiny_open(&t, &block);
    token_list_init(&list);
    ck_assert_int_eq(token_list_push(&list, 77), 0);
    ck_assert_int_eq(tokenize(&v, "aax", 3, 0, &list, err, sizeof(err)), -EILSEQ);
    ck_assert_str_eq(err, "the vocabulary has no token for the text at byte 2");
    ck_assert_uint_eq(list.n, 1); /* as it was */
    token_list_fini(&list);
}
END_TEST

START_TEST(control_tokens_are_not_made_of_text)
{
    struct tiny t;
    tiny_init_spm(&t, 1);
    space = tiny_add(&t, LOW, VOCAB_TYPE_NORMAL, -10);
    uint32_t less = tiny_add(&t, "<", VOCAB_TYPE_NORMAL, -11);
    uint32_t s = tiny_add(&t, "s", VOCAB_TYPE_NORMAL, -12);
    uint32_t more = tiny_add(&t, ">", VOCAB_TYPE_NORMAL, -13);
    uint32_t s_more = tiny_add(&t, "s>", VOCAB_TYPE_NORMAL, -14);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "<s>", 0, space, less, s_more); /* though "<" and "s>" spell <s>, score 0 */
    ASSERT_IDS(&v, "<s>", TOKENIZE_PARSE_SPECIAL, 1);
    ASSERT_IDS(&v, "s<s>>", TOKENIZE_PARSE_SPECIAL, space, s, 1, space, more);
}
END_TEST

START_TEST(a_space_stands_after_special_tokens)
{
    struct tiny t;
    struct vocab v = open_hello(&t, 1);
    ASSERT_IDS(&v, "o</s>o<unk>", TOKENIZE_PARSE_SPECIAL, space, o, 2, space, o, 0);
    ASSERT_IDS(&v, "<s>o", TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUE, 1, space, o);
    ASSERT_IDS(&v, "<s></s>", TOKENIZE_PARSE_SPECIAL, 1, 2);
}
END_TEST

START_TEST(user_defined_tokens_are_always_found)
{
    struct tiny t;
    open_hello(&t, 1);
    free(block);
    uint32_t user = tiny_add(&t, "<user>", VOCAB_TYPE_USER_DEFINED, 0);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "o<user>o", 0, space, o, user, space, o);
    ASSERT_IDS(&v, "<user", 0, space, BYTE + '<', BYTE + 'u', BYTE + 's', e, BYTE + 'r');
}
END_TEST

/* As gemma's vocabulary is: no space in front, runs of blanks and newlines that are found in any text, the
 * longest first, single ones as pieces or bytes, turns as control tokens. */
START_TEST(runs_of_blanks_are_tokens_in_gemmas_vocabulary)
{
    struct tiny t;
    open_hello(&t, 1);
    free(block);
    t.desc.add_space_prefix = 0;
    uint32_t two = tiny_add(&t, "  ", VOCAB_TYPE_USER_DEFINED, -1000);
    uint32_t three = tiny_add(&t, "   ", VOCAB_TYPE_USER_DEFINED, -1000);
    uint32_t lines = tiny_add(&t, "\n\n", VOCAB_TYPE_USER_DEFINED, -1000);
    uint32_t turn = tiny_add(&t, "<start_of_turn>", VOCAB_TYPE_CONTROL, -1000);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "o o", 0, o, space, o);
    ASSERT_IDS(&v, "o  o", 0, o, two, o);
    ASSERT_IDS(&v, "o    o     ", 0, o, three, space, o, three, two);
    ASSERT_IDS(&v, "\n\n\no", 0, lines, BYTE + '\n', o);
    ASSERT_IDS(&v, "<start_of_turn>o\n\n o", TOKENIZE_PARSE_SPECIAL, turn, o, lines, space, o);
    ASSERT_IDS(&v, "  " LOW LOW "o", 0, two, space, space, o); /* signs are not a run */
}
END_TEST

START_TEST(one_long_word_is_quick)
{
    struct tiny t;
    struct vocab v = open_hello(&t, 1);
    size_t n = 200000;
    char err[256], *text = malloc(n);
    struct token_list list;
    memset(text, 'l', n);
    token_list_init(&list);
    ck_assert_int_eq(tokenize(&v, text, n, TOKENIZE_CONTINUE, &list, err, sizeof(err)), 0);
    ck_assert_uint_eq(list.n, n / 2);
    for (size_t i = 0; i < list.n; i++)
        if (list.ids[i] != ll)
            ck_abort_msg("id %zu", i);
    token_list_fini(&list);
    free(text);
}
END_TEST

static uint32_t ranked(struct tiny *t, const char *merge)
{
    const size_t n = strlen(merge), left = (size_t)(strchr(merge + 1, ' ') - merge);
    char text[64];
    t->merges[t->desc.n_merges++] = tiny_keep(t, merge, n);
    snprintf(text, sizeof(text), "%.*s%s", (int)left, merge, merge + left + 1);
    return tiny_add(t, text, VOCAB_TYPE_NORMAL, 0);
}

/* Gemma 4: merges by rank over whole lines, spaces as in SentencePiece, newlines by themselves. */
START_TEST(gemma4_merges_by_rank_between_newlines)
{
    struct tiny t;
    tiny_init_spm(&t, 1);
    t.desc.model = (struct vocab_string){"gemma4", 6};
    t.desc.pre = (struct vocab_string){0};
    space = tiny_add(&t, LOW, VOCAB_TYPE_NORMAL, 0);
    h = tiny_add(&t, "h", VOCAB_TYPE_NORMAL, 0);
    e = tiny_add(&t, "e", VOCAB_TYPE_NORMAL, 0);
    uint32_t newline = tiny_add(&t, "\n", VOCAB_TYPE_NORMAL, 0);
    uint32_t three = tiny_add(&t, "\n\n\n", VOCAB_TYPE_NORMAL, 0); /* that no merge makes */
    uint32_t e_space = ranked(&t, "e " LOW);                       /* across words */
    he = ranked(&t, "h e");
    uint32_t two = ranked(&t, "\n \n");
    uint32_t end = tiny_add(&t, "<turn|>", VOCAB_TYPE_CONTROL, 0);
    struct vocab v = tiny_open(&t, &block);
    ASSERT_IDS(&v, "he", 0, he);
    ASSERT_IDS(&v, "he he", 0, h, e_space, he);
    ASSERT_IDS(&v, " h", 0, space, h);
    ASSERT_IDS(&v, "h\nhe", 0, h, newline, he);
    ASSERT_IDS(&v, "\n\n", 0, two);
    ASSERT_IDS(&v, "h\n\n\ne", 0, h, three, e);
    ASSERT_IDS(&v, "\n\n\n\n", 0, two, two);
    ASSERT_IDS(&v, "h\xc3\xa9", 0, h, BYTE + 0xc3, BYTE + 0xa9);
    ck_assert(vocab_is_end(&v, end) && vocab_special(&v, VOCAB_EOT) == end);
    ck_assert((v.flags & VOCAB_ADD_BOS) && !(v.flags & VOCAB_ADD_SPACE_PREFIX));
    struct vocab_token token;
    ck_assert(vocab_find_token(&v, e_space, &token));
    ck_assert(token.n_bytes == 2 && memcmp(token.bytes, "e ", 2) == 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer_spm");
    TCase *c = tcase_create("tokenizer_spm");
    tcase_add_checked_fixture(c, NULL, close_block);
    tcase_add_test(c, pairs_join_by_score);
    tcase_add_test(c, the_higher_score_goes_first);
    tcase_add_test(c, a_space_stands_before_the_text);
    tcase_add_test(c, unknown_characters_become_bytes);
    tcase_add_test(c, unknown_characters_become_unk);
    tcase_add_test(c, a_vocabulary_without_spaces_has_bytes);
    tcase_add_test(c, no_token_at_all_is_an_error);
    tcase_add_test(c, control_tokens_are_not_made_of_text);
    tcase_add_test(c, a_space_stands_after_special_tokens);
    tcase_add_test(c, user_defined_tokens_are_always_found);
    tcase_add_test(c, runs_of_blanks_are_tokens_in_gemmas_vocabulary);
    tcase_add_test(c, gemma4_merges_by_rank_between_newlines);
    tcase_add_test(c, one_long_word_is_quick);
    suite_add_tcase(s, c);
    return run_suite(s);
}
