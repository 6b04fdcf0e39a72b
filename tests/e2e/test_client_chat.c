/* `hearth chat` against a real daemon: one message through a pipe, conversations on a terminal. The
 * model is one of the others with a chat template put into its file. */
#include "tests/e2e/harness.h"
#include "tests/e2e/terminal.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <pty.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEMPLATE                                                                                   \
    "{% for m in messages %}{{ m.role | upper }}:\n{{ m.content }}\n{% endfor %}"                  \
    "{% if add_generation_prompt %}ASSISTANT:\n{% endif %}"

static struct harness d;
static struct harness_output o;
static char folder[64], model[128];

/* ---- a model with a template ----------------------------------------------------------------- */

static void put_u64(FILE *f, uint64_t value)
{
    ck_assert_uint_eq(fwrite(&value, sizeof(value), 1, f), 1);
}

/* A copy of a GGUF file with one more key, right after its head. The key's bytes are a multiple of
 * the file's alignment, so everything after it only moves: the template has a comment to fill up. */
static void write_model(const char *from, const char *to)
{
    static const char key[] = "tokenizer.chat_template";
    const size_t n_key = sizeof(key) - 1, n_text = sizeof(TEMPLATE) - 1 + 4; /* {##} */
    size_t fill = 63 - (8 + n_key + 4 + 8 + n_text + 63) % 64;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char head[24], *block = malloc(1 << 16);
    uint64_t n_keys;
    size_t n;
    ck_assert(in && out && fread(head, sizeof(head), 1, in) == 1);
    memcpy(&n_keys, head + 16, sizeof(n_keys));
    n_keys++;
    memcpy(head + 16, &n_keys, sizeof(n_keys));
    ck_assert_uint_eq(fwrite(head, sizeof(head), 1, out), 1);
    put_u64(out, n_key);
    fputs(key, out);
    ck_assert_uint_eq(fwrite(&(uint32_t){8}, 4, 1, out), 1); /* a string */
    put_u64(out, n_text + fill);
    fprintf(out, "%s{#%*s#}", TEMPLATE, (int)fill, "");
    while ((n = fread(block, 1, 1 << 16, in)) > 0)
        ck_assert_uint_eq(fwrite(block, 1, n, out), n);
    free(block);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void start(void)
{
    static const char *const arguments[] = {"--context", "8000", "--threads", "1", NULL};
    strcpy(folder, "/tmp/hearth-chat-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(model, sizeof(model), "%s/model.gguf", folder);
    write_model(harness_model(), model);
    harness_start(&d, model, arguments);
}

/* A test that failed may have left the daemon standing. */
static void go_on(void)
{
    ck_assert_int_eq(kill(d.pid, SIGCONT), 0);
}

static void stop(void)
{
    go_on();
    ck_assert_int_eq(harness_stop(&d), 0);
    unlink(model);
    rmdir(folder);
}

static void teardown(void)
{
    harness_output_fini(&o);
}

static void assert_failed(int code, const char *part)
{
    ck_assert_msg(o.code == code, "exit code %d, not %d: %s", o.code, code, o.error);
    ck_assert_msg(strncmp(o.error, "hearth: ", 8) == 0 && strstr(o.error, part), "%s", o.error);
    ck_assert_msg(strchr(o.error, '\n') == o.error + o.error_bytes - 1, "%s", o.error);
    ck_assert_str_eq(o.out, "");
    harness_output_fini(&o);
}

/* ---- one message ----------------------------------------------------------------------------- */

START_TEST(a_message_on_stdin_is_answered_in_the_models_form)
{
    struct harness_output plain =
        HARNESS_RUN(&d, NULL, "run", "--max-tokens", "30", "USER:\nOnce upon a time\nASSISTANT:\n");
    ck_assert_msg(plain.code == 0 && plain.out_bytes > 10, "%s", plain.error);
    o = HARNESS_RUN(&d, "Once upon a time\n", "chat", "--max-tokens", "30");
    ck_assert_msg(o.code == 0, "%s", o.error);
    ck_assert_str_eq(o.out, plain.out);
    ck_assert_str_eq(o.error, "");
    harness_output_fini(&plain);
    harness_output_fini(&o);
    plain = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "30",
                        "SYSTEM:\nBe brief\nUSER:\nOnce upon a time\nASSISTANT:\n");
    o = HARNESS_RUN(&d, "Once upon a time", "chat", "--max-tokens", "30", "--system", "Be brief");
    ck_assert_str_eq(o.out, plain.out);
    harness_output_fini(&plain);
}
END_TEST

START_TEST(a_family_or_a_file_can_be_the_template)
{
    char path[200];
    struct harness_output plain =
        HARNESS_RUN(&d, NULL, "run", "--max-tokens", "30",
                    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    o = HARNESS_RUN(&d, "Hi", "chat", "--max-tokens", "30", "--template", "chatml");
    ck_assert_msg(o.code == 0, "%s", o.error);
    ck_assert_str_eq(o.out, plain.out);
    harness_output_fini(&o);
    snprintf(path, sizeof(path), "%s/x.jinja", folder);
    FILE *f = fopen(path, "w");
    fputs("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
          "{% endfor %}<|im_start|>assistant\n\n",
          f);
    fclose(f);
    o = HARNESS_RUN(&d, "Hi", "chat", "--max-tokens", "30", "--template", path);
    unlink(path);
    ck_assert_msg(o.code == 0, "%s", o.error);
    ck_assert_str_eq(o.out, plain.out);
    harness_output_fini(&plain);
}
END_TEST

START_TEST(impossible_requests_fail_with_one_line_and_a_code)
{
    char path[200];
    o = HARNESS_RUN(&d, "Hi", "chat", "--template", "nope");
    assert_failed(65, "'nope' is not known");
    o = HARNESS_RUN(&d, "Hi", "chat", "--template", "/nonexistent/x.jinja");
    assert_failed(66, "/nonexistent/x.jinja");
    snprintf(path, sizeof(path), "%s/x.jinja", folder);
    FILE *f = fopen(path, "w");
    fputs("{{ raise_exception('No more') }}", f);
    fclose(f);
    o = HARNESS_RUN(&d, "Hi", "chat", "--template", path);
    unlink(path);
    assert_failed(65, "No more");
    o = HARNESS_RUN(&d, "", "chat");
    assert_failed(64, "no message");
    o = HARNESS_RUN(&d, "\xff\xfe", "chat");
    assert_failed(65, "not UTF-8");
    o = HARNESS_RUN(&d, "Hi", "chat", "surplus");
    assert_failed(64, "surplus");
    o = HARNESS_RUN(NULL, "Hi", "chat");
    assert_failed(69, "no daemon");
    ck_assert_int_eq(harness_wait_counter(&d, "slots_active", 0), 0);
}
END_TEST

START_TEST(a_model_without_a_template_says_to_name_one)
{
    struct harness other = {0};
    static const char *const arguments[] = {"--threads", "1", NULL};
    harness_start(&other, harness_model(), arguments);
    o = HARNESS_RUN(&other, "Hi", "chat");
    assert_failed(65, "--template");
    o = HARNESS_RUN(&other, "Hi", "chat", "--template", "chatml", "--max-tokens", "3");
    ck_assert_msg(o.code == 0 && o.out_bytes > 0, "%s", o.error);
    ck_assert_int_eq(harness_stop(&other), 0);
}
END_TEST

/* ---- on a terminal --------------------------------------------------------------------------- */

static void open_terminal(struct terminal *t, const char *const *arguments)
{
    terminal_open(t, d.socket, arguments);
}

static int64_t number(const json_t *j, const char *name)
{
    ck_assert_msg(json_is_integer(json_object_get(j, name)), "%s", name);
    return json_integer_value(json_object_get(j, name));
}

START_TEST(a_conversation_computes_only_what_is_new)
{
    struct terminal t;
    open_terminal(&t, (const char *const[]){"chat", "--json", "--max-tokens", "24", NULL});
    terminal_wait_prompts(&t, 1);
    terminal_type(&t, "Once upon a time\r");
    json_t *first = terminal_next_done(&t);
    terminal_wait_prompts(&t, 2);
    terminal_type(&t, "and then\r");
    json_t *second = terminal_next_done(&t);
    int64_t held = number(first, "prompt_tokens") + number(first, "output_tokens");
    ck_assert_int_gt(number(second, "prompt_tokens"), held);
    ck_assert_int_ge(number(second, "cached_tokens"), held - 1);
    terminal_wait_prompts(&t, 3);
    terminal_type(&t, "/reset\r");
    terminal_wait_prompts(&t, 4);
    terminal_type(&t, "Once upon a time\r");
    json_t *third = terminal_next_done(&t);
    ck_assert_int_eq(number(third, "prompt_tokens"), number(first, "prompt_tokens"));
    ck_assert(json_equal(json_object_get(third, "ids"), json_object_get(first, "ids")));
    terminal_wait_prompts(&t, 5);
    terminal_type(&t, "\x04");
    ck_assert_int_eq(terminal_close(&t), 0);
    json_decref(first);
    json_decref(second);
    json_decref(third);
}
END_TEST

START_TEST(a_conversation_that_became_too_long_can_begin_anew)
{
    struct harness small = {0};
    struct terminal t;
    harness_start(&small, model, (const char *const[]){"--threads", "1", "--context", "96", NULL});
    terminal_open(&t, small.socket, (const char *const[]){"chat", "--max-tokens", "8", NULL});
    terminal_wait_prompts(&t, 1);
    terminal_type(&t, "Once upon a time\r");
    terminal_wait_prompts(&t, 2);
    terminal_type(
        &t,
        "x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x "
        "x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x\r");
    terminal_wait_prompts(&t, 3);
    ck_assert_ptr_nonnull(strstr(t.shown, "the context holds 96: /reset starts over"));
    terminal_type(&t, "/reset\r");
    terminal_wait_prompts(&t, 4);
    terminal_type(&t, "Once upon a time\r");
    terminal_wait_prompts(&t, 5);
    terminal_type(&t, "\x04");
    while (terminal_look(&t))
        ;
    ck_assert_int_eq(terminal_close(&t), 0);
    t.seen[t.n_seen] = 0;
    struct harness_output plain =
        HARNESS_RUN(&small, "Once upon a time", "chat", "--max-tokens", "8");
    char twice[500];
    snprintf(twice, sizeof(twice), "%s%s", plain.out, plain.out);
    ck_assert_str_eq(t.seen, twice);
    harness_output_fini(&plain);
    ck_assert_int_eq(harness_stop(&small), 0);
}
END_TEST

/* What a model writes may come from a text that it was given. */
START_TEST(an_answer_drives_no_terminal)
{
    char shown[4096];
    size_t n = 0;
    ssize_t got;
    int master, status;
    pid_t pid = forkpty(&master, NULL, NULL, NULL);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        setenv("HEARTH_SOCKET", d.socket, 1);
        execl(harness_program("hearth"), "hearth", "run", "--grammar",
              "root ::= \"\\x1B[8m\\thidden\"", "Hi", NULL);
        _exit(127);
    }
    while ((got = read(master, shown + n, sizeof(shown) - 1 - n)) > 0)
        n += (size_t)got;
    shown[n] = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(strstr(shown, "\\x1b[8m") && strstr(shown, "hidden"), "%s", shown);
    ck_assert_ptr_null(strstr(shown, "\x1b[8m"));
    close(master);
}
END_TEST

START_TEST(answers_follow_a_grammar_or_a_schema)
{
    o = HARNESS_RUN(&d, "Hi", "chat", "--grammar", "root ::= \"yes, \" \"indeed\"");
    ck_assert_msg(o.code == 0, "%s", o.error);
    ck_assert_str_eq(o.out, "yes, indeed");
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, "Hi", "chat", "--json-schema", "{\"const\": [1, true]}");
    ck_assert_msg(o.code == 0, "%s", o.error);
    json_t *j = json_loads(o.out, 0, NULL);
    ck_assert_msg(json_array_size(j) == 2 && json_is_true(json_array_get(j, 1)), "%s", o.out);
    json_decref(j);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, "Hi", "chat", "--grammar", "root ::= nowhere");
    assert_failed(65, "nowhere");
    o = HARNESS_RUN(&d, "Hi", "chat", "--grammar", "root ::= \"a\"", "--json-schema", "{}");
    assert_failed(64, "two grammars");
}
END_TEST

