/*
 * Grammars in the engine: answers are those of the definition (rig_alone), whatever drafts, however
 * wrongly; they go on after a resume; what cannot be served is told in one line; a text is compiled
 * once, users take turns, and no other slot notices a grammar that costs much.
 */
#include "daemon/engine/constrain.h"
#include "daemon/engine/request.h"
#include "daemon/grammar/grammar_impl.h"
#include "ipc/params.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct rig rig;
static struct rig_client client;
static uint32_t tokens[RIG_TOKENS];

static const char *const grammars[] = {
    "root ::= \"a\"+ \"b\"{3} ([c-f] [^c-f])* \"h\"",
    "root ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\npair ::= str \":\" ws (str | num | root)\n"
    "str ::= \"\\\"\" [a-h]* \"\\\"\" ws\nnum ::= [0-9]{1,3} ws\nws ::= [ \\n]?\n",
    "root ::= \"abcdefgh\" root | \"a\"{2,30} | \"\xc3\xa9\" root",
    "root ::= [a-h]*",
    "root ::= (\"ab\" | \"a\" | \"ba\" | \"b\")* \"c\"?",
};
enum { GRAMMARS = sizeof(grammars) / sizeof(grammars[0]) };

static struct params with_grammar(const char *text)
{
    struct params p;
    params_default(&p);
    p.grammar = (const uint8_t *)text;
    p.grammar_bytes = (uint32_t)strlen(text);
    return p;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Letters are what the fake model writes; the shorter a mark, the sooner it comes. */
static const struct params_mark marks[] = {
    {.kind = PARAMS_MARK_CALL, .bytes = 1, .text = "b"},
    {.kind = PARAMS_MARK_CALL, .bytes = 2, .text = "gh"},
    {.kind = PARAMS_MARK_THOUGHT, .bytes = 1, .tokens = PARAMS_NO_LIMIT, .text = "c"},
    {.kind = PARAMS_MARK_THOUGHT_END, .bytes = 1, .text = "d"},
    {.kind = PARAMS_MARK_THOUGHT, .bytes = 1, .tokens = PARAMS_NO_LIMIT, .open = 1, .text = "c"},
    {.kind = PARAMS_MARK_THOUGHT_END, .bytes = 1, .text = "e"},
    {.kind = PARAMS_MARK_THOUGHT, .bytes = 1, .tokens = 5, .text = "c"},
    {.kind = PARAMS_MARK_THOUGHT_END, .bytes = 2, .text = "ab"},
    {.kind = PARAMS_MARK_CALL, .bytes = 1, .text = "h"},
    {.kind = PARAMS_MARK_THOUGHT, .bytes = 1, .tokens = 3, .open = 1, .text = "c"},
    {.kind = PARAMS_MARK_THOUGHT_END, .bytes = 1, .text = "z"},
};
static const struct {
    uint32_t from, n;
    bool grammar, limit;
} marked[] = {{0, 2, true, false}, {0, 4, true, false}, {4, 2, true, false}, {6, 3, true, true},
              {9, 2, true, true},  {9, 2, false, true}, {6, 2, false, true}};
enum { MARKED = sizeof(marked) / sizeof(marked[0]) };

static const uint32_t closing[] = {FAKE_BYTES + 'x', FAKE_BYTES + 'y', FAKE_BYTES + 'z'};

/* Request i: with a grammar from the start, or with marks. */
static void add_marks(struct params *p, uint32_t i)
{
    uint32_t which = i % (MARKED + 1);
    if (which == MARKED)
        return;
    p->marks = marks + marked[which].from;
    p->n_marks = marked[which].n;
    p->n_closing = marked[which].limit ? 3 : 0;
    p->closing = closing;
    p->grammar_bytes = marked[which].grammar ? p->grammar_bytes : 0;
}

static void open_with(const struct rig_desc *desc, uint32_t n_slots)
{
    rig_open(&rig, desc);
    rig_attach(&rig, &client, n_slots, 1000, "");
    rig_tokens(tokens, RIG_TOKENS, 5);
}

static void close_all(void)
{
    rig_detach(&rig, &client);
    rig_close(&rig);
}

/* ---- whatever drafts ------------------------------------------------------------------------- */

/* All proposers, drafts of models wrong one time in `wrong`. */
static void answers_are_those_of_the_definition(enum submit_proposer proposer, uint32_t wrong)
{
    struct rig_desc desc = {.proposer = proposer, .wrong = wrong};
    uint64_t drafted = 0, held = 0;
    open_with(&desc, 1);
    for (uint32_t i = 0; i < 12 * GRAMMARS * (MARKED + 1) / 4; i++) {
        struct params p = with_grammar(grammars[i % GRAMMARS]);
        add_marks(&p, i / GRAMMARS);
        p.seed = i;
        p.n_guess = 20; /* wrong from somewhere on, or from the beginning */
        p.guess = tokens + 200;
        struct rig_request request = {
            .tokens = tokens + i, .n = 5 + i, .max_tokens = 1 + i % 50, .params = &p};
        rig.fake.end_at = i % 3 ? request.n + 7 : FAKE_NEVER;
        const struct rig_answer *answer = rig_ask(&rig, &client, 0, &request);
        ck_assert_msg(rig_same(&rig, &request, answer), "request %u", i);
        drafted += answer->done.drafted;
        held += answer->done.accepted_drafts;
    }
    ck_assert(drafted > 0 || proposer == PROPOSER_NONE);
    ck_assert(held > 0 || proposer == PROPOSER_NONE || proposer == PROPOSER_CLIENT);
    close_all();
}

START_TEST(without_drafts)
{
    answers_are_those_of_the_definition(PROPOSER_NONE, 0);
}
END_TEST

START_TEST(with_drafts_from_text)
{
    answers_are_those_of_the_definition(PROPOSER_LOOKUP, 0);
    answers_are_those_of_the_definition(PROPOSER_CLIENT, 0);
}
END_TEST

START_TEST(with_drafts_of_a_model)
{
    answers_are_those_of_the_definition(PROPOSER_DRAFT, 0);
    answers_are_those_of_the_definition(PROPOSER_DRAFT, 3);
}
END_TEST

START_TEST(with_drafts_of_a_shadow)
{
    answers_are_those_of_the_definition(PROPOSER_SHADOW, 3);
    answers_are_those_of_the_definition(PROPOSER_FAST, 2);
}
END_TEST

/* The test makes the drafts: right, wrong and forbidden ones. Forbidden ones are not accepted. */
START_TEST(with_spoilt_drafts)
{
    struct rig_desc desc = {.proposer = PROPOSER_NONE};
    uint64_t rollbacks = 0, held = 0;
    uint32_t state = 1;
    open_with(&desc, 1);
    for (uint32_t i = 0; i < 100; i++) {
        struct params p = with_grammar(grammars[i % GRAMMARS]);
        add_marks(&p, i / GRAMMARS);
        struct rig_request request = {
            .tokens = tokens + i, .n = 5 + i, .max_tokens = 50, .params = &p};
        struct slot *slot = &rig.engine->slots.all[0];
        rig_submit(&client, 0, &request);
        do {
            for (uint32_t k = 0;
                 slot->state != SLOT_IDLE && slot->request->first_sample_ns && k < 6; k++) {
                uint32_t at = slot->spec.accepted + slot->spec.drafted;
                uint32_t token = fake_next(&rig.fake, slot->tokens, at, 0);
                state = state * 1664525u + 1013904223u;
                if (state >> 29 == 0)
                    token = FAKE_BYTES + 'a' + (state >> 20) % 8;
                if (at + 1 >= slot->request->limit ||
                    !constrain_draft(&rig.loaded.vocab, slot, token))
                    break;
                spec_draft(&slot->spec, slot->tokens, token);
                slot->request->drafted++;
            }
            rig_read_all(&client);
        } while (rig_step(&rig));
        rig_read_all(&client);
        const struct rig_answer *answer = &client.slots[0].last;
        ck_assert_msg(rig_same(&rig, &request, answer), "request %u", i);
        rollbacks += answer->done.rollbacks;
        held += answer->done.accepted_drafts;
    }
    ck_assert_uint_gt(rollbacks, 50);
    ck_assert_uint_gt(held, 500);
    close_all();
}
END_TEST

/* Slots with one grammar, with others, and without, in the same passes. */
START_TEST(beside_each_other)
{
    struct params params[RIG_SLOTS];
    struct rig_request requests[RIG_SLOTS];
    open_with(NULL, RIG_SLOTS);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < RIG_SLOTS; i++) {
            params[i] = with_grammar(grammars[(round + i / 2) % GRAMMARS]);
            if (i == 3)
                params[i].grammar_bytes = 0;
            else
                add_marks(&params[i], round + i);
            requests[i] = (struct rig_request){.tokens = tokens + 7 * i + round,
                                               .n = 5 + round,
                                               .max_tokens = 40,
                                               .params = &params[i]};
            rig_submit(&client, i, &requests[i]);
        }
        while (rig_step(&rig))
            rig_read_all(&client);
        rig_read_all(&client);
        for (uint32_t i = 0; i < RIG_SLOTS; i++)
            ck_assert(rig_same(&rig, &requests[i], &client.slots[i].last));
    }
    close_all();
}
END_TEST

