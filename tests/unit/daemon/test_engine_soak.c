/*
 * Everything at once, at random: three trunks, five kinds of users and names, drafts right and
 * wrong, newer requests, cancels, clients that come and go, and far too few pages. Every answer
 * that ends by itself is the one its request gets alone, rig_check accounts for every page after
 * every step, and nothing waits for ever.
 */
#include "daemon/overflow_uid.h"
#include "ipc/params.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 6, USER = 1000 };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];
static uint32_t state;

/* Set back and forth by up to an hour, at one look in eight. */
static uint64_t wild_ns(void)
{
    static uint32_t random = 17;
    static uint64_t ns;

    if (random_below(&random, 8) == 0)
        ns = (uint64_t)random_below(&random, 3600) * 1000000000;
    return ns += 1000;
}

static void teardown(void)
{
    rig_end(&rig, clients, CLIENTS);
}

/* One of three trunks up to a random place, then a text of its own. */
static void random_prompt(uint32_t i)
{
    uint32_t trunk = random_below(&state, 200), n = 1 + random_below(&state, 220);

    rig_tokens(tokens[i], RIG_TOKENS, 1000 + random_below(&state, 3));
    if (trunk < n)
        rig_tokens(tokens[i] + trunk, RIG_TOKENS - trunk, 2000 + random_below(&state, 3));
    requests[i] = (struct rig_request){.tokens = tokens[i],
                                       .n = n,
                                       .max_tokens = random_below(&state, 40),
                                       .batch = random_below(&state, 3) == 0};
}

static void random_attach(uint32_t i)
{
    static const uid_t uids[] = {USER, USER, USER, USER + 1, OVERFLOW_UID_USUAL};
    char name[8] = "";

    if (random_below(&state, 3) == 0)
        snprintf(name, sizeof(name), "n%u", i);
    rig_attach(&rig, &clients[i], 1, uids[random_below(&state, 5)], name);
}

static void random_drafts(void)
{
    for (uint32_t i = 0; i < rig.engine->options.n_slots; i++) {
        struct slot *slot = &rig.engine->slots.all[i];
        struct spec *spec = &slot->spec;
        if (slot->state == SLOT_IDLE || spec->drafted || random_below(&state, 2))
            continue;
        for (uint32_t k = random_below(&state, 6);
             k > 0 && spec->accepted + spec->drafted < slot->request->limit; k--) {
            uint32_t at = spec->accepted + spec->drafted;
            uint32_t right = fake_next(&rig.fake, slot->tokens, at, slot->request->sampler.seed);
            spec_draft(spec, slot->tokens, random_below(&state, 4) ? right : FAKE_BYTES + 'Z');
            slot->request->drafted++;
        }
    }
}

/* An answer that ended by itself is the right one. */
static uint32_t checked[CLIENTS], n_right;

static void random_read(uint32_t i)
{
    struct rig_slot *s = &clients[i].slots[0];

    rig_read_all(&clients[i]);
    if (checked[i] == s->n_ends)
        return;
    checked[i] = s->n_ends;
    if (s->last.generation != s->generation || s->last.reason == DONE_CANCELLED)
        return;
    ck_assert_msg(rig_same(&rig, &requests[i], &s->last), "client %u", i);
    ck_assert_uint_lt(s->last.done.cached, requests[i].n);
    n_right++;
}

static void random_act(uint32_t i)
{
    uint32_t what = random_below(&state, 100);

    if (!clients[i].client) {
        random_attach(i);
        checked[i] = 0;
    } else if (what < 50) {
        if (clients[i].client->slots[0]->state != SLOT_IDLE || ring_space(&clients[i].submit) < 2)
            return;
        random_prompt(i);
        rig_submit(&clients[i], 0, &requests[i]);
    } else if (what < 54 && ring_space(&clients[i].submit) > 2) {
        random_prompt(i); /* supersedes */
        rig_submit(&clients[i], 0, &requests[i]);
    } else if (what < 57) {
        rig_cancel(&clients[i], 0);
    } else if (what < 59) {
        rig_detach(&rig, &clients[i]);
    }
}

START_TEST(whatever_happens_every_answer_is_right)
{
    uint32_t most = 4000;

    state = (uint32_t)_i * 77 + 4;
    n_right = 0;
    memset(checked, 0, sizeof(checked));
    struct rig_desc desc = {
        .slots = CLIENTS,
        .context = 512,
        .pages = 9 + random_below(&state, 30),
        .rows = 32 + random_below(&state, 64),
        .window = _i < 12 ? 0 : 1 + random_below(&state, 150),
        .now_ns = _i % 4 == 3 ? wild_ns : NULL,
    };
    rig_open(&rig, &desc);
    if (_i % 3 == 0)
        rig.engine->slots.kv.prefix.hash_mask = 1;
    for (uint32_t round = 0; round < 700; round++) {
        random_act(random_below(&state, CLIENTS));
        random_drafts();
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            if (clients[i].client && random_below(&state, 4))
                random_read(i);
    }
    while (rig.engine->slots.n_active > 0 || engine_look(rig.engine)) {
        for (uint32_t i = 0; i < CLIENTS; i++)
            if (clients[i].client)
                random_read(i);
        uint32_t worked = engine_step(rig.engine);
        rig_check(&rig);
        ck_assert_msg(worked || rig.engine->slots.n_active == 0, "nothing moves");
        ck_assert_msg(most-- > 0, "no end");
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (clients[i].client)
            random_read(i);
    ck_assert_uint_gt(n_right, 30);
    ck_assert_uint_gt(counters_get(rig.ctl, COUNTER_CACHED_TOKENS), 0);
    teardown();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_soak");
    TCase *t = tcase_create("soak");

    tcase_add_loop_test(t, whatever_happens_every_answer_is_right, 0, 24);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
