/* device.h: chooses the backend that runs a model: the CPU's, which is always available, or one
 * from a plugin.
 *
 * The CUDA backend is a shared object, hearth-cuda.so, opened only when a GPU was asked for or may
 * exist. It is searched in the folder named by the environment variable HEARTH_PLUGINS, and nowhere
 * else if that is set; otherwise in ../lib/hearth beside the folder of the program. Once opened it
 * stays open.
 *
 * Threads: one at a time. Never prints, never falls back when a device was asked for by name. */
#ifndef HEARTH_KERNELS_DEVICE_H
#define HEARTH_KERNELS_DEVICE_H
#include "kernels/backend.h"

#include <stddef.h>
#include <stdint.h>

enum device_wanted { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct device {
    const struct backend_ops *ops;
    size_t free_bytes;                 /* free memory of the device; 0 for the CPU */
    double (*read_gb_s)(size_t bytes); /* plugin.h; NULL for the CPU */
    char why[256];                     /* one line: what DEVICE_AUTO chose and why; else "" */
};

/* Returns 0; or -ENODEV with one line that says why the requested device cannot be used. */
int device_choose(enum device_wanted wanted, struct device *ret_device, char *err,
                  size_t err_bytes);

/* Parses "auto", "cpu", "cuda"; false for any other name. */
bool device_parse(const char *name, enum device_wanted *ret_wanted);

#endif
