/* Passes of up to 16 rows. */
#include "kernels/cuda/step_kernel.h"

STEP_OF(2);
