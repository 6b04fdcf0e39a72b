/* store_folder.c: see store_folder.h. openat2(2) with RESOLVE_BENEATH is not needed: a name here has no slash, so
 * openat(2) with O_NOFOLLOW cannot leave the folder. */
#include "ipc/store_folder.h"

#include "ipc/folder.h"
#include "ipc/store_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ----------------------------------------------------------------------------------- */

static bool is_private(const struct stat *st, uid_t owner)
{
    return st->st_uid == owner && (st->st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

static int close_with(int fd, int rc)
{
    close(fd);
    return rc;
}

/* Without what follows its last name: O_NOFOLLOW follows a link before a slash. */
static int cut_slashes(const char *path, char ret[PATH_MAX])
{
    size_t n = strlen(path);
    if (n >= PATH_MAX)
        return -ENAMETOOLONG;
    while (n > 1 && (path[n - 1] == '/' || (path[n - 1] == '.' && path[n - 2] == '/')))
        n--;
    memcpy(ret, path, n);
    ret[n] = 0;
    return 0;
}

int store_folder_open(const char *given, bool make, bool any_owner)
{
    char path[PATH_MAX];
    struct stat st;
    int rc = cut_slashes(given, path);
    if (rc < 0)
        return rc;
    if (make)
        folder_make(path); /* if that fails, so does the open */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOTDIR && lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? -ELOOP : -errno;
    if (fstat(fd, &st) < 0)
        return close_with(fd, -errno);
    const uid_t owner = any_owner && geteuid() == 0 ? st.st_uid : geteuid();
    return is_private(&st, owner) ? fd : close_with(fd, -EPERM);
}

/* Of a descriptor that was opened in `folder`. */
static int check_in(int folder, int fd, mode_t kind)
{
    struct stat in, st;
    if (fstat(folder, &in) < 0 || fstat(fd, &st) < 0)
        return -errno;
    const bool one_name = kind == S_IFDIR || st.st_nlink == 1;
    return is_private(&st, in.st_uid) && (st.st_mode & S_IFMT) == kind && one_name ? 0 : -EPERM;
}

static int open_in(int folder, const char *name, int flags, mode_t kind)
{
    if (strchr(name, '/') || !strcmp(name, "..") || !strcmp(name, "."))
        return -EINVAL;
    int fd = openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return -errno;
    int rc = check_in(folder, fd, kind);
    /* It is not a pipe, which an open or a read would wait for, so it may block: io_uring waits for files that do. */
    if (rc == 0 && kind == S_IFREG && fcntl(fd, F_SETFL, flags & O_ACCMODE) < 0)
        rc = -errno;
    return rc == 0 ? fd : close_with(fd, rc);
}

int store_folder_enter(int folder, const char *name, bool make)
{
    if (make && mkdirat(folder, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    return open_in(folder, name, O_RDONLY | O_DIRECTORY, S_IFDIR);
}

int store_folder_file(int folder, const char *name, int flags)
{
    return open_in(folder, name, flags, S_IFREG);
}

/* ---- names ------------------------------------------------------------------------------------- */

bool store_folder_is_model(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

bool store_folder_is_user(const char *name, uid_t *ret)
{
    char again[STORE_FOLDER_NAME];
    *ret = (uid_t)strtoul(name, NULL, 10);
    snprintf(again, sizeof(again), "%u", *ret);
    return !strcmp(again, name);
}

bool store_folder_is_segment(const char *name, uint32_t *ret)
{
    char again[STORE_FOLDER_NAME];
    *ret = (uint32_t)strtoul(name, NULL, 10);
    store_folder_segment_name(*ret, again);
    return !strcmp(again, name);
}

void store_folder_segment_name(uint32_t number, char ret[STORE_FOLDER_NAME])
{
    snprintf(ret, STORE_FOLDER_NAME, "%04u.kv", number);
}

int store_folder_list(int folder, int (*each)(void *context, int folder, const char *name),
                      void *context)
{
    const struct dirent *entry;
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir) {
        rc = -errno;
        return again < 0 ? rc : close_with(again, rc);
    }
    while (rc == 0 && (errno = 0, entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = each(context, folder, entry->d_name);
    if (rc == 0 && errno)
        rc = -errno;
    closedir(dir);
    return rc;
}

/* ---- the lock ---------------------------------------------------------------------------------- */

static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

int store_folder_lock(int model_folder, bool make)
{
    struct flock lock = whole_file();
    struct stat st;
    int fd = store_folder_file(model_folder, "model", O_RDWR | (make ? O_CREAT : 0));
    if (fd < 0)
        return fd;
    if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
        return close_with(fd, errno == EAGAIN || errno == EACCES ? -EBUSY : -errno);
    /* What had it locked may have removed it meanwhile. */
    return fstat(fd, &st) == 0 && st.st_nlink == 1 ? fd : close_with(fd, -EBUSY);
}

bool store_folder_is_locked(int model_folder)
{
    struct flock lock = whole_file();
    int fd = store_folder_file(model_folder, "model", O_RDWR);
    if (fd < 0)
        return false;
    int rc = fcntl(fd, F_OFD_GETLK, &lock);
    close(fd);
    return rc == 0 && lock.l_type != F_UNLCK;
}

/* ---- what is there ----------------------------------------------------------------------------- */

static int add_bytes(void *context, int folder, const char *name)
{
    uint64_t *bytes = context;
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        *bytes += (uint64_t)st.st_blocks * 512;
    return 0;
}

int store_folder_bytes(int user_folder, uint64_t *ret)
{
    *ret = 0;
    return store_folder_list(user_folder, add_bytes, ret);
}

static int clear_file(void *context, int folder, const char *name)
{
    uint32_t number;
    (void)context;
    if (store_folder_is_segment(name, &number) || !strcmp(name, "slots") ||
        !strcmp(name, "slots.tmp"))
        return unlinkat(folder, name, 0) < 0 ? -errno : 0;
    return 0;
}

int store_folder_clear_user(int model_folder, const char *user)
{
    int fd = store_folder_enter(model_folder, user, false);
    if (fd < 0)
        return fd;
    int rc = store_folder_list(fd, clear_file, NULL);
    close(fd);
    if (unlinkat(model_folder, STORE_FOLDER_SEEN, 0) < 0 && errno != ENOENT && rc == 0)
        rc = -errno;
    if (rc == 0 && unlinkat(model_folder, user, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY)
        rc = -errno;
    return rc;
}

static int clear_user(void *context, int folder, const char *name)
{
    uid_t uid;
    (void)context;
    return store_folder_is_user(name, &uid) ? store_folder_clear_user(folder, name) : 0;
}

int store_folder_clear_model(int folder, const char *model)
{
    int fd = store_folder_enter(folder, model, false);
    if (fd < 0)
        return fd;
    int rc = store_folder_list(fd, clear_user, NULL);
    if (rc == 0 && unlinkat(fd, STORE_FOLDER_SEEN, 0) < 0 && errno != ENOENT)
        rc = -errno;
    if (rc == 0 && unlinkat(fd, "model", 0) < 0 && errno != ENOENT)
        rc = -errno;
    close(fd);
    if (rc == 0 && unlinkat(folder, model, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY)
        rc = -errno;
    return rc;
}
