/* R1 A1 R2 A2 alone: ipc/ring.{h,c} between two threads. */
#include "tests/model/shim.h"

#include "ipc/ring.h"

enum { RING_CELLS = 2, RING_SENT = 5 };

static struct ring_cell *cells;
static _Atomic uint32_t *progress;

static void setup(void)
{
    cells = model_alloc(RING_CELLS * sizeof(*cells));
    progress = model_alloc(IPC_LINE);
    model_name(&cells[0], IPC_LINE, "cell 0");
    model_name(&cells[1], IPC_LINE, "cell 1");
    model_name(progress, 4, "progress");
}

static void write_cells(void)
{
    struct ring_writer w;
    uint32_t cell[IPC_LINE / 4];

    ring_writer_init(&w, cells, RING_CELLS, progress);
    for (uint32_t i = 0; i < RING_SENT; i++) {
        int space = ring_space_known(&w) ? 1 : ring_space(&w);

        model_expect(space >= 0, "the writer takes the reader's progress for nonsense");
        model_poll(space > 0);
        for (uint32_t k = 0; k < IPC_LINE / 4; k++)
            cell[k] = 100 * i + k;
        ring_push(&w, cell);
    }
}

static void expect_cell(const uint32_t *cell, uint32_t i)
{
    model_expect(cell[0] == i + 1, "a cell has another's number");
    for (uint32_t k = 1; k < IPC_LINE / 4; k++)
        model_expect(cell[k] == 100 * i + k, "a cell is not the one that was sent");
}

static void read_cells(void)
{
    struct ring_reader r;
    uint32_t cell[IPC_LINE / 4];

    ring_reader_init(&r, cells, RING_CELLS, progress);
    for (uint32_t i = 0; i < RING_SENT; i++) {
        int n = ring_peek(&r, cell);

        model_expect(n >= 0, "the reader takes a number for nonsense");
        model_poll(n);
        expect_cell(cell, i);
        ring_release(&r, 1);
    }
}

/* As event_next() reads a run: its first cell, then those ahead, and all are given back at once. */
static void read_ahead(void)
{
    struct ring_reader r;
    uint32_t cell[IPC_LINE / 4];

    ring_reader_init(&r, cells, RING_CELLS, progress);
    for (uint32_t i = 0; i + 1 < RING_SENT; i += 2) {
        for (uint32_t ahead = 0; ahead < 2; ahead++) {
            int n = ring_peek_ahead(&r, ahead, cell);

            model_expect(n >= 0, "the reader takes a number for nonsense");
            model_poll(n);
            expect_cell(cell, i + ahead);
        }
        ring_release(&r, 2);
    }
}

const struct litmus litmus_ring = {
    .name = "ring",
    .says = "cells come whole, in order, and are reused only after they were read",
    .threads = {{"writer", write_cells}, {"reader", read_cells}},
    .setup = setup,
};

const struct litmus litmus_ahead = {
    .name = "ahead",
    .says = "the same of cells that are looked at ahead and given back together",
    .threads = {{"writer", write_cells}, {"reader", read_ahead}},
    .setup = setup,
};
