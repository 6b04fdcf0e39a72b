/* The fingerprint and its hash: equal to their definitions, independent of keys that change no
 * result, and of nothing else. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/hash128_impl.h"
#include "kernels/model/model.h"
#include "tests/run_suite.h"
#include "tests/rig/gguf_writer.h"
#include "tests/rig/model_opened.h"

/* ---- fingerprint ----------------------------------------------------------------------------- */

static void hash_text(const void *data, size_t bytes, char text[MODEL_FINGERPRINT_TEXT])
{
    uint8_t hash[16];
    hash128(data, bytes, hash);
    model_fingerprint_text(hash, text);
}

static void noise(uint8_t *data, size_t bytes)
{
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
}

/* As `xxhsum -H2` prints them. */
START_TEST(hash128_is_xxh3)
{
    char text[MODEL_FINGERPRINT_TEXT];
    uint8_t counting[200], long_one[5000];
    for (unsigned i = 0; i < sizeof(counting); i++)
        counting[i] = (uint8_t)i;
    hash_text("", 0, text);
    ck_assert_str_eq(text, "99aa06d3014798d86001c324468d497f");
    hash_text("abc", 3, text);
    ck_assert_str_eq(text, "06b05ab6733a618578af5f94892f3950");
    hash_text(counting, sizeof(counting), text);
    ck_assert_str_eq(text, "cb0395310643ba0edd97e9af3609d9f5");
    noise(long_one, sizeof(long_one));
    hash_text(long_one, sizeof(long_one), text);
    ck_assert_str_eq(text, "b66e1e66e1733cff06983d4ce0939f36");
}
END_TEST

typedef void updates(struct hash128 *h, const void *data, size_t bytes);

/* In two pieces, from odd addresses, too. */
static void check_updates(updates *update, const uint8_t *data, size_t n)
{
    const size_t cut = n / 3;
    uint8_t got[16], want[16];
    struct hash128 h;
    hash128_init(&h);
    hash128_update_any(&h, data, n);
    hash128_final(&h, want);
    hash128_init(&h);
    update(&h, data, cut);
    update(&h, data + cut, n - cut);
    hash128_final(&h, got);
    ck_assert_mem_eq(got, want, sizeof(want));
}

START_TEST(hash128_is_the_same_with_every_instruction_set)
{
    enum { BYTES = 5000 };
    static uint8_t data[BYTES + 6];
    noise(data, sizeof(data));
    for (size_t n = 0; n <= BYTES; n += 1 + n / 8) {
        check_updates(hash128_update, data + n % 7, n);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2"))
            check_updates(hash128_update_avx2, data + n % 7, n);
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
            check_updates(hash128_update_avx512, data + n % 7, n);
#endif
    }
}
END_TEST

/* Cut anywhere, in two and three pieces, some of them empty. */
START_TEST(hash128_is_the_same_in_pieces)
{
    enum { BYTES = 600 }; /* XXH3 has another way above 240, and looks at 256 at a time */
    uint8_t data[BYTES], want[16], got[16];
    struct hash128 h;
    noise(data, sizeof(data));
    for (size_t length = 0; length <= BYTES; length += 50) {
        hash128(data, length, want);
        for (size_t i = 0; i <= length; i++)
            for (size_t j = i; j <= length; j += 1 + j % 7) {
                hash128_init(&h);
                hash128_update(&h, data, i);
                hash128_update(&h, data + i, j - i);
                hash128_update(&h, data + j, length - j);
                hash128_final(&h, got);
                ck_assert_mem_eq(got, want, sizeof(want));
            }
    }
}
END_TEST

START_TEST(hash128_sees_every_bit_and_every_length)
{
    enum { BYTES = 130 };
    static uint8_t seen[BYTES * 8 + BYTES + 1][16];
    uint8_t data[BYTES] = {0};
    size_t n = 0;
    for (size_t length = 0; length <= BYTES; length++)
        hash128(data, length, seen[n++]);
    for (size_t bit = 0; bit < (size_t)BYTES * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        hash128(data, BYTES, seen[n++]);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) /* each half alone differs */
            ck_assert(memcmp(seen[i], seen[j], 8) != 0 && memcmp(seen[i] + 8, seen[j] + 8, 8) != 0);
}
END_TEST

