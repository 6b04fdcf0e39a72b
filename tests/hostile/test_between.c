/* What one user can learn of another: what is kept apart, by counts; with HEARTH_BETWEEN=N also what
 * times tell, over N pairs (SECURITY.md has the figures). A victim and a spy are connections of two
 * users, made by one process. */
#include "ipc/bell.h"
#include "tests/e2e/harness.h"
#include "tests/hostile/attack.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT = 320, WAIT_MS = 120000, PAIRS_MAX = 4096, CONTEXT = 512 };

static struct harness d;
static struct hearth *victim, *spy;

static struct hearth *connect_as(uid_t uid, const char *slot_name)
{
    struct hearth_options options;
    struct hearth *h = NULL;
    char err[256] = "";

    hearth_options_init(&options, sizeof(options));
    options.slot_name = slot_name;
    ck_assert_int_eq(seteuid(uid), 0);
    int rc = hearth_connect(d.socket, &options, &h, err, sizeof(err));
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_msg(rc == 0, "%s", err);
    return h;
}

static void setup(void)
{
    const char *const arguments[] = {"--threads", "1",           "--slots", "8", "--context",
                                     "512",       "--log-level", "error",   NULL};

    harness_start(&d, harness_tiny_model(), arguments);
    ck_assert_int_eq(chmod(d.directory, 0755), 0);
    ck_assert_int_eq(chmod(d.socket, 0666), 0);
    victim = connect_as(HONEST_USER, "secret");
    spy = connect_as(ATTACK_USER, NULL);
}

static void teardown(void)
{
    hearth_close(victim);
    hearth_close(spy);
    harness_stop(&d);
}

struct told {
    uint32_t cached;
    uint64_t first_ns; /* to the first token */
};

/* Asks for the prompt number `text` of n tokens. */
static struct told ask(struct hearth *h, uint32_t text, uint32_t n, const char *grammar,
                       uint32_t output)
{
    uint32_t prompt[CONTEXT];
    struct hearth_request r;
    const struct hearth_event *event;
    struct told told = {0};

    for (uint32_t i = 0; i < n; i++)
        prompt[i] = 3 + (text * 7919 + i * (text + 31)) % 250;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = n;
    r.max_tokens = output;
    r.grammar = grammar;
    r.grammar_bytes = grammar ? (uint32_t)strlen(grammar) : 0;
    uint64_t began = bell_now_ns();
    ck_assert_msg(hearth_submit(h, 0, &r) >= 0, "%s", hearth_error(h));
    while (hearth_next(h, 0, &event, WAIT_MS) > 0) {
        if (event->n_tokens && !told.first_ns)
            told.first_ns = bell_now_ns() - began;
        if (event->kind == HEARTH_DONE) {
            ck_assert_msg(event->result->reason != HEARTH_ERROR, "%s", hearth_error(h));
            told.cached = event->result->cached_tokens;
            return told;
        }
    }
    ck_abort_msg("no answer");
}

/* ---- what is kept apart ---------------------------------------------------------------------- */

START_TEST(a_users_prompt_is_not_found_by_another)
{
    ask(victim, 1, PROMPT, NULL, 2);
    ck_assert_uint_eq(ask(spy, 1, PROMPT, NULL, 2).cached, 0);
    ask(victim, 2, PROMPT, NULL, 2); /* its slot leaves the first prompt, and finds it again */
    ck_assert_uint_ge(ask(victim, 1, PROMPT, NULL, 2).cached, PROMPT - 32);
}
END_TEST

static json_t *status_of(struct hearth *h)
{
    static char text[65536];
    int64_t n = hearth_status(h, text, sizeof(text));

    ck_assert_int_gt(n, 0);
    json_t *root = json_loadb(text, (size_t)n, 0, NULL);
    ck_assert_ptr_nonnull(root);
    return root;
}

START_TEST(names_and_processes_are_shown_to_their_user)
{
    json_t *seen = status_of(spy), *own = status_of(victim), *row;
    size_t i;
    int others = 0, mine = 0;

    ck_assert_ptr_nonnull(json_object_get(own, "slots"));
    json_array_foreach(json_object_get(seen, "slots"), i, row) {
        if (json_integer_value(json_object_get(row, "uid")) != HONEST_USER)
            continue;
        ck_assert_ptr_null(json_object_get(row, "name"));
        ck_assert_ptr_null(json_object_get(row, "pid"));
        others++;
    }
    json_array_foreach(json_object_get(own, "slots"), i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        mine += name && strcmp(name, "secret") == 0;
    }
    ck_assert_int_eq(others, 1);
    ck_assert_int_eq(mine, 1);
    json_decref(seen);
    json_decref(own);
}
END_TEST

