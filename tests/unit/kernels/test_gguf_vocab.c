/* The vocabulary keys: valid ones read back, inconsistent ones are refused with a line that names
 * the key. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gguf/gguf_vocab.h"
#include "tests/run_suite.h"
#include "tests/rig/gguf_writer.h"

static char err[256];
static const char *const TOKENS[] = {"<unk>", "<s>", "</s>", "a", ""};
enum { N = 5 };

struct opened_vocab {
    uint8_t *file;
    struct gguf *gguf;
    struct gguf_vocab vocab;
};

/* Finishes the writer; the container must be valid. Returns gguf_vocab_open's result. */
static int open_writer(struct gw *w, struct opened_vocab *ret)
{
    size_t bytes;
    err[0] = 0;
    ret->file = gw_finish(w, &bytes, NULL);
    ck_assert_int_eq(gguf_open_memory(ret->file, bytes, &ret->gguf, err, sizeof(err)), 0);
    return gguf_vocab_open(ret->gguf, &ret->vocab, err, sizeof(err));
}

static void close_opened(struct opened_vocab *o)
{
    gguf_vocab_close(&o->vocab);
    gguf_vocab_close(&o->vocab); /* twice is fine */
    gguf_close(o->gguf);
    free(o->file);
}

static void check_refused(struct gw *w, int code, const char *part)
{
    struct opened_vocab o;
    int rc = open_writer(w, &o);
    ck_assert_msg(rc == code, "returned %d, not %d, for \"%s\": %s", rc, code, part, err);
    ck_assert_msg(strstr(err, part) != NULL, "\"%s\" is not in: %s", part, err);
    ck_assert_ptr_null(o.vocab.tokens);
    ck_assert_ptr_null(o.vocab.types);
    ck_assert_ptr_null(o.vocab.scores);
    ck_assert_ptr_null(o.vocab.merges);
    close_opened(&o);
}

/* A tokenizer with the two keys that it needs. */
static void begin(struct gw *w)
{
    gw_init(w);
    gw_key_string(w, "tokenizer.ggml.model", "llama");
    gw_key_strings(w, "tokenizer.ggml.tokens", N, TOKENS);
}

START_TEST(a_minimal_vocabulary_has_defaults)
{
    struct gw w;
    struct opened_vocab o;
    begin(&w);
    ck_assert_int_eq(open_writer(&w, &o), 0);
    const struct gguf_vocab *v = &o.vocab;
    ck_assert(gguf_string_equal(v->model, "llama"));
    ck_assert_uint_eq(v->pre.bytes, 0);
    ck_assert_uint_eq(v->chat_template.bytes, 0);
    ck_assert_uint_eq(v->chat_template_tools.bytes, 0);
    ck_assert_uint_eq(v->n_tokens, N);
    ck_assert_uint_eq(v->n_merges, 0);
    ck_assert_ptr_null(v->merges);
    ck_assert_ptr_null(v->scores);
    for (int i = 0; i < N; i++) {
        ck_assert(gguf_string_equal(v->tokens[i], TOKENS[i]));
        ck_assert_int_eq(v->types[i], GGUF_TOKEN_NORMAL);
    }
    const int32_t *ids = (const int32_t *)&v->ids;
    for (size_t i = 0; i < sizeof(v->ids) / sizeof(*ids); i++)
        ck_assert_int_eq(ids[i], -1);
    ck_assert_int_eq(v->add_bos, -1);
    ck_assert_int_eq(v->add_eos, -1);
    ck_assert_int_eq(v->add_space_prefix, -1);
    close_opened(&o);
}
END_TEST