/* ---- ends and beginnings --------------------------------------------------------------------- */

START_TEST(the_end_is_where_nothing_may_follow)
{
    struct params p = with_grammar("root ::= \"abc\"");
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 50, .params = &p};
    open_with(NULL, 1);
    const struct rig_answer *answer = rig_ask(&rig, &client, 0, &request);
    ck_assert_int_eq(answer->reason, DONE_EOS);
    ck_assert_uint_eq(answer->done.output, 3);
    ck_assert_uint_eq(answer->tokens[2], FAKE_BYTES + 'c');
    p = with_grammar("root ::=");
    answer = rig_ask(&rig, &client, 0, &request);
    ck_assert(answer->reason == DONE_EOS && answer->done.output == 0);
    p = with_grammar(
        "root ::= \"abc\""); /* the limit and a stop text where the grammar ends, too */
    request.max_tokens = 3;
    ck_assert_int_eq(rig_ask(&rig, &client, 0, &request)->reason, DONE_EOS);
    request.max_tokens = 2;
    ck_assert_int_eq(rig_ask(&rig, &client, 0, &request)->reason, DONE_LENGTH);
    uint32_t two = 2;
    p.n_stop_texts = 1;
    p.stop_text_lengths = &two;
    p.stop_text_bytes = 2;
    p.stop_texts = (const uint8_t *)"bc";
    request.max_tokens = 9;
    answer = rig_ask(&rig, &client, 0, &request);
    ck_assert(answer->reason == DONE_STOP && rig_same(&rig, &request, answer));
    request.max_tokens = 0; /* only warm */
    ck_assert_int_eq(rig_ask(&rig, &client, 0, &request)->reason, DONE_LENGTH);
    close_all();
}
END_TEST

