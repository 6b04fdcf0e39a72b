#include "daemon/policy/curve.h"

/* The nearest size at or below, or from `i` on at or above, that is known; -1: none. */
static int known_below(const struct curve *curve, int i)
{
    while (i >= 0 && curve->ns[i] == 0)
        i--;
    return i;
}

static int known_above(const struct curve *curve, int i)
{
    while (i < CURVE_POINTS && curve->ns[i] == 0)
        i++;
    return i < CURVE_POINTS ? i : -1;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* 2^i rows within [rows / sqrt 2, rows * sqrt 2). */
static int nearest(uint32_t rows)
{
    int i = 31 - __builtin_clz(rows);
    if ((uint64_t)rows * rows >= (uint64_t)2 << (2 * i))
        i++;
    return i < CURVE_POINTS ? i : CURVE_POINTS - 1;
}

bool curve_known(const struct curve *curve, uint32_t rows)
{
    return known_above(curve, nearest(rows)) >= 0;
}

void curve_measured(struct curve *curve, uint32_t rows, uint64_t ns)
{
    int at = nearest(rows);
    uint64_t thought = curve_ns(curve, rows), size = (uint64_t)1 << at;
    /* As its neighbour in rows costs: by the shape of the curve, or a row as the next. */
    uint64_t value = thought && curve->ns[at]
                         ? (uint64_t)((double)ns * (double)curve->ns[at] / (double)thought)
                         : ns * size / rows;
    curve->ns[at] = curve_smooth(curve->ns[at], value + 1);
    for (int i = at + 1, last = at; i < CURVE_POINTS; i++)
        if (curve->ns[i]) {
            curve->ns[i] = clamp(curve->ns[i], curve->ns[last], curve->ns[last] << (i - last));
            last = i;
        }
    for (int i = at - 1, last = at; i >= 0; i--)
        if (curve->ns[i]) {
            curve->ns[i] = clamp(curve->ns[i], curve->ns[last] >> (last - i), curve->ns[last]);
            last = i;
        }
}

/* The line through sizes a < b, or through 0 and b where a is -1, at `rows`. */
static uint64_t line(const struct curve *curve, int a, int b, uint32_t rows)
{
    double x0 = a < 0 ? 0 : (double)(1u << a), y0 = a < 0 ? 0 : (double)curve->ns[a];
    double x1 = (double)(1u << b), y1 = (double)curve->ns[b];
    return (uint64_t)(y0 + (y1 - y0) * ((double)rows - x0) / (x1 - x0) + 0.5);
}

uint64_t curve_ns(const struct curve *curve, uint32_t rows)
{
    if (rows == 0)
        return 0;
    int i = 31 - __builtin_clz(rows);
    if (i < CURVE_POINTS && rows == 1u << i && curve->ns[i]) /* where two lines meet */
        return curve->ns[i];
    int below = known_below(curve, i < CURVE_POINTS ? i : CURVE_POINTS - 1);
    int above = known_above(curve, below + 1);

    if (above >= 0) /* between two sizes, or below the smallest */
        return line(curve, below, above, rows);
    return below < 0 ? 0 : line(curve, known_below(curve, below - 1), below, rows);
}

static uint32_t known_rows(const struct curve *curve)
{
    int last = known_below(curve, CURVE_POINTS - 1);
    return last < 0 ? 0 : 2u << last;
}

uint32_t curve_rows(const struct curve *curve, uint64_t ns)
{
    uint32_t fits = 0, most = known_rows(curve) + 1;
    while (most - fits > 1) { /* the curve rises: fits <= ns < most, but for the limit */
        uint32_t middle = fits + (most - fits) / 2;
        if (curve_ns(curve, middle) <= ns)
            fits = middle;
        else
            most = middle;
    }
    return fits;
}

uint32_t curve_worthwhile(const struct curve *curve)
{
    uint32_t last = known_rows(curve), rows = 1;
    uint64_t added_ns = curve_ns(curve, 2 * last) - curve_ns(curve, last); /* by `last` rows more */
    while (rows < last && curve_ns(curve, rows) * last > 2 * added_ns * rows)
        rows *= 2;
    return rows;
}
