/* chat: what the files of `hearth chat` share: lines from a terminal, and a conversation.
 *
 * Ctrl-C ends an answer or empties a line here, never the program.
 * SIGTERM ends it. One thread. */
#ifndef HEARTH_CLIENT_CLI_CHAT_H
#define HEARTH_CLIENT_CLI_CHAT_H

#include "client/cli/chat_tools.h"
#include "client/cli/show.h"

#include <jansson.h>

/* ---- lines (chat_line.c) ----------------------------------------------------------------- */

/* Loads readline, and catches Ctrl-C. Without readline lines cannot be edited, which is reported on
 * stderr. */
void chat_line_open(void);

/* Reads a line, without its end, into *ret; the prompt goes to stderr. Returns 1; 0 at the end of
 * the input (Ctrl-D); -errno. */
int chat_line_read(const char *prompt, struct buffer *ret);

/* Was Ctrl-C pressed since the last call? */
int chat_line_interrupted(void);

/* ---- a conversation (chat_talk.c) -------------------------------------------------------- */

struct talk {
    const struct cli_options *options;
    struct hearth *hearth;
    const char *chat_template; /* [template_bytes], NULL: the model's */
    size_t template_bytes;
    const char *grammar; /* [grammar_bytes] that each answer follows, or NULL */
    size_t grammar_bytes;
    struct chat_tools tools; /* list NULL: none */
    json_t *messages;        /* array */
    struct cli_ids sequence; /* what the slot holds: the last prompt and its answer */
    struct show show;
    int keeps_on;    /* Ctrl-C ends the answer, not the conversation */
    uint32_t anchor; /* a token of plain text */
};

/* Connects, and begins with the system message that the options have. Returns 0 or an exit code,
 * the error printed; talk_close() in either case. */
int talk_open(struct talk *t, const struct cli_options *o);
void talk_close(struct talk *t);

/* Forgets everything but the system message. Returns 0 or an exit code. */
int talk_reset(struct talk *t);

/* Renders a first message without sending it: a template that is missing or refuses it is reported
 * before anything is typed. Returns 0 or an exit code, the error printed. */
int talk_try(struct talk *t);

/* Sends a message and writes the answer to stdout; makes the calls of tools in it, and goes on with
 * what they say. Returns 0, or an exit code with the error printed and the message dropped. */
int talk_say(struct talk *t, const char *text, size_t bytes);

/* ---- an answer in parts (chat_parts.c) --------------------------------------------------- */

/* Of an answer that may call tools. */
struct chat_parts {
    struct hearth_chat_reader *reader; /* NULL: the answer is one text */
    struct buffer content, thoughts, arguments;
    struct buffer fresh; /* content of the last event */
    json_t *calls;       /* array of tool_calls, as messages have them */
};

/* Prepares *request for an answer to a chat with tools. Returns 0 or an exit code, the error
 * printed; chat_parts_close in either case. */
int chat_parts_open(struct chat_parts *p, struct hearth *h, const struct hearth_chat *chat,
                    struct hearth_request *request);
void chat_parts_close(struct chat_parts *p);

/* Takes an event of the answer. Returns 0 or -ENOMEM. */
int chat_parts_take(struct chat_parts *p, const struct hearth_event *e);

/* The answer as a message; `calls`: with those that it made. NULL without memory. */
json_t *chat_parts_message(const struct chat_parts *p, int calls);

#endif
