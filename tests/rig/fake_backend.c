/* The fake device: checks the pass, then folds tokens. */
#include "tests/rig/fake_backend.h"

#include "kernels/kv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "fake backend: the pass breaks `%s` (line %d)\n", #condition,          \
                    __LINE__);                                                                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { PAGE = BACKEND_PAGE_POSITIONS };

struct backend *fake_backend(struct fake *fake)
{
    return (struct backend *)(void *)fake;
}

static struct fake *fake_of(struct backend *backend)
{
    return (struct fake *)(void *)backend;
}

static uint32_t pages_of(const struct fake *fake, enum page_class class)
{
    return class == PAGES_WINDOW ? fake->limits.window_pages : fake->limits.pages;
}

int fake_init(struct fake *fake, const struct backend_limits *limits)
{
    *fake =
        (struct fake){.limits = *limits, .end_at = FAKE_NEVER, .poison = FAKE_NEVER, .error = ""};
    for (int c = 0; c < PAGE_CLASSES; c++) {
        uint32_t pages = pages_of(fake, c);
        fake->kv[c] = calloc((size_t)pages * PAGE + 1, sizeof(*fake->kv[c]));
        fake->owner[c] = calloc(pages + 1, sizeof(*fake->owner[c]));
        if (!fake->kv[c] || !fake->owner[c])
            return -ENOMEM;
    }
    return 0;
}

void fake_fini(struct fake *fake)
{
    for (int c = 0; c < PAGE_CLASSES; c++) {
        free(fake->kv[c]);
        free(fake->owner[c]);
        fake->kv[c] = NULL;
        fake->owner[c] = NULL;
    }
}

/* ---- the function ---------------------------------------------------------------------------- */

static uint64_t fold(uint64_t state, uint32_t token)
{
    state = (state ^ token) * 0x9e3779b97f4a7c15u;
    return state ^ state >> 29;
}

static uint32_t sample_of(const struct fake *fake, uint64_t state, uint32_t position, uint64_t seed)
{
    if (position == fake->end_at)
        return FAKE_END;
    return FAKE_BYTES + 'a' + (uint32_t)(fold(state, (uint32_t)seed) >> 40) % 8;
}

static uint32_t fast_sample_of(const struct fake *fake, uint64_t state, uint32_t position,
                               uint64_t seed)
{
    if (fake->wrong && fold(state, position) % fake->wrong == 0)
        return FAKE_WRONG;
    return sample_of(fake, state, position, seed);
}

static uint64_t fold_all(const uint32_t *tokens, uint32_t n)
{
    uint64_t state = 0;

    for (uint32_t i = 0; i < n; i++)
        state = fold(state, tokens[i]);
    return state;
}

uint32_t fake_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed)
{
    return sample_of(fake, fold_all(tokens, n), n, seed);
}

uint32_t fake_fast_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed)
{
    return fast_sample_of(fake, fold_all(tokens, n), n, seed);
}

uint32_t fake_allowed(uint32_t token, const uint64_t *allowed)
{
    for (uint32_t n = 0; n < FAKE_VOCAB; n++, token = (token + 1) % FAKE_VOCAB)
        if (!allowed || (allowed[token >> 6] >> (token & 63) & 1) != 0)
            return token;
    FAKE_CHECK(!"a token is allowed");
    return 0;
}

/* ---- the contract ---------------------------------------------------------------------------- */

/* A page that a sequence writes in this pass belongs to no other sequence. Earlier pages may be
 * shared. */
static void check_pages_of(struct fake *fake, enum page_class class, uint32_t sequence,
                           uint32_t first, uint32_t last)
{
    const uint32_t *pages = backend_pages(&fake->pass->sequences[sequence], class);
    uint32_t i = class == PAGES_WINDOW ? kv_window_begin(fake->window, first) : 0;
    uint64_t pass = (uint64_t)fake->stamp << 32;

    for (; i <= last / PAGE; i++) {
        FAKE_CHECK(pages[i] < pages_of(fake, class));
        uint64_t owner = fake->owner[class][pages[i]];
        uint64_t use = i < first / PAGE ? pass | FAKE_READERS : pass | sequence;
        FAKE_CHECK(owner >> 32 != fake->stamp || (owner == use && i < first / PAGE));
        fake->owner[class][pages[i]] = use;
    }
}

