/* isa_x86.c: the tables of the x86-64 instruction sets, and whether this processor has them.
 * Compiled for the baseline: nothing here runs an instruction that may be missing. */
#if defined(__x86_64__)
#include "kernels/cpu/simd/simd.h"

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

/* By hand: clang 14 does not know the name "avxvnni". */
static bool has_avxvnni(void)
{
    unsigned eax, ebx, ecx, edx;
    return has_avx2() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && eax >= 1 &&
           __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & bit_AVXVNNI);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Matmuls of isa, everything else of rest. */
#define ISA(isa, rest)                                                                             \
    const struct cpu_isa cpu_isa_##isa = {                                                         \
        .name = #isa,                                                                              \
        .packed = true,                                                                            \
        .usable = has_##isa,                                                                       \
        .norm = simd_norm_##rest,                                                                  \
        .quantize = simd_quantize_##rest,                                                          \
        .matmul = simd_matmul_##isa,                                                               \
        .add = simd_add_##rest,                                                                    \
        .add_scaled = simd_add_scaled_##rest,                                                      \
        .rope = {[MODEL_ROPE_ADJACENT] = simd_rope_interleaved_##rest,                             \
                 [MODEL_ROPE_HALVES] = simd_rope_neox_##rest},                                     \
        .finite = simd_finite_##rest,                                                              \
        .fits_f16 = simd_fits_f16_##rest,                                                          \
        .append = simd_append_##rest,                                                              \
        .attend = simd_attend_##rest,                                                              \
        .attend_split = simd_attend_split_##rest,                                                  \
        .attend_combine = simd_attend_combine_##rest,                                              \
        .gate_mul = {[MODEL_GATE_SILU] = simd_silu_mul_##rest,                                     \
                     [MODEL_GATE_GELU] = simd_gelu_mul_##rest,                                     \
                     [MODEL_GATE_SWIGLU] = simd_swiglu_##rest,                                     \
                     [MODEL_GATE_PRODUCT] = simd_product_##rest,                                   \
                     [MODEL_GATE_SIGMOID] = simd_sigmoid_mul_##rest},                              \
        .convolve = simd_convolve_##rest,                                                          \
        .unit = simd_unit_##rest,                                                                  \
        .delta_read = simd_delta_read_##rest,                                                      \
        .delta_step = simd_delta_step_##rest,                                                      \
        .cap = simd_cap_##rest,                                                                    \
        .canonical_logits = simd_canonical_logits_##rest,                                          \
    }

ISA(avx2, avx2);
ISA(avxvnni, avx2);
ISA(avx512, avx512);

#else
typedef int isa_x86_is_empty_here; /* ISO C wants a declaration */
#endif
