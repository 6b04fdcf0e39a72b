/* The vocabulary block: reading gives back what was built; invalid descriptions are refused. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/run_suite.h"
#include "ipc/vocab_layout.h"
#include "ipc/vocab_names.h"
#include "tests/rig/tiny_vocab.h"
#include "tests/rig/watched_vocab.h"

static char err[512];

static void assert_text(const char *got, uint32_t n, const char *want)
{
    ck_assert_uint_eq(n, strlen(want));
    ck_assert_mem_eq(got, want, n);
}

START_TEST(tokens_round_trip)
{
    struct tiny t;
    void *block;
    tiny_init_spm(&t, 1);
    uint32_t id = tiny_add(&t, "\xe2\x96\x81the", VOCAB_TYPE_NORMAL, -3.5f);
    struct vocab v = tiny_open(&t, &block);
    struct vocab_token token;
    ck_assert(vocab_find_token(&v, id, &token));
    assert_text(token.text, token.text_bytes, "\xe2\x96\x81the");
    assert_text(token.bytes, token.n_bytes, " the");
    ck_assert(token.score == -3.5f);
    ck_assert_int_eq(token.type, VOCAB_TYPE_NORMAL);
    ck_assert(!token.end);
    ck_assert(!vocab_find_token(&v, id + 1, &token));
    ck_assert(!vocab_find_token(&v, VOCAB_NONE, &token));
    uint32_t n = 7;
    ck_assert_ptr_null(vocab_bytes(&v, id + 1, &n));
    ck_assert_uint_eq(n, 0);
    free(block);
}
END_TEST

START_TEST(spm_bytes_follow_the_type)
{
    struct tiny t;
    void *block;
    uint32_t n;
    tiny_init_spm(&t, 1);
    uint32_t user = tiny_add(&t, "\xe2\x96\x81\xe2\x96\x81", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t plain = tiny_add(&t, "<0x0A", VOCAB_TYPE_NORMAL, 0);
    struct vocab v = tiny_open(&t, &block);
    const char *s = vocab_bytes(&v, 0, &n); /* the unknown token */
    assert_text(s, n, "\xef\xbf\xbd");
    s = vocab_bytes(&v, 2, &n);
    assert_text(s, n, "</s>");
    for (unsigned b = 0; b < 256; b++) {
        s = vocab_bytes(&v, 3 + b, &n);
        ck_assert_uint_eq(n, 1);
        ck_assert_uint_eq((unsigned char)s[0], b);
        ck_assert_uint_eq(vocab_byte_token(&v, (uint8_t)b), 3 + b);
    }
    s = vocab_bytes(&v, user, &n);
    assert_text(s, n, "  ");
    s = vocab_bytes(&v, plain, &n);
    assert_text(s, n, "<0x0A");
    struct vocab_token token;
    ck_assert(vocab_find_token(&v, plain, &token));
    ck_assert_ptr_eq(token.text, token.bytes); /* stored once */
    ck_assert(vocab_find_token(&v, user, &token));
    ck_assert_ptr_ne(token.text, token.bytes);
    free(block);
}
END_TEST

START_TEST(bpe_letters_are_bytes)
{
    struct tiny t;
    void *block;
    uint32_t n;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t word = tiny_merge(&t, " ", "\n");
    uint32_t raw = tiny_add(&t, "a \xe2\x82\xac", VOCAB_TYPE_NORMAL, 0); /* outside the alphabet */
    uint32_t user =
        tiny_add(&t, "\xc3\xbc", VOCAB_TYPE_USER_DEFINED, 0); /* stands for the character */
    struct vocab v = tiny_open(&t, &block);
    for (unsigned b = 0; b < 256; b++) {
        const char *s = vocab_bytes(&v, b, &n);
        ck_assert_uint_eq(n, 1);
        ck_assert_uint_eq((unsigned char)s[0], b);
        ck_assert_uint_eq(vocab_byte_token(&v, (uint8_t)b), b);
    }
    const char *s = vocab_bytes(&v, word, &n);
    assert_text(s, n, " \n");
    s = vocab_bytes(&v, raw, &n);
    assert_text(s, n, "a \xe2\x82\xac");
    s = vocab_bytes(&v, user, &n);
    assert_text(s, n, "\xc3\xbc");
    free(block);
}
END_TEST

START_TEST(missing_bytes_have_no_token)
{
    struct tiny t;
    void *block;
    tiny_init_spm(&t, 0);
    tiny_add(&t, "a", VOCAB_TYPE_NORMAL, 0);
    struct vocab v = tiny_open(&t, &block);
    for (unsigned b = 0; b < 256; b++)
        ck_assert_uint_eq(vocab_byte_token(&v, (uint8_t)b), VOCAB_NONE);
    free(block);
}
END_TEST

