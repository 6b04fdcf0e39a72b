/* options: the table of options of `hearth` (see ipc/options.h), and its lists of ids and biases.
 * A command takes the rows whose mask has its bit. */
#ifndef HEARTH_CLIENT_CLI_OPTIONS_H
#define HEARTH_CLIENT_CLI_OPTIONS_H

#include "client/hearth.h"
#include "ipc/options.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_command {
    CLI_CMD_RUN = 1,
    CLI_CMD_TOKENIZE = 2,
    CLI_CMD_DETOKENIZE = 4,
    CLI_CMD_STATUS = 8,
    CLI_CMD_REPLAY = 16,
    CLI_CMD_DOCTOR = 32,
    CLI_CMD_FIM = 64,
    CLI_CMD_CHAT = 128,
    CLI_CMD_TOP = 1024,
    CLI_CMD_MODELS = 2048,
    CLI_CMD_SERVE = 4096,
    CLI_CMD_STOP = 8192,
    CLI_CMD_STORE = 16384
};
#define CLI_CMD_ASK (CLI_CMD_RUN | CLI_CMD_FIM) /* commands that stream one answer */
#define CLI_CMD_SAY (CLI_CMD_ASK | CLI_CMD_CHAT)
#define CLI_CMD_TEXT (CLI_CMD_TOKENIZE | CLI_CMD_DETOKENIZE)
#define CLI_CMD_CONNECT                                                                            \
    (CLI_CMD_SAY | CLI_CMD_TEXT | CLI_CMD_STATUS | CLI_CMD_REPLAY | CLI_CMD_DOCTOR | CLI_CMD_TOP)
#define CLI_CMD_ALL 0xffffffffu

