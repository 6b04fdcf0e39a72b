/* Models on this disk: where they are found, what they are called, which one a name means. */
#include "client/models/models.h"
#include "client/models/scan.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[FOLDER_BYTES];
static struct models models;

static void setup(void)
{
    folder_make_home(home);
    setenv("HEARTH_MODELS", home, 1); /* not the machine's own */
    setenv("OLLAMA_MODELS", home, 1);
    models = (struct models){0};
}

static void teardown(void)
{
    models_fini(&models);
    folder_remove(home);
}

/* Writes HOME/NAME, and the folders that it is in. Returns its path; static memory. */
static const char *put(const char *name, const char *text)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    for (char *c = path + strlen(home) + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
            *c = '/';
        }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void assert_names(const char *names)
{
    char found[1024] = "";
    ck_assert_int_eq(models_find(&models), 0);
    for (size_t i = 0; i < models.n; i++)
        snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s", i ? " " : "",
                 models.files[i].name);
    ck_assert_str_eq(found, names);
}

START_TEST(models_of_every_program_are_found)
{
    setenv("HEARTH_MODELS", put("mine/a.gguf", "1"), 1);
    *strrchr(getenv("HEARTH_MODELS"), '/') = 0;
    put(".cache/huggingface/hub/models--org--b-GGUF/snapshots/0123/b.gguf", "2");
    put(".cache/llama.cpp/c.gguf", "3");
    put(".lmstudio/models/publisher/repository/d.gguf", "4");
    put("ollama/blobs/sha256-05", "5");
    put("ollama/manifests/registry.ollama.ai/library/e/7b",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.template\",\"digest\":\"x\"},"
        "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:05\"}]}");
    char ollama[128];
    snprintf(ollama, sizeof(ollama), "%s/ollama", home);
    setenv("OLLAMA_MODELS", ollama, 1);
    assert_names("a b c d e:7b");
    static const char *const sources[] = {"hearth", "hugging-face", "llama.cpp", "lm-studio",
                                          "ollama"};
    for (size_t i = 0; i < models.n; i++)
        ck_assert_str_eq(models.files[i].source, sources[i]);
}
END_TEST

START_TEST(parts_are_one_model)
{
    put("big-00001-of-00003.gguf", "12");
    put("big-00002-of-00003.gguf", "345");
    put("big-00003-of-00003.gguf", "6789");
    assert_names("big");
    ck_assert_uint_eq(models.files[0].bytes, 9);
    ck_assert_ptr_nonnull(strstr(models.files[0].path, "-00001-of-00003.gguf"));
    ck_assert_uint_eq(models_stem("big-00001-of-00003.gguf"), strlen("big"));
    ck_assert_uint_eq(models_stem("big-2.5.GGUF"), strlen("big-2.5"));
    ck_assert_uint_eq(models_stem(".gguf"), strlen(".gguf"));
}
END_TEST

START_TEST(projectors_and_other_files_are_left_out)
{
    put("mmproj-a.gguf", "1");
    put("notes.txt", "1");
    put("a.GGUF", "1");
    assert_names("a");
}
END_TEST

START_TEST(files_of_one_name_get_their_folders)
{
    put("x/same.gguf", "1");
    put("y/z/same.gguf", "2");
    put(".cache/huggingface/hub/models--org--repo--v2/snapshots/0/same.gguf", "3");
    put("other.gguf", "4");
    assert_names("org/repo/v2/same other x/same y/z/same");
}
END_TEST

/* Two folders of models may hold files of one name that are two models. */
START_TEST(no_file_is_lost_by_its_name)
{
    char folders[256], names[512];
    put("a/same.gguf", "1");
    put("b/same.gguf", "2");
    put("a/in/deep.gguf", "3");
    put("b/in/deep.gguf", "4");
    put(".cache/huggingface/hub/models--org--repo/snapshots/0/same.gguf", "5");
    put(".cache/huggingface/hub/models--org--repo/snapshots/1/same.gguf", "6");
    snprintf(folders, sizeof(folders), "%s/a:%s/b", home, home);
    setenv("HEARTH_MODELS", folders, 1);
    snprintf(names, sizeof(names), "%s/b/in/deep %s/b/same hearth/same in/deep org/repo/same", home,
             home);
    assert_names(names);
}
END_TEST

