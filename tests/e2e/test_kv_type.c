/* --kv-type q8_0 from outside: its numerics have their own id, which answers, receipts, records and
 * resumed requests carry; and under that id a request has one answer with any cache contents, any
 * proposer and any kernels. (At length: make determinism.) */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 512, PROMPT = 200, OUTPUT = 80, TOP = 3, WAIT_MS = 60000 };

static struct harness d;

static void start(const char *model, const char *kv_type)
{
    memset(&d, 0, sizeof(d));
    harness_start(&d, model, (const char *const[]){"--kv-type", kv_type, "--threads", "1", NULL});
}

static void stop(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
}

/* The text after "name":" in the last line of `hearth run --json`; static memory. */
static const char *field_of(const struct harness_output *o, const char *name)
{
    static char value[256];
    char key[32];
    const char *last = strstr(o->out, "{\"event\":\"done\"");

    snprintf(key, sizeof(key), "\"%s\":\"", name);
    ck_assert_msg(o->code == 0 && last && (last = strstr(last, key)), "%s%s", o->out, o->error);
    last += strlen(key);
    snprintf(value, sizeof(value), "%.*s", (int)strcspn(last, "\""), last);
    return value;
}

/* ---- the id ---------------------------------------------------------------------------------- */

static const char bundled[] = "daemon/models/hearth-code-5m-f16.gguf";
static const struct {
    const char *model; /* NULL: the tiny one; "models/...": of the test data */
    const char *f16, *q8_0;
} named[] = {
    {NULL, "portable-1", "portable-1-kvq8"},
    {bundled, "cpu-float-1", "cpu-float-1-kvq8"},
    {"models/stories260K-f32.gguf", "cpu-float-1-kvf32", "cpu-float-1-kvq8"},
    {"models/stories260K-ff192-q4_0.gguf", "portable-1", "portable-1-kvq8"},
};

START_TEST(q8_0_kv_has_its_own_numerics_id)
{
    const char *const types[] = {"f16", "q8_0"};
    const char *model = named[_i].model, *prompt = "1,40,52,9,17,23,40,52,9";

    model = !model                              ? harness_tiny_model()
            : strncmp(model, "models/", 7) == 0 ? harness_data(model)
                                                : model;
    if (!model) {
        printf("skip: HEARTH_TESTDATA is not set: no q8_0 KV of a real model\n");
        return;
    }
    for (int q8_0 = 0; q8_0 < 2; q8_0++) {
        const char *want = q8_0 ? named[_i].q8_0 : named[_i].f16;
        char part[64];
        start(model, types[q8_0]);
        struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--json", "--tokens", prompt,
                                              "--max-tokens", "40", "--logit-bias", "2=-inf");
        ck_assert_str_eq(field_of(&o, "numerics"), want);
        snprintf(part, sizeof(part), ":%s:", want);
        ck_assert_ptr_nonnull(strstr(field_of(&o, "receipt"), part));
        ck_assert_ptr_nonnull(strstr(o.out, "\"output_tokens\":40,"));
        harness_output_fini(&o);
        o = HARNESS_RUN(&d, NULL, "status", "--json");
        snprintf(part, sizeof(part), "\"numerics\":\"%s\"", want);
        ck_assert_msg(strstr(o.out, part) != NULL, "%s", o.out);
        harness_output_fini(&o);
        stop();
    }
}
END_TEST

/* ---- records --------------------------------------------------------------------------------- */