START_TEST(ctrl_c_ends_an_answer_and_empties_a_line_but_not_the_program)
{
    struct terminal t;
    open_terminal(&t, (const char *const[]){"chat", "--json", "--max-tokens", "7000", "--proposer",
                                            "none", NULL});
    terminal_wait_prompts(&t, 1);
    terminal_type(&t, "Once upon a time\r");
    json_decref(terminal_next_line(&t));
    terminal_type(&t, "\x03");
    json_t *done = terminal_next_done(&t);
    ck_assert_str_eq(json_string_value(json_object_get(done, "reason")), "cancelled");
    json_decref(done);
    terminal_wait_prompts(&t, 2);
    terminal_type(&t, "never sent\x03");
    terminal_wait_prompts(&t, 3);
    terminal_type(&t, "/nope\r");
    terminal_wait_prompts(&t, 4);
    ck_assert_ptr_nonnull(strstr(t.shown, "/nope: no such command"));
    terminal_type(&t, "go on\r");
    json_decref(terminal_next_line(&t));
    terminal_type(&t, "\x03");
    done = terminal_next_done(&t);
    ck_assert_str_eq(json_string_value(json_object_get(done, "reason")), "cancelled");
    ck_assert_int_gt(number(done, "cached_tokens"), 10);
    json_decref(done);
    terminal_wait_prompts(&t, 5);
    terminal_type(&t, "\x04");
    ck_assert_int_eq(terminal_close(&t), 0);
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
}
END_TEST

