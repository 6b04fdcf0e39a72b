/* Models in several files: they are the same model as in one, and every part must be there and be
 * what its name says. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/rig/cpu_help.h"
#include "tests/rig/gguf_parts.h"
#include "tests/run_suite.h"

enum { N = 3 };

static char folder[] = "/tmp/hearth-parts-XXXXXX", err[512];

static const char *stem(void)
{
    static char path[64];
    snprintf(path, sizeof(path), "%s/model", folder);
    return path;
}

static const char *part_path(uint32_t i)
{
    static char path[128];
    gguf_part_path(path, sizeof(path), stem(), i, N);
    return path;
}

static void setup(void)
{
    strcpy(folder, "/tmp/hearth-parts-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    for (uint32_t i = 1; i <= N; i++)
        unlink(part_path(i));
    rmdir(folder);
}

static void open_whole(struct help_model *m)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.untied = true;
    help_model_tiny(m, &shape);
}

START_TEST(a_model_in_parts_is_the_model)
{
    enum { TOKENS = 7 };
    const uint32_t tokens[TOKENS] = {1, 300, 20, 301, 5, 6, 310}, pages[1] = {0};
    uint8_t fingerprint[2][MODEL_FINGERPRINT_BYTES];
    struct help_model m[2];
    float *logits[2];
    open_whole(&m[0]);
    gguf_write_parts(m[0].gguf, stem(), N);
    help_model_file(&m[1], part_path(1));
    ck_assert_uint_eq(gguf_n_tensors(m[1].gguf), gguf_n_tensors(m[0].gguf));
    for (int i = 0; i < 2; i++) {
        const size_t n = TOKENS * m[i].model->n_vocab;
        logits[i] = help_memory(n * sizeof(float));
        struct backend *b = help_backend(&m[i], NULL, 2, TOKENS, 1);
        help_logits(b, m[i].model, tokens, TOKENS, TOKENS, pages, logits[i]);
        ck_assert_int_eq(model_fingerprint(m[i].model, 2, fingerprint[i]), 0);
        backend_cpu.close(b);
    }
    ck_assert_uint_eq(help_differs(logits[0], logits[1], TOKENS * m[0].model->n_vocab),
                      TOKENS * m[0].model->n_vocab);
    ck_assert_mem_eq(fingerprint[0], fingerprint[1], MODEL_FINGERPRINT_BYTES);
    gguf_close_file(m[1].gguf);
    gguf_drop_pages(m[1].gguf);
    ck_assert_mem_eq(m[1].gguf->next->data, "GGUF", 4);
    for (int i = 0; i < 2; i++) {
        free(logits[i]);
        help_model_close(&m[i]);
    }
}
END_TEST

static void refused(uint32_t given, int code, const char *part)
{
    struct gguf *g = NULL;
    err[0] = 0;
    int rc = gguf_open_parts(part_path(given), &g, err, sizeof(err));
    ck_assert_msg(rc == code, "%d: %s", rc, err);
    ck_assert_msg(strstr(err, part) != NULL, "%s", err);
    ck_assert_ptr_null(strchr(err, '\n'));
    ck_assert_ptr_null(g);
}

START_TEST(a_part_that_is_missing_or_foreign_is_one_line)
{
    struct help_model m;
    open_whole(&m);
    const uint32_t all = (uint32_t)gguf_n_tensors(m.gguf);
    const struct gguf_split good = {1, N, all, 0, all / 2};
    struct gguf_split bad;
    gguf_write_parts(m.gguf, stem(), N);

    refused(2, -EBADMSG, "this is part 2 of 3: give the first part, NAME-00001-of-00003.gguf");
    unlink(part_path(2));
    refused(1, -ENOENT, "part 2 of 3: cannot open: No such file");
    gguf_write_part(m.gguf, &good, stem(), 2, N, 40);
    refused(1, -EBADMSG, "part 2 of 3: malformed: the file ends inside tensor");
    bad = good;
    bad.count = 4;
    gguf_write_part(m.gguf, &bad, stem(), 2, N, 0);
    refused(1, -EBADMSG, "part 2 of 3 says that it is part 2 of 4");
    bad = good;
    bad.no = 2;
    gguf_write_part(m.gguf, &bad, stem(), 2, N, 0);
    refused(1, -EBADMSG, "part 2 of 3 says that it is part 3 of 3");
    bad = good;
    bad.tensors++;
    gguf_write_part(m.gguf, &bad, stem(), 2, N, 0);
    refused(1, -EBADMSG, "part 2 of 3 is of a model of");
    bad = good;
    bad.to++;
    gguf_write_part(m.gguf, &bad, stem(), 2, N, 0);
    refused(1, -EBADMSG, "split.tensors.count is");
    bad = good; /* the right number, one of them twice */
    bad.from++;
    bad.to++;
    gguf_write_part(m.gguf, &bad, stem(), 2, N, 0);
    refused(1, -EBADMSG, "malformed: duplicate tensor");
    help_model_close(&m);
}
END_TEST

