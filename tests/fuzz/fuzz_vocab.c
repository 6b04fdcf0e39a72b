/* Fuzzes what a client does with a vocabulary from a daemon that it does not trust, and with text
 * from anywhere: open a damaged block, tokenize, detokenize; and what the daemon does with a model
 * file's vocabulary: build a block from it.
 *
 * The first byte: bits 0-2 say what is done (0-3 a small good vocabulary, with changes to its block
 * if bit 1 is set, bit 0 chooses SPM or BPE; 4-7 a vocabulary made of the input), bits 3-7 vary the
 * pre-tokenizer. The second byte: flags for the tokenizer and the detokenizer. Then, for changes,
 * a count and so many {u16 position, u8 value}. The rest is text. With a good vocabulary the text
 * must come back unchanged. */
#include "client/tokenizer/detokenizer.h"
#include "client/tokenizer/tokenizer.h"
#include "tests/rig/tiny_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t size;
};

static unsigned take(struct input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

#define LOW "\xe2\x96\x81" /* U+2581, a space */
#define LOW_AB "\xe2\x96\x81\x61\x62"

static const char *pre_name(unsigned choice)
{
    return vocab_pre_name((enum vocab_pre)(1 + choice % (VOCAB_PRE_COUNT - 1)));
}

static void good_spm(struct tiny *t, unsigned choice)
{
    static const char *const pieces[] = {
        LOW, "a",  "b",        "ab", LOW_AB, "aab", "<",    "s",
        ">", "s>", "\xc3\xa9", "\n", "\n\n", "ba",  "abab",
    };
    tiny_init_spm(t, 1);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        tiny_add(t, pieces[i], VOCAB_TYPE_NORMAL, -(float)(i * 7 % 11));
    tiny_add(t, "<user>", VOCAB_TYPE_USER_DEFINED, 0);
    t->desc.add_space_prefix = choice % 2 == 0;
}

static void good_bpe(struct tiny *t, unsigned choice)
{
    static const char *const merges[][2] = {
        {"a", "b"}, {" ", "ab"}, {"ab", "ab"}, {"\xc3", "\xa9"}, {"\n", "\n"},
        {" ", " "}, {"1", "2"},  {"12", "3"},  {"'", "s"},       {"!", "\n"},
    };
    tiny_init_bpe(t, pre_name(choice));
    for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++)
        tiny_merge(t, merges[i][0], merges[i][1]);
    tiny_add(t, "<|im_end|>", VOCAB_TYPE_CONTROL, 0);
    tiny_add(t, "<user>", VOCAB_TYPE_USER_DEFINED, 0);
    tiny_add(t, "   ", VOCAB_TYPE_USER_DEFINED, 0);
}

/* Tokens and merges out of the input: each a byte of length and type, then the text. */
static void make_vocab(struct tiny *t, struct input *in, bool bpe, unsigned choice)
{
    tiny_init(t, bpe ? "gpt2" : "llama", pre_name(choice));
    unsigned n = take(in) % 64, n_merges = take(in) % 32;
    for (unsigned i = 0; i < n + n_merges; i++) {
        unsigned kind = take(in);
        size_t bytes = kind >> 3 < in->size ? kind >> 3 : in->size;
        const char *text = (const char *)in->data;
        if (i < n)
            tiny_add_bytes(t, text, bytes, (int)(kind % 8), (float)(int8_t)take(in));
        else
            t->merges[t->desc.n_merges++] = tiny_keep(t, text, bytes);
        in->data += bytes < in->size ? bytes : in->size;
        in->size -= bytes < in->size ? bytes : in->size;
    }
    t->desc.add_bos = (int)(take(in) % 3) - 1;
    t->desc.roles[VOCAB_EOS] = (int64_t)(take(in) % 66) - 1;
}

static void change_block(char *block, size_t bytes, struct input *in)
{
    unsigned n = 1 + take(in) % 16;
    for (unsigned i = 0; i < n; i++) {
        size_t at = take(in) << 8;
        at |= take(in);
        block[at % bytes] = (char)take(in);
    }
}

/* SPM reads U+2581 as a space, and <unk> stands for no text. */
static bool reversible(const struct vocab *v, const struct input *text)
{
    return v->model == VOCAB_MODEL_BPE || (memmem(text->data, text->size, LOW, 3) == NULL &&
                                           memmem(text->data, text->size, "<unk>", 5) == NULL);
}

static void use_vocab(const struct vocab *v, const struct input *text, unsigned flags, bool good,
                      bool changed)
{
    struct buffer out = {0};
    char err[256];
    struct token_list l;
    token_list_init(&l);
    unsigned f = flags & (TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUE);
    if (good)
        f &= TOKENIZE_PARSE_SPECIAL;
    const char *bytes = (const char *)text->data;
    int rc = tokenize(v, bytes, text->size, f, &l, err, sizeof(err));
    if (good && rc != 0)
        abort();
    size_t known = detokenize(v, l.ids, l.n, flags >> 3 & 1u, &out);
    if (known != l.n && !changed) /* a changed table may hold ids of no token */
        abort();
    if (good && reversible(v, text)) {
        out.bytes = 0;
        detokenize(v, l.ids, l.n, true, &out);
        if (out.bytes != text->size || (out.bytes > 0 && memcmp(out.data, bytes, out.bytes) != 0))
            abort();
    }
    buffer_fini(&out);
    token_list_fini(&l);
}

static struct tiny tiny;

/* The block that `what` chooses, in memory of its own; NULL where none can be built. */
static char *choose_block(struct input *in, unsigned what, size_t *ret_bytes)
{
    static void *good[256]; /* built once: each is needed a million times */
    static size_t n_good[256];
    char err[512];
    void *block = NULL;
    if ((what & 4) != 0) {
        make_vocab(&tiny, in, (what & 1) != 0, what >> 3);
        return vocab_build(&tiny.desc, &block, ret_bytes, err, sizeof(err)) == 0 ? block : NULL;
    }
    what &= 0xf9u;
    if (good[what] == NULL) {
        if ((what & 1) != 0)
            good_bpe(&tiny, what >> 3);
        else
            good_spm(&tiny, what >> 3);
        if (vocab_build(&tiny.desc, &good[what], &n_good[what], err, sizeof(err)) != 0)
            abort();
    }
    *ret_bytes = n_good[what];
    char *copy = malloc(n_good[what]); /* exact: a read past the end is seen */
    memcpy(copy, good[what], n_good[what]);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size < 4096 ? size : 4096};
    unsigned what = take(&in), flags = take(&in);
    bool made = (what & 4) != 0, changed = (what & 2) != 0;
    char err[512];
    size_t bytes;
    struct vocab v;
    char *block = choose_block(&in, what, &bytes);
    if (block == NULL)
        return 0;
    if (changed)
        change_block(block, bytes, &in);
    if (vocab_open(block, bytes, &v, err, sizeof(err)) == 0)
        use_vocab(&v, &in, flags, !made && !changed, changed);
    else if (!changed)
        abort();
    free(block);
    return 0;
}
