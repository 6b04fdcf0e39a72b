/* The library against a daemon played by the test: connecting, and what a request looks like. */
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- connecting ------------------------------------------------------------------------------ */

START_TEST(hearth_info_describes_the_model)
{
    connect_with(2, 0);
    struct hearth_info info = {.size = sizeof(info)};
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.context, FAKE_CONTEXT);
    ck_assert_uint_eq(info.slots, 2);
    ck_assert_uint_eq(info.n_vocab, FAKE_VOCAB);
    ck_assert_int_eq(info.bos, FAKE_BOS);
    ck_assert_int_eq(info.eos, FAKE_EOS);
    ck_assert_uint_eq(info.server_pid, 4242);
    ck_assert_str_eq(info.model, "fake");
    ck_assert_str_eq(info.numerics, "portable-1");
    ck_assert_str_eq(info.fingerprint, "abcd0000000000000000000000000000");
    ck_assert_str_eq(info.server_version, "hearthd 9.9.9");
    ck_assert_str_eq(info.socket_path, fake.path);
    ck_assert_str_eq(info.chat_template, FAKE_TEMPLATE);
}
END_TEST

START_TEST(an_info_struct_is_filled_up_to_its_size)
{
    connect_with(1, 0);
    struct hearth_info info;
    memset(&info, 0x5a, sizeof(info));
    info.size = 12;
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.slots, 1);
    ck_assert_uint_eq(info.n_vocab, 0x5a5a5a5a);
    info.size = 0;
    ck_assert_int_eq(hearth_info(h, &info), -EINVAL);
}
END_TEST

START_TEST(no_daemon_is_one_clear_line)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    ck_assert_int_eq(hearth_connect("/nonexistent/hearth.sock", &o, &h, err, sizeof(err)), -ENOENT);
    ck_assert_ptr_null(h);
    ck_assert_str_eq(err,
                     "no daemon at /nonexistent/hearth.sock: start one with hearthd --model FILE");
    close(fake.listen_fd);
    ck_assert_int_eq(hearth_connect(fake.path, NULL, &h, err, sizeof(err)), -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(err, "start one with hearthd"));
    ck_assert_int_eq(hearth_connect(fake.path, NULL, &h, NULL, 0), -ECONNREFUSED);
    fake.listen_fd = dup(0);
}
END_TEST

START_TEST(the_path_comes_from_the_environment)
{
    setenv("HEARTH_SOCKET", fake.path, 1);
    fake_start(&fake);
    ck_assert_int_eq(hearth_connect(NULL, NULL, &h, err, sizeof(err)), 0);
    fake_join(&fake);
    char path[200];
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = 0;
    struct hearth *other;
    ck_assert_int_eq(hearth_connect(path, NULL, &other, err, sizeof(err)), -ENAMETOOLONG);
}
END_TEST

START_TEST(a_refusal_of_the_daemon_is_reported)
{
    fake.refuse = -EBUSY;
    fake.refuse_line = "slot 'edit' is in use: choose another name";
    fake_start(&fake);
    ck_assert_int_eq(hearth_connect(fake.path, NULL, &h, err, sizeof(err)), -EBUSY);
    fake_join(&fake);
    ck_assert_str_eq(err, fake.refuse_line);
    ck_assert_ptr_null(h);
}
END_TEST

START_TEST(a_daemon_that_is_stopping_hands_its_clients_to_the_next_one)
{
    fake.n_stopping = 2;
    fake_start(&fake);
    ck_assert_msg(hearth_connect(fake.path, NULL, &h, err, sizeof(err)) == 0, "%s", err);
    fake_join(&fake);
}
END_TEST

START_TEST(a_peer_that_is_not_hearthd_is_an_error)
{
    fake.garbage = 1;
    fake_start(&fake);
    ck_assert_int_lt(hearth_connect(fake.path, NULL, &h, err, sizeof(err)), 0);
    fake_join(&fake);
    ck_assert_uint_gt(strlen(err), 10);
}
END_TEST