/* Where a folder of models is looked for there may be a model. */
START_TEST(a_file_in_the_place_of_a_folder_is_a_model)
{
    char both[256], names[256];
    put("folder/a.gguf", "1");
    put("z.gguf", "2");
    snprintf(both, sizeof(both), "%s:z.gguf", put("a.gguf", "3"));
    setenv("HEARTH_MODELS", both, 1);
    ck_assert_int_eq(chdir(home), 0);
    assert_names("a z");
    models_fini(&models);
    snprintf(both, sizeof(both), "a.gguf:%s/folder", home);
    setenv("HEARTH_MODELS", both, 1);
    snprintf(names, sizeof(names), "a %s", "hearth/a");
    assert_names(names);
}
END_TEST

START_TEST(a_file_that_is_found_twice_is_listed_once)
{
    char other[128];
    const char *path = put("a.gguf", "1");
    snprintf(other, sizeof(other), "%s/b.gguf", home);
    ck_assert_int_eq(symlink(path, other), 0);
    ck_assert_int_eq(models_find(&models), 0);
    ck_assert_uint_eq(models.n, 1);
}
END_TEST

START_TEST(links_in_a_circle_end)
{
    char link[128];
    put("folder/a.gguf", "1");
    snprintf(link, sizeof(link), "%s/folder/again", home);
    ck_assert_int_eq(symlink(home, link), 0);
    assert_names("a");
}
END_TEST

/* Forty links in each folder to the next one: a hundred million ways to the last. */
START_TEST(a_folder_is_read_once_however_many_links_lead_to_it)
{
    enum { FOLDERS = 6, LINKS = 40 };
    char folder[160], link[192];
    put("f/5/a.gguf", "1");
    for (int i = 0; i < FOLDERS - 1; i++) {
        snprintf(folder, sizeof(folder), "%s/f/%d", home, i);
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        for (int k = 0; k < LINKS; k++) {
            snprintf(folder, sizeof(folder), "%s/f/%d", home, i + 1);
            snprintf(link, sizeof(link), "%s/f/%d/%d", home, i, k);
            ck_assert_int_eq(symlink(folder, link), 0);
        }
    }
    snprintf(folder, sizeof(folder), "%s/f/0", home);
    setenv("HEARTH_MODELS", folder, 1);
    assert_names("a");
}
END_TEST

/* What was first found too deep to be read. */
START_TEST(a_folder_is_read_where_it_lies_highest)
{
    char folder[160], link[192];
    put("0/1/2/3/4/x", "");
    put("z/6/a.gguf", "1");
    snprintf(folder, sizeof(folder), "%s/z", home);
    snprintf(link, sizeof(link), "%s/0/1/2/3/4/5", home);
    ck_assert_int_eq(symlink(folder, link), 0);
    assert_names("a");
}
END_TEST

START_TEST(names_drive_no_terminal)
{
    put("a\x1b[2J.gguf", "1");
    put("b\xc2\x9b"
        "2J.gguf",
        "12");
    put("c\xe2\x80\xaegnp.gguf", "123");
    put("d\x9b.gguf", "1234");
    put("e-\xc3\xa9.gguf", "12345");
    assert_names("a?[2J b?\?2J c?\?\?gnp d? e-\xc3\xa9");
}
END_TEST

/* It would be waited for. */
START_TEST(a_manifest_that_is_not_a_file_is_passed_over)
{
    char path[160];
    put("manifests/h/n/m/file", "{}");
    snprintf(path, sizeof(path), "%s/manifests/h/n/m/pipe", home);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_ptr_null(scan_manifest(path));
    assert_names("");
}
END_TEST

START_TEST(parts_are_counted_as_far_as_they_are_there)
{
    put("big-00001-of-99999.gguf", "12");
    put("big-00003-of-99999.gguf", "345");
    assert_names("big");
    ck_assert_uint_eq(models.files[0].bytes, 2);
}
END_TEST

START_TEST(a_manifest_that_names_no_blob_of_its_own_is_passed_over)
{
    static const char *const layers[] = {
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:../"
        "a\"}]}",
        "{\"layers\":[{\"mediaType\":\"application/"
        "vnd.ollama.image.model\",\"digest\":\"sha256:00\"}]}",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\"}]}", "[]", "not JSON"};
    put("a", "1"); /* what the first one points to */
    for (size_t i = 0; i < sizeof(layers) / sizeof(*layers); i++) {
        put("manifests/registry.ollama.ai/library/e/latest", layers[i]);
        assert_names("");
        models_fini(&models);
    }
}
END_TEST

