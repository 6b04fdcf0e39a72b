/* http_rig: see http_rig.h. */
#include "tests/e2e/http_rig.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
struct harness rig_daemon;
struct gateway rig_gate;
static const char *const daemon_options[] = {"--context", "16384", NULL};
static char forever[256]; /* options of a request that ends with the context only */

static void start_daemon(void)
{
    struct hearth_info info = {.size = sizeof(info)};
    harness_start(&rig_daemon, model, daemon_options);
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    ck_assert_int_eq(hearth_info(h, &info), 0);
    snprintf(forever, sizeof(forever),
             "\"prompt\":\"import os\\n\",\"n_predict\":-1,\"seed\":1,\"logit_bias\":[[%d,false]]",
             info.eos);
    hearth_close(h);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "clients", 0), 0);
}

void rig_setup(void)
{
    start_daemon();
    gateway_start(&rig_gate, &rig_daemon, false, NULL);
}

void rig_setup_answers(void)
{
    harness_start(&rig_daemon, model, NULL);
    gateway_start(&rig_gate, &rig_daemon, true,
                  (const char *const[]){"--slots", "4", "--chat-template", "chatml", "--max-body",
                                        "100000", "--cors-origin", "http://localhost:3000", NULL});
}

static const char tools_template[] =
    "{# <think> #}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";

const char rig_calls[] =
    ",\"seed\":3,\"grammar\":\"root ::= \\\"<think>so</think>Yes. "
    "<tool_call>{\\\\\\\"name\\\\\\\": "
    "\\\\\\\"f\\\\\\\", \\\\\\\"arguments\\\\\\\": {\\\\\\\"a\\\\\\\": \\\" [0-9] "
    "\\\"}}</tool_call>\\\"\"";

void rig_start_with_tools(const char *const *options)
{
    char path[256];
    const char *all[16] = {"--chat-template", path};
    for (size_t n = 2; options && *options && n < 15;)
        all[n++] = *options++;
    snprintf(path, sizeof(path), "%s/tools.jinja", rig_daemon.directory);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(tools_template, f), 0);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, true, all);
    ck_assert_int_eq(unlink(path), 0);
}

void rig_teardown(void)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    ck_assert_int_eq(access(rig_gate.socket, F_OK), -1);
    ck_assert_int_eq(harness_wait_counter(&rig_daemon, "slots_used", 0), 0);
    ck_assert_int_eq(harness_stop(&rig_daemon), 0);
}

void rig_restart_daemon(void)
{
    harness_restart(&rig_daemon, model, daemon_options);
}

void rig_start_patient(void)
{
    ck_assert_int_eq(gateway_stop(&rig_gate), 0);
    gateway_start(&rig_gate, &rig_daemon, false, (const char *const[]){"--grace", "600", NULL});
}

int rig_send_forever(const char *more)
{
    char body[400];
    int fd = gateway_connect(&rig_gate);
    snprintf(body, sizeof(body), "{%s%s}", forever, more);
    http_send(fd, "POST", "/completion", "", body);
    return fd;
}

bool rig_has_answer(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

int rig_fewer(int n)
{
    const char *build = getenv("BUILD");
    return build && strstr(build, "san") ? n / 10 : n;
}

int rig_wait_health(int status)
{
    int last = 0;
    for (int i = 0; i < 12000 && last != status; i++) {
        struct http_answer a = http_ask(&rig_gate, "/health", NULL);
        last = a.status;
        http_answer_fini(&a);
        if (last != status)
            usleep(10000);
    }
    return last;
}

json_t *rig_json(const char *path, const char *body)
{
    return http_json(&rig_gate, path, body, 200);
}

char *rig_library_text(const char *prompt, float temperature, uint64_t seed, uint32_t n)
{
    struct hearth *h = harness_connect(&rig_daemon, 1, NULL);
    const struct hearth_event *e;
    struct hearth_request r;
    enum { MOST = 65536 };
    char *text = calloc(1, MOST);
    size_t bytes = 0;
    hearth_request_init(&r, sizeof(r));
    r.text = prompt;
    r.text_bytes = strlen(prompt);
    r.temperature = temperature;
    r.seed = seed;
    r.max_tokens = n;
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    while (hearth_next(h, 0, &e, 60000) == 1 && e->kind != HEARTH_DONE) {
        ck_assert_uint_lt(bytes + e->text_bytes, MOST);
        memcpy(text + bytes, e->text, e->text_bytes);
        bytes += e->text_bytes;
    }
    hearth_close(h);
    return text;
}