/* A vocabulary that a daemon can change after it was checked: its templates' ends, say. */
START_TEST(a_vocabulary_that_may_change_is_refused)
{
    void *block = malloc(fake.vocab_bytes);
    ck_assert_int_eq((int)pread(fake.vocab_fd, block, fake.vocab_bytes, 0), (int)fake.vocab_bytes);
    int fd = memfd_create("changing", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq((int)pwrite(fd, block, fake.vocab_bytes, 0), (int)fake.vocab_bytes);
    free(block);
    void *kept = mmap(NULL, fake.vocab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(kept, MAP_FAILED);
    ck_assert_int_eq(
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
    ck_assert_int_eq(dup2(fd, fake.vocab_fd), fake.vocab_fd);
    close(fd);
    fake_start(&fake);
    ck_assert_int_eq(hearth_connect(fake.path, NULL, &h, err, sizeof(err)), -EPROTO);
    fake_join(&fake);
    ck_assert_ptr_nonnull(strstr(err, "seals"));
    munmap(kept, fake.vocab_bytes);
}
END_TEST

START_TEST(uninitialized_options_are_refused)
{
    const struct hearth_options o = {.slots = 2};
    ck_assert_int_eq(hearth_connect(fake.path, &o, &h, err, sizeof(err)), -EINVAL);
    ck_assert_ptr_null(h);
    ck_assert_ptr_nonnull(strstr(err, "hearth_options_init"));
}
END_TEST

START_TEST(a_silent_daemon_times_out)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    o.connect_timeout_ms = 20;
    ck_assert_int_eq(hearth_connect(fake.path, &o, &h, err, sizeof(err)), -ETIMEDOUT);
}
END_TEST

START_TEST(a_daemon_that_accepts_no_connection_times_out)
{
    struct hearth_options o;
    int fds[256], n = 0;
    while (n < 256 && (fds[n] = hello_connect_now(fake.path, err, sizeof(err))) >= 0)
        n++;
    ck_assert_int_eq(fds[n], -EAGAIN); /* the backlog is full */
    hearth_options_init(&o, sizeof(o));
    o.connect_timeout_ms = 50;
    alarm(10); /* instead of waiting for ever */
    uint64_t start = bell_now_ns();
    ck_assert_int_eq(hearth_connect(fake.path, &o, &h, err, sizeof(err)), -ETIMEDOUT);
    ck_assert_uint_ge(bell_now_ns() - start, 45000000);
    ck_assert_ptr_nonnull(strstr(err, "accepts no connection"));
    alarm(0);
    while (n)
        close(fds[--n]);
}
END_TEST

/* ---- signals -----------------------------------------------------------------------------------
 */

static void on_signal(int number)
{
    (void)number;
}

static pthread_t waits; /* the thread to interrupt */
static _Atomic int done;

/* Signals without end; the first ones come before the daemon says anything. */
static void *interrupt(void *then)
{
    for (int i = 0; !done; i++) {
        usleep(2000);
        pthread_kill(waits, SIGUSR1);
        if (i == 10 && then)
            ((void (*)(void))then)();
    }
    return NULL;
}

static pthread_t interrupt_and(void (*then)(void))
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    sigaction(SIGUSR1, &action, NULL);
    waits = pthread_self();
    ck_assert_int_eq(pthread_create(&thread, NULL, interrupt, (void *)then), 0);
    return thread;
}

static void end_of_signals(pthread_t thread)
{
    done = 1;
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void start_late(void)
{
    fake_start(&fake);
}

static void answer_late(void)
{
    fake_answer_status(&fake, "{}");
}

START_TEST(signals_do_not_end_a_handshake)
{
    char json[8];
    pthread_t thread = interrupt_and(start_late);
    int rc = hearth_connect(fake.path, NULL, &h, err, sizeof(err));
    end_of_signals(thread);
    fake_join(&fake);
    ck_assert_msg(rc == 0, "%s", err);
    done = 0;
    thread = interrupt_and(answer_late);
    int64_t n = hearth_status(h, json, sizeof(json));
    end_of_signals(thread);
    ck_assert_int_eq(n, 2);
}
END_TEST

START_TEST(signals_do_not_make_a_handshake_longer)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    o.connect_timeout_ms = 50;
    pthread_t thread = interrupt_and(NULL);
    int rc = hearth_connect(fake.path, &o, &h, err, sizeof(err));
    end_of_signals(thread);
    ck_assert_int_eq(rc, -ETIMEDOUT);
}
END_TEST

START_TEST(a_name_and_slots_reach_the_daemon)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    o.slots = 3;
    o.slot_name = "edit";
    fake_start(&fake);
    ck_assert_int_eq(hearth_connect(fake.path, &o, &h, err, sizeof(err)), 0);
    fake_join(&fake);
    ck_assert_str_eq(fake.hello.name, "edit");
    ck_assert_uint_eq(fake.hello.slots, 3);
    o.slot_name = "with blank";
    struct hearth *other;
    ck_assert_int_eq(hearth_connect(fake.path, &o, &other, err, sizeof(err)), -EINVAL);
    ck_assert_str_eq(err, "slot name 'with blank': give 1 to 63 printable ASCII characters without "
                          "blanks");
    o.slots = 257;
    o.slot_name = NULL;
    ck_assert_int_eq(hearth_connect(fake.path, &o, &other, err, sizeof(err)), -EINVAL);
    ck_assert_str_eq(err, "257 slots: ask for at most 256");
}
END_TEST

