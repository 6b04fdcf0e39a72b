/* device.c: finds, opens and checks the CUDA plugin. */
#include "kernels/device.h"

#include "kernels/base/fail.h"
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "hearth-cuda.so"

bool device_parse(const char *name, enum device_wanted *ret_wanted)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_wanted = (enum device_wanted)i;
            return true;
        }
    }
    return false;
}

/* The plugin's path. Returns 0, or -ENOENT where the program cannot determine its own directory. */
static int plugin_path(char *path, size_t bytes)
{
    char program[PATH_MAX];
    const char *folder = getenv("HEARTH_PLUGINS");
    if (folder && folder[0])
        return snprintf(path, bytes, "%s/" PLUGIN_FILE, folder) < (int)bytes ? 0 : -ENOENT;
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n <= 0)
        return -ENOENT;
    program[n] = 0;
    for (int cut = 0; cut < 2; cut++) { /* /usr/bin/hearthd: cut off the name, then bin */
        char *slash = strrchr(program, '/');
        if (!slash)
            return -ENOENT;
        *slash = 0;
    }
    return snprintf(path, bytes, "%s/lib/hearth/" PLUGIN_FILE, program) < (int)bytes ? 0 : -ENOENT;
}

static int open_plugin(const struct hearth_plugin **ret, char *err, size_t err_bytes)
{
    char path[PATH_MAX];
    if (plugin_path(path, sizeof(path)))
        return fail(err, err_bytes, -ENODEV, "cannot determine the directory of " PLUGIN_FILE);
    if (access(path, F_OK))
        return fail(err, err_bytes, -ENODEV,
                    "%s does not exist: build hearth on a machine with nvcc (make CUDA=1), or use "
                    "--device cpu",
                    path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(err, err_bytes, -ENODEV, "%s", dlerror());
    const struct hearth_plugin *plugin = dlsym(handle, HEARTH_PLUGIN_SYMBOL);
    if (!plugin || strcmp(plugin->version, HEARTH_PLUGIN_VERSION) != 0) {
        dlclose(handle);
        return fail(err, err_bytes, -ENODEV, "%s belongs to another version of hearth", path);
    }
    *ret = plugin;
    return 0;
}

static int find_cuda(struct device *device, char *err, size_t err_bytes)
{
    const struct hearth_plugin *plugin = NULL;
    size_t total;
    int rc = open_plugin(&plugin, err, err_bytes);
    if (!plugin)
        return rc;
    rc = plugin->ops->probe(err, err_bytes);
    if (!rc && plugin->memory(&device->free_bytes, &total))
        rc = fail(err, err_bytes, -ENODEV, "cannot read the memory size of the GPU");
    if (!rc) {
        device->ops = plugin->ops;
        device->read_gb_s = plugin->read_gb_s;
    }
    return rc;
}

int device_choose(enum device_wanted wanted, struct device *ret_device, char *err, size_t err_bytes)
{
    char line[200] = "";
    *ret_device = (struct device){.ops = &backend_cpu};
    if (wanted == DEVICE_CPU)
        return 0;
    int rc = find_cuda(ret_device, line, sizeof(line));
    if (wanted == DEVICE_CUDA)
        return rc ? fail(err, err_bytes, -ENODEV, "--device cuda: %s", line) : 0;
    if (rc)
        snprintf(ret_device->why, sizeof(ret_device->why), "device cpu: %s", line);
    else
        snprintf(ret_device->why, sizeof(ret_device->why), "device cuda: a GPU with %zu MiB free",
                 ret_device->free_bytes >> 20);
    return 0;
}
