/* detokenizer: see detokenizer.h. */
#include "client/tokenizer/detokenizer.h"

size_t detokenize(const struct vocab *v, const uint32_t *ids, size_t n, bool control,
                  struct buffer *out)
{
    bool adds_space = (v->flags & VOCAB_ADD_SPACE_PREFIX) != 0, strips = adds_space;
    for (size_t i = 0; i < n; i++) {
        struct vocab_token t;
        if (!vocab_find_token(v, ids[i], &t))
            return i;
        bool special = t.type == VOCAB_TYPE_CONTROL || t.type == VOCAB_TYPE_USER_DEFINED;
        size_t from = strips && !special && t.n_bytes > 0 && t.bytes[0] == ' ';
        if (special)
            strips = adds_space;
        else if (t.n_bytes > 0)
            strips = false;
        if (control || vocab_is_text(v, ids[i]))
            buffer_add(out, t.bytes + from, t.n_bytes - from);
    }
    return n;
}