START_TEST(every_text_is_found)
{
    struct tiny t;
    void *block;
    tiny_init_spm(&t, 1);
    uint32_t nul = tiny_add_bytes(&t, "a\0b", 3, VOCAB_TYPE_NORMAL, 0);
    uint32_t twice = tiny_add(&t, "twice", VOCAB_TYPE_NORMAL, 0);
    tiny_add(&t, "twice", VOCAB_TYPE_NORMAL, 0);
    uint32_t n_distinct = t.desc.n_tokens - 1;
    tiny_add(&t, "", VOCAB_TYPE_NORMAL, 0);
    struct vocab v = tiny_open(&t, &block);
    for (uint32_t id = 0; id < n_distinct; id++)
        ck_assert_uint_eq(vocab_find_text(&v, t.texts[id].data, t.texts[id].bytes), id);
    ck_assert_uint_eq(vocab_find_text(&v, "a\0b", 3), nul);
    ck_assert_uint_eq(vocab_find_text(&v, "a\0c", 3), VOCAB_NONE);
    ck_assert_uint_eq(vocab_find_text(&v, "a", 1), VOCAB_NONE);
    ck_assert_uint_eq(vocab_find_text(&v, "", 0), VOCAB_NONE);
    ck_assert_uint_eq(vocab_find_text(&v, "twice", 5), twice);
    free(block);
}
END_TEST

START_TEST(merges_give_rank_and_result)
{
    struct tiny t;
    void *block;
    uint32_t rank, merged;
    tiny_init_bpe(&t, "gpt-2");
    uint32_t he = tiny_merge(&t, "h", "e");
    uint32_t hel = tiny_merge(&t, "he", "l");
    t.merges[t.desc.n_merges++] = tiny_keep(&t, "h e", 3);  /* again: the lower rank stays */
    t.merges[t.desc.n_merges++] = tiny_keep(&t, "h x", 3);  /* its result is not a token */
    t.merges[t.desc.n_merges++] = tiny_keep(&t, "zz h", 4); /* its left part is not a token */
    t.merges[t.desc.n_merges++] = tiny_keep(&t, "nospace", 7);
    t.merges[t.desc.n_merges++] = tiny_keep(&t, " h", 2);
    struct vocab v = tiny_open(&t, &block);
    ck_assert(vocab_find_merge(&v, 'h', 'e', &rank, &merged));
    ck_assert_uint_eq(rank, 0);
    ck_assert_uint_eq(merged, he);
    ck_assert(vocab_find_merge(&v, he, 'l', &rank, &merged));
    ck_assert_uint_eq(rank, 1);
    ck_assert_uint_eq(merged, hel);
    ck_assert(!vocab_find_merge(&v, 'e', 'h', &rank, &merged));
    ck_assert(!vocab_find_merge(&v, 'h', 'x', &rank, &merged));
    ck_assert(!vocab_find_merge(&v, VOCAB_NONE, VOCAB_NONE, &rank, &merged));
    free(block);
}
END_TEST

/* They are added some at a time: one too many of a group would be another's, or memory after them. */
START_TEST(many_merges_keep_their_ranks)
{
    static struct tiny t;
    void *block;
    uint32_t rank, merged, ids[70];
    tiny_init_bpe(&t, "gpt-2");
    for (uint32_t i = 0; i < 70; i++)
        ids[i] = tiny_merge(&t, (char[]){(char)('A' + i % 7), 0}, (char[]){(char)('K' + i / 7), 0});
    struct vocab v = tiny_open(&t, &block);
    for (uint32_t i = 0; i < 70; i++) {
        ck_assert(vocab_find_merge(&v, 'A' + i % 7, 'K' + i / 7, &rank, &merged));
        ck_assert_uint_eq(rank, i);
        ck_assert_uint_eq(merged, ids[i]);
    }
    free(block);
}
END_TEST

START_TEST(roles_are_taken_from_the_file)
{
    struct tiny t;
    void *block;
    tiny_init_bpe(&t, "gpt-2");
    tiny_merge(&t, "a", "b");
    uint32_t named = tiny_add(&t, "<|fim_prefix|>", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t stated = tiny_add(&t, "<begin-here>", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t eos = tiny_add(&t, "<stop>", VOCAB_TYPE_CONTROL, 0);
    t.desc.roles[VOCAB_FIM_PREFIX] = stated;
    t.desc.roles[VOCAB_EOS] = eos;
    struct vocab v = tiny_open(&t, &block);
    struct vocab_token token;
    ck_assert_uint_eq(vocab_special(&v, VOCAB_FIM_PREFIX), stated);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_EOS), eos);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_BOS), VOCAB_NONE);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_ROLE_COUNT), VOCAB_NONE);
    ck_assert(vocab_is_end(&v, eos));
    ck_assert(!vocab_is_end(&v, stated));
    ck_assert(!vocab_is_end(&v, v.n_tokens));
    ck_assert(vocab_find_token(&v, named, &token)); /* not needed: the file's type stays */
    ck_assert_int_eq(token.type, VOCAB_TYPE_USER_DEFINED);
    free(block);
}
END_TEST

