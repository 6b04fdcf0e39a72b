/* The file of a model's weights: what is written is used, what is not exactly that is neither used nor
 * believed but replaced, and what goes wrong leaves no half file. */
#include "daemon/log.h"
#include "daemon/model/weights_cache.h"
#include "kernels/backend.h"
#include "kernels/quant/quant_types.h"
#include "tests/rig/gguf_parts.h"
#include "tests/rig/tiny_model.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[128], model_path[128]; /* path: of the cache */
static char err[600];
static struct gguf *gguf;
static struct model *model;
static struct backend *backend;
static struct backend_info info;
static struct weights_cache cache;

static void open_instance(void)
{
    const struct backend_limits limits = {
        .rows = 4, .samples = 1, .pages = 2, .context = 64, .threads = 2};
    ck_assert_int_eq(gguf_open_parts(model_path, &gguf, err, sizeof(err)), 0);
    ck_assert_int_eq(model_open(gguf, &model, err, sizeof(err)), 0);
    ck_assert_int_eq(backend_cpu.open(model, &limits, &backend, err, sizeof(err)), 0);
    backend_cpu.describe(backend, &info);
}

static void open_model(void)
{
    uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
    open_instance();
    ck_assert_int_eq(model_fingerprint(model, 1, fingerprint), 0);
}

static void close_model(void)
{
    backend_cpu.close(backend);
    model_close(model);
    gguf_close(gguf);
}

static void setup(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.untied = true;
    log_init(LOG_LEVEL_ERROR);
    strcpy(folder, "/tmp/hearth-weights-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/cache", folder);
    snprintf(model_path, sizeof(model_path), "%s/model.gguf", folder);
    ck_assert_int_eq(tiny_model_write(&shape, model_path), 0);
    open_model();
}

