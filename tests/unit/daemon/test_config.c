/* Options: the command line, the configuration file, which of the two wins, and one clear line for
 * every error. */
#include "daemon/config.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/hearth-config-XXXXXX", path[256], err[300];
static struct config config;

/* A private home directory: no configuration of this machine is read. */
static void setup(void)
{
    char name[256];

    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(setenv("XDG_CONFIG_HOME", directory, 1), 0);
    snprintf(name, sizeof(name), "%s/hearth", directory);
    ck_assert_int_eq(mkdir(name, 0700), 0);
    snprintf(path, sizeof(path), "%s/hearth/hearthd.conf", directory);
    *err = 0;
}

static void teardown(void)
{
    char name[256];

    config_fini(&config);
    unlink(path);
    snprintf(name, sizeof(name), "%s/hearth", directory);
    rmdir(name);
    rmdir(directory);
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static void write_file(const char *text)
{
    write_bytes(text, strlen(text));
}

/* Loads `line`, cut at spaces. */
static int load(const char *line)
{
    static char copy[1000];
    char *argv[40] = {"hearthd"}, *save = NULL;
    int argc = 1;

    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    config_fini(&config);
    *err = 0;
    return config_load(&config, argc, argv, err, sizeof(err));
}

/* Expects a usage error: this code, and one line that contains `word`. */
static void refused(const char *line, int code, const char *word)
{
    ck_assert_int_eq(load(line), code);
    ck_assert_msg(strstr(err, word), "'%s' does not speak of '%s'", err, word);
    ck_assert_ptr_null(strchr(err, '\n'));
}

/* ---- command line ---------------------------------------------------------------------------- */

START_TEST(defaults_equal_the_table)
{
    ck_assert_int_eq(load(""), 0);
    ck_assert_ptr_null(config.model);
    ck_assert_ptr_null(config.socket);
    ck_assert_uint_eq(config.slots, 64);
    ck_assert_uint_eq(config.client_slots, 8);
    ck_assert_uint_eq(config.context, 0);
    ck_assert_uint_eq(config.rows, 512);
    ck_assert_uint_eq(config.device, 0);
    ck_assert_uint_eq(config.log_level, 2);
    ck_assert_uint_eq(config.check, 0);
}
END_TEST

START_TEST(values_follow_a_space_or_an_equals_sign)
{
    ck_assert_int_eq(load("--model a.gguf --slots=3 --event-loop epoll --check --context=4096"), 0);
    ck_assert_str_eq(config.model, "a.gguf");
    ck_assert_uint_eq(config.slots, 3);
    ck_assert_uint_eq(config.event_loop, 2);
    ck_assert_uint_eq(config.check, 1);
    ck_assert_uint_eq(config.context, 4096);
    ck_assert_int_eq(load("--check=no --model=--odd=name.gguf"), 0);
    ck_assert_uint_eq(config.check, 0);
    ck_assert_str_eq(config.model, "--odd=name.gguf");
}
END_TEST

START_TEST(the_last_of_two_wins)
{
    ck_assert_int_eq(load("--slots 3 --model a --slots 5 --model b"), 0);
    ck_assert_uint_eq(config.slots, 5);
    ck_assert_str_eq(config.model, "b");
}
END_TEST

START_TEST(sizes_take_suffixes)
{
    ck_assert_int_eq(load("--kv-bytes 3"), 0);
    ck_assert_uint_eq(config.kv_bytes, 3);
    ck_assert_int_eq(load("--kv-bytes 3K"), 0);
    ck_assert_uint_eq(config.kv_bytes, 3 << 10);
    ck_assert_int_eq(load("--kv-bytes 3m"), 0);
    ck_assert_uint_eq(config.kv_bytes, 3 << 20);
    ck_assert_int_eq(load("--kv-bytes 3G"), 0);
    ck_assert_uint_eq(config.kv_bytes, 3ull << 30);
}
END_TEST

START_TEST(numbers_out_of_range_are_refused_with_the_range)
{
    static const char *const bad[] = {"0",
                                      "1025",
                                      "-1",
                                      "x",
                                      "3x",
                                      "",
                                      "1e3",
                                      "0x10",
                                      "3KK",
                                      "99999999999999999999",
                                      "18446744073709551615G",
                                      "+3"};
    char line[100];

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(line, sizeof(line), "--slots=%s", bad[i]);
        refused(line, -EINVAL, "1 to 1024");
    }
    ck_assert_int_eq(load("--slots 1"), 0);
    ck_assert_int_eq(load("--slots 1024"), 0);
    refused("--context 4194305", -EINVAL, "0 to 4194304"); /* an arena's limit */
}
END_TEST

