/* contract.c: checks limits and passes for every backend. */
#include "kernels/contract.h"

#include "kernels/base/fail.h"
#include "kernels/kv.h"
#include "kernels/model/model.h"

#include <errno.h>

enum { MAX_THREADS = 1024, MAX_ROWS = 1 << 20 };

int contract_check_limits(const struct backend_limits *l, const struct model *m, char *err,
                          size_t err_bytes)
{
    if (l->rows == 0 || l->samples == 0 || l->pages == 0 || l->context == 0 ||
        l->context > MODEL_MAX_CONTEXT || l->rows > MAX_ROWS || l->samples > l->rows)
        return fail(err, err_bytes, -EINVAL,
                    "limits: rows, samples <= rows, pages and context must be at least 1");
    if (l->threads == 0 || l->threads > MAX_THREADS)
        return fail(err, err_bytes, -EINVAL, "limits: threads must be 1 to %d", MAX_THREADS);
    if (l->window_pages > 0 && kv_window(m) == 0)
        return fail(err, err_bytes, -EINVAL,
                    "limits: window pages for a model whose layers have no windows");
    if (m->n_recurrent > 0 && l->states == 0)
        return fail(err, err_bytes, -EINVAL, "limits: no states for recurrent layers");
    if (m->n_recurrent == 0 && l->states > 0)
        return fail(err, err_bytes, -EINVAL, "limits: states for a model without recurrent layers");
    /* A backend's attention sees the whole context; the model's sees only its sliding window. */
    if (m->sliding_window != 0 && l->context > m->sliding_window)
        return fail(err, err_bytes, -ENOTSUP,
                    "context %u is longer than the model's sliding attention window of %u "
                    "positions: lower --context",
                    l->context, m->sliding_window);
    return 0;
}

/* A check of one pass. */
struct check {
    const struct pass *pass;
    const struct backend_limits *limits;
    const struct model *model;
    uint32_t window; /* kv_window */
    uint32_t *next;  /* [sequences] position of its next row; UINT32_MAX before its first */
    uint32_t n_wanted;
    char *err;
    size_t err_bytes;
};

static int refuse(const struct check *c, const char *what, uint32_t row)
{
    return fail(c->err, c->err_bytes, -EINVAL, "pass refused: row %u: %s", row, what);
}

static int refuse_sequence(const struct check *c, const char *what, uint32_t sequence)
{
    return fail(c->err, c->err_bytes, -EINVAL, "pass refused: sequence %u: %s", sequence, what);
}

/* Pages [begin, end) of a sequence, of one class. */
static bool pages_exist(const uint32_t *pages, uint32_t begin, uint32_t end, uint32_t total)
{
    for (uint32_t i = begin; i < end; i++) {
        if (pages[i] >= total)
            return false;
    }
    return true;
}

/* Those that the row reads and writes, beyond the ones of the row before it. */
static bool row_pages_exist(const struct check *c, const struct row *row, bool first)
{
    const struct pass_sequence *s = &c->pass->sequences[row->sequence];
    const uint32_t page = row->position / BACKEND_PAGE_POSITIONS, windows = c->limits->window_pages;
    if (!pages_exist(s->pages, first ? 0 : page, page + 1, c->limits->pages))
        return false;
    return windows == 0 ||
           pages_exist(s->window_pages, first ? kv_window_begin(c->window, row->position) : page,
                       page + 1, windows);
}

static int check_row(struct check *c, uint32_t r)
{
    const struct row *row = &c->pass->rows[r];
    if (row->sequence >= c->pass->n_sequences)
        return refuse(c, "its sequence is not in the pass", r);
    if (row->position >= c->limits->context)
        return refuse(c, "its position is beyond the context", r);
    if (row->token >= c->model->n_vocab)
        return refuse(c, "its token is not in the vocabulary", r);
    const struct pass_sequence *s = &c->pass->sequences[row->sequence];
    uint32_t *next = &c->next[row->sequence];
    bool first = *next == UINT32_MAX;
    if (!first && *next != row->position)
        return refuse(c, "positions of its sequence do not follow each other", r);
    *next = row->position + 1;
    if (!row_pages_exist(c, row, first))
        return refuse(c, "a page of its sequence does not exist", r);
    if ((row->wants & ROW_LOGITS) && !c->pass->results[r].logits)
        return refuse(c, "ROW_LOGITS without a buffer for the logits", r);
    if ((row->wants & ROW_SAMPLE) && (!s->sampler || !s->tokens))
        return refuse(c, "ROW_SAMPLE without parameters or tokens", r);
    c->n_wanted += row->wants != 0;
    return 0;
}

static bool state_exists(const struct check *c, int32_t id)
{
    return id >= 0 && (uint32_t)id < c->limits->states;
}

