/* The store of KV pages: what was written under a text comes back under exactly that text, after a restart as well, and
 * nothing else does; what it may hold and write is bounded; named slots come back. */
#include "daemon/log.h"
#include "daemon/overflow_uid.h"
#include "daemon/store/day.h"
#include "daemon/store/text_key.h"
#include "ipc/store_folder.h"
#include "tests/rig/store_rig.h"
#include "tests/run_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static struct store_counts counts(void)
{
    struct store_counts c;
    store_counts(rig.store, &c);
    return c;
}

/* ---- what comes back --------------------------------------------------------------------------- */

enum { BY_HAND, PLAIN, URING, WAYS };

static void choose_way(int way)
{
    rig.options.by_hand = way == BY_HAND;
    rig.options.plain = way == PLAIN;
}

/* A text's pages, the window pages and states of some. */
static bool has(enum store_class class, uint32_t end)
{
    return class == STORE_PAGE || (class == STORE_WINDOW && end >= 160) ||
           (class == STORE_STATE && end == 192);
}

static void check_text(uid_t uid, uint32_t number)
{
    for (int class = 0; class < STORE_CLASSES; class ++)
        for (uint32_t end = 32; end <= 256; end += 32) {
            struct store_text text = text_of(uid, number, end);
            ck_assert_int_eq(store_rig_get(&rig, class, &text), has(class, end) ? 0 : -ENOENT);
        }
}

START_TEST(what_is_written_comes_back_after_a_restart)
{
    choose_way(_i);
    store_rig_open(&rig);
    for (uint32_t end = 256; end > 0; end -= 32) /* as memory is evicted: from the end */
        for (int class = STORE_CLASSES - 1; class >= 0; class --) {
            struct store_text text = text_of(1000, 5, end);
            if (has(class, end))
                ck_assert(store_rig_put(&rig, class, &text));
        }
    check_text(1000, 5);
    ck_assert_uint_eq(counts().records, 13);
    store_rig_open(&rig);
    check_text(1000, 5);
    ck_assert_uint_eq(counts().records, 13);
    ck_assert_uint_eq(counts().read, 13);
    ck_assert_uint_eq(counts().damaged + counts().failed, 0);
}
END_TEST

START_TEST(another_text_user_or_model_has_nothing_of_it)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    struct store_text other = text_of(1000, 6, 96); /* parts from it after 64 */
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &other), -ENOENT);
    other = text_of(1001, 5, 96);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &other), -ENOENT);
    ck_assert_int_eq(store_rig_get(&rig, STORE_STATE, &text), -ENOENT);
    rig.options.seed = "another model, its numerics and sizes";
    store_rig_open(&rig);
    other = text_of(1000, 5, 96);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &other), -ENOENT);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), -ENOENT);
}
END_TEST

/* How many of tokens [n] a text begins with that goes on from `before`, which is `end` then; 0:
 * none does. */
static uint32_t begun(const struct store_text *before, const uint32_t *tokens, uint32_t n,
                      const struct store_text *end)
{
    struct store_text found;
    uint32_t same;
    if (!store_find_begun(rig.store, before, tokens, n, &found, &same))
        return 0;
    ck_assert_uint_eq(found.key.words[0], end->key.words[0]);
    ck_assert_uint_eq(found.end, end->end);
    ck_assert_uint_gt(same, 0);
    return same;
}

/* A page that the text does not fill, of a model with the classes up to _i. */
START_TEST(the_end_of_a_text_comes_back)
{
    static const uint32_t tokens[STORE_TOKENS] = {4, 5, 6, 7, 8, 9};
    static const uint32_t other[STORE_TOKENS] = {4, 5, 7};
    const bool states = _i == STORE_STATE;
    for (int class = _i + 1; class < STORE_CLASSES; class ++)
        rig.options.class_bytes[class] = 0;
    store_rig_open(&rig);
    struct store_text before = text_of(1000, 5, 96), end = before, longer = before;
    ck_assert(store_rig_put(&rig, STORE_PAGE, &before));
    store_follow_part(&end, tokens, 5);
    store_follow_part(&longer, tokens, 6);
    ck_assert_uint_eq(end.end, 101);
    for (int class = 0; class <= _i; class ++) {
        ck_assert_uint_eq(begun(&before, tokens, 6, &end), 0);
        ck_assert(store_rig_put(&rig, class, &end));
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &end), 0);
        ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &longer), -ENOENT);
        ck_assert_uint_eq(begun(&before, tokens, 6, &end), 5);
        ck_assert_uint_eq(begun(&before, tokens, 5, &end), 5);
        ck_assert_uint_eq(begun(&before, tokens, 3, &end), states ? 0 : 3);
        ck_assert_uint_eq(begun(&before, other, 31, &end), states ? 0 : 2);
        ck_assert_uint_eq(begun(&before, tokens + 1, 6, &end), 0);
        struct store_text another = text_of(1001, 5, 96);
        ck_assert_uint_eq(begun(&another, tokens, 6, &end), 0);
        store_rig_open(&rig); /* a restart */
    }
    ck_assert_uint_eq(counts().damaged + counts().failed, 0);
}
END_TEST

