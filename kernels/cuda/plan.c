/* A pass as device memory has it: filled in on the host, copied in one piece. */
#include <string.h>

#include "kernels/cuda/backend_cuda.h"

static uint32_t most_splits(const struct backend *b)
{
    return (b->limits.context + CUDA_SPLIT - 1) / CUDA_SPLIT;
}

/* Each item makes at least one. */
uint32_t cuda_most_parts(const struct backend *b)
{
    const uint32_t few = b->limits.rows < CUDA_SPLIT_ROWS ? b->limits.rows : CUDA_SPLIT_ROWS;
    const uint32_t cut = few * most_splits(b);
    return cut > b->limits.rows ? cut : b->limits.rows;
}

static uint32_t most_local_items(const struct backend *b)
{
    return b->model->local_sliding_window > 0 ? cuda_most_parts(b) : 0;
}

/* ---- words ------------------------------------------------------------------------------------ */

#define WORDS_OF(n, type) ((size_t)(n) * sizeof(type) / sizeof(uint32_t))

_Static_assert((int)CUDA_COUNTS <= (int)CUDA_AT_ROWS && sizeof(struct cuda_row) % 4 == 0 &&
                   sizeof(struct cuda_item) % 4 == 0 && sizeof(struct cuda_sampling) % 8 == 0,
               "arrays of whole words");

/* What the largest pass has. */
static size_t most_words(const struct backend *b)
{
    const size_t rows = b->limits.rows, items = cuda_most_parts(b) + most_local_items(b);
    return CUDA_AT_ROWS + WORDS_OF(rows + 1, struct cuda_row) +
           CUDA_PAGE_CLASSES * rows * kv_pages(b->limits.context) +
           WORDS_OF(items, struct cuda_item) + cuda_most_state_words(b) + 1 +
           WORDS_OF(b->limits.samples, struct cuda_sampling) + cuda_most_sample_words(b);
}

size_t cuda_upload_bytes(const struct backend *b)
{
    return most_words(b) * sizeof(uint32_t);
}

static void place(uint32_t *words, struct cuda_pass *p)
{
    p->words = p->counts = words;
    p->rows = (struct cuda_row *)(words + CUDA_AT_ROWS);
}

void cuda_place_upload(struct backend *b)
{
    place(b->upload.device, &b->upload.to);
    place(b->upload.host, &b->upload.from);
}

uint32_t cuda_take_words(struct backend *b, size_t n)
{
    struct cuda_upload *u = &b->upload;
    const uint32_t at = u->n_words;
    if (at + n > u->most_words)
        return CUDA_NOWHERE;
    u->n_words += (uint32_t)n;
    return at;
}

/* ---- items of attention ----------------------------------------------------------------------- */

static uint32_t splits_of(const struct cuda_row *row)
{
    return row->position / CUDA_SPLIT + 1;
}

/* How many rows from r on are of one sequence, one after the other. */
static uint32_t run_length(const struct backend *b, uint32_t r)
{
    const struct cuda_row *rows = b->upload.from.rows;
    uint32_t n = 1;
    while (r + n < b->pass->n_rows && rows[r + n].first == rows[r].first &&
           rows[r + n].position == rows[r].position + n)
        n++;
    return n;
}

static uint32_t large_queries(const struct backend *b)
{
    return b->tensors && b->most.head_dim <= CUDA_LARGE_HEAD / 2 ? CUDA_NATIVE_QUERIES
                                                                 : CUDA_LARGE_QUERIES;
}

bool cuda_has_large_tiles(const struct backend *b)
{
    return b->most.head_dim <= CUDA_LARGE_HEAD;
}

/* The next item's rows, of a run of n rows, and how they are computed. A tile pays where its queries are more than two
 * rounds of a row's; large ones are for passes that fill the device with them. */
