/* gguf.h: reads the GGUF container, versions 2 and 3: keys with typed values, and named tensors.
 *
 * The file is mapped read-only and private and parsed once in gguf_open, which checks every length,
 * count, offset and type; afterwards the getters only look things up. Nothing is copied: strings,
 * arrays and tensor data are views into the mapping and live until gguf_close. Values in the file
 * are little-endian and need not be aligned: read arrays through the getters, not by casting.
 *
 * Threads: open and close in one thread; everything else is read-only and may be called from any
 * thread. Owns: the mapping and two index tables. Never prints, never interprets the model (that is
 * model.h). If another process truncates the file while it is mapped, SIGBUS is raised, as with any
 * mapping.
 *
 * Error lines (err, err_bytes) do not name the file: the caller knows it and prefixes it. */
#ifndef HEARTH_KERNELS_GGUF_GGUF_H
#define HEARTH_KERNELS_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_value_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7, /* one byte, anything but 0 is true */
    GGUF_STRING = 8,
    GGUF_ARRAY = 9, /* of any element type except arrays */
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

enum {
    GGUF_MAX_DIMS = 4,
    GGUF_MAX_NAME = 63,         /* bytes of a tensor's name */
    GGUF_MAX_KEY = 65535,       /* bytes of a key */
    GGUF_MAX_ENTRIES = 1 << 20, /* keys, and tensors */
    GGUF_MAX_PARTS = 256,
    /* Bytes of keys and list of tensors, of all parts together. They are read whenever the file is
     * opened, also where it is sparse, and takes no place on the disk. */
    GGUF_MAX_HEADER = 256 << 20
};

/* A view: not terminated, may contain any byte, including 0. */
struct gguf_string {
    const char *data; /* [bytes] */
    size_t bytes;
};

/* printf arguments for "%.*s", cut to a reasonable length. */
#define GGUF_SHOW(string) (int)((string).bytes < 80 ? (string).bytes : 80), (string).data

struct gguf_array {
    uint32_t type;       /* gguf_value_type of an element, never GGUF_ARRAY */
    uint64_t count;      /* elements */
    const uint8_t *data; /* [bytes], as in the file: packed, not aligned */
    uint64_t bytes;
};

struct gguf_key {
    struct gguf_string name;
    uint32_t type;      /* gguf_value_type */
    const uint8_t *raw; /* [raw_bytes] the value as in the file, with its length or array header */
    uint64_t raw_bytes;
    struct gguf_array array; /* GGUF_ARRAY only */
};

struct gguf_tensor {
    struct gguf_string name;    /* 1..GGUF_MAX_NAME bytes */
    uint32_t type;              /* quant_type, known to quant_find */
    uint32_t n_dims;            /* 1..GGUF_MAX_DIMS */
    uint64_t ne[GGUF_MAX_DIMS]; /* elements; ne[0] is the row length, contiguous; 1 beyond n_dims;
                                   never 0 */
    uint64_t bytes;             /* of the data, without padding */
    uint64_t offset;            /* of the data, from the start of the data section */
    const uint8_t *data;        /* [bytes], or NULL when the file holds no data section at all */
};

/* An open file. Read-only outside of gguf*.c; prefer the functions below. */
struct gguf {
    const uint8_t *data; /* [bytes] the whole file */
    uint64_t bytes;
    void *mapping;          /* the mapping, or NULL: data belongs to the caller */
    int fd;                 /* of the mapped file; -1: closed */
    uint64_t changed_ns[2]; /* when it was opened: last change of its data, and of any kind */
    uint64_t header_bytes;  /* keys and list of tensors, from its first byte on */
    bool has_data;
    bool drops; /* what gguf_read has read does not stay in the page cache */
    uint32_t version;
    uint32_t alignment;
    uint64_t n_keys, n_tensors;
    struct gguf_key *keys;       /* [n_keys] in the file's order */
    struct gguf_tensor *tensors; /* [n_tensors] in the file's order */
    uint32_t *keys_by_name;      /* [n_keys] indices, sorted by name */
    uint32_t *tensors_by_name;   /* [n_tensors] */
    struct gguf *next;           /* the next part of a model in parts, or NULL; in the first one the
                                    tensors are those of all */
};

/* Maps and checks `path`. On success returns 0 and *ret_gguf. A file that ends where its tensor
 * data would begin is valid (headers only: gguf_has_data is false). On failure returns -errno
 * (-EBADMSG: malformed; -ENOTSUP: a GGUF that hearth does not read, such as version 1 or
 * big-endian; -ENOMEM; errors of open and mmap) and the line. */
