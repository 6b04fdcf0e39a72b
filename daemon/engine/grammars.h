/*
 * grammars: the grammars of requests by their text: those that wait for the compiler, and those that
 * it compiled or refused, so that the next request with the same text finds it done.
 *
 * Engine thread. An entry belongs to the user whose request brought it; users never share. Users
 * take turns at the compiler, the oldest request of each first. A user whose grammars took a quarter
 * of a second gets an eighth of a core from then on: small requests must not keep a core busy.
 * What no request uses is kept while there is a place for it; then the user with the most of these
 * gives the one unused the longest. Owns the grammars and copies of their texts. Does no I/O.
 */
#ifndef HEARTH_DAEMON_ENGINE_GRAMMARS_H
#define HEARTH_DAEMON_ENGINE_GRAMMARS_H

#include "daemon/engine/compiler.h"
#include "daemon/engine/debt.h"

#include <sys/types.h>

enum { GRAMMARS_IDLE = 8 }; /* places beyond those in use */

enum grammars_state {
    GRAMMARS_FREE,
    GRAMMARS_WAITING,   /* for the compiler */
    GRAMMARS_COMPILING, /* the job is the compiler's */
    GRAMMARS_DONE,      /* the job's grammar, or its error, stands */
};

struct grammars_entry {
    enum grammars_state state;
    struct compiler_job job;
    uint8_t hash[16]; /* of the text */
    uid_t uid;
    uint32_t users; /* requests */
    uint64_t used;  /* serial of the last use; until it is done, of the first */
};

/* What a user owes for its grammars. */
struct grammars_user {
    uid_t uid;
    struct debt compiling;
};

struct grammars {
    struct compiler compiler;
    struct grammars_entry *entries; /* [n_entries] */
    struct grammars_user *users;    /* [n_entries] */
    uint32_t n_entries;
    struct grammars_entry *compiling; /* or NULL */
    uint64_t serial;                  /* of the last use */
    uid_t turn;                       /* whose grammar was compiled last */
};

/* For `n_users` requests at once. Returns 0 or -ENOMEM. Call grammars_fini in either case, after
 * the compiler's thread has ended. */
int grammars_init(struct grammars *grammars, const struct grammar_vocab *vocab, uint32_t n_users,
                  uint64_t (*cpu_ns)(void));
void grammars_fini(struct grammars *grammars);

/* The entry of text[bytes], found or to be compiled, in use until it is given back. Returns 0 or
 * -ENOMEM. */
int grammars_take(struct grammars *grammars, uid_t uid, const uint8_t *text, uint32_t bytes,
                  struct grammars_entry **ret);
void grammars_give(struct grammars_entry *entry);

/* Takes over what the compiler has done, and gives it the next job. Returns whether something was
 * done. grammars_look: would it be? grammars_deadline: if not, when to step for a user that will have
 * paid then; UINT64_MAX: no such user waits. */
bool grammars_step(struct grammars *grammars, uint64_t now_ns);
bool grammars_look(const struct grammars *grammars);
uint64_t grammars_deadline(const struct grammars *grammars);

/* A step begins: no mask of an earlier one is used any more. */
void grammars_release(struct grammars *grammars);

#endif
