/* Which sockets have a daemon: what is known of one of another user. */
#include "client/hearth.h"
#include "client/lib/daemons.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct daemon_socket sockets[4];
static struct daemons daemons = {.sockets = sockets, .n = 4};

static void setup(void)
{
    static const char *const paths[] = {"/run/hearth/hearth.sock", "/run/hearth/qwen-3.sock",
                                        "/run/user/7/hearth/qwen-3.sock", "/run/hearth/qwen.sock"};
    memset(sockets, 0, sizeof(sockets));
    for (size_t i = 0; i < daemons.n; i++)
        strcpy(sockets[i].path, paths[i]);
}

/* A digit for each socket: does a daemon run there, by this line? */
static const char *marked(const char *line)
{
    static char text[8];
    setup();
    daemons_mark_unit(&daemons, line);
    for (size_t i = 0; i < daemons.n; i++)
        text[i] = sockets[i].is_running ? '1' : '0';
    return text;
}

static const char *instance_of(const char *model)
{
    static char text[2][DAEMONS_NAME_BYTES];
    static int i;
    i = !i;
    daemons_instance(model, text[i]);
    return text[i];
}

/* Sockets and settings go by it: `hearth serve` writes NAME.conf, and hearthd reads hearthd.conf. */
START_TEST(no_model_is_called_as_what_hearth_has_itself)
{
    ck_assert_str_eq(instance_of("hearth"), "hearth-model");
    ck_assert_str_eq(instance_of("http"), "http-model");
    ck_assert_str_eq(instance_of("hearthd"), "hearthd-model");
    ck_assert_str_eq(instance_of("hearthd-2"), "hearthd-2");
}
END_TEST

START_TEST(names_of_any_language_are_told_apart)
{
    static const char longest[] =
        "a23456789012345678901234567890123456789012345678901234567890123456789";
    ck_assert_str_eq(instance_of("tiny:model"), "tiny-model");
    ck_assert_str_eq(instance_of("\xe5\xad\x97"), "model-580c9960");
    ck_assert_str_ne(instance_of("\xe5\xad\x97"), instance_of("\xe6\x96\x87"));
    ck_assert_str_ne(instance_of("qwen \xe5\xad\x97"), instance_of("qwen \xe6\x96\x87"));
    ck_assert_ptr_nonnull(strstr(instance_of("qwen \xe5\xad\x97"), "qwen-"));
    ck_assert_uint_eq(strlen(instance_of(longest)), DAEMONS_NAME_BYTES - 1);
    ck_assert_str_ne(instance_of(longest), instance_of(longest + 1));
    ck_assert_uint_gt(strlen(instance_of("..")), 0);
}
END_TEST

START_TEST(a_unit_of_the_machine_names_its_socket)
{
    ck_assert_str_eq(marked("0::/system.slice/hearthd.service\n"), "1000");
    ck_assert_str_eq(marked("0::/system.slice/system-hearth.slice/hearth@qwen-3.service\n"),
                     "0100");
    ck_assert_str_eq(marked("0::/system.slice/system-hearth.slice/hearth@qwen.service"), "0001");
}
END_TEST

