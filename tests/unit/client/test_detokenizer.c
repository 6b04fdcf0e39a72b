/* Ids to text, one at a time: no half characters, no invented spaces, nothing lost. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "client/tokenizer/detokenizer.h"
#include "client/tokenizer/tokenizer.h"
#include "client/base/utf8.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"

#define FFFD "\xef\xbf\xbd"

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

/* The text that id gives now. */
static const char *push(struct detokenizer *d, uint32_t id)
{
    static char out[256];
    size_t n = 0;
    ck_assert_int_eq(detokenizer_push(d, id, out, sizeof(out) - 1, &n), 0);
    out[n] = '\0';
    return out;
}

static const char *finish(struct detokenizer *d)
{
    static char out[8];
    size_t n = 0;
    ck_assert_int_eq(detokenizer_finish(d, out, sizeof(out) - 1, &n), 0);
    out[n] = '\0';
    return out;
}

START_TEST(incomplete_characters_are_held)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    struct detokenizer d;
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, 0xe2), "");
    ck_assert_str_eq(push(&d, 0x82), "");
    ck_assert_str_eq(push(&d, 0xac), "\xe2\x82\xac");
    ck_assert_str_eq(push(&d, 0xf0), "");
    ck_assert_str_eq(push(&d, 0x9f), "");
    ck_assert_str_eq(push(&d, 0x98), "");
    ck_assert_str_eq(push(&d, 0x80), "\xf0\x9f\x98\x80");
    ck_assert_str_eq(push(&d, 256), "ab");
    ck_assert_str_eq(finish(&d), "");
}
END_TEST

START_TEST(invalid_utf8_is_replaced)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    struct detokenizer d;
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, 0xe2), "");
    ck_assert_str_eq(push(&d, 256), FFFD "ab");
    ck_assert_str_eq(push(&d, 0x80), FFFD);
    ck_assert_str_eq(push(&d, 0xe2), "");
    ck_assert_str_eq(push(&d, 0x82), "");
    ck_assert_str_eq(push(&d, 0xc3), FFFD); /* two bytes, one piece; the new one waits */
    ck_assert_str_eq(push(&d, 0xa9), "\xc3\xa9");
    ck_assert_str_eq(push(&d, 0xed), "");
    ck_assert_str_eq(push(&d, 0xa0), FFFD FFFD); /* a surrogate never begins */
    ck_assert_str_eq(push(&d, 0xf0), "");
    ck_assert_str_eq(push(&d, 0x9f), "");
    ck_assert_str_eq(finish(&d), FFFD);
    ck_assert_str_eq(finish(&d), "");
}
END_TEST

START_TEST(raw_mode_gives_every_byte_at_once)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    struct detokenizer d;
    detokenizer_init(&d, &v, DETOKENIZE_RAW);
    ck_assert_str_eq(push(&d, 0xe2), "\xe2");
    ck_assert_str_eq(push(&d, 0xff), "\xff");
    ck_assert_str_eq(push(&d, 257), "<|end|>");
    ck_assert_str_eq(finish(&d), "");
}
END_TEST

START_TEST(control_tokens_may_be_left_out)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    struct detokenizer d;
    detokenizer_init(&d, &v, DETOKENIZE_SKIP_CONTROL);
    ck_assert_str_eq(push(&d, 0xc3), "");
    ck_assert_str_eq(push(&d, 257), "");
    ck_assert_str_eq(push(&d, 0xa9), "\xc3\xa9"); /* the half character waited */
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, 257), "<|end|>");
}
END_TEST

START_TEST(errors_change_nothing)
{
    struct tiny t;
    struct vocab v = open_bytes(&t);
    struct detokenizer d;
    char out[64];
    size_t n;
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, 0xc3), "");
    ck_assert_int_eq(detokenizer_push(&d, v.n_tokens, out, sizeof(out), &n), -EINVAL);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(detokenizer_push(&d, 256, out, 2, &n), -ENOBUFS);
    ck_assert_uint_eq(n, detokenizer_room(&d, 256));
    ck_assert_uint_eq(n, 9); /* U+FFFD for each of "\xc3" "a" "b", if it came to that */
    ck_assert_int_eq(detokenizer_finish(&d, out, 2, &n), -ENOBUFS);
    ck_assert_str_eq(push(&d, 0xa9), "\xc3\xa9");
    ck_assert_uint_eq(detokenizer_room(&d, v.n_tokens), 0);
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
    struct detokenizer d;
    detokenizer_init(&d, &v, DETOKENIZE_SKIP_CONTROL);
    ck_assert_str_eq(push(&d, 1), ""); /* bos */
    ck_assert_str_eq(push(&d, low_a), "a");
    ck_assert_str_eq(push(&d, low_a), " a");
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, low), ""); /* " a" was the text: one space is the tokenizer's */
    ck_assert_str_eq(push(&d, low_a), " a");
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, 3 + 'x'), "x");
    ck_assert_str_eq(push(&d, low_a), " a");
    detokenizer_init(&d, &v, DETOKENIZE_CONTINUE);
    ck_assert_str_eq(push(&d, low_a), " a");
}
END_TEST

