/* Generated vocabularies: as many distinct tokens as the shape says, every merge joins two earlier
 * tokens into the next, bytes first, special tokens last. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/gguf/gguf_vocab.h"
#include "kernels/tools/vocabulary.h"
#include "tests/run_suite.h"

static char path[] = "/tmp/hearth-test-XXXXXX", err[512];

struct made_vocabulary {
    struct gguf *gguf;
    struct gguf_vocab v;
    struct gguf_string *sorted; /* [n_tokens] */
};

static int by_text(const void *a, const void *b)
{
    const struct gguf_string *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->data, y->data, n);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void make(struct made_vocabulary *m, const struct model_shape *s)
{
    struct gguf_out *out;
    ck_assert_msg(gguf_out_open(path, &out, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(vocabulary_keys(s, out), 0);
    ck_assert_msg(gguf_out_write(out, NULL, NULL, 1, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(gguf_out_commit(out, err, sizeof(err)), 0);
    gguf_out_close(out);
    ck_assert_msg(gguf_open(path, &m->gguf, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(gguf_vocab_open(m->gguf, &m->v, err, sizeof(err)) == 0, "%s", err);
    m->sorted = malloc(m->v.n_tokens * sizeof(*m->sorted));
    memcpy(m->sorted, m->v.tokens, m->v.n_tokens * sizeof(*m->sorted));
    qsort(m->sorted, m->v.n_tokens, sizeof(*m->sorted), by_text);
}

static void close_made(struct made_vocabulary *m)
{
    free(m->sorted);
    gguf_vocab_close(&m->v);
    gguf_close(m->gguf);
    unlink(path);
}

static bool known(const struct made_vocabulary *m, const char *data, size_t bytes)
{
    struct gguf_string text = {data, bytes};
    return bsearch(&text, m->sorted, m->v.n_tokens, sizeof(text), by_text) != NULL;
}

/* Every merge makes the next word of two known ones. */
static void check_merges(const struct made_vocabulary *m, const struct model_shape *s)
{
    ck_assert_uint_eq(m->v.n_merges, s->n_words - 256);
    for (uint32_t i = 0; i < m->v.n_merges; i++) {
        struct gguf_string merge = m->v.merges[i], token = m->v.tokens[256 + i];
        const char *gap = memchr(merge.data, ' ', merge.bytes);
        ck_assert_ptr_nonnull(gap);
        size_t left = (size_t)(gap - merge.data), right = merge.bytes - left - 1;
        ck_assert_uint_eq(left + right, token.bytes);
        ck_assert(memcmp(token.data, merge.data, left) == 0 &&
                  memcmp(token.data + left, gap + 1, right) == 0);
        ck_assert(known(m, merge.data, left) && known(m, gap + 1, right));
        ck_assert(left < token.bytes && right < token.bytes);
    }
}

/* SentencePiece: earlier words have higher scores, and a word is an earlier word and one more
 * letter. */
static void check_scores(const struct made_vocabulary *m, const struct model_shape *s)
{
    ck_assert_uint_eq(m->v.n_merges, 0);
    ck_assert_ptr_nonnull(m->v.scores);
    for (uint32_t i = 257; i < s->n_words; i++) {
        ck_assert(m->v.scores[i] < m->v.scores[i - 1]);
        struct gguf_string token = m->v.tokens[i];
        ck_assert(token.bytes == 1 || known(m, token.data, token.bytes - 1));
    }
}

START_TEST(tokens_are_distinct_and_merges_join_earlier_ones)
{
    const struct model_shape *s = &shapes[_i];
    bool spm = s->vocabulary == VOCABULARY_GEMMA;
    struct made_vocabulary m;
    make(&m, s);
    ck_assert_uint_eq(m.v.n_tokens, s->n_vocab);
    for (uint32_t i = 1; i < m.v.n_tokens; i++)
        ck_assert_msg(by_text(&m.sorted[i - 1], &m.sorted[i]) < 0, "twice: %.*s",
                      GGUF_SHOW(m.sorted[i]));
    if (spm)
        check_scores(&m, s);
    else
        check_merges(&m, s);
    for (uint32_t i = 0; i < m.v.n_tokens; i++) {
        int want = i >= s->n_words  ? GGUF_TOKEN_CONTROL
                   : spm && i < 256 ? GGUF_TOKEN_BYTE
                                    : GGUF_TOKEN_NORMAL;
        bool run = spm && i >= s->n_words + 7 && i < s->n_words + 13; /* of blanks or newlines */
        ck_assert_int_eq(m.v.types[i], run ? GGUF_TOKEN_USER_DEFINED : want);
    }
    close_made(&m);
}
END_TEST

/* The letters of GPT-2's bytes_to_unicode. */
START_TEST(bytes_come_first)
{
    const struct {
        uint32_t byte;
        const char *letter;
    } letters[] = {
        {0, "\xc4\x80"},    {' ', "\xc4\xa0"},  {'!', "!"},         {'~', "~"},
        {0x7f, "\xc4\xa1"}, {0xa0, "\xc5\x82"}, {0xa1, "\xc2\xa1"}, {0xad, "\xc5\x83"},
        {0xae, "\xc2\xae"}, {0xff, "\xc3\xbf"}, {'\n', "\xc4\x8a"},
    };
    struct made_vocabulary m;
    make(&m, shape_find("tiny"));
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        ck_assert_msg(gguf_string_equal(m.v.tokens[letters[i].byte], letters[i].letter), "%u",
                      letters[i].byte);
    close_made(&m);
}
END_TEST

START_TEST(special_tokens_have_their_ids)
{
    struct made_vocabulary m;
    make(&m, shape_find("qwen2.5-0.5b"));
    ck_assert_int_eq(m.v.ids.eos, 151645);
    ck_assert_int_eq(m.v.ids.fim_pre, 151646);
    ck_assert(gguf_string_equal(m.v.pre, "qwen2") && m.v.add_bos == 0);
    ck_assert(gguf_string_equal(m.v.tokens[151645], "<|im_end|>"));
    close_made(&m);
    make(&m, shape_find("llama-3.2-1b"));
    ck_assert_int_eq(m.v.ids.bos, 128000);
    ck_assert_int_eq(m.v.ids.eos, 128001);
    ck_assert_int_eq(m.v.ids.eot, 128009);
    ck_assert(gguf_string_equal(m.v.pre, "llama-bpe") && m.v.add_bos == 1);
    ck_assert(gguf_string_equal(m.v.tokens[128009], "<|eot_id|>"));
    ck_assert(gguf_string_equal(m.v.tokens[128010], "<|reserved_special_token_10|>"));
    close_made(&m);
    make(&m, shape_find("gemma-3-270m"));
    ck_assert_int_eq(m.v.ids.bos, 256002);
    ck_assert_int_eq(m.v.ids.eos, 256001);
    ck_assert_int_eq(m.v.ids.eot, 256006);
    ck_assert(gguf_string_equal(m.v.model, "llama") && m.v.add_bos == 1);
    ck_assert_int_eq(m.v.add_space_prefix, 0);
    ck_assert(gguf_string_equal(m.v.tokens[256006], "<end_of_turn>"));
    ck_assert(gguf_string_equal(m.v.tokens[256007], "\n\n"));
    close_made(&m);
}
END_TEST

static void make_path(void)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_path(void)
{
    unlink(path);
}

int main(void)
{
    Suite *s = suite_create("vocabulary");
    TCase *t = tcase_create("vocabulary");
    tcase_add_unchecked_fixture(t, make_path, remove_path);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, tokens_are_distinct_and_merges_join_earlier_ones, 0, (int)n_shapes);
    tcase_add_test(t, bytes_come_first);
    tcase_add_test(t, special_tokens_have_their_ids);
    suite_add_tcase(s, t);
    return run_suite(s);
}