START_TEST(every_key_reads_back)
{
    static const int32_t TYPES[] = {2, 3, 3, 1, 6};
    static const float SCORES[] = {0, -1, -2.5f, 1e10f, -INFINITY};
    static const char *const MERGES[] = {"a b", "ab c"};
    struct gw w;
    struct opened_vocab o;
    begin(&w);
    gw_key_string(&w, "tokenizer.ggml.pre", "qwen2");
    gw_key_array(&w, "tokenizer.ggml.token_type", GGUF_I32, N, TYPES, sizeof(TYPES));
    gw_key_array(&w, "tokenizer.ggml.scores", GGUF_F32, N, SCORES, sizeof(SCORES));
    gw_key_strings(&w, "tokenizer.ggml.merges", 2, MERGES);
    gw_key_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    gw_key_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    gw_key_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    gw_key_u32(&w, "tokenizer.ggml.padding_token_id", 4);
    gw_key_u32(&w, "tokenizer.ggml.eot_token_id", 3);
    gw_key_bool(&w, "tokenizer.ggml.add_bos_token", 1);
    gw_key_bool(&w, "tokenizer.ggml.add_eos_token", 0);
    gw_key_bool(&w, "tokenizer.ggml.add_space_prefix", 200);
    gw_key_string(&w, "tokenizer.chat_template", "{{ messages }}");
    gw_key_string(&w, "tokenizer.chat_template.tool_use", "{{ tools }}");
    ck_assert_int_eq(open_writer(&w, &o), 0);
    const struct gguf_vocab *v = &o.vocab;
    ck_assert(gguf_string_equal(v->pre, "qwen2"));
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(v->types[i], TYPES[i]);
        ck_assert(v->scores[i] == SCORES[i]);
    }
    ck_assert_uint_eq(v->n_merges, 2);
    ck_assert(gguf_string_equal(v->merges[1], "ab c"));
    ck_assert_int_eq(v->ids.bos, 1);
    ck_assert_int_eq(v->ids.eos, 2);
    ck_assert_int_eq(v->ids.unk, 0);
    ck_assert_int_eq(v->ids.pad, 4);
    ck_assert_int_eq(v->ids.eot, 3);
    ck_assert_int_eq(v->ids.sep, -1);
    ck_assert_int_eq(v->add_bos, 1);
    ck_assert_int_eq(v->add_eos, 0);
    ck_assert_int_eq(v->add_space_prefix, 1);
    ck_assert(gguf_string_equal(v->chat_template, "{{ messages }}"));
    ck_assert(gguf_string_equal(v->chat_template_tools, "{{ tools }}"));
    close_opened(&o);
}
END_TEST

START_TEST(fill_in_the_middle_has_old_and_new_keys)
{
    struct gw w;
    struct opened_vocab o;
    begin(&w);
    gw_key_u32(&w, "tokenizer.ggml.fim_pre_token_id", 1);
    gw_key_u32(&w, "tokenizer.ggml.prefix_token_id", 4); /* the new key wins */
    gw_key_u32(&w, "tokenizer.ggml.suffix_token_id", 2);
    gw_key_u32(&w, "tokenizer.ggml.middle_token_id", 3);
    gw_key_u32(&w, "tokenizer.ggml.fim_pad_token_id", 0);
    ck_assert_int_eq(open_writer(&w, &o), 0);
    ck_assert_int_eq(o.vocab.ids.fim_pre, 1);
    ck_assert_int_eq(o.vocab.ids.fim_suf, 2);
    ck_assert_int_eq(o.vocab.ids.fim_mid, 3);
    ck_assert_int_eq(o.vocab.ids.fim_pad, 0);
    ck_assert_int_eq(o.vocab.ids.fim_rep, -1);
    close_opened(&o);
}
END_TEST

START_TEST(files_without_a_tokenizer_say_so)
{
    struct gw w;
    gw_init(&w);
    check_refused(&w, -ENOENT, "no tokenizer");
    gw_init(&w);
    gw_key_string(&w, "tokenizer.ggml.model", "none");
    check_refused(&w, -ENOENT, "no tokenizer.ggml.tokens");
    gw_init(&w);
    gw_key_strings(&w, "tokenizer.ggml.tokens", N, TOKENS);
    check_refused(&w, -ENOENT, "no tokenizer.ggml.model");
}
END_TEST

