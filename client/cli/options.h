/* cli_options.h - the one table of options of `hearth`, and its parser.
 *
 * The table below makes the parser, the range checks and --help. A command takes the rows whose
 * mask has its bit. The parser allocates only for options that can be given more than once, keeps
 * pointers into argv, and prints nothing.
 */
#ifndef HEARTH_CLIENT_CLI_OPTIONS_H
#define HEARTH_CLIENT_CLI_OPTIONS_H

#include "client/hearth.h"

#include <stddef.h>
#include <stdint.h>

enum cli_command {
    CLI_CMD_RUN = 1,
    CLI_CMD_TOKENIZE = 2,
    CLI_CMD_DETOKENIZE = 4,
    CLI_CMD_STATUS = 8,
    CLI_CMD_REPLAY = 16,
    CLI_CMD_DOCTOR = 32,
    CLI_CMD_FIM = 64,
    CLI_CMD_CHAT = 128,
    CLI_CMD_TOP = 1024
};
#define CLI_CMD_ASK (CLI_CMD_RUN | CLI_CMD_FIM) /* commands that stream one answer */
#define CLI_CMD_SAY (CLI_CMD_ASK | CLI_CMD_CHAT)
#define CLI_CMD_TEXT (CLI_CMD_TOKENIZE | CLI_CMD_DETOKENIZE)
#define CLI_CMD_ALL 0xffffffffu

enum cli_kind {
    CLI_FLAG,   /* int, takes no value */
    CLI_U32,    /* uint32_t in [least, most] */
    CLI_I32,    /* int32_t in [least, most] */
    CLI_U64,    /* uint64_t */
    CLI_F32,    /* float in [least, most] */
    CLI_CHOICE, /* uint32_t: index in the list that stands as the argument's name, "a|b|c" */
    CLI_WORD,   /* const char *: one of such a list */
    CLI_TEXT,   /* const char * */
    CLI_TEXTS,  /* struct cli_texts of [least, most] bytes, may be repeated CLI_TEXTS_MAX times */
    CLI_IDS,    /* struct cli_ids, ID,ID,..., may be repeated */
    CLI_BIAS    /* struct cli_biases, ID=VALUE in [least, most] or -inf, may be repeated */
};

enum { CLI_TEXTS_MAX = 64 }; /* as many stop texts as a request takes */

