/* The text of `hearth status`: every counter, a row for each slot, and which users see which
 * names. */
#include "daemon/control/status.h"
#include "ipc/counters.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ctl *ctl;
static struct model model;
static struct loaded_model loaded;
static struct status_process process;
static char text[HELLO_STATUS_MAX - 64];

/* Adds a client with `n_slots` slots in front of the list. */
static struct client *add_client(struct client **list, uid_t uid, uint32_t n_slots,
                                 const char *name)
{
    struct ipc_limits limits = {.slots = n_slots,
                                .context = 64,
                                .submit_cells = LIMIT_SUBMIT_CELLS_MIN,
                                .event_cells = LIMIT_EVENT_CELLS_MIN,
                                .params_bytes = LIMIT_PARAMS_MIN};
    struct client *client = calloc(1, sizeof(*client));
    char err[256];

    ck_assert_ptr_nonnull(client);
    client->state = CLIENT_ATTACHED;
    client->pid = 4711;
    client->number = *list ? (*list)->number + 1 : 1;
    client->uid = uid;
    client->n_slots = n_slots;
    snprintf(client->name, sizeof(client->name), "%s", name);
    ck_assert_msg(segment_open(&client->segment, &limits, err, sizeof(err)) == 0, "%s", err);
    client->next = *list;
    return *list = client;
}

static void free_clients(struct client *list)
{
    for (struct client *next; list; list = next) {
        next = list->next;
        segment_close(&list->segment);
        free(list);
    }
}

static json_t *status_as(struct client *clients, uid_t asker, size_t bytes)
{
    struct status_facts facts = {.clients = clients,
                                 .process = &process,
                                 .asker = asker,
                                 .loaded = &loaded,
                                 .socket = "/run/hearth/hearth.sock",
                                 .loop = "epoll",
                                 .uptime_ns = 5000000000};
    json_error_t error;
    int n = status_json(ctl, &facts, text, bytes);

    ck_assert_int_gt(n, 0);
    ck_assert_uint_eq((size_t)n, strlen(text));
    json_t *status = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(status != NULL, "%s: %s", error.text, text);
    return status;
}

static int64_t number(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    ck_assert_msg(json_is_integer(value), "%s", name);
    return json_integer_value(value);
}

