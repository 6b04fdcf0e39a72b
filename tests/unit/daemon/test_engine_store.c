/*
 * An engine whose KV outlives it: what memory gave up, or a stop left, is read again, and every answer is
 * the one that an empty store gives. The device of the rig gives other tokens, or aborts, where a page,
 * a window page or a state is not that of the text before a row.
 */
#include "ipc/params.h"
#include "ipc/store_file.h"
#include "kernels/kv.h"
#include "tests/random.h"
#include "tests/rig/engine_rig.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLIENTS = 3, USER = 1000, LENGTH = 330, ANSWER = 8 };

/* After how many bytes each a write is cut off; rounds of edits and restarts at random. The thread
 * sanitizer takes twenty times as long. */
#ifdef __SANITIZE_THREAD__
enum { STOP_EVERY = 1999, ROUNDS = 15 };
#else
enum { STOP_EVERY = 199, ROUNDS = 60 };
#endif

static struct rig rig;
static struct rig_client clients[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];
static char root[64], folder[96];
static struct rig_desc desc;

static void attach_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_attach(&rig, &clients[i], 1, USER, i == 0 ? "editor" : "");
}

static void open_rig(void)
{
    rig_open(&rig, &desc);
    attach_all();
}

/* Kinds of models: all positions, windows, recurrent. */
enum { DENSE, WINDOWS, STATES, KINDS };

static void begin(int kind)
{
    snprintf(root, sizeof(root), "/tmp/hearth-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(folder, sizeof(folder), "%s/store", root);
    desc = (struct rig_desc){.slots = CLIENTS,
                             .store = folder,
                             .store_min = 64,
                             .window = kind == WINDOWS ? 50 : 0,
                             .states = kind == STATES ? 20 : 0,
                             .proposer = PROPOSER_NONE};
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_tokens(tokens[i], RIG_TOKENS, 100 + i);
    open_rig();
}

static void finish(void)
{
    rig_end(&rig, clients, CLIENTS);
    folder_remove(root);
}

/* A stop, and the next start: nothing is in memory. */
static void restart(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_detach(&rig, &clients[i]);
    rig_stop(&rig);
    rig_end(&rig, clients, CLIENTS);
    open_rig();
}

/* A process that is killed has kept what was evicted, and written. */
static void kill_it(void)
{
    rig_end(&rig, clients, CLIENTS);
    open_rig();
}

static struct rig_request request_of(uint32_t text, uint32_t n)
{
    return (struct rig_request){.tokens = tokens[text], .n = n, .max_tokens = ANSWER};
}

/* Asks; the answer must be right. */
static const struct event_done *ask(uint32_t client, const struct rig_request *request)
{
    const struct rig_answer *answer = rig_ask(&rig, &clients[client], 0, request);
    ck_assert(rig_same(&rig, request, answer));
    return &answer->done;
}

static struct slot *slot_of(uint32_t client)
{
    return clients[client].client->slots[0];
}

/* What a request for a text that is stored need not compute: all but the last token; where a
 * state is needed, and the text went on, up to the last restart point. */
static uint32_t warm(int kind)
{
    return kind == STATES ? LENGTH / 32 * 32 : LENGTH - 1;
}

/* ---- what is read ---------------------------------------------------------------------------- */

START_TEST(a_text_is_warm_after_a_restart)
{
    const struct rig_request request = request_of(0, LENGTH);
    const uint32_t last = warm(_i);
    begin(_i);
    ck_assert_uint_eq(ask(0, &request)->stored, 0);
    restart();
    ck_assert_uint_gt(counters_get(rig.ctl, COUNTER_STORE_RECORDS), 0);
    const struct event_done *done = ask(1, &request);
    ck_assert_uint_eq(done->stored, last);
    ck_assert_uint_eq(done->cached, last);
    ck_assert_uint_eq(rig.fake.n_rows, LENGTH - last + ANSWER - 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_STORED_TOKENS), last);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_CACHED_TOKENS), last);
    ck_assert_uint_gt(counters_get(rig.ctl, COUNTER_STORE_READ_BYTES), 0);
    done = ask(2, &request); /* from memory now, whole pages */
    ck_assert_uint_eq(done->cached, LENGTH / 32 * 32);
    ck_assert_uint_eq(done->stored, 0);
    finish();
}
END_TEST

/* While it is read, its grammar is compiled. */
START_TEST(a_text_with_a_grammar_is_warm_after_a_restart)
{
    static const char text[] = "root ::= [a-h]*";
    struct rig_request request = request_of(0, LENGTH);
    struct params p;

    params_default(&p);
    p.grammar = (const uint8_t *)text;
    p.grammar_bytes = sizeof(text) - 1;
    begin(_i);
    ask(0, &request);
    restart();
    request.params = &p;
    const struct event_done *done = ask(0, &request);
    ck_assert_uint_eq(done->cached, warm(_i));
    ck_assert_uint_eq(done->stored, warm(_i));
    finish();
}
END_TEST

/* What gave way to another text is read again, by a request that goes on where memory ends. */
START_TEST(what_was_evicted_is_read_again)
{
    const struct rig_request first = request_of(0, LENGTH), second = request_of(1, LENGTH + 100);
    begin(_i);
    rig_end(&rig, clients, CLIENTS);
    desc.pages = 18;
    open_rig();
    ask(0, &first);
    ask(1, &second);
    const struct event_done *done = ask(0, &first);
    ck_assert_uint_gt(done->stored, 0);
    ck_assert_uint_le(done->stored, done->cached);
    finish();
}
END_TEST

