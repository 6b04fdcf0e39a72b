/* daemons: see daemons.h; and hearth_find(). */
#include "client/lib/daemons.h"

#include "client/hearth.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char machine_folder[] = "/run/hearth";
static const char ending[] = ".sock";

static bool is_plain(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
}

/* FNV-1a: tells apart what is cut alike. */
static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* Ends the name with a hash of what it was made of. */
static void add_hash(char ret[DAEMONS_NAME_BYTES], const char *model)
{
    enum { HASH = sizeof("-01234567") };
    size_t n = strlen(ret);
    n -= n > 0 && ret[n - 1] == '-';
    n = n < DAEMONS_NAME_BYTES - HASH ? n : DAEMONS_NAME_BYTES - HASH;
    snprintf(ret + n, HASH, "-%08x", hash_of(model));
}

void daemons_instance(const char *model, char ret[DAEMONS_NAME_BYTES])
{
    size_t n = 0;
    bool is_ascii = true;
    for (const char *c = model; *c && n < DAEMONS_NAME_BYTES - 1; c++) {
        is_ascii &= (unsigned char)*c < 0x80;
        if (is_plain((unsigned char)*c) && !(n == 0 && *c == '.'))
            ret[n++] = *c;
        else if (n > 0 && ret[n - 1] != '-')
            ret[n++] = '-';
    }
    ret[n] = 0;
    if (strcmp(ret, "hearth") == 0 || strcmp(ret, "http") == 0 || /* others' sockets, */
        strcmp(ret, "hearthd") == 0) /* and the settings that hearthd reads by itself */
        snprintf(ret + n, DAEMONS_NAME_BYTES - n, "-model");
    if (n == 0)
        snprintf(ret, DAEMONS_NAME_BYTES, "model");
    if (n == 0 || n == DAEMONS_NAME_BYTES - 1 || !is_ascii)
        add_hash(ret, model);
}

int daemons_folder(char ret[HELLO_PATH_BYTES])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (!runtime || !*runtime)
        return -ENOENT;
    int n = snprintf(ret, HELLO_PATH_BYTES, "%s/hearth", runtime);
    return n < (int)HELLO_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

static int add(struct daemons *daemons, const char *folder, const char *name)
{
    const size_t bytes = strlen(name), stem = bytes - strlen(ending);
    struct daemon_socket socket = {0};
    struct stat st;
    if (bytes <= strlen(ending) || strcmp(name + stem, ending) != 0 || stem >= DAEMONS_NAME_BYTES ||
        strlen(folder) + 1 + bytes >= sizeof(socket.path))
        return 0;
    snprintf(socket.instance, sizeof(socket.instance), "%.*s", (int)stem, name);
    snprintf(socket.path, sizeof(socket.path), "%s/%s", folder, name);
    if (stat(socket.path, &st) < 0 || !S_ISSOCK(st.st_mode) || strcmp(name, "http.sock") == 0)
        return 0;
    struct daemon_socket *sockets =
        realloc(daemons->sockets, (daemons->n + 1) * sizeof(*daemons->sockets));
    if (!sockets)
        return -ENOMEM;
    daemons->sockets = sockets;
    sockets[daemons->n++] = socket;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct daemon_socket *)a)->instance,
                  ((const struct daemon_socket *)b)->instance);
}

static int add_folder(struct daemons *daemons, const char *folder)
{
    const size_t first = daemons->n;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int rc = 0;
    while (dir && rc == 0 && (entry = readdir(dir)))
        rc = add(daemons, folder, entry->d_name);
    if (dir)
        closedir(dir);
    if (daemons->n > first)
        qsort(daemons->sockets + first, daemons->n - first, sizeof(*daemons->sockets), compare);
    return rc;
}

int daemons_list(struct daemons *ret)
{
    char own[HELLO_PATH_BYTES];
    int rc = 0;
    *ret = (struct daemons){0};
    if (daemons_folder(own) == 0)
        rc = add_folder(ret, own);
    if (rc == 0)
        rc = add_folder(ret, machine_folder);
    if (rc == 0)
        return 0;
    free(ret->sockets);
    *ret = (struct daemons){0};
    return rc;
}