static struct cuda_item next_tile(const struct backend *b, uint32_t r, uint32_t n)
{
    const uint32_t share = b->most.share, queries = n * share;
    struct cuda_item item = {.kind = CUDA_ITEM_ROW, .row = r, .n_rows = 1};
    if (n == 1 || queries <= CUDA_TILE_QUERIES / 2)
        return item;
    const bool large =
        b->pass->n_rows > CUDA_GRAPH_ROWS && queries > CUDA_TILE_QUERIES && cuda_has_large_tiles(b);
    const uint32_t most = (large ? large_queries(b) : CUDA_TILE_QUERIES) / share;
    item.kind = large ? CUDA_ITEM_LARGE : CUDA_ITEM_TILE;
    item.n_rows = most == 0 ? 1 : n < most ? n : most;
    return item;
}

/* Parts of the item's rows when it is cut at every split. */
static uint32_t parts_when_cut(const struct cuda_row *rows, const struct cuda_item *item)
{
    uint32_t parts = 0;
    for (uint32_t r = item->row; r < item->row + item->n_rows; r++)
        parts += splits_of(&rows[r]);
    return parts;
}

/* Cut, or whole where `cut` is false: one part a row. */
static void add_items(struct backend *b, struct cuda_item item, bool cut)
{
    struct cuda_pass *p = &b->upload.from;
    const uint32_t splits = splits_of(&p->rows[item.row + item.n_rows - 1]);
    for (uint32_t r = item.row; r < item.row + item.n_rows; r++) {
        p->rows[r].part = b->n_parts;
        b->n_parts += cut ? splits_of(&p->rows[r]) : 1;
    }
    b->item_kinds |= 1u << item.kind;
    for (uint32_t s = 0; s < (cut ? splits : 1); s++) {
        item.split0 = s;
        item.split1 = cut ? s + 1 : splits;
        item.part = s;
        b->upload.items[b->n_items++] = item;
    }
}

/* Whether whole items would leave processors without one. */
static bool few_items(const struct backend *b)
{
    uint32_t n = 0;
    for (uint32_t r = 0, left = 0; r < b->pass->n_rows;) {
        left = left ? left : run_length(b, r);
        const uint32_t rows = next_tile(b, r, left).n_rows;
        left -= rows;
        r += rows;
        n++;
    }
    return n * b->model->n_head_kv < b->queue.processors * CUDA_ATTEND_BLOCKS;
}

/* Every row's items. All rows of a few are cut; of more, as many as there is memory for, where that helps. */
static void plan_items(struct backend *b)
{
    struct cuda_pass *p = &b->upload.from;
    const uint32_t n = b->pass->n_rows, most = cuda_most_parts(b);
    const bool cut = n <= CUDA_SPLIT_ROWS || few_items(b);
    p->counts[CUDA_AT_ITEMS] = b->upload.n_words;
    b->upload.items = (struct cuda_item *)(p->words + b->upload.n_words);
    b->n_items = b->n_parts = b->item_kinds = 0;
    for (uint32_t r = 0, left = 0; r < n;) {
        left = left ? left : run_length(b, r);
        const struct cuda_item item = next_tile(b, r, left);
        const uint32_t behind = n - r - item.n_rows;
        add_items(b, item, cut && b->n_parts + parts_when_cut(p->rows, &item) + behind <= most);
        left -= item.n_rows;
        r += item.n_rows;
    }
    p->rows[n].part = b->n_parts;
    p->counts[CUDA_COUNT_ITEMS] = b->n_items;
    cuda_take_words(b, WORDS_OF(b->n_items, struct cuda_item));
}

/* What windows leave of the items: of each the splits from which one of its rows sees something. Parts stay where they are. */
static void plan_local_items(struct backend *b)
{
    struct cuda_pass *p = &b->upload.from;
    struct cuda_item *to = (struct cuda_item *)(p->words + b->upload.n_words);
    uint32_t n = 0;
    p->counts[CUDA_AT_LOCAL_ITEMS] = b->upload.n_words;
    for (uint32_t i = 0; i < b->n_items && b->model->local_sliding_window > 0; i++) {
        struct cuda_item item = b->upload.items[i];
        const uint32_t first =
            seen_from(p->rows[item.row].position + 1, b->model->local_sliding_window) / CUDA_SPLIT;
        if (first >= item.split1)
            continue;
        item.split0 = item.split0 < first ? first : item.split0;
        to[n++] = item;
    }
    p->counts[CUDA_COUNT_LOCAL_ITEMS] = n;
    cuda_take_words(b, WORDS_OF(n, struct cuda_item));
}

