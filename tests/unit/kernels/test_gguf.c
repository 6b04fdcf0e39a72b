/* The GGUF reader: valid files open and read back, invalid ones give one line, nothing crashes.
 * Values of keys are in test_gguf_values.c, tensors in test_gguf_tensors.c. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tests/run_suite.h"
#include "tests/rig/gguf_opened.h"

/* ---- header ---------------------------------------------------------------------------------- */

START_TEST(empty_files_of_both_versions_open)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct gw w;
        struct gguf *g;
        uint8_t *file;
        gw_init(&w);
        w.version = version;
        ck_assert_int_eq(open_writer(&w, &g, &file), 0);
        ck_assert_uint_eq(gguf_version(g), version);
        ck_assert_uint_eq(gguf_n_keys(g), 0);
        ck_assert_uint_eq(gguf_n_tensors(g), 0);
        ck_assert_uint_eq(gguf_alignment(g), 32);
        ck_assert_uint_eq(gguf_file_bytes(g), 24);
        ck_assert(!gguf_has_data(g));
        ck_assert_ptr_null(gguf_find_key(g, "general.name"));
        ck_assert_ptr_null(gguf_find_tensor(g, "output.weight"));
        gguf_close(g);
        free(file);
    }
}
END_TEST

START_TEST(other_versions_are_refused)
{
    static const struct {
        uint32_t version;
        const char *part;
    } CASES[] = {{0, "version 0"},        {1, "version 1"},           {4, "version 4"},
                 {0xffffffff, "version"}, {0x03000000, "big-endian"}, {0x02000000, "big-endian"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gw w;
        gw_init(&w);
        w.version = CASES[i].version;
        check_refused(&w, -ENOTSUP, CASES[i].part);
    }
}
END_TEST

START_TEST(counts_beyond_the_file_are_refused)
{
    static const uint64_t COUNTS[] = {1, 2, 1 << 20, UINT32_MAX, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        struct gw w;
        gw_init(&w);
        w.n_keys = COUNTS[i];
        check_refused(&w, -EBADMSG, "keys");
        gw_init(&w);
        w.n_tensors = COUNTS[i];
        check_refused(&w, -EBADMSG, "tensors");
    }
}
END_TEST

START_TEST(other_files_are_refused)
{
    struct gguf *g = NULL;
    static const char PNG[64] = "\x89PNG\r\n\x1a\n";
    ck_assert_int_eq(gguf_open_memory(PNG, sizeof(PNG), &g, err, sizeof(err)), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "not a GGUF file"));
    check_line();
    ck_assert_int_eq(gguf_open_memory("GG", 2, &g, err, sizeof(err)), -EBADMSG);
    check_line();
    ck_assert_int_eq(gguf_open_memory("GGUF\3\0\0", 7, &g, err, sizeof(err)), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "truncated"));
    ck_assert_int_eq(gguf_open_memory("", 0, &g, err, sizeof(err)), -EBADMSG);
    check_line();
    ck_assert_int_eq(gguf_open_memory("", 0, &g, NULL, 0), -EBADMSG);
    ck_assert_ptr_null(g);
}
END_TEST

START_TEST(every_truncation_of_the_head_is_refused)
{
    size_t bytes;
    size_t data_at;
    struct gw_llama spec = gw_llama_small(QUANT_Q4_0);
    uint8_t *file = gw_llama_file(&spec, &bytes, &data_at);
    size_t head = data_at - 31; /* cutting the padding only loses data */
    for (size_t n = 0; n < head; n++) {
        uint8_t *part = malloc(n + 1);
        struct gguf *g = NULL;
        memcpy(part, file, n);
        ck_assert_msg(gguf_open_memory(part, n, &g, err, sizeof(err)) == -EBADMSG, "%zu", n);
        check_line();
        free(part);
    }
    free(file);
}
END_TEST

/* ---- files ----------------------------------------------------------------------------------- */

START_TEST(a_file_opens_from_its_path)
{
    char path[] = "/tmp/hearth-test-gguf-XXXXXX";
    int fd = mkstemp(path);
    size_t bytes;
    struct gw_llama spec = gw_llama_small(QUANT_F16);
    uint8_t *file = gw_llama_file(&spec, &bytes, NULL);
    struct gguf *g = NULL;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "empty"));
    ck_assert_int_eq(write(fd, file, bytes), (int)bytes);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), 0);
    ck_assert_uint_eq(gguf_file_bytes(g), bytes);
    ck_assert_int_eq(memcmp(g->data, file, bytes), 0);
    gguf_close(g);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes - 1), 0);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), -EBADMSG);
    check_line();
    close(fd);
    unlink(path);
    free(file);
    gguf_close(NULL);
}
END_TEST

START_TEST(views_outlive_the_descriptor)
{
    struct gguf *g;
    uint8_t head[4] = {0};
    ck_assert_int_eq(gguf_open("daemon/models/hearth-code-5m-f16.gguf", &g, err, sizeof(err)), 0);
    ck_assert_int_eq(gguf_read(g, g->data, sizeof(head), head), 0);
    ck_assert_mem_eq(head, "GGUF", sizeof(head));
    int fd = g->fd;
    gguf_close_file(g);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    ck_assert_int_eq(gguf_read(g, g->data, sizeof(head), head), -EBADF);
    gguf_drop_pages(g);
    ck_assert_mem_eq(g->data, "GGUF", sizeof(head));
    gguf_close(g);
}
END_TEST

/* How many pages of the file are in the page cache. */
static size_t cached_pages(const struct gguf *g)
{
    unsigned char in_cache[256];
    const size_t n = (g->bytes + 4095) / 4096;
    size_t count = 0;
    ck_assert_uint_le(n, sizeof(in_cache));
    ck_assert_int_eq(mincore(g->mapping, g->bytes, in_cache), 0);
    for (size_t i = 0; i < n; i++)
        count += in_cache[i] & 1;
    return count;
}

