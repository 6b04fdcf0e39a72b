/* The store's files after whatever may have happened to them: what is damaged, cut off, another's or elsewhere is not
 * believed; what is sound beside it still is; and folders and files that are not only ours are left alone. */
#include "daemon/log.h"
#include "ipc/store_file.h"
#include "ipc/store_folder.h"
#include "tests/rig/store_rig.h"
#include "tests/run_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct store_rig rig;

static void setup(void)
{
    log_init(LOG_LEVEL_ERROR);
    store_rig_init(&rig);
}

static void teardown(void)
{
    store_rig_fini(&rig);
}

static struct store_text text_of(uid_t uid, uint32_t number, uint32_t end)
{
    return store_rig_text(&rig, uid, number, end);
}

static void put_page(uid_t uid, uint32_t number)
{
    struct store_text text = text_of(uid, number, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
}

/* store_rig_get has compared the payload where that is 0. */
static int get_page(uid_t uid, uint32_t number)
{
    struct store_text text = text_of(uid, number, 96);
    return store_rig_get(&rig, STORE_PAGE, &text);
}

static struct store_counts counts(void)
{
    struct store_counts c;
    store_counts(rig.store, &c);
    return c;
}

static void run(const char *format, const char *path)
{
    char command[600];
    snprintf(command, sizeof(command), format, path);
    ck_assert_int_eq(system(command), 0);
}

static size_t failing; /* bytes of the reads that fail, as a disk's may once; 0: none does */

/* In place of the C library's. */
ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    if (bytes == failing) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)syscall(SYS_pread64, fd, data, bytes, at);
}

/* ---- one segment ------------------------------------------------------------------------------- */

enum { RECORDS = 3 };

static char segment[256];
static struct store_file_header header;

/* Three pages of user 1000 in one file, which is closed. */
static void make_segment(void)
{
    store_rig_open(&rig);
    for (uint32_t i = 0; i < RECORDS; i++)
        put_page(1000, i * 10);
    store_rig_close(&rig);
    snprintf(segment, sizeof(segment), "%s", store_rig_found(&rig, "*/1000/0001.kv"));
    int fd = open(segment, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, &header, sizeof(header), 0), sizeof(header));
    close(fd);
}

static uint64_t payload_at(uint32_t slot)
{
    return header.slots_at + slot * header.slot_bytes;
}

/* The record whose part of the file has that byte; -1: the header; RECORDS: no record's. */
static int owner_of(uint64_t at)
{
    if (at < sizeof(header))
        return -1;
    for (int i = 0; i < RECORDS; i++) {
        uint64_t entry = STORE_FILE_BLOCK + (uint64_t)i * sizeof(struct store_file_entry);
        uint64_t payload = payload_at((uint32_t)i);
        if ((at >= entry && at < entry + sizeof(struct store_file_entry)) ||
            (at >= payload && at < payload + header.payload_bytes))
            return i;
    }
    return RECORDS;
}

/* Opens the store: the records that were not damaged are there, the one that was is not believed. */
static void check_without(int damaged)
{
    store_rig_open(&rig);
    for (int i = 0; i < RECORDS; i++) {
        int rc = get_page(1000, (uint32_t)i * 10);
        if (damaged == -1 || i == damaged)
            ck_assert_msg(rc == -ENOENT || rc == -EBADMSG, "record %d: %d", i, rc);
        else
            ck_assert_int_eq(rc, 0);
    }
    if (damaged >= 0 && damaged < RECORDS) /* and it is forgotten */
        ck_assert_int_eq(get_page(1000, (uint32_t)damaged * 10), -ENOENT);
    store_rig_close(&rig);
}

static void copy_file(const char *from, const char *to)
{
    char command[600];
    snprintf(command, sizeof(command), "cp --sparse=always %s %s && chmod 600 %s", from, to, to);
    ck_assert_int_eq(system(command), 0);
}