START_TEST(an_answer_goes_on_after_a_resume)
{
    static uint32_t sequence[RIG_TOKENS];
    struct rig_answer whole;
    open_with(NULL, 1);
    for (uint32_t i = 0; i < GRAMMARS * (MARKED + 1); i++) {
        struct params p = with_grammar(grammars[i % GRAMMARS]);
        struct rig_request request = {.tokens = sequence, .n = 9, .max_tokens = 40, .params = &p};
        add_marks(&p, MARKED - i / GRAMMARS);
        memcpy(sequence, tokens + i, 9 * sizeof(*sequence));
        rig_alone(&rig, &request, &whole);
        memcpy(sequence + 9, whole.tokens, whole.n * sizeof(*sequence));
        for (uint32_t k = 0; k <= whole.n; k++) {
            request.n = 9 + k;
            request.prompt_length = 9;
            const struct rig_answer *rest = rig_ask(&rig, &client, 0, &request);
            ck_assert(rig_same(&rig, &request, rest));
            ck_assert_uint_eq(rest->n, whole.n - k);
            ck_assert(!memcmp(rest->tokens, whole.tokens + k, rest->n * sizeof(*sequence)));
            ck_assert_int_eq(rest->reason, whole.reason);
        }
        if (p.n_marks)
            continue;
        sequence[9] = FAKE_BYTES + 'Z'; /* no grammar here has it: another one's answer */
        request.n = 10;
        const struct rig_answer *none = rig_ask(&rig, &client, 0, &request);
        ck_assert(none->reason == DONE_ERROR && none->done.error == -EINVAL);
        ck_assert_str_eq(none->done.text,
                         "the answer so far does not follow this grammar: start a new request");
    }
    close_all();
}
END_TEST

START_TEST(a_bad_grammar_is_refused_in_one_line)
{
    struct params p = with_grammar("root ::= a\na ::= \"x");
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 5, .params = &p};
    open_with(NULL, 1);
    for (int i = 0; i < 3; i++) {
        const struct rig_answer *answer = rig_ask(&rig, &client, 0, &request);
        ck_assert(answer->reason == DONE_ERROR && answer->done.error == -EINVAL);
        ck_assert_str_eq(answer->done.text, "grammar line 2, column 7: this literal is not closed");
    }
    p = with_grammar("root ::= \"x\"");
    ck_assert_int_eq(rig_ask(&rig, &client, 0, &request)->reason, DONE_EOS);
    close_all();
}
END_TEST

/* ---- what it costs others -------------------------------------------------------------------- */

/* A grammar whose masks take many steps, and an answer beside it that has none: that one gets its
 * token in every step. */
START_TEST(a_dear_grammar_holds_up_itself_alone)
{
    struct params dear = with_grammar(grammars[1]);
    struct rig_request slow = {.tokens = tokens, .n = 5, .max_tokens = 5, .params = &dear};
    struct rig_request quick = {.tokens = tokens + 9, .n = 5, .max_tokens = 60};
    struct rig_desc desc = {.proposer = PROPOSER_NONE};
    open_with(&desc, 2);
    rig.engine->constrain.step = 8;
    rig_submit(&client, 0, &slow);
    rig_submit(&client, 1, &quick);
    uint32_t steps = 0, masking = 0;
    while (!client.slots[1].last.reason) {
        rig_step(&rig);
        masking += rig.engine->slots.all[0].state == SLOT_MASKING;
        ck_assert_uint_lt(++steps, 70);
        rig_read_all(&client);
    }
    ck_assert_uint_gt(masking, 10);
    ck_assert(rig_same(&rig, &quick, &client.slots[1].last));
    while (rig_step(&rig))
        rig_read_all(&client);
    rig_read_all(&client);
    ck_assert(rig_same(&rig, &slow, &client.slots[0].last));
    close_all();
}
END_TEST

/* Masks that take many steps, and models that draft several tokens, one a step: a window that is
 * cut for want of a mask is verified with what it has, also beside one that goes on. */
START_TEST(a_window_is_cut_where_a_mask_takes_long)
{
    static const enum submit_proposer proposers[] = {PROPOSER_DRAFT, PROPOSER_SHADOW,
                                                     PROPOSER_FAST};
    struct rig_desc desc = {.proposer = proposers[_i]};
    struct params p[3];
    struct rig_request requests[3];
    open_with(&desc, 3);
    for (uint32_t i = 0; i < 4 * GRAMMARS; i++) {
        rig.engine->constrain.step = 1 + 20 * (i / GRAMMARS);
        for (uint32_t k = 0; k < 3; k++) {
            p[k] = with_grammar(grammars[(i + k) % GRAMMARS]);
            p[k].grammar_bytes = k == 2 ? 0 : p[k].grammar_bytes;
            requests[k] = (struct rig_request){
                .tokens = tokens + 3 * i + k, .n = 5, .max_tokens = 30, .params = &p[k]};
            rig_submit(&client, k, &requests[k]);
        }
        for (uint32_t steps = 0; rig_step(&rig); steps++) {
            rig_read_all(&client);
            ck_assert_uint_lt(steps, 100000);
        }
        rig_read_all(&client);
        for (uint32_t k = 0; k < 3; k++)
            ck_assert_msg(rig_same(&rig, &requests[k], &client.slots[k].last), "request %u, %u", i,
                          k);
    }
    close_all();
}
END_TEST