/* Of windows also what is in the middle of a text, if nothing else gives way for it. */
START_TEST(what_was_evicted_is_read_by_a_text_that_parts_in_its_middle)
{
    struct rig_request first = request_of(0, LENGTH);
    const struct rig_request second = request_of(1, LENGTH + 100), third = request_of(2, 200);
    const uint32_t at = _i == STATES ? 0 : 200;
    begin(_i);
    rig_end(&rig, clients, CLIENTS);
    desc.pages = 18;
    open_rig();
    ask(0, &first);
    ask(1, &second);
    ask(2, &third); /* and nothing of the first is left */
    kill_it();
    tokens[0][200] = FAKE_BYTES + 'z';
    ck_assert_uint_eq(ask(2, &first)->stored, at);
    finish();
}
END_TEST

/* The store goes on alone; the request of client 1 is answered from it. */
static void end_reading(int kind, const struct rig_request *request)
{
    rig.store_stands = false;
    rig_run(&rig, 1000);
    rig_read_all(&clients[1]);
    ck_assert(rig_same(&rig, request, &clients[1].slots[0].last));
    ck_assert_uint_eq(clients[1].slots[0].last.done.stored, warm(kind));
    finish();
}

/* The thread wakes up for a quarter of the reads, not for each one. */
START_TEST(records_are_asked_for_in_batches)
{
    const struct rig_request request = request_of(0, LENGTH);
    begin(DENSE);
    ask(0, &request);
    desc.pages = 64; /* of which an eighth may be on the way */
    restart();
    rig.engine->fetches.reads = _i ? 100 : 8;
    rig.store_stands = true;
    rig_submit(&clients[1], 0, &request);
    rig_step(
        &rig); /* with other requests, as far as this step knows: it has no time for more than one */
    ck_assert_uint_eq(store_pending(rig.store), 1);
    rig_step(&rig);
    ck_assert_uint_eq(store_pending(rig.store), 8);
    store_work(rig.store, 1);
    rig_step(&rig);
    ck_assert_uint_eq(store_pending(rig.store), 7);
    store_work(rig.store, 1);
    rig_step(&rig);
    ck_assert_uint_eq(store_pending(rig.store), 8);
    end_reading(DENSE, &request);
}
END_TEST

/* Reads that are on the way for a user. */
static uint32_t reads_of(uid_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < FETCH_READS; i++) {
        const struct fetch_read *read = &rig.engine->fetches.read[i];
        n += read->memory != PAGE_NONE && !read->here && read->fetch &&
             rig.engine->slots.all[read->fetch - rig.engine->fetches.all].uid == uid;
    }
    return n;
}

/* One user reads in four slots, which came first, another one in one: each has half of what may be
 * on the way at once. */
START_TEST(users_share_what_a_disk_reads)
{
    enum { SLOTS = 4, OTHER = 2000 };
    static uint32_t texts[SLOTS + 1][RIG_TOKENS];
    struct rig_client both[2];
    struct rig_request requests[SLOTS + 1];
    const uint32_t most = _i ? 2 : 8;
    begin(DENSE);
    rig_end(&rig, clients, CLIENTS);
    desc.slots = SLOTS + 1;
    for (int again = 0; again < 2; again++) {
        rig_open(&rig, &desc);
        rig_attach(&rig, &both[0], SLOTS, USER, "");
        rig_attach(&rig, &both[1], 1, OTHER, "");
        rig.engine->fetches.reads = most;
        rig.store_stands = again;
        for (uint32_t i = 0; i <= SLOTS; i++) {
            rig_tokens(texts[i], RIG_TOKENS, 200 + i);
            requests[i] = (struct rig_request){.tokens = texts[i], .n = LENGTH, .max_tokens = 1};
            rig_submit(&both[i / SLOTS], i % SLOTS, &requests[i]);
        }
        if (again)
            break;
        rig_run(&rig, 1000);
        for (uint32_t i = 0; i < 2; i++)
            rig_detach(&rig, &both[i]);
        rig_stop(&rig);
        rig_end(&rig, both, 2);
    }
    uint32_t steps = 0, halves = 0;
    for (; steps == 0 || both[1].client->slots[0]->state != SLOT_IDLE; steps++) {
        ck_assert_uint_lt(steps, 1000);
        rig_step(&rig);
        rig_check(&rig);
        halves += reads_of(OTHER) == most / 2 && reads_of(USER) == most / 2;
        ck_assert_uint_le(reads_of(USER), steps == 0 ? most : most / 2);
        store_work(rig.store, 1);
    }
    ck_assert_uint_gt(halves, 0);
    uint32_t reading = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        reading += both[0].client->slots[i]->state == SLOT_READING;
    ck_assert_uint_ge(reading, SLOTS - 1);
    rig.store_stands = false;
    rig_run(&rig, 1000);
    for (uint32_t i = 0; i <= SLOTS; i++) {
        rig_read_all(&both[i / SLOTS]);
        ck_assert(rig_same(&rig, &requests[i], &both[i / SLOTS].slots[i % SLOTS].last));
        ck_assert_uint_eq(both[i / SLOTS].slots[i % SLOTS].last.done.stored, LENGTH - 1);
    }
    rig_end(&rig, both, 2);
    folder_remove(root);
}
END_TEST

/* Where a text leaves the stored one, the rest is computed. */
START_TEST(a_text_that_leaves_a_stored_one_is_computed_from_there)
{
    struct rig_request request = request_of(0, LENGTH);
    begin(_i);
    ask(0, &request);
    restart();
    tokens[0][200] = FAKE_BYTES + 'z';
    const struct event_done *done = ask(1, &request);
    ck_assert_uint_eq(done->stored, _i == STATES ? 0 : 200);
    finish();
}
END_TEST

/* The last page of a text, which it does not fill, serves texts that end before it, with it and after it, and
 * texts that part from it there. */