START_TEST(a_record_is_replayed_under_its_own_numerics_only)
{
    const char *const types[] = {"f16", "q8_0"}, *const ids[] = {"portable-1", "portable-1-kvq8"};
    char record[2][128], line[160];

    for (int made = 0; made < 2; made++) {
        snprintf(record[made], sizeof(record[made]), "/tmp/hearth-kv-%d-%d.json", (int)getpid(),
                 made);
        start(harness_tiny_model(), types[made]);
        struct harness_output o =
            HARNESS_RUN(&d, NULL, "run", "--tokens", "1,70,80,90", "--max-tokens", "60",
                        "--temperature", "0.9", "--seed", "5", "--record", record[made]);
        ck_assert_msg(o.code == 0, "%s", o.error);
        harness_output_fini(&o);
        stop();
    }
    for (int now = 0; now < 2; now++) {
        start(harness_tiny_model(), types[now]);
        struct harness_output o = HARNESS_RUN(&d, NULL, "replay", record[now]);
        ck_assert_msg(o.code == 0 && strstr(o.out, ": equal: "), "%s%s", o.out, o.error);
        harness_output_fini(&o);
        o = HARNESS_RUN(&d, NULL, "replay", record[1 - now]);
        snprintf(line, sizeof(line), "recorded with other numerics: %s, the daemon has %s\n",
                 ids[1 - now], ids[now]);
        ck_assert_int_eq(o.code, 65);
        ck_assert_str_eq(o.out, "");
        ck_assert_msg(strstr(o.error, line) != NULL, "%s", o.error);
        harness_output_fini(&o);
        stop();
    }
    unlink(record[0]);
    unlink(record[1]);
}
END_TEST

/* ---- resume ---------------------------------------------------------------------------------- */

/* Once the answer has begun, the daemon is replaced by one with q8_0 KV. */
START_TEST(a_request_is_not_resumed_with_another_kv_type)
{
    struct harness_running r;

    memset(&d, 0, sizeof(d));
    harness_start(
        &d, harness_tiny_model(),
        (const char *const[]){"--kv-type", "f16", "--threads", "1", "--context", "20000", NULL});
    harness_begin(&r, &d,
                  (const char *const[]){"run", "--json", "--max-tokens", "15000", "--tokens",
                                        "1,70,80", "--logit-bias", "2=-inf", NULL});
    harness_kill(&d);
    harness_restart(
        &d, harness_tiny_model(),
        (const char *const[]){"--kv-type", "q8_0", "--threads", "1", "--context", "20000", NULL});
    struct harness_output o = harness_finish(&r);
    ck_assert_msg(o.code == 69, "%d: %s", o.code, o.error);
    ck_assert_msg(strstr(o.error, "came back with other numerics (portable-1-kvq8, was "
                                  "portable-1): repeat the request") != NULL,
                  "%s", o.error);
    ck_assert_ptr_nonnull(strstr(o.out, "\"reason\":\"error\""));
    harness_output_fini(&o);
    ck_assert_int_eq(harness_counter(&d, "output_tokens"), 0); /* the new one got no request */
    stop();
}
END_TEST

/* ---- one answer ------------------------------------------------------------------------------ */

struct answer {
    uint32_t n, n_logprobs;
    uint32_t ids[OUTPUT];
    float logprobs[OUTPUT][TOP + 1]; /* the sampled one's first */
    char receipt[192];
};

/* What must not matter, and the counts it led to. */
struct circumstances {
    const char *proposer;
    const struct answer *guess; /* its ids, every tenth one wrong; NULL: none */
    uint32_t cached, drafted, rollbacks;
};

static void take(const struct hearth_event *e, struct answer *a)
{
    for (uint32_t i = 0; i < e->n_tokens; i++) {
        ck_assert_uint_lt(a->n, OUTPUT);
        a->ids[a->n] = e->tokens[i];
        a->logprobs[a->n][0] = e->logprobs[i].picked.logprob;
        ck_assert_uint_eq(e->logprobs[i].n_top, TOP);
        for (uint32_t k = 0; k < TOP; k++)
            a->logprobs[a->n][k + 1] = e->logprobs[i].top[k].logprob;
        a->n++;
    }
}