/* How many steps an answer of one user takes whose masks take some, beside `n` slots of another
 * user, each with a grammar of its own whose masks take many. */
static uint32_t steps_beside(uint32_t n)
{
    static const char *const wide = "root ::= ([a-d] | [b-h] | \"ab\" | \"abc\"){%u,300}";
    static struct rig_client crowd[2];
    static char texts[2 * RIG_SLOTS][64];
    struct rig_desc desc = {.proposer = PROPOSER_NONE, .slots = 1 + 2 * RIG_SLOTS};
    struct params p = with_grammar(grammars[3]), others[2 * RIG_SLOTS];
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 20, .params = &p};
    uint32_t steps = 0;
    open_with(&desc, 1);
    for (uint32_t i = 0; i < 2; i++)
        rig_attach(&rig, &crowd[i], RIG_SLOTS, 2000, "");
    for (uint32_t i = 0; i < n; i++) {
        snprintf(texts[i], sizeof(texts[i]), wide, 200 + i);
        others[i] = with_grammar(texts[i]);
        struct rig_request other = {
            .tokens = tokens + i, .n = 9, .max_tokens = 300, .params = &others[i]};
        rig_submit(&crowd[i / RIG_SLOTS], i % RIG_SLOTS, &other);
    }
    for (uint32_t i = 0; i < 2 * n + 2; i++) /* all are compiled */
        rig_step(&rig);
    rig.engine->constrain.step = 8;
    rig_submit(&client, 0, &request);
    for (; !client.slots[0].last.reason; steps++) {
        rig_step(&rig);
        rig_read_all(&client);
        for (uint32_t i = 0; i < 2; i++)
            rig_read_all(&crowd[i]);
        ck_assert_uint_lt(steps, 100000);
    }
    ck_assert(rig_same(&rig, &request, &client.slots[0].last));
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(crowd[i / RIG_SLOTS].slots[i % RIG_SLOTS].last.reason, 0);
    for (uint32_t i = 0; i < 2; i++)
        rig_detach(&rig, &crowd[i]);
    close_all();
    return steps;
}

/* Users take turns at making masks, and then a user's slots: another user's many slots take no more
 * of that from one than a single one does. */
START_TEST(users_take_turns_at_masks)
{
    const uint32_t alone = steps_beside(0), one = steps_beside(1),
                   many = steps_beside(2 * RIG_SLOTS);
    ck_assert_uint_le(one, 2 * alone);
    ck_assert_uint_le(many, 2 * alone);
}
END_TEST

/* Tokens that take too long to be followed after a pass: the next step does it, or says that the
 * answer is over, for all that an answer may end by. */
START_TEST(a_token_may_be_followed_later)
{
    static const uint32_t one = 1;
    struct rig_desc desc = {.proposer = _i ? PROPOSER_AUTO : PROPOSER_NONE,
                            .fast = _i == 2 ? BACKEND_FAST_NATIVE : BACKEND_FAST_NONE};
    uint32_t reasons[DONE_ERROR + 1] = {0}, behind = 0;
    open_with(&desc, 1);
    rig.engine->constrain.token = 0;
    for (uint32_t i = 0; i < 10 * GRAMMARS; i++) {
        struct params p = with_grammar(grammars[i % GRAMMARS]);
        struct rig_request request = {.tokens = tokens + i,
                                      .n = 5 + i,
                                      .max_tokens = 1 + i % 30,
                                      .fast = _i == 2 && rig.loaded.limits.states == 0,
                                      .params = &p};
        p.seed = i;
        p.n_stop_texts = i % 3 == 0;
        p.stop_text_lengths = &one;
        p.stop_text_bytes = p.n_stop_texts;
        p.stop_texts = (const uint8_t *)"bh" + i % 2;
        add_marks(&p, i / GRAMMARS);
        rig.fake.end_at = i % 2 ? request.n + 7 : FAKE_NEVER;
        rig_submit(&client, 0, &request);
        do {
            behind += rig.engine->slots.all[0].request->behind;
            rig_read_all(&client);
        } while (rig_step(&rig));
        rig_read_all(&client);
        ck_assert_msg(rig_same(&rig, &request, &client.slots[0].last), "request %u", i);
        reasons[client.slots[0].last.reason]++;
    }
    ck_assert_uint_gt(behind, 10);
    ck_assert(reasons[DONE_EOS] > 0 && reasons[DONE_STOP] > 0 && reasons[DONE_LENGTH] > 0);
    close_all();
}
END_TEST

/* A resumed request with a long part of its answer, which takes many steps to follow; what is wrong
 * with its last token is told when it is reached. Beside it an answer gets its token in every step. */
