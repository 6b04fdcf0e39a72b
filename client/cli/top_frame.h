/* top_frame: two samples become a frame of `hearth top`. Pure. */
#ifndef HEARTH_CLIENT_CLI_TOP_FRAME_H
#define HEARTH_CLIENT_CLI_TOP_FRAME_H

#include "client/cli/cli.h"
#include "client/cli/top_sample.h"

/* A frame's size in characters and its looks. */
struct top_screen {
    uint32_t rows, columns; /* 0: unlimited */
    int colours;
    int live; /* on a terminal: every line clears the rest of its row */
};

/* Draws `now`; rates are those since `before` (NULL: none are known). `trouble`: a message
 * in place of the totals of requests, or NULL. */
void top_frame(const struct top_sample *now, const struct top_sample *before, const char *trouble,
               const struct top_screen *screen, struct buffer *out);

/* One of several daemons. */
struct top_row {
    const char *name;                      /* of its socket */
    const char *trouble;                   /* why the last sample failed, or NULL */
    const struct top_sample *now, *before; /* now->at_ns 0: there is none; before NULL: none */
};

/* Draws all of them: a line for each, and their slots, the busy ones first. */
void top_overview(const struct top_row *rows, size_t n, const struct top_screen *screen,
                  struct buffer *out);

#endif