static uint64_t changed_ns(const char *folder)
{
    struct stat st;
    if (stat(folder, &st) < 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
}

uint64_t daemons_changed_ns(void)
{
    char own[HELLO_PATH_BYTES];
    uint64_t a = daemons_folder(own) == 0 ? changed_ns(own) : 0, b = changed_ns(machine_folder);
    return a > b ? a : b;
}

/* ---- which ones run -------------------------------------------------------------------------- */

/* Do two paths end in the same name? */
static bool has_name(const char *path, const char *other)
{
    const char *a = strrchr(path, '/'), *b = strrchr(other, '/');
    return a && b && strcmp(a, b) == 0;
}

/* A socket that is said to listen at the path of daemons->sockets[of]. Others can call theirs so that
 * a line of /proc/net/unix says what they like: there may be several, and each is looked for. */
struct listener {
    size_t of;
    unsigned long inode; /* its number there */
};

struct listeners {
    struct listener *all;
    size_t n;
};

static void add_listener(struct listeners *l, size_t of, unsigned long inode)
{
    struct listener *all = realloc(l->all, (l->n + 1) * sizeof(*all));
    if (!all)
        return;
    l->all = all;
    all[l->n++] = (struct listener){of, inode};
}

/* Finds the listening sockets in /proc/net/unix. Of others' sockets it looks at names alone: a folder
 * of theirs might never answer. */
static void find_listeners(struct listeners *l, size_t of, const char *path)
{
    enum { ACCEPTS = 0x10000 }; /* __SO_ACCEPTCON */
    char *own = realpath(path, NULL);
    FILE *file = own ? fopen("/proc/net/unix", "re") : NULL;
    char line[512], at[256];
    unsigned long inode;
    struct stat wanted, st;
    unsigned flags;
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%*s %*s %*s %x %*s %*s %lu %255[^\n]", &flags, &inode, at) == 3 &&
            (flags & ACCEPTS) && has_name(at, own) && stat(at, &st) == 0 &&
            stat(own, &wanted) == 0 && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino)
            add_listener(l, of, inode);
    if (file)
        fclose(file);
    free(own);
}

static bool is_hearthd(const char *pid)
{
    char path[300], name[32] = "";
    snprintf(path, sizeof(path), "/proc/%.32s/comm", pid);
    FILE *file = fopen(path, "re");
    bool is = file && fgets(name, sizeof(name), file) && strcmp(name, "hearthd\n") == 0;
    if (file)
        fclose(file);
    return is;
}

void daemons_mark_unit(struct daemons *daemons, const char *cgroup)
{
    static const char service[] = ".service", one[] = "hearth@", first[] = "hearthd";
    static const char users[] = "/user.slice/"; /* its units are called as their user likes */
    char path[HELLO_PATH_BYTES];
    const char *unit = strrchr(cgroup, '/');
    int n = unit ? (int)strcspn(++unit, "\n") - (int)strlen(service) : 0;
    if (n <= 0 || strncmp(unit + n, service, strlen(service)) != 0 || strstr(cgroup, users))
        return;
    if (n == (int)strlen(first) && strncmp(unit, first, strlen(first)) == 0)
        snprintf(path, sizeof(path), "%s/hearth%s", machine_folder, ending);
    else if (strncmp(unit, one, strlen(one)) == 0)
        snprintf(path, sizeof(path), "%s/%.*s%s", machine_folder, n - (int)strlen(one),
                 unit + strlen(one), ending);
    else
        return;
    for (size_t i = 0; i < daemons->n; i++)
        daemons->sockets[i].is_running |= strcmp(daemons->sockets[i].path, path) == 0;
}

static void mark_by_unit(struct daemons *daemons, const char *pid)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%.32s/cgroup", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        daemons_mark_unit(daemons, line);
    if (file)
        fclose(file);
}

/* Marks those whose sockets the process has open. */
static void mark_open(struct daemons *daemons, const struct listeners *l, const char *pid)
{
    char path[300], target[64];
    struct dirent *entry;
    unsigned long inode;
    snprintf(path, sizeof(path), "/proc/%.32s/fd", pid);
    DIR *dir = opendir(path);
    if (!dir && errno == EACCES)
        mark_by_unit(daemons, pid);
    while (dir && (entry = readdir(dir))) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        if (sscanf(target, "socket:[%lu]", &inode) != 1)
            continue;
        for (size_t i = 0; i < l->n; i++)
            daemons->sockets[l->all[i].of].is_running |= l->all[i].inode == inode;
    }
    if (dir)
        closedir(dir);
}