START_TEST(a_long_answer_so_far_holds_up_itself_alone)
{
    enum { PROMPT = 9, SO_FAR = 20 };
    static uint32_t sequence[PROMPT + SO_FAR];
    struct params p = with_grammar(grammars[3]);
    struct rig_desc desc = {.proposer = PROPOSER_NONE};
    rig_tokens(tokens, RIG_TOKENS, 5);
    memcpy(sequence, tokens, PROMPT * sizeof(*sequence));
    for (uint32_t i = 0; i < SO_FAR; i++)
        sequence[PROMPT + i] = FAKE_BYTES + 'a' + i % 8;
    for (int wrong = 0; wrong < 2; wrong++) {
        open_with(&desc, 2);
        rig.engine->constrain.step = 1; /* a token a step */
        struct rig_request slow = {.tokens = sequence,
                                   .n = PROMPT + SO_FAR,
                                   .prompt_length = PROMPT,
                                   .max_tokens = SO_FAR + 5,
                                   .params = &p};
        struct rig_request quick = {.tokens = tokens + 9, .n = 5, .max_tokens = 40};
        if (wrong)
            sequence[PROMPT + SO_FAR - 1] = FAKE_BYTES + 'Z';
        rig_submit(&client, 0, &slow);
        rig_submit(&client, 1, &quick);
        uint32_t steps = 0;
        while (!client.slots[1].last.reason) {
            rig_step(&rig);
            rig_read_all(&client);
            ck_assert_uint_lt(++steps, 50);
            ck_assert_msg(steps > 15 || !client.slots[0].last.reason, "followed in %u steps",
                          steps);
        }
        ck_assert(rig_same(&rig, &quick, &client.slots[1].last));
        while (rig_step(&rig))
            rig_read_all(&client);
        rig_read_all(&client);
        const struct rig_answer *end = &client.slots[0].last;
        if (wrong)
            ck_assert(end->reason == DONE_ERROR && end->done.error == -EINVAL && end->n == 0);
        else
            ck_assert(end->n == 5 && rig_same(&rig, &slow, end));
        close_all();
    }
}
END_TEST

/* The same with as many marks as there can be, none of which ends: each byte is compared with all. */
START_TEST(marks_in_a_long_answer_so_far_are_paid)
{
    enum { PROMPT = 9, SO_FAR = 20, COST = 1 + PARAMS_MARKS_MAX };
    static uint32_t sequence[PROMPT + SO_FAR];
    static struct params_mark many[PARAMS_MARKS_MAX];
    struct params p = with_grammar(grammars[3]);
    struct rig_desc desc = {.proposer = PROPOSER_NONE};
    for (uint32_t i = 0; i < PARAMS_MARKS_MAX; i++)
        many[i] = (struct params_mark){.kind = PARAMS_MARK_CALL, .bytes = 3, .text = "aaZ"};
    p.marks = many;
    p.n_marks = PARAMS_MARKS_MAX;
    rig_tokens(tokens, RIG_TOKENS, 5);
    memcpy(sequence, tokens, PROMPT * sizeof(*sequence));
    for (uint32_t i = 0; i < SO_FAR; i++)
        sequence[PROMPT + i] = FAKE_BYTES + 'a';
    struct rig_request slow = {.tokens = sequence,
                               .n = PROMPT + SO_FAR,
                               .prompt_length = PROMPT,
                               .max_tokens = SO_FAR + 5,
                               .params = &p};
    open_with(&desc, 1);
    rig.engine->constrain.step = COST; /* a token a step */
    rig_submit(&client, 0, &slow);
    uint32_t steps = 0;
    while (!client.slots[0].last.reason) {
        rig_step(&rig);
        rig_read_all(&client);
        steps++;
    }
    ck_assert_uint_gt(steps, SO_FAR);
    ck_assert_uint_eq(client.slots[0].last.reason, DONE_LENGTH);
    close_all();
}
END_TEST

/* Drafts that were taken are not read again: written over with a mark, they bind nothing. */
START_TEST(a_draft_is_compared_with_the_marks_once)
{
    struct rig_desc desc = {.proposer = PROPOSER_NONE};
    struct params p = with_grammar(grammars[3]);
    struct request request = {.constrained = true, .params = p};
    struct slot slot = {.request = &request, .tokens = tokens, .spec = {.accepted = 5}};
    request.params.marks = marks;
    request.params.n_marks = 2;
    marks_begin(&request.marks, &request.params);
    open_with(&desc, 1);
    const struct vocab *vocab = rig.engine->constrain.vocab;
    for (uint32_t i = 0; i < WINDOW_MAX; i++) {
        ck_assert(!constrain_draft(vocab, &slot, FAKE_BYTES + 'b'));
        ck_assert(constrain_draft(vocab, &slot, FAKE_BYTES + 'g'));
        spec_draft(&slot.spec, tokens, FAKE_BYTES + 'b');
        ck_assert(!constrain_draft(vocab, &slot, FAKE_BYTES + 'h')); /* "gh", from two drafts */
    }
    close_all();
}
END_TEST

