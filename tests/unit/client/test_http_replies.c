/* client/http/reply_*: what streams of chats say while the prompt is computed. */
#include "client/http/reply.h"
#include "client/http/routes_model.h"
#include "client/http/state.h"
#include "ipc/bell.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct server server;
static struct served served;
static struct exchange x;
static struct choice c;

static void open_stream(const struct reply *reply)
{
    served = (struct served){.server = &server, .pool.model = {.name = "m", .context = 100}};
    x = (struct exchange){
        .server = &server, .served = &served, .reply = reply, .params.stream = true};
    c = (struct choice){.x = &x, .job.request.n_tokens = 7};
    exchange_name(&x);
}

/* How often the stream has an event of this type. */
static int count(const char *type)
{
    char line[64];
    int n = 0;
    snprintf(line, sizeof(line), "event: %s\n", type);
    for (const char *at = x.out.data; at && (at = strstr(at, line)); at += strlen(line))
        n++;
    return n;
}

/* A prompt takes a while: `since` is when the stream last said something, or began. */
static void progress(uint64_t since)
{
    const struct hearth_event e = {.kind = HEARTH_PROGRESS, .done = 1, .total = 7};
    buffer_fini(&x.out);
    c.submit_ns = since;
    c.told_ns = c.told_ns ? since : 0;
    x.reply->progress(&x, &c, &e);
}

START_TEST(a_message_that_waits_pings)
{
    open_stream(&reply_messages);
    progress(bell_now_ns());
    ck_assert_uint_eq(x.out.bytes, 0);
    progress(1);
    ck_assert_int_eq(count("message_start"), 1);
    ck_assert_int_eq(count("ping"), 1);
    ck_assert_ptr_nonnull(strstr(x.out.data, "\"input_tokens\":7"));
    progress(1);
    ck_assert_int_eq(count("message_start"), 0);
    ck_assert_int_eq(count("ping"), 1);
    progress(bell_now_ns());
    ck_assert_uint_eq(x.out.bytes, 0);
    buffer_fini(&x.out);
}
END_TEST

START_TEST(a_response_that_waits_is_in_progress)
{
    open_stream(&reply_responses);
    progress(bell_now_ns());
    ck_assert_uint_eq(x.out.bytes, 0);
    progress(1);
    ck_assert_int_eq(count("response.created"), 1);
    ck_assert_int_eq(count("response.in_progress"), 1);
    progress(1);
    ck_assert_int_eq(count("response.created"), 0);
    ck_assert_int_eq(count("response.in_progress"), 1);
    ck_assert_ptr_nonnull(strstr(x.out.data, "\"sequence_number\":2"));
    buffer_fini(&x.out);
}
END_TEST

START_TEST(a_response_says_numbers_as_they_were_given)
{
    open_stream(&reply_responses);
    ck_assert_ptr_nonnull(strstr(x.ahead.data, "\"temperature\":1.0,\"top_p\":1.0,"));
    buffer_fini(&x.ahead);
    x.id[0] = 0;
    x.asked =
        json_loads("{\"temperature\":0.12345678901,\"top_p\":1,\"metadata\":{\"a\":0.1}}", 0, NULL);
    exchange_name(&x);
    ck_assert_ptr_nonnull(strstr(x.ahead.data, "\"temperature\":0.12345678901,\"top_p\":1,"));
    ck_assert_ptr_nonnull(strstr(x.ahead.data, "\"metadata\":{\"a\":0.1}"));
    json_decref(x.asked);
    buffer_fini(&x.ahead);
}
END_TEST

