/* Drafting models through the daemon: a draft model and a shadow of the bundled model. With any
 * proposer the answer has the same tokens and log-probabilities, and the counters add up. */
#include "tests/e2e/harness.h"

#include "kernels/quant/quant_types.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_model.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAX = 256, PROMPTS = 3 };

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
static const char *const prompts[PROMPTS] = {
    "def get_name(self):", "import os\n\n\nclass Reader:\n    def __init__(self, path):", "x"};

struct answer {
    uint32_t ids[ANSWER_MAX];
    float logprobs[ANSWER_MAX];
    uint32_t n;
    struct hearth_result result;
};

static struct harness d;

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void make_request(const char *proposer, int kind, struct hearth_request *r)
{
    hearth_request_init(r, sizeof(*r));
    r->text = prompts[kind % PROMPTS];
    r->text_bytes = strlen(r->text);
    r->max_tokens = 24 + (uint32_t)kind * 3; /* sanitizers are slow */
    r->temperature = kind / PROMPTS % 2 ? 0.8f : 0.0f;
    r->repeat_penalty = kind % 2 ? 1.1f : 1.0f;
    r->seed = (uint64_t)kind;
    r->logprobs = 0;
    r->proposer = proposer;
}

static void take(struct answer *answer, const struct hearth_event *event)
{
    for (uint32_t i = 0; i < event->n_tokens; i++) {
        ck_assert_uint_lt(answer->n, ANSWER_MAX);
        answer->logprobs[answer->n] = event->logprobs[i].picked.logprob;
        answer->ids[answer->n++] = event->tokens[i];
    }
}

static void ask(struct hearth *h, uint32_t slot, const char *proposer, int kind, struct answer *ret)
{
    const struct hearth_event *event;
    struct hearth_request request;

    make_request(proposer, kind, &request);
    memset(ret, 0, sizeof(*ret));
    ck_assert_msg(hearth_submit(h, slot, &request) == 0, "%s", hearth_error(h));
    while (hearth_next(h, slot, &event, 60000) > 0) {
        take(ret, event);
        if (event->kind != HEARTH_DONE)
            continue;
        ret->result = *event->result;
        ck_assert_uint_eq(ret->result.output_tokens, ret->n);
        return;
    }
    ck_abort_msg("no end: %s", hearth_error(h));
}

static void same(const struct answer *a, const struct answer *b)
{
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_mem_eq(a->ids, b->ids, a->n * sizeof(a->ids[0]));
    ck_assert_mem_eq(a->logprobs, b->logprobs, a->n * sizeof(a->logprobs[0]));
    ck_assert_uint_eq(a->result.reason, b->result.reason);
}

/* The counters: every token is an accepted draft or the model's own sample, at most one per pass; a
 * verification with a mismatch rejected at least one draft. */
static void check_counts(const struct hearth_result *r)
{
    ck_assert_uint_le(r->accepted_drafts, r->drafted);
    ck_assert_uint_le(r->rollbacks, r->drafted - r->accepted_drafts);
    ck_assert_uint_le(r->output_tokens - r->accepted_drafts, r->passes);
    ck_assert_uint_le(r->accepted_drafts, r->output_tokens);
}

struct sums {
    uint32_t drafted, accepted, rollbacks;
};

static struct sums compare(const char *proposer)
{
    static struct answer want, got;
    struct hearth *h = harness_connect(&d, 2, NULL);
    struct sums sums = {0};

    for (int kind = 0; kind < 2 * PROMPTS; kind++) {
        ask(h, 0, "none", kind, &want);
        ck_assert_uint_eq(want.result.drafted, 0);
        ask(h, 1, proposer, kind, &got);
        same(&want, &got);
        check_counts(&got.result);
        sums.drafted += got.result.drafted;
        sums.accepted += got.result.accepted_drafts;
        sums.rollbacks += got.result.rollbacks;
    }
    hearth_close(h);
    printf("%s: %u drafted, %u accepted, %u rollbacks\n", proposer, sums.drafted, sums.accepted,
           sums.rollbacks);
    return sums;
}

/* Requests cancelled at any moment, with and without drafts: later answers are unaffected. */
static void give_up(const char *proposer)
{
    static struct answer want, got;
    struct hearth *h = harness_connect(&d, 2, NULL);
    const struct hearth_event *event;
    struct hearth_request request;

    for (int round = 0; round < 12; round++) {
        make_request(proposer, round, &request);
        ck_assert_int_eq(hearth_submit(h, 0, &request), 0);
        for (int i = 0; i < round % 5; i++)
            hearth_next(h, 0, &event, 60000);
        if (round % 2)
            hearth_cancel(h, 0); /* otherwise the next one supersedes it */
        if (round % 3)
            continue;
        ask(h, 1, "none", round, &want);
        ask(h, 0, proposer, round, &got);
        same(&want, &got);
        check_counts(&got.result);
    }
    hearth_close(h);
}

/* ---- the draft model ------------------------------------------------------------------------- */

