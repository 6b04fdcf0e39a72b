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
    return b->model->local_period > 0 ? cuda_most_parts(b) : 0;
}

/* Page ids, and what picks read behind them. */
static size_t most_words(const struct backend *b)
{
    return (size_t)b->limits.rows * kv_pages(b->limits.context) + cuda_most_pick_words(b);
}

/* Pointers of a pass whose arrays begin at base; returns where the pages begin, and the size of all. */
static size_t place(const struct backend *b, uint8_t *base, struct cuda_pass *p, size_t *ret_bytes)
{
    struct cuda_arena arena = {base, 0};
    const size_t rows = b->limits.rows;
    p->counts = cuda_take(&arena, CUDA_COUNTS * sizeof *p->counts);
    p->rows = cuda_take(&arena, rows * sizeof *p->rows);
    p->wanted = cuda_take(&arena, b->limits.picks * sizeof *p->wanted);
    p->items = cuda_take(&arena, cuda_most_parts(b) * sizeof *p->items);
    p->local_items = cuda_take(&arena, most_local_items(b) * sizeof *p->local_items);
    p->row_parts = cuda_take(&arena, (rows + 1) * sizeof *p->row_parts);
    p->bad = cuda_take(&arena, rows * sizeof *p->bad);
    p->mark = cuda_take(&arena, rows * sizeof *p->mark);
    p->sampling = cuda_take(&arena, b->limits.picks * sizeof *p->sampling);
    p->arrived = cuda_take(&arena, step_words(b->model->n_head_kv) * sizeof *p->arrived);
    const size_t pages_at = arena.used;
    p->words = p->pages = cuda_take(&arena, most_words(b) * sizeof *p->pages);
    *ret_bytes = arena.used;
    return pages_at;
}

size_t cuda_upload_bytes(const struct backend *b)
{
    struct cuda_pass p;
    size_t bytes;
    place(b, NULL, &p, &bytes);
    return bytes;
}

void cuda_place_upload(struct backend *b)
{
    struct cuda_upload *u = &b->upload;
    place(b, u->device, &u->to, &u->bytes);
    u->pages_at = place(b, u->host, &u->from, &u->bytes);
    u->most_words = most_words(b);
}

/* ---- items of attention ----------------------------------------------------------------------- */

static uint32_t splits_of(const struct cuda_row *row)
{
    return row->position / CUDA_SPLIT + 1;
}

/* How many rows from r on are of one sequence, one behind the other. */
static uint32_t run_length(const struct backend *b, uint32_t r)
{
    const struct cuda_row *rows = b->upload.from.rows;
    uint32_t n = 1;
    while (r + n < b->pass->n_rows && rows[r + n].sequence == rows[r].sequence &&
           rows[r + n].position == rows[r].position + n)
        n++;
    return n;
}

static uint32_t large_queries(const struct backend *b)
{
    return b->tensors && b->model->head_dim <= CUDA_MAX_HEAD / 2 ? CUDA_NATIVE_QUERIES
                                                                 : CUDA_LARGE_QUERIES;
}

/* The next item's rows, of a run of n rows, and how they are computed. A tile pays where its queries are more than two
 * rounds of a row's; large ones are for passes that fill the device with them. */
