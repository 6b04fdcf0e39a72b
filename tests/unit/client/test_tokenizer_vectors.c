/* Real vocabularies against published ids: tokenizers/NAME.gguf with NAME.gguf.inp (texts) and
 * .out (a line of ids each), from the folder in HEARTH_TESTDATA. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tokenizer/detokenizer.h"
#include "client/tokenizer/tokenizer.h"
#include "tests/run_suite.h"
#include "tests/rig/vocab_file.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

enum { MAX_FILES = 64 };
static char files[MAX_FILES][512];
static int n_files;
static char err[512];

static char *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *s = malloc(n + 1);
    ck_assert_uint_eq(fread(s, 1, n, f), n);
    s[n] = '\0';
    fclose(f);
    *ret_n = n;
    return s;
}

static void check_text(const struct vocab *v, const char *text, size_t bytes, char *line)
{
    struct token_list l;
    token_list_init(&l);
    ck_assert_msg(tokenize(v, text, bytes, 0, &l, err, sizeof(err)) == 0, "%s", err);
    size_t n = 0;
    for (char *id = strtok(line, " "); id != NULL; id = strtok(NULL, " "), n++)
        ck_assert_msg(n < l.n && l.ids[n] == strtoul(id, NULL, 10), "'%.*s': id %zu is not %s",
                      (int)bytes, text, n, id);
    ck_assert_msg(n == l.n, "'%.*s': %zu ids, not %zu", (int)bytes, text, l.n, n);
    struct buffer back = {0};
    ck_assert_uint_eq(detokenize(v, l.ids, l.n, true, &back), l.n);
    ck_assert_msg(back.bytes == bytes && (!bytes || memcmp(back.data, text, bytes) == 0),
                  "'%.*s' came back as '%.*s'", (int)bytes, text, (int)back.bytes, back.data);
    buffer_fini(&back);
    token_list_fini(&l);
}

START_TEST(ids_are_the_published_ones)
{
    char path[600];
    size_t n_block, n_texts, n_ids;
    struct vocab v;
    void *block = vocab_file_build(files[_i], &n_block);
    ck_assert_msg(vocab_open(block, n_block, &v, err, sizeof(err)) == 0, "%s", err);
    snprintf(path, sizeof(path), "%s.inp", files[_i]);
    char *texts = read_file(path, &n_texts);
    snprintf(path, sizeof(path), "%s.out", files[_i]);
    char *ids = read_file(path, &n_ids), *line = ids;
    int n = 0;
    for (char *text = texts; text != NULL && *line != '\0'; n++) { /* a line for each text */
        char *end = strstr(text, SEPARATOR);
        size_t bytes = end != NULL ? (size_t)(end - text) : strlen(text);
        char *next_line = strchr(line, '\n');
        ck_assert_ptr_nonnull(next_line);
        *next_line = '\0';
        check_text(&v, text, bytes, line);
        line = next_line + 1;
        text = end != NULL ? end + strlen(SEPARATOR) : NULL;
    }
    ck_assert_int_ge(n, 46);
    free(texts);
    free(ids);
    free(block);
}
END_TEST

/* Collects NAME.gguf for every NAME.gguf.inp. */
static void find_files(const char *folder)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/tokenizers", folder);
    DIR *d = opendir(path);
    struct dirent *entry;
    while (d != NULL && (entry = readdir(d)) != NULL && n_files < MAX_FILES) {
        size_t n = strlen(entry->d_name);
        if (n < 5 || n > 100 || strcmp(entry->d_name + n - 4, ".inp") != 0)
            continue;
        snprintf(files[n_files++], sizeof(files[0]), "%s/%.*s", path, (int)n - 4, entry->d_name);
    }
    if (d != NULL)
        closedir(d);
}

int main(void)
{
    const char *folder = getenv("HEARTH_TESTDATA");
    if (folder == NULL) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return 0;
    }
    find_files(folder);
    if (n_files == 0) {
        fprintf(stderr, "skip: no tokenizers in %s\n", folder);
        return 0;
    }
    Suite *s = suite_create("tokenizer_vectors");
    TCase *c = tcase_create("tokenizer_vectors");
    tcase_set_timeout(c, 30);
    tcase_add_loop_test(c, ids_are_the_published_ones, 0, n_files);
    suite_add_tcase(s, c);
    return run_suite(s);
}