START_TEST(roles_are_found_by_name)
{
    struct tiny t;
    void *block;
    tiny_init_bpe(&t, "qwen2");
    tiny_merge(&t, "a", "b");
    uint32_t end_text = tiny_add(&t, "<|endoftext|>", VOCAB_TYPE_CONTROL, 0);
    uint32_t im_end = tiny_add(&t, "<|im_end|>", VOCAB_TYPE_NORMAL, 0);
    uint32_t prefix = tiny_add(&t, "<|fim_prefix|>", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t suffix = tiny_add(&t, "<fim_suffix>", VOCAB_TYPE_NORMAL, 0);
    uint32_t middle = tiny_add(&t,
                               "<\xef\xbd\x9c"
                               "fim\xe2\x96\x81"
                               "end\xef\xbd\x9c>",
                               VOCAB_TYPE_NORMAL, 0);
    uint32_t file = tiny_add(&t, "<|file_sep|>", VOCAB_TYPE_NORMAL, 0);
    struct vocab v = tiny_open(&t, &block);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_EOT), im_end); /* the preferred name of the two */
    ck_assert_uint_eq(vocab_special(&v, VOCAB_FIM_PREFIX), prefix);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_FIM_SUFFIX), suffix);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_FIM_MIDDLE), middle);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_FIM_FILE), file);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_FIM_PAD), VOCAB_NONE);
    ck_assert(vocab_is_end(&v, im_end) && vocab_is_end(&v, end_text) && vocab_is_end(&v, file));
    ck_assert(!vocab_is_end(&v, prefix));
    ck_assert(vocab_is_control(&v, im_end) && vocab_is_control(&v, prefix));
    ck_assert(!vocab_is_control(&v, 'a') && !vocab_is_control(&v, v.n_tokens));
    free(block);
}
END_TEST

/* The tokens of o200k_harmony, whatever types a file gives them; without one of the two that end an
 * answer they are as in every vocabulary. */
START_TEST(an_answer_in_harmony_is_not_ended_by_one_of_its_messages)
{
    static const char *const names[] = {"<|return|>",  "<|call|>",    "<|end|>",      "<|start|>",
                                        "<|channel|>", "<|message|>", "<|constrain|>"};
    const bool harmony = _i < 2;
    struct tiny t;
    void *block;
    uint32_t id[7];
    size_t bytes;
    tiny_init_bpe(&t, "gpt-4o");
    tiny_merge(&t, "a", "b");
    for (uint32_t i = 0; i < 7; i++)
        id[i] = tiny_add(&t, i == 1 && !harmony ? "<|unused|>" : names[i],
                         _i ? VOCAB_TYPE_USER_DEFINED : VOCAB_TYPE_CONTROL, 0);
    if (_i == 1)
        t.desc.roles[VOCAB_EOT] = id[2];
    struct vocab v = tiny_open(&t, &block);
    for (uint32_t i = 0; i < 7; i++) {
        ck_assert_int_eq(vocab_is_end(&v, id[i]), harmony ? i < 2 : i == 2);
        ck_assert_int_eq(vocab_is_text(&v, id[i]), harmony ? i >= 2 : i != 2);
        ck_assert_int_eq(vocab_is_control(&v, id[i]), harmony || i == 2);
        ck_assert_int_eq(vocab_match_special(&v, names[i], strlen(names[i]), false, &bytes),
                         harmony || i == 1 || i == 2 ? VOCAB_NONE : id[i]);
    }
    ck_assert_uint_eq(vocab_special(&v, VOCAB_EOT), harmony ? id[0] : id[2]);
    ck_assert(vocab_is_text(&v, 'a') && !vocab_is_text(&v, v.n_tokens));
    free(block);
}
END_TEST

START_TEST(spm_has_its_default_flags)
{
    struct tiny t;
    void *block;
    tiny_init_spm(&t, 0);
    tiny_add(&t, "a", VOCAB_TYPE_NORMAL, 0);
    struct vocab v = tiny_open(&t, &block);
    ck_assert_int_eq(v.model, VOCAB_MODEL_SPM);
    ck_assert_int_eq(v.pre, VOCAB_PRE_NONE);
    ck_assert_uint_eq(v.flags, VOCAB_ADD_BOS | VOCAB_ADD_SPACE_PREFIX);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_UNK), 0);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_BOS), 1);
    ck_assert_uint_eq(vocab_special(&v, VOCAB_EOS), 2);
    ck_assert(vocab_is_end(&v, 2));
    free(block);
}
END_TEST

