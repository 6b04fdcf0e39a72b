/*
 * wish: samples of every kind at random: parameters, masks, and logits of all shapes. The same seed gives the same.
 */
#ifndef HEARTH_TESTS_GPU_REQUEST_H
#define HEARTH_TESTS_GPU_REQUEST_H

#include "tests/gpu/subject.h"

/* What becomes of the head's rows, which are the logits' weights: as they are, seven different ones, all the same,
 * steep, flat, from tiny to nearly infinite along one direction, two thirds of them zero. */
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

/* Of an untied model in F32, before it is opened on the device; computes the CPU's logits anew. */
void wish_shape_head(struct subject *s, enum head head);

enum { MOST_BIASES = 6000, WISH_VOCAB = 40009, WISH_MASK = WISH_VOCAB / 64 + 1 };

/* Everything that a sequence's samples depend on besides its tokens. */
struct wish {
    struct sampler_params params;
    uint32_t prompt_length;
    struct sample_bias bias[MOST_BIASES];
};

void wish_random(uint64_t *seed, uint32_t n_vocab, struct wish *w);

/* The same, whose first cut is typical-p or top-p, among all tokens. */
void wish_random_of_all(uint64_t *seed, uint32_t n_vocab, struct wish *w);

/* n biases: some of one token, and at the ends of the vocabulary. */
void wish_biases(uint64_t *seed, uint32_t n_vocab, uint32_t n, struct wish *w);

/* mask [WISH_MASK]: most tokens allowed, few, one, none, or those that stand in the sequences; or no mask: NULL. */
const uint64_t *wish_mask(uint64_t *seed, uint32_t n_vocab, uint64_t *mask);

/* True once in n. */
bool wish_one_in(uint64_t *seed, uint32_t n);

#endif
