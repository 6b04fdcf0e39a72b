/*
 * request: random sampling requests of every kind: parameters, masks, and logits of all shapes.
 * The same seed gives the same request.
 */
#ifndef HEARTH_TESTS_GPU_REQUEST_H
#define HEARTH_TESTS_GPU_REQUEST_H

#include "tests/gpu/subject.h"

/* How the rows of the output matrix are shaped, and so the logits: as they are, seven distinct
 * rows, all equal, steep, flat, from tiny to nearly infinite along one direction, two thirds of
 * them zero. */
enum head {
    HEAD_PLAIN,
    HEAD_TIES,
    HEAD_EQUAL,
    HEAD_STEEP,
    HEAD_FLAT,
    HEAD_HUGE,
    HEAD_ZEROS,
    HEADS
};

/* Takes an untied F32 model before it is opened on the device; recomputes the CPU's logits. */
void request_shape_head(struct subject *s, enum head head);

enum { MOST_BIASES = 6000, REQUEST_VOCAB = 40009, REQUEST_MASK = REQUEST_VOCAB / 64 + 1 };

/* Everything that a sequence's samples depend on besides its tokens. */
struct sample_request {
    struct sampler_params params;
    uint32_t prompt_length;
    struct sample_bias bias[MOST_BIASES];
};

void request_random(uint64_t *seed, uint32_t n_vocab, struct sample_request *w);

/* The same, but the first cut is typical-p or top-p over all tokens. */
void request_random_all_tokens(uint64_t *seed, uint32_t n_vocab, struct sample_request *w);

/* n biases, some for the same token, some at the ends of the vocabulary. */
void request_biases(uint64_t *seed, uint32_t n_vocab, uint32_t n, struct sample_request *w);

/* mask [REQUEST_MASK]: most tokens allowed, few, one, none, or those used by the sequences; NULL:
 * no mask. */
const uint64_t *request_mask(uint64_t *seed, uint32_t n_vocab, uint64_t *mask);

/* True once in n. */
bool request_one_in(uint64_t *seed, uint32_t n);

#endif
