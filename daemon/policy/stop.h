/*
 * stop: does the answer end here? Stop texts are matched over the bytes of accepted tokens.
 *
 * Pure state of one request, owned by its slot, used by the engine thread. The matcher keeps the
 * last bytes of the answer, at most the longest stop text less one, so a text that spans tokens is
 * found. Only accepted tokens are fed, so nothing is ever rolled back here. */
#ifndef HEARTH_DAEMON_POLICY_STOP_H
#define HEARTH_DAEMON_POLICY_STOP_H

#include <stdbool.h>
#include <stddef.h>

enum { STOP_TEXTS_MAX = 64, STOP_TEXT_BYTES_MAX = 256 };

struct stop_text {
    const char *bytes; /* [n_bytes], not terminated, may hold any byte */
    size_t n_bytes;    /* 1 .. STOP_TEXT_BYTES_MAX */
};

struct stop {
    const struct stop_text *texts; /* [n_texts], the caller's, must outlive the matcher */
    size_t n_texts;
    size_t longest;
    size_t n_tail;
    char tail[STOP_TEXT_BYTES_MAX]; /* last bytes of the answer so far */
};

void stop_init(struct stop *stop, const struct stop_text *texts, size_t n_texts);

/* Appends the bytes of one accepted token. Returns true when a stop text ends within them; the
 * answer then ends with this token. */
bool stop_feed(struct stop *stop, const char *bytes, size_t n_bytes);

#endif