/* A hash may collide: each part of what a text is by itself is compared as well. */
START_TEST(an_equal_key_is_not_enough)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96), other = text;
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    other.tokens[31]++;
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &other), STORE_NONE);
    other = text;
    other.uid++;
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &other), STORE_NONE);
    other = text;
    other.end += 32;
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &other), STORE_NONE);
    other = text;
    other.parent.words[1]++;
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &other), STORE_NONE);
    ck_assert_uint_ne(store_find(rig.store, STORE_PAGE, &text), STORE_NONE);
}
END_TEST

/* Two first pages, of any vocabulary's tokens, that XXH3 cannot tell apart in this store: sixteen
 * seconds of a processor found them. What follows them is the same. */
START_TEST(texts_that_a_client_has_tried_have_keys_of_their_own)
{
    static const uint32_t tried[2][STORE_TOKENS] = {
        {7, 7, 7, 7, 43387, 50787, 22148, 14748, 7, 7, 7, 7, 20649, 52172, 44886, 13363,
         7, 7, 7, 7, 7,     7,     7,     7,     7, 7, 7, 7, 7,     7,     7,     7},
        {7, 7, 7, 7, 54933, 41979, 10602, 23556, 7, 7, 7, 7, 48370, 31555, 17165, 33980,
         7, 7, 7, 7, 7,     7,     7,     7,     7, 7, 7, 7, 7,     7,     7,     7},
    };
    static const uint32_t next[STORE_TOKENS] = {1, 2, 3};
    struct store_text text[2];
    store_rig_open(&rig);
    for (int i = 0; i < 2; i++) {
        store_begin(rig.store, 1000, &text[i]);
        store_follow(&text[i], tried[i]);
        store_follow(&text[i], next);
    }
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text[0]));
    ck_assert_uint_ne(store_find(rig.store, STORE_PAGE, &text[0]), STORE_NONE);
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &text[1]), STORE_NONE);
}
END_TEST

/* Digests of 128 bits of Python's hashlib.blake2s. */
START_TEST(text_key_is_blake2s)
{
    static const struct {
        size_t bytes;
        uint8_t key[16];
    } known[] = {
        {0, "\x64\x55\x0d\x6f\xfe\x2c\x0a\x01\xa1\x4a\xba\x1e\xad\xe0\x20\x0c"},
        {24, "\x2c\xcb\x21\x8b\x58\x4b\x72\x1c\x60\x60\x7a\x1b\x9c\x4e\x9f\x33"},
        {64, "\xdc\x66\xca\x8f\x03\x86\x58\x01\xb0\xff\xe0\x6e\xd8\xa1\xa9\x0e"},
        {65, "\x39\x9d\x3e\x92\xcc\xfc\xed\xcd\xde\x9b\xf4\xc2\xbe\x14\xcf\x8c"},
        {128, "\x7a\x3b\x3f\xa8\x88\xb6\x00\x95\xe7\xb3\x05\xef\xcf\x3c\x3d\xbc"},
        {144, "\x56\xaa\xed\x9b\xb4\xe7\x0b\xf6\xc8\x41\x6e\xce\x4f\xb0\x6d\x10"},
    };
    uint8_t counting[144], key[16];
    for (unsigned i = 0; i < sizeof(counting); i++)
        counting[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        text_key(counting, known[i].bytes, key);
        ck_assert_mem_eq(key, known[i].key, sizeof(key));
    }
}
END_TEST