static void teardown(void)
{
    char command[128];
    weights_cache_close(&cache);
    close_model();
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static const void *open_cache(const char *layout)
{
    size_t bytes;
    weights_cache_close(&cache);
    const void *image = weights_cache_open(&cache, path, model, layout, &bytes);
    ck_assert(!image || bytes == info.image_bytes);
    return image;
}

static void write_cache(void)
{
    weights_cache_write(&cache, info.image, info.image_bytes);
    weights_cache_wait(&cache);
}

static const char *file_of(const char *name)
{
    static char text[256];
    snprintf(text, sizeof(text), "%s/%s", path, name);
    return text;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(file_of(name), &st) == 0;
}

/* A complete file, which is not open. */
static void make_file(void)
{
    open_cache("cpu-1");
    write_cache();
    ck_assert(exists(cache.name) && !exists(cache.temporary));
    weights_cache_close(&cache);
}

static void check_used(void)
{
    const void *image = open_cache("cpu-1");
    ck_assert_ptr_nonnull(image);
    ck_assert_mem_eq(image, info.image, info.image_bytes);
    ck_assert_int_eq(weights_cache_check(&cache, err, sizeof(err)), 0);
}

START_TEST(what_is_written_is_used)
{
    uint8_t want[MODEL_FINGERPRINT_BYTES], got[MODEL_FINGERPRINT_BYTES];
    char text[600];
    struct stat st;
    ck_assert_ptr_null(open_cache("cpu-1"));
    weights_cache_describe(&cache, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "is not used: there is none"));
    write_cache();
    ck_assert_int_eq(stat(file_of(cache.name), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert(!exists(cache.temporary));

    /* Another model of the same file knows the tensors' hashes from there. */
    struct model *loaded = model, *fresh;
    ck_assert_int_eq(model_fingerprint(model, 1, want), 0);
    ck_assert_int_eq(model_open(gguf, &fresh, err, sizeof(err)), 0);
    model = fresh;
    check_used();
    for (uint64_t i = 0; i < gguf_n_tensors(gguf); i++)
        ck_assert(fresh->hashes[i].known);
    ck_assert_int_eq(model_fingerprint(fresh, 1, got), 0);
    ck_assert_mem_eq(got, want, sizeof(want));
    weights_cache_describe(&cache, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "is used"));
    weights_cache_close(&cache);
    model = loaded;
    model_close(fresh);
}
END_TEST

/* A draft model has no fingerprint, so that what is kept of it lacks hashes: of tensors that are
 * several matrices, and of rope's divisors. Served afterwards, the file has its own fingerprint. */
START_TEST(a_draft_models_file_does_not_change_a_fingerprint)
{
    static const char *const archs[] = {"phi3", "llama"};
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    uint8_t want[MODEL_FINGERPRINT_BYTES], got[MODEL_FINGERPRINT_BYTES];
    shape.arch = archs[_i];
    shape.freqs = true;
    close_model();
    ck_assert_int_eq(tiny_model_write(&shape, model_path), 0);
    open_instance();
    ck_assert_ptr_null(open_cache("cpu-1"));
    write_cache();
    weights_cache_close(&cache);
    close_model();
    open_model();
    ck_assert_int_eq(model_fingerprint(model, 1, want), 0);

    struct model *loaded = model, *served;
    ck_assert_int_eq(model_open(gguf, &served, err, sizeof(err)), 0);
    model = served;
    check_used();
    ck_assert_int_eq(model_fingerprint(served, 1, got), 0);
    ck_assert_mem_eq(got, want, sizeof(want));
    weights_cache_close(&cache);
    model = loaded;
    model_close(served);
}
END_TEST

/* ---- files that are not used ----------------------------------------------------------------- */

static void flip(size_t at)
{
    uint8_t byte;
    int fd = open(file_of(cache.name), O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 4;
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static void other_magic(void)
{
    flip(0);
}

static void other_version(void)
{
    flip(offsetof(struct weights_header, version));
}

static void other_layout(void)
{
    flip(offsetof(struct weights_header, layout));
}

static void other_model(void)
{
    flip(offsetof(struct weights_header, model));
}

static void other_image_hash(void)
{
    flip(offsetof(struct weights_header, image_hash));
}

static void other_tensor(void)
{
    flip(sizeof(struct weights_header));
}

static void one_byte_short(void)
{
    struct stat st;
    ck_assert_int_eq(stat(file_of(cache.name), &st), 0);
    ck_assert_int_eq(truncate(file_of(cache.name), st.st_size - 1), 0);
}

static void empty(void)
{
    ck_assert_int_eq(truncate(file_of(cache.name), 0), 0);
}

static void writable_by_others(void)
{
    ck_assert_int_eq(chmod(file_of(cache.name), 0666), 0);
}

static void linked(void)
{
    char target[300];
    snprintf(target, sizeof(target), "%s/elsewhere", folder);
    ck_assert_int_eq(rename(file_of(cache.name), target), 0);
    ck_assert_int_eq(symlink(target, file_of(cache.name)), 0);
}

static void another_users(void)
{
    ck_assert_int_eq(chown(file_of(cache.name), 12345, (gid_t)-1), 0);
}

/* A file of the model was written again: equal bytes, another time. */
static void change(const char *file)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    close_model();
    ck_assert_int_eq(utimensat(AT_FDCWD, file, times, 0), 0);
    open_model();
}

static void model_changed(void)
{
    change(model_path);
}

static const struct {
    void (*make)(void);
    const char *why;
    bool by_root;
} unusable[] = {
    {other_magic, "it holds no weights", false},
    {other_version, "it is of another version of hearth", false},
    {other_layout, "it is for another instruction set", false},
    {other_model, "it is of another model", false},
    {other_image_hash, "it is damaged", false},
    {other_tensor, "it is damaged", false},
    {one_byte_short, "it is too short", false},
    {empty, "it is too short", false},
    {writable_by_others, "it is not a file that only this user writes to", false},
    {linked, "Too many levels of symbolic links", false},
    {another_users, "it is not a file that only this user writes to", true},
    {model_changed, "the model's file has changed", false},
};

START_TEST(a_file_that_is_not_exactly_it_is_not_used_but_replaced)
{
    if (unusable[_i].by_root && geteuid() != 0) {
        fprintf(stderr, "skip: only root can give files away\n");
        return;
    }
    make_file();
    unusable[_i].make();
    ck_assert_ptr_null(open_cache("cpu-1"));
    ck_assert_str_eq(cache.why, unusable[_i].why);
    write_cache();
    check_used();
}
END_TEST

START_TEST(a_change_of_any_part_is_noticed)
{
    char stem[96], part[128];
    snprintf(stem, sizeof(stem), "%s/parts", folder);
    gguf_write_parts(gguf, stem, 2);
    close_model();
    gguf_part_path(model_path, sizeof(model_path), stem, 1, 2);
    gguf_part_path(part, sizeof(part), stem, 2, 2);
    open_model();
    make_file();
    check_used();
    weights_cache_close(&cache);
    change(part);
    ck_assert_ptr_null(open_cache("cpu-1"));
    ck_assert_str_eq(cache.why, "the model's file has changed");
}
END_TEST

/* ---- contents -------------------------------------------------------------------------------- */

static _Atomic int reports;

static void on_damage(void)
{
    reports++;
}

START_TEST(a_flipped_byte_is_found_by_the_read)
{
    make_file();
    flip(cache.header.image_at + info.image_bytes / 3 * (size_t)_i);
    ck_assert_ptr_nonnull(open_cache("cpu-1"));
    weights_cache_watch(&cache, on_damage);
    weights_cache_wait(&cache);
    ck_assert_int_eq(reports, 1);
    ck_assert_int_eq(weights_cache_stop(&cache, err, sizeof(err)), -EBADMSG);
    ck_assert_msg(strstr(err, cache.name) && strstr(err, "are damaged"), "%s", err);
    ck_assert(!exists(cache.name));
    ck_assert_ptr_null(open_cache("cpu-1"));
}
END_TEST

START_TEST(an_undamaged_file_is_read_without_a_word)
{
    make_file();
    check_used();
    weights_cache_watch(&cache, on_damage);
    weights_cache_wait(&cache);
    ck_assert_int_eq(reports, 0);
    ck_assert_int_eq(weights_cache_stop(&cache, err, sizeof(err)), 0);
    ck_assert(exists(cache.name));
}
END_TEST

/* What cannot be read is not damaged: the file stays, and the daemon goes on. */
START_TEST(a_failing_read_is_no_damage)
{
    make_file();
    ck_assert_ptr_nonnull(open_cache("cpu-1"));
    int other = open(file_of(cache.name), O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(dup2(other, cache.fd), cache.fd); /* EBADF for each read */
    close(other);
    weights_cache_watch(&cache, on_damage);
    weights_cache_wait(&cache);
    ck_assert_int_eq(reports, 0);
    ck_assert_int_eq(weights_cache_check(&cache, err, sizeof(err)), -EBADF);
    ck_assert_int_eq(weights_cache_stop(&cache, err, sizeof(err)), 0);
    ck_assert(exists(cache.name));
}
END_TEST

/* ---- folders --------------------------------------------------------------------------------- */

static void folder_for_all(void)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(chmod(path, 0777), 0);
}

static void folder_linked(void)
{
    char target[128];
    snprintf(target, sizeof(target), "%s/target", folder);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    ck_assert_int_eq(symlink(target, path), 0);
}

static void folder_of_another(void)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
}

static void folder_is_file(void)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static const struct {
    void (*make)(void);
    const char *why;
    bool by_root;
} folders[] = {
    {folder_for_all, "it belongs to another user, or others may write to it", false},
    {folder_linked, "Not a directory", false},
    {folder_of_another, "it belongs to another user, or others may write to it", true},
    {folder_is_file, "Not a directory", false},
};

START_TEST(a_folder_that_is_not_only_ours_is_left_alone)
{
    if (folders[_i].by_root && geteuid() != 0) {
        fprintf(stderr, "skip: only root can give folders away\n");
        return;
    }
    folders[_i].make();
    ck_assert_ptr_null(open_cache("cpu-1"));
    ck_assert_str_eq(cache.why, folders[_i].why);
    write_cache();
    ck_assert(!exists(cache.name) && !exists(cache.temporary));
}
END_TEST

START_TEST(folders_before_it_are_made)
{
    strcat(path, "/a/b");
    ck_assert_ptr_null(open_cache("cpu-1"));
    ck_assert_str_eq(cache.why, "there is none");
    write_cache();
    ck_assert(exists(cache.name) && !exists(cache.temporary));
    weights_cache_close(&cache);
}
END_TEST

START_TEST(a_full_disk_leaves_nothing)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        fprintf(stderr, "skip: only root can mount a small file system\n");
        return;
    }
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(mount("none", path, "tmpfs", 0, "size=64k,mode=0700"), 0);
    ck_assert_ptr_null(open_cache("cpu-1"));
    write_cache();
    ck_assert(!exists(cache.name) && !exists(cache.temporary));
    weights_cache_close(&cache);
    ck_assert_int_eq(umount(path), 0);
}
END_TEST

