/* The tables of the x86-64 instruction sets, and whether this processor has them. Compiled for the
 * plain machine: nothing here runs an instruction that may be missing. */
#if defined(__x86_64__)

#include "kernels/cpu/simd.h"

#include <cpuid.h>

/* By hand: clang 14 does not know the name "f16c". */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

#define ISA(isa, has)                                                                              \
    const struct cpu_isa cpu_isa_##isa = {                                                         \
        .name = #isa,                                                                              \
        .packed = true,                                                                            \
        .usable = (has),                                                                           \
        .norm = simd_norm_##isa,                                                                   \
        .quantize = simd_quantize_##isa,                                                           \
        .product = simd_product_##isa,                                                             \
        .add = simd_add_##isa,                                                                     \
        .rotate = {[MODEL_ROPE_ADJACENT] = simd_rotate_##isa,                                      \
                   [MODEL_ROPE_HALVES] = simd_rotate_halves_##isa},                                \
        .finite = simd_finite_##isa,                                                               \
        .fits_f16 = simd_fits_f16_##isa,                                                           \
        .append = simd_append_##isa,                                                               \
        .attend = simd_attend_##isa,                                                               \
        .silu_mul = simd_silu_mul_##isa,                                                           \
        .canonical_logits = simd_canonical_logits_##isa,                                           \
    }

ISA(avx2, has_avx2);
ISA(avx512, has_avx512);

#else
typedef int isa_x86_is_empty_here; /* ISO C wants a declaration */
#endif