START_TEST(usage_errors_get_a_helpful_line)
{
    refused("--nonsense", -EINVAL, "--nonsense");
    refused("--slot 3", -EINVAL, "--help");
    refused("model.gguf", -EINVAL, "model.gguf");
    refused("-m", -EINVAL, "-m");
    refused("--device gpu", -EINVAL, "auto|cpu|cuda");
    refused("--device cp", -EINVAL, "auto|cpu|cuda");
    refused("--check=maybe", -EINVAL, "yes or no");
    refused("--model", -EINVAL, "needs a value");
    refused("--model=", -EINVAL, "empty");
    refused("--", -EINVAL, "not an option");
}
END_TEST

START_TEST(help_and_version_read_no_file)
{
    write_file("this is not a configuration\n");
    ck_assert_int_eq(load("--help"), 0);
    ck_assert_uint_eq(config.help, 1);
    ck_assert_int_eq(load("-h"), 0);
    ck_assert_uint_eq(config.help, 1);
    ck_assert_int_eq(load("--version"), 0);
    ck_assert_int_lt(load(""), 0);
}
END_TEST

/* ---- file ------------------------------------------------------------------------------------ */

START_TEST(the_file_sets_what_the_command_line_does_not)
{
    write_file("# a comment\n\n  slots = 7  \nmodel=/a b/c.gguf\ndevice = cpu\ncheck = "
               "yes\n\tkv-bytes\t=\t2G");
    ck_assert_int_eq(load("--slots 9"), 0);
    ck_assert_uint_eq(config.slots, 9);
    ck_assert_str_eq(config.model, "/a b/c.gguf");
    ck_assert_uint_eq(config.device, 1);
    ck_assert_uint_eq(config.check, 1);
    ck_assert_uint_eq(config.kv_bytes, 2ull << 30);
}
END_TEST

START_TEST(a_wrong_line_is_named_by_file_and_number)
{
    static const char *const bad[] = {"nonsense\n",     "slots = x\n",   "slots =\n",
                                      "nothing = 3\n",  "config = /x\n", "= 3\n",
                                      "device = gpu\n", "model =\n"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char text[100];
        snprintf(text, sizeof(text), "# one\nrows = 64\n%s", bad[i]);
        write_file(text);
        refused("", -EINVAL, "hearthd.conf:3");
    }
}
END_TEST

/* UTF-16, or a file that a crash has padded: text after a zero byte must not be ignored
 * silently. */
START_TEST(a_zero_byte_is_a_wrong_line)
{
    static const char text[] = "rows = 64\nslots = 7\0 or so\n",
                      empty[] = "rows = 64\n\0slots = 7\n";

    write_bytes(text, sizeof(text) - 1);
    refused("", -EINVAL, "hearthd.conf:2");
    write_bytes(empty, sizeof(empty) - 1);
    refused("", -EINVAL, "hearthd.conf:2");
}
END_TEST

START_TEST(a_file_with_crlf_and_a_byte_order_mark_is_read)
{
    write_file("\xef\xbb\xbfslots = 7\r\nrows = 99\r\n");
    ck_assert_int_eq(load(""), 0);
    ck_assert_uint_eq(config.slots, 7);
    ck_assert_uint_eq(config.rows, 99);
    write_file("rows = 99\n\xef\xbb\xbfslots = 7\n");
    refused("", -EINVAL, "hearthd.conf:2");
}
END_TEST

/* To getline, a line that does not fit in memory looks like the end of the file. */
START_TEST(a_line_too_long_for_memory_is_an_error)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skip: a sanitizer's memory is larger than any limit\n");
#else
    struct rlimit all, little;
    enum { LINE = 256 << 20 };

    write_file("#");
    ck_assert_int_eq(truncate(path, LINE), 0); /* sparse */
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &all), 0);
    little = all;
    little.rlim_cur = LINE;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &little), 0);
    int rc = load("");
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &all), 0);
    ck_assert_int_eq(rc, -ENOENT);
    ck_assert_ptr_nonnull(strstr(err, path));
#endif
}
END_TEST

START_TEST(config_names_another_file_which_must_exist)
{
    char line[400], name[300];

    write_file("slots = 7\n");
    snprintf(name, sizeof(name), "%s/other", directory);
    snprintf(line, sizeof(line), "--config %s", name);
    refused(line, -ENOENT, name);
    FILE *file = fopen(name, "w");
    fputs("rows = 99\n", file);
    fclose(file);
    ck_assert_int_eq(load(line), 0);
    ck_assert_uint_eq(config.rows, 99);
    ck_assert_uint_eq(config.slots, 64); /* the usual file is not read */
    unlink(name);
}
END_TEST

