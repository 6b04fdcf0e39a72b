/* stderr_pipe: see stderr_pipe.h. */
#include "tests/rig/stderr_pipe.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int out[2], before;
static char text[2 * STDERR_PIPE_BYTES];

void stderr_pipe_open(void)
{
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(out[1], F_SETPIPE_SZ, STDERR_PIPE_BYTES), STDERR_PIPE_BYTES);
    ck_assert_int_eq(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
    before = dup(STDERR_FILENO);
    dup2(out[1], STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
}

void stderr_pipe_close(void)
{
    dup2(before, STDERR_FILENO);
    close(before);
    close(out[0]);
    close(out[1]);
}

const char *stderr_pipe_read(void)
{
    ssize_t n = read(out[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = 0;
    return text;
}