START_TEST(stated_flags_override_the_defaults)
{
    struct tiny t;
    void *block;
    tiny_init_spm(&t, 0);
    t.desc.add_bos = 0;
    t.desc.add_eos = 1;
    t.desc.add_space_prefix = 0;
    struct vocab v = tiny_open(&t, &block);
    ck_assert_uint_eq(v.flags, VOCAB_ADD_EOS);
    free(block);
    tiny_init_bpe(&t, "llama-bpe");
    tiny_merge(&t, "a", "b");
    v = tiny_open(&t, &block);
    ck_assert_uint_eq(v.flags, VOCAB_ADD_BOS | VOCAB_IGNORE_MERGES);
    free(block);
    t.desc.add_bos = 0;
    v = tiny_open(&t, &block);
    ck_assert_uint_eq(v.flags, VOCAB_IGNORE_MERGES);
    free(block);
}
END_TEST

START_TEST(types_are_guessed_where_none_are_given)
{
    struct tiny t;
    void *block;
    struct vocab_token token;
    tiny_init_spm(&t, 1);
    t.desc.types = NULL;
    t.desc.scores = NULL;
    for (int turn = 0; turn < 2; turn++) { /* no types, then all normal */
        struct vocab v = tiny_open(&t, &block);
        const int want[] = {VOCAB_TYPE_UNKNOWN, VOCAB_TYPE_CONTROL, VOCAB_TYPE_CONTROL,
                            VOCAB_TYPE_BYTE};
        for (uint32_t id = 0; id < 4; id++) {
            ck_assert(vocab_find_token(&v, id, &token));
            ck_assert_int_eq(token.type, want[id]);
        }
        ck_assert_uint_eq(vocab_byte_token(&v, 0x0a), 3 + 0x0a);
        free(block);
        for (uint32_t i = 0; i < t.desc.n_tokens; i++)
            t.types[i] = VOCAB_TYPE_NORMAL;
        t.desc.types = t.types;
    }
}
END_TEST

