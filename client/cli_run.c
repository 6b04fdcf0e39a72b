/* cli_run.c - `hearth run`, `hearth fim`: one request, its answer to stdout as it comes.
 *
 * stdout gets the text and nothing else; a newline follows it only on a terminal, so that a pipe
 * carries exactly the answer. However the command ends, the slot is freed: by the cancel here, or
 * by the daemon, which sees the connection close.
 */
#include "client/cli.h"
#include "client/cli_fim.h"
#include "client/cli_json.h"
#include "client/cli_record.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 250,     /* how often a wait looks whether stdout is still read */
    FAREWELL_MS = 1000 /* most that a cancelled request may take to say so */
};

struct run {
    const struct cli_options *options;
    struct hearth *hearth;
    const struct hearth_request *request; /* what was submitted */
    struct cli_buffer line;               /* one JSON event */
    int is_terminal;                      /* stdout */
    int shows_progress;                   /* stderr is a terminal */
    int progress_shown;                   /* a progress line stands there now */
    int ends_line;    /* the text so far ends with a newline, or there is none */
    int is_away;      /* the daemon is gone, and that was told */
    uint32_t resumes; /* how often it came back, as told */
};

/* ---- the prompt ------------------------------------------------------------------------------ */

static int read_prompt_ids(struct cli_ids *ids)
{
    struct cli_buffer text = {0};
    int code = cli_read_file("-", &text);
    const char *bad = text.data;
    int rc = code ? 0 : cli_ids_parse(ids, text.data, text.bytes, &bad);
    if (rc == -ENOMEM)
        code = cli_fail(CLI_SYSTEM, "stdin: out of memory: free some and try again");
    else if (rc)
        code = cli_fail(CLI_BAD_INPUT, "stdin: byte %zu is no token id: give ids as [1,2,3]",
                        (size_t)(bad - text.data));
    cli_buffer_fini(&text);
    return code;
}

/* Puts the prompt into *text, or what --tokens left to stdin into *ids. Returns 0 or an exit code.
 */
static int read_prompt(const struct cli_options *o, struct cli_ids *ids, struct cli_buffer *text)
{
    int sources = (o->tokens.given != 0) + (o->file != NULL) + (o->words.n != 0);
    if (sources > 1)
        return cli_fail(CLI_USAGE, "more than one prompt: give PROMPT, --file or --tokens");
    if (o->tokens.given) {
        int code = ids->n ? 0 : read_prompt_ids(ids);
        return code || ids->n ? code
                              : cli_fail(CLI_BAD_INPUT, "--tokens: no token id: give at least one");
    }
    for (uint32_t i = 0; i < o->words.n; i++) {
        cli_buffer_text(text, i ? " " : "");
        cli_buffer_text(text, o->words.items[i]);
    }
    if (o->words.n)
        return text->failed ? cli_fail(CLI_SYSTEM, "out of memory: free some and try again") : 0;
    if (!o->file && isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "no prompt: give it as an argument, with --file, or on stdin");
    return cli_read_file(o->file ? o->file : "-", text);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void clear_progress(struct run *r)
{
    if (r->progress_shown)
        (void)cli_write(STDERR_FILENO, "\r\033[K", 4);
    r->progress_shown = 0;
}

static void show_progress(struct run *r, const struct hearth_event *e)
{
    if (!r->shows_progress || !e->total)
        return;
    r->line.bytes = 0;
    cli_buffer_format(&r->line, "\r\033[Kreading the prompt: %u of %u tokens", e->done, e->total);
    (void)cli_write(STDERR_FILENO, r->line.data, r->line.bytes);
    r->progress_shown = 1;
}

/* Writes what an event brings to stdout. Returns 0 or -errno. */
static int show(struct run *r, const struct hearth_event *e)
{
    const char *data = e->text;
    size_t bytes = e->text_bytes;
    if (r->options->json) {
        r->line.bytes = 0;
        if (e->n_tokens || bytes)
            json_tokens_event(&r->line, e);
        if (e->result)
            json_done_event(&r->line, e->result);
        data = r->line.data;
        bytes = r->line.bytes;
        if (r->line.failed)
            return -ENOMEM;
    }
    if (!bytes)
        return 0;
    clear_progress(r);
    r->ends_line = data[bytes - 1] == '\n';
    return cli_write(STDOUT_FILENO, data, bytes);
}

static int stdout_is_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLNVAL));
}

