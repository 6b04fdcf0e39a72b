/* `hearth top`: a status becomes numbers, two of them a frame that fits its screen. */
#include "client/cli/top_frame.c"
#include "client/cli/top_sample.c"
#include "client/cli/util.c"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>

static struct buffer out;
static const struct top_screen plain = {0};

static struct top_sample read_status(const char *json, uint64_t at_ns)
{
    struct top_sample sample;

    ck_assert_int_eq(top_sample_read(json, strlen(json), at_ns, &sample), 0);
    return sample;
}

static const char *drawn(const struct top_sample *now, const struct top_sample *before,
                         const char *trouble, const struct top_screen *screen)
{
    out.bytes = 0;
    top_frame(now, before, trouble, screen, &out);
    buffer_add(&out, "", 1);
    ck_assert_int_eq(out.failed, 0);
    return out.data;
}

static void shows(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in\n%s", part, text);
}

#define SLOT(client, slot, state, outputs)                                                         \
    "{\"client\":" #client ",\"slot\":" #slot ",\"uid\":7,\"pid\":42,\"name\":\"n" #client         \
    "\",\"state\":\"" state "\",\"priority\":\"batch\",\"prompt\":200,\"kv\":50,\"output\":3,"     \
    "\"prefix_break\":120,\"prefix_lost\":3" #client ",\"outputs\":" #outputs "}"

static const char first[] =
    "{\"pid\":9,\"model\":\"m\",\"device\":\"cpu\",\"threads\":2,\"uptime_s\":3725,"
    "\"output_tokens\":1000,\"drafted\":100,\"accepted_drafts\":50,\"rollbacks\":10,"
    "\"prompt_tokens\":400,\"cached_tokens\":100,\"pages_total\":64,\"pages_free\":48,"
    "\"pages_cached\":16,\"page_bytes\":1048576,\"decode_ns\":420000,\"rss_bytes\":1073741824,"
    "\"slots\":[" SLOT(1, 0, "idle", 900) "," SLOT(2, 0, "decode", 100) "]}";
static const char second[] =
    "{\"pid\":9,\"model\":\"m\",\"device\":\"cpu\",\"threads\":2,\"uptime_s\":3727,"
    "\"output_tokens\":1600,\"drafted\":200,\"accepted_drafts\":140,\"rollbacks\":14,"
    "\"prompt_tokens\":500,\"cached_tokens\":200,\"pages_total\":64,\"pages_free\":48,"
    "\"pages_cached\":16,\"page_bytes\":1048576,\"states_total\":2,\"state_bytes\":3145728,"
    "\"decode_ns\":420000,\"rss_bytes\":1073741824,"
    "\"slots\":[" SLOT(1, 0, "idle", 900) "," SLOT(2, 0, "decode", 300) "," SLOT(
        3, 5, "prefill", 400) "],\"slots_left_out\":2}";

START_TEST(a_frame_says_what_happened_between_two_samples)
{
    struct top_sample before = read_status(first, 1000000000),
                      now = read_status(second, 3000000000);

    top_sample_compare(&now, &before);
    const char *text = drawn(&now, &before, NULL, &plain);
    shows(text, "up 1:02:07");
    shows(text, "300.0 tokens/s");
    shows(text, "a decoding pass takes 420 us");
    shows(text, "70.0 % of 200 accepted, now 90.0 %; 14 rollbacks, now 2.0/s");
    shows(text, "40.0 % of 500 prompt tokens were warm, now 100.0 %");
    shows(text, "[########++++++++................] 16 used, 16 cached, 32 free (70.0 MiB)");
    shows(text, "1.00 GiB resident");
    shows(text, "and 2 more");
    /* The fastest of those at work first, the idle last. */
    ck_assert_uint_eq(now.slots[0].client, 3);
    ck_assert(now.slots[0].rate == 200 && now.slots[1].rate == 100 && now.slots[2].rate == 0);
    shows(text, "n3                  5 prefill  batch           25%     120       3    200.0 \n");
    shows(text, "n2                  0 decode   batch           200       -       3    100.0 \n");
    ck_assert_ptr_null(strchr(text, '\033'));
    top_sample_fini(&before);
    top_sample_fini(&now);
}
END_TEST

START_TEST(the_first_sample_has_no_rates)
{
    struct top_sample now = read_status(first, 5);

    top_sample_compare(&now, NULL);
    const char *text = drawn(&now, NULL, NULL, &plain);
    shows(text, "- tokens/s");
    shows(text, "50.0 % of 100 accepted, now -");
    ck_assert(now.slots[0].rate < 0);
    top_sample_fini(&now);
}
END_TEST