/* More grammars than there is room for, again and again: those in use stay. */
START_TEST(grammars_are_kept_and_given_up)
{
    struct params params[2];
    struct rig_request requests[2];
    char texts[2][64];
    open_with(NULL, 2);
    for (uint32_t i = 0; i < 12 * GRAMMARS * (MARKED + 1) / 4; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            snprintf(texts[k], sizeof(texts[k]), "root ::= [a-h]{%u} \"x\"",
                     1 + (i * (k + 1)) % 23);
            params[k] = with_grammar(texts[k]);
            requests[k] = (struct rig_request){
                .tokens = tokens + i, .n = 5, .max_tokens = 30, .params = &params[k]};
            rig_submit(&client, k, &requests[k]);
        }
        while (rig_step(&rig))
            rig_read_all(&client);
        rig_read_all(&client);
        for (uint32_t k = 0; k < 2; k++)
            ck_assert(rig_same(&rig, &requests[k], &client.slots[k].last));
    }
    rig_submit(&client, 0, &requests[0]); /* cancelled in the middle, superseded in the middle */
    rig_step(&rig);
    rig_cancel(&client, 0);
    rig_step(&rig);
    rig_submit(&client, 0, &requests[0]);
    rig_step(&rig);
    ck_assert(rig_same(&rig, &requests[1], rig_ask(&rig, &client, 0, &requests[1])));
    close_all();
}
END_TEST

/* ---- compiling ------------------------------------------------------------------------------- */

static uint32_t n_compiled;

/* Steps until there is nothing to do, and counts what was compiled meanwhile. */
static void run_counted(void)
{
    uint32_t work;
    do {
        work = engine_step(rig.engine);
        rig_read_all(&client);
        bool compiled = compiler_step(&rig.engine->constrain.grammars.compiler);
        n_compiled += compiled;
        work += compiled;
    } while (work > 0);
}

static const struct rig_answer *ask_counted(struct rig_client *c, uint32_t slot, const char *text)
{
    struct params p = with_grammar(text);
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 30, .params = &p};
    rig_submit(c, slot, &request);
    run_counted();
    rig_read_all(c);
    const struct rig_answer *answer = &c->slots[slot].last;
    ck_assert_uint_eq(answer->generation, c->slots[slot].generation);
    if (answer->reason != DONE_ERROR)
        ck_assert(rig_same(&rig, &request, answer));
    return answer;
}

static void submit_grammar(struct rig_client *c, uint32_t slot, const char *text)
{
    struct params p = with_grammar(text);
    rig_submit(c, slot,
               &(struct rig_request){.tokens = tokens, .n = 5, .max_tokens = 30, .params = &p});
}

/* The compiler stands still: the slot that waits for it makes no work for the engine, and the other
 * answer gets its token in every step. */
START_TEST(a_grammar_that_is_compiled_holds_up_itself_alone)
{
    struct params p = with_grammar(grammars[1]);
    struct rig_request slow = {.tokens = tokens, .n = 5, .max_tokens = 30, .params = &p};
    struct rig_request warm = {.tokens = tokens, .n = 5, .max_tokens = 0, .params = &p};
    struct rig_request quick = {.tokens = tokens + 9, .n = 5, .max_tokens = 60};
    struct rig_desc desc = {.proposer = PROPOSER_NONE};
    open_with(&desc, 3);
    rig_submit(&client, 0, &slow);
    rig_submit(&client, 1, &quick);
    rig_submit(&client, 2, &warm);
    for (uint32_t steps = 0; !client.slots[1].last.reason; steps++) {
        engine_step(rig.engine);
        ck_assert_uint_lt(steps, 65);
        rig_read_all(&client);
    }
    ck_assert(rig_same(&rig, &quick, &client.slots[1].last));
    while (engine_step(rig.engine))
        ;
    ck_assert(rig.engine->slots.all[0].state == SLOT_MASKING);
    ck_assert(rig.engine->slots.all[2].state == SLOT_MASKING);
    ck_assert(!engine_look(rig.engine)); /* it may sleep ... */
    ck_assert(compiler_step(&rig.engine->constrain.grammars.compiler));
    ck_assert(engine_look(rig.engine)); /* ... until there is a result */
    while (rig_step(&rig))
        rig_read_all(&client);
    rig_read_all(&client);
    ck_assert(rig_same(&rig, &slow, &client.slots[0].last));
    ck_assert(rig_same(&rig, &warm, &client.slots[2].last));
    close_all();
}
END_TEST

static uint32_t resident_pages(void)
{
    const struct request *request = rig.engine->slots.all[0].request;
    unsigned char pages[(1 << 20) / 4096];
    uint32_t n = 0;
    ck_assert_int_eq(mincore(request->block, request->block_bytes, pages), 0);
    for (size_t i = 0; i < sizeof(pages); i++)
        n += pages[i] & 1;
    return n;
}

/* Room for the largest request is reserved; what one took of it does not stay, however it ended. */
START_TEST(the_memory_of_a_large_request_is_given_back)
{
    enum { ROOM = 1 << 20, KEPT = 65536 / 4096 };
    struct rig_desc desc = {.params_bytes = ROOM};
    static char text[ROOM - 1000];
    struct params p;
    snprintf(text, sizeof(text), "root ::= [a-h]{3} #%*s", (int)sizeof(text) - 30, "");
    open_with(&desc, 1);
    p = with_grammar(text);
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 30, .params = &p};
    for (int i = 0; i < 4; i++) {
        tokens[4] = i == 1 ? 1u << 30 : 1; /* it is copied, then refused */
        if (i == 3)
            text[9] = '(';
        rig_submit(&client, 0, &request);
        engine_step(rig.engine);
        if (i == 0)
            ck_assert_uint_gt(resident_pages(), ROOM / 4096 * 9 / 10);
        if (i == 2)
            rig_cancel(&client, 0);
        while (rig_step(&rig))
            rig_read_all(&client);
        rig_read_all(&client);
        ck_assert_uint_le(resident_pages(), KEPT);
    }
    close_all();
}
END_TEST