START_TEST(the_longest_special_token_matches)
{
    struct tiny t;
    void *block;
    size_t n = 0;
    tiny_init_bpe(&t, "gpt-2");
    tiny_merge(&t, "a", "b");
    uint32_t two = tiny_add(&t, "  ", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t four = tiny_add(&t, "    ", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t control = tiny_add(&t, "<x>", VOCAB_TYPE_CONTROL, 0);
    uint32_t user = tiny_add(&t, "<x>y", VOCAB_TYPE_USER_DEFINED, 0);
    struct vocab v = tiny_open(&t, &block);
    ck_assert_uint_eq(vocab_match_special(&v, "     ", 5, false, &n), four);
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(vocab_match_special(&v, "    ", 3, false, &n), two);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(vocab_match_special(&v, " ", 1, true, &n), VOCAB_NONE);
    ck_assert_uint_eq(vocab_match_special(&v, "", 0, true, &n), VOCAB_NONE);
    ck_assert_uint_eq(vocab_match_special(&v, "<x>z", 4, true, &n), control);
    ck_assert_uint_eq(vocab_match_special(&v, "<x>z", 4, false, &n), VOCAB_NONE);
    ck_assert_uint_eq(vocab_match_special(&v, "<x>y", 4, true, &n), user);
    ck_assert_uint_eq(vocab_match_special(&v, "<x", 2, true, &n), VOCAB_NONE);
    ck_assert_uint_eq(vocab_match_special(&v, "ab", 2, true, &n), VOCAB_NONE);
    free(block);
}
END_TEST

static struct vocab_string string(const char *s)
{
    return (struct vocab_string){s, strlen(s)};
}

START_TEST(pre_tokenizers_are_found_by_name)
{
    static const struct {
        const char *name;
        enum vocab_pre pre;
    } cases[] = {
        {"", VOCAB_PRE_DEFAULT},
        {"default", VOCAB_PRE_DEFAULT},
        {"gpt-2", VOCAB_PRE_GPT2},
        {"llama-bpe", VOCAB_PRE_LLAMA3},
        {"llama3", VOCAB_PRE_LLAMA3},
        {"qwen2", VOCAB_PRE_QWEN2},
        {"deepseek-r1-qwen", VOCAB_PRE_QWEN2},
        {"starcoder", VOCAB_PRE_STARCODER},
        {"smollm", VOCAB_PRE_STARCODER},
        {"refact", VOCAB_PRE_STARCODER},
        {"deepseek-llm", VOCAB_PRE_DEEPSEEK_LLM},
        {"deepseek-coder", VOCAB_PRE_DEEPSEEK_CODER},
        {"deepseek-v3", VOCAB_PRE_DEEPSEEK_V3},
        {"tekken", VOCAB_PRE_TEKKEN},
        {"glm4", VOCAB_PRE_LLAMA3},
        {"kanana2", VOCAB_PRE_GPT4O},
        {"bailingmoe2", VOCAB_PRE_QWEN2},
        {"hy_v4", VOCAB_PRE_DEEPSEEK_V3},
        {"poro-chat", VOCAB_PRE_BLOOM},
    };
    uint32_t flags;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum vocab_pre pre = VOCAB_PRE_NONE;
        ck_assert_int_eq(
            vocab_names_find_pre(string(cases[i].name), &pre, &flags, err, sizeof(err)), 0);
        ck_assert_msg(pre == cases[i].pre, "%s", cases[i].name);
    }
    for (int p = VOCAB_PRE_NONE + 1; p < VOCAB_PRE_COUNT; p++) { /* each is found by its own name */
        enum vocab_pre pre = VOCAB_PRE_NONE;
        struct vocab_string name = string(vocab_pre_name((enum vocab_pre)p));
        ck_assert_int_eq(vocab_names_find_pre(name, &pre, &flags, err, sizeof(err)), 0);
        ck_assert_int_eq(pre, p);
    }
}
END_TEST

/* Refused by the check and by building it, with the same message. */
static void check_refused(const struct vocab_desc *d)
{
    char looked[sizeof(err)];
    void *block = NULL;
    size_t bytes;
    ck_assert_int_eq(vocab_check(d, looked, sizeof(looked)), -EINVAL);
    ck_assert_int_eq(vocab_build(d, &block, &bytes, err, sizeof(err)), -EINVAL);
    ck_assert_str_eq(looked, err);
}

START_TEST(unknown_tokenizers_are_named)
{
    struct tiny t;
    void *block;
    size_t bytes;
    tiny_init_bpe(&t, "xyz");
    tiny_merge(&t, "a", "b");
    check_refused(&t.desc);
    ck_assert_str_eq(err, "pre-tokenizer 'xyz' is not known to hearth");
    t.desc.pre = string("x\xc2\x9b"
                        "2J\n");
    check_refused(&t.desc);
    ck_assert_str_eq(err, "pre-tokenizer 'x?\?2J?' is not known to hearth");
    t.desc.model = string("bert\x9b");
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "tokenizer 'bert?' is not known"));
    t.desc.model = string("bert");
    check_refused(&t.desc);
    ck_assert_str_eq(err, "tokenizer 'bert' is not known to hearth; known: llama (SentencePiece), "
                          "gpt2 (byte-level BPE), gemma4");
    tiny_init_spm(&t, 0);
    t.desc.pre = string("xyz"); /* SPM has no pre-tokenizer: the name does not matter */
    ck_assert_int_eq(vocab_build(&t.desc, &block, &bytes, err, sizeof(err)), 0);
    free(block);
}
END_TEST

START_TEST(senseless_descriptions_are_refused)
{
    struct tiny t;
    tiny_init_bpe(&t, "gpt-2");
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "no merges"));
    tiny_merge(&t, "a", "b");
    const uint32_t n_merges = t.desc.n_merges;
    t.desc.n_merges = VOCAB_MAX_TOKENS + 1; /* none of which is looked at */
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "at most"));
    t.desc.n_merges = n_merges;
    t.desc.roles[VOCAB_EOS] = t.desc.n_tokens;
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "257"));
    t.desc.roles[VOCAB_EOS] = -1;
    t.texts[5].bytes = VOCAB_MAX_TEXT_BYTES + 1;
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "token 5"));
    t.texts[5].bytes = 1;
    t.desc.templates[0] = (struct vocab_string){"{{}}", VOCAB_MAX_TEMPLATE_BYTES + 1};
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "chat template"));
    t.desc.n_tokens = 0;
    check_refused(&t.desc);
    ck_assert_ptr_nonnull(strstr(err, "no tokens"));
}
END_TEST

START_TEST(the_texts_have_a_size_together)
{
    enum { MOST = VOCAB_MAX_TEXTS_BYTES / VOCAB_MAX_TEXT_BYTES };
    static char text[VOCAB_MAX_TEXT_BYTES];
    static struct vocab_string texts[MOST + 1];
    struct vocab_desc d;
    vocab_desc_init(&d);
    d.model = string("llama");
    d.texts = texts;
    for (uint32_t i = 0; i < MOST + 1; i++)
        texts[i] = (struct vocab_string){text, sizeof(text)};
    d.n_tokens = MOST;
    ck_assert_int_eq(vocab_check(&d, err, sizeof(err)), 0);
    d.n_tokens = MOST + 1;
    ck_assert_int_eq(vocab_check(&d, err, sizeof(err)), -EINVAL);
    ck_assert_str_eq(err, "the texts of the vocabulary take 16842495 bytes; at most 16777216 are "
                          "supported");
}
END_TEST

