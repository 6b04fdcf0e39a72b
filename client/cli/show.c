/* show: see show.h. */
#include "client/cli/show.h"

#include "client/base/printable.h"
#include "client/cli/json.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

void show_open(struct show *s, int json)
{
    *s = (struct show){.json = json, .ends_line = 1};
    s->is_terminal = isatty(STDOUT_FILENO);
    s->shows_progress = isatty(STDERR_FILENO);
}

void show_close(struct show *s)
{
    buffer_fini(&s->line);
}

void show_progress(struct show *s, const struct hearth_event *e)
{
    if (!s->shows_progress || !e->total)
        return;
    s->line.bytes = 0;
    buffer_format(&s->line, "\r\033[Kreading the prompt: %u of %u tokens", e->done, e->total);
    (void)cli_write(STDERR_FILENO, s->line.data, s->line.bytes);
    s->progress_shown = 1;
}

void show_clear(struct show *s)
{
    if (s->progress_shown)
        (void)cli_write(STDERR_FILENO, "\r\033[K", 4);
    s->progress_shown = 0;
}

int show_event(struct show *s, const struct hearth_event *e)
{
    const char *data = e->text;
    size_t bytes = e->text_bytes;
    if (s->json) {
        s->line.bytes = 0;
        if (e->n_tokens || bytes)
            json_tokens_event(&s->line, e);
        if (e->result)
            json_done_event(&s->line, e->result);
        data = s->line.data;
        bytes = s->line.bytes;
        if (s->line.failed)
            return -ENOMEM;
    }
    if (!bytes)
        return 0;
    if (s->is_terminal && !s->json) {
        s->line.bytes = 0;
        printable_add(&s->line, data, bytes, "\n\t" PRINTABLE_IN_TEXT);
        data = s->line.data;
        bytes = s->line.bytes;
        if (s->line.failed)
            return -ENOMEM;
    }
    show_clear(s);
    s->ends_line = data[bytes - 1] == '\n';
    return cli_write(STDOUT_FILENO, data, bytes);
}

void show_end(struct show *s)
{
    if (s->is_terminal && !s->json && !s->ends_line)
        (void)cli_write(STDOUT_FILENO, "\n", 1);
}

int show_is_unread(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLNVAL));
}
