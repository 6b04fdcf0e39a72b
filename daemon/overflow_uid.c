/* overflow_uid.c: see overflow_uid.h. */
#include "daemon/overflow_uid.h"

#include <pthread.h>
#include <stdio.h>

static uid_t overflow_found;

uid_t overflow_uid_read(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned uid = OVERFLOW_UID_USUAL;

    if (file && fscanf(file, "%u", &uid) != 1)
        uid = OVERFLOW_UID_USUAL;
    if (file)
        fclose(file);
    return uid;
}

static void overflow_find(void)
{
    overflow_found = overflow_uid_read("/proc/sys/kernel/overflowuid");
}

uid_t overflow_uid(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, overflow_find);
    return overflow_found;
}

bool overflow_uid_shares(uid_t uid)
{
    return uid != overflow_uid();
}
