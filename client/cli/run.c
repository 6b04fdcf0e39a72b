/* run: `hearth run`, `hearth fim`: one request, its answer to stdout as it comes.
 *
 * However the command ends, the slot is freed: by the cancel here, or by the daemon, which sees the
 * connection close. */
#include "client/cli/cli.h"
#include "client/cli/fim.h"
#include "client/cli/record.h"
#include "client/cli/show.h"
#include "ipc/bell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run {
    const struct cli_options *options;
    struct hearth *hearth;
    const struct hearth_request *request; /* what was submitted */
    struct show show;
    int is_away;      /* the daemon is gone, and that was reported */
    uint32_t resumes; /* how often it came back, as reported */
};

/* ---- the prompt ------------------------------------------------------------------------------ */

/* Puts the prompt into *text, or what --tokens left to stdin into *ids. Returns 0 or an exit code.
 */
static int read_prompt(const struct cli_options *o, struct cli_ids *ids, struct buffer *text)
{
    int sources = (o->tokens.given != 0) + (o->file != NULL) + (o->n_words != 0);
    if (sources > 1)
        return cli_fail(CLI_USAGE, "more than one prompt: give PROMPT, --file or --tokens");
    if (o->tokens.given) {
        int code = ids->n ? 0 : cli_read_ids(ids);
        return code || ids->n ? code
                              : cli_fail(CLI_BAD_INPUT, "--tokens is empty: give at least one");
    }
    for (uint32_t i = 0; i < o->n_words; i++) {
        buffer_text(text, i ? " " : "");
        buffer_text(text, o->words[i]);
    }
    if (o->n_words)
        return text->failed ? cli_no_memory() : 0;
    if (!o->file && isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "no prompt: give it as an argument, with --file, or on stdin");
    return cli_read_file(o->file ? o->file : "-", text);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* Cancels, and waits a moment for the event that says the slot is free; --json prints it. */
static void cancel(struct run *r, int report)
{
    const struct hearth_event *e;
    uint64_t start_ns = bell_now_ns();
    if (hearth_cancel(r->hearth, 0))
        return;
    for (long left = SHOW_FAREWELL_MS; left > 0;) {
        int rc = hearth_next(r->hearth, 0, &e, (int)left);
        left = SHOW_FAREWELL_MS - (long)((bell_now_ns() - start_ns) / 1000000);
        if (rc == -EINTR)
            continue;
        if (rc <= 0)
            return;
        if (e->kind != HEARTH_DONE)
            continue;
        if (report && r->options->json)
            (void)show_event(&r->show, e);
        return;
    }
}

static int finish(struct run *r, const struct hearth_result *result)
{
    show_end(&r->show);
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
    struct hearth_info info = {.size = sizeof(info)};
    if (hearth_info(r->hearth, &info))
        return;
    int is_back = info.resumes != r->resumes;
    if ((is_back || info.is_away) && !r->is_away) {
        show_clear(&r->show);
        (void)cli_fail(CLI_OK, "the daemon is gone, waiting for it");
    }
    if (is_back)
        (void)cli_fail(CLI_OK, "the daemon is back, resuming");
    r->is_away = info.is_away != 0 && !is_back;
    r->resumes = info.resumes;
}

static int stream(struct run *r)
{
    for (;;) {
        const struct hearth_event *e;
        int rc = hearth_next(r->hearth, 0, &e, SHOW_LOOK_MS);
        tell_resume(r);
        if (rc < 0 && rc != -EINTR) {
            show_clear(&r->show);
            return cli_fail(cli_exit_request(rc), "%s", hearth_error(r->hearth));
        }
        if (rc == 1 && e->kind == HEARTH_PROGRESS)
            show_progress(&r->show, e);
        else if (rc == 1) {
            int written = show_event(&r->show, e);
            if (written) {
                show_clear(&r->show);
                cancel(r, 0);
                return cli_exit_output(written);
            }
            if (e->kind == HEARTH_DONE)
                return finish(r, e->result);
        } else if (show_is_unread()) {
            show_clear(&r->show);
            cancel(r, 0);
            return CLI_INTERRUPTED;
        }
        if (cli_stop_requested()) {
            show_clear(&r->show);
            cancel(r, 1);
            show_end(&r->show);
            return CLI_INTERRUPTED;
        }
    }
}

/* Tokens of `text`, [*ret_n], to be freed. `what` it is, for the error. Returns an exit code. */
static int read_tokens(struct run *r, const char *what, const char *text, size_t bytes,
                       uint32_t flags, uint32_t **ret_tokens, uint32_t *ret_n)
{
    int64_t n = hearth_tokenize(r->hearth, text, bytes, flags, NULL, 0);
    if (n < 0)
        return cli_fail(CLI_BAD_INPUT, "%s: %s", what, hearth_error(r->hearth));
    uint32_t *tokens = malloc((size_t)(n ? n : 1) * sizeof(*tokens));
    if (!tokens || hearth_tokenize(r->hearth, text, bytes, flags, tokens, (size_t)n) != n) {
        free(tokens);
        return cli_no_memory();
    }
    *ret_tokens = tokens;
    *ret_n = (uint32_t)n;
    return CLI_OK;
}

/* Turns what is still text in *q into tokens: the guess, and the prompt if it will be recorded.
 * Both are the caller's to free. */
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

int cli_run(const struct cli_options *o)
{
    if (o->request.logprobs >= 0 && !o->json)
        return cli_fail(CLI_USAGE, "--logprobs needs --json");
    struct cli_ids ids = o->tokens;
    struct buffer text = {0}, grammar = {0};
    struct cli_fim fim = {0};
    struct run r = {.options = o};
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
    struct hearth_request request = cli_request(o); /* its texts are still texts */
    request.tokens = ids.n ? ids.items : NULL;
    request.n_tokens = ids.n;
    request.text = text.data;
    request.text_bytes = text.bytes;
    request.grammar = grammar.data;
    request.grammar_bytes = grammar.bytes ? grammar.bytes - 1 : 0;
    if (!code)
        code = tokenize_request(&r, &request, &guess, &prompt);
    if (!code) {
        r.request = &request;
        show_open(&r.show, o->json);
        int rc = hearth_submit(r.hearth, 0, &request);
        code = rc ? cli_fail(cli_exit_request(rc), "%s", hearth_error(r.hearth)) : stream(&r);
    }
    hearth_close(r.hearth);
    free(prompt);
    free(guess);
    show_close(&r.show);
    buffer_fini(&text);
    cli_fim_fini(&fim);
    buffer_fini(&grammar);
    if (ids.items != o->tokens.items)
        free(ids.items);
    return code;
}