/* O(name, value, commands, kind, field, default, least, most, help) */
#define CLI_OPTIONS(O)                                                                             \
    O("file", "FILE", CLI_CMD_RUN, OPTION_TEXT, file, NULL, 0, 0, "read the prompt from FILE")     \
    O("tokens", "ID,ID,...", CLI_CMD_RUN, OPTION_OTHER, tokens, NULL, 0, 0,                        \
      "prompt as token ids; - reads them from stdin")                                              \
    O("line", "N", CLI_CMD_FIM, OPTION_U32, line, NULL, 1, 1 << 30,                                \
      "fill in at line N of FILE or stdin, from 1")                                                \
    O("col", "N", CLI_CMD_FIM, OPTION_U32, col, NULL, 1, 1 << 30,                                  \
      "before its byte N, from 1 (the line's end)")                                                \
    O("prefix-file", "FILE", CLI_CMD_FIM, OPTION_TEXT, prefix_file, NULL, 0, 0,                    \
      "the text before the place; - is stdin")                                                     \
    O("suffix-file", "FILE", CLI_CMD_FIM, OPTION_TEXT, suffix_file, NULL, 0, 0,                    \
      "the text after the place")                                                                  \
    O("extra", "FILE", CLI_CMD_FIM, OPTION_TEXTS, extra, NULL, 1, 4096,                            \
      "another file of the project; repeatable")                                                   \
    O("repo", "NAME", CLI_CMD_FIM, OPTION_TEXT, repo, NULL, 0, 0, "the project's name")            \
    O("order", "auto|psm|spm|plain", CLI_CMD_FIM, OPTION_CHOICE, order, "auto", 0, 0,              \
      "prefix or suffix first")                                                                    \
    O("prompt-tokens", "N", CLI_CMD_FIM, OPTION_U32, prompt_tokens, NULL, 1, 1 << 30,              \
      "max tokens of the prompt (context - 512)")                                                  \
    O("system", "TEXT", CLI_CMD_CHAT, OPTION_TEXT, system, NULL, 0, 0, "the system message")       \
    O("template", "NAME|FILE", CLI_CMD_CHAT, OPTION_TEXT, chat_template, NULL, 0, 0,               \
      "a family's chat template, or a file (the model's)")                                         \
    O("tools", "FILE", CLI_CMD_CHAT, OPTION_TEXT, tools, NULL, 0, 0,                               \
      "programs that the model may call, if you say so")                                           \
    O("max-tokens", "N", CLI_CMD_SAY, OPTION_U32, request.max_tokens, "256", 0, UINT32_MAX,        \
      "max tokens of the answer; 0: only warm up")                                                 \
    O("temperature", "T", CLI_CMD_SAY, OPTION_F32, request.temperature, "0", 0, 100,               \
      "0: always the most likely token")                                                           \
    O("top-k", "K", CLI_CMD_SAY, OPTION_U32, request.top_k, "0", 0, UINT32_MAX,                    \
      "keep the K most likely tokens; 0: off")                                                     \
    O("top-p", "P", CLI_CMD_SAY, OPTION_F32, request.top_p, "1", 0, 1,                             \
      "keep the most likely up to sum P; 1: off")                                                  \
    O("min-p", "P", CLI_CMD_SAY, OPTION_F32, request.min_p, "0", 0, 1,                             \
      "keep those with P x the top probability; 0: off")                                           \
    O("typical-p", "P", CLI_CMD_SAY, OPTION_F32, request.typical_p, "1", 0, 1,                     \
      "keep the most typical up to sum P; 1: off")                                                 \
    O("repeat-penalty", "R", CLI_CMD_SAY, OPTION_F32, request.repeat_penalty, "1", 0.01, 100,      \
      "divide the logits of recent tokens; 1: off")                                                \
    O("frequency-penalty", "F", CLI_CMD_SAY, OPTION_F32, request.frequency_penalty, "0", -100,     \
      100, "subtract F for each recent occurrence")                                                \
    O("presence-penalty", "F", CLI_CMD_SAY, OPTION_F32, request.presence_penalty, "0", -100, 100,  \
      "subtract F from each recent token")                                                         \
    O("penalty-last-n", "N", CLI_CMD_SAY, OPTION_I32, request.penalty_last_n, "64", -1, INT32_MAX, \
      "tokens that count as recent; -1: all, 0: none")                                             \
    O("logit-bias", "ID=V", CLI_CMD_SAY, OPTION_OTHER, bias, NULL, -10000, 10000,                  \
      "add V to a logit, -inf forbids; repeatable")                                                \
    O("grammar", "TEXT", CLI_CMD_SAY, OPTION_TEXT, grammar, NULL, 0, 0,                            \
      "GBNF: the answer matches its rule root")                                                    \
    O("grammar-file", "FILE", CLI_CMD_SAY, OPTION_TEXT, grammar_file, NULL, 0, 0,                  \
      "a grammar from FILE")                                                                       \
    O("json-schema", "SCHEMA", CLI_CMD_SAY, OPTION_TEXT, json_schema, NULL, 0, 0,                  \
      "the answer is JSON of this schema (@FILE)")                                                 \
    O("seed", "S", CLI_CMD_SAY, OPTION_U64, request.seed, "0", 0, OPTION_U64_MAX,                  \
      "seed of the sampler, temperature above 0")                                                  \
    O("stop", "TEXT", CLI_CMD_SAY, OPTION_TEXTS, stops, NULL, 1, 256,                              \
      "end before TEXT; repeatable")                                                               \
    O("stop-token", "ID", CLI_CMD_SAY, OPTION_OTHER, stop_tokens, NULL, 0, 0,                      \
      "end at this token; repeatable")                                                             \
    O("logprobs", "N", CLI_CMD_ASK, OPTION_I32, request.logprobs, NULL, 0, 20,                     \
      "with --json: logprobs, and N alternatives")                                                 \
    O("slot", "NAME", CLI_CMD_SAY, OPTION_TEXT, slot, NULL, 0, 0,                                  \
      "a slot that stays warm for the next run")                                                   \
    O("priority", "interactive|batch", CLI_CMD_SAY, OPTION_CHOICE, request.priority,               \
      "interactive", 0, 0, "batch yields to others")                                               \
    O("proposer", "auto|none|lookup|client|draft|shadow|fast|mtp", CLI_CMD_SAY | CLI_CMD_REPLAY,   \
      OPTION_WORD, request.proposer, NULL, 0, 0, "source of drafts")                               \
    O("guess", "TEXT", CLI_CMD_ASK, OPTION_TEXT, guess, NULL, 0, 0,                                \
      "the expected answer: drafts for the proposer")                                              \
    O("deterministic", "no|yes", CLI_CMD_SAY, OPTION_CHOICE, request.deterministic, "yes", 0, 0,   \
      "no: unverified tokens, where faster")                                                       \
    O("resume-ms", "N", CLI_CMD_SAY, OPTION_I32, resume_ms, "30000", 0, 1 << 30,                   \
      "wait N ms for a restarting daemon")                                                         \
    O("model", "NAME|FILE", CLI_CMD_CONNECT & ~CLI_CMD_DOCTOR, OPTION_TEXT, model, NULL, 0, 0,     \
      "ask the daemon that serves it; tokenize: a file")                                           \
    O("context", "N|auto", CLI_CMD_MODELS | CLI_CMD_SERVE, OPTION_TEXT, context, NULL, 0, 0,       \
      "tokens of prompt and answer (what memory holds)")                                           \
    O("kv-bytes", "N|auto", CLI_CMD_SERVE, OPTION_TEXT, kv_bytes, NULL, 0, 0,                      \
      "memory for the KV cache (what weights leave)")                                              \
    O("draft", "NAME", CLI_CMD_MODELS | CLI_CMD_SERVE, OPTION_TEXT, draft, NULL, 0, 0,             \
      "a small model of the same vocabulary, that drafts")                                         \
    O("special", NULL, CLI_CMD_TEXT, OPTION_FLAG, special, NULL, 0, 0,                             \
      "texts of special tokens mean these tokens")                                                 \
    O("record", "FILE", CLI_CMD_ASK, OPTION_TEXT, record, NULL, 0, 0,                              \
      "write a record for hearth replay to FILE")                                                  \
    O("dir", "DIR", CLI_CMD_STORE, OPTION_TEXT, dir, NULL, 0, 0,                                   \
      "as hearthd --kv-store (~/.cache/hearth/kv)")                                                \
    O("user", "UID", CLI_CMD_STORE, OPTION_TEXT, user, NULL, 0, 0, "only of this user")            \
    O("clear", NULL, CLI_CMD_STORE, OPTION_FLAG, clear, NULL, 0, 0, "remove it")                   \
    O("json", NULL,                                                                                \
      CLI_CMD_SAY | CLI_CMD_STATUS | CLI_CMD_REPLAY | CLI_CMD_DOCTOR | CLI_CMD_MODELS |            \
          CLI_CMD_STORE,                                                                           \
      OPTION_FLAG, json, NULL, 0, 0, "print JSON, one object per line")                            \
    O("interval", "S", CLI_CMD_TOP, OPTION_F32, interval, "1", 0.1, 3600,                          \
      "seconds between two samples")                                                               \
    O("once", NULL, CLI_CMD_TOP, OPTION_FLAG, once, NULL, 0, 0, "print one frame, as text")        \
    O("socket", "PATH", CLI_CMD_CONNECT | CLI_CMD_STOP, OPTION_TEXT, socket, NULL, 0, 0,           \
      "where hearthd listens ($HEARTH_SOCKET)")                                                    \
    O("help", NULL, CLI_CMD_ALL, OPTION_FLAG, help, NULL, 0, 0, "print this help and exit")

