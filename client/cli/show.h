/* show: an answer on its way to stdout, and on a terminal how far the prompt was read.
 *
 * stdout gets the text, or JSON events, and nothing else; a newline follows the text only on a
 * terminal, so that a pipe carries exactly the answer. One thread. */
#ifndef HEARTH_CLIENT_CLI_SHOW_H
#define HEARTH_CLIENT_CLI_SHOW_H

#include "client/cli/cli.h"

enum {
    SHOW_LOOK_MS = 250,     /* how often a wait checks that stdout is still read */
    SHOW_FAREWELL_MS = 1000 /* longest wait for the end of a cancelled request */
};

struct show {
    struct buffer line; /* one JSON event */
    int json;
    int is_terminal;    /* stdout */
    int shows_progress; /* stderr is a terminal */
    int progress_shown; /* a progress line is on the terminal */
    int ends_line;      /* the text so far ends with a newline, or needs none */
};

void show_open(struct show *s, int json);
void show_close(struct show *s);

/* Shows the line of progress on a prompt; removes it. */
void show_progress(struct show *s, const struct hearth_event *e);
void show_clear(struct show *s);

/* Writes what an event brings to stdout. Returns 0 or -errno. */
int show_event(struct show *s, const struct hearth_event *e);

/* Ends the text. */
void show_end(struct show *s);

/* Is the reader of stdout gone? */
int show_is_unread(void);

#endif