static void fingerprint(const struct model *m, char text[MODEL_FINGERPRINT_TEXT])
{
    uint8_t bytes[MODEL_FINGERPRINT_BYTES];
    ck_assert_int_eq(model_fingerprint(m, 3, bytes), 0);
    model_fingerprint_text(bytes, text);
}

/* Computed by a second implementation, in Python, from the definition in model.h: F32, Q4_0 and BF16 of the small model. */
START_TEST(fingerprints_follow_their_definition)
{
    static const struct {
        uint32_t type;
        const char *text;
    } WANT[] = {{QUANT_F32, "e2e4c039e3c3470cf93cbbfc78e37dc3"},
                {QUANT_Q4_0, "7ede41b541ac96543d283cb0be806c0f"},
                {QUANT_BF16, "944e4991684012712fb79b5689c1f94f"}};
    for (size_t i = 0; i < 3; i++) {
        struct opened o;
        char text[MODEL_FINGERPRINT_TEXT];
        struct gw_llama spec = gw_llama_small(WANT[i].type);
        open_spec(&spec, &o);
        fingerprint(o.model, text);
        ck_assert_str_eq(text, WANT[i].text);
        close_opened(&o);
    }
}
END_TEST

/* The same model with keys in another order, others added, another name, version and alignment. */
START_TEST(fingerprints_ignore_irrelevant_keys)
{
    struct gw w;
    struct opened o;
    size_t bytes;
    char text[MODEL_FINGERPRINT_TEXT];
    const struct gw_llama spec = gw_llama_small(QUANT_Q4_0);
    gw_init(&w);
    w.version = 2;
    w.alignment = 128;
    gw_key_u32(&w, "general.alignment", 128);
    gw_key_string(&w, "tokenizer.chat_template", "{{ messages }}");
    gw_llama_tokens(&w, spec.n_vocab);
    gw_key_f32(&w, "llama.rope.freq_base", 10000.0f);
    gw_key_u32(&w, "llama.rope.dimension_count", 16);
    gw_key_string(&w, "general.author", "somebody else");
    gw_llama_keys(&w, &spec);
    gw_llama_tensors(&w, &spec);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    ck_assert_int_eq(open_file(file, bytes, &o), 0);
    fingerprint(o.model, text);
    ck_assert_str_eq(text, "7ede41b541ac96543d283cb0be806c0f");
    close_opened(&o);
}
END_TEST

/* Two keys, and one whose name has a line break and the rest of two lines in it. */
START_TEST(a_line_break_in_a_name_is_no_line)
{
    const uint32_t one = 1;
    char seen[2][MODEL_FINGERPRINT_TEXT], hash[MODEL_FINGERPRINT_TEXT], name[128];
    const struct gw_llama spec = gw_llama_small(QUANT_Q4_0);
    hash_text(&one, sizeof(one), hash);
    snprintf(name, sizeof(name), "tokenizer.ggml.aa 4 %s\nkey tokenizer.ggml.ab", hash);
    for (int i = 0; i < 2; i++) {
        struct gw w;
        struct opened o;
        size_t bytes;
        gw_init(&w);
        gw_llama_keys(&w, &spec);
        gw_llama_tokens(&w, spec.n_vocab);
        if (i == 0)
            gw_key_u32(&w, "tokenizer.ggml.aa", 1);
        gw_key_u32(&w, i == 0 ? "tokenizer.ggml.ab" : name, 2);
        gw_llama_tensors(&w, &spec);
        uint8_t *file = gw_finish(&w, &bytes, NULL);
        ck_assert_int_eq(open_file(file, bytes, &o), 0);
        fingerprint(o.model, seen[i]);
        close_opened(&o);
    }
    ck_assert_str_ne(seen[0], seen[1]);
}
END_TEST

