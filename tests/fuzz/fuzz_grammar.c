/* Fuzzes grammars: the input is a grammar, or, after a byte 0, a grammar and operations on it. A
 * grammar that compiles is followed: at each place the mask must equal the check of every token
 * alone, for any cut into pieces and after states were freed, and an allowed token must be
 * accepted. The vocabulary is small: bytes, pieces of characters, words of JSON, and whole lines of
 * the input. */
#include "daemon/grammar/grammar_impl.h"
#include "tests/rig/grammar_whole.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 24, N_VOCAB = 256 + WORDS + 40, STEPS = 24, PIECES_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static struct grammar_vocab *vocab;

static void open_vocab(void)
{
    static const char *const words[WORDS] = {"{\"",
                                             "\":",
                                             "\", \"",
                                             "\"}",
                                             "},",
                                             "]}",
                                             "true",
                                             "null",
                                             "aa",
                                             "aaaa",
                                             "ab",
                                             "ba",
                                             "aaaaaaaaaaaaaaaaaaaaaaaa",
                                             "  ",
                                             "\n  ",
                                             "abc",
                                             "\xc3\xa9",
                                             "\xe6\xbc",
                                             "\xbc\xa2",
                                             "\xf0\x9f\x98",
                                             "x\xe6",
                                             "0",
                                             "00",
                                             "12345678901234567890"};
    static char bytes[256];
    static struct grammar_token tokens[N_VOCAB];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token){.bytes = bytes + i, .n_bytes = 1};
    }
    for (int i = 0; i < WORDS; i++)
        tokens[256 + i] = (struct grammar_token){
            .bytes = words[i], .n_bytes = (uint32_t)strlen(words[i]), .is_end = i == 7};
    must(grammar_vocab_open(tokens, 256 + WORDS, N_VOCAB, &vocab) == 0);
}

static int has(const struct grammar_mask *m, uint32_t id)
{
    return (m->bits[id >> 6] >> (id & 63) & 1) != 0;
}

/* Returns 1 with the mask, 0 when the grammar has too many parses or takes too long for a
 * fuzzer. */
static int get_mask(struct grammar_run *run, uint32_t draft, int64_t piece,
                    struct grammar_mask *mask)
{
    for (int i = 0; i < PIECES_MAX; i++) {
        int64_t budget = piece;
        int rc = grammar_mask(run, draft, &budget, mask);
        if (rc != 0) {
            must(rc == 1 || rc == -E2BIG || rc == -ENOMEM);
            return rc == 1;
        }
        must(budget <= 0);
    }
    return 0;
}

/* Checks every token alone. Returns 0 when one cannot be decided. */
static int check_mask(struct grammar_run *run, const struct grammar_mask *mask)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        int want;
        if (id == 256 + 7) { /* the end */
            want = grammar_may_end(run);
        } else {
            int rc = grammar_draft(run, id);
            if (rc != 0 && rc != -EPERM)
                return 0;
            want = rc == 0;
            grammar_keep(run, 0);
        }
        must(has(mask, id) == want);
        n += (uint32_t)want;
    }
    must(n == mask->n_allowed);
    return 1;
}

static void follow(struct grammar *g, const uint8_t *what, size_t n)
{
    struct grammar_run run, twin;
    struct grammar_mask mask, again;
    grammar_begin(g, n > 0 && what[0] & 1, &run);
    grammar_begin(g, false, &twin);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint8_t act = step < n ? what[step] : (uint8_t)(37 * step);
        int64_t piece = act & 2 ? 1 + act / 4 : 100000;
        if (!get_mask(&run, 0, piece, &mask) || !check_mask(&run, &mask))
            break;
        if (act % 7 == 0 && grammar_sweep(g, &(int64_t){0}) != 0)
            break;
        must(get_mask(&run, 0, 100000, &again) && again.n_allowed == mask.n_allowed);
        grammar_release(g);
        if (again.n_allowed == 0)
            break;
        uint32_t id = (uint32_t)act * 5 % N_VOCAB;
        while (!has(&again, id))
            id = (id + 1) % N_VOCAB;
        int rc = grammar_accept(&run, id);
        must(rc == 0 || rc == -E2BIG || rc == -ENOMEM);
        if (rc != 0 || id == 256 + 7 || grammar_must_end(&run))
            break;
    }
    grammar_end(&twin);
    grammar_end(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t bytes = zero ? (size_t)(zero - data) : size;
    char *text = malloc(bytes + (bytes == 0)); /* exact: a read past the end is seen */
    char err[200] = "";
    struct grammar *g;

    if (!vocab)
        open_vocab();
    must(text != NULL);
    memcpy(text, data, bytes);
    int rc = grammar_open(vocab, text, bytes, &g, err, sizeof(err));
    free(text);
    if (rc == 0) {
        follow(g, zero ? zero + 1 : NULL, zero ? size - bytes - 1 : 0);
        grammar_close(g);
    } else {
        must(rc == -ENOMEM || (rc == -EINVAL && !strncmp(err, "grammar line ", 13)));
        must(strchr(err, '\n') == NULL);
    }
    return 0;
}