START_TEST(a_record_is_found_when_it_is_written_and_not_before)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    struct store_done done;
    void *payload = store_offer(rig.store, STORE_PAGE, &text, 1, false);
    ck_assert_ptr_nonnull(payload);
    ck_assert_ptr_null(store_offer(rig.store, STORE_PAGE, &text, 1, false));
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &text), STORE_NONE);
    store_rig_fill(payload, rig.options.class_bytes[STORE_PAGE], STORE_PAGE, &text);
    store_write(rig.store, payload);
    ck_assert_uint_eq(store_pending(rig.store), 1);
    ck_assert_uint_eq(store_find(rig.store, STORE_PAGE, &text), STORE_NONE);
    store_rig_wait(&rig);
    ck_assert(!store_take(rig.store, &done));
    ck_assert_uint_eq(store_pending(rig.store), 0);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), 0);
}
END_TEST

START_TEST(what_is_withdrawn_was_never_there)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    void *payload = store_offer(rig.store, STORE_PAGE, &text, 1, false);
    ck_assert_ptr_nonnull(payload);
    store_withdraw(rig.store, payload);
    ck_assert_uint_eq(counts().records + counts().bytes, 0);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), -ENOENT);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), 0);
}
END_TEST

/* A stop that has no time left: what is not begun is neither written nor half written. */
START_TEST(what_is_abandoned_was_never_there)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96), other = text_of(1000, 15, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    void *payload = store_offer(rig.store, STORE_PAGE, &other, 1, false);
    store_rig_fill(payload, rig.options.class_bytes[STORE_PAGE], STORE_PAGE, &other);
    store_write(rig.store, payload);
    store_abandon(rig.store);
    store_rig_open(&rig);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), 0);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &other), -ENOENT);
    ck_assert_uint_eq(counts().records, 1);
}
END_TEST

/* What is of little use takes nobody's place, and leaves half of the day to others. */
START_TEST(what_is_spare_is_kept_where_there_is_room)
{
    rig.options.bytes = 4 << 20; /* 13 pages */
    for (int tight = 0; tight < 2; tight++) {
        store_rig_open(&rig);
        for (uint32_t i = 0; i < 20; i++) {
            struct store_text text = text_of(1000, 1000 * (uint32_t)tight + 10 * i, 96);
            void *payload = store_offer_spare(rig.store, STORE_PAGE, &text, 1, false);
            ck_assert(!payload == (i >= (tight ? 0 : 13)));
            if (!payload)
                continue;
            store_rig_fill(payload, rig.options.class_bytes[STORE_PAGE], STORE_PAGE, &text);
            store_write(rig.store, payload);
            store_rig_wait(&rig);
        }
        ck_assert_uint_eq(counts().evicted + counts().no_room, 0);
        rig.options.bytes = 64 << 20;
        rig.options.day_bytes = 4 << 20; /* of which 13 pages are spent */
    }
}
END_TEST

/* ---- what is taken ----------------------------------------------------------------------------- */

START_TEST(a_short_text_is_stored_when_it_is_offered_again_or_wanted_or_followed)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 32), follows = text_of(1000, 5, 64);
    ck_assert(!store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert_uint_eq(counts().too_short, 1);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    text = text_of(1000, 15, 32);
    ck_assert(store_rig_put_wanted(&rig, STORE_PAGE, &text, 1, true));
    follows = text_of(1000, 25, 64);
    text = text_of(1000, 25, 32);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &follows));
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    text = text_of(1000, 35, 32); /* of one class and of another: each is offered once */
    ck_assert(!store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert(!store_rig_put(&rig, STORE_WINDOW, &text));
    ck_assert_uint_eq(counts().too_short, 3);
    store_rig_open(&rig); /* a restart in between */
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert(store_rig_put(&rig, STORE_WINDOW, &text));
}
END_TEST

START_TEST(the_overflow_uid_has_no_records)
{
    store_rig_open(&rig);
    struct store_text text = text_of(overflow_uid(), 5, 96);
    ck_assert(!store_rig_put_wanted(&rig, STORE_PAGE, &text, 1, true));
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), -ENOENT);
    store_rig_close(&rig);
    ck_assert_ptr_null(store_rig_found(&rig, "*/%u", overflow_uid()));
}
END_TEST