START_TEST(a_text_is_compiled_once)
{
    static const char good[] = "root ::= [a-h]{3}", bad[] = "root ::= a\na ::= \"x";
    open_with(NULL, 3);
    for (uint32_t i = 0; i < 3; i++)
        submit_grammar(&client, i, good); /* all wait for the same one */
    run_counted();
    ck_assert_uint_eq(n_compiled, 1);
    for (int i = 0; i < 100; i++) {
        const struct rig_answer *answer = ask_counted(&client, 0, i % 2 ? bad : good);
        ck_assert_int_eq(answer->reason, i % 2 ? DONE_ERROR : DONE_EOS);
        ck_assert_str_eq(answer->done.text,
                         i % 2 ? "grammar line 2, column 7: this literal is not closed" : "");
    }
    ck_assert_uint_eq(n_compiled, 2);
    struct params p = with_grammar("root ::= \"y\"");
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 3, .params = &p};
    struct submit_cell cell = rig_prepare(&client, 0, &request);
    for (int i = 0; i < 16; i++)
        rig_push(&client, &cell);
    run_counted();
    ck_assert_uint_eq(n_compiled, 3);
    ck_assert(rig_same(&rig, &request, &client.slots[0].last));
    close_all();
}
END_TEST

/* A step's masks are in use until the next one, and no longer: the oldest then make room. */
START_TEST(masks_of_earlier_steps_are_given_back)
{
    open_with(NULL, 1);
    struct params p = with_grammar("root ::= \"a\" root \"b\" | [c-h] root | \"x\"");
    struct rig_request request = {.tokens = tokens, .n = 5, .max_tokens = 60, .params = &p};
    uint32_t n_looks = 0;
    rig_submit(&client, 0, &request);
    while (rig_step(&rig)) {
        const struct grammars *all = &rig.engine->constrain.grammars;
        for (uint32_t i = 0; i < all->n_entries; i++) {
            const struct grammar *grammar = all->entries[i].job.grammar;
            if (all->entries[i].users == 0 || !grammar || grammar->clock < 30)
                continue;
            ck_assert_uint_le(grammar->clock - grammar->released, 20);
            n_looks++;
        }
        rig_read_all(&client);
    }
    ck_assert_uint_gt(n_looks, 10);
    close_all();
}
END_TEST

/* What one user compiles, or has refused, pushes out its own grammars only. */
START_TEST(the_places_of_idle_grammars_are_shared_by_user)
{
    struct rig_client other;
    char text[64];
    open_with(NULL, 1);
    rig_attach(&rig, &other, 1, 2000, "");
    ask_counted(&other, 0, "root ::= \"kept\"");
    ask_counted(&other, 0, "root ::= refused");
    ck_assert_uint_eq(n_compiled, 2);
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), i % 2 ? "root ::= \"%d\"" : "root ::= r%d", i);
        ask_counted(&client, 0, text);
    }
    ck_assert_uint_eq(n_compiled, 102);
    ask_counted(&client, 0, text);
    ck_assert_int_eq(ask_counted(&other, 0, "root ::= \"kept\"")->reason, DONE_EOS);
    ck_assert_int_eq(ask_counted(&other, 0, "root ::= refused")->reason, DONE_ERROR);
    ck_assert_uint_eq(n_compiled, 102);
    ask_counted(&other, 0, text); /* entries of other users are not counted as this one's */
    ck_assert_uint_eq(n_compiled, 103);
    ask_counted(&client, 0, "root ::= r0"); /* long given up */
    ck_assert_uint_eq(n_compiled, 104);
    rig_detach(&rig, &other);
    close_all();
}
END_TEST

/* One user's requests wait in a row: another user's waits for one of them at most. */
START_TEST(users_take_turns_at_the_compiler)
{
    struct rig_client other;
    static const char *const texts[] = {"root ::= \"a\"", "root ::= \"b\"", "root ::= \"c\"",
                                        "root ::= \"d\""};
    for (uid_t uid = 999; uid <= 1001; uid += 2) { /* on either side of the first one's */
        open_with(NULL, 4);
        rig_attach(&rig, &other, 1, uid, "");
        for (uint32_t i = 0; i < 4; i++)
            submit_grammar(&client, i, texts[i]);
        engine_step(rig.engine); /* the first one is in hand */
        submit_grammar(&other, 0, texts[3]);
        for (uint32_t i = 0; i < 3; i++)
            rig_step(&rig);
        rig_read_all(&client);
        rig_read_all(&other);
        ck_assert_int_eq(client.slots[0].last.reason, DONE_EOS);
        ck_assert_int_eq(other.slots[0].last.reason, DONE_EOS);
        ck_assert_int_eq(client.slots[1].last.reason, 0);
        while (rig_step(&rig))
            rig_read_all(&client);
        rig_read_all(&client);
        for (uint32_t i = 0; i < 4; i++)
            ck_assert_int_eq(client.slots[i].last.reason, DONE_EOS);
        rig_detach(&rig, &other);
        close_all();
    }
}
END_TEST

/* A user whose grammars took a quarter of a second gets an eighth of a core from then on; another one
 * has its grammar at once, and the thread sleeps until the first has paid. */
enum { COMPILE_MS = 50, FREE = 5 /* such grammars */ };
static uint64_t paid_clock_ns, compile_cpu_ns;