/* Cancels, and waits a moment for the word that the slot is free. With --json that is printed. */
static void cancel(struct run *r, int tell)
{
    const struct hearth_event *e;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (hearth_cancel(r->hearth, 0))
        return;
    for (long left = FAREWELL_MS; left > 0;) {
        int rc = hearth_next(r->hearth, 0, &e, (int)left);
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = FAREWELL_MS - (now.tv_sec - start.tv_sec) * 1000 -
               (now.tv_nsec - start.tv_nsec) / 1000000;
        if (rc == -EINTR)
            continue;
        if (rc <= 0)
            return;
        if (e->kind != HEARTH_DONE)
            continue;
        if (tell && r->options->json)
            (void)show(r, e);
        return;
    }
}

static int finish(struct run *r, const struct hearth_result *result)
{
    if (r->is_terminal && !r->options->json && !r->ends_line)
        (void)cli_write(STDOUT_FILENO, "\n", 1);
    if (result->reason == HEARTH_ERROR)
        return cli_fail(cli_exit_request(result->error), "%s", result->error_text);
    if (result->reason == HEARTH_CANCELLED || result->reason == HEARTH_SUPERSEDED)
        return CLI_INTERRUPTED;
    const char *record = r->options->record;
    return record ? record_save(record, r->hearth, r->request, result) : CLI_OK;
}

/* The answer goes on whatever happens to the daemon; why it takes longer is for stderr. */
static void tell_resume(struct run *r)
{
    struct hearth_info info = {.size = sizeof info};
    if (hearth_info(r->hearth, &info))
        return;
    int is_back = info.resumes != r->resumes;
    if ((is_back || info.is_away) && !r->is_away) {
        clear_progress(r);
        (void)cli_fail(CLI_OK, "the daemon is gone, waiting for it");
    }
    if (is_back)
        (void)cli_fail(CLI_OK, "the daemon is back, going on");
    r->is_away = info.is_away != 0 && !is_back;
    r->resumes = info.resumes;
}

static int stream(struct run *r)
{
    for (;;) {
        const struct hearth_event *e;
        int rc = hearth_next(r->hearth, 0, &e, LOOK_MS);
        tell_resume(r);
        if (rc < 0 && rc != -EINTR) {
            clear_progress(r);
            return cli_fail(cli_exit_request(rc), "%s", hearth_error(r->hearth));
        }
        if (rc == 1 && e->kind == HEARTH_PROGRESS)
            show_progress(r, e);
        else if (rc == 1) {
            int written = show(r, e);
            if (written) {
                clear_progress(r);
                cancel(r, 0);
                return cli_exit_output(written);
            }
            if (e->kind == HEARTH_DONE)
                return finish(r, e->result);
        } else if (stdout_is_gone()) {
            clear_progress(r);
            cancel(r, 0);
            return CLI_INTERRUPTED;
        }
        if (cli_stop_requested()) {
            clear_progress(r);
            cancel(r, 1);
            if (r->is_terminal && !r->options->json && !r->ends_line)
                (void)cli_write(STDOUT_FILENO, "\n", 1);
            return CLI_INTERRUPTED;
        }
    }
}