static uint64_t bytes_on_disk(void)
{
    char command[160];
    unsigned long kib = 0;
    snprintf(command, sizeof(command), "du -sk %s", rig.path);
    FILE *out = popen(command, "r");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(fscanf(out, "%lu", &kib), 1);
    pclose(out);
    return kib * 1024;
}

START_TEST(the_folder_stays_within_its_bytes)
{
    rig.options.bytes = 4 << 20; /* 13 pages */
    store_rig_open(&rig);
    for (uint32_t i = 0; i < 40; i++) {
        struct store_text text = text_of(1000 + i % 3, 10 * i, 96);
        ck_assert(store_rig_put(&rig, i % 5 == 4 ? STORE_STATE : STORE_PAGE, &text));
        ck_assert_uint_le(counts().bytes, 4 << 20);
    }
    ck_assert_uint_gt(counts().evicted, 20);
    ck_assert_uint_gt(counts().bytes, 3 << 20);
    store_rig_close(&rig);
    ck_assert_uint_le(bytes_on_disk(), (4 << 20) + (256 << 10)); /* and the folders */
    rig.options.bytes = 2 << 20;
    store_rig_open(&rig);
    ck_assert_uint_le(counts().bytes, 2 << 20);
    store_rig_close(&rig);
    ck_assert_uint_le(bytes_on_disk(), (2 << 20) + (256 << 10));
}
END_TEST

START_TEST(bytes_without_room_for_a_record_are_refused_and_nothing_goes)
{
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    rig.options.bytes = 300000 + 5000 + 70001;
    ck_assert_int_eq(store_rig_try(&rig), -EINVAL);
    ck_assert_ptr_nonnull(strstr(rig.err, "--kv-store-bytes 375001 has no room"));
    rig.options.bytes = 300000 + 5000 + 70001 + 6 * 4096;
    store_rig_open(&rig);
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), 0);
}
END_TEST

static _Atomic uint64_t day;
static uint64_t today(void)
{
    return day;
}

/* How many of the user's pages are taken until the day's bytes are written. */
static uint32_t write_all_day_as(uid_t uid, uint32_t from)
{
    const uint64_t before = counts().day_spent;
    uint32_t n = 0;
    for (; n < 100; n++) {
        struct store_text text = text_of(uid, (from + n) * 10, 96);
        if (!store_rig_put(&rig, STORE_PAGE, &text))
            break;
    }
    ck_assert_uint_eq(counts().day_spent, before + 1);
    return n;
}

static uint32_t write_all_day(uint32_t from)
{
    return write_all_day_as(1000, from);
}

START_TEST(a_day_has_its_bytes_over_all_restarts)
{
    rig.options.day_bytes = 3 << 20; /* 10 pages */
    rig.options.today = today;
    day = 20000;
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 9990, 96);
    for (int i = 0; i < 20; i++) { /* what was not written counts for nothing */
        void *payload = store_offer(rig.store, STORE_PAGE, &text, 1, false);
        ck_assert_ptr_nonnull(payload);
        store_withdraw(rig.store, payload);
        store_work(rig.store, 100);
    }
    for (uint32_t i = 0; i < 4; i++) {
        text = text_of(1000, 9000 + i * 10, 96);
        ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    }
    store_rig_open(&rig);
    ck_assert_uint_eq(write_all_day(0), 6);
    store_rig_open(&rig);
    ck_assert_uint_eq(write_all_day(100), 0);
    day = 19999; /* a clock that was set back by a minute */
    store_rig_open(&rig);
    ck_assert_uint_eq(write_all_day(200), 0);
    day = 20001; /* another day, without a restart */
    store_work(rig.store, 1);
    ck_assert_uint_eq(write_all_day(300), 10);
    day = 5000; /* a clock that was wrong until now */
    store_rig_open(&rig);
    ck_assert_uint_eq(write_all_day(400), 10);
}
END_TEST

/* Of 10 pages the first user has 5 and leaves 5, the next one 3 of these and leaves 2, and then 1. */
static bool is_full; /* the disk, for what begins behind a file's 228 KiB of entries */

/* In place of the C library's. */
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (is_full && at >= 228 << 10) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, bytes, at);
}

/* Two days' pages, of which no byte gets into a file: there is none, because a file has the name of
 * the user's folder; or the disk is full, for which io_uring cannot be made to take it here. */
