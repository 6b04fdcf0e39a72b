#include "tests/cudasim/help.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int *help_device(const int *from, size_t n)
{
    void *memory;

    OK(cudaMalloc(&memory, n * sizeof(int)));
    if (from != NULL)
        OK(cudaMemcpy(memory, from, n * sizeof(int), cudaMemcpyHostToDevice));
    return memory;
}

void help_read(int *to, const int *device, size_t n)
{
    OK(cudaMemcpy(to, device, n * sizeof(int), cudaMemcpyDeviceToHost));
}

static void child(void (*function)(void), const int *pipes)
{
    (void)dup2(pipes[1], STDERR_FILENO);
    (void)signal(SIGABRT, SIG_DFL);
    function();
    (void)cudaDeviceSynchronize();
    _exit(0);
}

void help_reported(void (*function)(void), const char *texts)
{
    char output[2000] = "", wanted[400], *rest = wanted;
    int pipes[2], status;
    size_t n = 0;

    ck_assert_int_eq(pipe(pipes), 0);
    const pid_t pid = fork();
    if (pid == 0)
        child(function, pipes);
    (void)close(pipes[1]);
    for (ssize_t got = 1; got > 0 && n<sizeof(output) - 1; n += got> 0 ? (size_t)got : 0)
        got = read(pipes[0], output + n, sizeof(output) - 1 - n);
    (void)close(pipes[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "not reported; it said: %s",
                  output);
    (void)strncpy(wanted, texts, sizeof(wanted) - 1);
    wanted[sizeof(wanted) - 1] = '\0';
    for (char *text = strsep(&rest, "|"); text != NULL; text = strsep(&rest, "|"))
        ck_assert_msg(strstr(output, text) != NULL, "no \"%s\" in: %s", text, output);
    /* one line; a sanitizer may have printed a warning about the stack before it */
    const char *line = strstr(output, "cudasim: ");
    ck_assert_msg(line != NULL && strchr(line, '\n') == line + strlen(line) - 1, "not one line: %s",
                  output);
}