/* Does every thread of the daemon stand still? */
static int is_halted(void)
{
    char path[300], text[512];
    int halted = 1;
    snprintf(path, sizeof(path), "/proc/%d/task", d.pid);
    DIR *tasks = opendir(path);
    ck_assert_ptr_nonnull(tasks);
    for (struct dirent *e; (e = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", d.pid, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f)
            continue;
        text[fread(text, 1, sizeof(text) - 1, f)] = 0;
        fclose(f);
        const char *state = strrchr(text, ')');
        halted = halted && state && state[1] == ' ' && state[2] == 'T';
    }
    closedir(tasks);
    return halted;
}

/* Stops the daemon. It goes on for a moment after the signal: long enough to see a cancel. */
static void halt(void)
{
    for (int turn = 0; turn < 6000; turn++) {
        ck_assert_int_eq(kill(d.pid, SIGSTOP), 0);
        if (is_halted())
            return;
        usleep(10000);
    }
    ck_assert_msg(0, "the daemon does not stop");
}

/* A conversation whose answer cannot end, because the daemon stands still: a Ctrl-C for each of the
 * words that the terminal then shows. Something else may let the daemon go on (tests/tools/stall.py):
 * then it is tried again. */
static void open_and_press(struct terminal *t, const char *const *words)
{
    for (int attempt = 0; attempt < 20; attempt++) {
        int shown = 1;
        open_terminal(t, (const char *const[]){"chat", "--json", "--max-tokens", "7000",
                                               "--proposer", "none", NULL});
        terminal_wait_prompts(t, 1);
        terminal_type(t, "Once upon a time\r");
        json_decref(terminal_next_line(t));
        for (int i = 0; shown && words[i]; i++) {
            halt();
            terminal_type(t, "\x03");
            shown = terminal_wait_shown(t, words[i]);
        }
        go_on();
        if (shown)
            return;
        ck_assert_int_eq(kill(t->pid, SIGKILL), 0);
        (void)terminal_close(t);
    }
    ck_assert_msg(0, "every answer ended: %s", t->shown);
}

/* A pass of a large model may take seconds, in which the answer cannot end. */
START_TEST(ctrl_c_in_a_pass_that_takes_long_waits_for_its_end)
{
    struct terminal t;
    open_and_press(&t, (const char *const[]){"Ctrl-C again", NULL});
    json_t *done = terminal_next_done(&t);
    ck_assert_str_eq(json_string_value(json_object_get(done, "reason")), "cancelled");
    json_decref(done);
    terminal_wait_prompts(&t, 2);
    terminal_type(&t, "go on\r");
    json_decref(terminal_next_line(&t));
    terminal_type(&t, "\x03");
    json_decref(terminal_next_done(&t));
    terminal_wait_prompts(&t, 3);
    terminal_type(&t, "\x04");
    ck_assert_int_eq(terminal_close(&t), 0);
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
}
END_TEST

START_TEST(a_second_ctrl_c_in_such_a_pass_ends_the_conversation)
{
    struct terminal t;
    open_and_press(&t, (const char *const[]){"Ctrl-C again", "hearth status", NULL});
    ck_assert_int_eq(terminal_close(&t), 69);
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
}
END_TEST

/* The program ends by itself, and has shown this one line and no prompt. */
static void assert_refused(const char *socket, const char *chat_template, int code,
                           const char *part)
{
    struct terminal t;
    const char *arguments[] = {"chat", chat_template ? "--template" : NULL, chat_template, NULL};
    terminal_open(&t, socket, arguments);
    ssize_t n = 1;
    while (n > 0 && !strstr(t.shown, "> ")) {
        n = read(t.keys, t.shown + t.n_shown, sizeof(t.shown) - t.n_shown - 1);
        t.n_shown += n > 0 ? (size_t)n : 0;
        t.shown[t.n_shown] = 0;
    }
    ck_assert_msg(n <= 0, "it asks for a message: %s", t.shown);
    int ended = terminal_close(&t);
    ck_assert_msg(ended == code, "exit code %d, not %d: %s", ended, code, t.shown);
    ck_assert_msg(strncmp(t.shown, "hearth: ", 8) == 0 && strstr(t.shown, part), "%s", t.shown);
    ck_assert_msg(strchr(t.shown, '\n') == t.shown + t.n_shown - 1, "%s", t.shown);
}

START_TEST(an_impossible_template_is_refused_before_the_first_prompt)
{
    char path[200];
    assert_refused(d.socket, "nope", 65, "'nope' is not known");
    assert_refused(d.socket, "/nonexistent/x.jinja", 66, "/nonexistent/x.jinja");
    snprintf(path, sizeof(path), "%s/x.jinja", folder);
    FILE *f = fopen(path, "w");
    fputs("{{ raise_exception('No more') }}", f);
    fclose(f);
    assert_refused(d.socket, path, 65, "No more");
    unlink(path);
    struct harness other = {0};
    harness_start(&other, harness_model(), (const char *const[]){"--threads", "1", NULL});
    assert_refused(other.socket, NULL, 65, "no chat template");
    ck_assert_int_eq(harness_stop(&other), 0);
}
END_TEST

static void write_text(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

START_TEST(stdout_holds_answers_only_and_a_conversation_is_saved)
{
    struct terminal t;
    char path[200], command[300];
    snprintf(path, sizeof(path), "%s/saved", folder);
    snprintf(command, sizeof(command), "/save %s  \r", path);
    write_text(path, "another one, which all may read", 0666);
    int open_before = open(path, O_RDONLY | O_CLOEXEC);
    struct harness_output plain = HARNESS_RUN(&d, "Once upon a time", "chat", "--max-tokens", "20");
    open_terminal(&t, (const char *const[]){"chat", "--max-tokens", "20", NULL});
    terminal_wait_prompts(&t, 1);
    terminal_type(&t, "Once upon a time\r");
    terminal_wait_prompts(&t, 2);
    terminal_type(&t, command);
    terminal_wait_prompts(&t, 3);
    terminal_type(&t, "/save \r");
    terminal_wait_prompts(&t, 4);
    ck_assert_ptr_nonnull(strstr(t.shown, "hearth: /save: give a file's name"));
    terminal_type(&t, "\x04");
    while (terminal_look(&t))
        ;
    ck_assert_int_eq(terminal_close(&t), 0);
    t.seen[t.n_seen] = 0;
    ck_assert_str_eq(t.seen, plain.out);
    json_t *saved = json_load_file(path, 0, NULL);
    ck_assert_uint_eq(json_array_size(saved), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(saved, 1), "content")),
                     plain.out);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 077, 0);
    /* Nor is it in the file that was there, which others may have open. */
    ck_assert_int_eq(fstat(open_before, &st), 0);
    ck_assert_int_eq(st.st_size, strlen("another one, which all may read"));
    close(open_before);
    unlink(path);
    json_decref(saved);
    harness_output_fini(&plain);
}
END_TEST

