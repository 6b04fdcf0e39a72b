/* Recurrent models through the daemon: what an agent's turns compute, and that no way to a text
 * changes its answer.
 *
 * Short in `make check`. HEARTH_STATES_TRUNK=N lets the agent's conversation begin with N tokens,
 * HEARTH_STATES_STEPS=N walks N steps (make states: 30,000 and 10,000).
 */
#include "kernels/kv.h"
#include "kernels/quant/quant_types.h"
#include "kernels/state.h"
#include "tests/e2e/harness.h"
#include "tests/random.h"
#include "tests/rig/cpu_help.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TURNS = 6,
    TRUNK = 3000,
    QUESTION = 20,
    ANSWER = 40,
    THINKING = 25, /* of the answer's tokens, left out of the next turn's prompt */
    CONTEXT = 512,
    TEXTS = 4,
    STEPS = 120,
    STEPS_OF_A_DAEMON = 40,
    OUTPUT = 12,
    SLOTS = 3,
    PAUSED = 1500, /* tokens of an answer */
    POISON = 310,  /* a token whose embedding is not finite; others are below 303 */
};

/* The first two have a next-token layer. */
static const char *const archs[] = {"qwen35", "qwen35moe", "lfm2", "granitehybrid"};
enum { ARCHS = sizeof(archs) / sizeof(archs[0]), WITH_MTP = 2 };

static struct harness d;
static char model[64], store[64];

static uint32_t from_environment(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

/* The model's file, with a token that poisons its row, if `scale` is not finite. */
static void write_model_with(int arch, uint32_t context, const uint8_t scale[2])
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct help_model m;
    size_t bytes;
    shape.arch = archs[arch];
    shape.n_context = context;
    shape.n_draft = arch < WITH_MTP;
    shape.untied = true;
    free(tiny_model_file(&shape, &bytes));
    help_model_tiny(&m, &shape);
    const struct model_tensor *t = &m.model->global[MODEL_TOKEN_EMBD];
    memcpy(m.file + (t->data - m.file) + POISON * t->row_bytes, scale, 2); /* of a block */
    snprintf(model, sizeof(model), "/tmp/hearth-states-XXXXXX");
    int fd = mkstemp(model);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, m.file, bytes), (ssize_t)bytes);
    close(fd);
    help_model_close(&m);
}

static void write_model(int arch, uint32_t context)
{
    static const uint8_t infinite[2] = {0x00, 0x7c};
    write_model_with(arch, context, infinite);
}

static void submit(struct hearth *h, uint32_t slot, const uint32_t *tokens, uint32_t n,
                   uint32_t max_tokens, const char *proposer)
{
    struct hearth_request request;
    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = n;
    request.max_tokens = max_tokens;
    request.proposer = proposer;
    ck_assert_msg(hearth_submit(h, slot, &request) == 0, "%s", hearth_error(h));
}

static struct hearth_result read_end(struct hearth *h, uint32_t slot)
{
    const struct hearth_event *event;
    while (hearth_next(h, slot, &event, 600000) > 0)
        if (event->kind == HEARTH_DONE)
            return *event->result;
    ck_abort_msg("no end: %s", hearth_error(h));
    return (struct hearth_result){0};
}

static struct hearth_result ask(struct hearth *h, uint32_t slot, const uint32_t *tokens, uint32_t n,
                                uint32_t max_tokens, const char *proposer)
{
    submit(h, slot, tokens, n, max_tokens, proposer);
    return read_end(h, slot);
}

/* ---- an agent -------------------------------------------------------------------------------- */

static void add_random(uint32_t *tokens, uint32_t *n, uint32_t count, uint32_t *random)
{
    while (count-- > 0)
        tokens[(*n)++] = 3 + next_random(random) % 300;
}

/* A turn's prompt is the one before, the answer without its thinking, and what is new. It computes what
 * follows the prompt before, from a restart point shortly before its end: never the trunk. */
static void turn(struct hearth *h, const uint32_t *tokens, uint32_t n, uint32_t common,
                 struct hearth_result *ret)
{
    const int64_t rows = harness_counter(&d, "rows");
    *ret = ask(h, 0, tokens, n, ANSWER, "none");
    const uint32_t computed = ret->prompt_tokens - ret->cached_tokens;
    ck_assert_uint_eq(ret->prompt_tokens, n);
    ck_assert_msg(computed <= n - common + 8 + KV_PAGE_POSITIONS,
                  "a prompt of %u tokens, %u of them known: %u computed", n, common, computed);
    ck_assert_int_le(harness_counter(&d, "rows") - rows, computed + ret->output_tokens + 1);
}

