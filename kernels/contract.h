/* contract.h: what every backend refuses: limits that it cannot be opened with, and passes outside
 * them. Pure functions, any thread; they write only the caller's line. */
#ifndef HEARTH_KERNELS_CONTRACT_H
#define HEARTH_KERNELS_CONTRACT_H

#include "kernels/backend.h"

/* Returns 0, or with one line -EINVAL (limits) or -ENOTSUP (a model that cannot be served with this
 * context). */
int contract_check_limits(const struct backend_limits *limits, const struct model *model, char *err,
                          size_t err_bytes);

/* next_position [limits.rows] is scratch. Returns 0, or -EINVAL with one line. */
int contract_check_pass(const struct pass *pass, const struct backend_limits *limits,
                        const struct model *model, uint32_t *next_position, char *err,
                        size_t err_bytes);

#endif
