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
    fake->next = calloc((size_t)limits->pages * PAGE + 1, sizeof(*fake->next));
    fake->states = calloc(limits->states + 1, sizeof(*fake->states));
    return fake->next && fake->states ? 0 : -ENOMEM;
}

void fake_fini(struct fake *fake)
{
    for (int c = 0; c < PAGE_CLASSES; c++) {
        free(fake->kv[c]);
        free(fake->owner[c]);
        fake->kv[c] = NULL;
        fake->owner[c] = NULL;
    }
    free(fake->next);
    free(fake->states);
    fake->next = NULL;
    fake->states = NULL;
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

uint64_t fake_fold(const uint32_t *tokens, uint32_t n)
{
    uint64_t state = 0;

    for (uint32_t i = 0; i < n; i++)
        state = fold(state, tokens[i]);
    return state;
}

uint32_t fake_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed)
{
    return sample_of(fake, fake_fold(tokens, n), n, seed);
}

uint32_t fake_fast_next(const struct fake *fake, const uint32_t *tokens, uint32_t n, uint64_t seed)
{
    return fast_sample_of(fake, fake_fold(tokens, n), n, seed);
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

static void check_written(struct fake *fake, int32_t id, uint64_t use)
{
    FAKE_CHECK(id >= 0 && (uint32_t)id < fake->limits.states);
    struct fake_state *state = &fake->states[id];

    FAKE_CHECK(state->written >> 32 != fake->stamp);
    FAKE_CHECK(state->read >> 32 != fake->stamp || state->read == use);
    state->written = use;
}

/* The state that a sequence goes on from. Returns its base; *ret_records: after it. */
static uint32_t check_from(struct fake *fake, int32_t id, uint64_t use, uint32_t *ret_records)
{
    *ret_records = 0;
    if (id == BACKEND_STATE_ZERO)
        return 0;
    FAKE_CHECK(id >= 0 && (uint32_t)id < fake->limits.states);
    struct fake_state *from = &fake->states[id];

    FAKE_CHECK(from->valid);
    FAKE_CHECK(from->written >> 32 != fake->stamp);
    /* by several sequences: then by none that writes it */
    from->read = from->read >> 32 == fake->stamp ? (uint64_t)fake->stamp << 32 | FAKE_READERS : use;
    *ret_records = from->n_records;
    return from->base;
}

static void check_keeps(struct fake *fake, const struct pass_state *s, uint32_t base, uint32_t end,
                        uint64_t use)
{
    FAKE_CHECK(s->n_keep <= BACKEND_STATE_KEEPS &&
               (s->n_keep == 0 || fake->pass->kind == PASS_CANONICAL));
    for (uint32_t i = 0; i < s->n_keep; i++) {
        FAKE_CHECK(s->keep[i].position >= base && s->keep[i].position <= end);
        FAKE_CHECK(s->keep[i].id != s->from && s->keep[i].id != s->own);
        check_written(fake, s->keep[i].id, use);
    }
}

/* What the caller says of the state of a sequence, whose `n` rows begin with `row`. */
static void check_state(struct fake *fake, const struct row *row, uint32_t n)
{
    const struct pass_state *s = &fake->pass->sequences[row->sequence].state;
    const uint64_t use = (uint64_t)fake->stamp << 32 | row->sequence;
    uint32_t n_records, base = check_from(fake, s->from, use, &n_records);

    check_written(fake, s->own, use);
    FAKE_CHECK(base + s->apply + s->replay == row->position);
    FAKE_CHECK(s->apply + s->replay <= n_records);
    if (fake->pass->kind == PASS_CANONICAL)
        FAKE_CHECK(s->replay == 0);
    else
        FAKE_CHECK(s->apply + s->commit == 0);
    if (fake->pass->kind == PASS_MTP)
        FAKE_CHECK(n == 1 && s->from == s->own && s->n_keep == 0);
    FAKE_CHECK(s->commit <= n && s->replay + n - s->commit <= BACKEND_STATE_RECORDS);
    for (uint32_t i = 0; i < s->commit; i++) /* what is accepted, and samples nothing */
        FAKE_CHECK(row[i].wants == 0);
    check_keeps(fake, s, base, row->position + s->commit, use);
}

/* A sequence, whose rows are the `n` up to `last`. */
static void check_sequence(struct fake *fake, const struct row *last, uint32_t n)
{
    check_pages(fake, last->sequence, fake->first, last->position);
    if (fake->limits.states > 0)
        check_state(fake, last + 1 - n, n);
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
        check_sequence(fake, row, row->position + 1 - fake->first);
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
    FAKE_CHECK(pass->kind != PASS_FAST || fake->fast != BACKEND_FAST_NONE);
    FAKE_CHECK(pass->kind != PASS_MTP || fake->mtp);
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

/* The word of the next-token layer. */
static uint32_t *next_at(const struct fake *fake, const struct pass_sequence *sequence,
                         uint32_t position)
{
    return fake->next + (word_at(fake, sequence, PAGES_FULL, position) - fake->kv[PAGES_FULL]);
}

/* Writes a word into every class's page, which the first one zeroes; a pass of the next-token layer
 * writes none but that layer's. */
static void write_word(const struct fake *fake, const struct pass_sequence *sequence,
                       uint32_t position, uint32_t value)
{
    uint32_t *next = next_at(fake, sequence, position);
    if (position % PAGE == 0)
        memset(next, 0, PAGE * sizeof(*next));
    *next = value;
    for (int c = 0; c < PAGE_CLASSES && pages_of(fake, c) > 0; c++) {
        uint32_t *word = word_at(fake, sequence, c, position);
        if (position % PAGE == 0)
            memset(word, 0, PAGE * sizeof(*word));
        if (fake->pass->kind != PASS_MTP)
            *word = value;
    }
}

/* Folds the KV of [0, position) as the pages hold it, and as window pages do in the window of
 * `position`. Only drafting rows may read what a drafting pass wrote. */
static uint64_t fold_before(const struct fake *fake, const struct pass_sequence *sequence,
                            uint32_t position)
{
    const bool of_next = fake->pass->kind == PASS_MTP;
    uint32_t ignored = fake->pass->kind == PASS_CANONICAL ? 0 : FAKE_MARK;
    uint64_t state = 0;

    for (uint32_t q = 0; q < position; q++) {
        uint32_t word =
            of_next ? *next_at(fake, sequence, q) : *word_at(fake, sequence, PAGES_FULL, q);
        FAKE_CHECK(word != 0);
        FAKE_CHECK(fake->limits.window_pages == 0 || of_next || position - q >= fake->window ||
                   word == *word_at(fake, sequence, PAGES_WINDOW, q));
        word &= ~ignored;
        FAKE_CHECK((word & FAKE_MARK) == 0);
        state = fold(state, word - 1);
    }
    return state;
}

static uint64_t fold_records(const struct fake_state *state, uint64_t folded, uint32_t from,
                             uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        folded = fold(folded, state->records[i] & ~FAKE_MARK);
    return folded;
}

/* Copies the state of `position` to the kept ids that want it. */
static void keep_state(struct fake *fake, const struct pass_state *s, uint32_t position,
                       uint64_t folded)
{
    for (uint32_t i = 0; i < s->n_keep; i++) {
        if (s->keep[i].position != position)
            continue;
        struct fake_state *kept = &fake->states[s->keep[i].id];
        kept->valid = true;
        kept->base = position;
        kept->n_records = 0;
        kept->folded = folded;
        fake->n_kept++;
    }
}

/* What the rows of a sequence see of its state: as the KV before them, `folded`, says. */
static void begin_state(struct fake *fake, const struct pass_state *s, uint64_t folded)
{
    struct fake_state *own = &fake->states[s->own], from = {0};

    if (s->from != BACKEND_STATE_ZERO)
        from = fake->states[s->from];
    for (uint32_t i = 0; i < s->apply; i++)
        FAKE_CHECK((from.records[i] & FAKE_MARK) == 0); /* a canonical pass made it */
    keep_state(fake, s, from.base, from.folded);
    for (uint32_t i = 0; i < s->apply; i++) {
        from.folded = fold_records(&from, from.folded, i, i + 1);
        keep_state(fake, s, from.base + i + 1, from.folded);
    }
    FAKE_CHECK(fold_records(&from, from.folded, s->apply, s->apply + s->replay) == folded);
    own->valid = true;
    own->folded = from.folded;
    own->base = from.base + s->apply;
    own->n_records = s->replay;
    memcpy(own->records, from.records + s->apply, s->replay * sizeof(*own->records));
}

/* A row that is not poisoned: folded in, or recorded. */
static void carry_state(struct fake *fake, const struct pass_state *s, const struct row *row,
                        uint32_t nth, uint32_t mark)
{
    struct fake_state *own = &fake->states[s->own];

    if (nth >= s->commit) {
        own->records[own->n_records++] = row->token | mark;
        return;
    }
    own->folded = fold(own->folded, row->token);
    own->base++;
    keep_state(fake, s, own->base, own->folded);
}

/* The pass poisoned row number `nth` of a sequence: states that it did not come to hold nothing. */
static void spoil_state(struct fake *fake, const struct pass_state *s, uint32_t nth)
{
    if (nth < s->commit)
        fake->states[s->own].valid = false;
    for (uint32_t i = 0; i < s->n_keep; i++)
        if (fake->states[s->own].base < s->keep[i].position)
            fake->states[s->keep[i].id].valid = false;
}

static void fill_sample(const struct fake *fake, uint64_t state, uint32_t position,
                        const struct sampler_params *params, const uint64_t *allowed,
                        struct sample *ret)
{
    uint32_t token = fake->pass->kind == PASS_CANONICAL
                         ? sample_of(fake, state, position, params->seed)
                         : fast_sample_of(fake, state, position, params->seed);

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
    uint32_t mark = pass->kind == PASS_CANONICAL ? 0 : FAKE_MARK;
    uint64_t state = 0;
    uint32_t nth = 0; /* of its sequence */
    bool poisoned = false, recurrent = fake->limits.states > 0;

    for (uint32_t i = 0; i < pass->n_rows; i++, nth++) {
        const struct row *row = &pass->rows[i];
        const struct pass_sequence *sequence = &pass->sequences[row->sequence];

        if (i == 0 || row->sequence != row[-1].sequence) {
            state = fold_before(fake, sequence, row->position);
            poisoned = false;
            nth = 0;
            if (recurrent)
                begin_state(fake, &sequence->state, state);
        }
        if (recurrent && !poisoned && row->token == fake->poison)
            spoil_state(fake, &sequence->state, nth);
        poisoned |= row->token == fake->poison || (mark && fake->poison_fast);
        pass->results[i].status = poisoned ? -EDOM : 0;
        pass->results[i].layer = 1;
        if (poisoned)
            continue;
        write_word(fake, sequence, row->position, (row->token + 1) | mark);
        if (recurrent)
            carry_state(fake, &sequence->state, row, nth, mark);
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
    const struct fake *fake = (const struct fake *)(const void *)backend;
    *ret = (struct backend_info){.name = "fake",
                                 .isa = "none",
                                 .numerics = "fake-1",
                                 .threads = 1,
                                 .fast = fake->fast,
                                 .mtp = fake->mtp,
                                 .page_bytes = (fake->mtp ? 2u : 1u) * PAGE * sizeof(uint32_t),
                                 .window_page_bytes =
                                     fake->limits.window_pages ? PAGE * sizeof(uint32_t) : 0,
                                 .state_bytes = fake->limits.states ? 512 : 0,
                                 .record_bytes = fake->limits.states ? 64 : 0};
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
    if (class == PAGES_FULL)
        memset(fake->next + (size_t)page * PAGE, 0, PAGE * sizeof(*fake->next));
    fake->n_released++;
}

static void fake_release_state(struct backend *backend, uint32_t state)
{
    struct fake *fake = fake_of(backend);

    FAKE_CHECK(!fake->pass && state < fake->limits.states);
    fake->states[state] = (struct fake_state){0};
}

/* A page that is shared: a canonical pass wrote all of it; or the end of a text. */
static int fake_read_page(struct backend *backend, enum copy_class class, uint32_t id,
                          uint32_t positions, void *ret)
{
    struct fake *fake = fake_of(backend);

    FAKE_CHECK(!fake->pass);
    if (class == COPY_STATE) {
        FAKE_CHECK(id < fake->limits.states && fake->states[id].valid);
        memset(ret, 0, 512);
        memcpy(ret, &(uint64_t[]){fake->states[id].base, fake->states[id].folded}, 16);
        return 0;
    }
    FAKE_CHECK(id < pages_of(fake, (enum page_class) class));
    const uint32_t *words = fake->kv[class] + (size_t)id * PAGE;

    FAKE_CHECK(positions > 0 && positions <= PAGE);
    for (uint32_t i = 0; i < positions; i++)
        FAKE_CHECK(words[i] != 0 && (words[i] & FAKE_MARK) == 0);
    memset(ret, 0, (class == COPY_PAGE && fake->mtp ? 2u : 1u) * PAGE * sizeof(*words));
    memcpy(ret, words, positions * sizeof(*words));
    if (class == COPY_PAGE && fake->mtp)
        memcpy((uint32_t *)ret + PAGE, fake->next + (size_t)id * PAGE, positions * sizeof(*words));
    return 0;
}

static int fake_write_page(struct backend *backend, enum copy_class class, uint32_t id,
                           const void *bytes)
{
    struct fake *fake = fake_of(backend);

    FAKE_CHECK(!fake->pass);
    if (class == COPY_STATE) {
        uint64_t state[2];
        FAKE_CHECK(id < fake->limits.states);
        memcpy(state, bytes, sizeof(state));
        fake->states[id] =
            (struct fake_state){.valid = true, .base = (uint32_t)state[0], .folded = state[1]};
        return 0;
    }
    FAKE_CHECK(id < pages_of(fake, (enum page_class) class));
    memcpy(fake->kv[class] + (size_t)id * PAGE, bytes, PAGE * sizeof(uint32_t));
    if (class == COPY_PAGE && fake->mtp)
        memcpy(fake->next + (size_t)id * PAGE, (const uint32_t *)bytes + PAGE,
               PAGE * sizeof(uint32_t));
    return 0;
}

/* Of pages: a state, and what a next-token layer adds to a page, are copied by fake_write_page. */
static void *fake_page_memory(struct backend *backend, enum copy_class class, uint32_t id)
{
    struct fake *fake = fake_of(backend);

    FAKE_CHECK(!fake->pass);
    if (class == COPY_STATE || (class == COPY_PAGE && fake->mtp))
        return NULL;
    FAKE_CHECK(id < pages_of(fake, (enum page_class) class));
    return fake->kv[class] + (size_t)id * PAGE;
}

const struct backend_ops fake_ops = {
    .name = "fake",
    .start = fake_start,
    .finish = fake_finish,
    .release_page = fake_release_page,
    .release_state = fake_release_state,
    .read_page = fake_read_page,
    .write_page = fake_write_page,
    .page_memory = fake_page_memory,
    .describe = fake_describe,
    .error = fake_error,
};
