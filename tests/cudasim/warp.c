/* Operations of a warp: each lane stores its operand and waits; the last one computes all results.
 * Several may be under way in one warp as long as their masks have no lane in common. */
#include "tests/cudasim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [CUDASIM_SYNC_WARP] = "__syncwarp",
    [CUDASIM_SHUFFLE] = "__shfl_sync",
    [CUDASIM_SHUFFLE_UP] = "__shfl_up_sync",
    [CUDASIM_SHUFFLE_DOWN] = "__shfl_down_sync",
    [CUDASIM_SHUFFLE_XOR] = "__shfl_xor_sync",
    [CUDASIM_BALLOT] = "__ballot_sync",
    [CUDASIM_ANY] = "__any_sync",
    [CUDASIM_ALL] = "__all_sync",
    [CUDASIM_MATCH_ANY] = "__match_any_sync",
    [CUDASIM_REDUCE_ADD] = "__reduce_add_sync",
    [CUDASIM_REDUCE_MIN_S32] = "__reduce_min_sync",
    [CUDASIM_REDUCE_MAX_S32] = "__reduce_max_sync",
    [CUDASIM_REDUCE_MIN_U32] = "__reduce_min_sync",
    [CUDASIM_REDUCE_MAX_U32] = "__reduce_max_sync",
    [CUDASIM_REDUCE_AND] = "__reduce_and_sync",
    [CUDASIM_REDUCE_OR] = "__reduce_or_sync",
    [CUDASIM_REDUCE_XOR] = "__reduce_xor_sync",
    [CUDASIM_MMA_I8] = "mma m16n8k32",
    [CUDASIM_MMA_F16] = "mma m16n8k16",
    [CUDASIM_MMA_BF16] = "mma m16n8k16",
    [CUDASIM_LOAD_MATRIX] = "ldmatrix",
    [CUDASIM_WGMMA] = "wgmma m64n128k16",
};

/* The lowest lane left; takes it out. */
static unsigned take_lane(uint32_t *left)
{
    const unsigned lane = (unsigned)__builtin_ctz(*left);

    *left &= *left - 1;
    return lane;
}

/* ---- results ---- */

/* PTX ISA, shfl.sync: source lane, or the lane's own where that lies outside the segment. */
static unsigned source_lane(const struct sim_pending *pending, unsigned lane)
{
    const unsigned width = pending->width, argument = pending->arguments[lane];
    const unsigned first = lane & ~(width - 1), in = lane & (width - 1);

    switch (pending->kind) {
    case CUDASIM_SHUFFLE:
        return first + (argument & (width - 1));
    case CUDASIM_SHUFFLE_UP:
        return in < argument ? lane : lane - argument;
    case CUDASIM_SHUFFLE_DOWN:
        return argument >= width - in ? lane : lane + argument;
    default: /* reaches lower segments, not higher ones */
        return (lane ^ argument) > (lane | (width - 1)) ? lane : lane ^ argument;
    }
}

static void shuffle(struct sim_pending *pending)
{
    for (uint32_t left = pending->mask; left != 0;) {
        const unsigned lane = take_lane(&left);
        const unsigned from = source_lane(pending, lane);

        if (from > 31 || (pending->mask >> from & 1) == 0) {
            sim_current = pending->threads[lane];
            sim_report(sim_current->file, sim_current->line, NULL,
                       "%s reads lane %u, which is not in the mask 0x%08x", names[pending->kind],
                       from, pending->mask);
        }
        pending->threads[lane]->result = pending->threads[from]->value;
    }
}