static void flip(const char *path, uint64_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= (uint8_t)(1 << at % 8);
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* Every byte of header and entries, and some of payloads: first, last, and in between. */
static uint64_t next_place(uint64_t at)
{
    if (at + 1 < STORE_FILE_BLOCK + RECORDS * sizeof(struct store_file_entry))
        return at + 1 == sizeof(header) ? STORE_FILE_BLOCK : at + 1;
    if (at < payload_at(0))
        return payload_at(0);
    for (uint32_t i = 0; i < RECORDS; i++)
        if (at == payload_at(i) + header.payload_bytes - 1)
            return payload_at(i + 1);
    for (uint32_t i = 0; i < RECORDS; i++)
        if (at < payload_at(i) + header.payload_bytes - 1) {
            uint64_t next = at + 37501, last = payload_at(i) + header.payload_bytes - 1;
            return next < last ? next : last;
        }
    return UINT64_MAX;
}

START_TEST(a_flipped_bit_anywhere_is_noticed)
{
    char copy[300];
    uint64_t n = 0;
    make_segment();
    snprintf(copy, sizeof(copy), "%s/copy", rig.root);
    copy_file(segment, copy);
    for (uint64_t at = 0; at < payload_at(RECORDS - 1) + header.payload_bytes;
         at = next_place(at)) {
        flip(segment, at);
        check_without(owner_of(at));
        if (owner_of(at) != RECORDS) { /* the file was removed, or a record of it */
            unlink(segment);
            copy_file(copy, segment);
        }
        n++;
    }
    ck_assert_uint_gt(n, sizeof(header) + RECORDS * sizeof(struct store_file_entry));
}
END_TEST

START_TEST(a_file_that_was_cut_off_anywhere_has_what_is_whole)
{
    char copy[300];
    make_segment();
    snprintf(copy, sizeof(copy), "%s/copy", rig.root);
    copy_file(segment, copy);
    for (uint64_t bytes = 0; bytes < payload_at(RECORDS - 1) + header.payload_bytes;
         bytes = next_place(bytes)) {
        ck_assert_int_eq(truncate(segment, (off_t)bytes), 0);
        store_rig_open(&rig);
        for (uint32_t i = 0; i < RECORDS; i++) {
            int rc = get_page(1000, i * 10);
            if (payload_at(i) + header.payload_bytes <= bytes)
                ck_assert_int_eq(rc, 0);
            else
                ck_assert_msg(rc == -ENOENT || rc == -EBADMSG, "%d", rc);
        }
        store_rig_close(&rig);
        unlink(segment);
        copy_file(copy, segment);
    }
}
END_TEST

/* The file stays, and is used by the next start. */
START_TEST(a_failing_read_is_no_damage)
{
    make_segment();
    failing = header.n_slots * sizeof(struct store_file_entry);
    store_rig_open(&rig);
    failing = 0;
    for (uint32_t i = 0; i < RECORDS; i++)
        ck_assert_int_eq(get_page(1000, i * 10), -ENOENT);
    put_page(1000, 100);
    store_rig_close(&rig);
    check_without(RECORDS);
}
END_TEST

static void count_slot(void *context, const struct store_slot *slot)
{
    *(uint32_t *)context += slot->uid;
}

/* The sum of the users whose slots come back. */
static uint32_t users_of_slots(void)
{
    uint32_t sum = 0;
    ck_assert_int_eq(store_load_slots(rig.store, count_slot, &sum), 0);
    return sum;
}

/* Nor of named slots, where another user's are written at the stop. */
START_TEST(slots_that_could_not_be_read_stay)
{
    static const uint32_t tokens[3] = {11, 12, 13};
    const struct store_slot slots[] = {{1000, "editor", tokens, 3}, {1, "agent", tokens, 2}};
    struct stat st;
    store_rig_open(&rig);
    ck_assert_int_eq(store_save_slots(rig.store, slots, 2), 0);
    ck_assert_int_eq(stat(store_rig_found(&rig, "*/1000/slots"), &st), 0);
    store_rig_open(&rig);
    failing = (size_t)st.st_size;
    ck_assert_uint_eq(users_of_slots(), 1);
    failing = 0;
    ck_assert_int_eq(store_save_slots(rig.store, slots + 1, 1), 0);
    store_rig_open(&rig);
    ck_assert_uint_eq(users_of_slots(), 1001);
    ck_assert_int_eq(store_save_slots(rig.store, slots + 1, 1), 0); /* these only, as ever */
    store_rig_open(&rig);
    ck_assert_uint_eq(users_of_slots(), 1);
}
END_TEST

START_TEST(slots_that_changed_places_are_not_believed)
{
    static uint8_t a[300000], b[300000];
    make_segment();
    int fd = open(segment, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, a, sizeof(a), (off_t)payload_at(0)), sizeof(a));
    ck_assert_int_eq(pread(fd, b, sizeof(b), (off_t)payload_at(1)), sizeof(b));
    ck_assert_int_eq(pwrite(fd, b, sizeof(b), (off_t)payload_at(0)), sizeof(b));
    ck_assert_int_eq(pwrite(fd, a, sizeof(a), (off_t)payload_at(1)), sizeof(a));
    close(fd);
    store_rig_open(&rig);
    ck_assert_int_eq(get_page(1000, 0), -EBADMSG);
    ck_assert_int_eq(get_page(1000, 10), -EBADMSG);
    ck_assert_int_eq(get_page(1000, 20), 0);
    ck_assert_uint_eq(counts().damaged, 2);
    ck_assert_uint_eq(counts().records, 1);
    put_page(1000, 0); /* they are written anew */
    ck_assert_int_eq(get_page(1000, 0), 0);
}
END_TEST