/* ---- submit ---------------------------------------------------------------------------------- */

START_TEST(a_request_lies_in_arena_cell_and_parameters)
{
    connect_with(1, 0);
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.max_tokens = 17;
    r.priority = HEARTH_BATCH;
    r.deterministic = 0;
    r.logprobs = 4;
    r.temperature = 0.5f;
    r.top_k = 10;
    r.penalty_last_n = -1;
    r.seed = 77;
    const struct hearth_bias bias[] = {{5, 1.5f}, {6, -INFINITY}};
    r.bias = bias;
    r.n_bias = 2;
    const char *stops[] = {"one", "two!"};
    r.stops = stops;
    r.n_stops = 2;
    const uint32_t stop_tokens[] = {7};
    r.stop_tokens = stop_tokens;
    r.n_stop_tokens = 1;
    struct submit_cell c = submit_request(&r);
    ck_assert_uint_eq(c.opcode, SUBMIT_REQUEST);
    ck_assert_uint_eq(c.slot, 0);
    ck_assert_uint_eq(c.keep, 0);
    ck_assert_uint_eq(c.length, 3);
    ck_assert_uint_eq(c.prompt_length, 3);
    ck_assert_uint_eq(c.max_tokens, 17);
    ck_assert_uint_eq(c.priority, PRIORITY_BATCH);
    ck_assert_uint_eq(c.flags, SUBMIT_FAST);
    ck_assert_int_eq(memcmp(segment_arena(&fake.segment, 0), prompt, sizeof(prompt)), 0);
    ck_assert_uint_eq(ring_generation(&segment_up_slot(&fake.segment, 0)->generation),
                      c.generation);
    ck_assert_uint_ne(c.generation, 0);
    struct ipc_limits limits = fake.limits;
    ck_assert_int_eq(submit_check(&c, &limits, err, sizeof(err)), 0);

    struct params p;
    _Alignas(8) uint8_t block[4096];
    memcpy(block, segment_params(&fake.segment, 0), c.params_bytes);
    ck_assert_msg(params_decode(block, c.params_bytes, FAKE_VOCAB, &p, err, sizeof(err)) == 0, "%s",
                  err);
    ck_assert(p.temperature == 0.5f && p.top_k == 10 && p.seed == 77);
    ck_assert_uint_eq(p.penalty_last_n, PARAMS_LAST_ALL);
    ck_assert(p.logprobs_on == 1 && p.logprobs == 4);
    ck_assert(p.n_bias == 2 && p.bias[0].token == 5 && p.bias[0].value == 1.5f);
    ck_assert(p.bias[1].value == -PARAMS_BIAS_VALUE_MAX);
    ck_assert(p.n_stop_texts == 2 && p.stop_text_lengths[1] == 4 && p.stop_text_bytes == 7);
    ck_assert_int_eq(memcmp(p.stop_texts, "onetwo!", 7), 0);
    ck_assert(p.n_stop_tokens == 1 && p.stop_tokens[0] == 7);
}
END_TEST