START_TEST(the_end_of_a_text_is_read_as_far_as_it_is_that_of_the_request)
{
    struct rig_request request = request_of(0, LENGTH);
    uint32_t *answer = tokens[0] + LENGTH, longest = LENGTH + ANSWER - 1; /* with KV */
    const uint32_t lengths[] = {321, 322, LENGTH, longest, longest + 1, longest + 2, longest + 40};
    begin(_i);
    ask(0, &request);
    memcpy(answer, slot_of(0)->tokens + LENGTH, ANSWER * sizeof(*answer));
    answer[ANSWER] = answer[ANSWER - 1] + 1; /* as another turn does */
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        restart();
        request.n = lengths[i];
        const uint32_t has = request.n - 1 < longest ? request.n - 1 : longest;
        const struct event_done *done = ask(1 + i % 2, &request);
        ck_assert_uint_eq(done->stored, has);
        ck_assert_uint_eq(done->cached, has);
        ck_assert_uint_eq(rig.fake.n_rows, request.n - has + ANSWER - 1);
        longest = request.n > longest ? request.n : longest;
    }
    restart();
    request.n = longest;
    tokens[0][325]++;
    ck_assert_uint_eq(ask(1, &request)->stored, 325);
    finish();
}
END_TEST

/* The state of the end is that of all of it: it serves texts that go on from there. */
START_TEST(the_state_at_the_end_of_a_text_is_read_by_texts_that_go_on)
{
    struct rig_request request = request_of(0, LENGTH);
    uint32_t *answer = tokens[0] + LENGTH;
    const uint32_t end = LENGTH + ANSWER - 2; /* the last row left a record */
    begin(STATES);
    ask(0, &request);
    memcpy(answer, slot_of(0)->tokens + LENGTH, ANSWER * sizeof(*answer));
    request.max_tokens = 1;
    restart();
    for (request.n = end; request.n < end + 3; request.n++) {
        const uint32_t has = request.n > end ? end : warm(STATES);
        ck_assert_uint_eq(ask(request.n % 2, &request)->stored, has);
        ck_assert_uint_eq(rig.fake.n_rows, request.n - has);
        kill_it();
    }
    tokens[0][325]++;
    ck_assert_uint_eq(ask(1, &request)->stored, warm(STATES));
    finish();
}
END_TEST

/* A prompt whose answer was one token, asked again. Of states the last one is read alone. */
START_TEST(a_prompt_is_warm_up_to_its_last_token)
{
    struct rig_request request = request_of(0, LENGTH);
    struct store_counts counts;
    begin(_i);
    request.max_tokens = 1;
    for (request.n = LENGTH; request.n < LENGTH + 34; request.n += 11) {
        ask(0, &request);
        restart();
        ck_assert_uint_eq(ask(1, &request)->stored, request.n - 1);
        ck_assert_uint_eq(rig.fake.n_rows, 1);
        store_counts(rig.store, &counts);
        if (_i != WINDOWS)
            ck_assert_uint_eq(counts.read, (request.n - 1) / 32 + (_i == STATES ? 2 : 1));
    }
    finish();
}
END_TEST

/* Spoils the second state, which was stored last. */
static int spoil_last_state(const char *path, const struct stat *st, int type, struct FTW *at)
{
    struct store_file_header header;
    (void)at;
    if (type != FTW_F || st->st_size < (off_t)sizeof(header))
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &header, sizeof(header), 0), sizeof(header));
    if (!memcmp(header.magic, STORE_FILE_MAGIC, 16) && header.class == STORE_STATE)
        ck_assert_int_eq(pwrite(fd, "spoiled", 7, (off_t)(header.slots_at + header.slot_bytes)), 7);
    close(fd);
    return 0;
}

START_TEST(where_the_state_of_the_end_is_damaged_the_restart_point_before_it_serves)
{
    struct rig_request request = request_of(0, LENGTH);
    begin(STATES);
    request.max_tokens = 1;
    ask(0, &request);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_detach(&rig, &clients[i]);
    rig_stop(&rig);
    rig_end(&rig, clients, CLIENTS);
    nftw(folder, spoil_last_state, 8, FTW_PHYS);
    open_rig();
    ck_assert_uint_eq(ask(1, &request)->stored, LENGTH / 32 * 32);
    ck_assert_uint_eq(rig.fake.n_rows, LENGTH % 32);
    finish();
}
END_TEST

START_TEST(the_state_of_an_idle_slot_that_gives_way_is_kept)
{
    struct rig_request requests[3];
    begin(STATES);
    rig_end(&rig, clients, CLIENTS);
    desc.states = 4;
    open_rig();
    for (uint32_t i = 0; i < 3; i++) {
        requests[i] = request_of(i, LENGTH);
        requests[i].max_tokens = 1;
        ask(i, &requests[i]);
    }
    ck_assert_uint_eq(slot_of(0)->own, PAGE_NONE);
    restart();
    ck_assert_uint_eq(ask(1, &requests[0])->stored, LENGTH - 1);
    finish();
}
END_TEST

START_TEST(a_short_text_is_not_looked_up)
{
    struct rig_request request = request_of(0, 300);
    begin(DENSE);
    ask(0, &request);
    restart();
    request.n = 64; /* a keystroke: one pass */
    ck_assert_uint_eq(ask(1, &request)->stored, 0);
    request.n = 65;
    tokens[0][3]++;
    ck_assert_uint_eq(ask(1, &request)->stored, 0);
    tokens[0][3]--;
    ck_assert_uint_eq(ask(2, &request)->stored, 64);
    finish();
}
END_TEST

