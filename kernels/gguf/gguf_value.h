/* gguf_value.h: decodes single values of a GGUF file from their little-endian, unaligned bytes.
 * Private to the reader (gguf_impl.h); others use the getters of gguf.h. Pure functions. PRECOND:
 * the bytes are inside the file. */
#ifndef HEARTH_KERNELS_GGUF_GGUF_VALUE_H
#define HEARTH_KERNELS_GGUF_GGUF_VALUE_H
#include "kernels/gguf/gguf.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t le32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return le32toh(v);
}

static inline uint64_t le64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return le64toh(v);
}

/* Bytes of a value of fixed size; 0 for strings, arrays and unknown types. */
static inline uint32_t value_bytes(uint32_t type)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    default:
        return 0;
    }
}

/* Reads any integer type (BOOL as 0 or 1) in two's complement; *ret_negative says whether the value
 * is negative. Returns false for other types. */
static inline bool value_integer(uint32_t type, const uint8_t *p, uint64_t *ret, bool *ret_negative)
{
    int64_t v;
    *ret_negative = false;
    switch (type) {
    case GGUF_U8:
        *ret = p[0];
        return true;
    case GGUF_BOOL:
        *ret = p[0] != 0;
        return true;
    case GGUF_U16:
        *ret = (uint32_t)p[0] | (uint32_t)p[1] << 8;
        return true;
    case GGUF_U32:
        *ret = le32(p);
        return true;
    case GGUF_U64:
        *ret = le64(p);
        return true;
    case GGUF_I8:
        v = (int8_t)p[0];
        break;
    case GGUF_I16:
        v = (int16_t)(p[0] | p[1] << 8);
        break;
    case GGUF_I32:
        v = (int32_t)le32(p);
        break;
    case GGUF_I64:
        v = (int64_t)le64(p);
        break;
    default:
        return false;
    }
    *ret = (uint64_t)v;
    *ret_negative = v < 0;
    return true;
}

/* Reads F32 and F64 (rounded to nearest). Returns false for other types. */
static inline bool value_float(uint32_t type, const uint8_t *p, float *ret)
{
    if (type == GGUF_F32) {
        uint32_t bits = le32(p);
        memcpy(ret, &bits, sizeof(*ret));
        return true;
    }
    if (type == GGUF_F64) {
        uint64_t bits = le64(p);
        double v;
        memcpy(&v, &bits, sizeof(v));
        *ret = (float)v;
        return true;
    }
    return false;
}

#endif