START_TEST(ignore_eos_forbids_every_token_that_ends_an_answer)
{
    connect_with(1, 0);
    struct hearth_request r;
    const struct hearth_bias bias[] = {{FAKE_EOS, 50}, {5, 1.5f}};
    struct params p;
    _Alignas(8) uint8_t block[4096];
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.bias = bias;
    r.n_bias = 2;
    r.ignore_eos = 1;
    struct submit_cell c = submit_request(&r);
    memcpy(block, segment_params(&fake.segment, 0), c.params_bytes);
    ck_assert_msg(params_decode(block, c.params_bytes, FAKE_VOCAB, &p, err, sizeof(err)) == 0, "%s",
                  err);
    ck_assert_uint_eq(p.n_bias, 4); /* and three ends */
    ck_assert(p.bias[0].token == 5 && p.bias[0].value == 1.5f);
    ck_assert(p.bias[1].token == FAKE_EOS && p.bias[2].token == FAKE_RETURN &&
              p.bias[3].token == FAKE_CALL);
    for (uint32_t i = 1; i < p.n_bias; i++)
        ck_assert(p.bias[i].value == -PARAMS_BIAS_VALUE_MAX);
}
END_TEST

START_TEST(banned_tokens_are_never_picked_whatever_their_bias)
{
    connect_with(1, 0);
    struct hearth_request r;
    const struct hearth_bias bias[] = {{6, 50}, {5, 1.5f}};
    const uint32_t banned[] = {6, FAKE_EOS, 9};
    struct params p;
    _Alignas(8) uint8_t block[4096];
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.bias = bias;
    r.n_bias = 2;
    r.banned = banned;
    r.n_banned = 3;
    for (r.ignore_eos = 0; r.ignore_eos < 2; r.ignore_eos++) {
        const uint32_t ends[] = {FAKE_EOS, FAKE_RETURN, FAKE_CALL};
        const uint32_t *never[2][5] = {{banned, banned + 1, banned + 2},
                                       {banned, banned + 2, ends, ends + 1, ends + 2}};
        const uint32_t n_never = r.ignore_eos ? 5 : 3;
        struct submit_cell c = submit_request(&r);
        memcpy(block, segment_params(&fake.segment, 0), c.params_bytes);
        ck_assert_msg(params_decode(block, c.params_bytes, FAKE_VOCAB, &p, err, sizeof(err)) == 0,
                      "%s", err);
        ck_assert_uint_eq(p.n_bias, 1 + n_never);
        ck_assert(p.bias[0].token == 5 && p.bias[0].value == 1.5f);
        for (uint32_t i = 0; i < n_never; i++)
            ck_assert(p.bias[1 + i].token == *never[r.ignore_eos][i] &&
                      p.bias[1 + i].value == -PARAMS_BIAS_VALUE_MAX);
    }
    r.n_banned = PARAMS_BIAS_MAX;
    ck_assert_int_eq(hearth_check(h, &r), -EINVAL);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "banned tokens"));
}
END_TEST

START_TEST(keep_is_the_common_prefix_with_the_last_prompt)
{
    connect_with(2, 0);
    uint32_t a[] = {1, 2, 3, 4, 5}, b[] = {1, 2, 3, 9, 9, 9};
    ck_assert_uint_eq(submit_ids(0, a, 5).keep, 0);
    ck_assert_uint_eq(submit_ids(0, a, 5).keep, 5);
    ck_assert_uint_eq(submit_ids(0, b, 6).keep, 3);
    ck_assert_uint_eq(submit_ids(0, b, 2).keep, 2);
    /* The arena after the length of the last cell is not compared. */
    ck_assert_uint_eq(submit_ids(0, b, 6).keep, 2);
    ck_assert_uint_eq(submit_ids(1, b, 6).keep, 0);
    ck_assert_int_eq(memcmp(segment_arena(&fake.segment, 0), b, sizeof(b)), 0);
}
END_TEST

START_TEST(text_is_tokenized_with_its_bos)
{
    connect_with(1, 0);
    struct hearth_request r = text_request("a b");
    struct submit_cell c = submit_request(&r);
    const uint32_t expected[] = {FAKE_BOS, FAKE_A, FAKE_B};
    ck_assert_uint_eq(c.length, 3);
    ck_assert_int_eq(memcmp(segment_arena(&fake.segment, 0), expected, sizeof(expected)), 0);
    r.text_flags = 0;
    ck_assert_uint_eq(submit_request(&r).length, 2);
}
END_TEST

