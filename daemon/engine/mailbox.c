/* A private ring and its bell. */
#include "daemon/engine/mailbox.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mailbox_init(struct mailbox *box, uint32_t capacity)
{
    box->event_fd = -1;
    box->cells = aligned_alloc(IPC_LINE, capacity * sizeof(*box->cells));
    if (!box->cells)
        return -ENOMEM;
    memset(box->cells, 0, capacity * sizeof(*box->cells));
    atomic_init(&box->progress, 0);
    ring_writer_init(&box->writer, box->cells, capacity, &box->progress);
    ring_reader_init(&box->reader, box->cells, capacity, &box->progress);
    box->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return box->event_fd < 0 ? -errno : 0;
}

void mailbox_fini(struct mailbox *box)
{
    free(box->cells);
    box->cells = NULL;
    if (box->event_fd >= 0)
        close(box->event_fd);
    box->event_fd = -1;
}

bool mailbox_post(struct mailbox *box, struct mail *mail)
{
    uint8_t cell[IPC_LINE] = {0};
    if (ring_space(&box->writer) <= 0)
        return false;
    memcpy(cell, mail, sizeof(*mail));
    ring_push(&box->writer, cell);
    return true;
}

uint32_t mailbox_room(struct mailbox *box)
{
    int space = ring_space(&box->writer);
    return space > 0 ? (uint32_t)space : 0;
}

void mailbox_ring(struct mailbox *box)
{
    static const uint64_t one = 1;
    /* Cannot block (EFD_NONBLOCK) and cannot fill up: that takes 2^64 messages. */
    if (write(box->event_fd, &one, sizeof(one)) < 0)
        return;
}

bool mailbox_take(struct mailbox *box, struct mail *ret)
{
    uint8_t cell[IPC_LINE];
    if (ring_peek(&box->reader, cell) != 1)
        return false;
    memcpy(ret, cell, sizeof(*ret));
    ring_release(&box->reader, 1);
    return true;
}

bool mailbox_ready(const struct mailbox *box)
{
    return ring_ready(&box->reader) != 0;
}