/* The model as its own draft model: every draft is accepted, so n of them give n + 1 tokens. */
START_TEST(a_draft_model_keeps_every_answer)
{
    harness_start(&d, model, ARGUMENTS("--draft", model, "--threads", "2"));
    struct sums sums = compare("draft");
    ck_assert_uint_gt(sums.drafted, 50);
    ck_assert_uint_gt(sums.accepted, 50);
    ck_assert_uint_eq(sums.rollbacks, 0);
    give_up("draft");
    ck_assert_int_gt(harness_counter(&d, "draft_passes"), 0);
    compare("auto");
    harness_check_drafts(&d);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

START_TEST(a_draft_model_is_named_and_checked)
{
    struct harness_output o =
        harness_run_hearthd(ARGUMENTS("--check", "--model", model, "--draft", model));

    ck_assert_int_eq(o.code, 0);
    ck_assert_ptr_nonnull(strstr(o.out, "\ndraft model hearth code 5M: llama, F16"));
    harness_output_fini(&o);
    const char *tiny = harness_tiny_model();
    o = harness_run_hearthd(ARGUMENTS("--check", "--model", model, "--draft", tiny));
    ck_assert_int_eq(o.code, 65);
    ck_assert_msg(strstr(o.error, tiny) &&
                      strstr(o.error, "vocabulary differs: its token 0 is '<unk>'"),
                  "%s", o.error);
    ck_assert_ptr_eq(strchr(o.error, '\n'), o.error + o.error_bytes - 1); /* one line */
    harness_output_fini(&o);
    o = harness_run_hearthd(ARGUMENTS("--check", "--model", model, "--draft", "/no/such.gguf"));
    ck_assert_int_eq(o.code, 66);
    harness_output_fini(&o);
}
END_TEST

/* ---- the shadow ------------------------------------------------------------------------------ */

START_TEST(a_shadow_keeps_every_answer)
{
    harness_start(&d, model, ARGUMENTS("--shadow", "yes", "--threads", "2"));
    struct sums sums = compare("shadow");
    ck_assert_uint_gt(sums.accepted, 50);
    ck_assert_uint_gt(sums.rollbacks, 0); /* the 4-bit copy differs now and then */
    give_up("shadow");
    compare("auto");
    harness_check_drafts(&d);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

/* Both at once, with clients of all kinds: every answer is still the same. */
START_TEST(draft_model_and_shadow_work_together)
{
    static const char *const proposers[] = {"none", "draft", "shadow", "auto", "lookup", "draft"};
    enum { SLOTS = 6 };
    static struct answer want[SLOTS], got[SLOTS];
    const struct hearth_event *event;
    struct hearth_request request;

    harness_start(&d, model, ARGUMENTS("--shadow", "yes", "--draft", model));
    struct hearth *h = harness_connect(&d, SLOTS, NULL);
    for (int i = 0; i < SLOTS; i++)
        ask(h, 0, "none", i, &want[i]);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SLOTS; i++) {
            make_request(proposers[(i + round) % SLOTS], i, &request);
            got[i].n = 0;
            ck_assert_int_eq(hearth_submit(h, (uint32_t)i, &request), 0);
        }
        for (int i = 0; i < SLOTS; i++) {
            while (hearth_next(h, (uint32_t)i, &event, 60000) > 0) {
                take(&got[i], event);
                if (event->kind == HEARTH_DONE)
                    break;
            }
            got[i].result = *event->result;
            same(&want[i], &got[i]);
            check_counts(&got[i].result);
        }
    }
    hearth_close(h);
    harness_check_drafts(&d);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

START_TEST(a_shadow_that_saves_nothing_is_refused)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    char path[64] = "/tmp/hearth-q4-XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(tiny_model_write(&shape, path), 0);
    struct harness_output o = harness_run_hearthd(ARGUMENTS("--model", path, "--shadow", "yes"));
    ck_assert_int_eq(o.code, 65);
    ck_assert_ptr_nonnull(strstr(o.error, "a shadow of this Q4_0 model"));
    ck_assert_ptr_eq(strchr(o.error, '\n'), o.error + o.error_bytes - 1);
    harness_output_fini(&o);
    unlink(path);
}
END_TEST

/* ---- missing proposers ----------------------------------------------------------------------- */

START_TEST(a_proposer_the_daemon_lacks_is_refused)
{
    static const char *const names[] = {"draft", "shadow", "fast", "mtp"};

    harness_start(&d, model, NULL);
    for (int i = 0; i < 4; i++) {
        struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--proposer", names[i], "x");
        char line[64];
        snprintf(line, sizeof(line), "hearth: proposer %s: this daemon", names[i]);
        ck_assert_int_eq(o.code, 65);
        ck_assert_uint_eq(o.out_bytes, 0);
        ck_assert_msg(!strncmp(o.error, line, strlen(line)), "%s", o.error);
        ck_assert_ptr_eq(strchr(o.error, '\n'), o.error + o.error_bytes - 1);
        harness_output_fini(&o);
    }
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proposers");
    TCase *tcase = tcase_create("proposers");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, a_draft_model_keeps_every_answer);
    tcase_add_test(tcase, a_draft_model_is_named_and_checked);
    tcase_add_test(tcase, a_shadow_keeps_every_answer);
    tcase_add_test(tcase, draft_model_and_shadow_work_together);
    tcase_add_test(tcase, a_shadow_that_saves_nothing_is_refused);
    tcase_add_test(tcase, a_proposer_the_daemon_lacks_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