START_TEST(another_user_has_nothing_of_it)
{
    const struct rig_request request = request_of(0, LENGTH);
    begin(_i);
    ask(0, &request);
    restart();
    rig_detach(&rig, &clients[1]);
    rig_attach(&rig, &clients[1], 1, USER + 1, "");
    ck_assert_uint_eq(ask(1, &request)->cached, 0);
    ck_assert_uint_gt(ask(2, &request)->stored, 0);
    finish();
}
END_TEST

START_TEST(named_slots_are_parked_again)
{
    const struct rig_request request = request_of(0, LENGTH);
    begin(DENSE);
    ask(0, &request);
    restart();
    const struct slot *slot = slot_of(0);
    ck_assert_str_eq(slot->name, "editor");
    ck_assert_uint_eq(slot->spec.accepted, LENGTH + ANSWER);
    ck_assert_mem_eq(slot->tokens, tokens[0], LENGTH * sizeof(*slot->tokens));
    const struct event_done *done = ask(0, &request);
    ck_assert_uint_eq(done->prefix_break, LENGTH);
    ck_assert_uint_gt(done->stored, 0);
    finish();
}
END_TEST

/* A user reads in more slots than there may be reads, beside an answer, so that few records a step
 * are put into the cache: what waits for that is part of the user's share, or another user's text
 * finds no place for a read until all of these are over. */
START_TEST(what_waits_for_the_cache_is_part_of_a_users_share)
{
    enum { MANY = FETCH_READS / RIG_SLOTS + 2, OTHER = 2000, SHORT = 130, STEPS = 100 };
    static struct rig_client many[MANY], other, reader;
    static uint32_t texts[MANY * RIG_SLOTS + 2][SHORT];
    static struct rig_request requests[MANY * RIG_SLOTS + 2];
    uint32_t steps = 0;
    begin(DENSE);
    rig_end(&rig, clients, CLIENTS);
    desc.slots = MANY * RIG_SLOTS + 2;
    desc.clients = MANY + 2;
    desc.pages = 2048;
    for (uint32_t i = 0; i < MANY * RIG_SLOTS + 2; i++) {
        rig_tokens(texts[i], SHORT, 500 + i);
        requests[i] = (struct rig_request){.tokens = texts[i], .n = SHORT, .max_tokens = 1};
    }
    struct rig_request *last = &requests[MANY * RIG_SLOTS];
    for (int again = 0; again < 2; again++) {
        rig_open(&rig, &desc);
        rig_attach(&rig, &reader, 1, OTHER + 1, "");
        rig_attach(&rig, &other, 1, OTHER, "");
        if (again) {
            last[1] = (struct rig_request){.tokens = texts[0], .n = 10, .max_tokens = 2 * STEPS};
            rig_submit(&reader, 0, &last[1]);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            rig_attach(&rig, &many[i], RIG_SLOTS, USER, "");
            for (uint32_t k = 0; k < RIG_SLOTS; k++)
                rig_submit(&many[i], k, &requests[i * RIG_SLOTS + k]);
        }
        if (again)
            break;
        rig_submit(&other, 0, last);
        rig_run(&rig, 5000);
        for (uint32_t i = 0; i < MANY; i++)
            rig_detach(&rig, &many[i]);
        rig_detach(&rig, &other);
        rig_detach(&rig, &reader);
        rig_stop(&rig);
        rig_close(&rig);
    }
    for (; steps < 20; steps++)
        rig_step(&rig);
    rig_submit(&other, 0, last);
    for (steps = 0; other.slots[0].n_ends == 0; steps++) {
        ck_assert_uint_lt(steps, STEPS);
        rig_step(&rig);
        rig_read_all(&other);
        rig_read_all(&reader);
    }
    ck_assert(rig_same(&rig, last, &other.slots[0].last));
    ck_assert_uint_ge(other.slots[0].last.done.stored, SHORT / 32 * 32);
    ck_assert_uint_gt(rig.engine->slots.n_reading, MANY);
    rig_run(&rig, 5000);
    rig_detach(&rig, &other);
    rig_detach(&rig, &reader);
    rig_end(&rig, many, MANY);
    folder_remove(root);
}
END_TEST

/* Of a start with fewer slots: those without a place come back at a later one. */
START_TEST(a_named_slot_without_a_place_waits_for_a_later_start)
{
    struct rig_request request = request_of(0, LENGTH), second = request_of(1, LENGTH);
    begin(DENSE);
    ask(0, &request);
    rig_detach(&rig, &clients[1]);
    rig_attach(&rig, &clients[1], 1, USER, "second");
    ask(1, &second);
    for (uint32_t slots = 1; slots <= CLIENTS; slots += CLIENTS - 1) {
        for (uint32_t i = 0; i < (slots == 1 ? CLIENTS : 1); i++)
            rig_detach(&rig, &clients[i]);
        rig_stop(&rig);
        rig_end(&rig, clients, slots == 1 ? CLIENTS : 1);
        desc.slots = slots;
        rig_open(&rig, &desc);
        rig_attach(&rig, &clients[0], 1, USER, "editor");
    }
    rig_attach(&rig, &clients[1], 1, USER, "second");
    rig_attach(&rig, &clients[2], 1, USER, "");
    ck_assert_uint_eq(slot_of(0)->spec.accepted + slot_of(1)->spec.accepted, 2 * (LENGTH + ANSWER));
    finish();
}
END_TEST

