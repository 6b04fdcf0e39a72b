/* quantize_grid.h: finds the scale with which a few fixed numbers, a grid, approximate some floats
 * best: the looked up integers of MXFP4 and IQ4, and -4 .. 3 of Q3_K, too few for fit_signed's two
 * trials. As quantize_fit.h: vectors of four floats, each + - * / rounded once. */
#ifndef HEARTH_KERNELS_QUANT_QUANTIZE_GRID_H
#define HEARTH_KERNELS_QUANT_QUANTIZE_GRID_H
#include "kernels/quant/quantize_fit.h"

struct fit_grid {
    int n, n_ends;
    float value[16]; /* [n] ascending */
    /* [n_ends] what the extreme value of a group is first mapped to, one trial each */
    float end[12];
};

static const struct fit_grid fit_iq4 = {
    16,
    6,
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {-127, -119, -112, -135, 113, 106}};

static const struct fit_grid fit_three_bits = {
    8, 6, {-4, -3, -2, -1, 0, 1, 2, 3}, {-4, -3.5f, -4.5f, 3, 3.5f, 2.6f}};

/* E2M1, doubled. */
static const struct fit_grid fit_fp4 = {
    15, 0, {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12}, {0}};

/* q = the number of the grid nearest to x * inverse, the lower one of two; index, unless NULL, its
 * place. */
static inline void fit_nearest(const struct fit_grid *grid, const v4f *x, int n, float inverse,
                               v4f *q, v4i *index)
{
    for (int i = 0; i < n; i++) {
        const v4f v = x[i] * inverse;
        v4f near = (v4f){0} + grid->value[0];
        v4i at = {0};
        for (int k = 1; k < grid->n; k++) {
            const float middle = 0.5f * (grid->value[k - 1] + grid->value[k]);
            const v4i above = v > (v4f){0} + middle;
            near = fit_choose(above, (v4f){0} + grid->value[k], near);
            at = at - above;
        }
        q[i] = near;
        if (index)
            index[i] = at;
    }
}

/* x = d q. Trials: the extreme value mapped to each of the grid's ends, each followed by the
 * least-squares scale of its q. Returns the d with the smallest error after rounding by `hold`, the
 * first of equals, and its q. Infinite if the first cannot be held. */
static inline float fit_scale(const v4f *x, int n, const struct fit_grid *grid, fit_hold hold,
                              v4f *q)
{
    const float extreme = fit_extreme(x, n);
    float best = hold(extreme / grid->end[0]), least;
    fit_nearest(grid, x, n, fit_inverse(best), q, NULL);
    least = fit_error(x, q, n, best, 0.0f);
    for (int i = 0; i < grid->n_ends; i++) {
        float d = extreme / grid->end[i];
        for (int step = 0; step < 2; step++) {
            v4f trial[FIT_MOST];
            d = hold(d);
            fit_nearest(grid, x, n, fit_inverse(d), trial, NULL);
            const float error = fit_error(x, trial, n, d, 0.0f), qq = fit_dot(trial, trial, n);
            if (error < least) {
                least = error;
                best = d;
                for (int k = 0; k < n; k++)
                    q[k] = trial[k];
            }
            if (qq == 0.0f)
                break;
            d = fit_dot(x, trial, n) / qq;
        }
    }
    return best;
}

#endif