/* ---- tools ----------------------------------------------------------------------------------- */

/* A grammar makes each answer a call: the model that the tests have cannot. */
#define CALLING                                                                                    \
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tools }}"                \
    "{# <tool_call></tool_call> #}"
#define CALL_OF(name, arguments)                                                                   \
    "root ::= \"<tool_call>{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": " arguments         \
    "}</tool_call>\""

static char tools_file[128], form_file[128], made_file[128];

/* Two programs: one that writes its argument into a file, one that waits. */
static void write_tools(mode_t mode)
{
    char text[1024];
    snprintf(tools_file, sizeof(tools_file), "%s/tools.json", folder);
    snprintf(form_file, sizeof(form_file), "%s/form.jinja", folder);
    snprintf(made_file, sizeof(made_file), "%s/made", folder);
    snprintf(
        text, sizeof(text),
        "[{\"name\":\"put\",\"description\":\"Puts\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"text\":{\"type\":\"string\"}}},\"argv\":[\"/bin/sh\",\"-c\","
        "\"printf %%s \\\"$1\\\" >>%s; env | sort | tr '\\\\n' ' '\",\"--\",\"{text}\"]},"
        "{\"name\":\"wait\",\"argv\":[\"/bin/sh\",\"-c\",\"sleep 1000 & echo $! >%s; wait\"]}]",
        made_file, made_file);
    write_text(tools_file, text, mode);
    write_text(form_file, CALLING, 0600);
}