static void ask(struct hearth *h, uint32_t kind, struct circumstances *c, struct answer *a)
{
    const struct hearth_event *e;
    struct hearth_request r;
    uint32_t prompt[PROMPT], guess[OUTPUT];

    memset(a, 0, sizeof(*a));
    for (uint32_t i = 0; i < PROMPT; i++) /* repeats, so that lookup finds something */
        prompt[i] = 3 + i % (11 + kind) * 7;
    for (uint32_t i = 0; c->guess && i < OUTPUT; i++)
        guess[i] = i % 10 == 9 ? 3 : c->guess->ids[i];
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = PROMPT;
    r.max_tokens = OUTPUT;
    r.temperature = kind % 2 ? 0.8f : 0;
    r.seed = kind;
    r.logprobs = TOP;
    r.proposer = c->proposer;
    r.guess = c->guess ? guess : NULL;
    r.n_guess = c->guess ? OUTPUT : 0;
    r.bias = &(struct hearth_bias){2, -10000}; /* no end before OUTPUT */
    r.n_bias = 1;
    ck_assert_msg(hearth_submit(h, 0, &r) == 0, "%s", hearth_error(h));
    do {
        int rc = hearth_next(h, 0, &e, WAIT_MS);
        ck_assert_msg(rc == 1, "%d: %s", rc, hearth_error(h));
        take(e, a);
    } while (e->kind != HEARTH_DONE);
    ck_assert_msg(e->result->reason == HEARTH_LENGTH, "%s", e->result->error_text);
    snprintf(a->receipt, sizeof(a->receipt), "%s", e->result->receipt);
    c->cached = e->result->cached_tokens;
    c->drafted = e->result->drafted;
    c->rollbacks = e->result->rollbacks;
}

static void same(const struct answer *got, const struct answer *want, const char *what)
{
    ck_assert_msg(memcmp(got, want, sizeof(*got)) == 0, "%s: another answer: %s, first was %s",
                  what, got->receipt, want->receipt);
}

enum { KINDS = 4 };

/* Every request first alone on the reference kernels, without cache and drafts. */
static void answer_alone(struct answer *alone)
{
    memset(&d, 0, sizeof(d));
    harness_start(&d, harness_tiny_model(),
                  (const char *const[]){"--kv-type", "q8_0", "--isa", "ref", "--threads", "1",
                                        "--context", "512", NULL});
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct circumstances c = {.proposer = "none"};
        struct hearth *h = harness_connect(&d, 1, NULL);
        ask(h, kind, &c, &alone[kind]);
        ck_assert_uint_eq(c.cached, 0);
        ck_assert_uint_eq(c.drafted, 0);
        ck_assert_uint_eq(alone[kind].n, OUTPUT);
        hearth_close(h);
    }
    stop();
}

START_TEST(caches_and_drafts_keep_every_bit)
{
    static const char *const proposers[] = {"none", "lookup", "client", "draft", "shadow"};
    static struct answer alone[KINDS], got;
    uint32_t cached = 0, rollbacks = 0;

    answer_alone(alone);
    ck_assert_str_ne(alone[0].receipt, alone[1].receipt);
    memset(&d, 0, sizeof(d));
    harness_start(&d, harness_tiny_model(),
                  (const char *const[]){"--kv-type", "q8_0", "--threads", "2", "--context", "512",
                                        "--shadow", "yes", "--draft", harness_tiny_model(), NULL});
    for (uint32_t p = 0; p < sizeof(proposers) / sizeof(*proposers); p++) {
        uint32_t drafted = 0;
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            struct circumstances c = {.proposer = proposers[p],
                                      .guess = p == 2 ? &alone[kind] : NULL};
            struct hearth *h = harness_connect(&d, 1, NULL); /* a new client: pages of others */
            ask(h, kind, &c, &got);
            same(&got, &alone[kind], proposers[p]);
            cached += c.cached;
            drafted += c.drafted;
            rollbacks += c.rollbacks;
            hearth_close(h);
        }
        ck_assert_msg((drafted > 0) == (p > 0), "%s: %u drafts", proposers[p], drafted);
    }
    ck_assert_uint_gt(cached, KINDS * PROMPT * 3);
    ck_assert_uint_gt(rollbacks, 0);
    stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_type");
    TCase *t = tcase_create("kv_type");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, q8_0_kv_has_its_own_numerics_id, 0,
                        (int)(sizeof(named) / sizeof(named[0])));
    tcase_add_test(t, a_record_is_replayed_under_its_own_numerics_only);
    tcase_add_test(t, a_request_is_not_resumed_with_another_kv_type);
    tcase_add_test(t, caches_and_drafts_keep_every_bit);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
