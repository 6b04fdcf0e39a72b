/* Opening a vocabulary block: at any address, truncated, damaged, hostile. Blocks end right before
 * an inaccessible page, so a read past the end crashes. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/vocab_layout.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_vocab.h"

static char err[512];
static const char template[] = "{{ messages[0].content }}";
static void *original;
static size_t n_original;

/* Memory for the block that ends where a page without access begins, 8-byte aligned. */
static char *guarded;

static void build_both_kinds(int bpe)
{
    struct tiny *t = malloc(sizeof(*t));
    if (bpe) {
        tiny_init_bpe(t, "qwen2");
        tiny_merge(t, "a", "b");
        tiny_merge(t, "ab", "c");
    } else {
        tiny_init_spm(t, 1);
        tiny_add(t, "\xe2\x96\x81", VOCAB_TYPE_NORMAL, -1);
    }
    tiny_add(t, "<|im_end|>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(t, "<|user|>", VOCAB_TYPE_USER_DEFINED, 0);
    t->desc.templates[VOCAB_TEMPLATE_CHAT] = (struct vocab_string){template, strlen(template)};
    ck_assert_int_eq(vocab_build(&t->desc, &original, &n_original, err, sizeof(err)), 0);
    free(t);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = (n_original + 7 + page - 1) / page * page;
    char *map = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_int_eq(mprotect(map + size, page, PROT_NONE), 0);
    guarded = map + size - (n_original + 7) / 8 * 8;
    memcpy(guarded, original, n_original);
}

static struct vocab_header *header(void)
{
    return (struct vocab_header *)(void *)guarded;
}

/* Calls every reader with good and bad arguments. It must only return. */
static void exercise(const struct vocab *v)
{
    struct vocab_token token;
    uint32_t n, rank, merged;
    size_t length;
    for (uint32_t id = 0; id < 300; id++) {
        if (vocab_find_token(v, id, &token) && token.text_bytes > 0)
            vocab_find_text(v, token.text, token.text_bytes);
        const char *s = vocab_bytes(v, id, &n);
        for (uint32_t i = 0; s != NULL && i < n; i++)
            rank = (uint32_t)s[i];
        vocab_is_end(v, id);
        vocab_is_control(v, id);
        vocab_byte_token(v, (uint8_t)id);
        vocab_find_merge(v, id, id + 1, &rank, &merged);
    }
    vocab_find_merge(v, 'a', 'b', &rank, &merged);
    vocab_find_text(v, "absent", 6);
    for (int role = 0; role <= VOCAB_ROLE_COUNT; role++)
        vocab_special(v, (enum vocab_role)role);
    const char *text = "x<|im_end|> <|user|>";
    for (size_t i = 0; text[i] != '\0'; i++)
        vocab_match_special(v, text + i, strlen(text + i), true, &length);
    for (int i = 0; i < VOCAB_TEMPLATE_COUNT; i++) {
        struct vocab_string s = vocab_template(v, (enum vocab_template)i);
        ck_assert_int_eq(s.data[s.bytes], 0);
        ck_assert_uint_le(strlen(s.data), s.bytes);
    }
}

static int try_open(void)
{
    struct vocab v;
    int rc = vocab_open(guarded, n_original, &v, err, sizeof(err));
    if (rc == 0)
        exercise(&v);
    return rc;
}

START_TEST(a_block_works_at_any_address)
{
    build_both_kinds(1);
    struct vocab v, w;
    uint32_t rank, merged;
    ck_assert_int_eq(vocab_open(original, n_original, &v, err, sizeof(err)), 0);
    ck_assert_int_eq(vocab_open(guarded, n_original, &w, err, sizeof(err)), 0);
    ck_assert_uint_eq(vocab_find_text(&v, "<|user|>", 8), vocab_find_text(&w, "<|user|>", 8));
    ck_assert(vocab_find_merge(&w, 'a', 'b', &rank, &merged));
    ck_assert_uint_eq(merged, 256);
    exercise(&w);
}
END_TEST

START_TEST(a_mapping_longer_than_the_block_is_accepted)
{
    build_both_kinds(0);
    struct vocab v;
    char *longer = calloc(1, n_original + 4096); /* a memfd is mapped in whole pages */
    memcpy(longer, original, n_original);
    ck_assert_int_eq(vocab_open(longer, n_original + 4096, &v, err, sizeof(err)), 0);
    free(longer);
}
END_TEST

START_TEST(every_truncation_is_refused)
{
    build_both_kinds(1);
    struct vocab v;
    for (size_t n = 0; n < n_original; n++) {
        ck_assert_int_eq(vocab_open(original, n, &v, err, sizeof(err)), -EBADMSG);
        ck_assert_str_eq(err, "the vocabulary cannot be used: it is truncated");
    }
}
END_TEST

START_TEST(an_unaligned_block_is_refused)
{
    build_both_kinds(1);
    struct vocab v;
    memmove(guarded - 4, guarded, n_original);
    ck_assert_int_eq(vocab_open(guarded - 4, n_original, &v, err, sizeof(err)), -EBADMSG);
}
END_TEST

#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        memcpy(guarded, original, n_original);                                                     \
        header()->field = (value);                                                                 \
        ck_assert_msg(try_open() == -EBADMSG, "%s = %s", #field, #value);                          \
    } while (0)

START_TEST(a_wrong_header_is_refused)
{
    build_both_kinds(1);
    ck_assert_int_eq(try_open(), 0);
    REFUSED(magic, 1);
    REFUSED(version, VOCAB_VERSION + 1);
    REFUSED(header_bytes, 8);
    REFUSED(block_bytes, n_original + 1);
    REFUSED(block_bytes, 16);
    REFUSED(model, 0);
    REFUSED(model, VOCAB_MODEL_SPM); /* SPM, but with a pre-tokenizer */
    REFUSED(pre, VOCAB_PRE_NONE);
    REFUSED(pre, VOCAB_PRE_COUNT);
    REFUSED(n_tokens, 0);
    REFUSED(n_tokens, VOCAB_MAX_TOKENS + 1);
    REFUSED(n_tokens, 100000);
    REFUSED(n_specials, 100000);
    REFUSED(lookup_mask, 6);
    REFUSED(lookup_mask, UINT32_MAX);
    REFUSED(lookup_mask, 0xffffff);
    REFUSED(merges_mask, 5);
    REFUSED(merges_mask, 0xffffff);
    REFUSED(pool_bytes, 1u << 30);
    REFUSED(pool_bytes, UINT32_MAX);
    REFUSED(template_bytes[0], sizeof(template) - 2); /* the byte after it is not 0 */
    REFUSED(template_bytes[0], VOCAB_MAX_TEMPLATE_BYTES + 1);
    REFUSED(template_bytes[1], n_original);
    REFUSED(template_bytes[1], UINT64_MAX);
    REFUSED(templates_at[0], header()->block_bytes);
    REFUSED(templates_at[1], UINT64_MAX / 8 * 8);
}
END_TEST

START_TEST(a_chat_template_comes_back_with_its_zero)
{
    struct vocab v;
    build_both_kinds(_i);
    ck_assert_int_eq(vocab_open(guarded, n_original, &v, err, sizeof(err)), 0);
    ck_assert_str_eq(vocab_template(&v, VOCAB_TEMPLATE_CHAT).data, template);
    ck_assert_uint_eq(vocab_template(&v, VOCAB_TEMPLATE_CHAT).bytes, strlen(template));
    ck_assert_str_eq(vocab_template(&v, VOCAB_TEMPLATE_TOOLS).data, "");
    ck_assert_uint_eq(vocab_template(&v, VOCAB_TEMPLATE_TOOLS).bytes, 0);
}
END_TEST

START_TEST(a_section_outside_is_refused)
{
    build_both_kinds(1);
    static const size_t fields[] = {
        offsetof(struct vocab_header, tokens_at),
        offsetof(struct vocab_header, lookup_at),
        offsetof(struct vocab_header, merges_at),
        offsetof(struct vocab_header, pool_at),
        offsetof(struct vocab_header, special_starts_at),
        offsetof(struct vocab_header, templates_at),
    };
    const uint64_t values[] = {
        0, 8, n_original, n_original - 8, UINT64_MAX, UINT64_MAX / 8 * 8 - 64, 1233, 1ull << 40};
    for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            memcpy(guarded, original, n_original);
            memcpy(guarded + fields[f], &values[i], 8);
            ck_assert_msg(try_open() == -EBADMSG, "field at %zu = %llu", fields[f],
                          (unsigned long long)values[i]);
        }
    }
}
END_TEST

