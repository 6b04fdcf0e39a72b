/* Fill-in-the-middle prompts: which form a vocabulary gets, what is in it, what stays the same
 * while one types. Own small vocabularies; real ones from HEARTH_TESTDATA where it is set. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/fim_form.h"
#include "client/prompt/fim.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"
#include "tests/rig/vocab_file.h"

static char err[512];
static struct tiny tiny;
static void *block;
static struct vocab v;
static struct fim_text *text;
static struct token_list out;

static void setup(void)
{
    block = NULL;
    text = fim_text_open();
    token_list_init(&out);
}

static void teardown(void)
{
    token_list_fini(&out);
    fim_text_close(text);
    free(block);
}

/* Bytes, and control tokens of these names. */
static void open_bpe(const char *pre, const char *const *names)
{
    tiny_init_bpe(&tiny, pre);
    tiny_merge(&tiny, "\x01", "\x01"); /* there must be one */
    for (; *names; names++)
        tiny_add(&tiny, *names, VOCAB_TYPE_CONTROL, 0);
    v = tiny_open(&tiny, &block);
}
#define OPEN_BPE(pre, ...) open_bpe(pre, (const char *const[]){__VA_ARGS__, NULL})

static struct hearth_fim request(const char *prefix, const char *suffix)
{
    struct hearth_fim f;
    hearth_fim_init(&f, sizeof(f));
    f.prefix = prefix;
    f.prefix_bytes = strlen(prefix);
    f.suffix = suffix;
    f.suffix_bytes = strlen(suffix);
    return f;
}

/* The prompt as text, control tokens by their names. */
static const char *shown(const struct hearth_fim *f, uint32_t context)
{
    static char s[1 << 16];
    size_t n = 0;
    int rc = fim_prompt(&v, text, f, context, &out, err, sizeof(err));
    ck_assert_msg(rc == 0, "%d %s", rc, err);
    for (size_t i = 0; i < out.n; i++) {
        uint32_t bytes;
        const char *b = vocab_bytes(&v, out.ids[i], &bytes);
        if (n + bytes >= sizeof(s)) /* an assertion for each is slow */
            ck_abort_msg("a prompt of more than %zu bytes", n);
        memcpy(s + n, b, bytes);
        n += bytes;
    }
    s[n] = 0;
    return s;
}

/* ---- forms ----------------------------------------------------------------------------------- */