START_TEST(an_agent_s_turn_computes_what_is_new)
{
    const uint32_t trunk = from_environment("HEARTH_STATES_TRUNK", TRUNK),
                   context = trunk + TURNS * (QUESTION + ANSWER) + ANSWER;
    uint32_t *tokens = help_memory(context * sizeof(*tokens)), n = 0, random = 5, common = 0;
    struct hearth_result result;
    write_model(_i, context);
    harness_start(&d, model, (const char *const[]){"--threads", "2", "--slots", "1", NULL});
    struct hearth *h = harness_connect(&d, 1, NULL);
    add_random(tokens, &n, trunk, &random);
    for (uint32_t i = 0; i < TURNS; i++) {
        add_random(tokens, &n, QUESTION, &random);
        turn(h, tokens, n, common, &result);
        printf("turn %u: %u tokens, %u computed\n", i, n,
               result.prompt_tokens - result.cached_tokens);
        if (result.n_ids > 0) /* one that goes on from all of the text keeps no point */
            common = n;
        for (uint32_t k = THINKING; k < result.n_ids; k++)
            tokens[n++] = result.ids[k];
    }
    hearth_close(h);
    ck_assert_int_eq(harness_stop(&d), 0);
    unlink(model);
    free(tokens);
}
END_TEST

/* ---- a walk ---------------------------------------------------------------------------------- */

/* The answer from an empty cache, by a backend of this process. Returns its tokens. */
static uint32_t alone(struct backend *b, uint32_t *tokens, uint32_t n, uint32_t *ids)
{
    static uint32_t pages[CONTEXT / KV_PAGE_POSITIONS];
    struct row rows[CONTEXT];
    static struct row_result results[CONTEXT];
    struct sampler_params params;
    uint32_t n_ids = 0, first = 0;
    sampler_params_init(&params);
    for (uint32_t i = 0; i < CONTEXT / KV_PAGE_POSITIONS; i++)
        pages[i] = i;
    for (uint32_t at = n; n_ids < OUTPUT; at++) {
        for (uint32_t i = first; i < at; i++)
            rows[i - first] = (struct row){0, i, tokens[i], i + 1 == at ? ROW_SAMPLE : 0, NULL};
        const struct pass_sequence sequence = {
            .pages = pages,
            .tokens = tokens,
            .prompt_length = n,
            .sampler = &params,
            .state = {.from = first ? 0 : BACKEND_STATE_ZERO, .commit = at - first}};
        help_pass(b, &(struct pass){PASS_CANONICAL, at - first, rows, &sequence, results, 1});
        if (results[at - first - 1].status) /* it sampled the poison before */
            break;
        const uint32_t token = results[at - first - 1].sample.token;
        if (token == 2) /* </s> */
            break;
        first = at;
        tokens[at] = ids[n_ids++] = token;
    }
    return n_ids;
}

/* A context's pages and a few states: what is kept is given up all the time. */
static void start_daemon(const struct model *m)
{
    struct kv_geometry kv;
    struct state_geometry state;
    char bytes[32];
    kv_geometry_init(&kv, m, false, false);
    state_geometry_init(&state, m);
    snprintf(bytes, sizeof(bytes), "%zu",
             kv_pages(CONTEXT) * kv.page_bytes[PAGES_FULL] * 3 / 2 +
                 7 * (state.state_bytes + state.record_bytes));
    harness_start(&d, model,
                  (const char *const[]){"--threads", "1", "--slots", "3", "--kv-bytes", bytes,
                                        "--rows", "100", "--kv-store", store, "--kv-store-min",
                                        "32", NULL});
}

struct text {
    uint32_t tokens[CONTEXT + OUTPUT], n;
};