START_TEST(what_a_disk_refuses_is_not_spent)
{
    char folder[96];
    const bool without = _i < WAYS;
    choose_way(_i % WAYS);
    rig.options.day_bytes = 3 << 20; /* 10 pages */
    rig.options.today = today;
    day = 20000;
    store_rig_open(&rig);
    store_share(rig.store); /* 5 of them, then */
    snprintf(folder, sizeof(folder), "%s/1000", store_rig_found(&rig, "*[0-9a-f]"));
    if (without)
        ck_assert_int_eq(close(open(folder, O_CREAT | O_EXCL | O_WRONLY, 0600)), 0);
    is_full = !without;
    for (uint32_t i = 0; i < 20; i++) {
        struct store_text text = text_of(1000, 9000 + i * 10, 96);
        ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    }
    is_full = false;
    if (without)
        ck_assert_int_eq(unlink(folder), 0);
    ck_assert_uint_eq(counts().failed, 20);
    ck_assert_uint_eq(counts().written, 0);
    ck_assert_uint_eq(write_all_day(100), 5);
}
END_TEST

START_TEST(a_user_leaves_as_much_of_a_day_as_it_writes)
{
    rig.options.day_bytes = 3 << 20;
    rig.options.today = today;
    day = 20000;
    store_rig_open(&rig);
    store_share(rig.store);
    for (; day < 20003; day++) {
        store_work(rig.store, 1);
        const uint32_t from = (uint32_t)(day - 20000) * 100;
        ck_assert_uint_eq(write_all_day_as(1000, from), 5);
        ck_assert_uint_eq(write_all_day_as(1001, from), 3);
        ck_assert_uint_eq(write_all_day_as(1000, from + 50), 0);
        ck_assert_uint_eq(write_all_day_as(1002, from), 1);
    }
}
END_TEST

/* Two daemons with one folder; the first one has done nothing since yesterday. */
START_TEST(a_day_that_is_past_gives_nothing_back)
{
    enum { MIB = 1 << 20, BYTES = 100 * MIB };
    struct day idle, busy;
    char path[] = "/tmp/hearth-day-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(path));
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    day = 20000;
    ck_assert_int_eq(day_open(&idle, folder, BYTES, 4096, today), 0);
    day = 20001;
    ck_assert_int_eq(day_open(&busy, folder, BYTES, 4096, today), 0);
    ck_assert(day_spend(&busy, 64 * MIB, 0));
    day_grant(&busy);
    ck_assert(day_spend(&busy, 36 * MIB, 0));
    day_close(&idle);
    day_grant(&busy);
    ck_assert(!day_spend(&busy, 1, 0));
    atomic_store(&busy.left, -4096); /* a day began between day_spend's look and its taking */
    day_close(&busy);
    ck_assert_int_eq(day_open(&busy, folder, BYTES, 4096, today), 0);
    ck_assert(!day_spend(&busy, 1, 0));
    day_close(&busy);
    ck_assert_int_eq(unlinkat(folder, "day", 0), 0);
    ck_assert_int_eq(rmdir(path), 0);
    close(folder);
}
END_TEST