/* ---- files that are elsewhere ------------------------------------------------------------------ */

START_TEST(a_file_of_another_user_is_not_believed)
{
    make_segment();
    store_rig_open(&rig);
    put_page(1001, 50);
    store_rig_close(&rig);
    run("cd %s/*/ && mv 1000/0001.kv 1001/0001.kv", rig.path);
    store_rig_open(&rig);
    for (uint32_t i = 0; i < RECORDS; i++) {
        ck_assert_int_eq(get_page(1000, i * 10), -ENOENT);
        ck_assert_int_eq(get_page(1001, i * 10), -ENOENT);
    }
    ck_assert_int_eq(get_page(1001, 50), 0);
    ck_assert_ptr_null(store_rig_found(&rig, "*/1001/0001.kv"));
}
END_TEST

START_TEST(a_file_of_another_model_is_not_believed)
{
    make_segment();
    char old[300], command[1000];
    snprintf(old, sizeof(old), "%s", store_rig_found(&rig, "*/1000"));
    rig.options.seed = "another model, its numerics and sizes";
    store_rig_open(&rig);
    put_page(1000, 50);
    store_rig_close(&rig);
    snprintf(command, sizeof(command),
             "cd %s && for d in */1000; do [ \"%s/$d\" = %s ] || mv %s/0001.kv $d/0009.kv; done",
             rig.path, rig.path, old, old);
    ck_assert_int_eq(system(command), 0);
    store_rig_open(&rig);
    for (uint32_t i = 0; i < RECORDS; i++)
        ck_assert_int_eq(get_page(1000, i * 10), -ENOENT);
    ck_assert_int_eq(get_page(1000, 50), 0);
    ck_assert_ptr_null(store_rig_found(&rig, "*/1000/0009.kv"));
}
END_TEST

START_TEST(a_file_of_another_version_is_replaced)
{
    make_segment();
    flip(segment, offsetof(struct store_file_header, version));
    store_rig_open(&rig);
    ck_assert_int_eq(get_page(1000, 0), -ENOENT);
    ck_assert_ptr_null(store_rig_found(&rig, "*/1000/0001.kv"));
    put_page(1000, 0);
    ck_assert_int_eq(get_page(1000, 0), 0);
}
END_TEST

START_TEST(a_copy_of_a_file_counts_once)
{
    make_segment();
    run("cd %s/*/1000 && cp --sparse=always 0001.kv 0002.kv && chmod 600 0002.kv", rig.path);
    check_without(RECORDS);
    store_rig_open(&rig);
    ck_assert_uint_eq(counts().records, RECORDS);
    ck_assert_ptr_nonnull(store_rig_found(&rig, "*/1000/*.kv")); /* one of them is gone */
}
END_TEST

