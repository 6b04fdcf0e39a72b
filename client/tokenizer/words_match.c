/* words_match: see words_match.h. */
#include "client/tokenizer/words_match.h"

#include "client/base/unicode.h"

#define CLASS(name) (1u << UNICODE_##name)

enum {
    LETTER = CLASS(LU) | CLASS(LL) | CLASS(LT) | CLASS(LM) | CLASS(LO), /* \p{L} */
    NUMBER = CLASS(N),                                                  /* \p{N} */
    MARK = CLASS(M),
    SPACE = CLASS(SPACE), /* \s */
    PUNCTUATION = CLASS(P),
    SYMBOL = CLASS(S),
    UPPER = CLASS(LU) | CLASS(LT) | CLASS(LM) | CLASS(LO) | CLASS(M), /* [\p{Lu}\p{Lt}\p{Lm}...] */
    LOWER = CLASS(LL) | CLASS(LM) | CLASS(LO) | CLASS(M), /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    ANY = 0x7ff,
    SIGN = ANY & ~(LETTER | NUMBER | SPACE), /* [^\s\p{L}\p{N}] */
};

/* A matcher that is one expression. */
#define MATCHER(name, expression)                                                                  \
    size_t words_match_##name(const uint32_t *c, size_t begin, size_t at, size_t end)              \
    {                                                                                              \
        (void)begin;                                                                               \
        (void)end;                                                                                 \
        return expression;                                                                         \
    }

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Ascending, inclusive. */
struct range {
    uint32_t first, last;
};

static bool in_ranges(uint32_t letter, const struct range *ranges, size_t n)
{
    uint32_t code = letter_code(letter);
    if (code < ranges[0].first) /* most text */
        return false;
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && code >= ranges[low].first;
}

static size_t run(const uint32_t *c, size_t at, size_t end, uint32_t classes)
{
    while (at < end && letter_in(c[at], classes))
        at++;
    return at;
}

static bool is_newline(uint32_t letter)
{
    return letter_code(letter) == '\n' || letter_code(letter) == '\r';
}

static bool is_ascii_letter(uint32_t letter)
{
    uint32_t lower = letter_code(letter) | 0x20u;
    return lower >= 'a' && lower <= 'z';
}

/* 's|'t|'re|'ve|'m|'ll|'d, ignoring case if `fold`: then U+017F (long s) is an s, too. */
static size_t contraction(const uint32_t *c, size_t at, size_t end, bool fold)
{
    if (end - at < 2 || letter_code(c[at]) != '\'')
        return at;
    uint32_t bit = fold ? 0x20u : 0;
    uint32_t a = letter_code(c[at + 1]) | bit;
    if (a == 's' || a == 't' || a == 'm' || a == 'd' || (fold && a == 0x17f))
        return at + 2;
    if (end - at < 3)
        return at;
    uint32_t b = letter_code(c[at + 2]) | bit;
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? at + 3 : at;
}

/* \s+(?!\S)|\s+: a space before a word is left to it. */
static size_t spaces(const uint32_t *c, size_t at, size_t end)
{
    size_t stop = run(c, at, end, SPACE);
    return stop < end && stop - at > 1 ? stop - 1 : stop;
}

