/* state.c: the geometry of state memories. */
#include "kernels/state.h"

#include <string.h>

#include "kernels/backend.h"

/* Takes n floats, and as many more as the next part needs to begin at a multiple of 64 bytes. */
static size_t take(size_t *floats, size_t n)
{
    const size_t at = *floats;
    *floats += (n + 15) / 16 * 16;
    return at;
}

static void add_layer(struct state_geometry *state, const struct delta_geometry *d, size_t *floats)
{
    struct state_layer *layer = &state->layer[state->n_layer++];
    *layer = (struct state_layer){.delta = *d,
                                  .n_inputs = d->taps - 1,
                                  .blocks = (d->v_dim + STATE_COLUMNS - 1) / STATE_COLUMNS,
                                  .block = (size_t)d->k_dim * STATE_COLUMNS};
    layer->scan = take(floats, d->n_head_v * layer->blocks * layer->block);
    layer->inputs = take(floats, (size_t)layer->n_inputs * d->channels);
    layer->record = take(&state->record, d->channels);
    layer->k = take(&state->record, (size_t)d->n_head_k * d->k_dim);
    layer->d = take(&state->record, (size_t)d->n_head_v * d->v_dim);
    layer->decay = take(&state->record, d->n_head_v);
}

void state_geometry_init(struct state_geometry *state, const struct model *model)
{
    size_t floats = 0;
    memset(state, 0, sizeof(*state));
    for (uint32_t i = 0; i < model->n_layer; i++)
        if (model->layers[i].geometry.recurrent)
            add_layer(state, &model->layers[i].geometry.delta, &floats);
    if (model->mtp) {
        state->n_hidden = model->n_embd;
        state->hidden = take(&floats, model->n_embd);
        state->record_hidden = take(&state->record, model->n_embd);
    }
    state->state_bytes = floats * sizeof(float);
    state->record_bytes = BACKEND_STATE_RECORDS * state->record * sizeof(float);
}
