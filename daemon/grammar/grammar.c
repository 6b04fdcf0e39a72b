/* grammar.c: opens a grammar and follows an answer. */
#include "daemon/grammar/grammar_impl.h"

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
        to = grammar_sweep(g);
        to = to < 0 ? to : grammar_step(g, run->moving, class, cost);
        *cost += GRAMMAR_MILLISECOND / 4;
    }
    if (to < 0)
        return to == -ENOMEM ? -ENOMEM : -E2BIG;
    if (to == STATE_DEAD)
        return -EPERM;
    run->moving = (uint32_t)to;
    return 0;
}

/* Advances run->moving by the token, from states[from]. */
static int move_token(struct grammar_run *run, uint32_t from, uint32_t token, int64_t *cost)
{
    const struct grammar_vocab *v = run->grammar->vocab;
    if (token >= v->n_vocab || v->at[token] == v->at[token + 1])
        return -EPERM;
    run->moving = run->states[from];
    int rc = 0;
    for (uint32_t i = v->at[token]; i < v->at[token + 1] && rc == 0; i++)
        rc = move(run, v->text[i], cost);
    return rc;
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
    int64_t cost = 1;
    run->n_drafts = 0;
    if (grammar_may_end(run) && is_end(run->grammar->vocab, token))
        return 0;
    const int rc = move_token(run, 0, token, &cost);
    if (rc == 0)
        run->states[0] = run->moving;
    run->moving = STATE_UNKNOWN;
    *budget -= cost;
    return rc;
}

int grammar_follow_text(struct grammar_run *run, const char *text, size_t bytes, int64_t *budget)
{
    int64_t cost = 1;
    int rc = 0;
    run->n_drafts = 0;
    run->moving = run->states[0];
    for (size_t i = 0; i < bytes && rc == 0; i++)
        rc = move(run, (uint8_t)text[i], &cost);
    if (rc == 0)
        run->states[0] = run->moving;
    run->moving = STATE_UNKNOWN;
    *budget -= cost;
    return rc;
}

int grammar_accept(struct grammar_run *run, uint32_t token)
{
    int64_t any = INT64_MAX;
    return grammar_follow(run, token, &any);
}

int grammar_draft(struct grammar_run *run, uint32_t token)
{
    if (run->n_drafts == GRAMMAR_DRAFTS_MAX)
        return -ENOSPC;
    int64_t cost = 0;
    const int rc = move_token(run, run->n_drafts, token, &cost);
    if (rc == 0)
        run->states[++run->n_drafts] = run->moving;
    run->moving = STATE_UNKNOWN;
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