START_TEST(a_folder_as_the_file_is_an_error)
{
    char line[300];

    snprintf(line, sizeof(line), "--config %s", directory);
    ck_assert_int_lt(load(line), 0);
    ck_assert_ptr_nonnull(strstr(err, directory));
}
END_TEST

START_TEST(an_unreadable_file_is_an_error)
{
    ck_assert_int_eq(symlink("hearthd.conf", path), 0); /* a link to itself */
    refused("--model m.gguf", -ENOENT, path);
}
END_TEST

/* ---- user-visible text ----------------------------------------------------------------------- */

START_TEST(the_system_file_is_where_make_install_puts_it)
{
    static const char *const cases[][2] = {
        {"/usr/bin/hearthd", "/etc/hearth/hearthd.conf"},
        {"/usr/local/bin/hearthd", "/etc/hearth/hearthd.conf"},
        {"/bin/hearthd", "/etc/hearth/hearthd.conf"},
        {"", "/etc/hearth/hearthd.conf"},
        {"hearthd", "/etc/hearth/hearthd.conf"},
        {"/opt/x/bin/hearthd", "/opt/x/etc/hearth/hearthd.conf"},
        {"/opt/usr/bin/hearthd", "/opt/usr/etc/hearth/hearthd.conf"},
        {"/usr/locally/bin/hearthd", "/usr/locally/etc/hearth/hearthd.conf"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char got[300];
        config_machine_path(cases[i][0], got, sizeof(got));
        ck_assert_str_eq(got, cases[i][1]);
    }
}
END_TEST

START_TEST(help_names_every_option)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    config_help(out);
    fclose(out);
#define NAME_TEXT(field, name, ...) ck_assert_msg(strstr(text, "--" name " "), "%s", name);
    HEARTHD_OPTIONS(NAME_TEXT, NAME_TEXT, NAME_TEXT, NAME_TEXT)
    ck_assert_ptr_nonnull(strstr(text, " (64)\n"));
    ck_assert_ptr_nonnull(strstr(text, " (auto)\n"));
    free(text);
}
END_TEST

static char dumped[4096];

static void dump_line(const char *text)
{
    strncat(dumped, text, sizeof(dumped) - strlen(dumped) - 2);
    strcat(dumped, "\n");
}

START_TEST(the_dump_reads_back_as_the_same_configuration)
{
    *dumped = 0;
    ck_assert_int_eq(load("--model m.gguf --slots 9 --device cpu --kv-bytes 1G"), 0);
    config_dump(&config, dump_line);
    ck_assert_str_eq(dumped, "model = m.gguf\ndevice = cpu\nslots = 9\nkv-bytes = 1073741824\n");
    write_file(dumped);
    ck_assert_int_eq(load(""), 0);
    ck_assert_str_eq(config.model, "m.gguf");
    ck_assert_uint_eq(config.slots, 9);
    ck_assert_uint_eq(config.kv_bytes, 1 << 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *t = tcase_create("config");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, defaults_equal_the_table);
    tcase_add_test(t, values_follow_a_space_or_an_equals_sign);
    tcase_add_test(t, the_last_of_two_wins);
    tcase_add_test(t, sizes_take_suffixes);
    tcase_add_test(t, numbers_out_of_range_are_refused_with_the_range);
    tcase_add_test(t, usage_errors_get_a_helpful_line);
    tcase_add_test(t, help_and_version_read_no_file);
    tcase_add_test(t, the_file_sets_what_the_command_line_does_not);
    tcase_add_test(t, a_wrong_line_is_named_by_file_and_number);
    tcase_add_test(t, a_zero_byte_is_a_wrong_line);
    tcase_add_test(t, a_file_with_crlf_and_a_byte_order_mark_is_read);
    tcase_add_test(t, a_line_too_long_for_memory_is_an_error);
    tcase_add_test(t, config_names_another_file_which_must_exist);
    tcase_add_test(t, a_folder_as_the_file_is_an_error);
    tcase_add_test(t, an_unreadable_file_is_an_error);
    tcase_add_test(t, the_system_file_is_where_make_install_puts_it);
    tcase_add_test(t, help_names_every_option);
    tcase_add_test(t, the_dump_reads_back_as_the_same_configuration);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
