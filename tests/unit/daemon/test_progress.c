/* What a load says of itself to the service manager. Lines of the log are not read here. */
#include "daemon/model/progress.h"

#include "daemon/log.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager_fd;

static void setup(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    snprintf(name, sizeof(name), "@hearth-progress-%ld", (long)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager_fd, (struct sockaddr *)&address,
                          (socklen_t)(sizeof(sa_family_t) + strlen(name))),
                     0);
    setenv("NOTIFY_SOCKET", name, 1);
    log_init(LOG_LEVEL_ERROR);
}

static void expect(const char *want)
{
    char text[128];
    ssize_t n = recv(manager_fd, text, sizeof(text) - 1, 0);
    ck_assert_int_gt(n, 0);
    text[n] = 0;
    ck_assert_str_eq(text, want);
}

START_TEST(a_long_load_says_how_far_it_is)
{
    struct progress p;
    progress_start(&p, "model", 20000000000, 1000000);
    p.loaded = 0;
    expect("STATUS=loading: 0 % of 20.0 GB");
    p.loaded = 13000000000;
    char text[128] = "";
    while (strstr(text, " 0 %") || !*text) { /* those said before */
        ssize_t n = recv(manager_fd, text, sizeof(text) - 1, 0);
        ck_assert_int_gt(n, 0);
        text[n] = 0;
    }
    ck_assert_str_eq(text, "STATUS=loading: 65 % of 20.0 GB");
    progress_stop(&p);
    ck_assert_uint_ge(p.said, 2);
}
END_TEST

START_TEST(a_short_load_says_nothing)
{
    struct progress p;
    char text[8];
    progress_start(&p, "model", 100, 3600ull * 1000000000);
    p.loaded = 100;
    progress_stop(&p);
    ck_assert_uint_eq(p.said, 0);
    ck_assert_int_lt(recv(manager_fd, text, sizeof(text), MSG_DONTWAIT), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *t = tcase_create("progress");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_long_load_says_how_far_it_is);
    tcase_add_test(t, a_short_load_says_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
