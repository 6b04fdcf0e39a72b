/* vocab_roles.c: the type of each token and the tokens with a role, as stated in the file or, where
 * it does not state them, guessed. */
#include "ipc/vocab_build_impl.h"
#include "ipc/vocab_names.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int vocab_build_byte_of_text(struct vocab_string s)
{
    if (s.bytes != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>')
        return -1;
    int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Takes types from the file; guesses them if it states none (no list, or all the same). */
static void resolve_types(struct build *b)
{
    const struct vocab_desc *d = b->desc;
    bool said = false;
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        int32_t t = d->types != NULL ? d->types[i] : VOCAB_TYPE_NORMAL;
        bool known = t >= VOCAB_TYPE_NORMAL && t <= VOCAB_TYPE_BYTE;
        b->types[i] = known ? (uint8_t)t : VOCAB_TYPE_NORMAL;
        said = said || b->types[i] != VOCAB_TYPE_NORMAL;
    }
    if (said)
        return;
    const uint32_t *roles = b->header->roles;
    bool spm = b->header->model != VOCAB_MODEL_BPE;
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        if (i == roles[VOCAB_BOS] || i == roles[VOCAB_EOS])
            b->types[i] = VOCAB_TYPE_CONTROL;
        else if (spm && i == roles[VOCAB_UNK])
            b->types[i] = VOCAB_TYPE_UNKNOWN;
        else if (spm && vocab_build_byte_of_text(d->texts[i]) >= 0)
            b->types[i] = VOCAB_TYPE_BYTE;
    }
}

static void resolve_stated_roles(struct build *b)
{
    const struct vocab_desc *d = b->desc;
    uint32_t *roles = b->header->roles;
    memset(roles, 0xff, sizeof(b->header->roles));
    if (b->header->model == VOCAB_MODEL_SPM && d->n_tokens > 2) {
        roles[VOCAB_UNK] = 0; /* SentencePiece's defaults */
        roles[VOCAB_BOS] = 1;
        roles[VOCAB_EOS] = 2;
    }
    for (int i = 0; i < VOCAB_ROLE_COUNT; i++) {
        if (d->roles[i] >= 0)
            roles[i] = (uint32_t)d->roles[i];
    }
}

static const struct vocab_name *find_name(struct vocab_string s)
{
    if (s.bytes < 5 || s.bytes > 40 || (s.data[s.bytes - 1] != '>' && s.data[s.bytes - 1] != ']'))
        return NULL;
    for (uint32_t i = 0; i < vocab_names_count; i++) {
        const struct vocab_name *n = &vocab_names[i];
        if (n->bytes == s.bytes && memcmp(n->text, s.data, s.bytes) == 0)
            return n;
    }
    return NULL;
}

/* Harmony: <|end|> ends one of an answer's messages, not the answer. The marks of messages are
 * control tokens, so that no message can forge one, but text of the answer. */
static void resolve_harmony(struct build *b, const uint32_t id[HARMONY_COUNT])
{
    uint32_t *eot = &b->header->roles[VOCAB_EOT];
    if (id[HARMONY_RETURN] == VOCAB_NONE || id[HARMONY_CALL] == VOCAB_NONE)
        return;
    for (int i = HARMONY_RETURN; i < HARMONY_COUNT; i++) {
        if (id[i] == VOCAB_NONE)
            continue;
        b->types[id[i]] = VOCAB_TYPE_CONTROL;
        b->flags[id[i]] = i < HARMONY_END ? VOCAB_ENTRY_END : VOCAB_ENTRY_SHOWN;
    }
    if (*eot != VOCAB_NONE && *eot == id[HARMONY_END])
        *eot = id[HARMONY_RETURN];
}

/* Finds roles by text where the file states none, and the tokens that end a generation. A token
 * that ends a turn, or that got its role here, is a control token, whatever type the file gives it.
 */
static void resolve_named_roles(struct build *b)
{
    const struct vocab_desc *d = b->desc;
    uint32_t *roles = b->header->roles;
    const struct vocab_name *best[VOCAB_ROLE_COUNT + 1] = {NULL};
    uint32_t found[VOCAB_ROLE_COUNT + 1], harmony[HARMONY_COUNT];
    memset(harmony, 0xff, sizeof(harmony));
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        const struct vocab_name *n = find_name(d->texts[i]);
        if (n == NULL)
            continue;
        harmony[n->harmony] = i;
        if (n->end)
            b->flags[i] = VOCAB_ENTRY_END;
        if (n->role == VOCAB_EOT || n->role == VOCAB_EOM)
            b->types[i] = VOCAB_TYPE_CONTROL;
        if (best[n->role] == NULL || n < best[n->role]) {
            best[n->role] = n;
            found[n->role] = i;
        }
    }
    for (int r = 0; r < VOCAB_ROLE_COUNT; r++) {
        if (roles[r] != VOCAB_NONE || best[r] == NULL)
            continue;
        roles[r] = found[r];
        b->types[found[r]] = VOCAB_TYPE_CONTROL;
    }
    static const enum vocab_role ending[] = {VOCAB_EOS,     VOCAB_EOT,      VOCAB_EOM,
                                             VOCAB_FIM_PAD, VOCAB_FIM_REPO, VOCAB_FIM_FILE};
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
        if (roles[ending[i]] != VOCAB_NONE)
            b->flags[roles[ending[i]]] = VOCAB_ENTRY_END;
    }
    resolve_harmony(b, harmony);
}

void vocab_build_roles(struct build *b)
{
    resolve_stated_roles(b);
    resolve_types(b);
    resolve_named_roles(b);
}