START_TEST(other_units_name_none)
{
    static const char *const lines[] = {
        "",
        "\n",
        "0::/\n",
        "0::/.service\n",
        "0::/system.slice/hearthd.service.d\n",
        "0::/system.slice/hearthd.socket\n",
        "0::/system.slice/hearth@.service\n",
        "0::/system.slice/xhearth@qwen.service\n",
        "0::/system.slice/hearth-http.service\n",
        "0::/user.slice/session-1.scope\n",
        "0::/user.slice/user-7.slice/user@7.service/app.slice/hearthd.service\n",
        "0::/user.slice/user-7.slice/user@7.service/app.slice/app-hearth.slice/"
        "hearth@qwen.service\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        ck_assert_msg(strcmp(marked(lines[i]), "0000") == 0, "%s", lines[i]);
}
END_TEST

START_TEST(a_socket_without_a_listener_has_no_daemon)
{
    setup();
    sockets[0].is_running = sockets[0].is_open = false;
    strcpy(sockets[0].path, "/tmp/hearth-no-such-socket");
    daemons_look(&daemons);
    ck_assert(!sockets[0].is_open && !sockets[0].is_running);
}
END_TEST

static uint32_t n_foreign; /* looks at a socket of another name */

/* In place of the C library's. */
int stat(const char *restrict path, struct stat *restrict st)
{
    n_foreign += strstr(path, "/foreign.sock") != NULL;
    return fstatat(AT_FDCWD, path, st, 0);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, path);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

/* By its own path, and by a link of another name; one of the same name elsewhere is not it, and one
 * of another name is not looked at: its folder might never answer. */
START_TEST(a_listener_is_found_where_it_is_bound)
{
    char folder[] = "/tmp/hearth-daemons-XXXXXX", path[3][64], other[64], foreign[64];
    folder[strlen("/tmp/hearth")] = _i ? ' ' : '-';
    ck_assert_ptr_nonnull(mkdtemp(folder));
    static const char *const names[] = {"real.sock", "link.sock", "same.sock"};
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%s", folder, names[i]);
    snprintf(other, sizeof(other), "%s/sub", folder);
    snprintf(foreign, sizeof(foreign), "%s/foreign.sock", folder);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    strcat(other, "/same.sock");
    int fds[] = {listen_at(path[0]), listen_at(other), listen_at(path[2]), listen_at(foreign)};
    ck_assert_int_eq(symlink(path[0], path[1]), 0);
    close(fds[2]); /* its file stays */
    setup();
    for (int i = 0; i < 3; i++) {
        sockets[i].is_running = sockets[i].is_open = false;
        strcpy(sockets[i].path, path[i]);
    }
    daemons_look(&daemons);
    ck_assert(sockets[0].is_open && sockets[1].is_open && !sockets[2].is_open);
    ck_assert(!sockets[0].is_running); /* this is not hearthd */
    ck_assert_uint_eq(n_foreign, 0);
    close(fds[3]);
    (void)unlink(foreign);
    close(fds[0]);
    close(fds[1]);
    (void)unlink(other);
    *strrchr(other, '/') = 0;
    (void)rmdir(other);
    for (int i = 0; i < 3; i++)
        (void)unlink(path[i]);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* Anybody may call a folder as they like: the name of a socket in one with a line break has two lines
 * in /proc/net/unix, and the second looks like that of another user's listener. */
START_TEST(no_name_of_a_socket_hides_a_daemon)
{
    enum { NAMES = 64 };
    char folder[] = "/tmp/hearth-XXXXXX", path[64], command[256], name[108];
    int fds[NAMES];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/real.sock", folder);
    snprintf(name, sizeof(name), "%s/\n0: 2 0 10000 1 1 5 %s", folder, path);
    snprintf(command, sizeof(command), "mkdir -p '%.*s'", (int)(strrchr(name, '/') - name), name);
    ck_assert_int_eq(system(command), 0);
    for (int i = 0; i < NAMES; i++) { /* some come before it in the list */
        fds[i] = listen_at(name);
        ck_assert_int_eq(unlink(name), 0);
    }
    int own = listen_at(path);
    ck_assert_int_eq(prctl(PR_SET_NAME, "hearthd"), 0); /* which this plays */
    setup();
    strcpy(sockets[0].path, path);
    daemons_look(&daemons);
    ck_assert(sockets[0].is_open && !sockets[1].is_running);
    ck_assert(sockets[0].is_running);
    for (int i = 0; i < NAMES; i++)
        close(fds[i]);
    close(own);
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(a_search_needs_no_place_for_its_line)
{
    char folder[] = "/tmp/hearth-daemons-XXXXXX", path[108], none[1] = "x";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    ck_assert_int_eq(hearth_find("no such model", path, sizeof(path), NULL, 0), -ENOENT);
    ck_assert_int_eq(hearth_find("no such model", path, sizeof(path), NULL, 512), -ENOENT);
    ck_assert_int_eq(hearth_find("no such model", path, sizeof(path), none, 0), -ENOENT);
    ck_assert_int_eq(none[0], 'x');
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* A line says which daemons there are: each can be named so. A model of that name goes first. */
START_TEST(the_default_daemon_is_found_by_its_name)
{
    char folder[] = "/tmp/hearth-daemons-XXXXXX", found[108], of_model[64], own[64], line[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    strcat(strcpy(own, folder), "/hearth");
    ck_assert_int_eq(mkdir(own, 0700), 0);
    strcat(strcpy(of_model, own), "/hearth-model.sock");
    strcat(own, "/hearth.sock");
    close(listen_at(own));
    ck_assert_int_eq(hearth_find("other", found, sizeof(found), line, sizeof(line)), -ENOENT);
    ck_assert_ptr_nonnull(strstr(line, ", only hearth"));
    ck_assert_int_eq(hearth_find("hearth", found, sizeof(found), line, sizeof(line)), 0);
    ck_assert_str_eq(found, own);
    close(listen_at(of_model));
    ck_assert_int_eq(hearth_find("hearth", found, sizeof(found), line, sizeof(line)), 0);
    ck_assert_str_eq(found, of_model);
    (void)unlink(of_model);
    (void)unlink(own);
    *strrchr(own, '/') = 0;
    ck_assert_int_eq(rmdir(own), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("daemons");
    TCase *c = tcase_create("daemons");
    tcase_add_test(c, no_model_is_called_as_what_hearth_has_itself);
    tcase_add_test(c, names_of_any_language_are_told_apart);
    tcase_add_test(c, a_unit_of_the_machine_names_its_socket);
    tcase_add_test(c, other_units_name_none);
    tcase_add_test(c, a_socket_without_a_listener_has_no_daemon);
    tcase_add_loop_test(c, a_listener_is_found_where_it_is_bound, 0, 2);
    tcase_add_test(c, no_name_of_a_socket_hides_a_daemon);
    tcase_add_test(c, a_search_needs_no_place_for_its_line);
    tcase_add_test(c, the_default_daemon_is_found_by_its_name);
    suite_add_tcase(s, c);
    return run_suite(s);
}
