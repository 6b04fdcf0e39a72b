/* What a pass does with the states of recurrent layers, as device memory has it (struct cuda_state): of each sequence that has
 * rows in the pass. */
#include <string.h>

#include "kernels/cuda/backend_cuda.h"

_Static_assert((int)CUDA_STATE_KEEPS == (int)BACKEND_STATE_KEEPS &&
                   (int)CUDA_STATE_ZERO == (int)BACKEND_STATE_ZERO &&
                   (int)CUDA_STATE_INPUTS == (int)STATE_INPUTS &&
                   (int)CUDA_STATE_COLUMNS == (int)STATE_COLUMNS,
               "the states of kernels/backend.h and kernels/state.h");

enum { STATE_WORDS = sizeof(struct cuda_state) / sizeof(uint32_t) };

/* A struct cuda_state for each sequence, and two words a row: its sequence, and the rows in the
 * order of sequences. */
size_t cuda_most_state_words(const struct backend *b)
{
    return b->model->n_recurrent > 0 ? (size_t)b->limits.rows * (STATE_WORDS + 2) : 0;
}

static struct cuda_state state_of(const struct pass_state *s, uint32_t first)
{
    const uint32_t records = s->apply + s->replay;
    struct cuda_state state = {
        .from = s->from,
        .own = s->own,
        .base = first - records,
        .apply = s->apply,
        .records = records,
        .commit = s->commit,
        .n_keep = s->n_keep,
    };
    for (uint32_t i = 0; i < s->n_keep; i++) {
        state.keep_at[i] = s->keep[i].position - state.base;
        state.keep[i] = s->keep[i].id;
    }
    return state;
}

/* The states that a sequence's rows write are there; one that is only kept has no records. */
static void commit_states(struct backend *b, const struct pass_state *s)
{
    cuda_commit(b, CUDA_STATES, (uint32_t)s->own);
    cuda_commit(b, CUDA_RECORDS, (uint32_t)s->own);
    for (uint32_t i = 0; i < s->n_keep; i++)
        cuda_commit(b, CUDA_STATES, (uint32_t)s->keep[i].id);
}

/* Rows of each sequence are counted first: theirs lie one after the other. */
void cuda_plan_states(struct backend *b)
{
    const struct pass *pass = b->pass;
    struct cuda_pass *p = &b->upload.from;
    b->n_states = 0;
    if (b->model->n_recurrent == 0)
        return;
    for (uint32_t r = 0; r < pass->n_rows; r++)
        b->n_states += b->places[pass->rows[r].sequence].first_row == r;
    const uint32_t at = cuda_take_words(b, (size_t)b->n_states * STATE_WORDS),
                   of_rows = cuda_take_words(b, pass->n_rows);
    struct cuda_state *states = (struct cuda_state *)(p->words + at);
    uint32_t n = 0, rows = cuda_take_words(b, pass->n_rows);
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        const uint32_t s = pass->rows[r].sequence;
        struct cuda_place *place = &b->places[s];
        if (place->first_row == r) {
            place->state = n;
            commit_states(b, &pass->sequences[s].state);
            states[n++] = state_of(&pass->sequences[s].state, pass->rows[r].position);
        }
        states[place->state].n_rows++;
        p->words[of_rows + r] = place->state;
    }
    for (uint32_t i = 0; i < n; i++) {
        states[i].rows = rows;
        rows += states[i].n_rows;
    }
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        const struct cuda_state *s = &states[p->words[of_rows + r]];
        p->words[s->rows + pass->rows[r].position - s->base - s->records] = r;
    }
    p->counts[CUDA_AT_STATES] = at;
    p->counts[CUDA_AT_ROW_STATES] = of_rows;
    p->counts[CUDA_COUNT_STATES] = n;
}

static void forget_state(const struct backend *b, int32_t id)
{
    for (int i = CUDA_STATES; i <= CUDA_RECORDS; i++)
        cuda_forget(cuda_part(&b->array[i], (uint32_t)id), b->array[i].part_bytes);
}

void cuda_forget_states(const struct backend *b)
{
    for (uint32_t s = 0; s < b->pass->n_sequences && b->n_states > 0; s++) {
        const struct pass_state *state = &b->pass->sequences[s].state;
        if (b->places[s].first_row == UINT32_MAX)
            continue;
        if (state->own != state->from)
            forget_state(b, state->own);
        for (uint32_t i = 0; i < state->n_keep; i++)
            forget_state(b, state->keep[i].id);
    }
}
