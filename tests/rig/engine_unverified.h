/*
 * engine_unverified: an engine and eight clients of which some or all ask for answers that need not be
 * deterministic. What test_engine_unverified.c and test_engine_unverified_soak.c begin with.
 */
#ifndef HEARTH_TESTS_RIG_ENGINE_UNVERIFIED_H
#define HEARTH_TESTS_RIG_ENGINE_UNVERIFIED_H

#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdbool.h>
#include <string.h>

enum { CLIENTS = 8 };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];

/* All ask for a fast answer, without drafts of their own. */
static inline void open_with(const struct rig_desc *desc)
{
    struct rig_desc d = *desc;

    d.slots = CLIENTS;
    rig_open(&rig, &d);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, 1000, "");
        clients[i].proposer = d.proposer ? d.proposer : PROPOSER_NONE;
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] =
            (struct rig_request){.tokens = tokens[i], .n = 10, .max_tokens = 60, .fast = true};
    }
}

static inline void open_native(uint32_t wrong)
{
    open_with(&(struct rig_desc){.fast = BACKEND_FAST_NATIVE, .wrong = wrong});
}

static inline void close_all(void)
{
    rig_end(&rig, clients, CLIENTS);
}

static inline struct slot *slot_of(uint32_t client)
{
    return clients[client].client->slots[0];
}

static inline const struct rig_answer *last_of(uint32_t client)
{
    return &clients[client].slots[0].last;
}

static inline void step_all(void)
{
    rig_step(&rig);
    rig_check(&rig);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_read_all(&clients[i]);
}

static inline void run_all(uint32_t most)
{
    while (rig.engine->slots.n_active > 0 || engine_look(rig.engine)) {
        step_all();
        ck_assert_uint_gt(most--, 0);
    }
}

/* Steps until the client has read n tokens of an answer that goes on. */
static inline void answer_some(uint32_t client, uint32_t n)
{
    while (clients[client].slots[0].now.n < n)
        step_all();
    ck_assert(slot_of(client)->state != SLOT_IDLE);
}

/* Is the last answer what rig_alone says, and does its end say how it was made? */
static inline void check_answer(uint32_t client)
{
    const struct rig_answer *got = last_of(client);
    bool unverified = !strcmp(got->done.numerics, "fake-1" NUMERICS_FAST);

    ck_assert_msg(rig_same(&rig, &requests[client], got), "client %u", client);
    ck_assert_msg(unverified || !strcmp(got->done.numerics, "fake-1"), "%s", got->done.numerics);
    ck_assert(requests[client].fast || !unverified);
}

static inline bool says_fast(uint32_t client)
{
    return strstr(last_of(client)->done.numerics, NUMERICS_FAST) != NULL;
}

/* The verified answer to the same request is another one. */
static inline void check_unlike_verified(uint32_t client)
{
    struct rig_request verified = requests[client];
    struct rig_answer alone;

    verified.fast = false;
    rig_alone(&rig, &verified, &alone);
    ck_assert(alone.n != last_of(client)->n ||
              memcmp(alone.tokens, last_of(client)->tokens, alone.n * sizeof(*alone.tokens)) != 0);
}

#endif
