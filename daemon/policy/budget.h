/* budget.h: chooses the context and the memory for KV from what the weights and the scratch leave.
 *
 * Pure; any thread. An option that was given wins; what is chosen without one follows from the
 * memory alone, so that the same model starts alike on the same machine. */
#ifndef HEARTH_DAEMON_POLICY_BUDGET_H
#define HEARTH_DAEMON_POLICY_BUDGET_H

#include <stddef.h>
#include <stdint.h>

struct budget_facts {
    uint64_t available; /* bytes that can be had before anything is loaded */
    uint64_t loaded;    /* bytes of weights and scratch */
    uint64_t experts;   /* those of them that may stay with the host; 0: none may */
    uint64_t page;      /* bytes of a KV page, of the draft model's, too */
    uint64_t window;    /* those of them that layers with a window take, less than all; 0: none */
    uint64_t pass;      /* window pages that one sequence needs in a pass */
    uint64_t state;     /* bytes of a recurrent state and its records; 0: there is none */
    uint32_t positions; /* of a page */
    uint32_t model_context; /* the longest context that the model is for */
    uint32_t context;       /* --context; 0: not given */
    uint64_t kv_bytes;      /* --kv-bytes; 0: not given */
    uint64_t slots;
};

struct budget {
    uint32_t context;      /* positions */
    uint32_t pages;        /* at least a context's, at most what all slots can fill */
    uint32_t window_pages; /* 0: pages hold all layers */
    uint32_t states;       /* 0: the model is not recurrent */
};

/* Where a model does not fit beside its KV (kv_bytes, or the least), as many of its experts stay out that
 * this is left for KV, without kv_bytes a quarter of the memory: takes them from `loaded` and returns
 * their bytes, else 0. */
uint64_t budget_leave_out(struct budget_facts *facts);

/* Without options KV gets three quarters of what is left, and the context is the model's, or what
 * fits, but never below BUDGET_LEAST_CONTEXT. Returns 0; or -EINVAL with a line where --kv-bytes
 * holds less than a context, or more pages than there can be. */
int budget_choose(const struct budget_facts *facts, struct budget *ret, char *err,
                  size_t err_bytes);

enum { BUDGET_LEAST_CONTEXT = 4096, BUDGET_CONTEXT_STEP = 1024 };

/* Window pages are for contexts that are longer than those of a pass. One context and one pass come
 * first; of what they leave window pages get half, up to so many passes' a slot: more than one, so
 * that texts stay warm. */
enum { BUDGET_WINDOWS = 4 };

/* So many states come with a context: its slot's own, and the restart points of its text. Of what is
 * left states get half, up to as many a slot. */
enum { BUDGET_STATES = 5 };

/* Bytes of the KV memory that was chosen: pages, window pages and states. */
uint64_t budget_kv_bytes(const struct budget_facts *facts, const struct budget *chosen);

/* The least that --kv-bytes may be: one text of --context, else of the shortest context chosen. */
uint64_t budget_least_bytes(const struct budget_facts *facts);

/* One line about the choice, for a log: "context 38912 of 262144 and 3.6 GiB for KV: ...". */
void budget_describe(const struct budget_facts *facts, const struct budget *chosen, char *text,
                     size_t text_bytes);

#endif