START_TEST(entries_pointing_outside_are_not_followed)
{
    build_both_kinds(1);
    struct vocab v;
    struct vocab_token token;
    ck_assert_int_eq(vocab_open(guarded, n_original, &v, err, sizeof(err)), 0);
    struct vocab_entry *e = (struct vocab_entry *)(void *)(guarded + header()->tokens_at);
    e['a'].text_at = v.pool_bytes - 1;
    e['a'].text_bytes = 2;
    e['b'].bytes_at = UINT32_MAX;
    ck_assert(!vocab_find_token(&v, 'a', &token));
    ck_assert(!vocab_find_token(&v, 'b', &token));
    ck_assert(vocab_find_token(&v, 'c', &token));
    struct vocab_merge *m = (struct vocab_merge *)(void *)(guarded + header()->merges_at);
    for (uint32_t i = 0; i <= v.merges_mask; i++)
        m[i].merged = v.n_tokens;
    uint32_t rank, merged;
    ck_assert(!vocab_find_merge(&v, 'a', 'b', &rank, &merged));
    header()->byte_tokens['a'] = v.n_tokens;
    ck_assert_uint_eq(vocab_byte_token(&v, 'a'), VOCAB_NONE);
    header()->roles[VOCAB_EOS] = 1u << 30;
    ck_assert_uint_eq(vocab_special(&v, VOCAB_EOS), VOCAB_NONE);
}
END_TEST