void daemons_look(struct daemons *daemons)
{
    struct listeners l = {0};
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    for (size_t i = 0; i < daemons->n; i++) {
        const size_t before = l.n;
        find_listeners(&l, i, daemons->sockets[i].path);
        daemons->sockets[i].is_open = l.n > before;
    }
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_hearthd(entry->d_name))
            mark_open(daemons, &l, entry->d_name);
    if (dir)
        closedir(dir);
    free(l.all);
}

/* ---- hearth_find ----------------------------------------------------------------------------- */

/* The only socket whose name begins with `instance`, or is that. Returns how many there are. */
static unsigned find_socket(const struct daemons *daemons, const char *instance,
                            const struct daemon_socket **ret)
{
    unsigned n = 0;
    for (size_t i = 0; i < daemons->n; i++)
        if (strcasecmp(daemons->sockets[i].instance, instance) == 0) {
            *ret = &daemons->sockets[i];
            return 1;
        }
    for (size_t i = 0; i < daemons->n && *instance; i++)
        if (strncasecmp(daemons->sockets[i].instance, instance, strlen(instance)) == 0) {
            *ret = &daemons->sockets[i];
            n++;
        }
    return n;
}

/* The same by what daemons say: the name of the model that they serve. */
static unsigned ask_daemons(const struct daemons *daemons, const char *model,
                            const struct daemon_socket **ret)
{
    struct hearth_options options;
    hearth_options_init(&options, sizeof(options));
    options.slots = 0;
    options.connect_timeout_ms = 2000;
    for (size_t i = 0; i < daemons->n; i++) {
        struct hearth_info info = {.size = sizeof(info)};
        struct hearth *h;
        if (hearth_connect(daemons->sockets[i].path, &options, &h, NULL, 0) < 0)
            continue;
        const bool found =
            hearth_info(h, &info) == 0 && info.model && strcasecmp(info.model, model) == 0;
        hearth_close(h);
        if (found) {
            *ret = &daemons->sockets[i];
            return 1;
        }
    }
    return 0;
}

static void name_sockets(const struct daemons *daemons, const char *model, char *err,
                         size_t err_bytes)
{
    char names[256] = "";
    for (size_t i = 0; i < daemons->n && strlen(names) < sizeof(names) - DAEMONS_NAME_BYTES - 2;
         i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? ", " : "",
                 daemons->sockets[i].instance);
    snprintf(err, err_bytes, "no daemon serves %s%s%s: start it with hearth serve %s", model,
             daemons->n ? ", only " : "", names, model);
}

int hearth_find(const char *model, char *path, size_t path_bytes, char *err, size_t err_bytes)
{
    char instance[DAEMONS_NAME_BYTES];
    const struct daemon_socket *found = NULL;
    struct daemons daemons;
    int rc = daemons_list(&daemons);
    if (!err)
        err_bytes = 0;
    if (rc) {
        snprintf(err, err_bytes, "out of memory: free some and try again");
        return rc;
    }
    daemons_instance(model, instance);
    unsigned n = find_socket(&daemons, instance, &found);
    if (n == 0)
        n = ask_daemons(&daemons, model, &found);
    if (n == 0) /* as name_sockets() calls them: hearth, the default daemon's */
        n = find_socket(&daemons, model, &found);
    if (n == 0) {
        rc = -ENOENT;
        name_sockets(&daemons, model, err, err_bytes);
    } else if (n > 1) {
        rc = -EEXIST;
        snprintf(err, err_bytes, "%s may mean several daemons: give more of the name", model);
    } else if (snprintf(path, path_bytes, "%s", found->path) >= (int)path_bytes) {
        rc = -ENAMETOOLONG;
        snprintf(err, err_bytes, "the socket path is too long: %s", found->path);
    }
    free(daemons.sockets);
    return rc;
}