static uint64_t paid_clock(void)
{
    return paid_clock_ns;
}

static uint64_t compile_cpu(void)
{
    compile_cpu_ns += COMPILE_MS * UINT64_C(1000000); /* between two looks */
    return compile_cpu_ns;
}

START_TEST(a_user_pays_for_what_its_grammars_take)
{
    struct rig_desc desc = {.now_ns = paid_clock, .cpu_ns = compile_cpu};
    struct rig_client other;
    char text[64];
    paid_clock_ns = UINT64_C(1000000000000);
    open_with(&desc, 1);
    rig_attach(&rig, &other, 1, 2000, "");
    uint32_t before = n_compiled, i = 0;
    for (; i < 20; i++) {
        snprintf(text, sizeof(text), "root ::= \"%u\"", i);
        submit_grammar(&client, 0, text);
        run_counted();
        if (client.slots[0].last.generation != client.slots[0].generation ||
            client.slots[0].last.reason == 0)
            break;
    }
    ck_assert_uint_eq(n_compiled - before, FREE + 1); /* one more, for which it owes */
    ck_assert_int_eq(ask_counted(&other, 0, "root ::= \"another user's\"")->reason, DONE_EOS);
    uint64_t due_ns = grammars_deadline(&rig.engine->constrain.grammars);
    ck_assert_uint_eq(due_ns - paid_clock_ns, 8 * COMPILE_MS * UINT64_C(1000000));
    paid_clock_ns = due_ns - 1;
    run_counted();
    ck_assert_uint_eq(n_compiled - before, FREE + 2);
    paid_clock_ns = due_ns;
    run_counted();
    ck_assert_uint_eq(n_compiled - before, FREE + 3);
    rig_read_all(&client);
    ck_assert_int_eq(client.slots[0].last.reason, DONE_EOS);
    ck_assert_uint_eq(grammars_deadline(&rig.engine->constrain.grammars), UINT64_MAX);
    rig_detach(&rig, &other);
    close_all();
}
END_TEST

/* Requests that end while their grammar waits, or is being compiled: what only waited is forgotten,
 * what was in hand is kept for the next request. */
START_TEST(a_request_may_end_before_its_grammar_is_compiled)
{
    struct rig_client other;
    open_with(NULL, 2);
    submit_grammar(&client, 0, "root ::= \"a\"");
    submit_grammar(&client, 1, "root ::= \"b\"");
    engine_step(rig.engine);
    rig_cancel(&client, 0);
    submit_grammar(&client, 1, "root ::= \"c\"");
    run_counted();
    ck_assert_uint_eq(n_compiled, 2);
    ck_assert_int_eq(client.slots[0].last.reason, DONE_CANCELLED);
    ck_assert_int_eq(client.slots[1].last.reason, DONE_EOS);
    ask_counted(&client, 0, "root ::= \"a\"");
    ck_assert_uint_eq(n_compiled, 2);
    rig_attach(&rig, &other, 2, 2000, "");
    submit_grammar(&other, 0, "root ::= \"d\"");
    submit_grammar(&other, 1, "root ::= \"e\"");
    engine_step(rig.engine);
    rig_detach(&rig, &other);
    run_counted();
    ck_assert_uint_eq(n_compiled, 3);
    submit_grammar(&client, 0, "root ::= \"f\""); /* the engine is closed with a job in hand */
    engine_step(rig.engine);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_grammar");
    TCase *tests = tcase_create("grammar");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, without_drafts);
    tcase_add_test(tests, with_drafts_from_text);
    tcase_add_test(tests, with_drafts_of_a_model);
    tcase_add_test(tests, with_drafts_of_a_shadow);
    tcase_add_test(tests, with_spoilt_drafts);
    tcase_add_test(tests, beside_each_other);
    tcase_add_test(tests, the_end_is_where_nothing_may_follow);
    tcase_add_test(tests, an_answer_goes_on_after_a_resume);
    tcase_add_test(tests, a_bad_grammar_is_refused_in_one_line);
    tcase_add_test(tests, a_dear_grammar_holds_up_itself_alone);
    tcase_add_loop_test(tests, a_token_may_be_followed_later, 0, 3);
    tcase_add_test(tests, a_long_answer_so_far_holds_up_itself_alone);
    tcase_add_test(tests, marks_in_a_long_answer_so_far_are_paid);
    tcase_add_test(tests, a_draft_is_compared_with_the_marks_once);
    tcase_add_test(tests, grammars_are_kept_and_given_up);
    tcase_add_test(tests, a_grammar_that_is_compiled_holds_up_itself_alone);
    tcase_add_test(tests, the_memory_of_a_large_request_is_given_back);
    tcase_add_test(tests, a_text_is_compiled_once);
    tcase_add_test(tests, masks_of_earlier_steps_are_given_back);
    tcase_add_test(tests, the_places_of_idle_grammars_are_shared_by_user);
    tcase_add_test(tests, a_user_pays_for_what_its_grammars_take);
    tcase_add_loop_test(tests, a_window_is_cut_where_a_mask_takes_long, 0, 3);
    tcase_add_test(tests, users_take_turns_at_masks);
    tcase_add_test(tests, users_take_turns_at_the_compiler);
    tcase_add_test(tests, a_request_may_end_before_its_grammar_is_compiled);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
