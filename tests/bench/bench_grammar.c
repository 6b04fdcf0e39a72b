/* bench_grammar: the cost of a grammar per token, on the vocabularies of real models.
 *
 *   bench_grammar VOCABULARY.gguf...
 *
 * Documents of a JSON schema are cut into the longest tokens of the vocabulary and followed as an
 * answer would be: a mask, then the token. "usual" is many answers with one grammar, including
 * the first one's masks; "first" is each answer with a freshly compiled grammar. The floor is a
 * copy of one mask. Then the vocabulary's trie, once per model.
 */
#include "client/hearth.h"
#include "daemon/model/loaded_model.h"
#include "kernels/gguf/gguf.h"
#include "kernels/gguf/gguf_vocab.h"
#include "tests/bench/bench.h"
#include "tests/random.h"
#include "tests/rig/grammar_whole.h"

#include <stdlib.h>
#include <string.h>

enum { DOCUMENTS = 200, FRESH = 12, SAMPLES = 1 << 18, TEXT = 1 << 14, COPIES = 4096 };

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"name\":{\"type\":\"string\"},"
    "\"kind\":{\"enum\":[\"house\",\"shop\",\"school\"]},"
    "\"built\":{\"type\":\"integer\"},"
    "\"height\":{\"type\":\"number\"},"
    "\"open\":{\"type\":\"boolean\"},"
    "\"code\":{\"type\":\"string\",\"maxLength\":60},"
    "\"rooms\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
    "\"name\":{\"type\":\"string\"},\"size\":{\"type\":\"number\"},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"
    "\"required\":[\"name\",\"size\",\"tags\"]}}},"
    "\"required\":[\"name\",\"kind\",\"built\",\"height\",\"open\",\"code\",\"rooms\"]}";

static struct bench_samples samples;
static volatile uint64_t sink;

static void fail(const char *what)
{
    fprintf(stderr, "bench_grammar: %s\n", what);
    exit(1);
}

/* ---- the vocabulary -------------------------------------------------------------------------- */

static struct vocab_string *strings(const struct gguf_string *from, uint32_t n)
{
    struct vocab_string *to = calloc(n + 1, sizeof(*to));
    for (uint32_t i = 0; to && i < n; i++)
        to[i] = (struct vocab_string){from[i].data, from[i].bytes};
    return to;
}

static void open_vocab(const char *path, struct vocab *vocab)
{
    char err[400] = "no memory";
    struct gguf *gguf;
    struct gguf_vocab file;
    struct vocab_desc desc;
    void *block;
    size_t bytes;
    if (gguf_open(path, &gguf, err, sizeof(err)) < 0 ||
        gguf_vocab_open(gguf, &file, err, sizeof(err)) < 0)
        fail(err);
    vocab_desc_init(&desc);
    desc.model = (struct vocab_string){file.model.data, file.model.bytes};
    desc.pre = (struct vocab_string){file.pre.data, file.pre.bytes};
    desc.n_tokens = file.n_tokens;
    desc.types = file.types;
    desc.scores = file.scores;
    desc.n_merges = file.n_merges;
    desc.texts = strings(file.tokens, file.n_tokens);
    desc.merges = strings(file.merges, file.n_merges);
    desc.roles[VOCAB_BOS] = file.ids.bos;
    desc.roles[VOCAB_EOS] = file.ids.eos;
    if (!desc.texts || !desc.merges || vocab_build(&desc, &block, &bytes, err, sizeof(err)) < 0 ||
        vocab_open(block, bytes, vocab, err, sizeof(err)) < 0)
        fail(err);
    free((void *)desc.texts);
    free((void *)desc.merges);
    gguf_vocab_close(&file);
    gguf_close(gguf);
}

/* ---- documents ------------------------------------------------------------------------------- */

