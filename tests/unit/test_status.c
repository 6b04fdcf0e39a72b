/* The status object: valid JSON whatever the names hold, every counter in it, and nothing beyond
 * its buffer. */
#include "daemon/status.h"

#include "ipc/counters.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ctl *ctl;
static struct model model = {.arch = "llama", .n_vocab = 10};
static struct resident resident;
static struct status_facts facts;
static char text[16384];

static void setup(void)
{
    ctl = aligned_alloc(IPC_PAGE, IPC_PAGE);
    ck_assert_ptr_nonnull(ctl);
    memset(ctl, 0, sizeof(*ctl));
    resident = (struct resident){
        .model = &model,
        .name = "a \"quoted\" \\ name",
        .info = {.name = "cpu",
                 .isa = "ref",
                 .numerics = "portable-1",
                 .threads = 3,
                 .weight_bytes = 12345},
        .limits = {.context = 4096},
    };
    facts = (struct status_facts){.resident = &resident,
                                  .socket = "/run/hearth/\"h\".sock",
                                  .loop = "epoll",
                                  .uptime_ns = 61500000000};
}

static void teardown(void)
{
    free(ctl);
}

static json_t *parsed(void)
{
    json_error_t error;
    int n = status_json(ctl, &facts, text, sizeof(text));

    ck_assert_int_gt(n, 0);
    ck_assert_uint_eq((size_t)n, strlen(text));
    ck_assert_ptr_null(strchr(text, '\n'));
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(object, "%s at %d: %s", error.text, error.column, text);
    return object;
}

static const char *string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    ck_assert_msg(value, "no text at %s", key);
    return value;
}

static json_int_t number(const json_t *object, const char *key)
{
    ck_assert_msg(json_is_integer(json_object_get(object, key)), "no number at %s", key);
    return json_integer_value(json_object_get(object, key));
}

START_TEST(says_what_the_daemon_is)
{
    json_t *object = parsed();

    ck_assert_str_eq(string(object, "model"), "a \"quoted\" \\ name");
    ck_assert_str_eq(string(object, "socket"), "/run/hearth/\"h\".sock");
    ck_assert_str_eq(string(object, "loop"), "epoll");
    ck_assert_str_eq(string(object, "arch"), "llama");
    ck_assert_str_eq(string(object, "device"), "cpu");
    ck_assert_str_eq(string(object, "numerics"), "portable-1");
    ck_assert_str_eq(string(object, "version"), HEARTH_VERSION);
    ck_assert_uint_eq(strlen(string(object, "fingerprint")), 32);
    ck_assert_int_eq(number(object, "pid"), getpid());
    ck_assert_int_eq(number(object, "threads"), 3);
    ck_assert_int_eq(number(object, "context"), 4096);
    ck_assert_int_eq(number(object, "weight_bytes"), 12345);
    ck_assert_str_eq(string(object, "draft"), "");
    ck_assert_str_eq(string(object, "fast"), "none");
    json_decref(object);
}
END_TEST

START_TEST(says_who_can_draft)
{
    struct resident draft = {.name = "a \"small\" one"};

    resident.draft = &draft;
    resident.info.fast = BACKEND_FAST_SHADOW;
    json_t *object = parsed();
    ck_assert_str_eq(string(object, "draft"), "a \"small\" one");
    ck_assert_str_eq(string(object, "fast"), "shadow");
    json_decref(object);
}
END_TEST

START_TEST(holds_every_counter)
{
    for (uint32_t c = 0; c < COUNTERS_N; c++)
        counters_set(ctl, (enum counter)c, 1000 + c);
    json_t *object = parsed();
    for (uint32_t c = 0; c < COUNTERS_N; c++) {
        json_int_t value = number(object, counters_table[c].name);
        if (c != COUNTER_FDS_OPEN && c != COUNTER_RSS_BYTES && c != COUNTER_UPTIME_S)
            ck_assert_int_eq(value, 1000 + c);
    }
    json_decref(object);
}
END_TEST

START_TEST(refreshes_its_gauges)
{
    json_t *object = parsed();
    json_int_t fds = number(object, "fds_open");
    int fd = dup(0);

    ck_assert_int_gt(number(object, "rss_bytes"), 100000);
    ck_assert_int_eq(number(object, "uptime_s"), 61);
    json_decref(object);
    object = parsed();
    ck_assert_int_eq(number(object, "fds_open"), fds + 1);
    json_decref(object);
    close(fd);
}
END_TEST

START_TEST(odd_bytes_in_the_sockets_path_stay_json)
{
    facts.socket = "/tmp/a\nb\tc\x01.sock";
    json_t *object = parsed();
    ck_assert_ptr_nonnull(strstr(string(object, "socket"), "/tmp/a"));
    json_decref(object);
}
END_TEST

START_TEST(a_long_name_is_cut_and_stays_json)
{
    static char longer[400];

    memset(longer, '"', sizeof(longer) - 1);
    facts.socket = longer;
    memset(resident.name, '\\', sizeof(resident.name) - 1);
    json_decref(parsed());
}
END_TEST

START_TEST(a_small_buffer_is_refused_and_not_overrun)
{
    size_t whole = (size_t)status_json(ctl, &facts, text, sizeof(text)) + 1;

    for (size_t bytes = 1; bytes < whole; bytes += 7) {
        memset(text, 0x55, sizeof(text));
        ck_assert_int_eq(status_json(ctl, &facts, text, bytes), -ENOSPC);
        for (size_t i = bytes; i < whole + 10; i++)
            ck_assert_int_eq(text[i], 0x55);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *t = tcase_create("status");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, says_what_the_daemon_is);
    tcase_add_test(t, says_who_can_draft);
    tcase_add_test(t, holds_every_counter);
    tcase_add_test(t, refreshes_its_gauges);
    tcase_add_test(t, odd_bytes_in_the_sockets_path_stay_json);
    tcase_add_test(t, a_long_name_is_cut_and_stays_json);
    tcase_add_test(t, a_small_buffer_is_refused_and_not_overrun);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