/* Where the request is read, which a worker does with a large one: the loop does not again. */
START_TEST(what_a_response_says_again_is_written_once)
{
    struct fail f = {0};
    open_stream(&reply_responses);
    buffer_fini(&x.ahead);
    x.id[0] = 0;
    x.root = json_loads("{\"metadata\":{\"a\":[1e300,2]}}", 0, NULL);
    ck_assert_int_lt(routes_read_responses(&x, NULL, &f), 0); /* it has no input */
    const size_t bytes = x.ahead.bytes;
    ck_assert_uint_gt(bytes, 0);
    ck_assert_ptr_nonnull(strstr(x.ahead.data, "\"metadata\":{\"a\":[1e+300,2]}"));
    json_object_clear(x.asked);
    exchange_name(&x);
    ck_assert_str_ne(x.id, "");
    ck_assert_uint_eq(x.ahead.bytes, bytes);
    json_decref(x.asked);
    buffer_fini(&x.ahead);
}
END_TEST

START_TEST(no_two_calls_of_an_answer_have_the_same_id)
{
    enum { CHOICES = 4, CALLS = 200 };
    json_t *ids = json_object();
    open_stream(&reply_chat);
    for (c.index = 0; c.index < CHOICES; c.index++)
        for (struct block b = {.call = 0}; b.call < CALLS; b.call++) {
            json_t *id = block_call_id(&c, &b);
            json_object_set(ids, json_string_value(id), id);
            json_decref(id);
        }
    ck_assert_uint_eq(json_object_size(ids), CHOICES * CALLS);
    json_decref(ids);
    buffer_fini(&x.ahead);
}
END_TEST

/* What a whole answer keeps of 500 tokens with twenty others each until it is sent. */
static size_t n_live;

static void *counted(size_t bytes)
{
    n_live++;
    return malloc(bytes);
}

static void uncounted(void *p)
{
    n_live -= p != NULL;
    free(p);
}

START_TEST(probabilities_are_kept_as_text)
{
    static const struct reply *const replies[] = {&reply_chat, &reply_text, &reply_native};
    struct hearth_logprob top[20];
    const struct hearth_token_logprobs one = {
        .picked = {.token = 7, .logprob = -0.5f}, .n_top = 20, .top = top};
    for (uint32_t i = 0; i < 20; i++)
        top[i] = (struct hearth_logprob){.token = i, .logprob = -0.25f * (float)i};
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        size_t bytes = 0;
        open_stream(replies[i]);
        json_set_alloc_funcs(counted, uncounted);
        for (int k = 0; k < 500; k++)
            exchange_add_probs(&c, &one);
        ck_assert_uint_eq(n_live, 0);
        json_set_alloc_funcs(malloc, free);
        for (size_t k = 0; k < CHOICE_LISTS; k++) {
            struct buffer t = {0};
            exchange_put_list(&t, &c.probs[k]);
            json_t *list = json_loadb(t.data, t.bytes, 0, NULL);
            ck_assert_uint_eq(json_array_size(list), c.probs[k].bytes ? 500 : 0);
            bytes += c.probs[k].room;
            json_decref(list);
            buffer_fini(&t);
            buffer_fini(&c.probs[k]);
        }
        ck_assert_uint_lt(bytes, 500 * 4096);
        buffer_fini(&x.ahead);
    }
}
END_TEST

/* Each of 64 answers says it. */
/* They are kept until all of a whole answer is there; a stream has sent them. */
START_TEST(probabilities_of_a_whole_answer_have_a_limit)
{
    struct hearth_logprob top[20] = {{0}};
    const struct hearth_token_logprobs one = {.n_top = 20, .top = top};
    for (int stream = 0; stream < 2; stream++) {
        open_stream(&reply_chat);
        x.params.stream = stream;
        x.probs_bytes = PROBS_BYTES - 100;
        exchange_add_probs(&c, &one);
        ck_assert_int_eq(x.is_ready, !stream);
        ck_assert_uint_eq(x.status, stream ? 0 : 400);
        if (!stream)
            ck_assert_ptr_nonnull(strstr(x.out.data, "ask for a stream"));
        buffer_fini(&c.probs[0]);
        buffer_fini(&x.out);
        buffer_fini(&x.ahead);
    }
    open_stream(&reply_chat);
    x.params.stream = false;
    exchange_add_probs(&c, &one);
    ck_assert(!x.is_ready);
    ck_assert_uint_eq(x.probs_bytes, c.probs[0].bytes);
    buffer_fini(&c.probs[0]);
    buffer_fini(&x.ahead);
}
END_TEST

