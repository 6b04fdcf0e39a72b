/* stored: see stored.h. */
#include "tests/e2e/stored.h"

#include "tests/random.h"
#include "tests/rig/folder.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { OUTPUT = 10, TRIES = 100 };

void stored_init(struct stored_rig *rig, const char *const *more)
{
    static const char *const plain[] = {"--context", "1024", NULL};
    *rig = (struct stored_rig){.root = "/tmp/hearth-test-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(rig->root));
    snprintf(rig->folder, sizeof(rig->folder), "%s/store", rig->root);
    const char *const own[] = {"--context", "1024",           "--kv-store",
                               rig->folder, "--kv-store-min", "64"};
    memcpy(rig->arguments, own, sizeof(own));
    for (size_t i = sizeof(own) / sizeof(*own); more && *more; i++)
        rig->arguments[i] = *more++;
    harness_start(&rig->plain, harness_tiny_model(), plain);
    harness_start(&rig->daemon, harness_tiny_model(), rig->arguments);
}

void stored_fini(struct stored_rig *rig)
{
    hearth_close(rig->reference);
    ck_assert_int_eq(harness_stop(&rig->daemon), 0);
    ck_assert_int_eq(harness_stop(&rig->plain), 0);
    folder_remove(rig->root);
}

void stored_stop(struct stored_rig *rig)
{
    int status;
    ck_assert_int_eq(kill(rig->daemon.pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(rig->daemon.pid, &status, 0), rig->daemon.pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig->daemon.pid = 0;
}

void stored_restart(struct stored_rig *rig)
{
    stored_stop(rig);
    harness_start(&rig->daemon, harness_tiny_model(), rig->arguments);
}

struct hearth *stored_connect(const char *socket)
{
    struct hearth_options o;
    struct hearth *h;
    char err[256];
    hearth_options_init(&o, sizeof(o));
    o.resume_ms = 120000;
    ck_assert_msg(hearth_connect(socket, &o, &h, err, sizeof(err)) == 0, "%s", err);
    return h;
}

void stored_submit(struct hearth *h, const uint32_t *tokens, uint32_t n, uint32_t output)
{
    struct hearth_request request;
    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = n;
    request.max_tokens = output;
    request.logprobs = 0;
    ck_assert_msg(hearth_submit(h, 0, &request) == 0, "%s", hearth_error(h));
}

bool stored_take(struct stored_answer *answer, const struct hearth_event *event)
{
    for (uint32_t i = 0; i < event->n_tokens; i++) {
        answer->ids[answer->n] = event->tokens[i];
        answer->logprobs[answer->n++] = event->logprobs[i].picked.logprob;
    }
    if (event->kind != HEARTH_DONE)
        return false;
    ck_assert_msg(event->result->error == 0, "%s", event->result->error_text);
    ck_assert_uint_eq(event->result->n_ids, answer->n);
    ck_assert_mem_eq(event->result->ids, answer->ids, answer->n * sizeof(*answer->ids));
    return true;
}

uint32_t stored_finish(struct hearth *h, struct stored_answer *answer)
{
    const struct hearth_event *event;
    while (hearth_next(h, 0, &event, 600000) > 0)
        if (stored_take(answer, event))
            return event->result->stored_tokens;
    ck_abort_msg("no end: %s", hearth_error(h));
    return 0;
}

void stored_check(struct stored_rig *rig, const uint32_t *tokens, uint32_t n_tokens,
                  uint32_t output, const struct stored_answer *answer)
{
    struct stored_answer right = {.n = 0};
    if (!rig->reference)
        rig->reference = stored_connect(rig->plain.socket);
    stored_submit(rig->reference, tokens, n_tokens, output);
    stored_finish(rig->reference, &right);
    ck_assert_uint_eq(answer->n, right.n);
    ck_assert_mem_eq(answer->ids, right.ids, right.n * sizeof(*right.ids));
    ck_assert_mem_eq(answer->logprobs, right.logprobs, right.n * sizeof(*right.logprobs));
}

uint32_t stored_ask(struct stored_rig *rig, struct hearth *h, const uint32_t *tokens, uint32_t n)
{
    struct stored_answer answer = {.n = 0};
    stored_submit(h, tokens, n, OUTPUT);
    const uint32_t stored = stored_finish(h, &answer);
    stored_check(rig, tokens, n, OUTPUT, &answer);
    return stored;
}

void stored_expect(struct stored_rig *rig, const uint32_t *tokens, uint32_t n)
{
    uint32_t stored = 0;
    for (uint32_t i = 0; i < TRIES && stored == 0; i++) {
        stored_restart(rig);
        struct hearth *h = stored_connect(rig->daemon.socket);
        stored = stored_ask(rig, h, tokens, n);
        hearth_close(h);
    }
    ck_assert_uint_gt(stored, 0);
}

void stored_tokens(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 3 + random_below(&seed, 300);
}