/* ---- several writers ------------------------------------------------------------------------- */

/* The child writes what takes a while, and is killed as soon as there is something. */
START_TEST(what_a_killed_writer_leaves_is_not_believed)
{
    const size_t bytes = 512 << 20;
    struct stat st = {0};
    open_cache("cpu-1");
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        void *image = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        weights_cache_write(&cache, image, bytes);
        weights_cache_wait(&cache);
        _exit(1);
    }
    while (stat(file_of(cache.temporary), &st) < 0 || st.st_size == 0)
        usleep(100);
    kill(child, SIGKILL);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    ck_assert(exists(cache.temporary));
    ck_assert_ptr_null(open_cache("cpu-1"));
    ck_assert_str_eq(cache.why, "there is none");
    write_cache();
    ck_assert(!exists(cache.temporary));
    check_used();
}
END_TEST

START_TEST(a_stop_while_writing_leaves_nothing)
{
    const size_t bytes = 512 << 20;
    void *image = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    open_cache("cpu-1");
    weights_cache_write(&cache, image, bytes);
    while (!exists(cache.temporary))
        usleep(100);
    ck_assert_int_eq(weights_cache_stop(&cache, err, sizeof(err)), 0);
    ck_assert(!exists(cache.temporary) && !exists(cache.name));
    munmap(image, bytes);
}
END_TEST

