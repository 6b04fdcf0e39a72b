/* vocab.h: a model's vocabulary as one relocatable block of memory.
 *
 * The daemon builds the block once (vocab_build), puts it into a sealed memfd, and every client
 * maps the same pages read-only. It holds offsets instead of pointers, so it is used in place at
 * any address: id -> text and bytes, text -> id, the merges of a BPE vocabulary, the special
 * tokens, and what else a tokenizer needs.
 *
 * vocab_build allocates and is called on a control thread; everything else on any thread, on a
 * const vocab. A client does not trust the daemon that made the block: vocab_open checks the header
 * and that every section lies inside the block; each accessor checks the entry that it reads. A
 * damaged block gives wrong tokens or "not found", never an access outside of it and never an
 * endless loop. The block must not change while it is open (segment_map_constant); vocab_open does
 * not copy. Nothing here prints or keeps global state. */
#ifndef HEARTH_IPC_VOCAB_H
#define HEARTH_IPC_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_NONE UINT32_MAX             /* "no such token" where an id is returned */
#define VOCAB_MAX_TOKENS (1u << 24)       /* ids fit in 24 bits */
#define VOCAB_MAX_TEXT_BYTES 65535u       /* one token's text */
#define VOCAB_MAX_TEXTS_BYTES (16u << 20) /* of all tokens; large models have some 2 MiB */
#define VOCAB_MAX_TEMPLATE_BYTES (1u << 20)

enum vocab_model {
    VOCAB_MODEL_SPM = 1,    /* "llama": SentencePiece BPE by scores, byte fallback */
    VOCAB_MODEL_BPE = 2,    /* "gpt2": byte-level BPE by merge ranks */
    VOCAB_MODEL_GEMMA4 = 3, /* "gemma4": SPM's texts and byte fallback, BPE by merge ranks */
};

/* How a byte-level BPE text is split into words before merging (tokenizer.ggml.pre). One value per
 * pattern; vocab_names_find_pre maps names to values. */
enum vocab_pre {
    VOCAB_PRE_NONE = 0, /* SPM: no pre-tokenizer */
    VOCAB_PRE_GPT2,
    VOCAB_PRE_LLAMA3,
    VOCAB_PRE_QWEN2,
    VOCAB_PRE_QWEN35,
    VOCAB_PRE_STARCODER,
    VOCAB_PRE_DEEPSEEK_LLM,
    VOCAB_PRE_DEEPSEEK_CODER,
    VOCAB_PRE_DEEPSEEK_V3,
    VOCAB_PRE_FALCON,
    VOCAB_PRE_TEKKEN,
    VOCAB_PRE_GPT4O,
    VOCAB_PRE_DEFAULT,
    VOCAB_PRE_SEED_CODER,
    VOCAB_PRE_MELLUM2,
    VOCAB_PRE_LAGUNA,
    VOCAB_PRE_MINICPM5,
    VOCAB_PRE_UFAKZEKA,
    VOCAB_PRE_JAIS2,
    VOCAB_PRE_EXAONE_MOE,
    VOCAB_PRE_BLOOM,
    VOCAB_PRE_VIKING,
    VOCAB_PRE_YOUTU,
    VOCAB_PRE_SPARK,
    VOCAB_PRE_AFMOE,
    VOCAB_PRE_KIMI_K2,
    VOCAB_PRE_COUNT
};

/* Values of tokenizer.ggml.token_type. */
enum vocab_type {
    VOCAB_TYPE_NORMAL = 1,
    VOCAB_TYPE_UNKNOWN = 2,
    VOCAB_TYPE_CONTROL = 3,      /* never part of ordinary text; matched only on request */
    VOCAB_TYPE_USER_DEFINED = 4, /* matched in a text before anything else */
    VOCAB_TYPE_UNUSED = 5,
    VOCAB_TYPE_BYTE = 6, /* SPM <0xNN> */
};

enum vocab_flag {
    VOCAB_ADD_BOS = 1, /* a prompt begins with bos */
    VOCAB_ADD_EOS = 2, /* a prompt ends with eos */
    VOCAB_ADD_SPACE_PREFIX =
        4, /* SPM: a space goes before the text, and before text that follows a special token */
    VOCAB_IGNORE_MERGES =
        8, /* BPE: a word that is itself a token is not split, whatever the merges say */
};

/* Special tokens by role. vocab_special returns VOCAB_NONE for a role that the vocabulary lacks. */
enum vocab_role {
    VOCAB_BOS = 0,
    VOCAB_EOS,
    VOCAB_EOT, /* end of a turn */
    VOCAB_EOM, /* end of a message */
    VOCAB_UNK,
    VOCAB_PAD,
    VOCAB_FIM_PREFIX,
    VOCAB_FIM_SUFFIX,
    VOCAB_FIM_MIDDLE,
    VOCAB_FIM_PAD,
    VOCAB_FIM_REPO,
    VOCAB_FIM_FILE, /* file separator */
    VOCAB_ROLE_COUNT
};

/* The chat templates of a model, Jinja texts. Here they are bytes; the client parses them. */
enum vocab_template {
    VOCAB_TEMPLATE_CHAT = 0,
    VOCAB_TEMPLATE_TOOLS, /* used instead of it in a chat with tools */
    VOCAB_TEMPLATE_COUNT
};

struct vocab_string {
    const char *data; /* [bytes], not NUL-terminated; may hold NUL */
    size_t bytes;
};

/* Input of vocab_build: the tokenizer.ggml.* keys of a GGUF file. Everything is borrowed for the
 * call. */
