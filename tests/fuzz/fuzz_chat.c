/* Fuzzes the reader of answers: the first byte is the form of calls (family.h) and whether one ends a
 * thought, the second whether the prompt opened a thought and how large the pieces are, the rest is an
 * answer. Whole or in pieces it says the same, where no call is wanted there is none, arguments of a
 * call that is complete are JSON, and without a form all of it is content. */
#include <stdlib.h>
#include <string.h>

#include "client/events/reader.h"
#include "tests/fuzz/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] =
    "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\"},"
    "\"b\":{\"type\":[\"string\",\"null\"]}}}}]";

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* What it says, with a byte for each kind before its texts; adjacent texts of a kind are one. Returns how
 * many calls there are. */
static uint32_t say(const struct reader_desc *desc, const char *text, size_t bytes, size_t step,
                    struct buffer *out, const char **ret_reason)
{
    struct reader *r = reader_open(desc);
    struct reader_event e;
    int kind = -1;
    for (size_t at = 0; at <= bytes; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;
        check((n ? reader_feed(r, text + at, n) : reader_finish(r)) == 0);
        if (n == bytes - at && n)
            check(reader_finish(r) == 0);
        while (reader_next(r, &e)) {
            char mark = (char)('0' + e.kind);
            if ((int)e.kind != kind || e.kind == READER_CALL_END)
                buffer_add(out, &mark, 1);
            buffer_add(out, e.text, e.bytes);
            kind = (int)e.kind;
        }
        if (n == bytes - at)
            break;
    }
    *ret_reason = reader_reason(r);
    uint32_t calls = reader_calls(r);
    reader_close(r);
    return calls;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    static json_t *tools;
    const char *text = (const char *)data + 2, *whole_reason, *reason;
    size_t bytes = size - 2, step = 1u + (data[1] >> 1) % 13u;
    struct reader_desc desc = {.form = family_form(data[0] & 0x7f, n_call_forms + 1),
                               .thoughts = &thought_forms[data[1] % n_thought_forms],
                               .thinks = (data[1] & 1) != 0,
                               .calls_in_thoughts = data[0] >= 0x80};
    struct buffer whole = {0}, pieces = {0};
    if (!tools)
        tools = json_loads(tools_text, 0, NULL);
    desc.tools = tools;
    say(&desc, text, bytes, bytes ? bytes : 1, &whole, &whole_reason);
    say(&desc, text, bytes, step, &pieces, &reason);
    check(whole.bytes == pieces.bytes && whole_reason == reason);
    check(!whole.bytes || memcmp(whole.data, pieces.data, whole.bytes) == 0);
    buffer_fini(&whole);
    buffer_fini(&pieces);
    desc.no_calls = true;
    desc.calls_in_thoughts = false;
    check(say(&desc, text, bytes, step, &pieces, &reason) == 0);
    buffer_fini(&pieces);
    desc = (struct reader_desc){0};
    say(&desc, text, bytes, step, &pieces, &reason);
    check(pieces.bytes == (bytes ? bytes + 1 : 0) &&
          (!bytes || memcmp(pieces.data + 1, text, bytes) == 0) && !reason);
    buffer_fini(&pieces);
    return 0;
}