/* ---- a pass ----------------------------------------------------------------------------------- */

/* Forgets `rows` rows and not the rest of their last tile, which matmuls may read: a float one all
 * of it, a quantized one the scale beside that of an odd last row (matmul_device.h). Results of
 * these rows are not used. */
static void forget_input(const struct cuda_input *x, uint32_t rows)
{
    const size_t blocks = x->stride / CUDA_BLOCK, tiles = (rows + CUDA_TILE - 1) / CUDA_TILE;
    cuda_forget(x->f, (size_t)rows * x->stride * sizeof(*x->f));
    cuda_forget(x->q, tiles * blocks * CUDA_BLOCK * CUDA_TILE);
    for (size_t at = 0; at < tiles * blocks; at++) {
        const size_t left = rows - at / blocks * CUDA_TILE, n = left < CUDA_TILE ? left : CUDA_TILE;
        cuda_forget(x->scale + at * CUDA_TILE, n * sizeof(*x->scale));
    }
    for (int i = 0; i < 2 && x->half[i]; i++)
        cuda_forget(x->half[i], (size_t)rows * x->stride * sizeof(*x->half[i]));
}

static void forget_experts(const struct backend *b)
{
    const struct cuda_experts *x = &b->buffers.experts;
    const size_t pairs = (size_t)b->limits.rows * x->n_used;
    if (x->n_expert == 0)
        return;
    cuda_forget(x->chosen, pairs * sizeof(*x->chosen));
    cuda_forget(x->weight, pairs * sizeof(*x->weight));
    cuda_forget(x->pair, pairs * sizeof(*x->pair));
    cuda_forget(x->pair_row, pairs * sizeof(*x->pair_row));
    cuda_forget(x->runs, expert_runs(*x, b->limits.rows, CUDA_TILE) * sizeof(*x->runs));
    cuda_forget(x->n_runs, sizeof(*x->n_runs));
    cuda_forget(b->buffers.expert_y, pairs * b->buffers.of[BUFFER_X].stride * sizeof(float));
}

/* Those that begin with the row. */
static void forget_pages(const struct backend *b, const struct cuda_row *row)
{
    for (int c = 0; c < PAGE_CLASSES && b->array[c].base; c++) {
        const uint32_t at = row->pages[c] + row->position / CUDA_PAGE;
        cuda_forget(cuda_part(&b->array[c], b->upload.from.words[at]), b->array[c].part_bytes);
    }
}

/* A pass reads nothing that the one before it left in scratch, and nothing of a page that begins with it. */
static void forget_scratch(const struct backend *b)
{
    const struct cuda_buffers *u = &b->buffers;
    const struct model *m = b->model;
    const size_t samples = b->limits.samples, parts = cuda_most_parts(b),
                 logits = samples * u->of[BUFFER_LOGITS].stride;
    cuda_settle(b->queue.stream);
    for (int i = 0; i < N_BUFFERS; i++)
        if (m->ops.input[i])
            forget_input(&u->of[i], layer_ops_rows(&m->ops, i, b->pass->n_rows));
        else if (u->of[i].f)
            cuda_forget(u->of[i].f, (i == BUFFER_LOGITS ? samples : b->limits.rows) *
                                        u->of[i].stride * sizeof(float));
    if (u->sums)
        cuda_forget(u->sums, (size_t)b->limits.rows * u->sums_stride * sizeof(*u->sums));
    forget_experts(b);
    cuda_forget(u->part_ml, parts * m->n_head * 2 * sizeof(float));
    cuda_forget(u->part_o, parts * m->ops.width[BUFFER_ATTENTION] * sizeof(float));
    cuda_forget(u->work, logits * sizeof(float));
    cuda_forget(u->ids, logits * sizeof(*u->ids));
    cuda_forget(u->blocks, samples * sample_blocks(m->n_vocab) * sizeof(float));
    cuda_forget(u->raw_blocks, samples * sample_blocks(m->n_vocab) * sizeof(float));
    cuda_forget(u->parts, samples * sample_parts(m->n_vocab) * sizeof(*u->parts));
    cuda_forget(b->upload.device, cuda_upload_bytes(b));
    cuda_forget_states(b);
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        const struct cuda_row *row = &b->upload.from.rows[r];
        if (row->position % CUDA_PAGE == 0)
            forget_pages(b, row);
    }
}

