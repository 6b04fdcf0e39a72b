/* How each pre-tokenizer cuts: texts with "|" where a word ends. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/tokenizer/words.h"
#include "tests/rig/words_vectors.h"
#include "tests/run_suite.h"

/* Cuts `want` without its bars; the words must end where the bars are. */
static void assert_words_bar(enum vocab_pre pre, const char *want, char bar)
{
    char text[4096], got[8192];
    size_t n = 0, n_got = 0, begin = 0;
    for (const char *p = want; *p != '\0'; p++) {
        if (*p != bar)
            text[n++] = *p;
    }
    struct letters l;
    struct word_list w;
    ck_assert_int_eq(letters_open(&l, text, n), 0);
    ck_assert_int_eq(words_open(&w, pre, &l), 0);
    for (size_t i = 0; i < w.n; i++) {
        size_t end = l.at[w.end[i]];
        if (i > 0)
            got[n_got++] = bar;
        memcpy(got + n_got, text + begin, end - begin);
        n_got += end - begin;
        begin = end;
    }
    got[n_got] = '\0';
    ck_assert_uint_eq(begin, n);
    ck_assert_msg(strcmp(got, want) == 0, "%s: want <%s> got <%s>", vocab_pre_name(pre), want, got);
    words_close(&w);
    letters_close(&l);
}

static void assert_words(enum vocab_pre pre, const char *want)
{
    assert_words_bar(pre, want, '|');
}

static void assert_all(enum vocab_pre pre, const char *const *wants, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_words(pre, wants[i]);
}

#define ASSERT_ALL(pre, wants) assert_all(pre, wants, sizeof(wants) / sizeof(wants)[0])

START_TEST(gpt2_cuts)
{
    static const char *const wants[] = {
        "Hello| world|!| | two", /* the last of several spaces goes with the word */
        "I|'m| don|'t| we|'ll| you|'re| I|'ve| he|'d| it|'s",
        "I|'|M| IT|'|S", /* contractions are lower case here */
        "a|'",
        "x|'|lx",
        "abc|123\xc2\xbd|def", /* digits of any kind and number */
        " 123| abc| ...",
        "foo|();|\n   | bar",
        "a| \n \n| b",
        "a|   ", /* nothing follows: all of them */
        "\n\n\n",
        "\t|\t|x",    /* only a plain space goes with a word */
        "e|\xcc\x81", /* a mark is not a letter */
        "\xc2\xa0|\xc2\xa0|x",
        "\xe4\xbd\xa0\xe5\xa5\xbd|\xef\xbc\x81",
        "",
    };
    ASSERT_ALL(VOCAB_PRE_GPT2, wants);
}
END_TEST

START_TEST(llama3_cuts)
{
    static const char *const wants[] = {
        "Hello| world|!| | two",
        "I|'M| DON|'T| we|'Ll| it|'S",
        "it|'\xc5\xbf",  /* the long s is an s */
        "(foo|)(|bar|)", /* one sign may begin a word */
        "((|foo",
        "123|456|7| |89", /* three digits at most, no space before them */
        "a|.\n\n|b",      /* newlines go with signs */
        "a| \n\n| | b",   /* and end a run of spaces */
        "a|  \n  \n|  ",
        "\r\n|x",
        "\tx|\n|y",
        "e|\xcc\x81",
        "\xcc\x81\x61", /* a mark may begin a word as signs do */
        "=\n|=\r\n\n| x",
        "!\n|/",
    };
    ASSERT_ALL(VOCAB_PRE_LLAMA3, wants);
}
END_TEST

START_TEST(qwen2_cuts)
{
    static const char *const wants[] = {
        "1|2|3| |4", "a|1", "x| =| |1|;\n", "(foo|)", "\n  \n| | x",
    };
    ASSERT_ALL(VOCAB_PRE_QWEN2, wants);
}
END_TEST

START_TEST(qwen35_cuts)
{
    static const char *const wants[] = {
        "e\xcc\x81x| |1", /* marks are letters */
        "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80",
        "\xcc\x81\xcc\x81",
        "!\xcc\x81",
        "(\xcc\x81\x61|)",
    };
    ASSERT_ALL(VOCAB_PRE_QWEN35, wants);
}
END_TEST

START_TEST(starcoder_cuts)
{
    static const char *const wants[] = {
        "x|1|2",  "x| |1|2| y", /* the piece ends before a digit, the space stays alone */
        "a|  |1", "I|'m| v|2",  "\xc2\xbd|\xe2\x85\xa7",
    };
    ASSERT_ALL(VOCAB_PRE_STARCODER, wants);
}
END_TEST