START_TEST(an_idle_daemon_does_not_divide_by_zero)
{
    struct top_sample now = read_status("{}", 5), before = read_status("{}", 5);

    top_sample_compare(&now, &before);
    const char *text = drawn(&now, &before, NULL, &plain);
    shows(text, "- of 0 accepted");
    shows(text, "[................................] 0 used, 0 cached, 0 free");
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(strstr(text, "inf"));
}
END_TEST

START_TEST(a_malformed_status_is_refused)
{
    static const char *const texts[] = {
        "", "[]", "{", "{\"slots\":[{}]", "7", "{\"model\":\"\xff\"}"};
    struct top_sample sample;

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        ck_assert_int_eq(top_sample_read(texts[i], strlen(texts[i]), 0, &sample), -EBADMSG);
        top_sample_fini(&sample);
    }
    /* Members of another kind are as good as missing. */
    sample = read_status("{\"pid\":\"x\",\"model\":3,\"slots\":[1,{\"name\":[]},null]}", 0);
    ck_assert_uint_eq(sample.pid, 0);
    ck_assert_uint_eq(sample.n_slots, 3);
    drawn(&sample, NULL, NULL, &plain);
    top_sample_fini(&sample);
}
END_TEST

START_TEST(control_characters_do_not_reach_the_terminal)
{
    struct top_sample sample = read_status("{\"model\":\"a\\u001b[2Jb\\u009b3J\\u007f\\r\\nc\","
                                           "\"slots\":[{\"name\":\"\\u001b]0;x\\u0007\"}]}",
                                           0);

    ck_assert_str_eq(sample.model, "a?[2Jb?3J???c");
    ck_assert_str_eq(sample.slots[0].name, "?]0;x?");
    top_sample_fini(&sample);
    /* A word that is cut stays whole characters: 2 bytes each, 31 of them in 63 bytes. */
    char json[256] = "{\"model\":\"";
    for (int i = 0; i < 40; i++)
        strcat(json, "\xc3\xa9");
    strcat(json, "\"}");
    sample = read_status(json, 0);
    ck_assert_uint_eq(strlen(sample.model), 62);
    top_sample_fini(&sample);
}
END_TEST

/* Nor do what turns a line's direction, what a daemon answers, and names of sockets. */
START_TEST(what_controls_a_terminal_is_not_drawn)
{
    static const char trouble[] = "refused: \033]0;x\007 \xc2\x9b\x31m";
    struct top_sample sample = read_status("{\"model\":\"a\\u202eb\"}", 0);
    const struct top_row row = {"a\xe2\x80\xae\033[2J", trouble, &sample, NULL};

    for (int i = 0; i < 2; i++) {
        const char *text = drawn(&sample, NULL, trouble, &plain);
        if (i == 1) {
            out.bytes = 0;
            top_overview(&row, 1, &plain, &out);
            buffer_add(&out, "", 1);
            text = out.data;
        }
        shows(text, "refused: ?]0;x? ??1m");
        ck_assert_ptr_null(strpbrk(text, "\033\007\x9b"));
        ck_assert_ptr_null(strstr(text, "\xe2\x80\xae"));
    }
    top_sample_fini(&sample);
}
END_TEST

/* Follows a live frame as a terminal does. Returns the rows it used. */
static uint32_t follow(const char *text, const struct top_screen *screen)
{
    uint32_t row = 0, column = 0, widest = 0;

    for (; *text; text++) {
        if (*text == '\033') {
            ck_assert_int_eq(text[1], '[');
            text += 2;
            while (*text < '@')
                text++;
            continue;
        }
        if (*text == '\r')
            column = 0;
        else if (*text == '\n')
            row++;
        else if (((unsigned char)*text & 0xc0) != 0x80)
            column++;
        widest = column > widest ? column : widest;
    }
    ck_assert_msg(widest <= screen->columns, "a row is wider than %u", screen->columns);
    ck_assert_msg(row < screen->rows, "more than %u rows", screen->rows);
    return row + 1;
}