/* Whether sequence s writes that state. */
static bool writes_state(const struct pass_sequence *s, int32_t id)
{
    bool writes = s->state.own == id;
    for (uint32_t i = 0; i < s->state.n_keep; i++)
        writes |= s->state.keep[i].id == id;
    return writes;
}

/* A state that one sequence writes, no other one reads or writes. */
static int check_states_apart(const struct check *c)
{
    const struct pass_sequence *all = c->pass->sequences;
    for (uint32_t i = 0; i < c->pass->n_sequences; i++)
        for (uint32_t j = 0; j < c->pass->n_sequences && c->next[i] != UINT32_MAX; j++) {
            const struct pass_state *s = &all[j].state;
            bool shared = writes_state(&all[i], s->from) || writes_state(&all[i], s->own);
            for (uint32_t k = 0; k < s->n_keep; k++)
                shared |= writes_state(&all[i], s->keep[k].id);
            if (i != j && c->next[j] != UINT32_MAX && shared)
                return refuse_sequence(c, "a state of another one", j);
        }
    return 0;
}

static const char *state_fault(const struct check *c, const struct pass_state *s, uint32_t first,
                               uint32_t n)
{
    const uint64_t before = (uint64_t)s->apply + s->replay;
    if (!state_exists(c, s->own) || !(s->from == BACKEND_STATE_ZERO || state_exists(c, s->from)))
        return "a state that does not exist";
    if (before > BACKEND_STATE_RECORDS || before > first || s->commit > n)
        return "more records or rows to fold in than there are";
    if (s->from == BACKEND_STATE_ZERO && first != 0)
        return "the state of the empty text, but not the first row";
    if (s->replay > 0 && s->commit > 0)
        return "records that stay, before rows that are folded in";
    if (s->replay + n - s->commit > BACKEND_STATE_RECORDS)
        return "more rows to record than a state has records";
    const uint64_t base = first - before, end = base + s->apply + s->commit;
    for (uint32_t i = 0; i < s->n_keep; i++)
        if (i >= BACKEND_STATE_KEEPS || !state_exists(c, s->keep[i].id) ||
            s->keep[i].id == s->own || s->keep[i].id == s->from ||
            (i > 0 && s->keep[0].id == s->keep[i].id) || s->keep[i].position < base ||
            s->keep[i].position > end)
            return "a state to keep that it does not pass, or must not write";
    return NULL;
}

/* A row of the next-token layer follows from records, and leaves one. */
static const char *mtp_fault(const struct pass_state *s, uint32_t n)
{
    return n > 1 ? "more than one row of the next-token layer"
           : s->from != s->own || s->apply > 0 || s->commit > 0 || s->n_keep > 0
               ? "a row of the next-token layer that moves its state"
               : NULL;
}

static int check_states(const struct check *c)
{
    for (uint32_t s = 0; s < c->pass->n_sequences && c->limits->states > 0; s++) {
        uint32_t n = 0;
        for (uint32_t r = 0; r < c->pass->n_rows; r++)
            n += c->pass->rows[r].sequence == s;
        const struct pass_state *state = &c->pass->sequences[s].state;
        const char *fault = n == 0 ? NULL : state_fault(c, state, c->next[s] - n, n);
        if (!fault && c->pass->kind == PASS_MTP)
            fault = mtp_fault(state, n);
        if (fault)
            return refuse_sequence(c, fault, s);
    }
    return c->limits->states > 0 ? check_states_apart(c) : 0;
}

int contract_check_pass(const struct pass *pass, const struct backend_limits *limits,
                        const struct model *model, uint32_t *next_position, char *err,
                        size_t err_bytes)
{
    struct check c = {pass, limits, model, kv_window(model), next_position, 0, err, err_bytes};
    if (pass->kind != PASS_CANONICAL && pass->kind != PASS_FAST && pass->kind != PASS_MTP)
        return refuse(&c, "unknown kind of pass", pass->kind);
    if (pass->kind == PASS_MTP && !model->mtp)
        return fail(err, err_bytes, -EINVAL, "pass refused: the model has no next-token layer");
    if (pass->kind == PASS_CANONICAL && limits->drafts)
        return fail(err, err_bytes, -EINVAL, "pass refused: a draft model has no canonical passes");
    if (pass->n_rows == 0 || pass->n_rows > limits->rows || pass->n_sequences > limits->rows)
        return refuse(&c, "the pass has no rows, or more rows or sequences than the limit",
                      pass->n_rows);
    for (uint32_t s = 0; s < pass->n_sequences; s++)
        next_position[s] = UINT32_MAX;
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        int rc = check_row(&c, r);
        if (rc)
            return rc;
    }
    if (c.n_wanted > limits->samples)
        return refuse(&c, "more rows that want a result than the limit", c.n_wanted);
    return check_states(&c);
}
