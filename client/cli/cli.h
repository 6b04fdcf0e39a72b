/* cli: what the files of the `hearth` command share.
 *
 * A process runs one command in one thread: main (main.c) parses the options and calls one of
 * cli_run, cli_chat, cli_replay, cli_tokenize, cli_detokenize, cli_status, cli_top, cli_doctor,
 * cli_models, cli_serve, cli_stop, cli_store, whose result is the exit code (sysexits). Errors are one line on stderr, `hearth: what: what to
 * do`; stdout carries results only. Start-up is part of the product (a shell helper runs this once
 * a keystroke): no locale, no stdio on stdout, nothing allocated that a command does not need. */
#ifndef HEARTH_CLIENT_CLI_CLI_H
#define HEARTH_CLIENT_CLI_CLI_H

#include "client/base/buffer.h"
#include "client/cli/options.h"
#include "client/hearth.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_DIFFERS = 1,      /* a replayed answer is not the recorded one */
    CLI_USAGE = 64,       /* an option or argument is invalid */
    CLI_BAD_INPUT = 65,   /* a token id out of range, a prompt too long, a malformed model */
    CLI_NO_INPUT = 66,    /* no such file */
    CLI_NO_DAEMON = 69,   /* not reachable, or gone */
    CLI_SYSTEM = 71,      /* the operating system refuses: memory, files, output */
    CLI_CANNOT_MAKE = 73, /* a file cannot be made there */
    CLI_BUSY = 75,        /* try again */
    CLI_INTERRUPTED = 130 /* Ctrl-C, SIGTERM, or the reader of stdout is gone */
};

/* Prints one error line and returns `code`. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same where memory has run out. */
int cli_no_memory(void);

/* Exit code for -errno of hearth_connect(), for -errno of a request. */
int cli_exit_connect(int rc);
int cli_exit_request(int rc);

/* Connects as the options say, with `slots` slots. Returns 0 or an exit code, the error already
 * printed. While it connects, a signal that asks to stop ends the process at once; without slots
 * also afterwards, since there is nothing to release. */
int cli_connect(const struct cli_options *o, uint32_t slots, struct hearth **ret_h);

/* The socket that the options name: ret [108] for that of a model's daemon; NULL: the usual place.
 * Returns 0, or -errno of hearth_find with its line in err. */
int cli_find_socket(const struct cli_options *o, char *ret, const char **ret_path, char *err,
                    size_t err_bytes);
enum { CLI_PATH_BYTES = 108 };

/* The process that answers at the socket; 0: none. What a daemon says of itself may be the number
 * of another process: it could name any of ours, and counts otherwise in another namespace. */
pid_t cli_find_process(const char *path);
enum { CLI_ANSWER_MS = 5000 }; /* longest wait for an answer of a daemon that may hang */

/* Reads fd to its end. Returns 0 or -errno. */
int cli_read_all(int fd, struct buffer *ret);

/* Reads a file, "-" meaning stdin. Returns 0, or an exit code with the error printed. */
int cli_read_file(const char *path, struct buffer *ret);

/* Appends the token ids on stdin. Returns 0, or an exit code with the error printed. */
int cli_read_ids(struct cli_ids *ids);

/* Writes all of it to fd, also where that one is non-blocking. Returns 0 or -errno (-EINTR when a
 * signal asks to stop; see cli_stop_requested). */
int cli_write(int fd, const void *data, size_t bytes);

/* Writes a file. A regular one appears whole or not at all, for its owner to read, in the place of
 * whatever had its name; a pipe or device is written to. Returns as cli_write. */
int cli_save(const char *path, const void *data, size_t bytes);

/* Writes the buffer to stdout and frees it. Returns 0 or an exit code, the error printed. */
int cli_print(struct buffer *out);

/* Opens /dev/null where the caller left stdin, stdout or stderr closed: else the connection would
 * get that number, and the answer be written into it. Returns 0 or -errno. */
int cli_open_standard(void);

/* Ctrl-C and SIGTERM set a flag and interrupt waits; a second one ends the process at once. SIGPIPE
 * is ignored: a write fails with EPIPE. */
void cli_catch_signals(void);
int cli_stop_requested(void);

/* While on, the first signal (or one that came already) ends the process at once, with
 * CLI_INTERRUPTED: for waits that no signal interrupts. */
void cli_stop_at_once(int on);

/* The exit code of a command whose result could not be written: rc is -errno of cli_write. */
int cli_exit_output(int rc);

/* The request as the options have it: scalars and lists. */
struct hearth_request cli_request(const struct cli_options *o);

/* Puts the grammar that was asked for into *text, followed by a 0; nothing without one. Returns
 * 0 or an exit code. */
int cli_grammar_read(const struct cli_options *o, struct buffer *text);

int cli_run(const struct cli_options *o);
int cli_chat(const struct cli_options *o);
int cli_replay(const struct cli_options *o);
int cli_tokenize(const struct cli_options *o);
int cli_detokenize(const struct cli_options *o);
int cli_status(const struct cli_options *o);
int cli_top(const struct cli_options *o);
int cli_models(const struct cli_options *o);
int cli_serve(const struct cli_options *o);
int cli_stop(const struct cli_options *o);
int cli_store(const struct cli_options *o);
int cli_doctor(const struct cli_options *o);

#endif