START_TEST(a_frame_never_leaves_its_screen)
{
    struct top_sample before = read_status(first, 1), now = read_status(second, 2);
    struct top_slot many[40];

    top_sample_compare(&now, &before);
    for (int i = 0; i < 40; i++) {
        many[i] = now.slots[i % 3];
        snprintf(many[i].user, sizeof(many[i].user), "somebody-with-a-long-name");
        snprintf(many[i].command, sizeof(many[i].command),
                 "a\xc3\xa9"
                 "b");
    }
    free(now.slots);
    now.slots = many;
    for (now.n_slots = 0; now.n_slots <= 40; now.n_slots += 20)
        for (uint32_t rows = 1; rows < 60; rows += rows < 14 ? 1 : 9)
            for (uint32_t wide = 1; wide < 130; wide += rows % 7 + 3) {
                struct top_screen screen = {.rows = rows, .columns = wide, .live = 1, .colours = 1};
                follow(drawn(&now, &before, wide % 2 ? "gone" : NULL, &screen), &screen);
            }
    now.n_slots = 40;
    struct top_screen screen = {.rows = 20, .columns = 200, .live = 1};
    ck_assert_uint_eq(follow(drawn(&now, &before, NULL, &screen), &screen), 20);
    shows(out.data, "and 33 more"); /* 31 that have no row, and 2 that the daemon left out */
    now.slots = NULL;
    top_sample_fini(&now);
    top_sample_fini(&before);
}
END_TEST

START_TEST(colours_are_optional_and_always_reset)
{
    struct top_sample now = read_status(second, 2);
    struct top_screen screen = {.rows = 30, .columns = 100, .live = 1, .colours = 1};
    const char *text = drawn(&now, NULL, "the daemon is gone", &screen);
    int on = 0;

    shows(text, "\033[31mthe daemon is gone\033[m");
    shows(text, "\033[32mdecode");
    for (const char *p = text; (p = strstr(p, "\033[")); p += 2) {
        const char *end = p + 2 + strspn(p + 2, "0123456789");
        if (*end == 'm')
            on = end > p + 2;
        else
            ck_assert_int_eq(on, 0); /* nothing is cleared in a colour */
    }
    ck_assert_int_eq(on, 0);
    screen.colours = 0;
    text = drawn(&now, NULL, NULL, &screen);
    for (const char *p = text; (p = strstr(p, "\033[")); p += 2)
        ck_assert_int_ne(p[2 + strspn(p + 2, "0123456789")], 'm');
    top_sample_fini(&now);
}
END_TEST

START_TEST(an_overview_has_a_line_for_each_daemon)
{
    struct top_sample before = read_status(first, 1000000000),
                      now = read_status(second, 3000000000);
    top_sample_compare(&now, &before);
    const struct top_row rows[] = {{"small", NULL, &now, &before},
                                   {"a-name-that-is-longer-than-its-column", NULL, &now, NULL},
                                   {"away", "the daemon is gone", &now, NULL}};
    out.bytes = 0;
    top_overview(rows, 3, &plain, &out);
    buffer_add(&out, "", 1);
    shows(out.data, "3 models  2.00 GiB resident, 300.0 tokens/s, 0 slots active\n");
    shows(out.data, "small                     1.00 GiB  25.0 %    0/0   300.0  40.0 %  70.0 %");
    shows(out.data, "a-name-that-is-longer-th  1.00 GiB");
    shows(out.data, "away                     the daemon is gone\n");
    /* Those at work first, then the idle ones. */
    const char *fast = strstr(out.data, "small               7          prefill"),
               *other = strstr(out.data, "a-name-that-is-long 7          prefill"),
               *idle = strstr(out.data, "small               7          idle");
    ck_assert(fast && other && idle && fast < other && other < idle);
    shows(out.data, "and 4 more");
    for (uint32_t height = 1; height < 20; height++)
        for (uint32_t wide = 1; wide < 140; wide += 3) {
            struct top_screen screen = {.rows = height, .columns = wide, .live = 1, .colours = 1};
            out.bytes = 0;
            top_overview(rows, 3, &screen, &out);
            buffer_add(&out, "", 1);
            follow(out.data, &screen);
        }
    top_sample_fini(&before);
    top_sample_fini(&now);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_top");
    TCase *t = tcase_create("top");
    tcase_add_test(t, a_frame_says_what_happened_between_two_samples);
    tcase_add_test(t, the_first_sample_has_no_rates);
    tcase_add_test(t, an_idle_daemon_does_not_divide_by_zero);
    tcase_add_test(t, a_malformed_status_is_refused);
    tcase_add_test(t, control_characters_do_not_reach_the_terminal);
    tcase_add_test(t, what_controls_a_terminal_is_not_drawn);
    tcase_add_test(t, a_frame_never_leaves_its_screen);
    tcase_add_test(t, colours_are_optional_and_always_reset);
    tcase_add_test(t, an_overview_has_a_line_for_each_daemon);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