/* Tokens of `text`, [*ret_n], to be freed. `what` it is, for the error. Returns an exit code. */
static int read_tokens(struct run *r, const char *what, const char *text, size_t bytes,
                       uint32_t flags, uint32_t **ret_tokens, uint32_t *ret_n)
{
    size_t room = bytes + 2; /* a token is at least a byte; begin-of-sequence, a space before */
    uint32_t *tokens = malloc(room * sizeof *tokens);
    if (!tokens)
        return cli_fail(CLI_SYSTEM, "out of memory: free some and try again");
    int64_t n = hearth_tokenize(r->hearth, text, bytes, flags, tokens, room);
    if (n < 0 || (size_t)n > room) {
        free(tokens);
        return cli_fail(CLI_BAD_INPUT, "%s: %s", what, hearth_error(r->hearth));
    }
    *ret_tokens = tokens;
    *ret_n = (uint32_t)n;
    return CLI_OK;
}

/* Puts the texts that are to be tokens, and were none, into *q: the guess, and a prompt that is to
 * be recorded. Both are the caller's to free. */
static int tokenize_request(struct run *r, struct hearth_request *q, uint32_t **ret_guess,
                            uint32_t **ret_prompt)
{
    const char *guess = r->options->guess;
    int code = CLI_OK;
    if (guess)
        code = read_tokens(r, "the guess", guess, strlen(guess), 0, ret_guess, &q->n_guess);
    q->guess = *ret_guess;
    if (!code && r->options->record && !q->tokens) {
        code = read_tokens(r, "the prompt", q->text ? q->text : "", q->text_bytes, q->text_flags,
                           ret_prompt, &q->n_tokens);
        q->tokens = *ret_prompt;
    }
    return code;
}

/* The request as the options have it, its texts still texts. */
static struct hearth_request make_request(const struct cli_options *o, const struct cli_ids *ids,
                                          const struct cli_buffer *text)
{
    struct hearth_request request = o->request;
    request.tokens = ids->n ? ids->items : NULL;
    request.n_tokens = ids->n;
    request.text = text->data;
    request.text_bytes = text->bytes;
    request.bias = o->bias.items;
    request.n_bias = o->bias.n;
    request.stop_tokens = o->stop_tokens.items;
    request.n_stop_tokens = o->stop_tokens.n;
    request.stops = o->stops.items;
    request.n_stops = o->stops.n;
    return request;
}

int cli_run(const struct cli_options *o)
{
    if (o->request.logprobs >= 0 && !o->json)
        return cli_fail(CLI_USAGE, "--logprobs shows nothing in plain text: add --json");
    struct cli_ids ids = o->tokens;
    struct cli_buffer text = {0}, grammar = {0};
    struct cli_fim fim = {0};
    struct run r = {.options = o, .ends_line = 1};
    uint32_t *guess = NULL, *prompt = NULL;
    int code = o->record ? record_check_path(o->record) : CLI_OK;
    int fills_in = o->command == CLI_CMD_FIM;
    if (!code)
        code = fills_in ? cli_fim_read(o, &fim) : read_prompt(o, &ids, &text);
    if (!code)
        code = cli_grammar_read(o, &grammar);
    if (!code)
        code = cli_connect(o, 1, &r.hearth);
    if (!code && fills_in)
        code = cli_fim_tokens(r.hearth, &fim, &ids);
    struct hearth_request request = make_request(o, &ids, &text);
    request.grammar = grammar.data;
    request.grammar_bytes = grammar.bytes ? grammar.bytes - 1 : 0;
    if (!code)
        code = tokenize_request(&r, &request, &guess, &prompt);
    if (!code) {
        r.request = &request;
        r.is_terminal = isatty(STDOUT_FILENO);
        r.shows_progress = isatty(STDERR_FILENO);
        int rc = hearth_submit(r.hearth, 0, &request);
        code = rc ? cli_fail(cli_exit_request(rc), "%s", hearth_error(r.hearth)) : stream(&r);
    }
    hearth_close(r.hearth);
    free(prompt);
    free(guess);
    cli_buffer_fini(&r.line);
    cli_buffer_fini(&text);
    cli_fim_fini(&fim);
    cli_buffer_fini(&grammar);
    if (ids.items != o->tokens.items)
        free(ids.items);
    return code;
}