/* More slots than may wait, nearly all of them one user's: those of the others do wait. */
START_TEST(the_many_named_slots_of_a_user_keep_no_others_from_waiting)
{
    enum { MANY = 400, OTHERS = 20 };
    static struct store_slot named[MANY + OTHERS];
    uint32_t here = 0;
    begin(DENSE);
    rig_end(&rig, clients, CLIENTS);
    for (uint32_t i = 0; i < MANY + OTHERS; i++) {
        named[i] = (struct store_slot){
            .uid = i < MANY ? USER : USER + 1 + i, .tokens = tokens[0], .n_tokens = 10};
        snprintf(named[i].name, sizeof(named[i].name), "name %u", i);
    }
    desc.slots = 1;
    rig_open(&rig, &desc);
    ck_assert_int_eq(store_save_slots(rig.store, named, MANY + OTHERS), 0);
    rig_close(&rig);
    rig_open(&rig, &desc);
    rig_stop(&rig);
    rig_close(&rig);
    desc.slots = MANY;
    desc.pages = 64;
    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < MANY; i++)
        here += rig.engine->slots.all[i].name[0] && rig.engine->slots.all[i].uid != USER;
    ck_assert_uint_eq(here, OTHERS);
    rig_end(&rig, clients, 0);
    folder_remove(root);
}
END_TEST

/* A short text is kept at the second stop, a named slot's at the first. */
START_TEST(a_short_text_is_warm_if_its_slot_has_a_name_or_it_was_there_before)
{
    const struct rig_request named = request_of(0, LENGTH), other = request_of(1, LENGTH);
    begin(_i);
    desc.store_min = LENGTH * 2;
    restart();
    ask(0, &named);
    ask(1, &other);
    restart();
    ck_assert_uint_eq(ask(2, &named)->stored, warm(_i));
    ck_assert_uint_eq(ask(1, &other)->stored, 0);
    restart();
    ck_assert_uint_ge(ask(1, &other)->stored, LENGTH / 32 * 32);
    finish();
}
END_TEST

/* ---- while a disk reads ---------------------------------------------------------------------- */

/* A disk that stands still: the one that waits for it waits alone. */
START_TEST(the_others_go_on_meanwhile)
{
    const struct rig_request request = request_of(0, LENGTH),
                             other = {.tokens = tokens[1], .n = 10, .max_tokens = 30};
    begin(_i);
    ask(0, &request);
    restart();
    rig.store_stands = true;
    rig_submit(&clients[1], 0, &request);
    rig_step(&rig);
    ck_assert_int_eq(slot_of(1)->state, SLOT_READING);
    ck_assert_uint_eq(segment_down_slot(&clients[1].segment, 0)->state, DOWN_READING);
    uint32_t passes = rig.fake.n_passes;
    rig_submit(&clients[2], 0, &other);
    for (uint32_t i = 0; i < 30; i++) {
        rig_step(&rig);
        rig_check(&rig);
        ck_assert_uint_eq(rig.fake.n_passes, passes + i + 1);
    }
    rig_read_all(&clients[2]);
    ck_assert(rig_same(&rig, &other, &clients[2].slots[0].last));
    ck_assert_int_eq(slot_of(1)->state, SLOT_READING);
    ck_assert_uint_eq(rig_step(&rig), 0); /* nothing to do until the disk has read */
    rig.store_stands = false;
    rig_run(&rig, 1000);
    rig_read_all(&clients[1]);
    ck_assert(rig_same(&rig, &request, &clients[1].slots[0].last));
    ck_assert_uint_gt(clients[1].slots[0].last.done.stored, 0);
    finish();
}
END_TEST

/* A disk that reads a record while three passes run: each of these gives the other answer its token. */
START_TEST(a_slow_disk_holds_up_no_other)
{
    const struct rig_request request = request_of(0, LENGTH),
                             other = {.tokens = tokens[1], .n = 10, .max_tokens = 60};
    uint32_t steps = 0, reads = 0;
    begin(_i);
    ask(0, &request);
    restart();
    rig.store_stands = true;
    rig_submit(&clients[2], 0, &other);
    rig_step(&rig);
    rig_submit(&clients[1], 0, &request);
    for (; steps == 0 || slot_of(1)->state == SLOT_READING; steps++) {
        const uint32_t before = slot_of(2)->spec.accepted;
        rig_step(&rig);
        rig_check(&rig);
        ck_assert_uint_eq(slot_of(2)->spec.accepted, before + 1);
        rig_read_all(&clients[2]);
        reads += steps % 3 == 2 ? store_work(rig.store, 1) : 0;
    }
    ck_assert_uint_ge(reads, LENGTH / 32);
    ck_assert_uint_gt(steps, 3 * (LENGTH / 32));
    rig.store_stands = false;
    rig_run(&rig, 1000);
    rig_read_all(&clients[1]);
    rig_read_all(&clients[2]);
    ck_assert(rig_same(&rig, &request, &clients[1].slots[0].last));
    ck_assert(rig_same(&rig, &other, &clients[2].slots[0].last));
    ck_assert_uint_eq(clients[1].slots[0].last.done.stored, warm(_i));
    finish();
}
END_TEST

/* What gives way while a disk stands still is queued, or dropped: an answer has its token in every step. */
START_TEST(evictions_do_not_wait_for_a_disk)
{
    const struct rig_request first = request_of(0, LENGTH), second = request_of(1, LENGTH - 100),
                             other = {.tokens = tokens[2], .n = 10, .max_tokens = 60};
    begin(_i);
    rig_end(&rig, clients, CLIENTS);
    desc.pages = 14;
    open_rig();
    rig.store_stands = true;
    rig_submit(&clients[2], 0, &other);
    rig_step(&rig);
    rig_submit(&clients[0], 0, &first);
    for (uint32_t i = 1; i < 60; i++) {
        const uint32_t before = slot_of(2)->spec.accepted;
        rig_step(&rig);
        rig_check(&rig);
        ck_assert_uint_eq(slot_of(2)->spec.accepted, before + 1);
        rig_read_all(&clients[2]);
        if (i == 30)
            rig_submit(&clients[1], 0, &second);
    }
    ck_assert_uint_gt(store_pending(rig.store), 0); /* something did give way */
    rig.store_stands = false;
    rig_run(&rig, 1000);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_read_all(&clients[i]);
    ck_assert(rig_same(&rig, &first, &clients[0].slots[0].last));
    ck_assert(rig_same(&rig, &second, &clients[1].slots[0].last));
    ck_assert(rig_same(&rig, &other, &clients[2].slots[0].last));
    finish();
}
END_TEST

