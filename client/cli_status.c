/* cli_status.c - `hearth status`: the daemon's counters, as JSON or as a table.
 *
 * The table is made from the JSON that the daemon sends, a line per member, so a counter that is
 * new in the daemon needs no change here; an object in an array (a slot) is one line.
 */
#include "client/cli.h"
#include "client/cli_json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 16, NAME_MAX_BYTES = 256 };

/* Where the walk through the JSON text stands. The text is our daemon's, but nothing here relies on
 * that. */
struct walk {
    const char *p, *end;
    char name[NAME_MAX_BYTES]; /* of the member, with the names of what holds it: "engine.passes" */
    size_t name_bytes;
    size_t
        row; /* within an object of an array, which is one line: where its members' names begin */
};

static void skip_blanks(struct walk *w)
{
    while (w->p < w->end && strchr(" \t\r\n", *w->p) && *w->p)
        w->p++;
}

/* The inside of a string, p behind the first quote; moves p behind the last one. */
static size_t skip_string(struct walk *w)
{
    const char *start = w->p;
    while (w->p < w->end && *w->p != '"')
        w->p += *w->p == '\\' && w->p + 1 < w->end ? 2 : 1;
    size_t bytes = (size_t)(w->p - start);
    if (w->p < w->end)
        w->p++;
    return bytes;
}

static void add_name(const struct walk *w, struct cli_buffer *out)
{
    cli_buffer_add(out, w->name, w->name_bytes);
    for (size_t i = w->name_bytes; i < 24; i++)
        cli_buffer_add(out, " ", 1);
}

/* A member's line; or within a row "name value" behind what is there. */
static void add_value(const struct walk *w, struct cli_buffer *out, const char *value, size_t bytes)
{
    if (w->row) {
        cli_buffer_add(out, " ", 1);
        if (w->name_bytes > w->row) /* names end where there is no room for more */
            cli_buffer_add(out, w->name + w->row, w->name_bytes - w->row);
    } else {
        add_name(w, out);
    }
    cli_buffer_add(out, " ", 1);
    cli_buffer_add(out, value, bytes);
    if (!w->row)
        cli_buffer_add(out, "\n", 1);
}

static int walk_value(struct walk *w, struct cli_buffer *out, int depth);

/* An item of an array: an object is one line. */
static int walk_item(struct walk *w, struct cli_buffer *out, int depth)
{
    skip_blanks(w);
    if (w->row || w->p == w->end || *w->p != '{')
        return walk_value(w, out, depth);
    add_name(w, out);
    w->row = w->name_bytes + 1;
    int rc = walk_value(w, out, depth);
    w->row = 0;
    cli_buffer_add(out, "\n", 1);
    return rc;
}

/* Puts ".name" behind the names so far. Returns how many bytes there were. */
static size_t push_name(struct walk *w, const char *name, size_t bytes)
{
    size_t before = w->name_bytes;
    if (before && before + 1 < sizeof w->name)
        w->name[w->name_bytes++] = '.';
    if (bytes > sizeof w->name - w->name_bytes)
        bytes = sizeof w->name - w->name_bytes;
    memcpy(w->name + w->name_bytes, name, bytes);
    w->name_bytes += bytes;
    return before;
}

/* Members of an object or items of an array, p behind the bracket. Items are named by their number.
 */
static int walk_members(struct walk *w, struct cli_buffer *out, int depth, char close)
{
    for (unsigned item = 0;; item++) {
        skip_blanks(w);
        if (w->p == w->end)
            return -EBADMSG;
        if (*w->p == close) {
            w->p++;
            if (!item && close == ']')
                add_value(w, out, "none", 4);
            return 0;
        }
        char number[12];
        const char *name;
        size_t bytes = 0;
        if (close == '}') {
            if (*w->p++ != '"')
                return -EBADMSG;
            name = w->p;
            bytes = skip_string(w);
            skip_blanks(w);
            if (w->p == w->end || *w->p++ != ':')
                return -EBADMSG;
        } else {
            unsigned n = item;
            do
                number[sizeof number - ++bytes] = (char)('0' + n % 10);
            while (n /= 10);
            name = number + sizeof number - bytes;
        }
        size_t before = push_name(w, name, bytes);
        int rc = close == ']' ? walk_item(w, out, depth + 1) : walk_value(w, out, depth + 1);
        w->name_bytes = before;
        if (rc)
            return rc;
        skip_blanks(w);
        if (w->p < w->end && *w->p == ',')
            w->p++;
    }
}

static int walk_value(struct walk *w, struct cli_buffer *out, int depth)
{
    skip_blanks(w);
    if (w->p == w->end || depth > DEPTH_MAX)
        return -EBADMSG;
    char c = *w->p;
    if (c == '{' || c == '[') {
        w->p++;
        return walk_members(w, out, depth, c == '{' ? '}' : ']');
    }
    const char *start = w->p;
    if (c == '"') {
        w->p++;
        start = w->p;
        add_value(w, out, start, skip_string(w));
        return 0;
    }
    while (w->p < w->end && !strchr(",]} \t\r\n", *w->p))
        w->p++;
    add_value(w, out, start, (size_t)(w->p - start));
    return w->p == start ? -EBADMSG : 0;
}

static int print_status(const struct cli_options *o, const char *json, size_t bytes)
{
    struct cli_buffer out = {0};
    struct walk w = {.p = json, .end = json + bytes};
    if (o->json || walk_value(&w, &out, 0)) { /* what is no table is shown as it came */
        out.bytes = 0;
        cli_buffer_add(&out, json, bytes);
        cli_buffer_text(&out, bytes && json[bytes - 1] == '\n' ? "" : "\n");
    }
    int code = out.failed ? cli_fail(CLI_SYSTEM, "out of memory: free some and try again")
                          : cli_exit_output(cli_write(STDOUT_FILENO, out.data, out.bytes));
    cli_buffer_fini(&out);
    return code;
}

int cli_status(const struct cli_options *o)
{
    struct hearth *h;
    static char json[65536]; /* the most that the daemon sends */
    int code = cli_connect(o, 0, &h);
    if (code)
        return code;
    int64_t n = hearth_status(h, json, sizeof json);
    if (n < 0)
        code = cli_fail(cli_exit_connect((int)n), "%s", hearth_error(h));
    else
        code = print_status(o, json, (size_t)n < sizeof json ? (size_t)n : sizeof json - 1);
    hearth_close(h);
    return code;
}