START_TEST(keys_of_another_type_are_refused)
{
    static const char *const ANY[] = {
        "tokenizer.ggml.pre",           "tokenizer.ggml.token_type",
        "tokenizer.ggml.scores",        "tokenizer.ggml.merges",
        "tokenizer.ggml.bos_token_id",  "tokenizer.ggml.fim_sep_token_id",
        "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix",
        "tokenizer.chat_template",      "tokenizer.chat_template.tool_use"};
    static const char *const ARRAYS[] = {"tokenizer.ggml.token_type", "tokenizer.ggml.scores",
                                         "tokenizer.ggml.merges"};
    static const uint8_t BOOLS[N] = {0};
    struct gw w;
    for (size_t i = 0; i < sizeof(ANY) / sizeof(ANY[0]); i++) {
        begin(&w);
        gw_key_f32(&w, ANY[i], 1);
        check_refused(&w, -EBADMSG, ANY[i]);
    }
    for (size_t i = 0; i < sizeof(ARRAYS) / sizeof(ARRAYS[0]); i++) {
        begin(&w);
        gw_key_array(&w, ARRAYS[i], GGUF_BOOL, N, BOOLS, N);
        check_refused(&w, -EBADMSG, "is an array of bool");
    }
    gw_init(&w);
    gw_key_u32(&w, "tokenizer.ggml.model", 1);
    check_refused(&w, -EBADMSG, "tokenizer.ggml.model is a u32");
    gw_init(&w);
    gw_key_string(&w, "tokenizer.ggml.model", "gpt2");
    gw_key_array(&w, "tokenizer.ggml.tokens", GGUF_U8, N, BOOLS, N);
    check_refused(&w, -EBADMSG, "tokenizer.ggml.tokens is an array of u8");
}
END_TEST

START_TEST(lengths_that_differ_are_refused)
{
    static const uint8_t ZERO[64] = {0};
    static const struct {
        const char *key, *line;
        uint32_t type;
    } ARRAYS[] = {
        {"tokenizer.ggml.scores", "tokenizer.ggml.scores has", GGUF_F32},
        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type has", GGUF_I32},
    };
    for (uint64_t n = 0; n <= 2 * N; n++)
        for (size_t i = 0; i < 2; i++) {
            struct gw w;
            struct opened_vocab o;
            begin(&w);
            gw_key_array(&w, ARRAYS[i].key, ARRAYS[i].type, n, ZERO, 4 * n);
            if (n != N) {
                check_refused(&w, -EBADMSG, ARRAYS[i].line);
                continue;
            }
            ck_assert_int_eq(open_writer(&w, &o), 0);
            close_opened(&o);
        }
    struct gw w;
    gw_init(&w);
    gw_key_string(&w, "tokenizer.ggml.model", "llama");
    gw_key_strings(&w, "tokenizer.ggml.tokens", 0, TOKENS);
    check_refused(&w, -EBADMSG, "0 tokens");
}
END_TEST

START_TEST(ids_are_below_the_number_of_tokens)
{
    static const struct {
        uint32_t type;
        uint64_t bits;
        size_t bytes;
        int32_t want; /* -2: refused */
    } CASES[] = {
        {GGUF_U32, 4, 4, 4},           {GGUF_U64, 4, 8, 4},
        {GGUF_I32, 4, 4, 4},           {GGUF_U32, N, 4, -2},
        {GGUF_U32, UINT32_MAX, 4, -1}, /* how some writers encode none */
        {GGUF_I32, UINT32_MAX, 4, -1}, {GGUF_I64, UINT64_MAX, 8, -1},
        {GGUF_U32, 1u << 31, 4, -2},   {GGUF_U64, (uint64_t)1 << 32, 8, -2},
        {GGUF_U64, UINT64_MAX, 8, -2}, {GGUF_BOOL, 1, 1, -2},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gw w;
        struct opened_vocab o;
        begin(&w);
        gw_key(&w, "tokenizer.ggml.eos_token_id", CASES[i].type, &CASES[i].bits, CASES[i].bytes);
        if (CASES[i].want == -2) {
            check_refused(&w, -EBADMSG, "tokenizer.ggml.eos_token_id is");
            continue;
        }
        ck_assert_int_eq(open_writer(&w, &o), 0);
        ck_assert_int_eq(o.vocab.ids.eos, CASES[i].want);
        close_opened(&o);
    }
}
END_TEST

