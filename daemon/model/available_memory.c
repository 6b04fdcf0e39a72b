/* available_memory.c: see available_memory.h. */
#include "daemon/model/available_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NODES = 64 };

/* The number after `name` in one of the file's lines, or `missing`. */
static uint64_t read_number(const char *path, const char *name, uint64_t missing)
{
    char line[PATH_MAX], format[64];
    uint64_t value = missing;
    FILE *file = fopen(path, "re");
    snprintf(format, sizeof(format), "%s%%" SCNu64, name);
    while (file && fgets(line, sizeof(line), file) && sscanf(line, format, &value) != 1)
        continue;
    if (file)
        fclose(file);
    return value;
}

static uint64_t group_number(const char *group, const char *file, const char *name,
                             uint64_t missing)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", group, file);
    return read_number(path, name, missing);
}

/* What is left of a group's limit; UINT64_MAX: it has none. The page cache is given up on demand. */
static uint64_t group_left(const char *group)
{
    uint64_t most = group_number(group, "memory.max", "", UINT64_MAX);
    uint64_t used = group_number(group, "memory.current", "", 0);
    uint64_t cache = group_number(group, "memory.stat", "inactive_file ", 0) +
                     group_number(group, "memory.stat", "active_file ", 0);
    used = used > cache ? used - cache : 0;
    return most == UINT64_MAX ? most : most > used ? most - used : 0;
}

/* The folder of the process's group; of the outermost one if it is not known. */
static void find_group(const char *root, char *group, size_t bytes)
{
    char path[PATH_MAX], line[PATH_MAX] = "";
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file) && strncmp(line, "0::/", 4) != 0)
        line[0] = 0;
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = 0;
    const char *name = line[0] ? line + strlen("0::") : "";
    if ((size_t)snprintf(group, bytes, "%s/sys/fs/cgroup%s", root, name) >= bytes)
        snprintf(group, bytes, "%s/sys/fs/cgroup", root);
}

/* As MemAvailable, where a sandbox hides /proc/meminfo (ProcSubset=pid): free memory and page cache. */
static uint64_t nodes_kib(const char *root)
{
    static const char *const parts[] = {"MemFree", "Active(file)", "Inactive(file)"};
    char path[PATH_MAX], name[64];
    uint64_t kib = 0;
    for (unsigned node = 0; node < MOST_NODES; node++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%u/meminfo", root, node);
            snprintf(name, sizeof(name), "Node %u %s: ", node, parts[i]);
            kib += read_number(path, name, 0);
        }
    return kib;
}

uint64_t available_memory(const char *root)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    uint64_t kib = read_number(path, "MemAvailable: ", 0);
    if (!kib)
        kib = nodes_kib(root);
    uint64_t bytes =
        kib ? kib << 10 : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    find_group(root, path, sizeof(path));
    for (size_t outermost = strlen(root) + strlen("/sys/fs/cgroup"); strlen(path) >= outermost;
         *strrchr(path, '/') = 0) {
        uint64_t left = group_left(path);
        bytes = left < bytes ? left : bytes;
    }
    return bytes;
}
