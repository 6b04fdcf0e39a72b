/* product: which kernel of products for how many rows. */
#include "kernels/cuda/product_launch.h"

int cuda_launch_init(int *ret_version)
{
    int (*const init[])(int *) = {product_init<1>, product_init<2>, product_init<4>,
                                  product_init<CUDA_MAX_TILES>};
    int code = attend_init();
    for (int i = 0; i < 4 && !code; i++)
        code = init[i](ret_version);
    return code;
}

int cuda_launch_product(const struct cuda_queue *queue, const struct product_job *job,
                        uint32_t rows)
{
    if (rows <= CUDA_TILE)
        return product_launch<1>(queue, job, rows);
    if (rows <= 2 * CUDA_TILE)
        return product_launch<2>(queue, job, rows);
    if (rows <= 4 * CUDA_TILE)
        return product_launch<4>(queue, job, rows);
    return product_launch<CUDA_MAX_TILES>(queue, job, rows);
}