/* O(name, argument, commands, kind, field, least, most, help) */
#define CLI_OPTIONS(O)                                                                             \
    O("file", "FILE", CLI_CMD_RUN, CLI_TEXT, file, 0, 0, "read the prompt from FILE")              \
    O("tokens", "ID,ID,...", CLI_CMD_RUN, CLI_IDS, tokens, 0, 0,                                   \
      "prompt as token ids, as given; - reads stdin")                                              \
    O("line", "N", CLI_CMD_FIM, CLI_U32, line, 1, 1 << 30,                                         \
      "fill in at line N of FILE or stdin, from 1")                                                \
    O("col", "N", CLI_CMD_FIM, CLI_U32, col, 1, 1 << 30,                                           \
      "and before its byte N, from 1 (the line's end)")                                            \
    O("prefix-file", "FILE", CLI_CMD_FIM, CLI_TEXT, prefix_file, 0, 0,                             \
      "what stands before the place; - is stdin")                                                  \
    O("suffix-file", "FILE", CLI_CMD_FIM, CLI_TEXT, suffix_file, 0, 0, "what stands behind it")    \
    O("extra", "FILE", CLI_CMD_FIM, CLI_TEXTS, extra, 1, 4096,                                     \
      "another file of the project; repeatable")                                                   \
    O("repo", "NAME", CLI_CMD_FIM, CLI_TEXT, repo, 0, 0, "the project's name")                     \
    O("order", "auto|psm|spm|plain", CLI_CMD_FIM, CLI_CHOICE, order, 0, 0,                         \
      "prefix or suffix first (as the model was trained)")                                         \
    O("prompt-tokens", "N", CLI_CMD_FIM, CLI_U32, prompt_tokens, 1, 1 << 30,                       \
      "most tokens of the prompt (context - 512)")                                                 \
    O("system", "TEXT", CLI_CMD_CHAT, CLI_TEXT, system, 0, 0,                                      \
      "what the model is told before anything else")                                               \
    O("template", "NAME|FILE", CLI_CMD_CHAT, CLI_TEXT, chat_template, 0, 0,                        \
      "a family's chat template, or a file (the model's)")                                         \
    O("max-tokens", "N", CLI_CMD_SAY, CLI_U32, request.max_tokens, 0, UINT32_MAX,                  \
      "most tokens of the answer; 0: only warm (256)")                                             \
    O("temperature", "T", CLI_CMD_SAY, CLI_F32, request.temperature, 0, 100,                       \
      "0: always the most likely token (0)")                                                       \
    O("top-k", "K", CLI_CMD_SAY, CLI_U32, request.top_k, 0, UINT32_MAX,                            \
      "keep the K most likely; 0 off (0)")                                                         \
    O("top-p", "P", CLI_CMD_SAY, CLI_F32, request.top_p, 0, 1,                                     \
      "keep the likeliest that hold P; 1 off (1)")                                                 \
    O("min-p", "P", CLI_CMD_SAY, CLI_F32, request.min_p, 0, 1,                                     \
      "keep those with P of the best's chance; 0 off (0)")                                         \
    O("typical-p", "P", CLI_CMD_SAY, CLI_F32, request.typical_p, 0, 1,                             \
      "keep the most typical that hold P; 1 off (1)")                                              \
    O("repeat-penalty", "R", CLI_CMD_SAY, CLI_F32, request.repeat_penalty, 0.01, 100,              \
      "divide the logits of recent tokens; 1 off (1)")                                             \
    O("frequency-penalty", "F", CLI_CMD_SAY, CLI_F32, request.frequency_penalty, -100, 100,        \
      "subtract F for each recent occurrence (0)")                                                 \
    O("presence-penalty", "F", CLI_CMD_SAY, CLI_F32, request.presence_penalty, -100, 100,          \
      "subtract F from each recent token (0)")                                                     \
    O("penalty-last-n", "N", CLI_CMD_SAY, CLI_I32, request.penalty_last_n, -1, INT32_MAX,          \
      "how many tokens are recent; -1 all, 0 none (64)")                                           \
    O("logit-bias", "ID=V", CLI_CMD_SAY, CLI_BIAS, bias, -10000, 10000,                            \
      "add V to a logit, -inf forbids; repeatable")                                                \
    O("grammar", "TEXT", CLI_CMD_SAY, CLI_TEXT, grammar, 0, 0,                                     \
      "GBNF: the answer follows its rule root")                                                    \
    O("grammar-file", "FILE", CLI_CMD_SAY, CLI_TEXT, grammar_file, 0, 0,                           \
      "the same, read from FILE")                                                                  \
    O("json-schema", "SCHEMA", CLI_CMD_SAY, CLI_TEXT, json_schema, 0, 0,                           \
      "the answer is JSON of this schema (@FILE)")                                                 \
    O("seed", "S", CLI_CMD_SAY, CLI_U64, request.seed, 0, 0,                                       \
      "chooses among answers, temperature above 0 (0)")                                            \
    O("stop", "TEXT", CLI_CMD_SAY, CLI_TEXTS, stops, 1, 256, "end before TEXT; repeatable")        \
    O("stop-token", "ID", CLI_CMD_SAY, CLI_IDS, stop_tokens, 0, 0,                                 \
      "end at this token; repeatable")                                                             \
    O("logprobs", "N", CLI_CMD_ASK, CLI_I32, request.logprobs, 0, 20,                              \
      "with --json: logprobs, and N alternatives")                                                 \
    O("slot", "NAME", CLI_CMD_SAY, CLI_TEXT, slot, 0, 0,                                           \
      "a slot that stays warm for the next run")                                                   \
    O("priority", "interactive|batch", CLI_CMD_SAY, CLI_CHOICE, request.priority, 0, 0,            \
      "batch lets others go first (interactive)")                                                  \
    O("proposer", "auto|none|lookup|client|draft|shadow|fast", CLI_CMD_SAY | CLI_CMD_REPLAY,       \
      CLI_WORD, request.proposer, 0, 0, "who drafts tokens")                                       \
    O("guess", "TEXT", CLI_CMD_ASK, CLI_TEXT, guess, 0, 0,                                         \
      "what the answer may be: drafts for the proposer")                                           \
    O("deterministic", "no|yes", CLI_CMD_SAY, CLI_CHOICE, request.deterministic, 0, 0,             \
      "no: tokens unverified, where that is faster (yes)")                                         \
    O("resume-ms", "N", CLI_CMD_SAY, CLI_I32, resume_ms, 0, 1 << 30,                               \
      "wait N ms for a daemon that went away (30000)")                                             \
    O("model", "FILE", CLI_CMD_TEXT, CLI_TEXT, model, 0, 0,                                        \
      "take the vocabulary of a GGUF file, no daemon")                                             \
    O("special", "", CLI_CMD_TEXT, CLI_FLAG, special, 0, 0,                                        \
      "texts of special tokens mean these tokens")                                                 \
    O("record", "FILE", CLI_CMD_ASK, CLI_TEXT, record, 0, 0,                                       \
      "write what hearth replay needs into FILE")                                                  \
    O("json", "", CLI_CMD_SAY | CLI_CMD_STATUS | CLI_CMD_REPLAY | CLI_CMD_DOCTOR, CLI_FLAG, json,  \
      0, 0, "print JSON, an object a line")                                                        \
    O("interval", "S", CLI_CMD_TOP, CLI_F32, interval, 0.1, 3600,                                  \
      "seconds from one look to the next (1)")                                                     \
    O("once", "", CLI_CMD_TOP, CLI_FLAG, once, 0, 0, "print one frame, as text")                   \
    O("socket", "PATH", CLI_CMD_ALL, CLI_TEXT, socket, 0, 0,                                       \
      "where hearthd listens ($HEARTH_SOCKET)")