/* ---- a name ------------------------------------------------------------------------------------- */

static void put_three(void)
{
    put("qwen3-8b-Q4_K_M.gguf", "1");
    put("qwen3-30b-Q4_K_M.gguf", "2");
    put("deep/Llama-3.gguf", "3");
    ck_assert_int_eq(models_find(&models), 0);
}

static void assert_chosen(const char *name, const char *expected)
{
    const struct model_file *file;
    char err[512] = "";
    int rc = models_choose(&models, name, &file, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s: %s", name, err);
    ck_assert_str_eq(file->name, expected);
}

static void assert_refused(const char *name, int code, const char *line)
{
    const struct model_file *file;
    char err[512] = "";
    ck_assert_int_eq(models_choose(&models, name, &file, err, sizeof(err)), code);
    ck_assert_str_eq(err, line);
}

START_TEST(a_name_or_its_beginning_means_a_model)
{
    put_three();
    assert_chosen("qwen3-8b-Q4_K_M", "qwen3-8b-Q4_K_M");
    assert_chosen("QWEN3-8", "qwen3-8b-Q4_K_M");
    assert_chosen("llama", "Llama-3");
}
END_TEST

START_TEST(a_name_is_preferred_to_a_beginning)
{
    put("a.gguf", "1");
    put("ab.gguf", "2");
    ck_assert_int_eq(models_find(&models), 0);
    assert_chosen("a", "a");
}
END_TEST

START_TEST(what_is_ambiguous_or_unknown_is_refused_with_names)
{
    put_three();
    assert_refused("qwen3", -EEXIST,
                   "qwen3 may mean qwen3-30b-Q4_K_M, qwen3-8b-Q4_K_M: give more of the name");
    assert_refused("lama-3", -ENOENT, "no model lama-3, but Llama-3: `hearth models` lists all");
    assert_refused("Llaam-3", -ENOENT, "no model Llaam-3, but Llama-3: `hearth models` lists all");
    assert_refused("something-else", -ENOENT, "no model something-else: `hearth models` lists all");
    assert_refused("", -ENOENT,
                   "no model , but Llama-3, qwen3-30b-Q4_K_M, qwen3-8b-Q4_K_M: `hearth models` "
                   "lists all");
}
END_TEST

START_TEST(without_models_a_name_says_so)
{
    ck_assert_int_eq(models_find(&models), 0);
    assert_refused("a", -ENOENT, "no model a: no GGUF file lies where models are looked for");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("models");
    TCase *found = tcase_create("found"), *named = tcase_create("named");
    tcase_add_checked_fixture(found, setup, teardown);
    tcase_add_checked_fixture(named, setup, teardown);
    tcase_add_test(found, models_of_every_program_are_found);
    tcase_add_test(found, parts_are_one_model);
    tcase_add_test(found, projectors_and_other_files_are_left_out);
    tcase_add_test(found, files_of_one_name_get_their_folders);
    tcase_add_test(found, a_file_that_is_found_twice_is_listed_once);
    tcase_add_test(found, a_file_in_the_place_of_a_folder_is_a_model);
    tcase_add_test(found, no_file_is_lost_by_its_name);
    tcase_add_test(found, links_in_a_circle_end);
    tcase_add_test(found, a_folder_is_read_once_however_many_links_lead_to_it);
    tcase_add_test(found, a_folder_is_read_where_it_lies_highest);
    tcase_add_test(found, names_drive_no_terminal);
    tcase_add_test(found, a_manifest_that_is_not_a_file_is_passed_over);
    tcase_add_test(found, parts_are_counted_as_far_as_they_are_there);
    tcase_add_test(found, a_manifest_that_names_no_blob_of_its_own_is_passed_over);
    tcase_add_test(named, a_name_or_its_beginning_means_a_model);
    tcase_add_test(named, a_name_is_preferred_to_a_beginning);
    tcase_add_test(named, what_is_ambiguous_or_unknown_is_refused_with_names);
    tcase_add_test(named, without_models_a_name_says_so);
    suite_add_tcase(s, found);
    suite_add_tcase(s, named);
    return run_suite(s);
}
