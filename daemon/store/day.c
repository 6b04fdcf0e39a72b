/* day.c: see day.h. */
#include "daemon/store/day.h"

#include "daemon/log.h"
#include "ipc/store_file.h"
#include "ipc/store_folder.h"
#include "kernels/base/hash128.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { GRANT_BYTES = 64 << 20 };

uint64_t day_today(void)
{
    return (uint64_t)time(NULL) / 86400;
}

static void hash_day(const struct store_file_day *d, uint8_t ret[16])
{
    hash128(d, offsetof(struct store_file_day, hash), ret);
}

/* What was written today. A day after tomorrow is a clock's mistake, but tomorrow may be the clock of
 * a moment ago. False: it cannot be read now, which does not mean that nothing was. */
static bool read_day(const struct day *day, uint64_t today, struct store_file_day *ret)
{
    uint8_t hash[16];
    struct store_file_day found = {0};
    *ret = (struct store_file_day){.magic = STORE_FILE_DAY_MAGIC, .day = today};
    const ssize_t n = pread(day->fd, &found, sizeof(found), 0);
    if (n != sizeof(found))
        return n >= 0;
    hash_day(&found, hash);
    if (!memcmp(found.magic, ret->magic, sizeof(ret->magic)) &&
        !memcmp(found.hash, hash, sizeof(hash)) && found.day >= today && found.day <= today + 1)
        *ret = found;
    return true;
}

static bool write_day(const struct day *day, struct store_file_day *d)
{
    hash_day(d, d->hash);
    return pwrite(day->fd, d, sizeof(*d), 0) == sizeof(*d);
}

/* A line a day. */
static void say_spent(struct day *day, uint64_t today)
{
    if (day->said == today)
        return;
    day->said = today;
    log_warning("store: the %llu KiB of --kv-store-writes are spent, also by what killed daemons "
                "had taken in advance: nothing more is kept today (UTC)",
                (unsigned long long)(day->bytes >> 10));
}

void day_grant(struct day *day)
{
    const uint64_t today = day->today();
    const int64_t half = (int64_t)day->grant / 2;
    struct store_file_day d;
    if ((atomic_load(&day->left) >= half && day->last == today) || flock(day->fd, LOCK_EX) < 0)
        return;
    if (!read_day(day, today, &d)) {
        flock(day->fd, LOCK_UN);
        return;
    }
    if (d.day != day->last) /* what is left is another day's */
        atomic_store(&day->left, 0);
    day->last = d.day;
    if (atomic_load(&day->left) < half) {
        uint64_t bytes = d.bytes < day->bytes ? day->bytes - d.bytes : 0;
        bytes = bytes < day->grant ? bytes : day->grant;
        d.bytes += bytes;
        if (bytes > 0 && write_day(day, &d)) {
            atomic_fetch_add(&day->left, (int64_t)bytes);
            atomic_store(&day->short_of, false);
            atomic_store(&day->spent, false);
        } else if (atomic_load(&day->spent)) {
            say_spent(day, d.day);
        }
    }
    atomic_store(&day->taken, d.bytes);
    flock(day->fd, LOCK_UN);
}

int day_open(struct day *day, int folder, uint64_t bytes, uint64_t largest, uint64_t (*today)(void))
{
    *day = (struct day){
        .bytes = bytes,
        .grant = largest * 4 > GRANT_BYTES ? largest * 4 : GRANT_BYTES,
        .today = today,
        .fd = store_folder_file(folder, "day", O_RDWR | O_CREAT),
    };
    if (day->fd < 0)
        return day->fd;
    day_grant(day);
    return 0;
}

/* Gives back what is left, of a day that is not over. */
void day_close(struct day *day)
{
    const uint64_t today = day->today ? day->today() : 0;
    struct store_file_day d;
    if (day->fd < 0)
        return;
    if (flock(day->fd, LOCK_EX) == 0) {
        const int64_t left = atomic_exchange(&day->left, 0);
        if (read_day(day, today, &d)) {
            if (left > 0 && d.day == day->last)
                d.bytes -= (uint64_t)left < d.bytes ? (uint64_t)left : d.bytes;
            write_day(day, &d);
        }
    }
    close(day->fd);
    day->fd = -1;
}

/* Of the day, but for what others took since the last grant. */
static int64_t left_of(const struct day *day, int64_t granted)
{
    return (int64_t)(day->bytes - atomic_load(&day->taken)) + granted;
}

bool day_spend(struct day *day, uint64_t bytes, uint64_t own)
{
    int64_t left = atomic_load(&day->left);
    do {
        const bool spent = left < (int64_t)bytes;
        if (spent || (own > 0 && left_of(day, left) < (int64_t)(own + bytes))) {
            atomic_store(&day->short_of, true);
            if (spent)
                atomic_store(&day->spent, true);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&day->left, &left, left - (int64_t)bytes));
    return true;
}

void day_unspend(struct day *day, uint64_t bytes)
{
    atomic_fetch_add(&day->left, (int64_t)bytes);
}

bool day_has_half(const struct day *day)
{
    const int64_t left = atomic_load(&day->left);
    return atomic_load(&day->taken) <= day->bytes / 2 + (left > 0 ? (uint64_t)left : 0);
}
