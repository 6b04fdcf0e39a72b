/* Passes of up to 16 rows. */
#include "kernels/cuda/device/step_kernel.h"

STEP_OF(2);