static size_t add_string(char *text, uint32_t *state, uint32_t most)
{
    static const char *const words[] = {
        "the ",       "old ", "house ", "caf\xc3\xa9 ", "\xe6\xbc\xa2\xe5\xad\x97",
        "of ",        "Xq7_", "\\\"",   "\\n",          "water",
        "\xc3\xb6l ", "12 "};
    size_t n = 1;
    text[0] = '"';
    for (uint32_t k = next_random(state) % most; k > 0; k--)
        n += (size_t)sprintf(text + n, "%s", words[next_random(state) % 12]);
    text[n++] = '"';
    return n;
}

static size_t make_document(char *text, uint32_t *state)
{
    static const char *const kinds[] = {"house", "shop", "school"};
    size_t n = (size_t)sprintf(text, "{\"name\": ");
    n += add_string(text + n, state, 8);
    n += (size_t)sprintf(
        text + n, ", \"kind\": \"%s\", \"built\": %u, \"height\": %u.%u, \"open\": %s, \"code\": ",
        kinds[next_random(state) % 3], next_random(state) % 2000, next_random(state) % 90,
        next_random(state) % 100, next_random(state) % 2 ? "true" : "false");
    n += add_string(text + n, state, 6);
    n += (size_t)sprintf(text + n, ", \"rooms\": [");
    for (uint32_t i = 0, rooms = next_random(state) % 5; i < rooms; i++) {
        n += (size_t)sprintf(text + n, "%s{\"name\": ", i ? ", " : "");
        n += add_string(text + n, state, 12);
        n += (size_t)sprintf(text + n, ", \"size\": %u, \"tags\": [", next_random(state) % 50);
        for (uint32_t k = 0, tags = next_random(state) % 4; k < tags; k++) {
            n += (size_t)sprintf(text + n, "%s", k ? ", " : "");
            n += add_string(text + n, state, 5);
        }
        n += (size_t)sprintf(text + n, "]}");
    }
    return n + (size_t)sprintf(text + n, "]}");
}