/* Gemma 3 has 6,242 of them, and a text may be nothing but `<`. */
START_TEST(many_special_tokens_that_begin_alike_are_not_looked_through)
{
    enum { N = 20000 };
    static char pool[N][16];
    static struct vocab_string texts[N];
    static int32_t types[N];
    struct vocab_desc d;
    void *block;
    size_t bytes, n = 0;
    vocab_desc_init(&d);
    d.model = string("llama");
    d.n_tokens = N;
    d.texts = texts;
    d.types = types;
    for (uint32_t i = 0; i < N; i++) {
        snprintf(pool[i], sizeof(pool[i]), "<unused%u>", i * 7919 % N);
        texts[i] = string(pool[i]);
        types[i] = i % 3 == 0 ? VOCAB_TYPE_CONTROL : VOCAB_TYPE_USER_DEFINED;
    }
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), 0);
    struct vocab v = watched_vocab_open(block, bytes);
    ck_assert_uint_gt(watched_vocab_pages(), 90);
    ck_assert_uint_eq(vocab_match_special(&v, "<<<<<<<<<<<<<<<<", 16, false, &n), VOCAB_NONE);
    ck_assert_uint_le(watched_vocab_read(),
                      60); /* 5 lengths, each in 15 looks, then in the pages of others */
    for (uint32_t i = 0; i < N; i++) {
        const bool control = types[i] == VOCAB_TYPE_CONTROL;
        const size_t length = texts[i].bytes;
        ck_assert_uint_eq(vocab_match_special(&v, pool[i], length, true, &n), i);
        ck_assert_uint_eq(n, length);
        ck_assert_uint_eq(vocab_match_special(&v, pool[i], length, false, &n),
                          control ? VOCAB_NONE : i);
        ck_assert_uint_eq(vocab_match_special(&v, pool[i], length - 1, true, &n), VOCAB_NONE);
    }
    free(block);
}
END_TEST

