/* store_rig: a KV store in a folder of its own, with payloads that say whose they are. */
#ifndef HEARTH_TESTS_RIG_STORE_RIG_H
#define HEARTH_TESTS_RIG_STORE_RIG_H

#include "daemon/store/store.h"

struct store_rig {
    char root[64], path[96]; /* the store is at root/store */
    struct store_options options;
    struct store *store; /* NULL: it is not open */
    char err[600];
};

/* Pages of 300,000 bytes, window pages of 5,000, states of 70,001; by hand; 64 MiB, and 1 GiB a day; texts of 64 tokens. */
void store_rig_init(struct store_rig *rig);
void store_rig_fini(struct store_rig *rig);

/* Closes the store if it is open, and opens it. The first expects that to succeed. */
void store_rig_open(struct store_rig *rig);
int store_rig_try(struct store_rig *rig);
void store_rig_close(struct store_rig *rig);

/* Text `number` of the user: its first `end` tokens. Texts with equal number / 10 have their first 64 tokens in
 * common. */
struct store_text store_rig_text(const struct store_rig *rig, uid_t uid, uint32_t number,
                                 uint32_t end);

/* Offers and writes the record, waits, and takes its completion. False: it was refused. */
bool store_rig_put(struct store_rig *rig, enum store_class class, const struct store_text *text);
bool store_rig_put_wanted(struct store_rig *rig, enum store_class class,
                          const struct store_text *text, uint64_t cost_ns, bool wanted);

/* Reads it, and checks that what comes is what was written under exactly that text. Returns 0; -ENOENT: it is not
 * there; the status of the read. */
int store_rig_get(struct store_rig *rig, enum store_class class, const struct store_text *text);

/* Does all that was queued; completions are to be taken then. */
void store_rig_wait(struct store_rig *rig);

/* What is written under a text. */
void store_rig_fill(void *payload, size_t bytes, enum store_class class,
                    const struct store_text *text);

/* A path below the store's folder: store_rig_in(rig, "%u/0001.kv", uid). `*` is a shell's. */
const char *store_rig_in(const struct store_rig *rig, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *store_rig_found(const struct store_rig *rig, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