/* The longest allowed token that continues the text, or the vocabulary's size. */
static uint32_t next_token(const struct vocab *vocab, const struct grammar_mask *mask,
                           const char *text, size_t bytes)
{
    uint32_t best = vocab->n_tokens, longest = 0, n;
    for (uint32_t id = 0; id < vocab->n_tokens; id++) {
        if (!(mask->bits[id >> 6] >> (id & 63) & 1))
            continue;
        const char *at = vocab_bytes(vocab, id, &n);
        if (n > longest && n <= bytes && !memcmp(at, text, n)) {
            best = id;
            longest = n;
        }
    }
    return best;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Follows one document and adds a sample for each token. Returns the number of tokens. */
static uint32_t follow(struct grammar *g, const struct vocab *vocab, const char *text, size_t bytes)
{
    struct grammar_run run;
    struct grammar_mask mask;
    uint32_t tokens = 0, n;
    grammar_begin(g, false, &run);
    for (size_t at = 0; at < bytes; at += n, tokens++) {
        int64_t budget = INT64_MAX;
        uint64_t begin = bench_ticks();
        int rc = grammar_mask(&run, 0, &budget, &mask);
        uint64_t spent = bench_ticks() - begin;
        uint32_t id = rc == 1 ? next_token(vocab, &mask, text + at, bytes - at) : vocab->n_tokens;
        if (id == vocab->n_tokens)
            fail("a document is none of its grammar");
        begin = bench_ticks();
        grammar_release(g);
        rc = grammar_accept(&run, id);
        spent += bench_ticks() - begin;
        if (rc < 0)
            fail("an allowed token is refused");
        bench_add(&samples, spent);
        vocab_bytes(vocab, id, &n);
    }
    if (!grammar_may_end(&run))
        fail("a document is not a complete sentence");
    grammar_end(&run);
    return tokens;
}

static double mask_floor(uint32_t n_vocab)
{
    size_t bytes = (n_vocab + 63) / 64 * 8;
    uint64_t *from = calloc(1, bytes), *to = calloc(1, bytes);
    if (!from || !to)
        fail("no memory");
    uint64_t begin = bench_ticks();
    for (int i = 0; i < COPIES; i++) {
        from[i % 8] ^= (uint64_t)i;
        memcpy(to, from, bytes);
        sink += to[i % 8];
    }
    double us = (double)(bench_ticks() - begin) * bench_tick_ns() * 1e-3 / COPIES;
    free(from);
    free(to);
    return us;
}

static void print(const char *what, double floor_us, double target_p50, const char *model,
                  uint32_t tokens)
{
    char note[160];
    snprintf(note, sizeof(note), "%s, %u tokens, worst %.0f us", model, tokens,
             bench_percentile_us(&samples, 100));
    bench_print_samples((struct bench_row){.bench = "grammar",
                                           .what = what,
                                           .floor_us = floor_us,
                                           .target_p50_us = target_p50,
                                           .note = note},
                        &samples);
    samples.n = 0;
}

static struct grammar *compile(const struct grammar_vocab *v, const char *text, size_t bytes)
{
    struct grammar *g;
    char err[300];
    if (grammar_open(v, text, bytes, &g, err, sizeof(err)) < 0)
        fail(err);
    return g;
}

static void measure(const struct vocab *vocab, const struct grammar_vocab *v, const char *name)
{
    static char text[TEXT], grammar[1 << 16];
    char err[300];
    double floor_us = mask_floor(vocab->n_tokens);
    uint32_t state = 1, tokens = 0;
    int64_t bytes =
        hearth_schema(schema, sizeof(schema) - 1, grammar, sizeof(grammar), err, sizeof(err));
    if (bytes < 0 || (size_t)bytes >= sizeof(grammar))
        fail(err);
    struct grammar *g = compile(v, grammar, (size_t)bytes);
    for (int i = 0; i < DOCUMENTS; i++)
        tokens += follow(g, vocab, text, make_document(text, &state));
    fprintf(stderr, "grammar of %lld bytes: %zu KiB after %d answers\n", (long long)bytes,
            grammar_memory(g) >> 10, DOCUMENTS);
    grammar_close(g);
    print("a token, usual", floor_us, 50, name, tokens);
    tokens = 0;
    for (int i = 0; i < FRESH; i++) {
        g = compile(v, grammar, (size_t)bytes);
        tokens += follow(g, vocab, text, make_document(text, &state));
        grammar_close(g);
    }
    print("a token, first answer", floor_us, 0, name, tokens);
    for (int i = 0; i < DOCUMENTS; i++) {
        uint64_t begin = bench_ticks();
        g = compile(v, grammar, (size_t)bytes);
        bench_add(&samples, bench_ticks() - begin);
        grammar_close(g);
    }
    print("compile", 0, 0, name, 0);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_grammar VOCABULARY.gguf...\n");
        return 64;
    }
    if (bench_samples_open(&samples, SAMPLES) < 0)
        fail("no memory");
    for (int i = 1; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/');
        struct vocab vocab;
        struct grammar_vocab *v;
        open_vocab(argv[i], &vocab);
        for (int k = 0; k < 5; k++) {
            uint64_t begin = bench_ticks();
            if (loaded_vocab_of_grammars(&vocab, vocab.n_tokens, &v) < 0)
                fail("no memory");
            bench_add(&samples, bench_ticks() - begin);
            if (k < 4)
                grammar_vocab_close(v);
        }
        fprintf(stderr, "%s: %u tokens, trie of %zu KiB\n", argv[i], vocab.n_tokens,
                grammar_vocab_memory(v) >> 10);
        print("the vocabulary's trie", 0, 0, slash ? slash + 1 : argv[i], vocab.n_tokens);
        measure(&vocab, v, slash ? slash + 1 : argv[i]);
        grammar_vocab_close(v);
    }
    bench_samples_close(&samples);
    return 0;
}