struct cli_texts {
    const char **items; /* [n] */
    uint32_t n;
};
struct cli_ids {
    uint32_t *items; /* [n] */
    uint32_t n;
    int given; /* the option was there, though perhaps as "-" */
};
struct cli_biases {
    struct hearth_bias *items; /* [n] */
    uint32_t n;
};

struct cli_options {
    uint32_t command;              /* enum cli_command */
    struct hearth_request request; /* the scalar fields only; lists are joined in by cli_run */
    struct cli_ids tokens, stop_tokens;
    struct cli_texts stops, words; /* words: the arguments that are no options */
    struct cli_biases bias;
    const char *file, *slot, *guess, *grammar, *grammar_file, *json_schema, *record, *model,
        *socket;
    const char *system, *chat_template;           /* of chat */
    const char *prefix_file, *suffix_file, *repo; /* of fim */
    struct cli_texts extra;
    uint32_t line, col, order, prompt_tokens; /* 0: not given */
    int32_t resume_ms;
    int special, json, once;
    float interval; /* seconds */
    int help;
};

/* Parses argv[0..argc), the words after the command. Options may be written --name VALUE or
 * --name=VALUE;
 * "--" ends them. Returns 0, or -EINVAL or -ENOMEM with one line in err. Call fini in either case.
 */
int cli_options_parse(struct cli_options *o, uint32_t command, int argc, char **argv, char *err,
                      size_t err_bytes);
void cli_options_fini(struct cli_options *o);

/* Reads ids separated by commas or blanks, brackets around them allowed, and appends them. Returns
 * 0, -EINVAL (*ret_bad then points at what is no id) or -ENOMEM. Empty text adds nothing. */
int cli_ids_parse(struct cli_ids *ids, const char *text, size_t bytes, const char **ret_bad);

/* Makes room for one more item in an array that this made, of n items: its capacities are powers of
 * two. Returns 0 or -ENOMEM. */
int cli_grow(void **items, uint32_t n, size_t item_bytes);

/* Writes the lines of --help for a command's options. Returns the length of the whole text. */
size_t cli_options_help(uint32_t command, char *text, size_t max);

#endif
