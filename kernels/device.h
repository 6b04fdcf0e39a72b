/*
 * device: which backend runs a model: the CPU's, which is always there, or one that a plugin brings.
 *
 * The CUDA backend is a shared object, hearth-cuda.so, opened only when a GPU was asked for or may be there. It is
 * looked for in the folder that the environment variable HEARTH_PLUGINS names, and nowhere else when it is set; else
 * in ../lib/hearth beside the folder of the program. Once opened it stays.
 *
 * Threads: one at a time. Never prints, never falls back when a device was asked for by name.
 */
#ifndef HEARTH_KERNELS_DEVICE_H
#define HEARTH_KERNELS_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

enum device_wanted { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct device {
    const struct backend_ops *ops;
    size_t free_bytes; /* memory of the device that nobody uses yet; 0 for the CPU */
    double (*read_gb_s)(size_t bytes); /* plugin.h; NULL for the CPU */
    char why[256]; /* one line: what was chosen by DEVICE_AUTO, and why; else "" */
};

/* Returns 0; or -ENODEV with one line: the device that was asked for cannot be used, and why. */
int device_choose(enum device_wanted wanted, struct device *ret_device, char *err,
                  size_t err_bytes);

/* "auto", "cpu", "cuda" to *ret_wanted; false for any other name. */
bool device_parse(const char *name, enum device_wanted *ret_wanted);

#endif