/* ---- folders and files that are not only ours ---------------------------------------------------- */

static void make_open_folder(void)
{
    ck_assert_int_eq(mkdir(rig.path, 0700), 0);
    ck_assert_int_eq(chmod(rig.path, 0750), 0);
}

static void make_link(void)
{
    char target[128];
    snprintf(target, sizeof(target), "%s/target", rig.root);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    ck_assert_int_eq(symlink(target, rig.path), 0);
}

static void make_anothers(void)
{
    ck_assert_int_eq(mkdir(rig.path, 0700), 0);
    ck_assert_int_eq(chown(rig.path, 12345, (gid_t)-1), 0);
}

static void make_file(void)
{
    int fd = open(rig.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static const struct {
    void (*make)(void);
    int rc;
    const char *says, *end; /* end: of the path that is given */
    bool by_root;
} folders[] = {
    {make_open_folder, -EPERM, "chmod 700", "", false},
    {make_link, -ELOOP, "is a link", "", false},
    {make_link, -ELOOP, "is a link", "//", false},
    {make_link, -ELOOP, "is a link", "/.", false},
    {make_anothers, -EPERM, "is not hearthd's alone", "", true},
    {make_file, -ENOTDIR, "Not a directory", "", false},
};

START_TEST(a_folder_that_is_not_only_ours_is_refused)
{
    if (folders[_i].by_root && geteuid() != 0) {
        fprintf(stderr, "skip: only root can give folders away\n");
        return;
    }
    char path[sizeof(rig.path) + 4];
    snprintf(path, sizeof(path), "%s%s", rig.path, folders[_i].end);
    rig.options.path = path;
    folders[_i].make();
    ck_assert_int_eq(store_rig_try(&rig), folders[_i].rc);
    ck_assert_msg(strstr(rig.err, folders[_i].says) && strstr(rig.err, rig.path), "%s", rig.err);
    ck_assert_ptr_null(store_rig_found(&rig, "*"));
}
END_TEST

START_TEST(folders_before_it_are_made)
{
    char path[sizeof(rig.path) + 8];
    struct stat st;
    snprintf(path, sizeof(path), "%s/a/b", rig.path);
    rig.options.path = path;
    store_rig_open(&rig);
    put_page(1000, 0);
    for (int i = 0; i < 2; i++) { /* what is made is ours alone */
        ck_assert_int_eq(stat(store_rig_in(&rig, i ? "a" : "a/b"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0700);
    }
}
END_TEST

/* What may be done to the store's own files: it is refused, and the line names which. */
static const struct {
    const char *command, *says;
} refused[] = {
    {"chmod 644 day", "/day is not hearthd's alone"},
    {"mv day ../away && ln -s ../away day", "/day is not hearthd's alone"},
    {"chmod 750 $MODEL", " is not hearthd's alone"},
    {"chmod 640 $MODEL/model", "/model is not hearthd's alone"},
    {"rm -r $MODEL && touch $MODEL && chmod 600 $MODEL", " is not hearthd's alone"},
};

START_TEST(what_is_refused_is_named)
{
    char command[600];
    make_segment();
    snprintf(command, sizeof(command), "cd %s && MODEL=$(ls -d */ | tr -d /) && %s", rig.path,
             refused[_i].command);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_lt(store_rig_try(&rig), 0);
    ck_assert_msg(strstr(rig.err, refused[_i].says), "%s", rig.err);
    ck_assert_msg(strlen(strstr(rig.err, rig.path)) > strlen(rig.path) + 4, "%s", rig.err);
}
END_TEST

/* What may be done to a user's folder, or to a segment; the store then does without, and leaves it as it is. */
static const struct {
    const char *command; /* in the model's folder */
    bool by_root;
} strange[] = {
    {"chmod 640 1000/0001.kv", false},
    {"mv 1000/0001.kv ../../away && ln -s ../../../away 1000/0001.kv", false},
    {"ln 1000/0001.kv ../../second", false},
    {"chown 12345 1000/0001.kv", true},
    {"rm 1000/0001.kv && mkdir 1000/0001.kv", false},
    {"rm 1000/0001.kv && mkfifo 1000/0001.kv && chmod 600 1000/0001.kv", false},
    {"chmod 750 1000", false},
    {"mv 1000 ../../away && ln -s ../../away 1000", false},
    {"chown 12345 1000", true},
};

START_TEST(a_file_that_is_not_only_ours_is_left_alone)
{
    char command[600];
    struct stat before, after;
    if (strange[_i].by_root && geteuid() != 0) {
        fprintf(stderr, "skip: only root can give files away\n");
        return;
    }
    make_segment();
    snprintf(command, sizeof(command), "cd %s/*/ && %s", rig.path, strange[_i].command);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(lstat(segment, &before), 0);
    store_rig_open(&rig);
    ck_assert_int_eq(get_page(1000, 0), -ENOENT);
    struct store_text text = text_of(1001, 50, 96); /* of another user */
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert_int_eq(get_page(1001, 50), 0);
    text = text_of(1000, 50, 96); /* is written or not, but not there */
    store_rig_put(&rig, STORE_PAGE, &text);
    store_rig_close(&rig);
    ck_assert_int_eq(lstat(segment, &after), 0);
    ck_assert_uint_eq(after.st_ino, before.st_ino);
    ck_assert_int_eq(after.st_size, before.st_size);
    ck_assert_int_eq(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}
END_TEST

START_TEST(files_and_folders_are_only_ours)
{
    umask(0);
    make_segment();
    static const char *const paths[] = {"*/.", "*/1000", "*/1000/0001.kv", "*/model", "day"};
    struct stat st;
    ck_assert_int_eq(stat(rig.path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(stat(store_rig_found(&rig, "%s", paths[i]), &st), 0);
        ck_assert_uint_eq(st.st_mode & 077, 0);
    }
}
END_TEST

/* Which short texts were seen is a hint: what is damaged is not used. */
START_TEST(a_damaged_list_of_what_was_seen_is_not_used)
{
    struct stat st;
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 0, 32);
    ck_assert(!store_rig_put(&rig, STORE_PAGE, &text));
    store_rig_close(&rig);
    const char *path = store_rig_found(&rig, "*/seen");
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    flip(path, 1000);
    store_rig_open(&rig);
    ck_assert(!store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
}
END_TEST

START_TEST(a_second_store_of_the_model_is_refused_until_the_first_one_ends)
{
    struct store_rig second;
    store_rig_open(&rig);
    put_page(1000, 0);
    second = rig;
    second.store = NULL;
    ck_assert_int_eq(store_rig_try(&second), -EBUSY);
    ck_assert_ptr_nonnull(strstr(second.err, "another hearthd uses"));
    second.options.seed = "another model, its numerics and sizes";
    second.options.bytes = 1 << 20;
    store_rig_open(&second); /* does not count, nor remove, what is in use */
    for (uint32_t i = 0; i < 9; i++) {
        struct store_text text = store_rig_text(&second, 1000, 100 + i * 10, 96);
        ck_assert(store_rig_put(&second, STORE_PAGE, &text));
    }
    struct store_counts c;
    store_counts(second.store, &c);
    ck_assert_uint_eq(c.other_bytes, 0);
    store_rig_close(&second);
    ck_assert_int_eq(get_page(1000, 0), 0);
    store_rig_close(&rig);
    second.options.seed = rig.options.seed;
    second.options.seed_bytes = rig.options.seed_bytes;
    store_rig_open(&second);
    struct store_text text = store_rig_text(&second, 1000, 0, 96);
    ck_assert_int_eq(store_rig_get(&second, STORE_PAGE, &text), 0);
    store_rig_close(&second);
}
END_TEST

START_TEST(models_that_are_not_served_go_first)
{
    static const char *const seeds[] = {"model one, and sizes and so on 1",
                                        "model two, and sizes and so on 2",
                                        "model three, sizes and so on 333"};
    rig.options.seed_bytes = 32;
    rig.options.bytes = 3 << 20; /* 10 pages */
    for (int i = 0; i < 2; i++) {
        rig.options.seed = seeds[i];
        store_rig_open(&rig);
        for (uint32_t k = 0; k < 4; k++)
            put_page(1000, k * 10);
    }
    rig.options.seed = seeds[2];
    store_rig_open(&rig);
    uint64_t both = counts().other_bytes;
    ck_assert_uint_ge(both, 8 * 300000);
    for (uint32_t k = 0; k < 4; k++)
        put_page(1000, k * 10);
    ck_assert_uint_eq(counts().other_bytes, both / 2);
    ck_assert_uint_eq(counts().evicted, 0);
    store_rig_close(&rig);
    rig.options.seed = seeds[0];
    store_rig_open(&rig);
    ck_assert_int_eq(get_page(1000, 0), -ENOENT); /* the one that was used longest ago */
    rig.options.seed = seeds[1];
    store_rig_open(&rig);
    ck_assert_int_eq(get_page(1000, 0), 0);
}
END_TEST

/* ---- stops ------------------------------------------------------------------------------------- */

/* Writes, evicts, reads, keeps slots. What is there after a stop in the middle is right (store_rig_get). */
static void scenario(void)
{
    static const uint32_t tokens[3] = {1, 2, 3};
    const struct store_slot slots[] = {{1000, "editor", tokens, 3}, {1001, "editor", tokens, 2}};
    for (uint32_t i = 0; i < 4; i++) {
        struct store_text text = text_of(1000 + i % 2, i * 10, 96);
        store_rig_put(&rig, STORE_PAGE, &text);
        store_rig_put(&rig, STORE_WINDOW, &text);
    }
    store_save_slots(rig.store, slots, 2);
}

static void note_slot(void *context, const struct store_slot *slot)
{
    uint32_t *n = context;
    ck_assert_str_eq(slot->name, "editor");
    ck_assert_uint_eq(slot->n_tokens, slot->uid == 1000 ? 3 : 2);
    ck_assert_uint_eq(slot->tokens[1], 2);
    (*n)++;
}

static uint32_t count_what_is_there(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < 4; i++) {
        struct store_text text = text_of(1000 + i % 2, i * 10, 96);
        for (int class = STORE_PAGE; class <= STORE_WINDOW; class ++) {
            int rc = store_rig_get(&rig, class, &text);
            ck_assert(rc == 0 || rc == -ENOENT || rc == -EBADMSG);
            n += rc == 0;
        }
    }
    ck_assert_int_eq(store_load_slots(rig.store, note_slot, &n), 0);
    return n;
}

/* Each write ends after some of its bytes: at its first and last ones, and in between. */
START_TEST(a_stop_between_any_two_steps_leaves_nothing_wrong)
{
    uint64_t all = 1 << 30, left, most = 0;
    rig.options.bytes = 1 << 20; /* 3 pages: some are evicted */
    rig.options.cut = &left;
    left = all;
    store_rig_open(&rig);
    scenario(); /* to its end */
    store_rig_close(&rig);
    const uint64_t steps = all - left;
    store_rig_open(&rig);
    ck_assert_uint_ge(count_what_is_there(), 5);
    ck_assert_uint_gt(steps, 4 * 300000);
    for (uint64_t at = (uint64_t)_i; at < steps; at += at % 300000 < 400 ? 40 : 14979) {
        run("rm -rf %s", rig.path);
        left = at;
        store_rig_open(&rig);
        scenario();
        store_rig_close(&rig);
        left = all; /* the next start, after it stopped */
        store_rig_open(&rig);
        const uint32_t n = count_what_is_there();
        most = n > most ? n : most;
        scenario();
        ck_assert_uint_ge(count_what_is_there(), 4);
        store_rig_close(&rig);
    }
    ck_assert_uint_ge(most, 4);
}
END_TEST

/* Writes without end until it is killed, with the store's thread, and says when something is written. Nothing of Check's is
 * called here: a kill would end its message to the parent in the middle. */
static void write_until_killed(int say)
{
    struct store_done done;
    bool said = false;
    if (store_open(&rig.store, &rig.options, rig.err, sizeof(rig.err)) < 0)
        _exit(1);
    for (uint32_t i = 0;; i++) {
        const struct store_text text = text_of(1000 + i % 3, i % 40 * 10, 96);
        const enum store_class class = i % 7 == 0   ? STORE_STATE
                                       : i % 3 == 0 ? STORE_WINDOW
                                                    : STORE_PAGE;
        void *payload = store_offer(rig.store, class, &text, 1000000, false);
        if (payload) {
            store_rig_fill(payload, rig.options.class_bytes[class], class, &text);
            store_write(rig.store, payload);
        }
        store_submit(rig.store);
        while (store_take(rig.store, &done))
            ;
        if (!said && counts().written > 0)
            said = write(say, "", 1) == 1;
    }
}

/* Some kills wait until something was written: on a busy machine the others may all come before that. */
START_TEST(kills_at_random_leave_nothing_wrong)
{
    const char *often = getenv("HEARTH_STORE_KILLS");
    uint64_t state = 12345;
    uint32_t found = 0;
    rig.options.bytes = 6 << 20;
    rig.options.day_bytes = (uint64_t)1 << 40;
    for (int kill_number = often ? atoi(often) : 10; kill_number > 0; kill_number--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        rig.options.by_hand = false;
        rig.options.plain = kill_number % 2;
        int said[2];
        char byte;
        ck_assert_int_eq(pipe(said), 0);
        pid_t child = fork();
        if (child == 0)
            write_until_killed(said[1]);
        if (kill_number % 3 == 0)
            ck_assert_int_eq(read(said[0], &byte, 1), 1);
        usleep((useconds_t)(state >> 33) % 60000);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status)); /* it had not ended by itself */
        close(said[0]);
        close(said[1]);
        rig.options.by_hand = true;
        store_rig_open(&rig);
        for (uint32_t i = 0; i < 40 * 3; i++)
            for (int class = 0; class < STORE_CLASSES; class ++) {
                struct store_text text = text_of(1000 + i % 3, i % 40 * 10, 96);
                int rc = store_rig_get(&rig, class, &text);
                ck_assert(rc == 0 || rc == -ENOENT || rc == -EBADMSG);
                found += rc == 0;
            }
        store_rig_close(&rig);
    }
    ck_assert_uint_gt(found, 0);
}
END_TEST

/* ---- a disk that fails ------------------------------------------------------------------------- */

START_TEST(a_full_disk_takes_no_record_and_breaks_none)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        fprintf(stderr, "skip: only root can mount a small file system\n");
        return;
    }
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mkdir(rig.path, 0700), 0);
    ck_assert_int_eq(mount("none", rig.path, "tmpfs", 0, "size=2m,mode=0700"), 0);
    log_init(LOG_LEVEL_ERROR);
    rig.options.by_hand = _i == 0;
    rig.options.plain = _i == 1;
    store_rig_open(&rig);
    for (uint32_t i = 0; i < 20; i++)
        put_page(1000, i * 10); /* queued; whether it was written is told by the counts */
    const struct store_counts c = counts();
    ck_assert_uint_ge(c.written, 4);
    ck_assert_uint_eq(c.written + c.failed, 20);
    ck_assert_uint_eq(c.records, c.written);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_int_eq(get_page(1000, i * 10), i < c.written ? 0 : -ENOENT);
    store_rig_open(&rig);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_int_eq(get_page(1000, i * 10), i < c.written ? 0 : -ENOENT);
    store_rig_close(&rig);
    ck_assert_int_eq(umount2(rig.path, MNT_DETACH), 0);
}
END_TEST