struct cli_ids {
    uint32_t *items; /* [n] */
    uint32_t n;
    int given; /* the option was there, perhaps as "-" */
};
struct cli_biases {
    struct hearth_bias *items; /* [n] */
    uint32_t n;
};

struct cli_options {
    uint32_t command;              /* enum cli_command */
    struct hearth_request request; /* the scalar fields only: cli_request() joins in the lists */
    struct cli_ids tokens, stop_tokens;
    struct option_texts stops;
    char **words; /* [n_words], in argv: the arguments that are not options */
    uint32_t n_words;
    struct cli_biases bias;
    const char *file, *slot, *guess, *grammar, *grammar_file, *json_schema, *record, *model,
        *socket;
    const char *context, *kv_bytes, *draft;       /* of models and serve */
    const char *dir, *user;                       /* of store */
    const char *system, *chat_template, *tools;   /* of chat */
    const char *prefix_file, *suffix_file, *repo; /* of fim */
    struct option_texts extra;
    uint32_t line, col, order, prompt_tokens; /* 0: not given */
    int32_t resume_ms;
    int special, json, once, clear;
    float interval; /* seconds */
    int help;
};

/* Parses argv[0, argc), the words after the command; o keeps pointers into it. Returns 0, or
 * -EINVAL or -ENOMEM with one line in err. Call fini in either case. */
int cli_options_parse(struct cli_options *o, uint32_t command, int argc, char **argv, char *err,
                      size_t err_bytes);
void cli_options_fini(struct cli_options *o);

/* Reads ids separated by commas or blanks, brackets around them allowed, and appends them. Returns
 * 0, -EINVAL (*ret_bad then points at the mistake) or -ENOMEM. Empty text adds nothing. */
int cli_ids_parse(struct cli_ids *ids, const char *text, size_t bytes, const char **ret_bad);

/* Makes room for one more item in an array that this made, of n items: its capacities are powers of
 * two. Returns 0 or -ENOMEM. */
int cli_grow(void **items, uint32_t n, size_t item_bytes);

/* Writes the lines of --help for a command's options. */
void cli_options_help(uint32_t command, FILE *out);

#endif