/* Types, deletes, changes something, or becomes a branch of another text. */
static void edit(struct text *texts, uint32_t i, uint32_t *random)
{
    struct text *t = &texts[i];
    const uint32_t what = next_random(random) % 20, at = next_random(random) % t->n;
    if (what < 10 && t->n < CONTEXT - 60)
        add_random(t->tokens, &t->n, 1 + next_random(random) % 20, random);
    else if (what < 14)
        t->n = 1 + at;
    else if (what < 18)
        t->tokens[at] = 3 + next_random(random) % 300;
    else
        *t = texts[next_random(random) % TEXTS];
}

/* A request of another text that does not get to its end: superseded by the next one, cancelled, or poisoned. */
static void interrupt(struct hearth *h, uint32_t slot, const struct text *other, uint32_t *random)
{
    struct text copy = *other;
    const uint32_t what = next_random(random) % 3;
    if (what == 2)
        copy.tokens[next_random(random) % copy.n] = POISON;
    submit(h, slot, copy.tokens, copy.n, CONTEXT - copy.n, "auto");
    if (what == 1)
        ck_assert_int_ge(hearth_cancel(h, slot), 0);
    /* One that is cancelled may have come to an end of its own before, or have sampled the poison. */
    if (what > 0)
        ck_assert(read_end(h, slot).reason == HEARTH_ERROR || what == 1);
}

static void check_answer(const struct hearth_result *got, const uint32_t *ids, uint32_t n_ids,
                         uint32_t step)
{
    ck_assert_msg(
        got->n_ids == n_ids && (n_ids == 0 || !memcmp(got->ids, ids, n_ids * sizeof(*ids))),
        "step %u: another answer than from an empty cache: %zu tokens (reason %u, %s), not %u",
        step, (size_t)got->n_ids, (unsigned)got->reason, got->error_text, n_ids);
}

struct walk {
    struct help_model m;
    struct backend *alone;
    struct hearth *h;
    struct text texts[TEXTS];
    uint32_t random, cached, stored, drafted;
};

static void walk_begin(struct walk *w, int arch)
{
    *w = (struct walk){.random = 11 + (uint32_t)arch};
    write_model(arch, CONTEXT);
    strcpy(store, "/tmp/hearth-states-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(store));
    help_model_file(&w->m, model);
    w->alone = help_backend(&w->m, NULL, 1, CONTEXT, CONTEXT / KV_PAGE_POSITIONS);
    for (uint32_t i = 0; i < TEXTS; i++)
        add_random(w->texts[i].tokens, &w->texts[i].n, 100 + 60 * i, &w->random);
}

static void walk_end(struct walk *w)
{
    hearth_close(w->h);
    ck_assert_int_eq(harness_stop(&d), 0);
    backend_cpu.close(w->alone);
    help_model_close(&w->m);
    folder_remove(store);
    unlink(model);
}

/* Sometimes the daemon begins anew, with what its store has; sometimes the client does, and has
 * its slots back by their name. */
static void walk_reconnect(struct walk *w, uint32_t step)
{
    const bool begins = step % STEPS_OF_A_DAEMON == 0;
    if (!begins && next_random(&w->random) % 10 > 0)
        return;
    hearth_close(w->h);
    if (begins && step > 0)
        ck_assert_int_eq(harness_stop(&d), 0);
    if (begins)
        start_daemon(w->m.model);
    w->h = harness_connect(&d, SLOTS, "editor");
}

static void walk_step(struct walk *w, uint32_t step, int arch)
{
    static const char *const proposers[] = {"none", "auto", "lookup", "mtp"};
    const uint32_t i = next_random(&w->random) % TEXTS, slot = next_random(&w->random) % SLOTS;
    uint32_t ids[OUTPUT];
    edit(w->texts, i, &w->random);
    struct text copy = w->texts[i];
    const uint32_t n_ids = alone(w->alone, copy.tokens, copy.n, ids);
    if (next_random(&w->random) % 4 == 0)
        interrupt(w->h, slot, &w->texts[next_random(&w->random) % TEXTS], &w->random);
    const struct hearth_result got =
        ask(w->h, slot, w->texts[i].tokens, w->texts[i].n, OUTPUT,
            proposers[next_random(&w->random) % (arch < WITH_MTP ? 4 : 3)]);
    check_answer(&got, ids, n_ids, step);
    w->cached += got.cached_tokens;
    w->stored += got.stored_tokens;
    w->drafted += got.drafted;
    if (next_random(&w->random) % 3 == 0 && w->texts[i].n + n_ids < CONTEXT - 60) { /* a turn */
        memcpy(w->texts[i].tokens + w->texts[i].n, ids, n_ids * sizeof(*ids));
        w->texts[i].n += n_ids;
    }
}

START_TEST(no_way_to_a_text_changes_its_answer)
{
    static struct walk w;
    const uint32_t steps = from_environment("HEARTH_STATES_STEPS", STEPS);
    walk_begin(&w, _i);
    for (uint32_t step = 0; step < steps; step++) {
        walk_reconnect(&w, step);
        walk_step(&w, step, _i);
    }
    printf("%s, %u steps: %u tokens cached, of which %u from the store, %u drafts\n", archs[_i],
           steps, w.cached, w.stored, w.drafted);
    ck_assert(w.cached > steps && (_i >= WITH_MTP || w.drafted > steps));
    ck_assert_uint_gt(w.stored, 0);
    walk_end(&w);
}
END_TEST

/* Several slots follow one trunk in the same passes, each to a text of its own. */
START_TEST(slots_on_one_trunk_answer_as_each_alone)
{
    static struct walk w;
    struct text texts[SLOTS];
    uint32_t ids[SLOTS][OUTPUT], n_ids[SLOTS];
    walk_begin(&w, _i);
    walk_reconnect(&w, 0);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            texts[i] = w.texts[round];
            add_random(texts[i].tokens, &texts[i].n, 40, &w.random);
            struct text copy = texts[i];
            n_ids[i] = alone(w.alone, copy.tokens, copy.n, ids[i]);
        }
        for (uint32_t i = 0; i < SLOTS; i++)
            submit(w.h, i, texts[i].tokens, texts[i].n, OUTPUT, "auto");
        for (uint32_t i = 0; i < SLOTS; i++) {
            const struct hearth_result got = read_end(w.h, i);
            check_answer(&got, ids[i], n_ids[i], round);
        }
    }
    walk_end(&w);
}
END_TEST

