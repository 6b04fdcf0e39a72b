/* vocab_names.h: the names in tokenizer metadata that hearth knows: pre-tokenizers, and the texts
 * of special tokens. Constant tables; any thread; used by vocab_build. */
#ifndef HEARTH_IPC_VOCAB_NAMES_H
#define HEARTH_IPC_VOCAB_NAMES_H

#include "ipc/vocab.h"

/* A name from a file for a line of text, which may reach a terminal: its beginning, with question
 * marks in place of everything but printable ASCII. */
struct vocab_shown {
    char text[65];
};
struct vocab_shown vocab_names_show(struct vocab_string name);

/* Maps a tokenizer.ggml.pre name to its pre-tokenizer, and to the flags that a vocabulary with it
 * has by default. 0, or -ENOENT with a line that has the name. */
int vocab_names_find_pre(struct vocab_string name, enum vocab_pre *ret_pre, uint32_t *ret_flags,
                         char *err, size_t err_bytes);

/* The format of gpt-oss's answers: messages, each with a header and an end. A vocabulary has it if it
 * has the two tokens that end an answer; the others are text of it. */
enum vocab_harmony {
    HARMONY_NONE,
    HARMONY_RETURN,
    HARMONY_CALL,
    HARMONY_END,
    HARMONY_START,
    HARMONY_CHANNEL,
    HARMONY_MESSAGE,
    HARMONY_CONSTRAIN,
    HARMONY_COUNT
};

/* A token text that implies a role which the metadata may leave out. */
struct vocab_name {
    const char *text;
    uint32_t bytes;
    enum vocab_role role; /* VOCAB_ROLE_COUNT: none */
    bool end;             /* generation ends with it, whatever its role */
    enum vocab_harmony harmony;
};

extern const struct vocab_name
    vocab_names[]; /* of several names of a role the first in the table wins */
extern const uint32_t vocab_names_count;

#endif