START_TEST(fingerprints_change_with_every_relevant_byte)
{
    enum { CASES = 16 };
    char seen[CASES][MODEL_FINGERPRINT_TEXT];
    for (int i = 0; i < CASES; i++) {
        struct gw w;
        struct opened o;
        size_t bytes;
        struct gw_llama spec = gw_llama_small(QUANT_Q4_0);
        spec.n_context += i == 1;
        spec.seed += i == 2;
        spec.untied = i == 3;
        gw_init(&w);
        gw_llama_keys(&w, &spec);
        gw_llama_tokens(&w, spec.n_vocab);
        if (i == 4)
            gw_key_f32(&w, "llama.rope.freq_base", 20000.0f);
        if (i == 5)
            gw_key_bool(&w, "tokenizer.ggml.add_bos_token", 0);
        if (i == 6)
            gw_key_bool(&w, "tokenizer.ggml.add_bos_token", 1);
        if (i == 9)
            gw_key_f32(&w, "llama.rope.scaling.factor", 4.0f);
        if (i >= 10 && i < 15) { /* each differs from the tenth in one thing */
            gw_key_f32(&w, "llama.rope.scaling.factor", 4.0f);
            gw_key_string(&w, "llama.rope.scaling.type", "yarn");
            gw_key_u32(&w, "llama.rope.scaling.original_context_length", i == 11 ? 32 : 64);
            gw_key_f32(&w, "llama.rope.scaling.yarn_beta_fast", i == 12 ? 16.0f : 32.0f);
            gw_key_f32(&w, "llama.rope.scaling.yarn_log_multiplier", i == 13 ? 1.0f : 0.0f);
            gw_key_f32(&w, "llama.rope.scaling.attn_factor", i == 14 ? 1.5f : 1.0f);
        }
        if (i == 15)
            gw_key_f32(&w, "llama.attention.temperature_scale", 0.1f);
        gw_llama_tensors(&w, &spec);
        if (i == 7)
            w.data.data[w.data.bytes - 1] ^= 1; /* the last bytes are data, not padding */
        if (i == 8)
            w.data.data[0] ^= 0x80;
        uint8_t *file = gw_finish(&w, &bytes, NULL);
        ck_assert_int_eq(open_file(file, bytes, &o), 0);
        fingerprint(o.model, seen[i]);
        for (int j = 0; j < i; j++)
            ck_assert_msg(strcmp(seen[i], seen[j]) != 0, "cases %d and %d", i, j);
        close_opened(&o);
    }
}
END_TEST

/* ---- test data ---- */

/* Computed by the second implementation. */
START_TEST(trained_models_have_their_fingerprints)
{
    static const char *const WANT[][2] = {
        {"stories260K-ff192-q4_0", "cd0b6451152764efdc3a34491d812f28"},
        {"babyllama105-q4_0", "6c6708233e4049e9be70eb1bfc5c9604"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct opened o;
        char text[MODEL_FINGERPRINT_TEXT];
        open_testdata(WANT[i][0], &o);
        fingerprint(o.model, text);
        ck_assert_str_eq(text, WANT[i][1]);
        close_opened(&o);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_fingerprint");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, hash128_is_xxh3);
    tcase_add_test(core, hash128_is_the_same_with_every_instruction_set);
    tcase_add_test(core, hash128_is_the_same_in_pieces);
    tcase_add_test(core, hash128_sees_every_bit_and_every_length);
    tcase_add_test(core, fingerprints_follow_their_definition);
    tcase_add_test(core, fingerprints_ignore_irrelevant_keys);
    tcase_add_test(core, a_line_break_in_a_name_is_no_line);
    tcase_add_test(core, fingerprints_change_with_every_relevant_byte);
    suite_add_tcase(suite, core);
    TCase *data = add_testdata_case(suite, 120);
    if (data)
        tcase_add_test(data, trained_models_have_their_fingerprints);
    return run_suite(suite);
}