/* A slot whose reader stops is paused in the middle of its text; others go on meanwhile, and take
 * what it does not hold. */
START_TEST(a_pause_changes_no_answer)
{
    static const uint8_t zero[2]; /* an answer so long has every token in it */
    static uint32_t ids[PAUSED];
    static struct text text, other;
    uint32_t random = 3;
    write_model_with(_i, 2 * PAUSED, zero);
    harness_start(&d, model, (const char *const[]){"--threads", "1", "--slots", "2", NULL});
    struct hearth *h = harness_connect(&d, 2, NULL);
    struct hearth_request request;
    add_random(text.tokens, &text.n, 100, &random);
    hearth_request_init(&request, sizeof(request));
    request.tokens = text.tokens;
    request.n_tokens = text.n;
    request.max_tokens = PAUSED;
    request.ignore_eos = 1;
    request.logprobs = 5; /* a run of cells for each token: the ring is full soon */
    ck_assert_int_eq(hearth_submit(h, 0, &request), 0);
    ck_assert_int_eq(harness_wait_counter(&d, "stalls", 1), 1);
    for (uint32_t i = 0; i < 4; i++) {
        other = text; /* the same trunk */
        add_random(other.tokens, &other.n, 40, &random);
        ask(h, 1, other.tokens, other.n, OUTPUT, "auto");
    }
    ck_assert_int_eq(harness_counter(&d, "slots_paused"), 1);
    struct hearth_result got = read_end(h, 0);
    ck_assert_uint_eq(got.n_ids, PAUSED);
    memcpy(ids, got.ids, sizeof(ids));
    ck_assert_int_eq(hearth_submit(h, 1, &request), 0);
    got = read_end(h, 1);
    check_answer(&got, ids, PAUSED, 0);
    hearth_close(h);
    ck_assert_int_eq(harness_stop(&d), 0);
    unlink(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("states");
    TCase *tcase = tcase_create("states");
    tcase_set_timeout(tcase, 7200);
    tcase_add_loop_test(tcase, an_agent_s_turn_computes_what_is_new, 0, ARCHS);
    tcase_add_loop_test(tcase, no_way_to_a_text_changes_its_answer, 0, ARCHS);
    tcase_add_loop_test(tcase, slots_on_one_trunk_answer_as_each_alone, 0, ARCHS);
    tcase_add_loop_test(tcase, a_pause_changes_no_answer, 0, ARCHS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