static void check_pages(struct fake *fake, uint32_t sequence, uint32_t first, uint32_t last)
{
    check_pages_of(fake, PAGES_FULL, sequence, first, last);
    if (fake->limits.window_pages > 0)
        check_pages_of(fake, PAGES_WINDOW, sequence, first, last);
}

static void check_row(struct fake *fake, uint32_t i)
{
    const struct pass *pass = fake->pass;
    const struct row *row = &pass->rows[i];
    const struct pass_sequence *sequence = &pass->sequences[row->sequence];

    FAKE_CHECK(row->sequence < pass->n_sequences);
    FAKE_CHECK(row->position < fake->limits.context);
    FAKE_CHECK(row->token < FAKE_VOCAB);
    FAKE_CHECK((row->wants & ~(uint32_t)ROW_SAMPLE) == 0);
    if (i > 0 && row->sequence == row[-1].sequence)
        FAKE_CHECK(row->position == row[-1].position + 1);
    else /* the engine hands out each sequence's rows together, in order */
        FAKE_CHECK(row->sequence == (i > 0 ? row[-1].sequence + 1 : 0));
    if (i == 0 || row->sequence != row[-1].sequence)
        fake->first = row->position;
    if (i + 1 == pass->n_rows || row[1].sequence != row->sequence)
        check_pages(fake, row->sequence, fake->first, row->position);
    if (row->wants & ROW_SAMPLE) {
        fake->samples++;
        FAKE_CHECK(sequence->tokens[row->position] == row->token);
        FAKE_CHECK(sequence->sampler->n_top <= SAMPLE_TOP_MAX);
        FAKE_CHECK(sequence->prompt_length >= 1 && sequence->prompt_length <= row->position + 1);
    }
}

static void count_canonical(struct fake *fake, const struct pass *pass)
{
    fake->n_passes++;
    fake->last_rows = pass->n_rows;
    fake->last_sequences = pass->n_sequences;
    fake->last_samples = fake->samples;
    fake->n_rows += pass->n_rows;
    fake->n_samples += fake->samples;
    memcpy(fake->last, pass->rows, pass->n_rows * sizeof(*pass->rows));
}