/* A disk that reads too slowly is not waited for. */
START_TEST(a_slow_disk_is_given_up)
{
    const struct rig_request request = request_of(0, LENGTH), other = request_of(1, 50);
    begin(_i);
    ask(0, &request);
    restart();
    ask(2, &other); /* what rows cost is known */
    rig.engine->fetches.always = false;
    rig.engine->fetches.mib_ns = 1;
    rig.store_stands = true;
    rig_submit(&clients[1], 0, &request);
    uint32_t steps = 0;
    do
        rig_step(&rig); /* its clock goes on by looks */
    while (slot_of(1)->state == SLOT_READING && ++steps < 100000);
    ck_assert_uint_gt(steps, 0);
    ck_assert_int_ne(slot_of(1)->state, SLOT_READING);
    while (slot_of(1)->state != SLOT_IDLE)
        rig_step(&rig);
    rig_read_all(&clients[1]);
    ck_assert(rig_same(&rig, &request, &clients[1].slots[0].last));
    ck_assert_uint_eq(clients[1].slots[0].last.done.stored, 0);
    ck_assert_uint_gt(rig.engine->fetches.mib_ns, 1); /* it knows better now */
    rig.store_stands = false;
    rig_run(&rig, 100); /* what comes now is nobody's */
    ck_assert_uint_eq(store_pending(rig.store), 0);
    finish();
}
END_TEST

/* The first record comes after the least patience: it says little about the others, which are read with it. */
START_TEST(a_late_first_record_does_not_end_it)
{
    const struct rig_request request = request_of(0, LENGTH), other = request_of(1, 50);
    begin(_i);
    ask(0, &request);
    restart();
    ask(2, &other); /* what rows cost is known */
    rig.engine->fetches.always = false;
    rig.engine->fetches.mib_ns = 1;
    rig.store_stands = true;
    rig_submit(&clients[1], 0, &request);
    rig_step(&rig);
    ck_assert_int_eq(slot_of(1)->state, SLOT_READING);
    struct fetch *fetch = &rig.engine->fetches.all[slot_of(1) - rig.engine->slots.all];
    fetch->compute_ns = 40000000;
    while (rig.engine->clock.now_ns - fetch->began_ns < 6000000)
        rig_step(&rig);
    ck_assert_uint_eq(store_work(rig.store, 1), 1);
    rig_step(&rig);
    ck_assert_uint_gt(fetch->got, 0);
    ck_assert_int_eq(slot_of(1)->state, SLOT_READING);
    end_reading(_i, &request);
}
END_TEST

/* A long text is looked for in several steps; meanwhile the others go on, and another one that asks for it
 * waits for what is found. */
START_TEST(a_long_text_is_looked_for_step_by_step)
{
    const struct rig_request request = request_of(0, LENGTH),
                             other = {.tokens = tokens[1], .n = 10, .max_tokens = 20};
    begin(_i);
    ask(0, &request);
    restart();
    rig.engine->fetches.look_pages = 3;
    rig.store_stands = true;
    rig_submit(&clients[2], 0, &other);
    rig_step(&rig);
    rig_submit(&clients[0], 0, &request);
    rig_submit(&clients[1], 0, &request);
    for (uint32_t step = 0; step < 5; step++) {
        const uint32_t before = slot_of(2)->spec.accepted;
        rig_step(&rig);
        rig_check(&rig);
        ck_assert_uint_eq(slot_of(2)->spec.accepted, before + 1);
        ck_assert_int_eq(slot_of(0)->state, SLOT_READING);
        ck_assert_int_eq(slot_of(1)->state, SLOT_READING);
        ck_assert_int_eq(store_pending(rig.store) > 0, step >= LENGTH / 32 / 3);
    }
    rig.store_stands = false;
    rig_run(&rig, 1000);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_read_all(&clients[i]);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert(rig_same(&rig, &request, &clients[i].slots[0].last));
        ck_assert_uint_eq(clients[i].slots[0].last.done.stored,
                          i == 0 ? warm(_i) : LENGTH / 32 * 32);
    }
    ck_assert(rig_same(&rig, &other, &clients[2].slots[0].last));
    finish();
}
END_TEST

/* What was found is not worth reading: it is computed, and nothing is held. */
START_TEST(what_is_read_more_slowly_is_computed)
{
    const struct rig_request request = request_of(0, LENGTH);
    begin(_i % KINDS);
    ask(0, &request);
    restart();
    rig.engine->fetches.look_pages = _i / KINDS ? 3 : 100;
    rig.engine->fetches.always = false;
    rig.engine->fetches.mib_ns = (uint64_t)1 << 40;
    ck_assert_uint_eq(ask(1, &request)->cached, 0);
    ck_assert_uint_eq(rig.fake.n_rows, LENGTH + ANSWER - 1);
    ck_assert_uint_eq(slot_of(1)->n_ahead, 0);
    rig_check(&rig);
    finish();
}
END_TEST