START_TEST(a_first_part_with_another_name_is_refused)
{
    struct help_model m;
    char path[128];
    struct gguf *g;
    open_whole(&m);
    gguf_write_parts(m.gguf, stem(), N);
    snprintf(path, sizeof(path), "%s/other.gguf", folder);
    ck_assert_int_eq(rename(part_path(1), path), 0);
    ck_assert_int_eq(gguf_open_parts(path, &g, err, sizeof(err)), -EBADMSG);
    ck_assert_msg(strstr(err, "is not called NAME-00001-of-00003.gguf") != NULL, "%s", err);
    unlink(path);
    help_model_close(&m);
}
END_TEST

/* A part without tensors, whose keys take `bytes` more, a hole in the file. */
static void write_sparse_part(uint32_t i, uint32_t tensors, uint64_t bytes)
{
    struct gw w;
    size_t written;
    gw_init(&w);
    gw_key_u32(&w, "split.no", i - 1);
    gw_key_u32(&w, "split.count", N);
    gw_key_u32(&w, "split.tensors.count", tensors);
    gw_key_array(&w, "hole", GGUF_U8, bytes, "", 0);
    uint8_t *file = gw_finish(&w, &written, NULL);
    FILE *out = fopen(part_path(i), "wb");
    ck_assert(out && fwrite(file, 1, written, out) == written && fclose(out) == 0);
    ck_assert_int_eq(truncate(part_path(i), (off_t)(written + bytes)), 0);
    free(file);
}

/* All headers are read when the model is opened: many sparse ones would hold up a search for models. */
START_TEST(headers_of_parts_are_bounded_together)
{
    const uint64_t third = GGUF_MAX_HEADER / 3, half = GGUF_MAX_HEADER / 2;
    struct help_model m;
    struct gguf *gguf = NULL;
    open_whole(&m);
    const uint32_t n = (uint32_t)gguf_n_tensors(m.gguf);
    const struct gguf_split first = {0, N, n, 0, n};
    gguf_write_part(m.gguf, &first, stem(), 1, N, 0);
    write_sparse_part(2, n, half);
    write_sparse_part(3, n, third);
    ck_assert_msg(gguf_open_parts(part_path(1), &gguf, err, sizeof(err)) == 0, "%s", err);
    gguf_close(gguf);
    write_sparse_part(3, n, half);
    ck_assert_int_eq(gguf_open_parts(part_path(1), &gguf, err, sizeof(err)), -EBADMSG);
    ck_assert_str_eq(err, "malformed: the keys and lists of tensors of 3 of 3 parts take more than "
                          "256 MiB");
    help_model_close(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_parts");
    TCase *tcase = tcase_create("parts");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_model_in_parts_is_the_model);
    tcase_add_test(tcase, a_part_that_is_missing_or_foreign_is_one_line);
    tcase_add_test(tcase, a_first_part_with_another_name_is_refused);
    tcase_add_test(tcase, headers_of_parts_are_bounded_together);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