START_TEST(equal_special_tokens_are_taken_by_kind_then_by_id)
{
    struct tiny t;
    void *block;
    size_t n = 0;
    tiny_init_spm(&t, 0);
    uint32_t user = tiny_add(&t, "<x>", VOCAB_TYPE_USER_DEFINED, 0);
    uint32_t control = tiny_add(&t, "<x>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&t, "<x>", VOCAB_TYPE_USER_DEFINED, 0);
    tiny_add(&t, "<x>", VOCAB_TYPE_CONTROL, 0);
    struct vocab v = tiny_open(&t, &block);
    ck_assert_uint_eq(vocab_match_special(&v, "<x>", 3, true, &n), control);
    ck_assert_uint_eq(vocab_match_special(&v, "<x>", 3, false, &n), user);
    free(block);
}
END_TEST

/* Builds a vocabulary of texts of so many bytes, which lie next to each other. Returns what that
 * returns. */
static int build_of_equals(const char *pool, uint32_t n, size_t text_bytes)
{
    struct vocab_string *texts = calloc(n, sizeof(*texts));
    struct vocab_desc d;
    void *block = NULL;
    size_t bytes;
    vocab_desc_init(&d);
    d.model = string("llama");
    d.n_tokens = n;
    d.texts = texts;
    for (uint32_t i = 0; i < n; i++)
        texts[i] = (struct vocab_string){pool + text_bytes * i, text_bytes};
    int rc = vocab_build(&d, &block, &bytes, err, sizeof(err));
    if (rc == 0)
        free(block);
    free(texts);
    return rc;
}

static int build_of_sixteens(const char *pool, uint32_t n)
{
    return build_of_equals(pool, n, 16);
}

static uint64_t hash_of(uint64_t first, uint64_t second, char text[16])
{
    memcpy(text, &first, 8);
    memcpy(text + 8, &second, 8);
    return vocab_hash_text(text, 16);
}

/* The hash goes on with a word. */
static uint64_t hash_on(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xd6e8feb86659fd93ull;
    return h ^ (h >> 32);
}

static uint64_t hash_begun(size_t bytes)
{
    return 0x9e3779b97f4a7c15ull ^ (bytes * 0xff51afd7ed558ccdull);
}

/* What the hash of a text of sixteen bytes is after eight of them. */
static uint64_t half_hash(uint64_t first)
{
    return hash_on(hash_begun(16), first);
}

START_TEST(texts_of_one_hash_are_refused)
{
    enum { N = 4096 };
    static char pool[16 * N];
    for (uint32_t i = 0; i < N; i++) /* the second half makes up for what the first one did */
        ck_assert_uint_eq(hash_of(i, half_hash(i), pool + 16 * (size_t)i),
                          hash_of(0, half_hash(0), (char[16]){0}));
    ck_assert_int_eq(build_of_sixteens(pool, 256), 0);
    ck_assert_int_eq(build_of_sixteens(pool, N), -EBADMSG);
    ck_assert_str_eq(err,
                     "the vocabulary is malformed: its texts were chosen to be hard to look up");
}
END_TEST

/* They differ in their last sixteen bytes, of which the second half makes up for the first one. */
START_TEST(long_texts_of_one_hash_are_refused)
{
    enum { N = 64, BYTES = 32768 };
    char *pool = malloc(N * BYTES);
    uint64_t begun = hash_begun(BYTES), word;
    ck_assert_ptr_nonnull(pool);
    memset(pool, 'x', N * BYTES);
    memcpy(&word, pool, 8);
    for (uint32_t i = 0; i < (BYTES - 16) / 8; i++)
        begun = hash_on(begun, word);
    for (uint64_t i = 0; i < N; i++) {
        char *text = pool + BYTES * i;
        const uint64_t half = hash_on(begun, i);
        memcpy(text + BYTES - 16, &i, 8);
        memcpy(text + BYTES - 8, &half, 8);
        ck_assert_uint_eq(vocab_hash_text(text, BYTES), vocab_hash_text(pool, BYTES));
    }
    ck_assert_int_eq(build_of_equals(pool, 16, BYTES), 0);
    ck_assert_int_eq(build_of_equals(pool, N, BYTES), -EBADMSG);
    free(pool);
}
END_TEST

/* None of them is far from its place, but one that is not there is looked for in all of them. */
START_TEST(texts_that_lie_in_one_row_are_refused)
{
    enum { N = 4096 };
    static char pool[16 * N];
    static bool taken[2 * N];
    uint32_t n = 0;
    for (uint64_t i = 0; n < N; i++) {
        uint32_t at = (uint32_t)hash_of(i, 0, pool + 16 * (size_t)n) & (2 * N - 1);
        n += at < N && !taken[at];
        taken[at] = true;
    }
    ck_assert_int_eq(build_of_sixteens(pool, N), -EBADMSG);
    for (n = 0; n < N; n++)
        hash_of(n, 0, pool + 16 * (size_t)n);
    ck_assert_int_eq(build_of_sixteens(pool, N), 0);
}
END_TEST

/* The tokens are all texts of two letters up to a length; the merges, of all that there may be,
 * some whose places are among the first of the table. */
START_TEST(merges_that_lie_in_one_row_are_refused)
{
    enum { LONGEST = 9, N_WORDS = (2 << LONGEST) - 2, N = 1024 };
    static char words[N_WORDS][LONGEST], pairs[N][LONGEST + 1];
    static struct vocab_string texts[N_WORDS], merges[N];
    struct vocab_desc d;
    void *block;
    size_t bytes;
    uint32_t n = 0;
    vocab_desc_init(&d);
    d.model = string("gpt2");
    d.n_tokens = N_WORDS;
    d.texts = texts;
    d.merges = merges;
    for (uint32_t length = 1, id = 0; length <= LONGEST; length++)
        for (uint32_t bits = 0; bits < 1u << length; bits++, id++) {
            for (uint32_t k = 0; k < length; k++)
                words[id][k] = (char)('a' + (bits >> k & 1));
            texts[id] = (struct vocab_string){words[id], length};
        }
    for (uint32_t left = 0; left < N_WORDS; left++)
        for (uint32_t right = 0; right < N_WORDS && n < N; right++) {
            const size_t n_left = texts[left].bytes, n_right = texts[right].bytes;
            if (n_left + n_right > LONGEST || (vocab_hash_pair(left, right) & 2047) >= N / 2)
                continue;
            memcpy(pairs[n], words[left], n_left);
            pairs[n][n_left] = ' ';
            memcpy(pairs[n] + n_left + 1, words[right], n_right);
            merges[n] = (struct vocab_string){pairs[n], n_left + 1 + n_right};
            n++;
        }
    ck_assert_uint_eq(n, N);
    d.n_merges = N / 4;
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), 0);
    free(block);
    d.n_merges = N;
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), -EBADMSG);
}
END_TEST

/* Few enough texts of one hash to be taken, but each merge is of two that all others are compared
 * with. */