START_TEST(deepseek_llm_cuts)
{
    static const char *const wants[] = {
        "Hello| world",
        "a|\n|\n|b",
        "caf|\xc3\xa9| \xd0\x96", /* signs from ':' to '~' include a to z: the stage after cuts
                                     words again */
        "x| =| y",
        "a|  ", /* spaces at the end */
        "a| | b",
        "a|   | b",
        "ab| |123|.|45", /* digits stay together */
        "\xe4\xbd\xa0\xe5\xa5\xbd|abc",
        "\xe4\xbd\xa0|\xef\xbc\x81|\xe5\xa5\xbd",
        "a|[|b",
        "a| |\xe3\x80\x82|b", /* U+3002 lies in two sets: the later stage cuts it off */
        "\xe3\x81\xb2\xe3\x82\x89\xe3\x81\x8c\xe3\x81\xaa\xed\x95\x9c\xea\xb8\x80",
    };
    ASSERT_ALL(VOCAB_PRE_DEEPSEEK_LLM, wants);
}
END_TEST

START_TEST(deepseek_coder_cuts)
{
    static const char *const wants[] = {
        "def| foo|(|self|):|\n|   | return| |1|2",
        "a| ,| b",
        "\xe4\xbd\xa0\xe5\xa5\xbd",
        "x|+|y", /* a symbol is what lies between matches */
        "x| =| y",
        "a|  ",
        "a| $| b",
    };
    ASSERT_ALL(VOCAB_PRE_DEEPSEEK_CODER, wants);
}
END_TEST

START_TEST(deepseek_v3_cuts)
{
    static const char *const wants[] = {
        "123|4| |5",
        "#include| <|x|>",
        "(foo|)| bar",
        "you|'re", /* a sign with ASCII letters is a word */
        "e\xcc\x81x",
        "a|!!\n\n|b",
        "\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x81\xb2\xe3\x82\x89|abc",
        " |\xe4\xbd\xa0\xe5\xa5\xbd",
        "a| |\x07\x62",
    };
    ASSERT_ALL(VOCAB_PRE_DEEPSEEK_V3, wants);
}
END_TEST

START_TEST(falcon_cuts)
{
    static const char *const wants[] = {
        "a|(|b|)| c",
        "123|456|7",
        "x| |=| 12",
        "you|'|re| a|`|b",
        "\xc2\xbd\xc2\xbd\xc2\xbd\xc2\xbd",
    };
    ASSERT_ALL(VOCAB_PRE_FALCON, wants);
}
END_TEST

START_TEST(tekken_cuts)
{
    static const char *const wants[] = {
        "Hello|World",
        "i|Phone| HTTPServer",
        "ABC",
        "(foo|)| BAR",
        "1|2| |3",
        "a|/b|//\n/|c",
        "\xe4\xbd\xa0\xe5\xa5\xbd|ABC", /* letters without case end a word in capitals */
        "don|'t",
        "\xcc\x81|A",
    };
    ASSERT_ALL(VOCAB_PRE_TEKKEN, wants);
}
END_TEST

START_TEST(gpt4o_cuts)
{
    static const char *const wants[] = {
        "don't| WE'LL", /* a contraction belongs to its word */
        "I'm|'",        "Hello|World's", "123|4", "A'S| b'\xc5\xbf",
    };
    ASSERT_ALL(VOCAB_PRE_GPT4O, wants);
}
END_TEST

START_TEST(seed_coder_cuts)
{
    static const char *const wants[] = {
        "a|.|\n\n|b", /* newlines do not go with signs */
        "1|2| |3",
        "x| =| y|;|\n|   | z",
        "DON|'T",
    };
    ASSERT_ALL(VOCAB_PRE_SEED_CODER, wants);
}
END_TEST

START_TEST(default_cuts)
{
    static const char *const wants[] = {
        "a|(|b|)| c",
        "123|456|7| |89",
        " `|a|`",
        "x| |=| |12",
    };
    ASSERT_ALL(VOCAB_PRE_DEFAULT, wants);
}
END_TEST

START_TEST(afmoe_groups_digits_from_the_right)
{
    static const char *const wants[] = {"1|234|567", "12|345|a", "999", "a| |1|000|.|5"};
    ASSERT_ALL(VOCAB_PRE_AFMOE, wants);
}
END_TEST

START_TEST(exaone_moe_joins_words)
{
    static const char *const wants[] = {"two words| | three", " a b| |1", "a|;\n|\n|b"};
    ASSERT_ALL(VOCAB_PRE_EXAONE_MOE, wants);
}
END_TEST

START_TEST(kimi_k2_cuts_han_apart)
{
    static const char *const wants[] = {"a|\xe4\xbd\xa0\xe5\xa5\xbd|b", "don't|\xe3\x80\x87|1",
                                        "a|//\n|/"};
    ASSERT_ALL(VOCAB_PRE_KIMI_K2, wants);
}
END_TEST