START_TEST(what_another_daemon_writes_is_left_to_it)
{
    open_cache("cpu-1");
    int fd = open(file_of(cache.temporary), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    write_cache();
    ck_assert(exists(cache.temporary) && !exists(cache.name));
    close(fd);
    make_file();
    check_used();
}
END_TEST

START_TEST(two_daemons_write_one_file)
{
    struct weights_cache other;
    size_t bytes;
    open_cache("cpu-1");
    ck_assert_ptr_null(weights_cache_open(&other, path, model, "cpu-1", &bytes));
    weights_cache_write(&cache, info.image, info.image_bytes);
    weights_cache_write(&other, info.image, info.image_bytes);
    weights_cache_wait(&cache);
    weights_cache_wait(&other);
    weights_cache_close(&other);
    ck_assert(!exists(cache.temporary));
    check_used();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights_cache");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, what_is_written_is_used);
    tcase_add_loop_test(core, a_draft_models_file_does_not_change_a_fingerprint, 0, 2);
    tcase_add_loop_test(core, a_file_that_is_not_exactly_it_is_not_used_but_replaced, 0,
                        sizeof(unusable) / sizeof(unusable[0]));
    tcase_add_test(core, a_change_of_any_part_is_noticed);
    tcase_add_loop_test(core, a_flipped_byte_is_found_by_the_read, 0, 3);
    tcase_add_test(core, an_undamaged_file_is_read_without_a_word);
    tcase_add_test(core, a_failing_read_is_no_damage);
    tcase_add_loop_test(core, a_folder_that_is_not_only_ours_is_left_alone, 0,
                        sizeof(folders) / sizeof(folders[0]));
    tcase_add_test(core, folders_before_it_are_made);
    tcase_add_test(core, a_full_disk_leaves_nothing);
    tcase_add_test(core, what_a_killed_writer_leaves_is_not_believed);
    tcase_add_test(core, a_stop_while_writing_leaves_nothing);
    tcase_add_test(core, what_another_daemon_writes_is_left_to_it);
    tcase_add_test(core, two_daemons_write_one_file);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