static struct cuda_item next_tile(const struct backend *b, uint32_t r, uint32_t n)
{
    const uint32_t share = b->model->n_head / b->model->n_head_kv, queries = n * share;
    struct cuda_item item = {.kind = CUDA_ITEM_ROW, .row = r, .n_rows = 1};
    if (n == 1 || queries <= CUDA_TILE_QUERIES / 2)
        return item;
    const bool large = b->pass->n_rows > CUDA_GRAPH_ROWS && queries > CUDA_TILE_QUERIES;
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

/* What a window leaves of an item: the splits from which one of its rows sees something. Parts stay where they are. */
static void add_local_item(struct backend *b, struct cuda_item item)
{
    struct cuda_pass *p = &b->upload.from;
    const uint32_t first =
        seen_from(p->rows[item.row].position + 1, b->model->local_window) / CUDA_SPLIT;
    if (first >= item.split1)
        return;
    item.split0 = item.split0 < first ? first : item.split0;
    p->local_items[p->counts[CUDA_COUNT_LOCAL_ITEMS]++] = item;
}

/* Cut, or whole where `cut` is false: one part a row. */
static void add_items(struct backend *b, struct cuda_item item, bool cut)
{
    struct cuda_pass *p = &b->upload.from;
    const uint32_t splits = splits_of(&p->rows[item.row + item.n_rows - 1]);
    for (uint32_t r = item.row; r < item.row + item.n_rows; r++) {
        p->row_parts[r] = b->n_parts;
        b->n_parts += cut ? splits_of(&p->rows[r]) : 1;
    }
    b->item_kinds |= 1u << item.kind;
    for (uint32_t s = 0; s < (cut ? splits : 1); s++) {
        item.split0 = s;
        item.split1 = cut ? s + 1 : splits;
        item.part = s;
        p->items[b->n_items++] = item;
        if (b->model->local_period > 0)
            add_local_item(b, item);
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
    b->n_items = b->n_parts = b->item_kinds = 0;
    p->counts[CUDA_COUNT_LOCAL_ITEMS] = 0;
    for (uint32_t r = 0, left = 0; r < n;) {
        left = left ? left : run_length(b, r);
        const struct cuda_item item = next_tile(b, r, left);
        const uint32_t behind = n - r - item.n_rows;
        add_items(b, item, cut && b->n_parts + parts_when_cut(p->rows, &item) + behind <= most);
        left -= item.n_rows;
        r += item.n_rows;
    }
    p->row_parts[n] = b->n_parts;
    p->counts[CUDA_COUNT_ITEMS] = b->n_items;
}

/* ---- a pass ----------------------------------------------------------------------------------- */

/* Of `rows` rows, and not the others of their last tile: a float product reads those with them, a quantized one the
 * scale beside that of an odd last row (product_device.h); what they give goes nowhere. */
static void forget_input(const struct cuda_input *x, uint32_t rows)
{
    const size_t blocks = x->stride / CUDA_BLOCK, tiles = (rows + CUDA_TILE - 1) / CUDA_TILE;
    cuda_forget(x->f, (size_t)rows * x->stride * sizeof *x->f);
    cuda_forget(x->q, tiles * blocks * CUDA_BLOCK * CUDA_TILE);
    for (size_t at = 0; at < tiles * blocks; at++) {
        const size_t left = rows - at / blocks * CUDA_TILE, n = left < CUDA_TILE ? left : CUDA_TILE;
        cuda_forget(x->scale + at * CUDA_TILE, n * sizeof *x->scale);
    }
    for (int i = 0; i < 2 && x->half[i]; i++)
        cuda_forget(x->half[i], (size_t)rows * x->stride * sizeof *x->half[i]);
}

/* A pass reads nothing that the one before it left in scratch, and nothing of a page that begins with it. */
static void forget_scratch(const struct backend *b)
{
    const struct cuda_buffers *u = &b->buffers;
    const size_t rows = b->limits.rows, picks = b->limits.picks,
                 heads = (size_t)cuda_most_parts(b) * b->model->n_head;
    cuda_settle(b->queue.stream);
    float *const of_rows[] = {u->x, u->h, u->q, u->k, u->v};
    const uint32_t strides[] = {u->embd, u->embd, u->heads, u->heads_kv, u->heads_kv};
    for (int i = 0; i < 5; i++)
        cuda_forget(of_rows[i], rows * strides[i] * sizeof(float));
    if (u->sums)
        cuda_forget(u->sums, rows * u->sums_stride * sizeof *u->sums);
    if (u->added)
        cuda_forget(u->added, rows * u->embd * sizeof(float));
    cuda_forget(u->logits, picks * u->vocab * sizeof(float));
    cuda_forget(u->part_ml, heads * 2 * sizeof(float));
    cuda_forget(u->part_o, heads * b->model->head_dim * sizeof(float));
    cuda_forget(u->work, picks * u->vocab * sizeof(float));
    cuda_forget(u->ids, picks * u->vocab * sizeof *u->ids);
    cuda_forget(u->blocks, picks * pick_blocks(b->model->n_vocab) * sizeof(float));
    cuda_forget(u->raw_blocks, picks * pick_blocks(b->model->n_vocab) * sizeof(float));
    cuda_forget(u->parts, picks * pick_parts(b->model->n_vocab) * sizeof *u->parts);
    cuda_forget(b->upload.device, b->upload.bytes);
    forget_input(&u->norm, b->pass->n_rows);
    forget_input(&u->attention, b->pass->n_rows);
    forget_input(&u->ffn, b->pass->n_rows);
    forget_input(&u->head, b->n_wanted);
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        const struct cuda_row *row = &b->upload.from.rows[r];
        if (row->position % CUDA_PAGE == 0)
            cuda_forget(b->kv.memory +
                            b->upload.from.pages[row->pages + row->position / CUDA_PAGE] *
                                b->kv.page_bytes,
                        b->kv.page_bytes);
    }
}

void cuda_plan_pass(struct backend *b)
{
    const struct pass *pass = b->pass;
    struct cuda_upload *u = &b->upload;
    struct cuda_pass *p = &u->from;
    uint32_t *first_page = p->mark; /* until the rows know theirs */
    uint32_t n_pages = 0;
    for (uint32_t s = 0; s < pass->n_sequences; s++) {
        /* The check left the position behind the sequence's last row. */
        const uint32_t next = b->next_position[s], n = next == UINT32_MAX ? 0 : kv_pages(next);
        memcpy(p->pages + n_pages, pass->sequences[s].pages, n * sizeof *p->pages);
        first_page[s] = n_pages;
        n_pages += n;
    }
    b->n_wanted = 0;
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        const struct row *row = &pass->rows[r];
        p->rows[r] =
            (struct cuda_row){row->sequence, row->position, row->token, first_page[row->sequence]};
        if (row->wants)
            p->wanted[b->n_wanted++] = r;
    }
    plan_items(b);
    cuda_plan_picks(b, n_pages);
    p->counts[CUDA_COUNT_ROWS] = pass->n_rows;
    p->counts[CUDA_COUNT_WANTED] = b->n_wanted;
    p->counts[CUDA_COUNT_PASS] = ++b->pass_number;
    p->counts[CUDA_COUNT_PICKED] = 0;
    memset(p->bad, 0, b->limits.rows * sizeof *p->bad);
    memset(p->mark, 0, b->limits.rows * sizeof *p->mark);
    memset(p->arrived, 0, step_words(b->model->n_head_kv) * sizeof *p->arrived);
    forget_scratch(b);
    cuda_ok(b,
            (int)cudaMemcpyAsync(u->device, u->host, u->pages_at + b->n_words * sizeof *p->words,
                                 cudaMemcpyHostToDevice, b->queue.stream),
            "the copy of a pass");
}