START_TEST(a_bad_request_changes_nothing)
{
    connect_with(1, 0);
    uint32_t generation = submit_ids(0, prompt, 3).generation;
    struct hearth_request good, r;
    hearth_request_init(&good, sizeof(good));
    good.tokens = prompt;
    good.n_tokens = 3;
    uint32_t many[FAKE_CONTEXT + 1] = {0}, unknown[] = {1, FAKE_VOCAB};
    const char *empty_stop[] = {""};
#define REFUSED(change, code)                                                                      \
    do {                                                                                           \
        r = good;                                                                                  \
        change;                                                                                    \
        ck_assert_msg(hearth_submit(h, 0, &r) == (code), #change);                                 \
        ck_assert_uint_gt(strlen(hearth_error(h)), 10);                                            \
        ck_assert_msg(hearth_check(h, &r) == (code), #change);                                     \
    } while (0)
    REFUSED(r.size = 0, -EINVAL);
    REFUSED(r.n_tokens = 0, -EINVAL);
    REFUSED((r.tokens = many, r.n_tokens = FAKE_CONTEXT + 1), -E2BIG);
    REFUSED((r.tokens = unknown, r.n_tokens = 2), -ERANGE);
    REFUSED(r.priority = 2, -EINVAL);
    REFUSED(r.logprobs = 21, -EINVAL);
    REFUSED(r.logprobs = -2, -EINVAL);
    REFUSED(r.penalty_last_n = -2, -EINVAL);
    REFUSED(r.temperature = NAN, -EINVAL);
    REFUSED(r.temperature = -1, -EINVAL);
    REFUSED(r.top_p = 1.5f, -EINVAL);
    REFUSED(r.proposer = "magic", -EINVAL);
    REFUSED((r.stops = empty_stop, r.n_stops = 1), -EINVAL);
    REFUSED((r.stop_tokens = unknown, r.n_stop_tokens = 2), -EINVAL);
    ck_assert_int_eq(hearth_submit(h, 1, &good), -ERANGE);
    ck_assert_int_eq(hearth_check(h, &good), 0);
    struct submit_cell c;
    ck_assert_int_eq(fake_take(&fake, &c), 0);
    ck_assert_uint_eq(ring_generation(&segment_up_slot(&fake.segment, 0)->generation), generation);
    /* The first request still runs. */
    fake_bytes(&fake, 0, generation, 3, "x");
    ck_assert_ptr_nonnull(next(0));
}
END_TEST

/* ---- the rest -------------------------------------------------------------------------------- */

START_TEST(text_and_tokens_turn_into_each_other)
{
    connect_with(1, 0);
    uint32_t ids[8];
    ck_assert_int_eq(hearth_tokenize(h, "a b!", 4, HEARTH_ADD_BOS, ids, 8), 4);
    const uint32_t expected[] = {FAKE_BOS, FAKE_A, FAKE_B, FAKE_BYTE + '!'};
    ck_assert_int_eq(memcmp(ids, expected, sizeof(expected)), 0);
    ck_assert_int_eq(hearth_tokenize(h, "a b!", 4, 0, NULL, 0), 3);
    uint32_t one[2] = {0, 12345};
    ck_assert_int_eq(hearth_tokenize(h, "a b!", 4, 0, one, 1), 3);
    ck_assert(one[0] == FAKE_A && one[1] == 12345);
    char text[32] = "";
    ck_assert_int_eq(hearth_detokenize(h, ids, 4, 0, text, sizeof(text)), 4);
    ck_assert_str_eq(text, "a b!");
    ck_assert_int_eq(hearth_detokenize(h, ids, 4, HEARTH_SPECIAL, NULL, 0), 7);
    char part[5] = "####";
    ck_assert_int_eq(hearth_detokenize(h, ids, 4, 0, part, 2), 4);
    ck_assert_str_eq(part, "a ##");
    const uint32_t unknown[] = {FAKE_VOCAB};
    ck_assert_int_eq(hearth_detokenize(h, unknown, 1, 0, NULL, 0), -ERANGE);
}
END_TEST

START_TEST(a_model_without_fim_tokens_says_so)
{
    connect_with(1, 0);
    struct hearth_info info = {.size = sizeof(info), .fim = 7};
    struct hearth_fim f;
    hearth_fim_init(&f, sizeof(f));
    f.prefix = "a b";
    f.prefix_bytes = 3;
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.fim, 0);
    ck_assert_int_eq(hearth_fim(h, &f, NULL, 0), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(hearth_error(h), "no fill-in-the-middle tokens"));
    f.prefix = NULL;
    ck_assert_int_eq(hearth_fim(h, &f, NULL, 0), -EINVAL);
}
END_TEST

static void *answer_status(void *arg)
{
    fake_answer_status(&fake, arg);
    return NULL;
}

START_TEST(status_needs_no_slot)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    o.slots = 0;
    pthread_t thread;
    fake_start(&fake);
    ck_assert_int_eq(hearth_connect(fake.path, &o, &h, err, sizeof(err)), 0);
    fake_join(&fake);
    ck_assert_int_eq(hearth_tokenize(h, "a b!", 4, 0, NULL, 0), 3);
    ck_assert_int_eq(
        pthread_create(&thread, NULL, answer_status, (void *)(uintptr_t) "{\"clients\":1}"), 0);
    char json[64], little[5] = "####";
    ck_assert_int_eq(hearth_status(h, json, sizeof(json)), 13);
    ck_assert_str_eq(json, "{\"clients\":1}");
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(
        pthread_create(&thread, NULL, answer_status, (void *)(uintptr_t) "{\"clients\":1}"), 0);
    ck_assert_int_eq(hearth_status(h, little, sizeof(little)), 13);
    ck_assert_str_eq(little, "{\"cl");
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    struct hearth_request r = text_request("x");
    ck_assert_int_eq(hearth_submit(h, 0, &r), -EINVAL);
    fake_hang_up(&fake);
    ck_assert_int_eq(hearth_status(h, json, sizeof(json)), -ECONNRESET);
}
END_TEST