/* Several slots ask for one text: it is read once. */
START_TEST(a_text_is_read_once_for_all)
{
    const struct rig_request request = request_of(0, LENGTH);
    struct store_counts before, after;
    begin(_i);
    ask(0, &request);
    restart();
    store_counts(rig.store, &before);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &request);
    rig_step(&rig);
    for (uint32_t i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(slot_of(i)->state, SLOT_READING);
    rig_run(&rig, 1000);
    store_counts(rig.store, &after);
    ck_assert_uint_eq(after.read - before.read,
                      LENGTH / 32 + (_i == WINDOWS ? 4u : 1u)); /* or a state, or the end */
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_read_all(&clients[i]);
        ck_assert(rig_same(&rig, &request, &clients[i].slots[0].last));
        ck_assert_uint_eq(clients[i].slots[0].last.done.stored,
                          i == 0 ? warm(_i) : LENGTH / 32 * 32);
    }
    finish();
}
END_TEST

/* Where another one reads what a slot needs next, they share the pages before it: the tokens of
 * these are not compared again, however many there are. */
START_TEST(what_texts_share_is_not_compared_to_read)
{
    const struct rig_request first = request_of(0, 130), whole = request_of(0, LENGTH);
    begin(DENSE);
    ask(0, &whole);
    restart();
    ask(2, &first);
    rig.store_stands = true;
    rig_submit(&clients[0], 0, &whole);
    rig_step(&rig);
    ck_assert_uint_eq(slot_of(0)->n_shared, 4);
    uint32_t *shared = &slot_of(0)->tokens[5];
    const uint32_t token = *shared;
    *shared = FAKE_BYTES;
    rig_submit(&clients[1], 0, &whole);
    rig_step(&rig);
    *shared = token;
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(slot_of(i)->state, SLOT_READING);
    ck_assert_ptr_nonnull(rig.engine->fetches.all[slot_of(1)->number].leader);
    rig.store_stands = false;
    rig_run(&rig, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        rig_read_all(&clients[i]);
        ck_assert(rig_same(&rig, &whole, &clients[i].slots[0].last));
    }
    finish();
}
END_TEST

/* In the middle of reading: a cancel, a newer request, a hang-up, an eviction. Then nothing is held, and
 * what comes late is nobody's. */
START_TEST(a_fetch_may_end_at_any_time)
{
    struct rig_request request = request_of(0, LENGTH);
    const int kind = _i % KINDS, way = _i / KINDS % 4, when = _i / KINDS / 4 % 4;
    if (_i / KINDS / 16)
        request.max_tokens = 1; /* and the state is read that is at the end */
    begin(kind);
    ask(0, &request);
    restart();
    rig.engine->fetches.look_pages = _i / KINDS / 16 ? 3 : 100;
    rig_submit(&clients[1], 0, &request);
    rig.store_stands = true;
    rig_step(&rig);
    for (int i = 0; i < when; i++) {
        store_work(rig.store, 2); /* some records at a time */
        rig_step(&rig);
    }
    for (int i = 0; i < 20 && when == 3; i++) { /* all but the last */
        store_work(rig.store, store_pending(rig.store) - 1);
        rig_step(&rig);
    }
    ck_assert_int_eq(slot_of(1)->state, SLOT_READING);
    rig_check(&rig);
    if (way == 0) {
        rig_cancel(&clients[1], 0);
    } else if (way == 1) {
        request.n = 250;
        rig_submit(&clients[1], 0, &request);
    } else if (way == 2) {
        rig_detach(&rig, &clients[1]);
        rig_attach(&rig, &clients[1], 1, USER, "");
    } else {
        slot_evict(slot_of(1), &rig.engine->slots.kv.prefix);
    }
    rig_step(&rig);
    rig_check(&rig);
    rig.store_stands = false;
    rig_run(&rig, 1000);
    ck_assert_uint_eq(store_pending(rig.store), 0);
    if (way == 1 || way == 3) {
        rig_read_all(&clients[1]);
        ck_assert(rig_same(&rig, &request, &clients[1].slots[0].last));
    }
    request.n = LENGTH;
    ask(1, &request);
    finish();
}
END_TEST

/* ---- stops ----------------------------------------------------------------------------------- */

/* Texts that evict each other, read and written, then a stop. Returns the tokens that were stored. */
static uint32_t evict_and_stop(void)
{
    const struct rig_request first = request_of(0, LENGTH), second = request_of(1, LENGTH + 100);
    uint32_t stored = ask(0, &first)->stored;
    stored += ask(1, &second)->stored;
    stored += ask(0, &first)->stored;
    restart();
    return stored;
}

/* The machine stops after so many bytes of what was to be written: the next start has what is whole. */
START_TEST(a_write_may_end_anywhere)
{
    const uint64_t all = 1 << 30;
    uint64_t left = all;
    uint32_t most = 0;
    begin(_i);
    rig_end(&rig, clients, CLIENTS);
    folder_remove(folder);
    desc.pages = 18;
    desc.store_cut = &left;
    open_rig();
    evict_and_stop();
    const uint64_t steps = all - left;
    ck_assert_uint_gt(steps, 20 * 128);
    for (uint64_t at = 0; at < steps; at += STOP_EVERY) {
        rig_end(&rig, clients, CLIENTS);
        folder_remove(folder);
        left = at;
        open_rig();
        evict_and_stop();
        left = all;
        kill_it();
        const uint32_t stored = evict_and_stop();
        most = stored > most ? stored : most;
    }
    ck_assert_uint_gt(most, 600);
    finish();
}
END_TEST

/* ---- at random ------------------------------------------------------------------------------- */

static uint32_t seed;

static uint32_t below(uint32_t n)
{
    return random_below(&seed, n);
}

