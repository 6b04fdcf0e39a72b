/* chat: `hearth chat`: a conversation with the model, in the form that its chat template gives. On
 * a terminal it goes on until Ctrl-D; else stdin is one message and its answer the end. */
#include "client/cli/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help_text[] = "/reset      start over, with the system message alone\n"
                                "/save FILE  write the conversation into FILE, as JSON\n"
                                "/help       this\n"
                                "Ctrl-C ends an answer, Ctrl-D the conversation.\n";

/* ---- commands -------------------------------------------------------------------------------- */

static void save(const struct talk *t, const char *path)
{
    struct buffer out = {0};
    char *text = json_dumps(t->messages, JSON_INDENT(2));
    if (text) {
        buffer_text(&out, text);
        buffer_text(&out, "\n");
    }
    int rc = text && !out.failed ? cli_save(path, out.data, out.bytes) : -ENOMEM;
    free(text);
    buffer_fini(&out);
    if (rc)
        (void)cli_fail(CLI_SYSTEM, "%s: %s", path, strerror(-rc));
}

/* A line that begins with a slash; the blanks at its end, which completing a file's name leaves
 * there, are cut. */
static void run_command(struct talk *t, char *line)
{
    size_t bytes = strlen(line);
    while (line[bytes - 1] == ' ' || line[bytes - 1] == '\t')
        line[--bytes] = 0;
    if (strcmp(line, "/help") == 0)
        (void)cli_write(STDERR_FILENO, help_text, sizeof(help_text) - 1);
    else if (strcmp(line, "/reset") == 0)
        (void)talk_reset(t);
    else if (strcmp(line, "/save") == 0)
        (void)cli_fail(CLI_USAGE, "/save: give a file's name: /save FILE");
    else if (strncmp(line, "/save ", 6) == 0)
        save(t, line + 6 + strspn(line + 6, " "));
    else
        (void)cli_fail(CLI_USAGE, "%s: no such command: /help lists them", line);
}

/* ---- on a terminal, and not ------------------------------------------------------------------ */

/* What ends the conversation, rather than this one answer. */
static int is_end(int code)
{
    return code == CLI_NO_DAEMON || code == CLI_INTERRUPTED || code == CLI_SYSTEM;
}

static int converse(struct talk *t)
{
    struct buffer line = {0};
    int code = talk_try(t);
    if (code)
        return code;
    t->keeps_on = 1;
    chat_line_open();
    while (!is_end(code)) {
        int rc = chat_line_read("> ", &line);
        if (rc <= 0) {
            code = rc == 0         ? CLI_OK
                   : rc == -EINTR  ? CLI_INTERRUPTED
                   : rc == -ENOMEM ? cli_no_memory()
                                   : cli_fail(CLI_NO_INPUT, "stdin: %s", strerror(-rc));
            break;
        }
        buffer_add(&line, "", 1);
        if (line.failed || line.bytes == 1)
            continue;
        if (line.data[0] == '/')
            run_command(t, line.data);
        else
            code = talk_say(t, line.data, line.bytes - 1);
    }
    if (!code) /* the shell's prompt gets a line of its own */
        (void)cli_write(STDERR_FILENO, "\n", 1);
    buffer_fini(&line);
    return code;
}

static int answer_once(struct talk *t)
{
    struct buffer text = {0};
    int code = cli_read_file("-", &text);
    if (!code) {
        text.bytes -= text.bytes && text.data[text.bytes - 1] == '\n';
        code = text.bytes ? talk_say(t, text.data, text.bytes)
                          : cli_fail(CLI_USAGE, "no message: write one to stdin");
    }
    buffer_fini(&text);
    return code;
}

/* --template is a family's name, or a file if it looks like a path. Returns 0 or an exit code. */
static int read_template(const struct cli_options *o, struct buffer *ret)
{
    const char *name = o->chat_template;
    if (!name)
        return CLI_OK;
    size_t bytes = strlen(name);
    int is_file = strchr(name, '/') || (bytes > 6 && strcmp(name + bytes - 6, ".jinja") == 0);
    if (is_file)
        return cli_read_file(name, ret);
    buffer_text(ret, name);
    return ret->failed ? cli_no_memory() : CLI_OK;
}

/* Each call is asked about. */
static int check_terminal(const struct cli_options *o)
{
    if (!o->tools || (isatty(STDIN_FILENO) && isatty(STDERR_FILENO)))
        return CLI_OK;
    return cli_fail(CLI_USAGE, "--tools asks before each call: give it a terminal");
}

int cli_chat(const struct cli_options *o)
{
    struct buffer source = {0}, grammar = {0};
    struct talk t = {0};
    int code = check_terminal(o);
    if (!code)
        code = read_template(o, &source);
    if (!code)
        code = cli_grammar_read(o, &grammar);
    if (!code)
        code = talk_open(&t, o);
    t.grammar = grammar.data;
    t.grammar_bytes = grammar.bytes ? grammar.bytes - 1 : 0;
    if (!code && o->tools)
        code = chat_tools_open(&t.tools, o->tools);
    if (!code && o->chat_template) {
        t.chat_template = source.data ? source.data : "";
        t.template_bytes = source.bytes;
    }
    if (!code)
        code = isatty(STDIN_FILENO) ? converse(&t) : answer_once(&t);
    talk_close(&t);
    buffer_fini(&source);
    buffer_fini(&grammar);
    return code;
}