static const char *word(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static void setup(void)
{
    int fd = segment_ctl_open(&ctl, text, sizeof(text));

    ck_assert_int_ge(fd, 0);
    status_open(&process);
    loaded.model = &model;
    loaded.info.state_bytes = 3000;
    loaded.info.record_bytes = 600;
    snprintf(loaded.name, sizeof(loaded.name), "a \"model\"");
}

START_TEST(an_idle_daemon_has_all_counters_and_no_rows)
{
    json_t *status = status_as(NULL, 1000, sizeof(text));

    for (int i = 0; i < COUNTERS_N; i++)
        number(status, counters_table[i].name);
    ck_assert_int_eq(number(status, "uptime_s"), 5);
    ck_assert_str_eq(word(status, "model"), "a \"model\"");
    ck_assert_int_eq(number(status, "state_bytes"), 3600);
    ck_assert_int_eq((int)json_array_size(json_object_get(status, "slots")), 0);
    ck_assert_int_eq(number(status, "slots_left_out"), 0);
    json_decref(status);
}
END_TEST

START_TEST(descriptors_and_memory_are_counted_each_time)
{
    json_t *status = status_as(NULL, 1000, sizeof(text));
    int64_t before = number(status, "fds_open"), n = 0;
    for (int i = 0; i < 1024; i++)
        n += fcntl(i, F_GETFD) >= 0;
    ck_assert_int_eq(before, n);
    int fd = dup(STDERR_FILENO);

    ck_assert_int_gt(number(status, "rss_bytes"), 100000);
    json_decref(status);
    status = status_as(NULL, 1000, sizeof(text));
    ck_assert_int_eq(number(status, "fds_open"), before + 1);
    json_decref(status);
    close(fd);
}
END_TEST

/* Since Linux 6.2 the folder's size is their number: a user may ask a hundred times a second. */
START_TEST(descriptors_are_not_counted_one_by_one)
{
    struct stat st;
    int fds[1000];
    for (int i = 0; i < 1000; i++)
        fds[i] = dup(STDERR_FILENO);
    json_t *status = status_as(NULL, 1000, sizeof(text));
    ck_assert_int_gt(number(status, "fds_open"), fds[999] < 0 ? 0 : 1000);
    json_decref(status);
    ck_assert_int_eq(fstat(dirfd(process.fds), &st), 0);
    if (st.st_size > 0)
        ck_assert_int_eq(telldir(process.fds), 0);
    for (int i = 0; i < 1000; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}
END_TEST

START_TEST(rows_give_the_slot_state_and_active_slots_come_first)
{
    struct client *clients = NULL, *editor = add_client(&clients, 1000, 2, "editor");
    struct down_slot *down = segment_down_slot(&editor->segment, 1);

    add_client(&clients, 1000, 1, "");
    add_client(&clients, 1000, 1, "leaving")->state = CLIENT_DETACHING;
    down->state = DOWN_DECODE;
    down->batch = 1;
    down->prompt = 812;
    down->prefix_break = 800;
    down->prefix_lost = 4;
    down->prefill_done = 811;
    down->output = 14;
    down->outputs = 5000000000;
    json_t *status = status_as(clients, 1000, sizeof(text));
    json_t *slots = json_object_get(status, "slots"), *row = json_array_get(slots, 0);
    ck_assert_uint_eq(json_array_size(slots), 3);
    ck_assert_int_eq(number(row, "client"), 1);
    ck_assert_int_eq(number(row, "slot"), 1);
    ck_assert_str_eq(word(row, "state"), "decode");
    ck_assert_str_eq(word(row, "priority"), "batch");
    ck_assert_int_eq(number(row, "prompt"), 812);
    ck_assert_int_eq(number(row, "prefix_break"), 800);
    ck_assert_int_eq(number(row, "prefix_lost"), 4);
    ck_assert_int_eq(number(row, "kv"), 811);
    ck_assert_int_eq(number(row, "output"), 14);
    ck_assert_int_eq(number(row, "outputs"), 5000000000);
    ck_assert_int_eq(number(row, "pid"), 4711);
    ck_assert_ptr_null(json_object_get(row, "name")); /* the name is slot 0's */
    ck_assert_ptr_null(json_object_get(json_array_get(slots, 1), "name"));
    row = json_array_get(slots, 2);
    ck_assert_str_eq(word(row, "name"), "editor");
    ck_assert_str_eq(word(row, "state"), "idle");
    ck_assert_str_eq(word(row, "priority"), "interactive");
    json_decref(status);
    free_clients(clients);
}
END_TEST

START_TEST(names_and_pids_are_shown_to_their_user_and_root_only)
{
    static const struct {
        uid_t asker;
        int visible;
    } cases[] = {{1000, 1}, {0, 1}, {1001, 0}};
    struct client *clients = NULL;

    add_client(&clients, 1000, 1, "secret");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        json_t *status = status_as(clients, cases[i].asker, sizeof(text));
        json_t *row = json_array_get(json_object_get(status, "slots"), 0);
        ck_assert_int_eq(number(row, "uid"), 1000);
        ck_assert_int_eq(json_object_get(row, "pid") != NULL, cases[i].visible);
        ck_assert_int_eq(json_object_get(row, "name") != NULL, cases[i].visible);
        ck_assert_int_eq(strstr(text, "secret") != NULL, cases[i].visible);
        json_decref(status);
    }
    free_clients(clients);
}
END_TEST

START_TEST(rows_that_do_not_fit_are_counted_and_the_text_stays_valid)
{
    struct client *clients = NULL;

    for (int i = 0; i < 3; i++)
        add_client(&clients, 1000, 64, "many");
    json_t *status = status_as(clients, 0, sizeof(text));
    size_t most = strlen(text);
    ck_assert_int_eq(number(status, "slots_left_out"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(status, "slots")), 192);
    json_decref(status);
    for (size_t bytes = most; bytes > most - 2000; bytes -= 11) {
        status = status_as(clients, 0, bytes);
        size_t rows = json_array_size(json_object_get(status, "slots"));
        ck_assert_int_eq(number(status, "slots_left_out"), 192 - (int64_t)rows);
        ck_assert_uint_lt(rows, 192);
        json_decref(status);
    }
    struct status_facts facts = {.process = &process, .loaded = &loaded, .socket = "", .loop = ""};
    int whole = status_json(ctl, &facts, text, sizeof(text));
    for (size_t bytes = 1; bytes < (size_t)whole; bytes++)
        ck_assert_int_eq(status_json(ctl, &facts, text, bytes), -ENOSPC);
    free_clients(clients);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *t = tcase_create("status");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, an_idle_daemon_has_all_counters_and_no_rows);
    tcase_add_test(t, descriptors_and_memory_are_counted_each_time);
    tcase_add_test(t, descriptors_are_not_counted_one_by_one);
    tcase_add_test(t, rows_give_the_slot_state_and_active_slots_come_first);
    tcase_add_test(t, names_and_pids_are_shown_to_their_user_and_root_only);
    tcase_add_test(t, rows_that_do_not_fit_are_counted_and_the_text_stays_valid);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
