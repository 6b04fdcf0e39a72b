/* folder.c: see folder.h. */
#include "ipc/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

int folder_make(const char *path)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof(part), "%s", path) >= PATH_MAX)
        return -ENAMETOOLONG;
    for (char *c = part + (part[0] != 0); *c; c++)
        if (*c == '/') {
            *c = 0;
            if (mkdir(part, 0700) < 0 && errno != EEXIST)
                return -errno;
            *c = '/';
        }
    return mkdir(part, 0700) < 0 && errno != EEXIST ? -errno : 0;
}