/* That its file cannot be read once does not mean that nothing was written. */
START_TEST(a_day_that_cannot_be_read_is_not_a_new_one)
{
    enum { MIB = 1 << 20, BYTES = 100 * MIB };
    struct day d;
    char path[] = "/tmp/hearth-day-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(path));
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    day = 20000;
    ck_assert_int_eq(day_open(&d, folder, BYTES, 4096, today), 0);
    ck_assert(day_spend(&d, 64 * MIB, 0));
    int whole = dup(d.fd), other = openat(folder, "day", O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(dup2(other, d.fd), d.fd); /* EBADF for each read */
    day_grant(&d);
    ck_assert(!day_spend(&d, 1, 0));
    ck_assert_int_eq(dup2(whole, d.fd), d.fd);
    day_grant(&d);
    ck_assert(day_spend(&d, 36 * MIB, 0));
    ck_assert_int_eq(dup2(other, d.fd), d.fd);
    day_close(&d);
    close(other); /* and its lock */
    ck_assert_int_eq(day_open(&d, folder, BYTES, 4096, today), 0);
    ck_assert(!day_spend(&d, 1, 0));
    day_close(&d);
    ck_assert_int_eq(unlinkat(folder, "day", 0), 0);
    ck_assert_int_eq(rmdir(path), 0);
    close(whole);
    close(folder);
}
END_TEST

START_TEST(what_is_spare_leaves_half_of_every_day)
{
    rig.options.day_bytes = 4 << 20; /* 13 pages, taken in advance as a whole */
    rig.options.today = today;
    uint32_t at = 0;
    for (day = 20000; day < 20003; day++) {
        uint32_t n = 0;
        if (day == 20000)
            store_rig_open(&rig);
        store_work(rig.store, 1);
        for (;; n++, at += 10) {
            struct store_text text = text_of(1000, at, 96);
            void *payload = store_offer_spare(rig.store, STORE_PAGE, &text, 1, false);
            if (!payload)
                break;
            store_rig_fill(payload, rig.options.class_bytes[STORE_PAGE], STORE_PAGE, &text);
            store_write(rig.store, payload);
            store_rig_wait(&rig);
        }
        ck_assert_uint_eq(n, 7);
    }
}
END_TEST

START_TEST(when_the_day_is_spent_the_thread_looks_for_another_one)
{
    rig.options.day_bytes = 400000; /* a page */
    rig.options.today = today;
    rig.options.by_hand = false;
    day = 20000;
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 0, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    day = 20001;
    text = text_of(1000, 10, 96);
    while (!store_rig_put(&rig, STORE_PAGE, &text)) { /* it is refused, and the thread looks */
        store_submit(rig.store);
        sched_yield();
    }
    ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &text), 0);
}
END_TEST

/* Reads it as often as there are buffers for reads. */
static uint32_t read_often(const struct store_text *text)
{
    uint32_t n = 0;
    for (; store_reads_more(rig.store); n++)
        store_read(rig.store, store_find(rig.store, STORE_PAGE, text), n, NULL);
    ck_assert_uint_eq(n, store_reads(rig.store));
    return n;
}

/* Then no buffer is held when it was taken. */
START_TEST(a_record_is_read_into_the_memory_of_who_asks)
{
    const size_t bytes = rig.options.class_bytes[STORE_PAGE];
    uint8_t *into = malloc(bytes), *want = malloc(bytes);
    struct store_done done;
    ck_assert(into && want);
    rig.options.plain = _i;
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    store_rig_fill(want, bytes, STORE_PAGE, &text);
    for (uint64_t i = 0; i < 600; i++) {
        memset(into, 0, bytes);
        ck_assert(store_reads_more(rig.store));
        store_read(rig.store, store_find(rig.store, STORE_PAGE, &text), i, into);
        while (!store_take(rig.store, &done))
            store_rig_wait(&rig);
        ck_assert_uint_eq(done.cookie, i);
        ck_assert_int_eq(done.status, 0);
        ck_assert_ptr_null(done.payload);
        ck_assert_mem_eq(into, want, bytes);
    }
    free(into);
    free(want);
}
END_TEST

static const struct {
    size_t bytes; /* of a record */
    uint32_t reads;
} depths[] = {{20 << 10, 128}, {300 << 10, 27}, {2 << 20, 8}, {16 << 20, 4}};
enum { N_DEPTHS = sizeof(depths) / sizeof(depths[0]) };

/* 8 MiB, 8 reads at least, half of the buffers at most. */
START_TEST(reads_at_once_are_bounded_by_their_bytes)
{
    struct store_done done;
    for (int i = 0; i < STORE_CLASSES; i++)
        rig.options.class_bytes[i] = depths[_i].bytes;
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    ck_assert_uint_eq(read_often(&text), depths[_i].reads);
    store_rig_wait(&rig);
    for (uint32_t i = 0; i < depths[_i].reads; i++) {
        ck_assert(store_take(rig.store, &done));
        ck_assert_int_eq(done.status, 0);
        store_release(rig.store, done.payload);
    }
}
END_TEST

