/* replay: `hearth replay`: asks again what a record asked, and compares the answers.
 *
 * What determines the answer is compared first: another model, other numerics, or a prompt or
 * parameter that the receipt was not made for are named instead of a difference that would mean
 * nothing. The daemon has no part in the comparison but to answer. An answer that was not verified
 * (--deterministic no, where fast passes gave it) is asked for as such and compared all the same,
 * and every line says that it may differ. */
#include "client/base/printable.h"
#include "client/cli/cli.h"
#include "client/cli/json.h"
#include "client/cli/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 250 }; /* how often a wait checks whether it should end */

struct replay {
    const struct cli_options *options;
    struct hearth *hearth; /* NULL until a record was read */
    struct hearth_info info;
};

struct verdict {
    const char *result; /* one word */
    int code;           /* exit code */
    int ends;           /* no use to go on with other files */
    char text[1024];    /* one line without the file's name; "": printed already */
    const char *receipt;
    uint32_t n_ids;    /* of an equal answer */
    int at_token;      /* the following is set */
    uint32_t token;    /* of the answer */
    uint32_t position; /* of that token in the sequence */
    char recorded[16], now[16];
};

__attribute__((format(printf, 4, 5))) static void decide(struct verdict *v, const char *result,
                                                         int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    v->result = result;
    v->code = code;
    vsnprintf(v->text, sizeof(v->text), format, args);
    va_end(args);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static int same_origin(const struct replay *r, const struct record *c, struct verdict *v)
{
    uint64_t length = (uint64_t)c->request.n_tokens + c->request.max_tokens;
    if (strcmp(c->fingerprint, r->info.fingerprint) != 0)
        decide(v, "other-model", CLI_BAD_INPUT,
               "recorded with another model: %.200s (fingerprint %s), the daemon has %.200s (%s)",
               c->model, c->fingerprint, r->info.model, r->info.fingerprint);
    else if (!record_has_numerics(c, r->info.numerics))
        decide(v, "other-numerics", CLI_BAD_INPUT,
               "recorded with other numerics: %.200s, the daemon has %.200s", c->numerics,
               r->info.numerics);
    else if (length > r->info.context)
        decide(v, "too-long", CLI_BAD_INPUT,
               "prompt and answer may take %llu tokens, the context holds %u: start hearthd with a "
               "larger --context",
               (unsigned long long)length, r->info.context);
    return !v->result;
}

static void name_id(char *to, size_t bytes, const uint32_t *ids, uint32_t n, uint32_t i)
{
    if (i < n)
        snprintf(to, bytes, "%u", ids[i]);
    else
        snprintf(to, bytes, "none");
}

static void compare_ids(const struct record *c, const struct hearth_result *now, struct verdict *v)
{
    uint32_t i = 0, n = c->n_ids < now->n_ids ? c->n_ids : now->n_ids;
    while (i < n && c->ids[i] == now->ids[i])
        i++;
    if (i == c->n_ids && i == now->n_ids)
        return;
    v->at_token = 1;
    v->token = i;
    v->position = c->request.n_tokens + i;
    name_id(v->recorded, sizeof(v->recorded), c->ids, c->n_ids, i);
    name_id(v->now, sizeof(v->now), now->ids, now->n_ids, i);
    decide(v, "differs", CLI_DIFFERS, "differs at token %u (position %u): recorded %s, now %s%s", i,
           v->position, v->recorded, v->now,
           strcmp(c->receipt, now->receipt) == 0
               ? "; the receipt is for the answer of now: the recorded ids were changed"
               : "");
}

static void compare_all(const struct record *c, const struct hearth_result *now, struct verdict *v)
{
    const char *was = record_hashes(c->receipt), *is = record_hashes(now->receipt);
    if (was && is && memcmp(was, is, 32) != 0) {
        decide(v, "changed", CLI_BAD_INPUT,
               "the prompt or a parameter was changed after the recording: the receipt has request "
               "hash %.32s, this request %.32s",
               was, is);
        return;
    }
    compare_ids(c, now, v);
    if (v->result)
        return;
    if (strcmp(c->reason, json_reason(now->reason)) != 0)
        decide(v, "differs", CLI_DIFFERS, "reason differs: recorded %s, now %s", c->reason,
               json_reason(now->reason));
    else if (strcmp(c->receipt, now->receipt) != 0)
        decide(v, "differs", CLI_DIFFERS, "receipt differs: recorded %.300s, now %.300s",
               c->receipt, now->receipt);
    else {
        decide(v, "equal", CLI_OK, "equal: %u tokens, receipt %.300s", c->n_ids, c->receipt);
        v->n_ids = c->n_ids;
        v->receipt = c->receipt;
    }
}

static void compare(const struct record *c, const struct hearth_result *now, struct verdict *v)
{
    compare_all(c, now, v);
    size_t bytes = strlen(v->text);
    if (record_is_fast(c) && v->code != CLI_BAD_INPUT)
        snprintf(v->text + bytes, sizeof(v->text) - bytes, "%s",
                 v->code == CLI_OK ? "; it was not deterministic: another time it may differ"
                                   : "; it was not deterministic: a difference proves nothing");
}

/* ---- asking again ---------------------------------------------------------------------------- */

static void fail_request(struct verdict *v, int rc, const char *text)
{
    decide(v, "failed", cli_exit_request(rc), "%s", text);
    v->ends = v->code == CLI_NO_DAEMON;
}

/* Waits for the end of the answer and compares it. */
static void take_answer(struct replay *r, const struct record *c, struct verdict *v)
{
    for (;;) {
        const struct hearth_event *e;
        int rc = hearth_next(r->hearth, 0, &e, LOOK_MS);
        if (cli_stop_requested()) {
            decide(v, "failed", CLI_INTERRUPTED, "%s", "");
            v->ends = 1;
            return;
        }
        if (rc < 0 && rc != -EINTR) {
            fail_request(v, rc, hearth_error(r->hearth));
            return;
        }
        if (rc != 1 || e->kind != HEARTH_DONE)
            continue;
        if (e->result->reason == HEARTH_ERROR)
            fail_request(v, e->result->error, e->result->error_text);
        else
            compare(c, e->result, v);
        return;
    }
}

static int connect_once(struct replay *r, struct verdict *v)
{
    if (r->hearth)
        return 0;
    int code = cli_connect(r->options, 1, &r->hearth);
    if (code) {
        decide(v, "failed", code, "%s", "");
        v->ends = 1;
        return code;
    }
    r->info = (struct hearth_info){.size = sizeof(r->info)};
    int rc = hearth_info(r->hearth, &r->info);
    if (rc)
        fail_request(v, rc, hearth_error(r->hearth));
    return rc;
}

static void replay_record(struct replay *r, struct record *c, struct verdict *v)
{
    if (connect_once(r, v) || !same_origin(r, c, v))
        return;
    c->request.proposer = r->options->request.proposer;
    c->request.deterministic = !record_is_fast(c); /* verified again if it was verified */
    int rc = hearth_submit(r->hearth, 0, &c->request);
    if (rc)
        fail_request(v, rc, hearth_error(r->hearth));
    else
        take_answer(r, c, v);
}

/* ---- telling --------------------------------------------------------------------------------- */

static int tell_json(const char *path, const struct verdict *v)
{
    struct buffer line = {0};
    buffer_text(&line, "{\"file\":");
    json_text(&line, path, strlen(path));
    buffer_format(&line, ",\"result\":\"%s\"", v->result);
    if (v->receipt) {
        buffer_format(&line, ",\"tokens\":%u,\"receipt\":", v->n_ids);
        json_text(&line, v->receipt, strlen(v->receipt));
    }
    if (v->at_token) {
        int was = v->recorded[0] != 'n', is = v->now[0] != 'n';
        buffer_format(&line, ",\"token\":%u,\"position\":%u,\"recorded\":%s,\"now\":%s", v->token,
                      v->position, was ? v->recorded : "null", is ? v->now : "null");
    }
    buffer_text(&line, ",\"text\":");
    json_text(&line, v->text, strlen(v->text));
    buffer_text(&line, "}\n");
    return cli_print(&line);
}

/* A result goes to stdout, the reason why there is none to stderr; --json writes both to stdout.
 * Returns the exit code for the file. */
static int tell(const struct replay *r, const char *path, struct verdict *v)
{
    int is_result = v->code == CLI_OK || v->code == CLI_DIFFERS, code = 0;
    if (!is_result && v->text[0])
        (void)cli_fail(v->code, "%s: %s", path, v->text);
    if (r->options->json && !v->ends)
        code = tell_json(path, v);
    else if (is_result) {
        struct buffer line = {0};
        buffer_text(&line, path);
        buffer_text(&line, ": ");
        buffer_text(&line, v->text);
        buffer_add(&line, "", 1);
        if (!line.failed) {
            printable_mask(line.data); /* a line, whatever the file is called and says */
            line.data[line.bytes - 1] = '\n';
        }
        code = cli_print(&line);
    }
    v->ends |= code != 0;
    return code ? code : v->code;
}

/* Returns the exit code for the file; *ret_ends: no use to go on. */
static int replay_file(struct replay *r, const char *path, int *ret_ends)
{
    struct verdict v = {0};
    struct buffer text = {0};
    struct record c;
    char err[256];
    int code = cli_read_file(path, &text);
    if (code) {
        decide(&v, "unreadable", code, "%s", "");
        v.ends = code == CLI_INTERRUPTED;
        code = tell(r, path, &v);
    } else if (record_read(text.data, text.bytes, &c, err, sizeof(err))) {
        decide(&v, "malformed", CLI_BAD_INPUT, "%s: give a file of hearth run --record", err);
        code = tell(r, path, &v);
    } else {
        replay_record(r, &c, &v);
        code = tell(r, path, &v);
        record_fini(&c);
    }
    buffer_fini(&text);
    *ret_ends = v.ends;
    return code;
}

int cli_replay(const struct cli_options *o)
{
    struct replay r = {.options = o};
    int code = CLI_OK, ends = 0;
    if (!o->n_words)
        return cli_fail(CLI_USAGE, "no record: give the file of a hearth run --record");
    for (uint32_t i = 0; i < o->n_words && !ends; i++) {
        int of_file = replay_file(&r, o->words[i], &ends);
        if (of_file && (!code || ends))
            code = of_file;
    }
    hearth_close(r.hearth);
    return code;
}
