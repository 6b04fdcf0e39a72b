/*
 * subject: a tiny model, a sequence of tokens, and the CPU's logits of it, which a device is
 * compared with. Uses no test library: an impossible state aborts with a line.
 */
#ifndef HEARTH_TESTS_GPU_SUBJECT_H
#define HEARTH_TESTS_GPU_SUBJECT_H

#include "kernels/backend.h"
#include "kernels/gguf/gguf.h"
#include "kernels/model/model.h"
#include "tests/rig/tiny_model.h"

/* States: of an instance of a model with recurrent layers. */
enum { SUBJECT_TOKENS = 600, SUBJECT_PAGES = 40, SUBJECT_STATES = 8 };

/* The backend under test; set once, before the first subject. */
extern const struct backend_ops *subject_device;

/* Instances of the device get so little memory that the experts of so many layers do not fit. */
extern uint32_t subject_cut;

struct subject {
    uint8_t *file;
    struct gguf *gguf;
    struct model *model;
    struct backend_ops device; /* subject_device */
    bool kv_q8_0;              /* of every instance; from the shape */
    bool native, drafts;       /* of every instance of the device */
    uint32_t tokens[SUBJECT_TOKENS], n;
    float *logits;          /* [n][n_vocab] */
    float *sinks;           /* tiny_model_sinks, or NULL */
    struct backend *opened; /* on the device, for n rows; made by subject_backend */
};

/* The subject's own instance on the device. */
struct backend *subject_backend(struct subject *s);

void subject_init(struct subject *s, const struct tiny_model *shape, uint32_t n);
void subject_fini(struct subject *s);

/* Recomputes the logits after a change of tokens. */
void subject_expect(struct subject *s);

/* Switches the device to native numerics; the expected logits become its own in passes of `chunk`
 * rows. Returns their largest distance from the CPU's. */
float subject_go_native(struct subject *s, uint32_t chunk);

/* Change weights in place, before a backend is opened. F32, BF16 and F16. */
void subject_set_embedding(struct subject *s, uint32_t token, float value);
uint8_t *subject_bytes(struct subject *s, uint32_t layer, uint32_t tensor);
float *subject_head(struct subject *s); /* [n_vocab][n_embd], F32 and untied */
void subject_scale(struct subject *s, uint32_t layer, uint32_t tensor, float factor);
void subject_scale_input(struct subject *s, const struct model_tensor *t, uint32_t column,
                         float factor);

uint64_t subject_random(uint64_t *state);
void subject_random_tokens(uint64_t seed, const struct model *m, uint32_t *tokens, uint32_t n);

/* pages [SUBJECT_PAGES]: their ids in an order drawn from the seed; 0: ascending. */
void subject_pages(uint64_t seed, uint32_t *pages);

/* [rows][n_vocab]; free() it. */
float *subject_floats(const struct subject *s, uint32_t rows);

struct backend *subject_open(const struct subject *s, const struct backend_ops *ops, uint32_t rows,
                             uint32_t pages);

/* Logits [n][n_vocab] of tokens, in passes of these sizes in turn, which end with 0; in state 0. */
void subject_logits(const struct subject *s, const struct backend_ops *ops, struct backend *b,
                    const uint32_t *tokens, uint32_t n, const uint32_t *sizes,
                    const uint32_t *pages, float *logits);

/* Index of the first float whose bits differ, or n. */
size_t subject_differs(const float *a, const float *b, size_t n);

#endif