struct vocab_desc {
    struct vocab_string model; /* "llama" or "gpt2" */
    struct vocab_string pre;   /* pre-tokenizer's name; 0 bytes is "default" */
    uint32_t n_tokens;
    const struct vocab_string *texts; /* [n_tokens] literal texts as in the file */
    const int32_t *types; /* [n_tokens] enum vocab_type; NULL, or all NORMAL: guessed from texts */
    const float *scores;  /* [n_tokens], or NULL: all 0 */
    uint32_t n_merges;
    const struct vocab_string *merges; /* [n_merges] "left right", best first */
    int64_t roles[VOCAB_ROLE_COUNT];   /* ids, -1 where the file names none; by enum vocab_role */
    int add_bos, add_eos, add_space_prefix; /* 0, 1, or -1 where the file does not say */
    struct vocab_string templates[VOCAB_TEMPLATE_COUNT]; /* 0 bytes where the file has none */
};

/* One token, as accessors give it: pointers into the block. */
struct vocab_token {
    const char *text;  /* literal text, text_bytes long: "Ġthe", "▁the", "<0x0A>", "</s>" */
    const char *bytes; /* the bytes it decodes to, n_bytes long: " the", " the", "\n", "</s>" */
    uint32_t text_bytes;
    uint32_t n_bytes;
    float score;
    enum vocab_type type;
    bool end; /* generation ends with this token (eos, eot, ...) */
};

struct vocab_header;
struct vocab_entry;
struct vocab_slot;
struct vocab_merge;

/* An open block. Fields are for vocab.c; use the accessors. Copy it freely; nothing to close. */
struct vocab {
    const struct vocab_header *header;
    const struct vocab_entry *tokens; /* [n_tokens] */
    const struct vocab_slot *lookup;  /* [lookup_mask + 1] text -> id, open addressing */
    const struct vocab_merge *merges; /* [merges_mask + 1] (left, right) -> rank, merged */
    const uint32_t *specials;         /* [n_specials] ids, as vocab_layout.h says */
    const uint32_t *special_starts;   /* [257] first index in specials of each first byte */
    const char *pool;                 /* [pool_bytes] texts and bytes */
    struct vocab_string templates[VOCAB_TEMPLATE_COUNT]; /* each followed by a 0 */
    uint32_t n_tokens, n_specials;
    uint32_t lookup_mask, merges_mask;
    uint32_t pool_bytes;
    enum vocab_model model;
    enum vocab_pre pre;
    uint32_t flags; /* enum vocab_flag */
};

/* An empty description: no tokens, every role and flag -1 (not stated). */
void vocab_desc_init(struct vocab_desc *d);

/* Refuses what vocab_build calls invalid: it looks at sizes and names only and so is fast.
 * Returns 0, or -EINVAL with one line. */
int vocab_check(const struct vocab_desc *d, char *err, size_t err_bytes);

/* Builds the block for a description. Returns 0 with *ret_block (malloc'ed, to be freed by the
 * caller) and its size; -EINVAL with one line in err for an invalid description or an unknown
 * tokenizer; -EBADMSG with one line for texts or merges that were chosen so that looking them up
 * would take long; -ENOMEM. The same description always gives the same bytes. */
int vocab_build(const struct vocab_desc *d, void **ret_block, size_t *ret_bytes, char *err,
                size_t err_bytes);

/* Opens a block in place; `block` is 8-byte aligned and stays mapped while v is used. 0, or
 * -EBADMSG with one line. */
int vocab_open(const void *block, size_t bytes, struct vocab *v, char *err, size_t err_bytes);

/* A pre-tokenizer's name in tokenizer.ggml.pre. */
const char *vocab_pre_name(enum vocab_pre pre);

/* Fills *ret for token id; false where there is no such token. */
bool vocab_find_token(const struct vocab *v, uint32_t id, struct vocab_token *ret);

/* The id of a literal text, or VOCAB_NONE. */
uint32_t vocab_find_text(const struct vocab *v, const char *text, size_t bytes);

/* The bytes of token id, and their number in *ret_n; NULL and 0 where there is no such token. The
 * bytes of a control token are its literal text, which is not part of an answer's text
 * (vocab_is_text). */
const char *vocab_bytes(const struct vocab *v, uint32_t id, uint32_t *ret_n);

/* The token of one byte: BPE's alphabet, SPM's <0xNN>. VOCAB_NONE where the vocabulary has none. */
uint32_t vocab_byte_token(const struct vocab *v, uint8_t byte);

/* The token with a role, or VOCAB_NONE. */
uint32_t vocab_special(const struct vocab *v, enum vocab_role role);

/* True if left followed by right merges; then *ret_rank (lower goes first) and *ret_merged. */
bool vocab_find_merge(const struct vocab *v, uint32_t left, uint32_t right, uint32_t *ret_rank,
                      uint32_t *ret_merged);

/* A chat template, 0 bytes where the model has none; data is never NULL, and a 0 follows. */
struct vocab_string vocab_template(const struct vocab *v, enum vocab_template which);

/* The tokens that generation ends with: true for eos, eot and the like. False for an id out of
 * range. */
bool vocab_is_end(const struct vocab *v, uint32_t id);
bool vocab_is_control(const struct vocab *v, uint32_t id);

/* Whether its bytes are text of an answer: true for all tokens but control tokens, and for those
 * that mark the messages of an answer in harmony, which its reader has to see. */
bool vocab_is_text(const struct vocab *v, uint32_t id);

/* The longest special token (control, user-defined, unknown) that text[0, bytes) begins with.
 * Control and unknown tokens count only with `control`, and then come before user-defined ones of
 * the same text. Returns its id with *ret_bytes, or VOCAB_NONE. It takes a logarithm of looks for
 * each length that special tokens with the text's first byte have. */
uint32_t vocab_match_special(const struct vocab *v, const char *text, size_t bytes, bool control,
                             size_t *ret_bytes);

#endif