START_TEST(settings_say_a_grammar_unless_it_is_long)
{
    static char grammar[16386];
    open_stream(&reply_native);
    memset(grammar, '#', sizeof(grammar) - 1);
    for (size_t bytes = 16384; bytes <= 16385; bytes++) {
        struct buffer t = {0};
        const struct gen_params a = {.base = {.grammar = grammar, .grammar_bytes = bytes}};
        grammar[bytes] = 0;
        reply_put_settings(&t, &x, &a);
        ck_assert_int_eq(strstr(t.data, "\"grammar\":\"\"") != NULL, bytes > 16384);
        ck_assert_int_eq(t.bytes > bytes, bytes == 16384);
        buffer_fini(&t);
        grammar[bytes] = '#';
    }
    buffer_fini(&x.ahead);
}
END_TEST

/* There may be many tools, and each piece of a call asks which it is. */
START_TEST(the_tool_of_a_call_is_looked_for_once)
{
    open_stream(&reply_responses);
    json_t *tools = json_pack("[{s:s,s:s}]", "type", "custom", "name", "f");
    x.asked = json_pack("{s:O}", "tools", tools);
    c.blocks = (struct blocks){.items = calloc(1, sizeof(struct block)), .n = 1, .is_open = true};
    c.blocks.items[0].kind = HEARTH_CHAT_CALL;
    buffer_text(&c.blocks.items[0].name, "f");
    buffer_text(&c.blocks.items[0].text, "{\"input\": \"a\"}");
    x.choices = &c;
    x.reply->end(&x, &c);
    ck_assert_int_eq(count("response.custom_tool_call_input.done"), 1);
    buffer_fini(&x.out);
    json_object_del(x.asked, "tools");
    x.reply->whole(&x);
    ck_assert_ptr_nonnull(strstr(x.out.data, "\"type\":\"custom_tool_call\""));
    buffer_fini(&x.out);
    buffer_fini(&x.ahead);
    blocks_fini(&c.blocks);
    json_decref(x.asked);
    json_decref(tools);
}
END_TEST

/* Of a long text each part is moved about once: not all of it for each part that goes out. */
START_TEST(a_stream_is_taken_in_order_however_long_it_is)
{
    enum { PARTS = 4096, WORDS = 4096 };
    static uint32_t part[WORDS];
    uint32_t n = 0, got = 0;
    bool in_order = true;
    open_stream(&reply_messages);
    for (; n < PARTS * WORDS; n++) {
        part[n % WORDS] = n;
        buffer_add(&x.out, part, n % WORDS == WORDS - 1 ? sizeof(part) : 0);
    }
    for (size_t bytes; (bytes = exchange_take(&x, (char *)part, sizeof(part))) > 0;) {
        for (size_t i = 0; i < bytes / sizeof(*part); i++)
            in_order &= part[i] == got++;
        for (int i = 0; i < 2 && n < PARTS * WORDS + 1000; i++, n++)
            buffer_add(&x.out, &n, sizeof(n));
    }
    ck_assert(in_order);
    ck_assert_uint_eq(got, n);
    ck_assert_uint_eq(x.out.bytes, 0);
    buffer_fini(&x.out);
    buffer_fini(&x.ahead);
}
END_TEST

/* Bytes that went out do not count, also where they have not been moved away. */
START_TEST(a_stream_goes_on_once_little_of_it_is_left)
{
    enum { ALL = STREAM_LOW_BYTES * 3 / 2, TAKEN = STREAM_LOW_BYTES * 5 / 8 };
    static char bytes[ALL];
    open_stream(&reply_messages);
    x.choices = &c;
    x.n_choices = 1;
    c.job.at = JOB_NOWHERE;
    c.job.paused = true;
    buffer_add(&x.out, bytes, ALL);
    ck_assert_uint_eq(exchange_take(&x, bytes, TAKEN / 2), TAKEN / 2);
    ck_assert(c.job.paused);
    ck_assert_uint_eq(exchange_take(&x, bytes, TAKEN / 2), TAKEN / 2);
    ck_assert(!c.job.paused);
    buffer_fini(&x.out);
    buffer_fini(&x.ahead);
}
END_TEST