/* Half of the buffers are for writes, some of the others for reads, whichever come first. */
START_TEST(without_a_free_buffer_it_is_later)
{
    struct store_text texts[300];
    void *payloads[300];
    struct store_done done;
    uint32_t n = 0, reads = 0;
    store_rig_open(&rig);
    struct store_text text = text_of(1000, 5, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
    if (_i == 0)
        reads = read_often(&text);
    for (;; n++) {
        texts[n] = text_of(1000, 100 + n * 10, 96);
        payloads[n] = store_offer(rig.store, STORE_PAGE, &texts[n], 1, false);
        if (!payloads[n])
            break;
    }
    ck_assert_uint_eq(counts().busy, 1);
    if (_i == 1)
        reads = read_often(&text);
    ck_assert_uint_eq(n, 110); /* half of what 64 MiB hold */
    ck_assert_uint_eq(reads, 27);
    for (uint32_t i = 0; i < n; i++) {
        store_rig_fill(payloads[i], rig.options.class_bytes[STORE_PAGE], STORE_PAGE, &texts[i]);
        store_write(rig.store, payloads[i]);
    }
    store_rig_wait(&rig);
    for (uint32_t i = 0; i < reads; i++) {
        ck_assert(store_take(rig.store, &done));
        ck_assert_int_eq(done.status, 0);
        store_release(rig.store, done.payload);
    }
    ck_assert(!store_take(rig.store, &done));
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(store_rig_get(&rig, STORE_PAGE, &texts[i]), 0);
}
END_TEST

/* ---- named slots ------------------------------------------------------------------------------- */

static struct store_slot loaded[8];
static uint32_t n_loaded;

static void note(void *context, const struct store_slot *slot)
{
    uint32_t *copy = malloc(slot->n_tokens * sizeof(*copy) + 1);
    ck_assert_ptr_eq(context, &rig);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, slot->tokens, slot->n_tokens * sizeof(*copy));
    loaded[n_loaded] = *slot;
    loaded[n_loaded++].tokens = copy;
}

static void load(void)
{
    n_loaded = 0;
    store_rig_open(&rig);
    ck_assert_int_eq(store_load_slots(rig.store, note, &rig), 0);
    for (uint32_t i = 0; i < n_loaded; i++)
        free((void *)(uintptr_t)loaded[i].tokens);
}

static const uint32_t tokens[5] = {11, 12, 13, 14, 15};
static const struct store_slot slots[] = {
    {1000, "editor", tokens, 5},
    {1001, "editor", tokens + 1, 3},
    {1000, "an agent", tokens + 2, 2},
    {1000, "empty", tokens, 0},
};

START_TEST(named_slots_come_back)
{
    store_rig_open(&rig);
    ck_assert_int_eq(store_save_slots(rig.store, slots, 4), 0);
    load();
    ck_assert_uint_eq(n_loaded, 4);
    uint32_t next = 0;
    for (uint32_t i = 0; i < 4; i++) { /* users in any order; a user's as they were */
        const struct store_slot *got = &loaded[i];
        if (got->uid == 1001) {
            ck_assert_str_eq(got->name, "editor");
            ck_assert_uint_eq(got->n_tokens, 3);
            continue;
        }
        next += slots[next].uid != 1000;
        ck_assert_str_eq(got->name, slots[next].name);
        ck_assert_uint_eq(got->n_tokens, slots[next++].n_tokens);
    }
    ck_assert_int_eq(store_save_slots(rig.store, slots + 1, 1), 0);
    load();
    ck_assert_uint_eq(n_loaded, 1); /* these, and these only */
    ck_assert_uint_eq(loaded[0].uid, 1001);
}
END_TEST

START_TEST(the_tokens_of_a_slot_come_back)
{
    store_rig_open(&rig);
    ck_assert_int_eq(store_save_slots(rig.store, slots, 1), 0);
    store_rig_open(&rig);
    n_loaded = 0;
    ck_assert_int_eq(store_load_slots(rig.store, note, &rig), 0);
    ck_assert_uint_eq(n_loaded, 1);
    ck_assert_mem_eq(loaded[0].tokens, tokens, sizeof(tokens));
    free((void *)(uintptr_t)loaded[0].tokens);
}
END_TEST

