/* stderr_pipe: stderr is a pipe for as long as a test lasts, whose writers wait and whose reader does not. */
#ifndef HEARTH_TESTS_RIG_STDERR_PIPE_H
#define HEARTH_TESTS_RIG_STDERR_PIPE_H

enum { STDERR_PIPE_BYTES = 16384 };

/* A checked fixture. JOURNAL_STREAM is not set then. */
void stderr_pipe_open(void);
void stderr_pipe_close(void);

/* What was written since the last call; it stays until the next one. */
const char *stderr_pipe_read(void);

#endif
