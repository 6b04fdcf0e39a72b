/* cudasim: CUDA's vector types, with CUDA's alignments, and make_*. */
#ifndef HEARTH_TESTS_CUDASIM_INCLUDE_CUDASIM_VECTORS_H
#define HEARTH_TESTS_CUDASIM_INCLUDE_CUDASIM_VECTORS_H

struct alignas(2) char2 {
    signed char x, y;
};
static inline char2 make_char2(signed char x, signed char y)
{
    return {x, y};
}
struct alignas(4) char4 {
    signed char x, y, z, w;
};
static inline char4 make_char4(signed char x, signed char y, signed char z, signed char w)
{
    return {x, y, z, w};
}
struct alignas(2) uchar2 {
    unsigned char x, y;
};
static inline uchar2 make_uchar2(unsigned char x, unsigned char y)
{
    return {x, y};
}
struct alignas(4) uchar4 {
    unsigned char x, y, z, w;
};
static inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w)
{
    return {x, y, z, w};
}
struct alignas(4) short2 {
    short x, y;
};
static inline short2 make_short2(short x, short y)
{
    return {x, y};
}
struct alignas(8) short4 {
    short x, y, z, w;
};
static inline short4 make_short4(short x, short y, short z, short w)
{
    return {x, y, z, w};
}
struct alignas(4) ushort2 {
    unsigned short x, y;
};
static inline ushort2 make_ushort2(unsigned short x, unsigned short y)
{
    return {x, y};
}
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
static inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z,
                                   unsigned short w)
{
    return {x, y, z, w};
}
struct alignas(8) int2 {
    int x, y;
};
static inline int2 make_int2(int x, int y)
{
    return {x, y};
}
struct alignas(4) int3 {
    int x, y, z;
};
static inline int3 make_int3(int x, int y, int z)
{
    return {x, y, z};
}
struct alignas(16) int4 {
    int x, y, z, w;
};
static inline int4 make_int4(int x, int y, int z, int w)
{
    return {x, y, z, w};
}
struct alignas(8) uint2 {
    unsigned x, y;
};
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
struct alignas(8) float2 {
    float x, y;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
struct alignas(4) float3 {
    float x, y, z;
};
static inline float3 make_float3(float x, float y, float z)
{
    return {x, y, z};
}
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
struct alignas(16) longlong2 {
    long long x, y;
};
static inline longlong2 make_longlong2(long long x, long long y)
{
    return {x, y};
}
struct alignas(16) longlong4 {
    long long x, y, z, w;
};
static inline longlong4 make_longlong4(long long x, long long y, long long z, long long w)
{
    return {x, y, z, w};
}
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y)
{
    return {x, y};
}
struct alignas(16) ulonglong4 {
    unsigned long long x, y, z, w;
};
static inline ulonglong4 make_ulonglong4(unsigned long long x, unsigned long long y,
                                         unsigned long long z, unsigned long long w)
{
    return {x, y, z, w};
}
struct alignas(16) double2 {
    double x, y;
};
static inline double2 make_double2(double x, double y)
{
    return {x, y};
}
struct alignas(16) double4 {
    double x, y, z, w;
};
static inline double4 make_double4(double x, double y, double z, double w)
{
    return {x, y, z, w};
}

#endif
