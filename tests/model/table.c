/* table: what is run, what is taken away, and what is expected of it. */
#include "tests/model/explore.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

extern const struct litmus litmus_ring, litmus_ahead, litmus_run, litmus_answer, litmus_space,
    litmus_hand, litmus_generation, litmus_room, litmus_mail;

/* The first that notices a change is the one that is printed: quick ones first. */
static const struct litmus *const programs[] = {
    &litmus_ring, &litmus_ahead,      &litmus_run,  &litmus_space, &litmus_answer,
    &litmus_hand, &litmus_generation, &litmus_room, &litmus_mail,
};

/* Every order in ipc/ that is stronger than relaxed; run.sh counts them there. */
static const struct expected {
    const char *label, *function, *kind;
    int order;
    const char *redundant; /* why nothing notices that it is gone; README.md says more */
    const char *strong;    /* why a seq_cst fence may be an acq_rel one */
} expected[] = {
    {"R1", "ring_publish", "store", memory_order_release, NULL, NULL},
    {"A1", "ring_peek", "load", memory_order_acquire, NULL, NULL},
    {"A1", "ring_peek_ahead", "load", memory_order_acquire, NULL, NULL},
    {"R2", "ring_release", "store", memory_order_release, NULL, NULL},
    {"A2", "ring_space", "load", memory_order_acquire, NULL, NULL},
    {"S1", "sleeper_block", "load", memory_order_acquire,
     "the fence of sleeper_announce() comes after it and is an acquire fence as well", NULL},
    {"S1", "sleeper_announce", "fence", memory_order_seq_cst, NULL, NULL},
    {"S1", "bell_daemon_sleep", "fence", memory_order_seq_cst, NULL, NULL},
    {"S2", "bell_fence", "fence", memory_order_seq_cst, NULL, NULL},
    {"S2", "bell_ring", "fence", memory_order_seq_cst, NULL, NULL},
    {"S2", "bell_due_slow", "store", memory_order_release,
     "bell_fence() comes before it and is a release fence as well", NULL},
    {"G1", "ring_generation_start", "fence", memory_order_seq_cst, NULL,
     "it orders a store before stores, as a release fence does"},
    {"G2", "ring_generation_live", "fence", memory_order_acquire, NULL, NULL},
};

enum {
    PROGRAMS = sizeof(programs) / sizeof(*programs),
    EXPECTED = sizeof(expected) / sizeof(*expected)
};

static int wrong;

static void complain(const char *what)
{
    printf("WRONG: %s\n", what);
    wrong = 1;
}

static const struct model_site *site_of(const struct expected *e)
{
    for (uint32_t i = 0; i < model_run.n_sites; i++) {
        const struct model_site *site = &model_run.sites[i];
        if (!strcmp(site->function, e->function) && !strcmp(site->kind, e->kind) &&
            site->order == e->order)
            return site;
    }
    return NULL;
}

/* Weakens one order. `why_not`: nothing is expected to notice. */
static void weaken(const struct expected *e, int to, const char *why_not)
{
    const struct litmus *program = NULL;
    const char *how = NULL;
    size_t states;

    printf("%s  %s(): %s %s, now %s: ", e->label, e->function, model_order(e->order), e->kind,
           model_order(to));
    model_run.weak = site_of(e);
    model_run.weak_order = to;
    for (uint32_t i = 0; model_run.weak && i < model_run.weak->n_in && !how; i++) {
        program = model_run.weak->in[i];
        how = model_explore(program, &states);
    }
    if (how) {
        printf("caught by '%s'\n", program->name);
        model_print();
    } else {
        printf("nothing fails (%s)\n", why_not ? why_not : "but something should");
    }
    if (!model_run.weak || !how != !!why_not)
        complain("this is not what table.c expects");
    model_run.weak = NULL;
}

static void run_programs(void)
{
    size_t states;

    model_run.collect = 1;
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        const char *how = model_explore(programs[i], &states);
        printf("%s: %s: %zu states\n", programs[i]->name, programs[i]->says, states);
        if (!how)
            continue;
        model_print();
        complain("this should hold");
    }
    model_run.collect = 0;
}

static uint32_t run_mutants(void)
{
    uint32_t n = 0;
    size_t states;

    for (uint32_t i = 0; i < PROGRAMS; i++)
        for (int k = 0; k < MODEL_MUTANTS && programs[i]->mutants[k]; k++, n++) {
            model_run.mutant = programs[i]->mutants[k];
            printf("%s: %s\n", programs[i]->name, model_run.mutant);
            if (model_explore(programs[i], &states))
                model_print();
            else
                complain("nothing fails");
        }
    model_run.mutant = NULL;
    return n;
}

int main(void)
{
    uint32_t n_redundant = 0, n_strong = 0, n_mutants = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (classic_run() != 0)
        complain("the explorer does not know the memory model");
    run_programs();
    if (model_run.n_sites != EXPECTED)
        complain("the code has other orders than table.c");
    for (uint32_t i = 0; i < EXPECTED && !wrong; i++) {
        const struct expected *e = &expected[i];
        weaken(e, strcmp(e->kind, "fence") ? memory_order_relaxed : -1, e->redundant);
        if (e->order == memory_order_seq_cst)
            weaken(e, memory_order_acq_rel, e->strong);
        n_redundant += e->redundant != NULL;
        n_strong += e->strong != NULL;
    }
    if (!wrong)
        n_mutants = run_mutants();
    printf("orders %u, redundant %u, stronger than need be %u; mutants of programs %u\n",
           model_run.n_sites, n_redundant, n_strong, n_mutants);
    return wrong;
}