/* The ids of the pages that each sequence has up to its last row in the pass. */
static void plan_pages(struct backend *b)
{
    for (uint32_t s = 0; s < b->pass->n_sequences; s++) {
        /* The check left the position after the sequence's last row. */
        const uint32_t next = b->next_position[s], n = next == UINT32_MAX ? 0 : kv_pages(next);
        b->places[s] = (struct cuda_place){.first_row = UINT32_MAX};
        for (int c = 0; c < PAGE_CLASSES && b->array[c].base && n;
             c++) { /* without rows: no list */
            b->places[s].pages[c] = cuda_take_words(b, n);
            memcpy(b->upload.from.words + b->places[s].pages[c],
                   backend_pages(&b->pass->sequences[s], c), n * sizeof(uint32_t));
        }
    }
}

static void plan_rows(struct backend *b)
{
    const struct pass *pass = b->pass;
    b->n_wanted = 0;
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        const struct row *row = &pass->rows[r];
        struct cuda_place *place = &b->places[row->sequence];
        if (place->first_row == UINT32_MAX)
            place->first_row = r;
        b->upload.from.rows[r] = (struct cuda_row){
            .first = place->first_row,
            .position = row->position,
            .token = row->token,
            .pages = {place->pages[PAGES_FULL], place->pages[PAGES_WINDOW]},
        };
        b->n_wanted += row->wants != 0;
    }
}

/* The pages that rows write are there. Those that they read were written before. */
static void commit_pages(struct backend *b)
{
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        const struct cuda_row *row = &b->upload.from.rows[r];
        for (int c = 0; c < PAGE_CLASSES && b->array[c].base; c++)
            cuda_commit(b, (enum cuda_array)c,
                        b->upload.from.words[row->pages[c] + row->position / CUDA_PAGE]);
    }
}

static void plan_wanted(struct backend *b)
{
    struct cuda_upload *u = &b->upload;
    cuda_take_words(b, u->n_words % 2); /* a sampling has words of 8 bytes */
    u->from.counts[CUDA_AT_SAMPLING] =
        cuda_take_words(b, WORDS_OF(b->n_wanted, struct cuda_sampling));
    u->sampling = (struct cuda_sampling *)(u->from.words + u->from.counts[CUDA_AT_SAMPLING]);
    for (uint32_t r = 0, w = 0; r < b->pass->n_rows; r++)
        if (b->pass->rows[r].wants)
            u->sampling[w++] = (struct cuda_sampling){.row = r, .kind = CUDA_SAMPLE_BARE};
}

void cuda_plan_pass(struct backend *b)
{
    struct cuda_upload *u = &b->upload;
    u->n_words = CUDA_AT_ROWS;
    u->most_words = (uint32_t)most_words(b);
    cuda_take_words(b, WORDS_OF(b->pass->n_rows + 1, struct cuda_row));
    memset(u->host, 0, CUDA_AT_ROWS * sizeof(*u->host));
    u->from.counts[CUDA_COUNT_ROWS] = b->pass->n_rows;
    u->from.counts[CUDA_COUNT_PASS] = ++b->pass_number;
    plan_pages(b);
    plan_rows(b);
    commit_pages(b);
    plan_items(b);
    plan_local_items(b);
    cuda_plan_states(b);
    plan_wanted(b);
    u->from.counts[CUDA_COUNT_WANTED] = b->n_wanted;
    cuda_plan_samples(b);
    forget_scratch(b);
}

void cuda_upload_pass(struct backend *b)
{
    const struct cuda_upload *u = &b->upload;
    cuda_ok(b,
            (int)cudaMemcpyAsync(u->device, u->host, u->n_words * sizeof(*u->host),
                                 cudaMemcpyHostToDevice, b->queue.stream),
            "the copy of a pass");
}
