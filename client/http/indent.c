/* indent: see indent.h. */
#include "client/http/indent.h"

bool indent_filter(struct indent *i, const char *bytes, size_t n, struct buffer *out)
{
    if (!i->least) {
        buffer_add(out, bytes, n);
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        char c = bytes[k];
        if (c == '\n') {
            i->holds = true;
            i->now = 0;
        }
        if (!i->holds) {
            buffer_add(out, &c, 1);
            continue;
        }
        if (c == '\n' || c == '\r' || c == ' ' || c == '\t') {
            i->now += c == ' ' || c == '\t';
            buffer_add(&i->held, &c, 1);
            continue;
        }
        if (i->now < i->least)
            return true;
        indent_finish(i, out);
        buffer_add(out, &c, 1);
    }
    return false;
}

void indent_finish(struct indent *i, struct buffer *out)
{
    buffer_add(out, i->held.data, i->held.bytes);
    i->held.bytes = 0;
    i->holds = false;
}

void indent_fini(struct indent *i)
{
    buffer_fini(&i->held);
}