/* A block of 2^k spaces at most, and one left to the word after. */
START_TEST(jais2_cuts_spaces_into_blocks)
{
    char text[1100];
    struct letters l;
    struct word_list w;
    memset(text, ' ', sizeof(text));
    text[sizeof(text) - 1] = 'a';
    ck_assert_int_eq(letters_open(&l, text, sizeof(text)), 0);
    ck_assert_int_eq(words_open(&w, VOCAB_PRE_JAIS2, &l), 0);
    static const uint32_t ends[] = {512, 1024, 1088, 1096, 1098, 1100}; /* 1098 and " a" */
    ck_assert_uint_eq(w.n, sizeof(ends) / sizeof(ends[0]));
    ck_assert_mem_eq(w.end, ends, sizeof(ends));
    words_close(&w);
    letters_close(&l);
}
END_TEST

START_TEST(cuts_are_those_of_tokenizers)
{
    for (size_t i = 0; i < sizeof(words_vectors) / sizeof(words_vectors[0]); i++)
        assert_words_bar(words_vectors[i].pre, words_vectors[i].want, '\037');
}
END_TEST

START_TEST(broken_utf8_is_cut_as_signs)
{
    assert_words(VOCAB_PRE_GPT2, "a|\xff\xfe|b| \xe2\x82");
    assert_words(VOCAB_PRE_LLAMA3, "\xff\x61|\xff\xff|1");
    assert_words(VOCAB_PRE_DEEPSEEK_V3, "1|\xff\xff\n");
}
END_TEST

START_TEST(nul_is_a_letter_like_others)
{
    struct letters l;
    struct word_list w;
    ck_assert_int_eq(letters_open(&l, "a\0b", 3), 0);
    ck_assert_int_eq(words_open(&w, VOCAB_PRE_GPT2, &l), 0);
    ck_assert_uint_eq(w.n, 3);
    words_close(&w);
    letters_close(&l);
}
END_TEST

START_TEST(spm_cuts_nothing)
{
    struct letters l;
    struct word_list w;
    ck_assert_int_eq(letters_open(&l, "a", 1), 0);
    ck_assert_int_eq(words_open(&w, VOCAB_PRE_NONE, &l), -EINVAL);
    ck_assert_int_eq(words_open(&w, VOCAB_PRE_COUNT, &l), -EINVAL);
    letters_close(&l);
}
END_TEST

/* Every letter is in one word, for any text: words end in order, the last at the end. */
START_TEST(words_cover_any_text)
{
    static const char *const bits[] = {
        "a", "B", " ", "\n",       "\r\n",         "'",        "s",    "1",
        "!", "/", "$", "\xcc\x81", "\xe4\xbd\xa0", "\xc3\xa9", "\xff", "\t"};
    uint64_t state = 5;
    for (int turn = 0; turn < 300; turn++) {
        char text[64];
        size_t n = 0;
        for (int k = 0; k < 20; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            const char *bit = bits[state >> 60];
            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
        struct letters l;
        ck_assert_int_eq(letters_open(&l, text, n), 0);
        for (int pre = VOCAB_PRE_NONE + 1; pre < VOCAB_PRE_COUNT; pre++) {
            struct word_list w;
            ck_assert_int_eq(words_open(&w, (enum vocab_pre)pre, &l), 0);
            for (size_t i = 0; i < w.n; i++)
                ck_assert_uint_gt(w.end[i], i == 0 ? 0 : w.end[i - 1]);
            ck_assert_uint_eq(w.end[w.n - 1], l.n);
            words_close(&w);
        }
        letters_close(&l);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("words");
    TCase *c = tcase_create("words");
    tcase_add_test(c, gpt2_cuts);
    tcase_add_test(c, llama3_cuts);
    tcase_add_test(c, qwen2_cuts);
    tcase_add_test(c, qwen35_cuts);
    tcase_add_test(c, starcoder_cuts);
    tcase_add_test(c, deepseek_llm_cuts);
    tcase_add_test(c, deepseek_coder_cuts);
    tcase_add_test(c, deepseek_v3_cuts);
    tcase_add_test(c, falcon_cuts);
    tcase_add_test(c, tekken_cuts);
    tcase_add_test(c, gpt4o_cuts);
    tcase_add_test(c, seed_coder_cuts);
    tcase_add_test(c, default_cuts);
    tcase_add_test(c, afmoe_groups_digits_from_the_right);
    tcase_add_test(c, exaone_moe_joins_words);
    tcase_add_test(c, kimi_k2_cuts_han_apart);
    tcase_add_test(c, jais2_cuts_spaces_into_blocks);
    tcase_add_test(c, cuts_are_those_of_tokenizers);
    tcase_add_test(c, broken_utf8_is_cut_as_signs);
    tcase_add_test(c, nul_is_a_letter_like_others);
    tcase_add_test(c, spm_cuts_nothing);
    tcase_add_test(c, words_cover_any_text);
    suite_add_tcase(s, c);
    return run_suite(s);
}