static int fake_start(struct backend *backend, const struct pass *pass)
{
    struct fake *fake = fake_of(backend);

    if (fake->start_error) {
        fake->error = "the fake device does not start";
        return fake->start_error;
    }
    FAKE_CHECK(!fake->pass);
    FAKE_CHECK(pass->kind == PASS_CANONICAL || fake->fast != BACKEND_FAST_NONE);
    FAKE_CHECK(pass->n_rows >= 1 && pass->n_rows <= fake->limits.rows);
    fake->pass = pass;
    fake->stamp++;
    fake->samples = 0;
    for (uint32_t i = 0; i < pass->n_rows; i++)
        check_row(fake, i);
    FAKE_CHECK(pass->rows[pass->n_rows - 1].sequence + 1 == pass->n_sequences);
    FAKE_CHECK(fake->samples <= fake->limits.samples);
    if (pass->kind == PASS_CANONICAL) {
        count_canonical(fake, pass);
        return 0;
    }
    fake->n_fast_passes++;
    fake->n_fast_rows += pass->n_rows;
    fake->last_fast_rows = pass->n_rows;
    return 0;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static uint32_t *word_at(const struct fake *fake, const struct pass_sequence *sequence,
                         enum page_class class, uint32_t position)
{
    uint32_t page = backend_pages(sequence, class)[position / PAGE];

    return &fake->kv[class][page * PAGE + position % PAGE];
}

/* Writes a word into every class's page, which the first one zeroes. */
static void write_word(const struct fake *fake, const struct pass_sequence *sequence,
                       uint32_t position, uint32_t value)
{
    for (int c = 0; c < PAGE_CLASSES && pages_of(fake, c) > 0; c++) {
        uint32_t *word = word_at(fake, sequence, c, position);
        if (position % PAGE == 0)
            memset(word, 0, PAGE * sizeof(*word));
        *word = value;
    }
}

/* Folds the KV of [0, position) as the pages hold it, and as window pages do in the window of
 * `position`. Only fast rows may read what a fast pass wrote. */
static uint64_t fold_before(const struct fake *fake, const struct pass_sequence *sequence,
                            uint32_t position)
{
    uint32_t ignored = fake->pass->kind == PASS_FAST ? FAKE_MARK : 0;
    uint64_t state = 0;

    for (uint32_t q = 0; q < position; q++) {
        uint32_t word = *word_at(fake, sequence, PAGES_FULL, q);
        FAKE_CHECK(word != 0);
        FAKE_CHECK(fake->limits.window_pages == 0 || position - q >= fake->window ||
                   word == *word_at(fake, sequence, PAGES_WINDOW, q));
        word &= ~ignored;
        FAKE_CHECK((word & FAKE_MARK) == 0);
        state = fold(state, word - 1);
    }
    return state;
}

static void fill_sample(const struct fake *fake, uint64_t state, uint32_t position,
                        const struct sampler_params *params, const uint64_t *allowed,
                        struct sample *ret)
{
    uint32_t token = fake->pass->kind == PASS_FAST
                         ? fast_sample_of(fake, state, position, params->seed)
                         : sample_of(fake, state, position, params->seed);

    *ret = (struct sample){.token = fake_allowed(token, allowed)};
    if (!params->logprobs)
        return;
    ret->logprob = -(float)(state % 64) / 8;
    ret->n_top = params->n_top;
    for (uint32_t i = 0; i < ret->n_top; i++)
        ret->top[i] = (struct sample_top){.id = i, .logprob = -(float)i};
}

static int fake_finish(struct backend *backend)
{
    struct fake *fake = fake_of(backend);
    const struct pass *pass = fake->pass;
    uint32_t mark = pass->kind == PASS_FAST ? FAKE_MARK : 0;
    uint64_t state = 0;
    bool poisoned = false;

    for (uint32_t i = 0; i < pass->n_rows; i++) {
        const struct row *row = &pass->rows[i];
        const struct pass_sequence *sequence = &pass->sequences[row->sequence];

        if (i == 0 || row->sequence != row[-1].sequence) {
            state = fold_before(fake, sequence, row->position);
            poisoned = false;
        }
        poisoned |= row->token == fake->poison || (mark && fake->poison_fast);
        pass->results[i].status = poisoned ? -EDOM : 0;
        pass->results[i].layer = 1;
        if (poisoned)
            continue;
        write_word(fake, sequence, row->position, (row->token + 1) | mark);
        state = fold(state, row->token);
        if (row->wants & ROW_SAMPLE)
            fill_sample(fake, state, row->position + 1, sequence->sampler, row->allowed,
                        &pass->results[i].sample);
    }
    fake->pass = NULL;
    if (fake->during)
        fake->during(fake->arg);
    if (fake->finish_error)
        fake->error = "the fake device broke";
    return fake->finish_error;
}

static void fake_describe(const struct backend *backend, struct backend_info *ret)
{
    *ret = (struct backend_info){.name = "fake",
                                 .isa = "none",
                                 .numerics = "fake-1",
                                 .threads = 1,
                                 .fast = ((const struct fake *)(const void *)backend)->fast,
                                 .page_bytes = 128,
                                 .window_page_bytes = 128};
}

static const char *fake_error(const struct backend *backend)
{
    return ((const struct fake *)(const void *)backend)->error;
}

static void fake_release_page(struct backend *backend, enum page_class class, uint32_t page)
{
    struct fake *fake = fake_of(backend);

    FAKE_CHECK(!fake->pass && page < pages_of(fake, class));
    memset(fake->kv[class] + (size_t)page * PAGE, 0, PAGE * sizeof(*fake->kv[class]));
    fake->n_released++;
}

const struct backend_ops fake_ops = {
    .name = "fake",
    .start = fake_start,
    .finish = fake_finish,
    .release_page = fake_release_page,
    .describe = fake_describe,
    .error = fake_error,
};