/* Spoils a file of the store: bits, its end, all of it. */
static int spoil(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    if (type != FTW_F || below(4) > 0 || st->st_size == 0)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    for (uint32_t i = below(200); i > 0; i--) {
        /* where something is: the first records */
        off_t where = (off_t)below((uint32_t)(st->st_size < 400000 ? st->st_size : 400000));
        uint8_t byte = (uint8_t)below(256);
        ck_assert_int_eq(pwrite(fd, &byte, 1, where), 1);
    }
    if (below(8) == 0)
        ck_assert_int_eq(ftruncate(fd, (off_t)below(100000)), 0);
    close(fd);
    return 0;
}

static void edit(uint32_t text)
{
    uint32_t at = below(RIG_TOKENS);
    if (below(3) == 0)
        memcpy(tokens[text], tokens[below(CLIENTS)], at * sizeof(*tokens[text]));
    else
        rig_tokens(tokens[text] + at, RIG_TOKENS - at, 1000 + below(50));
}

/* Edits, evictions, restarts, kills and damage, also with a store that is always full: every answer
 * is the one of an empty store. */
START_TEST(answers_do_not_depend_on_the_store)
{
    static const uint64_t full_bytes[] = {0, 60 << 10, 120 << 10, 200 << 10};
    begin(_i % KINDS);
    rig_end(&rig, clients, CLIENTS);
    desc.pages = 22;
    desc.store_min = _i % 2 ? 32 : 64;
    desc.store_bytes = full_bytes[_i / KINDS];
    seed = 77 + (uint32_t)_i;
    open_rig();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct rig_request requests[CLIENTS];
        uint32_t n = 1 + below(CLIENTS);
        for (uint32_t i = 0; i < n; i++) {
            if (below(2))
                edit(i);
            requests[i] = request_of(i, 40 + below(380));
            requests[i].batch = below(4) == 0;
            rig_submit(&clients[i], 0, &requests[i]);
        }
        rig_run(&rig, 5000);
        for (uint32_t i = 0; i < n; i++) {
            rig_read_all(&clients[i]);
            ck_assert(rig_same(&rig, &requests[i], &clients[i].slots[0].last));
        }
        if (below(10) < 4) {
            below(2) ? restart() : kill_it();
        } else if (below(6) == 0) {
            for (uint32_t i = 0; i < CLIENTS; i++)
                rig_detach(&rig, &clients[i]);
            rig_stop(&rig);
            rig_end(&rig, clients, CLIENTS);
            nftw(folder, spoil, 8, FTW_PHYS);
            open_rig();
        }
    }
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_store");
    TCase *t = tcase_create("store");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_text_is_warm_after_a_restart, 0, KINDS);
    tcase_add_loop_test(t, a_text_with_a_grammar_is_warm_after_a_restart, 0, KINDS);
    tcase_add_loop_test(t, what_was_evicted_is_read_again, 0, KINDS);
    tcase_add_loop_test(t, what_was_evicted_is_read_by_a_text_that_parts_in_its_middle, 0, KINDS);
    tcase_add_loop_test(t, records_are_asked_for_in_batches, 0, 2);
    tcase_add_loop_test(t, users_share_what_a_disk_reads, 0, 2);
    tcase_add_test(t, what_waits_for_the_cache_is_part_of_a_users_share);
    tcase_add_loop_test(t, a_text_that_leaves_a_stored_one_is_computed_from_there, 0, KINDS);
    tcase_add_loop_test(t, the_end_of_a_text_is_read_as_far_as_it_is_that_of_the_request, DENSE,
                        STATES);
    tcase_add_test(t, the_state_at_the_end_of_a_text_is_read_by_texts_that_go_on);
    tcase_add_loop_test(t, a_prompt_is_warm_up_to_its_last_token, 0, KINDS);
    tcase_add_test(t, where_the_state_of_the_end_is_damaged_the_restart_point_before_it_serves);
    tcase_add_test(t, the_state_of_an_idle_slot_that_gives_way_is_kept);
    tcase_add_test(t, a_short_text_is_not_looked_up);
    tcase_add_loop_test(t, another_user_has_nothing_of_it, 0, KINDS);
    tcase_add_test(t, named_slots_are_parked_again);
    tcase_add_test(t, a_named_slot_without_a_place_waits_for_a_later_start);
    tcase_add_test(t, the_many_named_slots_of_a_user_keep_no_others_from_waiting);
    tcase_add_loop_test(t, a_short_text_is_warm_if_its_slot_has_a_name_or_it_was_there_before, 0,
                        KINDS);
    tcase_add_loop_test(t, the_others_go_on_meanwhile, 0, KINDS);
    tcase_add_loop_test(t, a_slow_disk_holds_up_no_other, 0, KINDS);
    tcase_add_loop_test(t, evictions_do_not_wait_for_a_disk, 0, KINDS);
    tcase_add_loop_test(t, a_slow_disk_is_given_up, 0, KINDS);
    tcase_add_loop_test(t, a_late_first_record_does_not_end_it, 0, KINDS);
    tcase_add_loop_test(t, a_long_text_is_looked_for_step_by_step, 0, KINDS);
    tcase_add_loop_test(t, what_is_read_more_slowly_is_computed, 0, 2 * KINDS);
    tcase_add_loop_test(t, a_text_is_read_once_for_all, 0, KINDS);
    tcase_add_test(t, what_texts_share_is_not_compared_to_read);
    tcase_add_loop_test(t, a_fetch_may_end_at_any_time, 0, KINDS * 4 * 4 * 2);
    tcase_add_loop_test(t, a_write_may_end_anywhere, 0, KINDS);
    tcase_add_loop_test(t, answers_do_not_depend_on_the_store, 0, 4 * KINDS);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