/* A stream began with a comment while its model was started, and then its request is refused before
 * its `stream` is read. */
START_TEST(a_stream_that_has_begun_ends_with_its_error_as_an_event)
{
    static const struct {
        const struct reply *reply;
        const char *said;
    } streams[] = {
        {&reply_chat, ": loading m\n\ndata: {\"error\":{"},
        {&reply_text, ": loading m\n\ndata: {\"error\":{"},
        {&reply_native, ": loading m\n\ndata: {\"error\":{"},
        {&reply_messages, ": loading m\n\nevent: error\ndata: {\"type\":\"error\""},
        {&reply_responses, ": loading m\n\nevent: response.failed\ndata: {\"type\":"},
    };
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        struct fail f = {0};
        open_stream(streams[i].reply);
        exchange_comment(&x, "loading m");
        ck_assert_int_lt(gen_params_read(&x.params, GEN_CHAT,
                                         json_pack("{s:i, s:b}", "top_p", 5, "stream", 1), &f),
                         0);
        exchange_fail(&x, &f);
        ck_assert(x.is_finished);
        ck_assert_msg(strncmp(x.out.data, streams[i].said, strlen(streams[i].said)) == 0, "%s",
                      x.out.data);
        ck_assert_str_eq(x.out.data + x.out.bytes - 2, "\n\n");
        gen_params_fini(&x.params);
        buffer_fini(&x.out);
        buffer_fini(&x.ahead);
    }
}
END_TEST

/* An upstream's stream, a part of which found no memory: its client is told, in an event. */
START_TEST(a_stream_that_lacks_a_part_ends_with_an_error)
{
    static const char cut[] = "data: {\"cut", said[] = "data: {\"cut\n\nevent: error\ndata: {";
    open_stream(&reply_messages);
    buffer_fini(&x.out);
    exchange_pass_begin(&x, "text/event-stream");
    exchange_pass(&x, cut, strlen(cut));
    x.out.failed = true;
    exchange_pass(&x, "\":1}\n\n", 6);
    exchange_pass_end(&x);
    ck_assert(x.is_finished);
    ck_assert_msg(strncmp(x.out.data, said, strlen(said)) == 0, "%s", x.out.data);
    ck_assert_ptr_nonnull(strstr(x.out.data, "out of memory"));
    buffer_fini(&x.out);
    buffer_fini(&x.ahead);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_replies");
    TCase *tcase = tcase_create("http_replies");
    tcase_add_test(tcase, a_stream_is_taken_in_order_however_long_it_is);
    tcase_add_test(tcase, a_stream_goes_on_once_little_of_it_is_left);
    tcase_add_test(tcase, a_stream_that_lacks_a_part_ends_with_an_error);
    tcase_add_test(tcase, a_stream_that_has_begun_ends_with_its_error_as_an_event);
    tcase_add_test(tcase, a_response_says_numbers_as_they_were_given);
    tcase_add_test(tcase, what_a_response_says_again_is_written_once);
    tcase_add_test(tcase, no_two_calls_of_an_answer_have_the_same_id);
    tcase_add_test(tcase, probabilities_are_kept_as_text);
    tcase_add_test(tcase, probabilities_of_a_whole_answer_have_a_limit);
    tcase_add_test(tcase, settings_say_a_grammar_unless_it_is_long);
    tcase_add_test(tcase, the_tool_of_a_call_is_looked_for_once);
    tcase_add_test(tcase, a_message_that_waits_pings);
    tcase_add_test(tcase, a_response_that_waits_is_in_progress);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
