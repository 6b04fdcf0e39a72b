/* watched_vocab: counts which pages of a vocabulary's entries are read, each when it is first read. One at a time. */
#ifndef HEARTH_TESTS_RIG_WATCHED_VOCAB_H
#define HEARTH_TESTS_RIG_WATCHED_VOCAB_H

#include "ipc/vocab.h"

/* Opens a copy of the block, which stays; pages count from now on. */
struct vocab watched_vocab_open(const void *block, size_t bytes);

/* Pages that are watched; reads of them so far. */
size_t watched_vocab_pages(void);
size_t watched_vocab_read(void);

#endif
