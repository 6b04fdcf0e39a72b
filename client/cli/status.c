/* status: `hearth status`: the daemon's counters, as JSON or as a table.
 *
 * The table is made from the JSON that the daemon sends, a line per member, so a counter that is
 * new in the daemon needs no change here; an object in an array (a slot) is one line. */
#include "client/base/printable.h"
#include "client/cli/cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_COLUMNS = 24, NAME_BYTES = 256 };

/* Adds a text; what controls a terminal becomes '?'. */
static void add_masked(struct buffer *out, const char *text)
{
    size_t at = out->bytes;
    buffer_text(out, text);
    buffer_add(out, "", 1);
    if (out->failed)
        return;
    printable_mask(out->data + at);
    out->bytes--;
}

static void add_name(struct buffer *out, const char *name)
{
    size_t end = out->bytes + NAME_COLUMNS;
    add_masked(out, name);
    while (out->bytes < end && !out->failed)
        buffer_add(out, " ", 1);
}

/* Adds a blank and the value. */
static void add_value(struct buffer *out, const json_t *value)
{
    const char *text = json_string_value(value);
    char *other = text ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    buffer_text(out, " ");
    add_masked(out, text ? text : other ? other : "");
    out->failed |= !text && !other;
    free(other);
}

/* Adds an item of an array; of an object, its members one after the other. */
static void add_item(struct buffer *out, const char *name, json_t *item)
{
    const char *member;
    json_t *value;
    add_name(out, name);
    if (!json_is_object(item))
        add_value(out, item);
    json_object_foreach(item, member, value) {
        buffer_text(out, " ");
        add_masked(out, member);
        add_value(out, value);
    }
    buffer_text(out, "\n");
}

static void add_items(struct buffer *out, const char *name, const json_t *array)
{
    size_t i;
    json_t *item;
    char numbered[NAME_BYTES + 24];
    json_array_foreach(array, i, item) {
        snprintf(numbered, sizeof(numbered), "%s.%zu", name, i);
        add_item(out, numbered, item);
    }
    if (json_array_size(array))
        return;
    add_name(out, name);
    buffer_text(out, " none\n");
}

/* Lines of an object's members; `of` is its own name and a dot, or "". */
static void add_members(struct buffer *out, const char *of, json_t *object)
{
    const char *member;
    json_t *value;
    json_object_foreach(object, member, value) {
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "%s%s%s", of, member, json_is_object(value) ? "." : "");
        if (json_is_object(value))
            add_members(out, name, value);
        else if (json_is_array(value))
            add_items(out, name, value);
        else {
            add_name(out, name);
            add_value(out, value);
            buffer_text(out, "\n");
        }
    }
}

/* The object for a program, on one line: what is not ASCII is escaped, as it may be a terminal that
 * shows it. */
static void add_json(struct buffer *out, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    buffer_text(out, text ? text : "");
    buffer_text(out, "\n");
    out->failed |= !text;
    free(text);
}

static int print_status(const struct cli_options *o, const char *json, size_t bytes)
{
    struct buffer out = {0};
    json_t *status = json_loadb(json, bytes, 0, NULL);
    if (json_is_object(status) && o->json) {
        add_json(&out, status);
    } else if (json_is_object(status)) {
        add_members(&out, "", status);
    } else { /* anything else is shown as it came, but nothing that controls a terminal */
        printable_add(&out, json, bytes, "\n");
        buffer_text(&out, bytes && json[bytes - 1] == '\n' ? "" : "\n");
    }
    json_decref(status);
    return cli_print(&out);
}

int cli_status(const struct cli_options *o)
{
    struct hearth *h;
    static char json[65536]; /* the most that the daemon sends */
    int code = cli_connect(o, 0, &h);
    if (code)
        return code;
    int64_t n = hearth_status(h, json, sizeof(json));
    if (n < 0)
        code = cli_fail(cli_exit_connect((int)n), "%s", hearth_error(h));
    else
        code = print_status(o, json, (size_t)n < sizeof(json) ? (size_t)n : sizeof(json) - 1);
    hearth_close(h);
    return code;
}