START_TEST(the_fim_form_follows_the_vocabulary)
{
    const struct hearth_fim f = request("pre", "suf");
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_str_eq(shown(&f, 512), "<|fim_prefix|>pre<|fim_suffix|>suf<|fim_middle|>");
    free(block);
    OPEN_BPE("gpt-2", "<|begin|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_str_eq(shown(&f, 512), "<|fim_suffix|>suf<|fim_prefix|>pre<|fim_middle|>");
    free(block);
    OPEN_BPE("starcoder", "<fim_prefix>", "<fim_suffix>", "<fim_middle>");
    ck_assert_str_eq(shown(&f, 512), "<fim_prefix><fim_suffix>suf<fim_middle>pre");
    free(block);
    OPEN_BPE("mellum", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<filename>");
    ck_assert_str_eq(shown(&f, 512), "<fim_suffix>suf<fim_prefix>pre<fim_middle>");
    free(block);
    OPEN_BPE("tekken", "[PREFIX]", "[SUFFIX]");
    ck_assert_str_eq(shown(&f, 512), "[SUFFIX]suf[PREFIX]pre");
    free(block);
    OPEN_BPE("gpt-2", "<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>");
    ck_assert_str_eq(shown(&f, 512), "<[fim-suffix]>suf<[fim-prefix]>pre<[fim-middle]>");
}
END_TEST

START_TEST(the_order_can_be_chosen)
{
    struct hearth_fim f = request("pre", "suf");
    f.middle = "mid";
    f.middle_bytes = 3;
    f.order = HEARTH_FIM_SPM;
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_str_eq(shown(&f, 512), "<|fim_suffix|>suf<|fim_prefix|>pre<|fim_middle|>mid");
    free(block);
    OPEN_BPE("starcoder", "<fim_prefix>", "<fim_suffix>", "<fim_middle>");
    ck_assert_str_eq(shown(&f, 512), "<fim_prefix><fim_suffix>suf<fim_middle>premid");
    f.order = HEARTH_FIM_PSM;
    ck_assert_str_eq(shown(&f, 512), "<fim_prefix>pre<fim_suffix>suf<fim_middle>mid");
    f.order = HEARTH_FIM_PLAIN;
    ck_assert_str_eq(shown(&f, 512), "premid");
    f.order = HEARTH_FIM_PLAIN + 1;
    ck_assert_int_eq(fim_prompt(&v, text, &f, 512, &out, err, sizeof(err)), -EINVAL);
}
END_TEST

START_TEST(a_model_without_fim_tokens_is_reported)
{
    const struct hearth_fim f = request("pre", "suf");
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>"); /* no middle */
    ck_assert_int_eq(fim_prompt(&v, text, &f, 512, &out, err, sizeof(err)), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err, "no fill-in-the-middle tokens"));
    ck_assert_int_eq(fim_find(&v, HEARTH_FIM_SPM), FIM_NONE);
    struct hearth_fim plain = f;
    plain.order = HEARTH_FIM_PLAIN;
    ck_assert_str_eq(shown(&plain, 512), "pre");
}
END_TEST

START_TEST(control_tokens_in_a_text_stay_plain_text)
{
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    const struct hearth_fim f = request("<|fim_middle|>", "<|fim_prefix|>");
    (void)shown(&f, 512);
    uint32_t middle = vocab_special(&v, VOCAB_FIM_MIDDLE), n = 0;
    for (size_t i = 0; i < out.n; i++)
        n += out.ids[i] == middle;
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(out.ids[out.n - 1], middle);
    ck_assert_uint_eq(out.n, 3 + 2 * strlen("<|fim_middle|>"));
}
END_TEST

START_TEST(sentencepiece_puts_a_space_before_the_prefix_alone)
{
    tiny_init_spm(&tiny, 1);
    tiny.desc.roles[VOCAB_BOS] = 1;
    tiny.desc.add_bos = 1;
    tiny.desc.add_space_prefix = 1;
    tiny_add(&tiny, "\xe2\x96\x81", VOCAB_TYPE_NORMAL, -1);
    tiny_add(&tiny, "\xe2\x96\x81<PRE>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&tiny, "\xe2\x96\x81<SUF>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(&tiny, "\xe2\x96\x81<MID>", VOCAB_TYPE_CONTROL, 0);
    v = tiny_open(&tiny, &block);
    struct hearth_fim f = request("p", "s");
    const char *s = shown(&f, 512);
    ck_assert_msg(strstr(s, "<SUF>s") && strstr(s, "<MID> p"), "%s", s);
    ck_assert_uint_eq(out.ids[0], 1); /* bos */
    ck_assert_uint_eq(out.n, 7);
}
END_TEST

/* ---- chunks ---------------------------------------------------------------------------------- */

static const struct hearth_chunk chunks[] = {{"a.py", "one\n", 4}, {"b.py", "two", 3}};

START_TEST(chunks_stand_in_files_where_the_vocabulary_has_such)
{
    struct hearth_fim f = request("pre", "suf");
    f.extra = chunks;
    f.n_extra = 2;
    f.repo = "demo";
    f.name = "c.py";
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>",
             "<|file_sep|>");
    ck_assert_str_eq(shown(&f, 512), "<|repo_name|>demo\n<|file_sep|>a.py\none\n<|file_sep|>b.py\n"
                                     "two\n<|file_sep|>c.py\n"
                                     "<|fim_prefix|>pre<|fim_suffix|>suf<|fim_middle|>");
    f.repo = f.name = NULL;
    ck_assert_str_eq(shown(&f, 512), "<|file_sep|>a.py\none\n<|file_sep|>b.py\ntwo\n"
                                     "<|fim_prefix|>pre<|fim_suffix|>suf<|fim_middle|>");
}
END_TEST

START_TEST(chunks_are_plain_text_elsewhere)
{
    struct hearth_fim f = request("pre", "suf");
    f.extra = chunks;
    f.n_extra = 2;
    f.repo = "demo";
    f.name = "c.py";
    OPEN_BPE("gpt-2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_str_eq(shown(&f, 512),
                     "a.py\none\nb.py\ntwo\n<|fim_prefix|>pre<|fim_suffix|>suf<|fim_middle|>");
}
END_TEST

START_TEST(chunks_go_first_where_there_is_no_room)
{
    char big[400];
    memset(big, 'x', sizeof(big));
    const struct hearth_chunk many[] = {{"a", "one\n", 4}, {"b", big, sizeof(big)}, {"c", "z", 1}};
    struct hearth_fim f = request("pre", "suf");
    f.extra = many;
    f.n_extra = 3;
    f.max_tokens = 200;
    OPEN_BPE("gpt-2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_str_eq(shown(&f, 512), "a\none\n<|fim_prefix|>pre<|fim_suffix|>suf<|fim_middle|>");
}
END_TEST

/* ---- what is left out ------------------------------------------------------------------------ */

enum { LINE = 20 };

/* n lines of 20 bytes, "line x000012345678.\n". */
static char *lines(size_t n)
{
    char *s = malloc(n * LINE + 1);
    for (size_t i = 0; i < n; i++)
        snprintf(s + i * LINE, LINE + 1, "line x%012u.\n", (unsigned)i % 1000000u);
    return s;
}

START_TEST(far_ends_are_cut_at_line_breaks)
{
    char *prefix = lines(500), *suffix = lines(500);
    struct hearth_fim f = request(prefix, suffix);
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    const char *s = shown(&f, 4096), *line = s + strlen("<|fim_prefix|>");
    ck_assert_uint_le(out.n, 4096 - 512);
    ck_assert_uint_ge(out.n, (4096 - 512) / 4 * 3);
    ck_assert_int_eq(memcmp(line, "line ", 5), 0);
    const char *suf = strstr(s, "<|fim_suffix|>");
    ck_assert_ptr_nonnull(suf);
    ck_assert_int_eq(memcmp(suf - LINE, prefix + 499 * LINE, LINE), 0); /* up to the cursor */
    suf += strlen("<|fim_suffix|>");
    ck_assert_int_eq(memcmp(suf, suffix, LINE), 0);
    const char *mid = strstr(suf, "<|fim_middle|>");
    ck_assert_ptr_nonnull(mid);
    ck_assert_int_eq(mid[-1], '\n');
    ck_assert_uint_ge((size_t)(mid - suf), (4096 - 512) / 5); /* about a quarter */
    free(prefix);
    free(suffix);
}
END_TEST

/* A line break that lies far from the cut is not where the text is cut. */
START_TEST(a_long_line_is_cut_within)
{
    const size_t n = 100000, short_line = 10;
    char *prefix = malloc(n + 1), *suffix = malloc(n + 1);
    memset(prefix, 'p', n);
    memset(suffix, 's', n);
    prefix[n] = suffix[n] = 0;
    prefix[n - short_line] = suffix[short_line] = '\n';
    const struct hearth_fim f = request(prefix, suffix);
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    const char *s = shown(&f, 4096), *suf = strstr(s, "<|fim_suffix|>");
    ck_assert_ptr_nonnull(suf);
    ck_assert_int_gt(suf - s, (4096 - 512) / 2);
    suf += strlen("<|fim_suffix|>");
    ck_assert_int_ge(strstr(suf, "<|fim_middle|>") - suf, (4096 - 512) / 5);
    free(prefix);
    free(suffix);
}
END_TEST

/* Types `n` characters after 400 lines, and counts how often something else than the prompt's end
 * changed. */
static int breaks_while_typing(size_t n, size_t tail)
{
    char *prefix = lines(400), *suffix = lines(100), typed[20000];
    struct token_list before;
    int breaks = 0;
    token_list_init(&before);
    ck_assert_uint_lt(400 * LINE + n, sizeof(typed));
    memcpy(typed, prefix, 400 * LINE);
    for (size_t i = 0; i < n; i++) {
        typed[400 * LINE + i] = i % 30 == 29 ? '\n' : (char)('a' + i % 26);
        typed[400 * LINE + i + 1] = 0;
        struct hearth_fim f = request(typed, suffix);
        if (fim_prompt(&v, text, &f, 4096, &out, err, sizeof(err)) || out.n > 4096 - 512)
            ck_abort_msg("%zu tokens; %s", out.n, err);
        size_t same = 0;
        while (same < before.n && same < out.n && before.ids[same] == out.ids[same])
            same++;
        breaks += i && before.n - same > tail;
        struct token_list other = before;
        before = out;
        out = other;
    }
    token_list_fini(&before);
    free(prefix);
    free(suffix);
    return breaks;
}

START_TEST(typing_changes_the_end_alone)
{
    OPEN_BPE("gpt-2", "<|begin|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    int breaks = breaks_while_typing(2000, 2); /* 2,000 tokens: five steps of 448 */
    ck_assert_int_ge(breaks, 4);
    ck_assert_int_le(breaks, 10); /* a step of the prefix, and of what is left for the suffix */
}
END_TEST

START_TEST(a_prefix_of_megabytes_is_cut_before_it_is_tokenized)
{
    size_t n = 200000;
    char *prefix = lines(n), *suffix = lines(n);
    struct hearth_fim f = request(prefix, suffix);
    f.step_bytes = 3 * 4096 * 8;
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_int_eq(fim_prompt(&v, text, &f, 4096, &out, err, sizeof(err)), 0);
    free(prefix);
    free(suffix);
}
END_TEST

START_TEST(a_middle_without_room_is_an_error)
{
    char *middle = lines(20);
    struct hearth_fim f = request("p", "s");
    f.middle = middle;
    f.middle_bytes = strlen(middle);
    f.max_tokens = 300;
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    ck_assert_int_eq(fim_prompt(&v, text, &f, 4096, &out, err, sizeof(err)), -E2BIG);
    ck_assert_ptr_nonnull(strstr(err, "raise max_tokens"));
    free(middle);
}
END_TEST

/* ---- blocks ---------------------------------------------------------------------------------- */

START_TEST(a_step_tokenizes_its_budget_and_the_next_continues)
{
    char *prefix = lines(300);
    struct hearth_fim f = request(prefix, "");
    OPEN_BPE("qwen2", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    f.step_bytes = 600;
    int rc, steps = 0;
    while ((rc = fim_prompt(&v, text, &f, 8192, &out, err, sizeof(err))) == -EAGAIN)
        ck_assert_int_lt(++steps, 20);
    ck_assert_int_eq(rc, 0);
    ck_assert_int_ge(steps, 5); /* blocks of 260 bytes, two a step: 12 calls */
    ck_assert_uint_eq(out.n, 6003);
    free(prefix);
}
END_TEST

/* Lines of a program with blank lines, indentation, and now and then something strange. */
static size_t some_program(char *s, size_t max, uint32_t *seed)
{
    static const char *const pieces[] = {"def f(x):\n",
                                         "if a in x and y:\n",
                                         "# it''s a word's word\n",
                                         "    return x\n",
                                         "\n",
                                         "x = 1\n",
                                         "# a b\n",
                                         "\t\tif y:\n",
                                         "}\n",
                                         "/* c */\n",
                                         "  \n",
                                         "s = 'it''s'\n",
                                         "\xe3\x80\x80z\n",
                                         "12345678 90\n",
                                         "foo(bar);\r\n"};
    size_t n = 0;
    for (;;) {
        const char *piece = pieces[next_random(seed) % (sizeof(pieces) / sizeof(pieces[0]))];
        if (n + strlen(piece) > max)
            return n;
        memcpy(s + n, piece, strlen(piece));
        n += strlen(piece);
    }
}

/* Blocks give what the text as a whole gives, remembered or not. */
static void check_blocks(const struct vocab *w)
{
    static char s[12000];
    uint32_t seed = 7;
    struct token_list whole, parts;
    token_list_init(&whole);
    token_list_init(&parts);
    for (int i = 0; i < 20; i++) {
        size_t n = some_program(s, 500 * (size_t)(i + 1), &seed);
        whole.n = 0;
        ck_assert_int_eq(tokenize(w, s, n, 0, &whole, err, sizeof(err)), 0);
        for (int again = 0; again < 2; again++) {
            parts.n = 0;
            fim_text_begin(text, 0);
            ck_assert_int_eq(fim_text_add(text, w, s, n, 0, &parts, err, sizeof(err)), 0);
            ck_assert_uint_eq(parts.n, whole.n);
            ck_assert_int_eq(memcmp(parts.ids, whole.ids, whole.n * sizeof(*whole.ids)), 0);
        }
    }
    token_list_fini(&whole);
    token_list_fini(&parts);
}

START_TEST(blocks_give_the_tokens_of_the_whole)
{
    static const char *const pres[] = {"gpt-2",     "llama-bpe",      "qwen2",       "qwen35",
                                       "starcoder", "deepseek-coder", "falcon",      "tekken",
                                       "gpt-4o",    "deepseek-v3",    "deepseek-llm"};
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++) {
        tiny_init_bpe(&tiny, pres[i]); /* merges across a line's end show a wrong cut */
        tiny_merge(&tiny, "\n", "d");
        tiny_merge(&tiny, "\n", "x");
        tiny_merge(&tiny, "\n", "}");
        tiny_merge(&tiny, "\n", "\n");
        tiny_merge(&tiny, "\n", " ");
        tiny_merge(&tiny, "\n ", " ");
        tiny_merge(&tiny, ";", "\r");
        tiny_merge(&tiny, ";\r", "\n");
        tiny_merge(&tiny, "f", " ");
        tiny_merge(&tiny, " ", "f");
        tiny_merge(&tiny, "n", " ");
        tiny_merge(&tiny, " ", "x");
        v = tiny_open(&tiny, &block);
        check_blocks(&v);
        free(block);
        fim_text_close(text);
        text = fim_text_open();
    }
    block = NULL;
}
END_TEST

START_TEST(a_text_without_lines_is_cut_all_the_same)
{
    static char s[100001];
    for (size_t i = 0; i + 1 < sizeof(s); i++) /* characters of two bytes: none is cut in two */
        s[i] = i % 2 ? '\xa4' : '\xc3';
    for (size_t at = 0, n; at < 100000; at += n) {
        n = fim_text_block(s + at, 100000 - at);
        ck_assert_uint_le(n, 2048);
        ck_assert_uint_ge(n, 2);
        ck_assert_uint_eq(n % 2, 0);
    }
}
END_TEST

START_TEST(least_recently_used_blocks_are_evicted)
{
    static char s[2000];
    OPEN_BPE("gpt-2", "<|fim_prefix|>");
    for (unsigned i = 0; i < 6000; i++) { /* 12 MB, three times what is kept young */
        snprintf(s, sizeof(s), "%0*u", 1000, i);
        out.n = 0;
        fim_text_begin(text, 0);
        ck_assert_int_eq(fim_text_add(text, &v, s, 1000, 0, &out, err, sizeof(err)), 0);
        ck_assert_uint_eq(out.n, 1000);
        ck_assert_int_eq((int)out.ids[999], s[999]);
    }
}
END_TEST

/* What the hash of a block would be without chance. */
static uint64_t known_hash(const char *s, size_t bytes)
{
    uint64_t h = 0x9e3779b97f4a7c15u * (bytes + 1), word;
    for (size_t i = 0; i < bytes; i += 8) {
        memcpy(&word, s + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    h *= 0xff51afd7ed558ccdu; /* the last word is 0 */
    return h ^ h >> 32;
}

START_TEST(blocks_that_a_client_has_tried_fall_apart)
{
    enum { N = 3000 };
    char s[33];
    OPEN_BPE("gpt-2", "<|fim_prefix|>");
    for (int kind = 0; kind < 2; kind++) {
        uint64_t before = fim_text_looks(text);
        for (uint32_t i = 0, n = 0; n < N; i++) {
            /* Tried, or alike but for bits that a product's lower half never sees. */
            snprintf(s, sizeof(s), kind ? "%029x%03x" : "%024x%08x", 7u, i);
            if (kind == 0 && known_hash(s, 32) % 1024)
                continue;
            n++;
            out.n = 0;
            fim_text_begin(text, 0);
            ck_assert_int_eq(fim_text_add(text, &v, s, 32, 0, &out, err, sizeof(err)), 0);
        }
        ck_assert_uint_le(fim_text_looks(text) - before, 20 * N);
    }
}
END_TEST

/* ---- real vocabularies ----------------------------------------------------------------------- */

static int open_real(const char *name)
{
    char path[512];
    const char *folder = getenv("HEARTH_TESTDATA");
    size_t bytes;
    if (!folder || !*folder) {
        printf("skip: HEARTH_TESTDATA is not set: no vocabulary %s\n", name);
        return 0;
    }
    snprintf(path, sizeof(path), "%s/tokenizers/%s", folder, name);
    block = vocab_file_build(path, &bytes);
    ck_assert_int_eq(vocab_open(block, bytes, &v, err, sizeof(err)), 0);
    return 1;
}

START_TEST(qwen2s_prompt)
{
    struct hearth_fim f = request("def f(x):\n    return ", "\n\nprint(f(1))\n");
    if (!open_real("ggml-vocab-qwen2.gguf"))
        return;
    if (fim_find(&v, HEARTH_FIM_AUTO) == FIM_NONE) { /* the first Qwen2 had none */
        ck_assert_int_eq(fim_prompt(&v, text, &f, 4096, &out, err, sizeof(err)), -ENOTSUP);
    } else {
        ck_assert_str_eq(shown(&f, 4096), "<|fim_prefix|>def f(x):\n    return <|fim_suffix|>\n\n"
                                          "print(f(1))\n<|fim_middle|>");
    }
    check_blocks(&v);
}
END_TEST

START_TEST(starcoders_prompt)
{
    struct hearth_fim f = request("def f(x):\n    return ", "\n\nprint(f(1))\n");
    if (!open_real("ggml-vocab-starcoder.gguf"))
        return;
    ck_assert_str_eq(shown(&f, 4096), "<fim_prefix><fim_suffix>\n\nprint(f(1))\n<fim_middle>"
                                      "def f(x):\n    return ");
    f.order = HEARTH_FIM_PSM;
    ck_assert_str_eq(shown(&f, 4096), "<fim_prefix>def f(x):\n    return <fim_suffix>\n\n"
                                      "print(f(1))\n<fim_middle>");
    check_blocks(&v);
}
END_TEST

START_TEST(other_vocabularies_cut_the_same)
{
    static const char *const names[] = {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf",
                                        "ggml-vocab-phi-3.gguf"};
    for (size_t i = 0; i < 3; i++) {
        if (!open_real(names[i]))
            return;
        check_blocks(&v);
        free(block);
        block = NULL;
        fim_text_close(text);
        text = fim_text_open();
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fim");
    TCase *c = tcase_create("fim");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, the_fim_form_follows_the_vocabulary);
    tcase_add_test(c, the_order_can_be_chosen);
    tcase_add_test(c, a_model_without_fim_tokens_is_reported);
    tcase_add_test(c, control_tokens_in_a_text_stay_plain_text);
    tcase_add_test(c, sentencepiece_puts_a_space_before_the_prefix_alone);
    tcase_add_test(c, chunks_stand_in_files_where_the_vocabulary_has_such);
    tcase_add_test(c, chunks_are_plain_text_elsewhere);
    tcase_add_test(c, chunks_go_first_where_there_is_no_room);
    tcase_add_test(c, far_ends_are_cut_at_line_breaks);
    tcase_add_test(c, a_long_line_is_cut_within);
    tcase_add_test(c, typing_changes_the_end_alone);
    tcase_add_test(c, a_prefix_of_megabytes_is_cut_before_it_is_tokenized);
    tcase_add_test(c, a_middle_without_room_is_an_error);
    tcase_add_test(c, a_step_tokenizes_its_budget_and_the_next_continues);
    tcase_add_test(c, blocks_give_the_tokens_of_the_whole);
    tcase_add_test(c, a_text_without_lines_is_cut_all_the_same);
    tcase_add_test(c, least_recently_used_blocks_are_evicted);
    tcase_add_test(c, blocks_that_a_client_has_tried_fall_apart);
    tcase_add_test(c, qwen2s_prompt);
    tcase_add_test(c, starcoders_prompt);
    tcase_add_test(c, other_vocabularies_cut_the_same);
    suite_add_tcase(s, c);
    return run_suite(s);
}
