/* launch.cu: every kernel is loaded here, once. */
#include "kernels/cuda/init_launch.h"

int cuda_launch_init(struct cuda_code *ret_code)
{
    int (*const all[])(struct cuda_code *) = {kernels_init,
                                              attend_init,
                                              attend_native_init,
                                              delta_init,
                                              expert_row_init,
                                              experts_init,
                                              matmul_sums_init,
                                              matmul_half_init,
                                              matmul_warpgroup_init,
                                              matmul_row_init<1>,
                                              matmul_row_init<2>,
                                              matmul_row_init<4>,
                                              matmul_init<1>,
                                              matmul_init<2>,
                                              matmul_init<4>,
                                              matmul_init<CUDA_MAX_TILES>,
                                              matmul_large_init<4>,
                                              matmul_large_init<8>,
                                              expert_init<1>,
                                              expert_init<CUDA_EXPERT_TILES>};
    int code = 0;
    *ret_code = {0, 0};
    for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]) && !code; i++)
        code = all[i](ret_code);
    return code;
}