static void drop_tools(void)
{
    unlink(tools_file);
    unlink(form_file);
    unlink(made_file);
}

static void read_made(char *text, size_t room)
{
    FILE *f = fopen(made_file, "r");
    size_t n = f ? fread(text, 1, room - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
}

static void open_tools(struct terminal *t, const char *grammar)
{
    const char *const arguments[] = {"chat",         "--tools",   tools_file, "--template",
                                     form_file,      "--grammar", grammar,    "--json",
                                     "--max-tokens", "200",       NULL};
    terminal_open(t, d.socket, arguments);
    terminal_wait_prompts(t, 1);
    terminal_type(t, "go\n");
}

/* The n-th question is on the terminal. */
static void wait_question(struct terminal *t, int wanted)
{
    for (int turn = 0; turn < 1200; turn++) {
        int n = 0;
        t->shown[t->n_shown] = 0;
        for (const char *at = t->shown; (at = strstr(at, "[y/N] ")); at++)
            n++;
        if (n >= wanted)
            return;
        (void)terminal_look(t);
        t->n_seen = 0; /* the answers' JSON is not looked at */
    }
    ck_abort_msg("no question %d: %s", wanted, t->shown);
}

START_TEST(a_call_is_made_after_y_alone)
{
    static struct terminal t;
    char made[256];
    write_tools(0600);
    open_tools(&t, CALL_OF("put", "{\\\"text\\\": \\\"-a '$HOME'\\\\u001b[2J\\\"}"));
    wait_question(&t, 1);
    ck_assert_msg(strstr(t.shown, "run /bin/sh '-c' ") &&
                      strstr(t.shown, "'-a '\\''$HOME'\\''\\x1b[2J' ? [y/N] "),
                  "%s", t.shown);
    terminal_type(&t, "\n");
    wait_question(&t, 2);
    terminal_type(&t, "yeah\n");
    wait_question(&t, 3);
    read_made(made, sizeof(made));
    ck_assert_str_eq(made, "");
    terminal_type(&t, "y\n");
    wait_question(&t, 4);
    read_made(made, sizeof(made));
    ck_assert_str_eq(made, "-a '$HOME'\033[2J"); /* one argument, and no shell saw it */
    terminal_type(&t, "\003");
    terminal_wait_prompts(&t, 2);
    terminal_type(&t, "/save ");
    terminal_type(&t, made_file);
    terminal_type(&t, "\n");
    terminal_wait_prompts(&t, 3);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_close(&t), 0);
    json_t *saved = json_load_file(made_file, 0, NULL);
    ck_assert_ptr_nonnull(saved);
    const json_t *calling = json_array_get(saved, 1), *said = json_array_get(saved, 6);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(saved, 2), "content")),
                     "not run: the user did not allow it");
    ck_assert_str_eq(json_string_value(json_object_get(calling, "role")), "assistant");
    ck_assert_uint_eq(json_array_size(json_object_get(calling, "tool_calls")), 1);
    const char *environment = json_string_value(json_object_get(said, "content"));
    ck_assert_msg(environment && strstr(environment, "LANG=C.UTF-8") &&
                      !strstr(environment, "HEARTH"),
                  "%s", environment);
    json_decref(saved);
    drop_tools();
}
END_TEST