START_TEST(a_damaged_file_of_slots_is_left_out)
{
    struct stat st;
    store_rig_open(&rig);
    ck_assert_int_eq(store_save_slots(rig.store, slots, 4), 0);
    const char *path = store_rig_found(&rig, "*/1000/slots");
    ck_assert_int_eq(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        uint8_t byte;
        ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 0x20;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
        load();
        ck_assert_uint_eq(n_loaded, 1);
        byte ^= 0x20;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    load();
    ck_assert_uint_eq(n_loaded, 4);
    for (off_t bytes = st.st_size - 1; bytes >= 0; bytes--) {
        ck_assert_int_eq(truncate(path, bytes), 0);
        load();
        ck_assert_uint_eq(n_loaded, 1);
    }
}
END_TEST

START_TEST(the_overflow_uid_has_no_slots)
{
    const struct store_slot slot = {overflow_uid(), "editor", tokens, 5};
    store_rig_open(&rig);
    ck_assert_int_eq(store_save_slots(rig.store, &slot, 1), 0);
    load();
    ck_assert_uint_eq(n_loaded, 0);
}
END_TEST

/* ---- two threads at the bytes of a day ------------------------------------------------------- */

enum { DAYS = 50000 };

static struct day shared;
static uint64_t days;
static _Atomic bool days_over;

static uint64_t next_day(void)
{
    return days++;
}

static void *grant_all(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < DAYS; i++)
        day_grant(&shared);
    days_over = true;
    return NULL;
}

/* What is left of a day goes when another one begins, also while some of it is being spent: nothing
 * is spent that was not granted. */
START_TEST(a_new_day_and_a_write_at_once_leave_no_debt)
{
    pthread_t thread;
    uint32_t debts = 0;
    int folder = store_folder_open(rig.path, true, false);

    ck_assert_int_ge(folder, 0);
    days = 1;
    ck_assert_int_eq(day_open(&shared, folder, UINT32_MAX, 1, next_day), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, grant_all, NULL), 0);
    while (!days_over) {
        (void)day_spend(&shared, 1, 0);
        debts += atomic_load(&shared.left) < 0;
    }
    pthread_join(thread, NULL);
    ck_assert_uint_eq(debts, 0);
    day_close(&shared);
    close(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, what_is_written_comes_back_after_a_restart, 0, WAYS);
    tcase_add_test(tcase, another_text_user_or_model_has_nothing_of_it);
    tcase_add_loop_test(tcase, the_end_of_a_text_comes_back, 0, STORE_CLASSES);
    tcase_add_test(tcase, an_equal_key_is_not_enough);
    tcase_add_test(tcase, texts_that_a_client_has_tried_have_keys_of_their_own);
    tcase_add_test(tcase, text_key_is_blake2s);
    tcase_add_test(tcase, a_record_is_found_when_it_is_written_and_not_before);
    tcase_add_test(tcase, what_is_withdrawn_was_never_there);
    tcase_add_test(tcase, what_is_abandoned_was_never_there);
    tcase_add_test(tcase, what_is_spare_is_kept_where_there_is_room);
    tcase_add_test(tcase, a_short_text_is_stored_when_it_is_offered_again_or_wanted_or_followed);
    tcase_add_test(tcase, the_overflow_uid_has_no_records);
    tcase_add_test(tcase, the_folder_stays_within_its_bytes);
    tcase_add_test(tcase, bytes_without_room_for_a_record_are_refused_and_nothing_goes);
    tcase_add_test(tcase, a_day_has_its_bytes_over_all_restarts);
    tcase_add_loop_test(tcase, what_a_disk_refuses_is_not_spent, 0, WAYS + URING);
    tcase_add_test(tcase, a_user_leaves_as_much_of_a_day_as_it_writes);
    tcase_add_test(tcase, a_day_that_is_past_gives_nothing_back);
    tcase_add_test(tcase, a_day_that_cannot_be_read_is_not_a_new_one);
    tcase_add_test(tcase, what_is_spare_leaves_half_of_every_day);
    tcase_add_test(tcase, when_the_day_is_spent_the_thread_looks_for_another_one);
    tcase_add_loop_test(tcase, without_a_free_buffer_it_is_later, 0, 2);
    tcase_add_loop_test(tcase, a_record_is_read_into_the_memory_of_who_asks, 0, 2);
    tcase_add_loop_test(tcase, reads_at_once_are_bounded_by_their_bytes, 0, N_DEPTHS);
    tcase_add_test(tcase, named_slots_come_back);
    tcase_add_test(tcase, the_tokens_of_a_slot_come_back);
    tcase_add_test(tcase, a_damaged_file_of_slots_is_left_out);
    tcase_add_test(tcase, the_overflow_uid_has_no_slots);
    tcase_add_test(tcase, a_new_day_and_a_write_at_once_leave_no_debt);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
