/* blocks: what the answer of a chat says, in the order in which the model said it: content,
 * reasoning and calls of tools.
 *
 * The library's reader makes events of an answer's text (hearth_chat_next()); here events of one
 * kind that follow each other become a block, which the dialects write: in a stream as it grows,
 * else as a whole. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_BLOCKS_H
#define HEARTH_CLIENT_HTTP_BLOCKS_H

#include "client/base/buffer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct choice;

struct block {
    uint32_t kind;  /* HEARTH_CHAT_CONTENT, HEARTH_CHAT_REASONING or HEARTH_CHAT_CALL */
    uint32_t index; /* among the answer's blocks */
    uint32_t call;  /* of a call: among the answer's calls */
    bool is_cut;    /* the answer ended within it: at a limit of tokens, or in a call's arguments */
    struct buffer name; /* of a call: the tool's */
    struct buffer text; /* so far; of a call its arguments, a JSON object */
    /* The dialect's: the tool that a call names, of the request, once it was looked for. */
    const json_t *tool;
    size_t space_bytes;
    bool knows_tool;
};

struct blocks {
    struct block *items; /* [n] */
    uint32_t n, n_calls, n_whole_calls;
    bool is_open; /* the last one may go on */
};

/* Writes the blocks of a stream; end may be NULL. */
struct block_writer {
    void (*begin)(struct choice *c, const struct block *b);
    void (*more)(struct choice *c, const struct block *b, const char *text, size_t bytes);
    void (*end)(struct choice *c, const struct block *b);
};

/* Reads c->text into c->blocks, and tells writer (may be NULL) what that made; is_end: the answer is
 * complete. Where memory runs out c->text.failed is set. */
void blocks_read(struct choice *c, bool is_end, const struct block_writer *writer);

void blocks_fini(struct blocks *l);

/* The text of all blocks of a kind, one after the other; a string. */
json_t *blocks_text(const struct blocks *l, uint32_t kind);

/* Is there a block of this kind? */
bool blocks_have(const struct blocks *l, uint32_t kind);

/* Strings: the text or the name of a block, and the id of a call. */
json_t *block_text(const struct block *b);
json_t *block_name(const struct block *b);
json_t *block_call_id(const struct choice *c, const struct block *b);

/* Adds a call's arguments as an object in one line: an empty one where the answer ended within
 * them. */
void block_put_arguments(struct buffer *t, const struct block *b);

/* Adds what there is of a call that is cut, as text: the beginning of an object with its name and
 * arguments. */
void block_put_cut(struct buffer *t, const struct block *b);

#endif
