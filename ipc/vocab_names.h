/* vocab_names: the names in tokenizer metadata that hearth knows: pre-tokenizers, and token texts
 * with a role. Constant tables; any thread; used by vocab_build.c. */
#ifndef HEARTH_IPC_VOCAB_NAMES_H
#define HEARTH_IPC_VOCAB_NAMES_H

#include "ipc/vocab.h"

/* As vocab_pre_find, and the flags that a vocabulary with this pre-tokenizer has by default. */
int vocab_names_find_pre(struct vocab_string name, enum vocab_pre *ret_pre, uint32_t *ret_flags,
                         char *err, size_t err_bytes);

/* A token text by which a vocabulary shows a role that its metadata may leave out. */
struct vocab_name {
    const char *text;
    uint32_t bytes;
    enum vocab_role role; /* VOCAB_ROLE_COUNT: none */
    bool end;             /* generation ends with it, whatever else it is */
};

extern const struct vocab_name vocab_names[]; /* for one role, the better name stands first */
extern const uint32_t vocab_names_count;

#endif
