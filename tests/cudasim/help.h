/* What the simulator's tests share: device memory with contents, and "this must be reported". */
#ifndef HEARTH_TESTS_CUDASIM_HELP_H
#define HEARTH_TESTS_CUDASIM_HELP_H

#include <check.h>
#include <stddef.h>

#include "tests/cudasim/toys.h"

#define OK(call) ck_assert_int_eq((int)(call), cudaSuccess)

/* Device memory of n ints, from `from`, or unwritten when that is NULL. */
int *help_device(const int *from, size_t n);
/* Copies n ints back to the host. Waits. */
void help_read(int *to, const int *device, size_t n);

/* Runs `function` in its own process, which must abort with a line that contains all of the texts,
 * separated by "|". */
void help_reported(void (*function)(void), const char *texts);

#endif
