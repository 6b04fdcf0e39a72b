/* plugin.h: what hearth-cuda.so exports: one symbol, `hearth_plugin`. A program only uses a plugin
 * of its own version; kernels/device.c checks it. */
#ifndef HEARTH_KERNELS_PLUGIN_H
#define HEARTH_KERNELS_PLUGIN_H

#include "kernels/backend.h"

#define HEARTH_PLUGIN_VERSION HEARTH_VERSION ".6"
#define HEARTH_PLUGIN_SYMBOL "hearth_plugin"

struct hearth_plugin {
    const char *version;
    const struct backend_ops *ops;
    /* Free and total device memory. Returns 0 or -EIO. PRECOND: a successful probe. */
    int (*memory)(size_t *ret_free, size_t *ret_total);

    /* The rate of the best plain read of `bytes` bytes of device memory, in 1e9 bytes a second,
     * which is the bound for decoding. Allocates and frees the memory; 0 on failure. */
    double (*read_gb_s)(size_t bytes);
};

extern const struct hearth_plugin hearth_plugin;

#endif