/* \s*[\r\n]+, which is \s*[\r\n] as well */
static size_t lines(const uint32_t *c, size_t at, size_t end)
{
    size_t stop = run(c, at, end, SPACE);
    while (stop > at && !is_newline(c[stop - 1]))
        stop--;
    return stop;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t lines_or_spaces(const uint32_t *c, size_t at, size_t end)
{
    size_t stop = lines(c, at, end);
    return stop > at ? stop : spaces(c, at, end);
}

/* " ?[classes]+" */
static size_t signs(const uint32_t *c, size_t at, size_t end, uint32_t classes)
{
    size_t first = at + (letter_code(c[at]) == ' ');
    size_t stop = run(c, first, end, classes);
    return stop > first ? stop : at;
}

/* " ?[classes]+[\r\n]*", and "/" among the newlines if `slash`. */
static size_t signs_and_lines(const uint32_t *c, size_t at, size_t end, uint32_t classes,
                              bool slash)
{
    size_t stop = signs(c, at, end, classes);
    if (stop == at)
        return at;
    while (stop < end && (is_newline(c[stop]) || (slash && letter_code(c[stop]) == '/')))
        stop++;
    return stop;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t words_match_gpt2(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t stop = contraction(c, at, end, false);
    if (stop > at)
        return stop;
    size_t first = at + (letter_code(c[at]) == ' ' && at + 1 < end);
    static const uint32_t kinds[] = {LETTER, NUMBER, SIGN};
    for (int i = 0; i < 3; i++) {
        if (letter_in(c[first], kinds[i]))
            return run(c, first, end, kinds[i]);
    }
    return spaces(c, at, end);
}

/* [^\r\n\p{L}\p{N}]?[letters]+|\p{N}{1,digits} */
static size_t word_or_number(const uint32_t *c, size_t at, size_t end, size_t digits,
                             uint32_t letters)
{
    if (letter_in(c[at], letters))
        return run(c, at, end, letters);
    if (letter_in(c[at], NUMBER))
        return run(c, at, end - at < digits ? end : at + digits, NUMBER);
    if (!is_newline(c[at]) && at + 1 < end && letter_in(c[at + 1], letters))
        return run(c, at + 1, end, letters);
    return at;
}

/* word_or_number| ?[^\s\p{N}letters]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_plain(const uint32_t *c, size_t at, size_t end, size_t digits, uint32_t letters)
{
    size_t stop = word_or_number(c, at, end, digits, letters);
    if (stop == at)
        stop = signs_and_lines(c, at, end, ANY & ~(letters | NUMBER | SPACE), false);
    return stop > at ? stop : lines_or_spaces(c, at, end);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|match_plain */
static size_t match_llama(const uint32_t *c, size_t at, size_t end, size_t digits, uint32_t letters)
{
    size_t stop = contraction(c, at, end, true);
    return stop > at ? stop : match_plain(c, at, end, digits, letters);
}

MATCHER(llama3, match_llama(c, at, end, 3, LETTER))
MATCHER(qwen2, match_llama(c, at, end, 1, LETTER))
MATCHER(qwen35, match_llama(c, at, end, 1, LETTER | MARK))
MATCHER(ufakzeka, match_plain(c, at, end, 1, LETTER))

/* As Qwen 2, without newlines after signs. */
size_t words_match_seed_coder(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t stop = contraction(c, at, end, true);
    if (stop == at)
        stop = word_or_number(c, at, end, 1, LETTER);
    if (stop == at)
        stop = signs(c, at, end, SIGN);
    return stop > at ? stop : lines_or_spaces(c, at, end);
}

/* \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s */
static size_t blocks_of_spaces(const uint32_t *c, size_t at, size_t end)
{
    enum { LARGEST = 512 };
    size_t limit = end - at <= LARGEST ? end : at + LARGEST + 1;
    size_t stop = run(c, at, limit, SPACE), n = stop - at;
    if (n == 0)
        return at;
    size_t most = stop == end ? n : n > 1 ? n - 1 : 1; /* the last is left to a word */
    size_t block = LARGEST;
    while (block > most)
        block /= 2;
    return at + block;
}

/* As Llama 3, with runs of spaces cut into blocks. After a space that ends no line the rest of the
 * run has no newline: it is not looked through again. */
size_t words_match_jais2(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    size_t stop = contraction(c, at, end, true);
    if (stop == at)
        stop = word_or_number(c, at, end, 3, LETTER);
    if (stop == at)
        stop = signs_and_lines(c, at, end, SIGN, false);
    if (stop > at)
        return stop;
    bool looked = at > begin && letter_in(c[at - 1], SPACE) && !is_newline(c[at - 1]);
    stop = looked ? at : lines(c, at, end);
    return stop > at ? stop : blocks_of_spaces(c, at, end);
}

/* (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ */
static size_t spaced_words(const uint32_t *c, size_t at, size_t end)
{
    while (at < end && letter_in(c[at], LETTER)) {
        at = run(c, at + 1, end, MARK);
        if (at + 1 < end && letter_code(c[at]) == ' ' && letter_in(c[at + 1], LETTER))
            at++;
    }
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?spaced_words|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|
 * \s*[\r\n]|\s+(?!\S)|\s+ */
size_t words_match_exaone_moe(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t stop = contraction(c, at, end, true);
    if (stop > at)
        return stop;
    if (letter_in(c[at], NUMBER))
        return at + 1;
    size_t first = at + !(is_newline(c[at]) || letter_in(c[at], LETTER));
    stop = spaced_words(c, first, end);
    if (stop > first)
        return stop;
    stop = signs(c, at, end, SIGN);
    if (stop > at)
        return stop + (stop < end && is_newline(c[stop]));
    return lines_or_spaces(c, at, end);
}

/* \p{Han} */
static bool is_han(uint32_t letter)
{
    static const struct range ranges[] = {
        {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},
        {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},
        {0x4e00, 0x9fff},   {0xf900, 0xfa6d},   {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3},
        {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739}, {0x2b740, 0x2b81d},
        {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
        {0x30000, 0x3134a}, {0x31350, 0x323af},
    };
    return in_ranges(letter, ranges, COUNT(ranges));
}

/* What a word of letters with case is made of. */
struct casing {
    size_t digits;    /* together at most */
    bool contracted;  /* a contraction belongs to its word */
    bool slash;       /* goes with the newlines after signs */
    bool without_han; /* Han letters are words of their own */
};

static bool in_word(uint32_t letter, uint32_t classes, const struct casing *k)
{
    return letter_in(letter, classes) && !(k->without_han && is_han(letter));
}

static size_t run_word(const uint32_t *c, size_t at, size_t end, uint32_t classes,
                       const struct casing *k)
{
    while (at < end && in_word(c[at], classes, k))
        at++;
    return at;
}

/* [UPPER]*[LOWER]+, where letters without case are in both sets: greedy, then back to the last
 * letter that LOWER can have. */
static size_t upper_then_lower(const uint32_t *c, size_t at, size_t end, const struct casing *k)
{
    size_t stop = run_word(c, at, end, UPPER, k);
    if (stop < end && in_word(c[stop], LOWER, k))
        return run_word(c, stop, end, LOWER, k);
    while (stop > at && !letter_in(c[stop - 1], LOWER))
        stop--;
    return stop;
}

/* [UPPER]+[LOWER]* */
static size_t upper_first(const uint32_t *c, size_t at, size_t end, const struct casing *k)
{
    size_t stop = run_word(c, at, end, UPPER, k);
    return stop > at ? run_word(c, stop, end, LOWER, k) : at;
}

/* [^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+ or else [^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]* */
static size_t cased_word(const uint32_t *c, size_t at, size_t end, const struct casing *k)
{
    bool prefix = !is_newline(c[at]) && !letter_in(c[at], LETTER | NUMBER);
    size_t (*const shapes[])(const uint32_t *, size_t, size_t,
                             const struct casing *) = {upper_then_lower, upper_first};
    for (int i = 0; i < 2; i++) {
        for (size_t skip = prefix; skip <= 1; skip--) { /* with the prefix, then without */
            size_t stop = shapes[i](c, at + skip, end, k);
            if (stop > at + skip)
                return stop;
        }
    }
    return at;
}

/* cased_word, then its contraction if any | \p{N}{1,digits} | ?[^\s\p{L}\p{N}]+[\r\n/]* |
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_cased(const uint32_t *c, size_t at, size_t end, const struct casing *k)
{
    size_t stop = cased_word(c, at, end, k);
    if (stop > at)
        return k->contracted ? contraction(c, stop, end, true) : stop;
    if (letter_in(c[at], NUMBER))
        return run(c, at, end - at < k->digits ? end : at + k->digits, NUMBER);
    stop = signs_and_lines(c, at, end, SIGN, k->slash);
    return stop > at ? stop : lines_or_spaces(c, at, end);
}

MATCHER(tekken, match_cased(c, at, end, &(struct casing){.digits = 1, .slash = true}))
MATCHER(gpt4o,
        match_cased(c, at, end, &(struct casing){.digits = 3, .contracted = true, .slash = true}))
MATCHER(youtu,
        match_cased(c, at, end, &(struct casing){.digits = 1, .contracted = true, .slash = true}))

/* \p{Han}+|as GPT-4o without Han letters and without slashes after signs */
size_t words_match_kimi_k2(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t stop = at;
    while (stop < end && is_han(c[stop]))
        stop++;
    if (stop > at)
        return stop;
    return match_cased(c, at, end,
                       &(struct casing){.digits = 3, .contracted = true, .without_han = true});
}

/* [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ */
static size_t deepseek_word(const uint32_t *c, size_t at, size_t end)
{
    uint32_t word = LETTER | MARK;
    if (letter_code(c[at]) < 0x80 && letter_in(c[at], PUNCTUATION | SYMBOL)) {
        size_t stop = at + 1;
        while (stop < end && is_ascii_letter(c[stop]))
            stop++;
        if (stop > at + 1)
            return stop;
    }
    if (letter_in(c[at], word))
        return run(c, at, end, word);
    bool prefix = !is_newline(c[at]) && !letter_in(c[at], PUNCTUATION | SYMBOL);
    if (prefix && at + 1 < end && letter_in(c[at + 1], word))
        return run(c, at + 1, end, word);
    return at;
}

/* deepseek_word| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
size_t words_match_deepseek_v3(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t stop = deepseek_word(c, at, end);
    if (stop == at)
        stop = signs_and_lines(c, at, end, PUNCTUATION | SYMBOL, false);
    return stop > at ? stop : lines_or_spaces(c, at, end);
}

/* deepseek_word| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+ */
size_t words_match_spark(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t stop = deepseek_word(c, at, end);
    if (stop == at)
        stop = signs(c, at, end, PUNCTUATION | SYMBOL);
    if (stop > at)
        return stop;
    return is_newline(c[at]) ? at + 1 : spaces(c, at, end);
}

/* [^\n]+|\n+ */
size_t words_match_line(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    bool newline = letter_code(c[at]) == '\n';
    while (at < end && (letter_code(c[at]) == '\n') == newline)
        at++;
    return at;
}

MATCHER(newline, at + is_newline(c[at]))
MATCHER(digit, at + letter_in(c[at], NUMBER))
MATCHER(digits, run(c, at, end, NUMBER))
MATCHER(three_digits, run(c, at, end - at < 3 ? end : at + 3, NUMBER))

/* A stage before this one has made each piece digits alone, or without any. */
size_t words_match_digit_groups(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t lead = (end - at) % 3;
    return letter_in(c[at], NUMBER) ? at + (lead > 0 ? lead : 3) : at;
}

size_t words_match_ascii_triple(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    if (end - at < 3)
        return at;
    for (size_t i = at; i < at + 3; i++) {
        if (letter_code(c[i]) < '0' || letter_code(c[i]) > '9')
            return at;
    }
    return at + 3;
}

/* \s?[classes]+ */
static size_t spaced_run(const uint32_t *c, size_t at, size_t end, uint32_t classes)
{
    size_t first = at + letter_in(c[at], SPACE);
    size_t stop = run(c, first, end, classes);
    return stop > first ? stop : at;
}

MATCHER(letters, spaced_run(c, at, end, LETTER))
MATCHER(punctuation, spaced_run(c, at, end, PUNCTUATION))

static bool is_sign(uint32_t letter)
{
    bool ascii_symbol = letter_code(letter) < 0x80 && letter_in(letter, SYMBOL);
    return ascii_symbol || letter_in(letter, PUNCTUATION);
}

size_t words_match_signs(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    while (at < end && is_sign(c[at]))
        at++;
    return at;
}

size_t words_match_plain_signs(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    while (at < end && is_sign(c[at]) && letter_code(c[at]) != '`')
        at++;
    return at;
}

/*  ?[^(\s|.,!?...)]+ */
static bool ends_bloom_word(uint32_t letter)
{
    static const uint32_t signs[] = {'(',    '|',    '.',    ',',    '!',   '?',   ')',
                                     0x2026, 0x3002, 0xff0c, 0x3001, 0x964, 0x6d4, 0x60c};
    for (size_t i = 0; i < COUNT(signs); i++) {
        if (letter_code(letter) == signs[i])
            return true;
    }
    return letter_in(letter, SPACE);
}

size_t words_match_bloom(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    size_t first = at + (letter_code(c[at]) == ' '), stop = first;
    while (stop < end && !ends_bloom_word(c[stop]))
        stop++;
    return stop > first ? stop : at;
}

/* Looked at once for each run of spaces: its first place matches all of it or none does. */
size_t words_match_last_space(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    if (at > begin && letter_in(c[at - 1], SPACE))
        return at;
    return run(c, at, end, SPACE) == end ? end : at;
}

static size_t run_ranges(const uint32_t *c, size_t at, size_t end, const struct range *ranges,
                         size_t n)
{
    while (at < end && in_ranges(c[at], ranges, n))
        at++;
    return at;
}

/* \s?[ranges]+. A space that is itself in the ranges begins the run either way. */
static size_t spaced_run_ranges(const uint32_t *c, size_t at, size_t end,
                                const struct range *ranges, size_t n)
{
    size_t stop = run_ranges(c, at, end, ranges, n);
    if (stop > at || !letter_in(c[at], SPACE))
        return stop;
    stop = run_ranges(c, at + 1, end, ranges, n);
    return stop > at + 1 ? stop : at;
}

/* The letters of scripts with case, as DeepSeek LLM's pre-tokenizer lists them. */
static const struct range cased[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},
    {0xd8, 0xf6},       {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},
    {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x377},     {0x37b, 0x37d},
    {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},     {0x38c, 0x38c},
    {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},
    {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},
    {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},
    {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},
    {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},
    {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},
    {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},
    {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};

static const struct range wide_punctuation[] = {
    {'!', '/'}, {':', '~'}, {0x2018, 0x201f}, {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e},
};
static const struct range cjk[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
static const struct range kana[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
static const struct range asian[] = {
    {0x0e40, 0x0eff}, {0x1000, 0x109f}, {0x1100, 0x11ff}, {0x1780, 0x17ff}, {0x2f00, 0x2fdf},
    {0x3040, 0x30ff}, {0x3400, 0x4dbf}, {0x4e00, 0xfaff}, {0xff65, 0xff9f},
};
MATCHER(cased_letters, spaced_run_ranges(c, at, end, cased, COUNT(cased)))
MATCHER(wide_punctuation, spaced_run_ranges(c, at, end, wide_punctuation, COUNT(wide_punctuation)))
MATCHER(cjk, run_ranges(c, at, end, cjk, COUNT(cjk)))
MATCHER(kana, run_ranges(c, at, end, kana, COUNT(kana)))
MATCHER(asian, run_ranges(c, at, end, asian, COUNT(asian)))

/* [U+AC00-U+D7A3 U+3131-U+318E]+|[wide signs]+|[U+3105-U+312F]+|words_match_kana */
size_t words_match_youtu_scripts(const uint32_t *c, size_t begin, size_t at, size_t end)
{
    (void)begin;
    static const struct range korean[] = {{0x3131, 0x318e}, {0xac00, 0xd7a3}};
    static const struct range wide_signs[] = {
        {0x2014, 0x2014}, {0x2018, 0x2019}, {0x201c, 0x201d}, {0x2026, 0x2026}, {0x3001, 0x303f},
        {0xfe30, 0xfe4f}, {0xff01, 0xff01}, {0xff0c, 0xff0c}, {0xff1a, 0xff1b},
    };
    static const struct range bopomofo[] = {{0x3105, 0x312f}};
    size_t stop = run_ranges(c, at, end, korean, COUNT(korean));
    if (stop == at)
        stop = run_ranges(c, at, end, wide_signs, COUNT(wide_signs));
    if (stop == at)
        stop = run_ranges(c, at, end, bopomofo, COUNT(bopomofo));
    return stop > at ? stop : words_match_kana(c, begin, at, end);
}