int gguf_open(const char *path, struct gguf **ret_gguf, char *err, size_t err_bytes);

/* The same for a model that may lie in parts, NAME-00001-of-00003.gguf and so on, given by the first
 * one: its keys, the tensors of all. A part that is missing, damaged or of another model is an error
 * as above. A file whose name is not that of a part is opened alone. */
int gguf_open_parts(const char *path, struct gguf **ret_gguf, char *err, size_t err_bytes);

/* The same as gguf_open for memory of the caller, which must stay valid until gguf_close and start at a multiple
 * of 32. */
int gguf_open_memory(const void *data, size_t bytes, struct gguf **ret_gguf, char *err,
                     size_t err_bytes);

/* Copies [data, data + bytes), a range of one file, to `to`. A mapped file is read with read(2), so
 * that its pages do not become resident in this process. Returns 0, or -errno if it cannot be read
 * (-EIO, too, if the file has become shorter). Any thread. */
int gguf_read(const struct gguf *gguf, const void *data, size_t bytes, void *to);

/* From now on gguf_read drops what it has read from the page cache: where file and copy together
 * exceed free memory, the file's pages would push out what others use. PRECOND: no gguf_read is
 * running. */
void gguf_drop_reads(struct gguf *gguf);

/* Closes the descriptor of a mapped file, once everything was read: from now on gguf_read returns
 * -EBADF. Views stay valid. PRECOND: no gguf_read is running. */
void gguf_close_file(struct gguf *gguf);

/* Drops the pages of a mapped file: after a backend has repacked the weights the same bytes would
 * be resident twice. Views stay valid; touching them reads the file again. Does nothing after
 * gguf_open_memory. */
void gguf_drop_pages(const struct gguf *gguf);

/* The same for the whole pages within [data, data + bytes), if they belong to the mapped file. Any
 * thread. */
void gguf_drop_range(const struct gguf *gguf, const void *data, size_t bytes);

void gguf_close(struct gguf *gguf); /* NULL is fine */

static inline uint32_t gguf_version(const struct gguf *gguf) /* 2 or 3 */
{
    return gguf->version;
}

static inline uint32_t gguf_alignment(const struct gguf *gguf) /* bytes, a power of two */
{
    return gguf->alignment;
}

static inline uint64_t gguf_file_bytes(const struct gguf *gguf)
{
    return gguf->bytes;
}

static inline bool gguf_has_data(const struct gguf *gguf) /* false: headers only */
{
    return gguf->has_data;
}

/* Keys and tensors in the file's order; index below the count. */
static inline uint64_t gguf_n_keys(const struct gguf *gguf)
{
    return gguf->n_keys;
}

static inline const struct gguf_key *gguf_key_at(const struct gguf *gguf, uint64_t index)
{
    return &gguf->keys[index];
}

static inline uint64_t gguf_n_tensors(const struct gguf *gguf)
{
    return gguf->n_tensors;
}

static inline const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, uint64_t index)
{
    return &gguf->tensors[index];
}

/* The entry of that name, or NULL. */
const struct gguf_key *gguf_find_key(const struct gguf *gguf, const char *name);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);

/* Typed values. Return 0 and the value; -ENOENT when the key is absent; -EINVAL when its value has
 * another type. Integers of any width are converted; -ERANGE when the value does not fit. gguf_f32
 * takes F32 and F64 (rounded). *ret is unchanged on failure, so a default set before the call
 * stays. */
int gguf_u32(const struct gguf *gguf, const char *name, uint32_t *ret);
int gguf_u64(const struct gguf *gguf, const char *name, uint64_t *ret);
int gguf_f32(const struct gguf *gguf, const char *name, float *ret);
int gguf_bool(const struct gguf *gguf, const char *name, bool *ret);
int gguf_string(const struct gguf *gguf, const char *name, struct gguf_string *ret);
int gguf_array(const struct gguf *gguf, const char *name, struct gguf_array *ret);

/* Elements of arrays of numbers, index below count. gguf_array_i64 reads every integer type and
 * BOOL (U64 above INT64_MAX gives INT64_MAX), gguf_array_f32 F32 and F64. PRECOND: the array has
 * one of these types. */
int64_t gguf_array_i64(const struct gguf_array *array, uint64_t index);
float gguf_array_f32(const struct gguf_array *array, uint64_t index);

/* Iterates over an array of strings: *at starts at 0; returns false after the last one. */
bool gguf_array_next_string(const struct gguf_array *array, uint64_t *at, struct gguf_string *ret);

bool gguf_string_equal(struct gguf_string string, const char *text);

const char *gguf_value_type_name(uint32_t type); /* "u32", "string", ...; "unknown" */

#endif
