/* The memory that a process can have: the machine's, or what its control groups leave. */
#include "daemon/model/available_memory.h"

#include "tests/run_suite.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

/* Writes ROOT/path, and makes its folders. */
static void write_file(const char *path, const char *format, ...)
{
    char full[256];
    va_list args;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    ck_assert_int_eq(fclose(file), 0);
}

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/hearth-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    write_file("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    1000 kB\nCached: 1 kB\n");
}

static void teardown(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

static void group(const char *folder, const char *most, unsigned used, unsigned cache)
{
    char path[128];
    snprintf(path, sizeof(path), "sys/fs/cgroup%s/memory.max", folder);
    write_file(path, "%s\n", most);
    snprintf(path, sizeof(path), "sys/fs/cgroup%s/memory.current", folder);
    write_file(path, "%u\n", used);
    snprintf(path, sizeof(path), "sys/fs/cgroup%s/memory.stat", folder);
    write_file(path, "anon 7\nfile %u\ninactive_file %u\nactive_file %u\n", cache, cache / 2,
               cache - cache / 2);
}

START_TEST(without_groups_it_is_the_machines)
{
    ck_assert_uint_eq(available_memory(root), 1000 << 10);
}
END_TEST

/* As in the units that are shipped. */
START_TEST(without_meminfo_it_is_free_memory_and_page_cache)
{
    write_file("proc/meminfo", "%s", "");
    for (unsigned node = 0; node < 2; node++) {
        char path[64];
        snprintf(path, sizeof(path), "sys/devices/system/node/node%u/meminfo", node);
        write_file(
            path,
            "Node %u MemTotal:  9000 kB\nNode %u MemFree:   300 kB\nNode %u Active(anon): 7 kB\n"
            "Node %u Active(file): 20 kB\nNode %u Inactive(file):   1 kB\n",
            node, node, node, node, node);
    }
    ck_assert_uint_eq(available_memory(root), 642 << 10);
}
END_TEST

START_TEST(a_group_without_a_limit_does_not_limit)
{
    write_file("proc/self/cgroup", "0::/system.slice/hearthd.service\n");
    group("/system.slice/hearthd.service", "max", 5000, 0);
    ck_assert_uint_eq(available_memory(root), 1000 << 10);
}
END_TEST

START_TEST(what_a_limit_leaves_counts_and_page_cache_is_free)
{
    write_file("proc/self/cgroup", "1:name=systemd:/else\n0::/system.slice/hearthd.service\n");
    group("/system.slice/hearthd.service", "600000", 100001, 50001);
    ck_assert_uint_eq(available_memory(root), 600000 - 50000);
    group("/system.slice/hearthd.service", "600000", 700000, 0);
    ck_assert_uint_eq(available_memory(root), 0);
}
END_TEST

START_TEST(each_outer_group_counts)
{
    write_file("proc/self/cgroup", "0::/system.slice/hearthd.service\n");
    group("/system.slice/hearthd.service", "600000", 0, 0);
    group("/system.slice", "500000", 0, 0);
    ck_assert_uint_eq(available_memory(root), 500000);
    group("", "400000", 0, 0);
    ck_assert_uint_eq(available_memory(root), 400000);
}
END_TEST

/* As in a container, whose group is the root of what it sees. */
START_TEST(a_container_sees_its_own_group_alone)
{
    write_file("proc/self/cgroup", "0::/\n");
    group("", "300000", 0, 0);
    ck_assert_uint_eq(available_memory(root), 300000);
}
END_TEST

START_TEST(this_machine_has_some)
{
    ck_assert_uint_gt(available_memory(""), 1 << 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("available_memory");
    TCase *t = tcase_create("available_memory");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, without_groups_it_is_the_machines);
    tcase_add_test(t, without_meminfo_it_is_free_memory_and_page_cache);
    tcase_add_test(t, a_group_without_a_limit_does_not_limit);
    tcase_add_test(t, what_a_limit_leaves_counts_and_page_cache_is_free);
    tcase_add_test(t, each_outer_group_counts);
    tcase_add_test(t, a_container_sees_its_own_group_alone);
    tcase_add_test(t, this_machine_has_some);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
