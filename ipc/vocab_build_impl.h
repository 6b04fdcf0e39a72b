/* vocab_build_impl.h: shared by the parts of vocab_build: checks (vocab_check.c), types and roles
 * (vocab_roles.c), merges (vocab_merges.c), the block itself (vocab_build.c). */
#ifndef HEARTH_IPC_VOCAB_BUILD_IMPL_H
#define HEARTH_IPC_VOCAB_BUILD_IMPL_H

#include "ipc/vocab.h"
#include "ipc/vocab_layout.h"

/* Most slots of a table in a row without a free one; looking up takes as long as a row is. Where
 * chance fills two thirds of a table of a million, the longest has about 200. */
enum { VOCAB_ROW_MOST = 512 };

/* Most bytes of texts that are compared with another one of the same tag, over a whole vocabulary:
 * in a row of long texts that begin alike each would be compared with all before it, and so would
 * the parts of each merge. By chance no two texts of a row have the same tag. */
enum { VOCAB_ALIKE_MOST = 16 << 20 };

/* Most lengths of special tokens with the same first byte: at each such byte of a text all are
 * tried. Models have some thirty, of runs of spaces. */
enum { VOCAB_LENGTHS_MOST = 128 };

/* One vocab_build in progress. */
struct build {
    const struct vocab_desc *desc;
    struct vocab_header *header; /* the block */
    struct vocab_entry *tokens;  /* [n_tokens] in the block */
    struct vocab_slot *lookup;   /* [lookup_mask + 1] in the block */
    struct vocab_merge *merges;  /* [merges_mask + 1] in the block */
    uint32_t *specials;          /* [n_specials] in the block */
    uint32_t *special_starts;    /* [257] in the block */
    char *pool;                  /* in the block */
    size_t pool_used;
    uint64_t alike_bytes; /* of texts that were compared in vain */
    uint8_t *types;       /* [n_tokens] enum vocab_type */
    uint8_t *flags;       /* [n_tokens] VOCAB_ENTRY_* */
    struct vocab view;
    bool crowded; /* something found no slot within such a row */
    char *err;
    size_t err_bytes;
};

/* Refuses invalid descriptions, and fills model, pre and flags of the header. Returns 0 with the
 * bytes of all texts, or -EINVAL with one line. */
int vocab_build_check(struct build *b, uint64_t *ret_text_bytes);

/* Fills types, flags and the header's roles. */
void vocab_build_roles(struct build *b);

/* Fills the table of merges. PRECOND: all tokens are in the lookup table, and it is not crowded. */
void vocab_build_merges(struct build *b);

/* The byte that "<0xNN>" stands for, or -1. */
int vocab_build_byte_of_text(struct vocab_string s);

#endif