START_TEST(a_limit_of_files_sizes_is_a_failed_write)
{
    const struct rlimit limit = {1000000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    store_rig_open(&rig);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint32_t i = 0; i < 5; i++)
        put_page(1000, i * 10);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    ck_assert_uint_ge(counts().written, 1);
    ck_assert_uint_ge(counts().failed, 2);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_int_eq(get_page(1000, i * 10), i < counts().written ? 0 : -ENOENT);
}
END_TEST

/* Its header could not be written: what is written to it next would not be found again. */
START_TEST(a_file_that_could_not_be_begun_is_begun_anew)
{
    const struct rlimit limit = {0, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    struct store_done done;
    signal(SIGXFSZ, SIG_IGN);
    store_rig_open(&rig);
    for (uint32_t i = 0; i < 2; i++) {
        struct store_text text = text_of(1000, i * 10, 96);
        void *payload = store_offer(rig.store, STORE_PAGE, &text, 1, false);
        store_rig_fill(payload, rig.options.class_bytes[STORE_PAGE], STORE_PAGE, &text);
        store_write(rig.store, payload);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_uint_eq(store_work(rig.store, 1), 1);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    store_rig_wait(&rig);
    ck_assert(!store_take(rig.store, &done));
    ck_assert_int_eq(get_page(1000, 0), -ENOENT);
    ck_assert_int_eq(get_page(1000, 10), 0);
    ck_assert_uint_eq(counts().failed, 1);
    store_rig_open(&rig);
    ck_assert_int_eq(get_page(1000, 10), 0);
}
END_TEST

START_TEST(without_its_folder_it_goes_on)
{
    store_rig_open(&rig);
    put_page(1000, 0);
    run("rm -rf %s", rig.path);
    ck_assert_int_eq(get_page(1000, 0), 0); /* its file is open */
    put_page(1001, 10);                     /* a new file */
    ck_assert_int_eq(get_page(1001, 10), -ENOENT);
    put_page(1000, 10); /* into a file that is not there any more */
    ck_assert_int_eq(get_page(1000, 10), -ENOENT);
    ck_assert_uint_eq(counts().failed, 2);
    store_rig_open(&rig); /* the next start makes it anew */
    ck_assert_int_eq(get_page(1000, 0), -ENOENT);
    put_page(1000, 0);
    ck_assert_int_eq(get_page(1000, 0), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_damage");
    TCase *tcase = tcase_create("store_damage");
    tcase_set_timeout(tcase, 1200);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_flipped_bit_anywhere_is_noticed);
    tcase_add_test(tcase, a_file_that_was_cut_off_anywhere_has_what_is_whole);
    tcase_add_test(tcase, a_failing_read_is_no_damage);
    tcase_add_test(tcase, slots_that_could_not_be_read_stay);
    tcase_add_test(tcase, slots_that_changed_places_are_not_believed);
    tcase_add_test(tcase, a_file_of_another_user_is_not_believed);
    tcase_add_test(tcase, a_file_of_another_model_is_not_believed);
    tcase_add_test(tcase, a_file_of_another_version_is_replaced);
    tcase_add_test(tcase, a_copy_of_a_file_counts_once);
    tcase_add_loop_test(tcase, a_folder_that_is_not_only_ours_is_refused, 0,
                        sizeof(folders) / sizeof(*folders));
    tcase_add_test(tcase, folders_before_it_are_made);
    tcase_add_loop_test(tcase, what_is_refused_is_named, 0, sizeof(refused) / sizeof(*refused));
    tcase_add_loop_test(tcase, a_file_that_is_not_only_ours_is_left_alone, 0,
                        sizeof(strange) / sizeof(*strange));
    tcase_add_test(tcase, files_and_folders_are_only_ours);
    tcase_add_test(tcase, a_damaged_list_of_what_was_seen_is_not_used);
    tcase_add_test(tcase, a_second_store_of_the_model_is_refused_until_the_first_one_ends);
    tcase_add_test(tcase, models_that_are_not_served_go_first);
    tcase_add_loop_test(tcase, a_stop_between_any_two_steps_leaves_nothing_wrong, 0, 2);
    tcase_add_test(tcase, kills_at_random_leave_nothing_wrong);
    tcase_add_loop_test(tcase, a_full_disk_takes_no_record_and_breaks_none, 0, 3);
    tcase_add_test(tcase, a_limit_of_files_sizes_is_a_failed_write);
    tcase_add_test(tcase, a_file_that_could_not_be_begun_is_begun_anew);
    tcase_add_test(tcase, without_its_folder_it_goes_on);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
