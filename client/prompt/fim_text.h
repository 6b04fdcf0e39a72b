/* fim_text: text to tokens a block at a time, with a memory of blocks seen before.
 *
 * An editor sends the same buffer with every keystroke, but for a few bytes. A text is cut into
 * blocks at places where a tokenizer cuts it anyway (a space between two words), found from its
 * beginning: what is typed at the end moves none of them. The ids of each
 * block are kept, so a call tokenizes what is new and copies the rest. What a block is depends on
 * the text alone, never on what is remembered: the same text always gives the same ids.
 *
 * One thread at a time; memory for some megabytes of text, what was not used for longest goes
 * first. It never prints. */
#ifndef HEARTH_CLIENT_PROMPT_FIM_TEXT_H
#define HEARTH_CLIENT_PROMPT_FIM_TEXT_H

#include "client/tokenizer/tokenizer.h"

struct fim_text;

/* NULL without memory. */
struct fim_text *fim_text_open(void);
void fim_text_close(struct fim_text *t); /* NULL is fine */

/* From here on, until the next begin, at most `budget` bytes are tokenized that are not remembered
 * (but always one block); 0: no limit. */
void fim_text_begin(struct fim_text *t, size_t budget);

/* Appends the ids of text[0, bytes), without special tokens. `flags` (enum tokenize_flag) are for
 * its first block, the others continue. Returns 0; -EAGAIN where the budget is spent: begin and
 * call again, what was done is remembered; or as tokenize(). On an error *out may have grown. */
int fim_text_add(struct fim_text *t, const struct vocab *v, const char *text, size_t bytes,
                 unsigned flags, struct token_list *out, char *err, size_t err_bytes);

/* Bytes of the block at the beginning of text[0, bytes): for tests. */
size_t fim_text_block(const char *text, size_t bytes);

/* Blocks that were compared with others so far: for tests. */
uint64_t fim_text_looks(const struct fim_text *t);

#endif
