/* Passes of up to 8 rows. */
#include "kernels/cuda/device/step_kernel.h"

STEP_OF(1);
