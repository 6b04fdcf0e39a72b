/* slots: the named slots of a user in one file, `slots` in the user's folder, replaced as a whole.
 *
 *   struct slots_header; [n] struct slots_row; the tokens of all, one after the other; their hash, 16 bytes
 *
 * A user's file that could not be read, for an error or for want of memory, stays until the user
 * has slots again.
 *
 * Main thread. */
#ifndef HEARTH_DAEMON_STORE_SLOTS_H
#define HEARTH_DAEMON_STORE_SLOTS_H

#include "daemon/store/files.h"

struct slots_header {
    char magic[16];
    uint32_t version, uid, n, zero;
    uint8_t seed[16];
};

struct slots_row {
    char name[STORE_NAME_BYTES];
    uint32_t n_tokens;
};

#define SLOTS_MAGIC "hearth kv slots"

int slots_save(struct files *files, const struct store_slot *slots, uint32_t n);
int slots_load(struct files *files, void (*each)(void *context, const struct store_slot *slot),
               void *context);

#endif