/* Is the process there, and not dead, waiting for its parent? */
static int is_running(int pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    if (f)
        fclose(f);
    return state != 'Z';
}

START_TEST(an_interrupt_kills_what_a_call_runs)
{
    static struct terminal t;
    char made[64] = "";
    write_tools(0600);
    open_tools(&t, CALL_OF("wait", "{}"));
    wait_question(&t, 1);
    terminal_type(&t, "y\n");
    for (int turn = 0; turn < 1200 && !strchr(made, '\n'); turn++) {
        (void)terminal_look(&t);
        t.n_seen = 0;
        read_made(made, sizeof(made));
    }
    int child = atoi(made); /* of the program, in its group */
    ck_assert(child > 1 && is_running(child));
    terminal_type(&t, "\003");
    terminal_wait_prompts(&t, 2);
    for (int turn = 0; turn < 1200 && is_running(child); turn++)
        (void)terminal_look(&t);
    ck_assert(!is_running(child));
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_close(&t), 0);
    drop_tools();
}
END_TEST

START_TEST(calls_end_after_25_answers)
{
    static struct terminal t;
    write_tools(0600);
    open_tools(&t, CALL_OF("none", "{}")); /* there is no such tool: nothing is asked */
    terminal_wait_prompts(&t, 2);
    ck_assert_msg(strstr(t.shown, "there is no tool none") &&
                      strstr(t.shown, "25 answers in a row called tools"),
                  "%s", t.shown);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_close(&t), 0);
    drop_tools();
}
END_TEST

