/* step.cu: chooses the kernel by the number of rows. */
#include "kernels/cuda/step_launch.h"

int cuda_step_blocks(const struct cuda_queue *queue, const struct step_job *job, uint32_t kernel,
                     uint32_t *ret_blocks)
{
    return kernel == 0 ? step_open<1>(queue, job, ret_blocks)
                       : step_open<2>(queue, job, ret_blocks);
}

int cuda_launch_step(const struct cuda_queue *queue, const struct step_job *job, uint32_t kernel,
                     uint32_t blocks)
{
    return kernel == 0 ? step_launch<1>(queue, job, blocks) : step_launch<2>(queue, job, blocks);
}
