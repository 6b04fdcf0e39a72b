/* gguf_out writes what the reader reads back; a failure leaves no file. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/quant/quant_types.h"
#include "kernels/tools/gguf_out.h"
#include "tests/run_suite.h"

static char folder[] = "/tmp/hearth-test-XXXXXX";
static char path[64], part[80], err[512];

/* Values that encode tensor, row and column. */
static int place(void *arg, uint32_t tensor, uint64_t row, float *x)
{
    const uint64_t *cols = arg;
    for (uint64_t i = 0; i < cols[tensor]; i++)
        x[i] = (float)(tensor * 100000 + row * 100 + i);
    return 0;
}

START_TEST(a_written_file_reads_back)
{
    struct gguf_out *out;
    struct gguf *g;
    uint64_t cols[] = {5, 3, 2};
    const uint8_t numbers[] = {1, 0, 2, 0};
    ck_assert_msg(gguf_out_open(path, &out, err, sizeof(err)) == 0, "%s", err);
    gguf_out_u32(out, "a.u32", 7);
    gguf_out_f32(out, "a.f32", 0.5f);
    gguf_out_bool(out, "a.bool", true);
    gguf_out_string(out, "a.string", "text");
    gguf_out_array(out, "a.array", GGUF_U16, 2, numbers, sizeof(numbers));
    gguf_out_texts(out, "a.texts", 2);
    gguf_out_text(out, "x", 1);
    gguf_out_text(out, "", 0);
    gguf_out_tensor(out, &(struct gguf_out_tensor){"one", QUANT_F32, 1, 5, 1, 0});
    gguf_out_tensor(out, &(struct gguf_out_tensor){"two", QUANT_F32, 2, 3, 900000, 0});
    gguf_out_tensor(out, &(struct gguf_out_tensor){"three", QUANT_F32, 3, 2, 11, 7});
    ck_assert_msg(gguf_out_write(out, place, cols, 3, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(access(path, F_OK), -1); /* not before the commit */
    ck_assert_int_eq(gguf_out_commit(out, err, sizeof(err)), 0);
    gguf_out_close(out);

    uint32_t u = 0;
    float f = 0;
    bool b = false;
    struct gguf_string s;
    struct gguf_array a;
    ck_assert_msg(gguf_open(path, &g, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(gguf_u32(g, "a.u32", &u), 0);
    ck_assert_int_eq(gguf_f32(g, "a.f32", &f), 0);
    ck_assert_int_eq(gguf_bool(g, "a.bool", &b), 0);
    ck_assert_int_eq(gguf_string(g, "a.string", &s), 0);
    ck_assert(u == 7 && f == 0.5f && b && gguf_string_equal(s, "text"));
    ck_assert_int_eq(gguf_array(g, "a.array", &a), 0);
    ck_assert(a.count == 2 && gguf_array_i64(&a, 1) == 2);
    ck_assert_int_eq(gguf_array(g, "a.texts", &a), 0);
    ck_assert_uint_eq(a.count, 2);
    const struct gguf_tensor *one = gguf_find_tensor(g, "one"), *two = gguf_find_tensor(g, "two");
    ck_assert(one->n_dims == 1 && one->ne[0] == 5 && two->n_dims == 2 && two->ne[1] == 900000);
    for (uint64_t row = 0; row < 900000; row += 1111) {
        float want[3], got[3];
        place(cols, 1, row, want);
        memcpy(got, two->data + row * 12, sizeof(got));
        ck_assert_mem_eq(got, want, sizeof(got));
    }
    const struct gguf_tensor *three = gguf_find_tensor(g, "three");
    ck_assert(three->n_dims == 3 && three->ne[0] == 2 && three->ne[1] == 11 && three->ne[2] == 7);
    ck_assert_uint_eq(three->bytes, 2 * 11 * 7 * sizeof(float));
    for (uint64_t row = 0; row < 11 * 7; row++) {
        float want[2];
        place(cols, 2, row, want);
        ck_assert_mem_eq(three->data + row * 8, want, sizeof(want));
    }
    gguf_close(g);
    ck_assert_int_eq(access(part, F_OK), -1);
}
END_TEST

static int infinite(void *arg, uint32_t tensor, uint64_t row, float *x)
{
    (void)arg, (void)tensor;
    x[0] = row == 70 ? INFINITY : 1;
    return 0;
}

static int broken(void *arg, uint32_t tensor, uint64_t row, float *x)
{
    (void)arg, (void)tensor, (void)x;
    return row == 70 ? -EIO : 0;
}

START_TEST(a_failed_write_leaves_no_file)
{
    struct gguf_out *out;
    gguf_out_row *rows[] = {infinite, broken};
    const char *lines[] = {"tensor x has a value that is not finite",
                           "cannot write tensor x: Input/output error"};
    ck_assert_int_eq(gguf_out_open(path, &out, err, sizeof(err)), 0);
    gguf_out_tensor(out, &(struct gguf_out_tensor){"x", QUANT_F32, 2, 1, 90, 0});
    ck_assert_int_ne(gguf_out_write(out, rows[_i], NULL, 2, err, sizeof(err)), 0);
    ck_assert_msg(strstr(err, lines[_i]) != NULL, "%s", err);
    gguf_out_close(out);
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert_int_eq(access(part, F_OK), -1);
}
END_TEST

static int zeros(void *arg, uint32_t tensor, uint64_t row, float *x)
{
    (void)arg, (void)tensor, (void)row;
    x[0] = 0;
    return 0;
}

START_TEST(a_missing_folder_is_an_error)
{
    struct gguf_out *out;
    ck_assert_int_eq(gguf_out_open("/none/x.gguf", &out, err, sizeof(err)), -ENOENT);
    ck_assert_str_eq(err, "cannot create /none/x.gguf.part: No such file or directory");
}
END_TEST

/* A folder or device of that name must not be replaced, and is refused before the work begins. */
START_TEST(only_files_are_replaced)
{
    struct gguf_out *out;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(i == 0 ? mkdir(path, 0777) : mkfifo(path, 0666), 0);
        ck_assert_int_eq(gguf_out_open(path, &out, err, sizeof(err)), -EEXIST);
        ck_assert_msg(strstr(err, "not a regular file") != NULL, "%s", err);
        ck_assert_int_eq(access(part, F_OK), -1);
        ck_assert_int_eq(i == 0 ? rmdir(path) : unlink(path), 0);
    }
}
END_TEST

/* Whoever may write to the folder may have put something at the temporary name: a link, a pipe that
 * nobody reads, a file that is open. */
START_TEST(what_has_the_temporary_name_is_not_written_to)
{
    struct gguf_out *out;
    char other[80], kept[8] = "";
    snprintf(other, sizeof(other), "%s/other", folder);
    FILE *f = fopen(other, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fputs("kept", f) < 0, 0);
    fclose(f);
    ck_assert_int_eq(_i == 0   ? symlink(other, part)
                     : _i == 1 ? link(other, part)
                               : mkfifo(part, 0666),
                     0);
    ck_assert_int_eq(gguf_out_open(path, &out, err, sizeof(err)), 0);
    gguf_out_tensor(out, &(struct gguf_out_tensor){"x", QUANT_F32, 2, 1, 4, 0});
    ck_assert_int_eq(gguf_out_write(out, zeros, NULL, 1, err, sizeof(err)), 0);
    ck_assert_int_eq(gguf_out_commit(out, err, sizeof(err)), 0);
    gguf_out_close(out);
    f = fopen(other, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(kept, sizeof(kept), f));
    fclose(f);
    ck_assert_str_eq(kept, "kept");
    ck_assert_int_eq(unlink(other) | unlink(path), 0);
}
END_TEST

START_TEST(overwriting_the_source_is_detected)
{
    char link_path[80];
    snprintf(link_path, sizeof(link_path), "%s/link", folder);
    ck_assert(!gguf_out_overwrites(path, part)); /* no such file yet */
    FILE *f = fopen(part, "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    ck_assert_int_eq(symlink(part, link_path), 0);
    ck_assert(gguf_out_overwrites(path, part));
    ck_assert(gguf_out_overwrites(path, link_path));
    ck_assert(!gguf_out_overwrites(path, folder));
    unlink(link_path);
    unlink(part);
}
END_TEST

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/x.gguf", folder);
    snprintf(part, sizeof(part), "%s.part", path);
}

static void remove_folder(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

int main(void)
{
    Suite *s = suite_create("gguf_out");
    TCase *t = tcase_create("gguf_out");
    tcase_add_unchecked_fixture(t, make_folder, remove_folder);
    tcase_add_loop_test(t, a_failed_write_leaves_no_file, 0, 2);
    tcase_add_test(t, a_missing_folder_is_an_error);
    tcase_add_test(t, only_files_are_replaced);
    tcase_add_loop_test(t, what_has_the_temporary_name_is_not_written_to, 0, 3);
    tcase_add_test(t, overwriting_the_source_is_detected);
    tcase_add_test(t, a_written_file_reads_back);
    suite_add_tcase(s, t);
    return run_suite(s);
}
