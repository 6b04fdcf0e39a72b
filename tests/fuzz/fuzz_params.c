/* Fuzzes the parameter block: the input is a block, or, with bit 0 of its first byte set, changes
 * to a valid one, three bytes each: {u16 position, u8 value}. A decoded block must point inside the
 * block, be in range, and encode to the same bytes again. */
#include "ipc/params.h"

#include <stdlib.h>
#include <string.h>

#define N_VOCAB 512u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static size_t valid_block(uint8_t *block, size_t capacity)
{
    static const struct params_bias bias[] = {{3, 1.5f}, {511, -100.0f}};
    static const uint32_t tokens[] = {2, 500, 7}, lengths[] = {2, 5};
    static const uint8_t text[] = "\n\nclass root";
    static const struct params_mark marks[] = {
        {.kind = PARAMS_MARK_THOUGHT, .bytes = 3, .tokens = 9, .text = "<t>"},
        {.kind = PARAMS_MARK_THOUGHT_END, .bytes = 4, .text = "</t>"}};
    struct params p;
    char line[200];
    int n;

    params_default(&p);
    p.n_bias = 2;
    p.bias = bias;
    p.n_stop_tokens = p.n_guess = 3;
    p.stop_tokens = p.guess = tokens;
    p.n_marks = 2;
    p.marks = marks;
    p.n_closing = 1;
    p.closing = tokens;
    p.n_stop_texts = 2;
    p.stop_text_lengths = lengths;
    p.stop_text_bytes = 7;
    p.stop_texts = text;
    p.grammar_bytes = 4;
    p.grammar = text + 8;
    n = params_encode(&p, block, (uint32_t)capacity, line, sizeof(line));
    must(n > 0);
    return (size_t)n;
}

static void check(const uint8_t *block, size_t bytes)
{
    struct params p;
    char line[200] = "";
    uint64_t sum = 0;
    uint8_t *again;

    if (params_decode(block, (uint32_t)bytes, N_VOCAB, &p, line, sizeof(line)) != 0) {
        must(line[0] != 0 && strchr(line, '\n') == NULL);
        return;
    }
    for (uint32_t i = 0; i < p.n_stop_tokens; i++)
        must(p.stop_tokens[i] < N_VOCAB);
    for (uint32_t i = 0; i < p.n_guess; i++)
        must(p.guess[i] < N_VOCAB);
    for (uint32_t i = 0; i < p.n_marks; i++)
        must(p.marks[i].bytes >= 1 && p.marks[i].bytes <= PARAMS_MARK_BYTES);
    for (uint32_t i = 0; i < p.n_closing; i++)
        must(p.closing[i] < N_VOCAB);
    for (uint32_t i = 0; i < p.n_stop_texts; i++)
        sum += p.stop_text_lengths[i];
    must(sum == p.stop_text_bytes && p.grammar + p.grammar_bytes <= block + bytes);
    must(p.temperature >= 0 && p.top_p <= 1 && p.logprobs <= PARAMS_LOGPROBS_MAX);
    again = malloc(bytes);
    must(again != NULL);
    must(params_encode(&p, again, (uint32_t)bytes, line, sizeof(line)) == (int)bytes);
    must(memcmp(again, block, bytes) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _Alignas(8) uint8_t made[1024];
    size_t bytes = size > 0 ? size - 1 : 0;
    const uint8_t *from = data + 1;
    uint8_t *block;

    if (size == 0)
        return 0;
    if (data[0] & 1) {
        size_t n = valid_block(made, sizeof(made));

        for (size_t i = 0; i + 3 <= bytes; i += 3)
            made[((size_t)from[i] << 8 | from[i + 1]) % n] = from[i + 2];
        bytes = n;
        from = made;
    }
    block = malloc(bytes + (bytes == 0)); /* exact: a read past the end is seen; aligned to 16 */
    must(block != NULL);
    memcpy(block, from, bytes);
    check(block, bytes);
    free(block);
    return 0;
}