START_TEST(full_tables_end_a_search)
{
    build_both_kinds(1);
    struct vocab v;
    uint32_t rank, merged;
    ck_assert_int_eq(vocab_open(guarded, n_original, &v, err, sizeof(err)), 0);
    memset(guarded + header()->lookup_at, 0, (v.lookup_mask + 1ull) * sizeof(struct vocab_slot));
    memset(guarded + header()->merges_at, 0, (v.merges_mask + 1ull) * sizeof(struct vocab_merge));
    ck_assert_uint_eq(vocab_find_text(&v, "absent", 6), VOCAB_NONE);
    ck_assert(!vocab_find_merge(&v, 'a', 'b', &rank, &merged));
}
END_TEST

START_TEST(no_damage_crashes_a_reader)
{
    build_both_kinds(_i % 2);
    uint64_t state = 0x1234567u + (unsigned)_i;
    for (int turn = 0; turn < 3000; turn++) {
        memcpy(guarded, original, n_original);
        for (int k = 0; k < 1 + turn % 8; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            /* Half of the changes go to the header and to the smaller tables after the pool's
             * texts. */
            size_t at =
                (size_t)(state >> 33) % (turn % 2 == 0 ? sizeof(struct vocab_header) : n_original);
            guarded[at] = (char)(state >> 24);
        }
        try_open();
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vocab_open");
    TCase *c = tcase_create("vocab_open");
    tcase_add_test(c, a_block_works_at_any_address);
    tcase_add_test(c, a_mapping_longer_than_the_block_is_accepted);
    tcase_add_test(c, every_truncation_is_refused);
    tcase_add_test(c, an_unaligned_block_is_refused);
    tcase_add_test(c, a_wrong_header_is_refused);
    tcase_add_test(c, a_section_outside_is_refused);
    tcase_add_loop_test(c, a_chat_template_comes_back_with_its_zero, 0, 2);
    tcase_add_test(c, entries_pointing_outside_are_not_followed);
    tcase_add_test(c, full_tables_end_a_search);
    tcase_add_loop_test(c, no_damage_crashes_a_reader, 0, 4);
    suite_add_tcase(s, c);
    return run_suite(s);
}
