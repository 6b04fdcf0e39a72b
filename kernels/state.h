/* state.h: where the parts of a recurrent layer's state are in a state memory, and in an update
 * record (backend.h).
 *
 *     memory  recurrent layers, one after the other, all f32
 *     layer   S: [n_head_v][blocks][k_dim][32], columns of V in blocks of 32, the last one padded
 *             with zeros; then the last inputs of the convolution, [n_inputs][channels], the oldest
 *             first; without a delta rule these alone, as of a record the first of its parts
 *     record  of each layer: the row's input of the convolution [channels]; its k, scaled, and d,
 *             heads of K and of V; its decay [n_head_v]
 *     hidden  with a next-token layer, after all layers: in a memory the hidden row [n_embd] of its
 *             last token, in a record that of its row
 *
 * A block of S lies in one run of bytes that fits a core's nearest cache. Pure arithmetic, any
 * thread. */
#ifndef HEARTH_KERNELS_STATE_H
#define HEARTH_KERNELS_STATE_H

#include "kernels/model/model.h"

enum {
    STATE_COLUMNS = 32,            /* of a block */
    STATE_INPUTS = MODEL_TAPS - 1, /* of the convolution that a state holds, at most */
};

/* A recurrent layer's part; offsets in floats. */
struct state_layer {
    struct delta_geometry delta;
    uint32_t n_inputs;  /* of the convolution: all taps but the row's own */
    uint32_t blocks;    /* of a V head */
    size_t block;       /* floats of a block */
    size_t scan;        /* from the start of a memory to S */
    size_t inputs;      /* to the last inputs */
    size_t record;      /* from the start of a record to the row's input */
    size_t k, d, decay; /* to its others */
};

struct state_geometry {
    size_t state_bytes;           /* of a memory; 0: the model has no recurrent layers */
    size_t record_bytes;          /* of BACKEND_STATE_RECORDS records */
    size_t record;                /* floats of one */
    uint32_t n_hidden;            /* values of a hidden row; 0: none is kept */
    size_t hidden, record_hidden; /* floats from the start of a memory, of a record to it */
    uint32_t n_layer;
    struct state_layer layer[MODEL_MAX_LAYERS];
};

void state_geometry_init(struct state_geometry *state, const struct model *model);

#endif