START_TEST(optional_ids_out_of_range_count_as_absent)
{
    struct gw w;
    struct opened_vocab o;
    begin(&w);
    gw_key_u32(&w, "tokenizer.ggml.padding_token_id", N);
    gw_key_u32(&w, "tokenizer.ggml.prefix_token_id", 32007);
    gw_key_u32(&w, "tokenizer.ggml.fim_mid_token_id", N - 1);
    ck_assert_int_eq(open_writer(&w, &o), 0);
    ck_assert_int_eq(o.vocab.ids.pad, -1);
    ck_assert_int_eq(o.vocab.ids.fim_pre, -1);
    ck_assert_int_eq(o.vocab.ids.fim_mid, N - 1);
    close_opened(&o);
    static const char *const STRICT[] = {
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof(STRICT) / sizeof(STRICT[0]); i++) {
        begin(&w);
        gw_key_u32(&w, STRICT[i], N);
        check_refused(&w, -EBADMSG, STRICT[i]);
    }
}
END_TEST

START_TEST(scores_and_types_are_checked)
{
    static const float SCORES[N] = {0, 0, NAN, 0, 0};
    static const int32_t TYPES[N] = {1, 1, 1, -1, 1};
    static const uint32_t LARGE[N] = {1, 1, 1, 1, 1u << 31};
    struct gw w;
    begin(&w);
    gw_key_array(&w, "tokenizer.ggml.scores", GGUF_F32, N, SCORES, sizeof(SCORES));
    check_refused(&w, -EBADMSG, "token 2 is not a number");
    begin(&w);
    gw_key_array(&w, "tokenizer.ggml.token_type", GGUF_I32, N, TYPES, sizeof(TYPES));
    check_refused(&w, -EBADMSG, "of token 3 is -1");
    begin(&w);
    gw_key_array(&w, "tokenizer.ggml.token_type", GGUF_U32, N, LARGE, sizeof(LARGE));
    check_refused(&w, -EBADMSG, "of token 4 is 2147483648");
}
END_TEST

START_TEST(too_many_tokens_are_refused)
{
    struct gw w;
    gw_init(&w);
    gw_key_string(&w, "tokenizer.ggml.model", "llama");
    gw_key_array(&w, "tokenizer.ggml.tokens", GGUF_STRING, GGUF_VOCAB_MAX_TOKENS + 1, NULL, 0);
    for (uint32_t i = 0; i <= GGUF_VOCAB_MAX_TOKENS; i++)
        gw_put_u64(&w.keys, 0);
    check_refused(&w, -EBADMSG, "1048577 tokens");
}
END_TEST

/* ---- test data ------------------------------------------------------------------------------- */