START_TEST(error_codes_have_texts)
{
    ck_assert_str_eq(hearth_strerror(0), "no error");
    ck_assert_str_eq(hearth_strerror(-ECONNRESET), "the daemon is gone");
    ck_assert_uint_gt(strlen(hearth_strerror(-EIO)), 3);
    ck_assert_str_eq(hearth_strerror(-99999), "unknown error");
    ck_assert_str_eq(hearth_strerror(5), "unknown error");
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_test(t, hearth_info_describes_the_model);
    tcase_add_test(t, an_info_struct_is_filled_up_to_its_size);
    tcase_add_test(t, no_daemon_is_one_clear_line);
    tcase_add_test(t, the_path_comes_from_the_environment);
    tcase_add_test(t, a_refusal_of_the_daemon_is_reported);
    tcase_add_test(t, a_daemon_that_is_stopping_hands_its_clients_to_the_next_one);
    tcase_add_test(t, a_peer_that_is_not_hearthd_is_an_error);
    tcase_add_test(t, a_vocabulary_that_may_change_is_refused);
    tcase_add_test(t, uninitialized_options_are_refused);
    tcase_add_test(t, a_silent_daemon_times_out);
    tcase_add_test(t, a_daemon_that_accepts_no_connection_times_out);
    tcase_add_test(t, signals_do_not_end_a_handshake);
    tcase_add_test(t, signals_do_not_make_a_handshake_longer);
    tcase_add_test(t, a_name_and_slots_reach_the_daemon);
    tcase_add_test(t, a_request_lies_in_arena_cell_and_parameters);
    tcase_add_test(t, ignore_eos_forbids_every_token_that_ends_an_answer);
    tcase_add_test(t, banned_tokens_are_never_picked_whatever_their_bias);
    tcase_add_test(t, keep_is_the_common_prefix_with_the_last_prompt);
    tcase_add_test(t, text_is_tokenized_with_its_bos);
    tcase_add_test(t, a_bad_request_changes_nothing);
    tcase_add_test(t, text_and_tokens_turn_into_each_other);
    tcase_add_test(t, a_model_without_fim_tokens_says_so);
    tcase_add_test(t, status_needs_no_slot);
    tcase_add_test(t, error_codes_have_texts);
}

int main(void)
{
    Suite *suite = suite_create("client_hearth");
    TCase *t = tcase_create("library");
    tcase_add_checked_fixture(t, fixture_setup, fixture_teardown);
    tcase_set_timeout(t, 120);
    add_tests(t);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