/* Read in pieces that begin and end within pages, as weights are. */
START_TEST(a_file_that_is_dropped_behind_the_read_leaves_the_page_cache)
{
    enum { PIECE = 10000, PIECES = 60 };
    static uint8_t piece[PIECE];
    struct gguf *g;
    struct gw w;
    size_t bytes;
    const uint64_t ne[1] = {PIECE * PIECES / 4};
    char path[64];
    gw_init(&w);
    gw_tensor_info(&w, "large", QUANT_F32, 1, ne, 0);
    for (int i = 0; i < PIECES; i++)
        gw_put(&w.data, piece, PIECE);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    snprintf(path, sizeof(path), "/var/tmp/hearth-test-drop-%d", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert(fd >= 0 && write(fd, file, bytes) == (ssize_t)bytes && fsync(fd) == 0);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), 0);
    unlink(path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    const uint8_t *data = g->tensors[0].data;
    gguf_drop_pages(g); /* mapped pages are not dropped */
    for (int i = 0; i < PIECES; i++)
        ck_assert_int_eq(gguf_read(g, data + (size_t)i * PIECE, PIECE, piece), 0);
    const size_t kept = cached_pages(g);
    gguf_drop_reads(g);
    for (int i = 0; i < PIECES; i++)
        ck_assert_int_eq(gguf_read(g, data + (size_t)i * PIECE, PIECE, piece), 0);
    struct statfs fs;
    if (fstatfs(fd, &fs) == 0 && fs.f_type == 0x01021994)
        printf("skip: /var/tmp is in memory, which has no page cache to drop from\n");
    else
        ck_assert_msg(kept > 140 && cached_pages(g) < 8, "%zu, then %zu", kept, cached_pages(g));
    close(fd);
    gguf_close(g);
    free(file);
}
END_TEST

START_TEST(paths_that_are_not_files_are_refused)
{
    struct gguf *g = NULL;
    char path[64];
    ck_assert_int_eq(gguf_open("/nonexistent/model.gguf", &g, err, sizeof(err)), -ENOENT);
    check_line();
    ck_assert_int_eq(gguf_open("/tmp", &g, err, sizeof(err)), -EINVAL);
    check_line();
    snprintf(path, sizeof(path), "/tmp/hearth-test-fifo-%d", (int)getpid());
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int rc = gguf_open(path, &g, err, sizeof(err)); /* a FIFO: must not wait for a writer */
    unlink(path);
    ck_assert_int_eq(rc, -EINVAL);
    ck_assert_ptr_null(g);
}
END_TEST

/* ---- test data ------------------------------------------------------------------------------- */

/* A file with holes, which takes 4 KiB on the disk: an array of so many empty strings. */
START_TEST(a_long_header_is_not_read_to_its_end)
{
    const uint64_t strings = GGUF_MAX_HEADER / 8;
    struct {
        char magic[4];
        uint32_t version;
        uint64_t n_tensors, n_keys, name_bytes;
        char name[4];
        uint32_t type, element;
        uint32_t count[2];
    } head = {.magic = "GGUF",
              .version = 3,
              .n_keys = 1,
              .name_bytes = 4,
              .name = "many",
              .type = GGUF_ARRAY,
              .element = GGUF_STRING,
              .count = {(uint32_t)strings, 0}};
    char path[64];
    struct gguf *g;
    int fd = memfd_create("sparse", MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ck_assert_int_eq(write(fd, &head, sizeof(head)), sizeof(head));
    ck_assert_int_eq(ftruncate(fd, (off_t)(sizeof(head) + 8 * strings)), 0);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), -EBADMSG);
    ck_assert_str_eq(err, "malformed: its keys and list of tensors take more than 256 MiB");
    head.count[0] = 1000;
    ck_assert_int_eq(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), 0);
    gguf_close(g);
    close(fd);
}
END_TEST

START_TEST(malformed_files_get_the_right_verdict)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/gguf-malformed", getenv("HEARTH_TESTDATA"));
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    int n = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        bool good = strncmp(entry->d_name, "ok_", 3) == 0;
        if (!good && strncmp(entry->d_name, "bad_", 4) != 0)
            continue;
        struct gguf *g = NULL;
        snprintf(path, sizeof(path), "%s/gguf-malformed/%s", getenv("HEARTH_TESTDATA"),
                 entry->d_name);
        int rc = gguf_open(path, &g, err, sizeof(err));
        ck_assert_msg((rc == 0) == good, "%s: %d", entry->d_name, rc);
        if (!good)
            check_line();
        gguf_close(g);
        n++;
    }
    closedir(dir);
    ck_assert_int_eq(n, 27);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, empty_files_of_both_versions_open);
    tcase_add_test(core, other_versions_are_refused);
    tcase_add_test(core, counts_beyond_the_file_are_refused);
    tcase_add_test(core, other_files_are_refused);
    tcase_add_test(core, every_truncation_of_the_head_is_refused);
    tcase_add_test(core, a_file_opens_from_its_path);
    tcase_add_test(core, views_outlive_the_descriptor);
    tcase_add_test(core, a_file_that_is_dropped_behind_the_read_leaves_the_page_cache);
    tcase_add_test(core, paths_that_are_not_files_are_refused);
    tcase_add_test(core, a_long_header_is_not_read_to_its_end);
    suite_add_tcase(suite, core);
    TCase *data = add_testdata_case(suite, 60);
    if (data)
        tcase_add_test(data, malformed_files_get_the_right_verdict);
    return run_suite(suite);
}