/* What every user sees, as SECURITY.md says: how long a prompt and its answer were, not their
 * tokens. */
START_TEST(lengths_are_public)
{
    int64_t prompts = harness_counter(&d, "prompt_tokens"),
            outputs = harness_counter(&d, "output_tokens");

    ask(victim, 3, 123, NULL, 17);
    ck_assert_int_eq(harness_wait_counter(&d, "prompt_tokens", prompts + 123), prompts + 123);
    ck_assert_int_eq(harness_wait_counter(&d, "output_tokens", outputs + 17), outputs + 17);
}
END_TEST

/* ---- what times tell ------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Pairs of times: the share of pairs in which the first is the shorter one, and the median of
 * their ratios. */
struct pairs {
    double ratio[PAIRS_MAX];
    uint32_t n, shorter;
};

static void pairs_add(struct pairs *p, uint64_t one_ns, uint64_t other_ns)
{
    p->ratio[p->n++] = (double)one_ns / (double)other_ns;
    p->shorter += one_ns < other_ns;
}

static void pairs_print(struct pairs *p, const char *what)
{
    qsort(p->ratio, p->n, sizeof(*p->ratio), compare);
    printf("%s: the shorter one in %.1f %% of %u pairs, median ratio %.3f\n", what,
           100.0 * p->shorter / p->n, p->n, p->ratio[p->n / 2]);
}

/* A prompt that `owner` asked before and one that no user did, each of them first in turn. */
static void pair_of_prompts(struct pairs *p, struct hearth *owner, uint32_t i)
{
    uint32_t known = 1000 + 2 * i, fresh = known + 1;

    ask(owner, known, PROMPT, NULL, 1);
    ask(spy, 9, 8, NULL, 1); /* the spy's slot holds neither */
    uint64_t first = ask(spy, i % 2 ? known : fresh, PROMPT, NULL, 1).first_ns;
    ask(spy, 9, 8, NULL, 1);
    uint64_t second = ask(spy, i % 2 ? fresh : known, PROMPT, NULL, 1).first_ns;
    pairs_add(p, i % 2 ? first : second, i % 2 ? second : first);
}

static void make_grammar(char *text, size_t bytes, uint32_t number)
{
    snprintf(text, bytes,
             "root ::= item{1,40}\nitem ::= [a-z]{1,30} \"%u\" | [0-9]{2,50} | [^a-f]{1,60}\n",
             number);
}

static void pair_of_grammars(struct pairs *p, struct hearth *owner, uint32_t i)
{
    char known[200], fresh[200];

    make_grammar(known, sizeof(known), 2 * i);
    make_grammar(fresh, sizeof(fresh), 2 * i + 1);
    ask(owner, 5, 8, known, 1);
    uint64_t first = ask(spy, 5, 8, i % 2 ? known : fresh, 1).first_ns;
    uint64_t second = ask(spy, 5, 8, i % 2 ? fresh : known, 1).first_ns;
    pairs_add(p, i % 2 ? first : second, i % 2 ? second : first);
}

START_TEST(times_are_measured)
{
    const char *wanted = getenv("HEARTH_BETWEEN");
    uint32_t n = wanted ? (uint32_t)strtoul(wanted, NULL, 10) : 2;
    static struct pairs prompts, own, grammars, own_grammars;

    n = n < PAIRS_MAX ? n : PAIRS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        pair_of_prompts(&prompts, victim, i);
        pair_of_prompts(&own, spy, i + n);
        pair_of_grammars(&grammars, victim, i);
        pair_of_grammars(&own_grammars, spy, i + n);
    }
    if (!wanted)
        return;
    pairs_print(&prompts, "a prompt that another user asked, beside a new one");
    pairs_print(&own, "a prompt that oneself asked, beside a new one");
    pairs_print(&grammars, "a grammar that another user has compiled, beside a new one");
    pairs_print(&own_grammars, "a grammar that oneself has compiled, beside a new one");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("between");
    TCase *tcase = tcase_create("between");

    if (getuid() != 0) {
        printf("skip: only root can connect as two users\n");
        return 0;
    }
    tcase_set_timeout(tcase, 3600);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_users_prompt_is_not_found_by_another);
    tcase_add_test(tcase, names_and_processes_are_shown_to_their_user);
    tcase_add_test(tcase, lengths_are_public);
    tcase_add_test(tcase, times_are_measured);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