START_TEST(the_space_after_a_special_token_is_dropped)
{
    struct tiny t;
    struct vocab v = open_spm(&t);
    struct detokenizer d;
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, low_a), "a");
    ck_assert_str_eq(push(&d, 2), "</s>");
    ck_assert_str_eq(push(&d, low_a), "a");
    ck_assert_str_eq(push(&d, user), "<user>");
    ck_assert_str_eq(push(&d, user), "<user>");
    ck_assert_str_eq(push(&d, low_a), "a");
    ck_assert_str_eq(push(&d, low), " ");
}
END_TEST

START_TEST(a_vocabulary_without_prefix_keeps_spaces)
{
    struct tiny t;
    open_spm(&t);
    free(block);
    t.desc.add_space_prefix = 0;
    struct vocab v = tiny_open(&t, &block);
    struct detokenizer d;
    detokenizer_init(&d, &v, 0);
    ck_assert_str_eq(push(&d, low_a), " a");
    ck_assert_str_eq(push(&d, 1), "<s>");
    ck_assert_str_eq(push(&d, low_a), " a");
}
END_TEST

/* out: text with each broken piece replaced, worked out over the whole of it. */
static size_t replace_broken(const char *text, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        int step = utf8_step(text + at, bytes - at, &code);
        size_t length = step == 0 ? bytes - at : (size_t)abs(step);
        memcpy(out + n, step > 0 ? text + at : FFFD, step > 0 ? length : 3);
        n += step > 0 ? length : 3;
        at += length;
    }
    return n;
}

/* Text of bytes, tokens of one or two: what comes out piece by piece is whole characters, and
 * together what the whole text would give. */
START_TEST(pieces_are_whole_and_add_up)
{
    struct tiny t;
    static const unsigned char frequent[] = {0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xc3,
                                             0xa9, 'a',  'b',  ' ',  0xff, 0xed, 0xa0, 0xf4};
    uint64_t state = (uint64_t)_i + 99;
    struct vocab v = open_bytes(&t);
    for (int turn = 0; turn < 400; turn++) {
        char text[40], want[200], got[200];
        size_t n = 1 + (size_t)turn % 40, n_got = 0, n_piece;
        for (size_t i = 0; i < n; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            text[i] = (char)(_i == 0 ? frequent[state >> 60] : (unsigned char)(state >> 56));
        }
        struct detokenizer d;
        detokenizer_init(&d, &v, 0);
        for (size_t i = 0; i < n; i++) {
            bool pair = i + 1 < n && text[i] == 'a' && text[i + 1] == 'b';
            uint32_t id = pair ? 256 : (unsigned char)text[i], code;
            i += pair;
            ck_assert_int_eq(detokenizer_push(&d, id, got + n_got, sizeof(got) - n_got, &n_piece),
                             0);
            for (size_t at = 0; at < n_piece;) {
                int step = utf8_step(got + n_got + at, n_piece - at, &code);
                ck_assert_int_gt(step, 0);
                at += (size_t)step;
            }
            n_got += n_piece;
        }
        ck_assert_int_eq(detokenizer_finish(&d, got + n_got, 8, &n_piece), 0);
        n_got += n_piece;
        ck_assert_uint_eq(n_got, replace_broken(text, n, want));
        ck_assert_mem_eq(got, want, n_got);
    }
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
        char text[128], got[512], err[256];
        size_t n = 0, n_got = 0, n_piece;
        for (int k = 0; k < turn % 12; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            const char *bit = bits[state >> 60];
            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
        l.n = 0;
        unsigned flags = turn % 2 == 0 ? TOKENIZE_PARSE_SPECIAL : 0;
        ck_assert_int_eq(tokenize(&v, text, n, flags, &l, err, sizeof(err)), 0);
        struct detokenizer d;
        detokenizer_init(&d, &v, DETOKENIZE_RAW);
        for (size_t i = 0; i < l.n; i++) {
            ck_assert_int_eq(
                detokenizer_push(&d, l.ids[i], got + n_got, sizeof(got) - n_got, &n_piece), 0);
            n_got += n_piece;
        }
        ck_assert_msg(n_got == n && memcmp(got, text, n) == 0, "<%.*s> gave <%.*s>", (int)n, text,
                      (int)n_got, got);
    }
    token_list_fini(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("detokenizer");
    TCase *c = tcase_create("detokenizer");
    tcase_add_checked_fixture(c, NULL, close_block);
    tcase_add_test(c, incomplete_characters_are_held);
    tcase_add_test(c, invalid_utf8_is_replaced);
    tcase_add_test(c, raw_mode_gives_every_byte_at_once);
    tcase_add_test(c, control_tokens_may_be_left_out);
    tcase_add_test(c, errors_change_nothing);
    tcase_add_test(c, the_leading_space_is_dropped);
    tcase_add_test(c, the_space_after_a_special_token_is_dropped);
    tcase_add_test(c, a_vocabulary_without_prefix_keeps_spaces);
    tcase_add_loop_test(c, pieces_are_whole_and_add_up, 0, 2);
    tcase_add_loop_test(c, detokenizing_undoes_tokenizing, 0, 2);
    suite_add_tcase(s, c);
    return run_suite(s);
}