START_TEST(real_vocabularies_open)
{
    static const struct {
        const char *name, *model, *pre;
        uint32_t n_tokens, n_merges;
        bool scores;
        int32_t bos, eos, unk, pad, fim_pre, fim_suf, fim_mid;
        int8_t add_bos, add_eos;
        uint32_t probe; /* a token's id and text */
        const char *text;
    } WANT[] = {
        {"gpt-2", "gpt2", "gpt-2", 50257, 50000, false, 50256, 50256, -1, -1, -1, -1, -1, -1, -1,
         50256, "<|endoftext|>"},
        {"llama-spm", "llama", "default", 32000, 0, true, 1, 2, 0, -1, -1, -1, -1, 1, 0, 3,
         "<0x00>"},
        {"phi-3", "llama", "default", 32064, 0, true, 1, 32000, 0, 32000, -1, -1, -1, 1, 0, 32000,
         "<|endoftext|>"},
        {"qwen2", "gpt2", "qwen2", 151669, 151387, false, 151643, 151645, -1, 151643, 151659,
         151661, 151660, 0, -1, 151645, "<|im_end|>"},
        {"starcoder", "gpt2", "starcoder", 49152, 48872, false, 0, 0, 0, -1, -1, -1, -1, -1, -1, 1,
         "<fim_prefix>"},
    };
    for (size_t i = 0; i < sizeof(WANT) / sizeof(WANT[0]); i++) {
        char path[1024];
        struct gguf *g = NULL;
        struct gguf_vocab v;
        snprintf(path, sizeof(path), "%s/tokenizers/ggml-vocab-%s.gguf", getenv("HEARTH_TESTDATA"),
                 WANT[i].name);
        ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), 0);
        ck_assert_int_eq(gguf_vocab_open(g, &v, err, sizeof(err)), 0);
        ck_assert(gguf_string_equal(v.model, WANT[i].model));
        ck_assert(gguf_string_equal(v.pre, WANT[i].pre));
        ck_assert_uint_eq(v.n_tokens, WANT[i].n_tokens);
        ck_assert_uint_eq(v.n_merges, WANT[i].n_merges);
        ck_assert((v.scores != NULL) == WANT[i].scores);
        ck_assert_int_eq(v.ids.bos, WANT[i].bos);
        ck_assert_int_eq(v.ids.eos, WANT[i].eos);
        ck_assert_int_eq(v.ids.unk, WANT[i].unk);
        ck_assert_int_eq(v.ids.pad, WANT[i].pad);
        ck_assert_int_eq(v.ids.fim_pre, WANT[i].fim_pre);
        ck_assert_int_eq(v.ids.fim_suf, WANT[i].fim_suf);
        ck_assert_int_eq(v.ids.fim_mid, WANT[i].fim_mid);
        ck_assert_int_eq(v.add_bos, WANT[i].add_bos);
        ck_assert_int_eq(v.add_eos, WANT[i].add_eos);
        ck_assert(gguf_string_equal(v.tokens[WANT[i].probe], WANT[i].text));
        ck_assert_int_ne(v.types[WANT[i].probe], GGUF_TOKEN_NORMAL);
        for (uint32_t t = 0; t < v.n_tokens; t++)
            ck_assert_ptr_nonnull(v.tokens[t].data);
        for (uint32_t t = 0; t < v.n_merges; t++)
            ck_assert_ptr_nonnull(memchr(v.merges[t].data, ' ', v.merges[t].bytes));
        gguf_vocab_close(&v);
        gguf_close(g);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_vocab");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, a_minimal_vocabulary_has_defaults);
    tcase_add_test(core, every_key_reads_back);
    tcase_add_test(core, fill_in_the_middle_has_old_and_new_keys);
    tcase_add_test(core, files_without_a_tokenizer_say_so);
    tcase_add_test(core, keys_of_another_type_are_refused);
    tcase_add_test(core, lengths_that_differ_are_refused);
    tcase_add_test(core, ids_are_below_the_number_of_tokens);
    tcase_add_test(core, optional_ids_out_of_range_count_as_absent);
    tcase_add_test(core, scores_and_types_are_checked);
    tcase_add_test(core, too_many_tokens_are_refused);
    suite_add_tcase(suite, core);
    TCase *data = add_testdata_case(suite, 60);
    if (data)
        tcase_add_test(data, real_vocabularies_open);
    return run_suite(suite);
}
