/* signals.c: a handler that only writes to an eventfd, so it works on whichever thread it
 * interrupts, and whatever signal masks the threads of a GPU driver have. */
#include "daemon/control/signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int signals_fd = -1;

static void signals_on(int number)
{
    static const uint64_t one = 1;
    int saved = errno;
    (void)number;
    /* The eventfd is full only when it is readable anyway. */
    if (write(signals_fd, &one, sizeof(one)) < 0)
        errno = saved;
}

void signals_stop(void)
{
    signals_on(0);
}

int signals_open(void)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction action = {.sa_handler = signals_on, .sa_flags = SA_RESTART}, before;
    signals_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals_fd < 0)
        return -errno;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (sigaction(ends[i], NULL, &before) == 0 &&
            (ends[i] == SIGTERM || before.sa_handler != SIG_IGN))
            sigaction(ends[i], &action, NULL);
    return signals_fd;
}