START_TEST(merges_of_texts_of_one_hash_are_refused)
{
    enum { TOKENS = 256, LAST = TOKENS - 1, N = 4096 };
    static char pool[16 * TOKENS], merge[33];
    static struct vocab_string texts[TOKENS], merges[N];
    struct vocab_desc d;
    void *block;
    size_t bytes;
    vocab_desc_init(&d);
    d.model = string("gpt2");
    d.n_tokens = TOKENS;
    d.texts = texts;
    d.merges = merges;
    for (uint32_t i = 0; i < TOKENS; i++) {
        texts[i] = (struct vocab_string){pool + 16 * (size_t)i, 16};
        hash_of(i | 0x0101010101010100, half_hash(i | 0x0101010101010100), pool + 16 * (size_t)i);
    }
    ck_assert_ptr_null(memchr(texts[LAST].data, ' ', 16)); /* it would end the left part */
    memcpy(merge, texts[LAST].data, 16);
    merge[16] = ' ';
    memcpy(merge + 17, texts[LAST].data, 16);
    for (uint32_t i = 0; i < N; i++)
        merges[i] = (struct vocab_string){merge, sizeof(merge)};
    d.n_merges = N / 16;
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), 0);
    free(block);
    d.n_merges = N;
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), -EBADMSG);
    ck_assert_str_eq(err,
                     "the vocabulary is malformed: its texts were chosen to be hard to look up");
}
END_TEST

START_TEST(special_tokens_of_many_lengths_are_refused)
{
    enum { N = 130 }; /* and 128 are taken */
    static char spaces[N + 1];
    static struct vocab_string texts[N];
    static int32_t types[N];
    struct vocab_desc d;
    void *block;
    size_t bytes;
    memset(spaces, ' ', N);
    vocab_desc_init(&d);
    d.model = string("llama");
    d.texts = texts;
    d.types = types;
    texts[0] = string("other");
    types[0] = VOCAB_TYPE_CONTROL;
    for (uint32_t i = 1; i < N; i++) {
        texts[i] = (struct vocab_string){spaces, i};
        types[i] = VOCAB_TYPE_USER_DEFINED;
    }
    d.n_tokens = N - 1;
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), 0);
    free(block);
    d.n_tokens = N;
    ck_assert_int_eq(vocab_build(&d, &block, &bytes, err, sizeof(err)), -EBADMSG);
}
END_TEST

START_TEST(equal_descriptions_give_equal_blocks)
{
    struct tiny *t = malloc(sizeof(*t));
    void *a, *b;
    size_t n_a, n_b;
    tiny_init_bpe(t, "gpt-2");
    tiny_merge(t, "a", "b");
    ck_assert_int_eq(vocab_build(&t->desc, &a, &n_a, err, sizeof(err)), 0);
    ck_assert_int_eq(vocab_build(&t->desc, &b, &n_b, err, sizeof(err)), 0);
    ck_assert_uint_eq(n_a, n_b);
    ck_assert_mem_eq(a, b, n_a);
    free(a);
    free(b);
    free(t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vocab");
    TCase *c = tcase_create("vocab");
    tcase_add_test(c, tokens_round_trip);
    tcase_add_test(c, special_tokens_of_many_lengths_are_refused);
    tcase_add_test(c, spm_bytes_follow_the_type);
    tcase_add_test(c, bpe_letters_are_bytes);
    tcase_add_test(c, missing_bytes_have_no_token);
    tcase_add_test(c, every_text_is_found);
    tcase_add_test(c, merges_give_rank_and_result);
    tcase_add_test(c, many_merges_keep_their_ranks);
    tcase_add_test(c, roles_are_taken_from_the_file);
    tcase_add_test(c, roles_are_found_by_name);
    tcase_add_loop_test(c, an_answer_in_harmony_is_not_ended_by_one_of_its_messages, 0, 3);
    tcase_add_test(c, spm_has_its_default_flags);
    tcase_add_test(c, stated_flags_override_the_defaults);
    tcase_add_test(c, types_are_guessed_where_none_are_given);
    tcase_add_test(c, the_longest_special_token_matches);
    tcase_add_test(c, pre_tokenizers_are_found_by_name);
    tcase_add_test(c, unknown_tokenizers_are_named);
    tcase_add_test(c, senseless_descriptions_are_refused);
    tcase_add_test(c, many_special_tokens_that_begin_alike_are_not_looked_through);
    tcase_add_test(c, equal_special_tokens_are_taken_by_kind_then_by_id);
    tcase_add_test(c, texts_of_one_hash_are_refused);
    tcase_add_test(c, long_texts_of_one_hash_are_refused);
    tcase_add_test(c, texts_that_lie_in_one_row_are_refused);
    tcase_add_test(c, merges_that_lie_in_one_row_are_refused);
    tcase_add_test(c, the_texts_have_a_size_together);
    tcase_add_test(c, merges_of_texts_of_one_hash_are_refused);
    tcase_add_test(c, equal_descriptions_give_equal_blocks);
    suite_add_tcase(s, c);
    return run_suite(s);
}
