/* Prints a finding as one line and ends the process, since nothing after it would be reliable. */
#include "tests/cudasim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* "KERNEL block (x,y,z) thread (x,y,z): ", or nothing for host code. */
static int put_who(char *line, size_t bytes)
{
    const struct sim_kernel *kernel = sim_running();
    const struct cudasim_self *self = sim_current != NULL ? &sim_current->self : NULL;
    char name[160];

    if (kernel == NULL || self == NULL)
        return 0;
    sim_symbol_name(kernel->function, name, sizeof(name));
    return snprintf(line, bytes, "%s block (%u,%u,%u) thread (%u,%u,%u): ", name, self->block.x,
                    self->block.y, self->block.z, self->thread.x, self->thread.y, self->thread.z);
}

static int put_where(char *line, size_t bytes, const char *file, int at, const void *caller)
{
    char place[200];

    if (file != NULL)
        return snprintf(line, bytes, " (%s:%d)", file, at);
    if (caller != NULL && sim_symbol_line(caller, place, sizeof(place)))
        return snprintf(line, bytes, " (%s)", place);
    return 0;
}

void sim_report(const char *file, int line, const void *caller, const char *format, ...)
{
    char text[1200] = "cudasim: ";
    size_t at = 9;
    va_list list;

    at += (size_t)put_who(text + at, sizeof(text) - at);
    va_start(list, format);
    at += (size_t)vsnprintf(text + at, sizeof(text) - at, format, list);
    va_end(list);
    if (at < sizeof(text) - 2)
        at += (size_t)put_where(text + at, sizeof(text) - at, file, line, caller);
    if (at > sizeof(text) - 2)
        at = sizeof(text) - 2;
    text[at++] = '\n';
    (void)!write(STDERR_FILENO, text, at);
    abort();
}

void cudasim_trap(const char *text, const char *file, int line)
{
    sim_report(file, line, NULL, "%s", text);
}

void cudasim_misaligned(const void *address, unsigned alignment, const char *file, int line)
{
    if (sim_current != NULL)
        sim_report(file, line, NULL, "an access at %p, which is not aligned to %u bytes", address,
                   alignment);
}