static uint32_t fold(enum cudasim_collective kind, uint32_t a, uint32_t b)
{
    switch (kind) {
    case CUDASIM_REDUCE_MIN_S32:
        return (int32_t)a < (int32_t)b ? a : b;
    case CUDASIM_REDUCE_MAX_S32:
        return (int32_t)a > (int32_t)b ? a : b;
    case CUDASIM_REDUCE_MIN_U32:
        return a < b ? a : b;
    case CUDASIM_REDUCE_MAX_U32:
        return a > b ? a : b;
    case CUDASIM_REDUCE_AND:
        return a & b;
    case CUDASIM_REDUCE_OR:
        return a | b;
    case CUDASIM_REDUCE_XOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static void reduce(struct sim_pending *pending)
{
    bool first = true;
    uint32_t result = 0;

    for (uint32_t left = pending->mask; left != 0;) {
        const unsigned lane = take_lane(&left);
        const uint32_t value = (uint32_t)pending->threads[lane]->value;

        result = first ? value : fold(pending->kind, result, value);
        first = false;
    }
    for (uint32_t left = pending->mask; left != 0;)
        pending->threads[take_lane(&left)]->result = result;
}

static void vote(struct sim_pending *pending)
{
    uint32_t ballot = 0;

    for (uint32_t left = pending->mask; left != 0;) {
        const unsigned lane = take_lane(&left);
        if ((uint32_t)pending->threads[lane]->value != 0)
            ballot |= 1u << lane;
    }
    const uint32_t result = pending->kind == CUDASIM_ANY   ? ballot != 0
                            : pending->kind == CUDASIM_ALL ? ballot == pending->mask
                                                           : ballot;
    for (uint32_t left = pending->mask; left != 0;)
        pending->threads[take_lane(&left)]->result = result;
}

static void match(struct sim_pending *pending)
{
    for (uint32_t left = pending->mask; left != 0;) {
        const unsigned lane = take_lane(&left);
        uint32_t same = 0;

        for (uint32_t others = pending->mask; others != 0;) {
            const unsigned other = take_lane(&others);
            if (pending->threads[other]->value == pending->threads[lane]->value)
                same |= 1u << other;
        }
        pending->threads[lane]->result = same;
    }
}

/* ---- matrices ---- */

static struct cudasim_mma *mma_of(const struct sim_pending *pending, unsigned lane)
{
    return (struct cudasim_mma *)(uintptr_t)pending->threads[lane]->value;
}

static int16_t byte_of(uint32_t word, unsigned at, int is_unsigned)
{
    const uint32_t byte = word >> (8 * at) & 255;

    return is_unsigned ? (int16_t)byte : (int8_t)byte;
}

/* PTX ISA, fragments of mma.m16n8k32. A lane is (group = lane / 4, member = lane % 4). Element
 * (row, k) of A: lane (row % 8, k % 16 / 4), register row / 8 + 2 * (k / 16), byte k % 4. Element
 * (k, column) of B: lane (column, k % 16 / 4), register k / 16, byte k % 4. Element (row, column)
 * of C and D: lane (row % 8, column / 2), register column % 2 + 2 * (row / 8). */
static void mma_i8(struct sim_pending *pending)
{
    int16_t a[16][32], b[8][32]; /* b by columns */

    for (unsigned k = 0; k < 32; k++) {
        const unsigned member = k % 16 / 4, high = k / 16;

        for (unsigned row = 0; row < 16; row++) {
            const struct cudasim_mma *from = mma_of(pending, row % 8 * 4 + member);
            a[row][k] = byte_of(from->a[row / 8 + 2 * high], k % 4, from->a_unsigned);
        }
        for (unsigned column = 0; column < 8; column++) {
            const struct cudasim_mma *from = mma_of(pending, column * 4 + member);
            b[column][k] = byte_of(from->b[high], k % 4, from->b_unsigned);
        }
    }
    for (unsigned row = 0; row < 16; row++) {
        for (unsigned column = 0; column < 8; column++) {
            struct cudasim_mma *to = mma_of(pending, row % 8 * 4 + column / 2);
            const unsigned at = column % 2 + 2 * (row / 8);
            int32_t sum = 0;

            for (unsigned k = 0; k < 32; k++)
                sum += a[row][k] * b[column][k];
            to->d[at] = to->c[at] + (uint32_t)sum;
        }
    }
}

static float bits_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float half_float(enum cudasim_collective kind, uint32_t half)
{
    const uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;

    if (kind == CUDASIM_MMA_BF16)
        return bits_float(half << 16);
    if (exponent == 31)
        return bits_float(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0)
        return copysignf((float)fraction * 0x1p-24f, bits_float(sign | 0x3f800000));
    return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* The exponent of an operand as its bits have it: zeros and denormals have the least. */
static int half_exponent(enum cudasim_collective kind, uint32_t half)
{
    const int bits = kind == CUDASIM_MMA_BF16 ? (int)(half >> 7 & 255) : (int)(half >> 10 & 31);

    return (bits > 0 ? bits : 1) - (kind == CUDASIM_MMA_BF16 ? 127 : 15);
}

enum { MMA_TERMS = 17, MMA_BITS = 25 };

/* 2^exponent, of a normal double. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* One of the ways of tensor cores: every term is truncated towards zero `below` bits below the largest
 * exponent, and the rest is added exactly. A zero product has the exponents of its operands, so it
 * truncates the others. */
static float mma_sum(const double term[MMA_TERMS], const int exponent[MMA_TERMS], int below)
{
    int largest = -1000;
    int64_t sum = 0;
    double plain = 0;

    for (int i = 0; i < MMA_TERMS; i++) {
        largest = exponent[i] > largest ? exponent[i] : largest;
        plain += term[i];
    }
    if (!isfinite(plain))
        return (float)plain;
    const double scale = power_of_two(below - largest);
    for (int i = 0; i < MMA_TERMS; i++)
        sum += (int64_t)(term[i] * scale);
    return (float)((double)sum * power_of_two(largest - below));
}

/* A row of A or a column of B. */
struct half_line {
    float value[16];
    int exponent[16];
};

static void put_half(struct half_line *line, unsigned k, enum cudasim_collective kind,
                     uint32_t word)
{
    const uint32_t half = word >> 16 * (k % 2) & 0xffff;

    line->value[k] = half_float(kind, half);
    line->exponent[k] = half_exponent(kind, half);
}

/* d = c + a b, a row by a column. */
static float sum_of_lines(const struct half_line *a, const struct half_line *b, float c, int below)
{
    double term[MMA_TERMS];
    int exponent[MMA_TERMS];
    uint32_t bits;

    for (unsigned k = 0; k < 16; k++) {
        term[k] = (double)a->value[k] * b->value[k];
        exponent[k] = a->exponent[k] + b->exponent[k];
    }
    memcpy(&bits, &c, sizeof(bits));
    term[16] = c;
    exponent[16] = (int)(bits >> 23 & 255) - 127;
    return mma_sum(term, exponent, below);
}

/* Fragments of mma.m16n8k16, 16-bit: as above with two values a register and 8 columns of k instead
 * of 16: A: lane (row % 8, k % 8 / 2), register row / 8 + 2 * (k / 8), half k % 2. B: lane (column,
 * k % 8 / 2), register k / 8, half k % 2. */
static void mma_float(struct sim_pending *pending)
{
    const enum cudasim_collective kind = pending->kind;
    struct half_line a[16], b[8];

    for (unsigned k = 0; k < 16; k++) {
        const unsigned member = k % 8 / 2, high = k / 8;

        for (unsigned row = 0; row < 16; row++)
            put_half(&a[row], k, kind,
                     mma_of(pending, row % 8 * 4 + member)->a[row / 8 + 2 * high]);
        for (unsigned column = 0; column < 8; column++)
            put_half(&b[column], k, kind, mma_of(pending, column * 4 + member)->b[high]);
    }
    for (unsigned row = 0; row < 16; row++) {
        for (unsigned column = 0; column < 8; column++) {
            struct cudasim_mma *to = mma_of(pending, row % 8 * 4 + column / 2);
            const unsigned at = column % 2 + 2 * (row / 8);
            const float sum = sum_of_lines(&a[row], &b[column], bits_float(to->c[at]), MMA_BITS);

            memcpy(&to->d[at], &sum, sizeof(sum));
        }
    }
}

static void wgmma_float(struct sim_pending *pending)
{
    const char *other = getenv("HEARTH_CUDASIM_WGMMA");
    const int below = other != NULL ? atoi(other) : MMA_BITS;
    struct cudasim_wgmma *of[32];
    struct half_line a[16], b;

    for (unsigned lane = 0; lane < 32; lane++)
        of[lane] = (struct cudasim_wgmma *)(uintptr_t)pending->threads[lane]->value;
    const enum cudasim_collective kind = of[0]->bf16 ? CUDASIM_MMA_BF16 : CUDASIM_MMA_F16;
    for (unsigned k = 0; k < 16; k++)
        for (unsigned row = 0; row < 16; row++)
            put_half(&a[row], k, kind, of[row % 8 * 4 + k % 8 / 2]->a[row / 8 + 2 * (k / 8)]);
    for (unsigned column = 0; column < 128; column++) {
        for (unsigned k = 0; k < 16; k++) {
            uint16_t half;
            memcpy(&half, (const char *)of[0]->b + k / 8 * of[0]->pitch + column * 16 + k % 8 * 2,
                   sizeof(half));
            put_half(&b, k, kind, (uint32_t)half << 16 * (k % 2));
        }
        for (unsigned row = 0; row < 16; row++) {
            float *d =
                of[row % 8 * 4 + column % 8 / 2]->d + column / 8 * 4 + column % 2 + row / 8 * 2;
            *d = sum_of_lines(&a[row], &b, *d, below);
        }
    }
}

/* ldmatrix: register m of lane i holds row i / 4, columns 2 * (i % 4) and + 1 of matrix m; of its
 * transpose where asked. */
static void load_matrix(struct sim_pending *pending)
{
    const struct cudasim_load_matrix *first = (const void *)(uintptr_t)pending->threads[0]->value;
    const unsigned count = first->count;
    const int transposed = first->transposed;
    uint16_t matrix[4][8][8] = {0};

    for (unsigned lane = 0; lane < 8 * count; lane++) {
        const struct cudasim_load_matrix *load =
            (const void *)(uintptr_t)pending->threads[lane]->value;

        memcpy(matrix[lane / 8][lane % 8], load->row, 16);
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        struct cudasim_load_matrix *load = (void *)(uintptr_t)pending->threads[lane]->value;

        for (unsigned m = 0; m < count; m++) {
            const unsigned row = lane / 4, column = lane % 4 * 2;
            const uint16_t low = transposed ? matrix[m][column][row] : matrix[m][row][column];
            const uint16_t high =
                transposed ? matrix[m][column + 1][row] : matrix[m][row][column + 1];

            load->registers[m] = (uint32_t)high << 16 | low;
        }
    }
}

static void compute(struct sim_pending *pending)
{
    switch (pending->kind) {
    case CUDASIM_SYNC_WARP:
        return;
    case CUDASIM_SHUFFLE:
    case CUDASIM_SHUFFLE_UP:
    case CUDASIM_SHUFFLE_DOWN:
    case CUDASIM_SHUFFLE_XOR:
        shuffle(pending);
        return;
    case CUDASIM_BALLOT:
    case CUDASIM_ANY:
    case CUDASIM_ALL:
        vote(pending);
        return;
    case CUDASIM_MATCH_ANY:
        match(pending);
        return;
    case CUDASIM_MMA_I8:
        mma_i8(pending);
        return;
    case CUDASIM_MMA_F16:
    case CUDASIM_MMA_BF16:
        mma_float(pending);
        return;
    case CUDASIM_LOAD_MATRIX:
        load_matrix(pending);
        return;
    case CUDASIM_WGMMA:
        wgmma_float(pending);
        return;
    default:
        reduce(pending);
    }
}

/* ---- arriving ---- */

static void check_mask(const struct sim_thread *thread, const struct sim_warp *warp,
                       enum cudasim_collective kind, uint32_t mask, const char *file, int line)
{
    const unsigned first = thread->index & ~31u;
    const unsigned lanes = thread->block->n_threads - first;
    const uint32_t there = lanes >= 32 ? UINT32_MAX : (1u << lanes) - 1;

    if ((mask >> thread->self.lane & 1) == 0)
        sim_report(file, line, NULL, "%s: the mask 0x%08x leaves out the calling lane %u",
                   names[kind], mask, thread->self.lane);
    if ((mask & ~there) != 0)
        sim_report(file, line, NULL, "%s: the mask 0x%08x names lane %d of a warp of %u",
                   names[kind], mask, __builtin_ctz(mask & ~there), lanes);
    if ((mask & warp->ended) != 0)
        sim_report(file, line, NULL, "%s waits for lane %d, which has ended (mask 0x%08x)",
                   names[kind], __builtin_ctz(mask & warp->ended), mask);
}

/* lane: the bit of the arriving lane; an operation that waits for it must be this one. */
static struct sim_pending *find_pending(struct sim_warp *warp, enum cudasim_collective kind,
                                        uint32_t mask, uint32_t lane, const char *file, int line)
{
    struct sim_pending *unused = NULL;

    for (unsigned i = 0; i < SIM_PENDING; i++) {
        struct sim_pending *pending = &warp->pending[i];

        if (pending->mask == mask && pending->kind == kind)
            return pending;
        if (pending->mask == 0 && unused == NULL)
            unused = pending;
        if ((pending->mask & lane) == 0)
            continue; /* an operation of other lanes only */
        const struct sim_thread *other = pending->threads[__builtin_ctz(pending->arrived)];
        sim_report(file, line, NULL, "%s (mask 0x%08x) meets %s (mask 0x%08x, lane %u at %s:%d)",
                   names[kind], mask, names[pending->kind], pending->mask, other->self.lane,
                   other->file, other->line);
    }
    if (unused == NULL)
        sim_report(file, line, NULL, "%s: more than %d operations of one warp at the same time",
                   names[kind], SIM_PENDING);
    *unused = (struct sim_pending){.mask = mask, .kind = kind};
    return unused;
}

static void check_width(const struct sim_pending *pending, const char *file, int line)
{
    const unsigned width = pending->width;

    if (width == 0 || width > 32 || (width & (width - 1)) != 0)
        sim_report(file, line, NULL, "%s: width %u is not a power of two up to 32",
                   names[pending->kind], width);
}

uint64_t cudasim_collective(enum cudasim_collective kind, uint32_t mask, uint64_t value,
                            unsigned argument, unsigned width, const char *file, int line)
{
    struct sim_thread *thread = sim_current;
    struct sim_warp *warp = &thread->block->warps[thread->index / 32];

    check_mask(thread, warp, kind, mask, file, line);
    struct sim_pending *pending =
        find_pending(warp, kind, mask, 1u << thread->self.lane, file, line);
    pending->width = width;
    pending->threads[thread->self.lane] = thread;
    pending->arguments[thread->self.lane] = argument;
    pending->arrived |= 1u << thread->self.lane;
    check_width(pending, file, line);
    thread->value = value;
    if (pending->arrived != mask) {
        sim_wait(SIM_AT_WARP, file, line);
        return thread->result;
    }
    thread->file = file;
    thread->line = line;
    compute(pending);
    sim_current = thread;
    if (kind == CUDASIM_SYNC_WARP)
        warp->epoch++;
    pending->mask = 0;
    for (uint32_t left = mask; left != 0;) {
        const unsigned lane = take_lane(&left);
        if (pending->threads[lane] != thread)
            sim_make_ready(pending->threads[lane]);
    }
    return thread->result;
}

void cudasim_mma(enum cudasim_collective kind, struct cudasim_mma *mma, const char *file, int line)
{
    (void)cudasim_collective(kind, UINT32_MAX, (uintptr_t)mma, 0, 32, file, line);
}

void cudasim_load_matrix(struct cudasim_load_matrix *load, const char *file, int line)
{
    if (sim_current->self.lane < 8 * load->count) {
        if ((uintptr_t)load->row % 16 != 0)
            cudasim_misaligned(load->row, 16, file, line);
        sim_access_read((uintptr_t)load->row, 16, __builtin_return_address(0));
    }
    (void)cudasim_collective(CUDASIM_LOAD_MATRIX, UINT32_MAX, (uintptr_t)load, 0, 32, file, line);
}

/* What a lane reads of b, four columns: [2][4] units of 16 bytes. */
static uint64_t hash_of_columns(const char *b, unsigned pitch, unsigned lane)
{
    uint64_t hash = 14695981039346656037u;

    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < 4 * 16; i++)
            hash = (hash ^ (uint8_t)b[k * pitch + (lane + i / 16 * 32) * 16 + i % 16]) *
                   1099511628211u;
    return hash;
}

void cudasim_wgmma(struct cudasim_wgmma *wgmma, const char *file, int line)
{
    struct sim_thread *thread = sim_current;
    const unsigned lane = thread->self.lane;
    struct sim_wgmma *all = thread->wgmma;

    if ((uintptr_t)wgmma->b % 128 != 0)
        cudasim_misaligned(wgmma->b, 128, file, line);
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < 4; i++)
            sim_access_read((uintptr_t)wgmma->b + k * wgmma->pitch + (lane + 32 * i) * 16, 16,
                            __builtin_return_address(0));
    if (all == NULL) {
        all = thread->wgmma = calloc(1, sizeof(*all));
        if (all == NULL)
            abort();
        all->d = wgmma->d;
        memcpy(all->before, wgmma->d, sizeof(all->before));
        memcpy(all->sums, wgmma->d, sizeof(all->sums));
    }
    if (all->d != wgmma->d || all->n == SIM_WGMMA)
        sim_report(file, line, NULL, "wgmma: %s before the end of those before",
                   all->n == SIM_WGMMA ? "too many" : "another d");
    all->of[all->n].b = wgmma->b;
    all->of[all->n].pitch = wgmma->pitch;
    all->of[all->n++].read = hash_of_columns(wgmma->b, wgmma->pitch, lane);
    wgmma->d = all->sums;
    (void)cudasim_collective(CUDASIM_WGMMA, UINT32_MAX, (uintptr_t)wgmma, 0, 32, file, line);
}

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

void cudasim_wgmma_end(float *d, const char *file, int line)
{
    struct sim_thread *thread = sim_current;
    const struct sim_wgmma *all = thread->wgmma;

    if (all == NULL)
        return;
    if (all->d != d || !same_bytes(d, all->before, sizeof(all->before)))
        sim_report(file, line, NULL, "wgmma: d is not what it was when it began");
    for (unsigned i = 0; i < all->n; i++)
        if (hash_of_columns(all->of[i].b, all->of[i].pitch, thread->self.lane) != all->of[i].read)
            sim_report(file, line, NULL, "wgmma: what it reads was written before its end");
    memcpy(d, all->sums, sizeof(all->sums));
    sim_wgmma_ended(thread);
}

void sim_wgmma_ended(struct sim_thread *thread)
{
    free(thread->wgmma);
    thread->wgmma = NULL;
}

void sim_warp_ended(struct sim_thread *thread)
{
    struct sim_warp *warp = &thread->block->warps[thread->index / 32];
    const uint32_t bit = 1u << thread->self.lane;

    if (thread->wgmma != NULL)
        sim_report(NULL, 0, NULL, "ends before its wgmma");
    for (unsigned i = 0; i < SIM_PENDING; i++) {
        const struct sim_pending *pending = &warp->pending[i];

        if ((pending->mask & bit) == 0)
            continue;
        const struct sim_thread *other = pending->threads[__builtin_ctz(pending->arrived)];
        sim_report(NULL, 0, NULL, "ends while lane %u waits for it in %s (mask 0x%08x, %s:%d)",
                   other->self.lane, names[pending->kind], pending->mask, other->file, other->line);
    }
    warp->ended |= bit;
}

void sim_warp_stuck(const struct sim_block *block)
{
    for (unsigned w = 0; w < (block->n_threads + 31) / 32; w++) {
        for (unsigned i = 0; i < SIM_PENDING; i++) {
            const struct sim_pending *pending = &block->warps[w].pending[i];

            if (pending->mask == 0)
                continue;
            const unsigned missing = (unsigned)__builtin_ctz(pending->mask & ~pending->arrived);
            const struct sim_thread *other = block->threads[w * 32 + missing];
            sim_current = pending->threads[__builtin_ctz(pending->arrived)];
            sim_report(sim_current->file, sim_current->line, NULL,
                       "%s waits for lane %u (mask 0x%08x), which waits at %s:%d",
                       names[pending->kind], missing, pending->mask,
                       other != NULL ? other->file : "?", other != NULL ? other->line : 0);
        }
    }
}