START_TEST(tools_are_refused_without_a_terminal_and_from_files_of_others)
{
    write_tools(0600);
    o = HARNESS_RUN(&d, "go\n", "chat", "--tools", tools_file);
    assert_failed(64, "--tools asks before each call: give it a terminal");
    static const struct {
        mode_t file, folder;
    } modes[] = {{0620, 0700}, {0602, 0700}, {0600, 0770}, {0600, 0777}};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        static struct terminal t;
        const char *const arguments[] = {"chat", "--tools", tools_file, NULL};
        ck_assert_int_eq(chmod(tools_file, modes[i].file), 0);
        ck_assert_int_eq(chmod(folder, modes[i].folder), 0);
        terminal_open(&t, d.socket, arguments);
        while (terminal_look(&t))
            ;
        int code = terminal_close(&t);
        ck_assert_msg(code == 65, "%zu: %d: %s", i, code, t.shown);
        ck_assert_ptr_nonnull(strstr(t.shown, "others can write"));
    }
    ck_assert_int_eq(chmod(folder, 0700), 0);
    drop_tools();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("client_chat");
    TCase *c = tcase_create("client_chat");
    if (!harness_model()) {
        printf("skip: there is no model to talk to\n");
        return 0;
    }
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, start, stop);
    tcase_add_checked_fixture(c, go_on, teardown);
    tcase_add_test(c, a_message_on_stdin_is_answered_in_the_models_form);
    tcase_add_test(c, a_family_or_a_file_can_be_the_template);
    tcase_add_test(c, impossible_requests_fail_with_one_line_and_a_code);
    tcase_add_test(c, a_model_without_a_template_says_to_name_one);
    tcase_add_test(c, a_conversation_computes_only_what_is_new);
    tcase_add_test(c, a_conversation_that_became_too_long_can_begin_anew);
    tcase_add_test(c, an_answer_drives_no_terminal);
    tcase_add_test(c, answers_follow_a_grammar_or_a_schema);
    tcase_add_test(c, ctrl_c_ends_an_answer_and_empties_a_line_but_not_the_program);
    tcase_add_test(c, ctrl_c_in_a_pass_that_takes_long_waits_for_its_end);
    tcase_add_test(c, a_second_ctrl_c_in_such_a_pass_ends_the_conversation);
    tcase_add_test(c, an_impossible_template_is_refused_before_the_first_prompt);
    tcase_add_test(c, stdout_holds_answers_only_and_a_conversation_is_saved);
    tcase_add_test(c, a_call_is_made_after_y_alone);
    tcase_add_test(c, an_interrupt_kills_what_a_call_runs);
    tcase_add_test(c, calls_end_after_25_answers);
    tcase_add_test(c, tools_are_refused_without_a_terminal_and_from_files_of_others);
    suite_add_tcase(s, c);
    return run_suite(s);
}
