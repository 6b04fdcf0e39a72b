/* grammar.c: opens a grammar and follows an answer. */
#include "daemon/grammar/grammar_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int open_grammar(struct grammar *g, const char *text, size_t bytes, char *err,
                        size_t err_bytes)
{
    struct ast_tree tree;
    int rc = grammar_parse(text, bytes, &tree, err, err_bytes);
    if (rc == 0)
        rc = grammar_compile(&tree, g->vocab->all.longest, &g->program);
    if (rc == 0)
        rc = grammar_states_open(g);
    if (rc == -E2BIG || rc == -ENOSPC)
        rc = grammar_fail(&tree, tree.rules[tree.root].at,
                          "rule root can begin in more than %d ways", GRAMMAR_WIDTH_MAX);
    grammar_tree_free(&tree);
    return rc < 0 ? rc : grammar_masks_open(g);
}

int grammar_open(const struct grammar_vocab *v, const char *text, size_t bytes,
                 struct grammar **ret, char *err, size_t err_bytes)
{
    struct grammar *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    g->vocab = v;
    const int rc = open_grammar(g, text, bytes, err, err_bytes);
    if (rc < 0) {
        grammar_close(g);
        return rc;
    }
    *ret = g;
    return 0;
}

void grammar_close(struct grammar *g)
{
    if (g == NULL)
        return;
    grammar_states_close(g);
    grammar_masks_close(g);
    grammar_program_free(&g->program);
    free(g);
}

static size_t table_memory(const struct set_table *t)
{
    return t->room * sizeof(*t->sets) + t->room_frames * sizeof(*t->frames) +
           t->n_slots * sizeof(*t->slots);
}

size_t grammar_memory(const struct grammar *g)
{
    const struct states *s = &g->states;
    size_t bytes = sizeof(*g) + g->program.room_ops * sizeof(struct op) +
                   g->program.room_sets * sizeof(struct byte_set) +
                   g->program.n_ops * 3 * sizeof(uint32_t);
    bytes += (size_t)s->room * (g->program.n_classes * sizeof(*s->next) + 9);
    bytes += table_memory(&s->nodes) + table_memory(&s->sets) + table_memory(&s->unions);
    bytes += s->room_united * sizeof(*s->united);
    for (uint32_t i = 0; i < g->n_masks; i++)
        bytes += g->vocab->n_words * sizeof(uint64_t) + g->masks[i].room_pops * sizeof(uint32_t);
    return bytes;
}

/* ---- runs ------------------------------------------------------------------------------------ */

void grammar_begin(struct grammar *g, bool drops_space, struct grammar_run *run)
{
    *run = (struct grammar_run){.grammar = g, .next = g->runs};
    run->states[0] = drops_space ? STATE_TWIN : STATE_START;
    g->runs = run;
}

void grammar_end(struct grammar_run *run)
{
    struct grammar_run **link = run->grammar != NULL ? &run->grammar->runs : NULL;
    while (link != NULL && *link != NULL) {
        if (*link == run)
            *link = run->next;
        else
            link = &(*link)->next;
    }
    *run = (struct grammar_run){0};
}

/* Advances run->moving by a byte. Returns 0, -EPERM, -E2BIG, -ENOMEM. *cost grows. */
static int move(struct grammar_run *run, uint8_t byte, int64_t *cost)
{
    struct grammar *g = run->grammar;
    const uint32_t class = g->program.class_of[byte];
    int64_t to = g->states.next[(size_t)run->moving * g->program.n_classes + class];
    ++*cost;
    if (to == STATE_UNKNOWN)
        to = grammar_step(g, run->moving, class, cost);
    if (to == -ENOSPC) {
        to = grammar_sweep(g, cost);
        to = to < 0 ? to : grammar_step(g, run->moving, class, cost);
    }
    if (to < 0)
        return to == -ENOMEM ? -ENOMEM : -E2BIG;
    if (to == STATE_DEAD)
        return -EPERM;
    run->moving = (uint32_t)to;
    return 0;
}

/* Advances run->moving by bytes from run->moved on, from states[from], while the budget lasts.
 * Returns as move, or -EAGAIN. */
static int move_text(struct grammar_run *run, uint32_t from, const uint8_t *bytes, size_t n,
                     int64_t *budget)
{
    int64_t cost = 0;
    int rc = 0;
    if (run->moved == 0)
        run->moving = run->states[from];
    while (run->moved < n && rc == 0) {
        rc = cost < *budget ? move(run, bytes[run->moved], &cost) : -EAGAIN;
        run->moved += rc == 0;
    }
    *budget -= cost;
    return rc;
}

/* The same by a token's bytes. */
static int move_token(struct grammar_run *run, uint32_t from, uint32_t token, int64_t *budget)
{
    const struct grammar_vocab *v = run->grammar->vocab;
    if (token >= v->n_vocab || v->at[token] == v->at[token + 1])
        return -EPERM;
    return move_text(run, from, v->text + v->at[token], v->at[token + 1] - v->at[token], budget);
}

/* The run stands at `to` after it has moved, unless that failed. */
static void end_move(struct grammar_run *run, uint32_t *to, int rc)
{
    if (rc == 0)
        *to = run->moving;
    run->moving = STATE_UNKNOWN;
    run->moved = 0;
}

static bool is_end(const struct grammar_vocab *v, uint32_t token)
{
    for (uint32_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == token)
            return true;
    return false;
}

int grammar_follow(struct grammar_run *run, uint32_t token, int64_t *budget)
{
    run->n_drafts = 0;
    if (run->moved == 0 && grammar_may_end(run) && is_end(run->grammar->vocab, token))
        return 0;
    const int rc = move_token(run, 0, token, budget);
    if (rc != -EAGAIN)
        end_move(run, &run->states[0], rc);
    return rc;
}

int grammar_follow_text(struct grammar_run *run, const char *text, size_t bytes, int64_t *budget)
{
    run->n_drafts = 0;
    const int rc = move_text(run, 0, (const uint8_t *)text, bytes, budget);
    if (rc != -EAGAIN)
        end_move(run, &run->states[0], rc);
    return rc;
}

void grammar_agree(struct grammar_run *run)
{
    assert(run->n_drafts > 0);
    memmove(run->states, run->states + 1, run->n_drafts * sizeof(*run->states));
    run->n_drafts--;
}

int grammar_draft_within(struct grammar_run *run, uint32_t token, int64_t *budget)
{
    if (run->n_drafts == GRAMMAR_DRAFTS_MAX)
        return -ENOSPC;
    const int rc = move_token(run, run->n_drafts, token, budget);
    end_move(run, &run->states[run->n_drafts + 1], rc);
    run->n_drafts += rc == 0;
    return rc;
}

void grammar_keep(struct grammar_run *run, uint32_t n)
{
    if (run->n_drafts > n)
        run->n_drafts = n;
}

bool grammar_may_end(const struct grammar_run *run)
{
    return run->grammar->states.ends[run->states[0]];
}

bool grammar_must_end(const struct grammar_run *run)
{
    return grammar_may_end(run) && run->grammar->states.sets.sets[run->states[0]].n == 1;
}
