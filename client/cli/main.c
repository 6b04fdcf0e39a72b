/* main: main of `hearth`: finds the command, parses its options, runs it. */
#include "client/cli/cli.h"
#include "client/prompt/chat_families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct command {
    const char *name;
    uint32_t id;
    int (*run)(const struct cli_options *o);
    const char *arguments;
    const char *summary;
    const char *more; /* shown by its --help */
};

static const struct command commands[] = {
    {"run", CLI_CMD_RUN, cli_run, "[options] [PROMPT]",
     "continue a prompt; the answer goes to stdout",
     "The prompt is PROMPT, or --file, or --tokens, else what stdin holds.\n"
     "Ctrl-C ends the answer and frees the daemon for others.\n"},
    {"fim", CLI_CMD_FIM, cli_run, "[options] [FILE:LINE:COL]",
     "fill in the middle: the missing text at a place of a file",
     "The text is FILE or what stdin holds, the place LINE and COL (bytes, both from\n"
     "1), or --prefix-file and --suffix-file are the text before and after it.\n"},
    {"chat", CLI_CMD_CHAT, cli_chat, "[options]", "a conversation; not on a terminal, one message",
     "Ctrl-C ends an answer, Ctrl-D the conversation; /help lists what else there is.\n"
     "Without a terminal stdin is one message. --template names a family where the\n"
     "model brings no template of its own, or a file.\n"},
    {"tokenize", CLI_CMD_TOKENIZE, cli_tokenize, "[options] <TEXT",
     "text on stdin to a JSON array of ids", "Without --model the daemon's vocabulary is used.\n"},
    {"detokenize", CLI_CMD_DETOKENIZE, cli_detokenize, "[options] <IDS",
     "a JSON array of ids on stdin to its bytes",
     "Without --model the daemon's vocabulary is used.\n"},
    {"replay", CLI_CMD_REPLAY, cli_replay, "[options] FILE...",
     "repeat a request that run --record recorded, and compare",
     "Says `equal`, or the first token that differs (exit code 1). Another model,\n"
     "other numerics, or a changed prompt or parameter is named (65). FILE - is stdin.\n"},
    {"status", CLI_CMD_STATUS, cli_status, "[options]", "what the daemon serves, and its counters",
     ""},
    {"top", CLI_CMD_TOP, cli_top, "[options]", "watch what daemons do now",
     "q or Ctrl-C quits. With --once, or where stdout is not a terminal, one frame is\n"
     "printed: what happened in one interval.\n"},
    {"models", CLI_CMD_MODELS, cli_models, "[options]", "list the models on this disk",
     "What other programs downloaded counts: Hugging Face's cache, llama.cpp, LM\n"
     "Studio, Ollama; your own folders are in $HEARTH_MODELS.\n"},
    {"serve", CLI_CMD_SERVE, cli_serve, "[options] NAME [-- OPTIONS OF HEARTHD]",
     "start a daemon for a model",
     "NAME is a model of `hearth models`, the beginning of its name, or a file. Where\n"
     "systemd runs it becomes the service hearth@NAME, else a process of yours.\n"},
    {"stop", CLI_CMD_STOP, cli_stop, "NAME|--socket PATH", "end the daemon of a model",
     "NAME may be the beginning of one; --socket means no other daemon.\n"},
    {"store", CLI_CMD_STORE, cli_store, "[options]",
     "what hearthd --kv-store keeps on this disk, by model and user",
     "Prompts can be worked out from it; --clear removes it, for models that no\n"
     "hearthd serves now.\n"},
    {"doctor", CLI_CMD_DOCTOR, cli_doctor, "[options]",
     "check this machine for hearth, and say what would help",
     "Exits with 71 where hearthd cannot run, with 0 where it can.\n"},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int help(void)
{
    struct buffer b = {0};
    buffer_text(&b, "usage: hearth COMMAND [options]\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        buffer_format(&b, "  %-11s %s\n", commands[i].name, commands[i].summary);
    buffer_text(&b,
                "\n`hearth COMMAND --help` lists the options of a command, `hearth --version` the\n"
                "version. The daemon, hearthd, must run for all but models, serve, store,\n"
                "doctor, and tokenize and detokenize with --model.\n");
    return cli_print(&b);
}

static int version(void)
{
    struct buffer b = {0};
    buffer_text(&b, "hearth " HEARTH_VERSION "\n");
    return cli_print(&b);
}

/* "templates: chatml, ...", for people and for completions; a line has 80 bytes at most, with the
 * comma after a name. */
static void add_templates(struct buffer *b)
{
    enum { INDENT = 11, WIDTH = 80 };
    char names[1024];
    size_t column = INDENT, bytes;
    (void)chat_family_names(names, sizeof(names));
    buffer_text(b, "templates: ");
    for (const char *name = names; *name; name += bytes + strspn(name + bytes, ", ")) {
        bytes = strcspn(name, ",");
        int first = name == names, wraps = column + bytes + 3 > WIDTH;
        buffer_text(b, first ? "" : wraps ? ",\n           " : ", ");
        buffer_add(b, name, bytes);
        column = (wraps ? INDENT : column + (first ? 0 : 2)) + bytes;
    }
    buffer_text(b, "\n\n");
}

static int command_help(const struct command *c)
{
    char *options = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&options, &bytes);
    if (!out)
        return cli_no_memory();
    cli_options_help(c->id, out);
    fclose(out);
    struct buffer b = {0};
    buffer_format(&b, "usage: hearth %s %s\n\n%s.\n%s\n", c->name, c->arguments, c->summary,
                  c->more);
    if (c->id == CLI_CMD_CHAT)
        add_templates(&b);
    buffer_add(&b, options, bytes);
    free(options);
    return cli_print(&b);
}

static int run_command(const struct command *c, int argc, char **argv)
{
    struct cli_options o;
    char err[512];
    int code;
    int rc = cli_options_parse(&o, c->id, argc, argv, err, sizeof(err));
    if (rc)
        code = cli_fail(CLI_USAGE, "%s", err);
    else if (o.help)
        code = command_help(c);
    else if (!(c->id & (CLI_CMD_ASK | CLI_CMD_REPLAY | CLI_CMD_SERVE | CLI_CMD_STOP)) && o.n_words)
        code = cli_fail(CLI_USAGE, "%s '%s': it takes no argument, see hearth %s --help", c->name,
                        o.words[0], c->name);
    else
        code = c->run(&o);
    cli_options_fini(&o);
    return code;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (cli_open_standard())
        return cli_fail(CLI_SYSTEM, "stdin or stdout is closed and /dev/null cannot be opened: "
                                    "open them");
    cli_catch_signals();
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0)
            return run_command(&commands[i], argc - 2, argv + 2);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help();
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return version();
    if (!*word)
        return cli_fail(CLI_USAGE, "no command: give one, for instance hearth run 'Once upon'; see "
                                   "hearth --help");
    return cli_fail(CLI_USAGE, "unknown command '%s': see hearth --help", word);
}
