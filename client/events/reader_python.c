/* reader_python: calls as Python has them: f(city="Paris", days=3). Each is given out when all of
 * it has come; its arguments become JSON.
 *
 * A quote that nothing of a call follows is part of its string, because LFM2.5's template writes
 * strings without escapes: f(text='it's'). */
#include "client/base/quote.h"
#include "client/base/utf8.h"
#include "client/events/reader_impl.h"

enum {
    NAME_MOST = 256,
    MOST_DEPTH = 64, /* brackets in each other */
    MOST_SPACE = 64  /* after a string, before what shows that it ended */
};

static const char spaces[] = " \t\r\n";

static bool is_one_of(char c, const char *these)
{
    return c && strchr(these, c);
}

size_t reader_python_key(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && (unsigned char)text[n] > ' ' && !is_one_of(text[n], "\"'()[]{}<>=,:;*\\#"))
        n++;
    return n;
}

/* ---- where a call ends ----------------------------------------------------------------------- */

/* What begins the string at `at`. */
static enum look begin_string(const char *at, size_t left, struct python_quote *ret)
{
    *ret = (struct python_quote){.sign = *at, .n = 1};
    if (left > 1 && at[1] != *at)
        return LOOK_YES;
    if (left < 3)
        return LOOK_MORE;
    ret->n = at[2] == *at ? 3 : 1;
    return LOOK_YES;
}

/* Is the quote at `at` the end of the string? Also before another string, which no call has. */
static enum look ends_string(const char *at, size_t left, struct python_quote q)
{
    size_t i = 1;
    while (q.n == 3 && i < 3 && i < left && at[i] == q.sign)
        i++;
    if (q.n == 3)
        return i == 3 ? LOOK_YES : i == left ? LOOK_MORE : LOOK_NO;
    while (i < left && i <= MOST_SPACE && is_one_of(at[i], spaces))
        i++;
    if (i > MOST_SPACE || i == left)
        return i > MOST_SPACE ? LOOK_NO : LOOK_MORE;
    return is_one_of(at[i], i > 1 ? ",)]}:\"'" : ",)]}:") ? LOOK_YES : LOOK_NO;
}

/* Goes over a character of a string, or its end. Returns how many bytes; 0: more has to come. */
static size_t pass_string(struct python_quote *q, const char *at, size_t left)
{
    const uint8_t n = q->n;
    if (*at == '\\')
        return left > 1 ? 2 : 0;
    enum look end = *at == q->sign ? ends_string(at, left, *q) : LOOK_NO;
    if (end != LOOK_YES)
        return end == LOOK_NO;
    q->n = 0;
    return n;
}

/* The same outside of strings. *ret: the call ends there, or is none. */
static size_t pass_plain(struct reader *p, const char *at, size_t left, enum look *ret)
{
    if (*at == '"' || *at == '\'') {
        enum look begin = begin_string(at, left, &p->quote);
        if (begin == LOOK_MORE)
            p->quote.n = 0;
        return p->quote.n;
    }
    if (*at == '<' || (is_one_of(*at, "([{") && ++p->depth > MOST_DEPTH))
        *ret = LOOK_NO;
    else if (is_one_of(*at, ")]}") && --p->depth == 0)
        *ret = LOOK_YES;
    return *ret != LOOK_NO;
}

/* Finds the bracket that closes the call's arguments. Returns LOOK_YES with p->looked after it;
 * LOOK_NO where no call has what stands there. */
static enum look find_end(struct reader *p)
{
    const char *text = reader_rest(p);
    enum look found = LOOK_MORE;
    for (size_t n = 1; n && found == LOOK_MORE && p->looked < reader_left(p); p->looked += n) {
        const char *at = text + p->looked;
        size_t left = reader_left(p) - p->looked;
        n = p->quote.n ? pass_string(&p->quote, at, left) : pass_plain(p, at, left, &found);
    }
    return found;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A cursor's text ends with the bracket that was found, so it has no more than MOST_DEPTH of them. */

static bool read_value(struct cursor *r);

static bool sees(const struct cursor *r, const char *these)
{
    return r->at < r->end && is_one_of(*r->at, these);
}

/* Half of a surrogate pair alone is not a character. */
static void add_point(struct buffer *text, uint32_t point)
{
    char out[4];
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        point = UTF8_REPLACEMENT;
    buffer_add(text, out, utf8_put(point, out));
}

/* Takes a mark and this many digits of the base. */
static bool take_digits(struct cursor *r, const char *mark, size_t least, size_t most,
                        uint32_t base, uint32_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    const char *from = r->at, *found;
    size_t n = 0;
    *ret = 0;
    if (!cursor_take(r, mark))
        return false;
    for (; n < most && r->at < r->end && *r->at; n++, r->at++) {
        char c = *r->at >= 'A' && *r->at <= 'F' ? (char)(*r->at | 32) : *r->at;
        found = strchr(digits, c);
        if (!found || found - digits >= (ptrdiff_t)base)
            break;
        *ret = *ret * base + (uint32_t)(found - digits);
    }
    r->at = n < least ? from : r->at;
    return n >= least;
}

/* Takes \u with four digits, and the other half of a pair. */
static bool take_unit(struct cursor *r, uint32_t *ret)
{
    uint32_t low;
    if (!take_digits(r, "\\u", 4, 4, 16, ret))
        return false;
    const char *after = r->at;
    if (*ret >= 0xd800 && *ret < 0xdc00 && take_digits(r, "\\u", 4, 4, 16, &low) && low >= 0xdc00 &&
        low < 0xe000)
        *ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
    else
        r->at = after;
    return true;
}

/* Reads what begins with a backslash. Where Python knows no such escape it is a backslash. */
static void read_escape(struct cursor *r)
{
    static const char letters[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = r->end - r->at > 1 ? r->at[1] : 0, *known = c ? strchr(letters, c) : NULL;
    uint32_t point;
    if (known) {
        buffer_add(r->text, &means[known - letters], 1);
        r->at += 2;
    } else if (take_unit(r, &point) || take_digits(r, "\\U", 8, 8, 16, &point) ||
               take_digits(r, "\\x", 2, 2, 16, &point) || take_digits(r, "\\", 1, 3, 8, &point)) {
        add_point(r->text, point);
    } else if (!cursor_take(r, "\\\n")) { /* a line that goes on */
        buffer_add(r->text, r->at++, 1);
    }
}

static bool read_string(struct cursor *r)
{
    struct python_quote q;
    if (!sees(r, "\"'"))
        return false;
    (void)begin_string(r->at, (size_t)(r->end - r->at), &q);
    r->at += q.n;
    buffer_drop(r->text, r->text->bytes);
    while (r->at < r->end) {
        size_t left = (size_t)(r->end - r->at);
        if (*r->at == q.sign && ends_string(r->at, left, q) == LOOK_YES) {
            r->at += q.n;
            quote_text(r->out, r->text->bytes ? r->text->data : "", r->text->bytes);
            return true;
        }
        if (*r->at == '\\')
            read_escape(r);
        else
            buffer_add(r->text, r->at++, 1);
    }
    return false;
}

/* Digits, between which Python has "_". Returns how many. */
static size_t read_digits(struct cursor *r)
{
    size_t n = 0;
    for (; sees(r, "0123456789") || (n && sees(r, "_")); r->at++) {
        if (*r->at == '_')
            continue;
        buffer_add(r->out, r->at, 1);
        n++;
    }
    return n;
}

/* Reads a number: +1, 1_000, .5 and 5. are none of JSON's. */
static bool read_number(struct cursor *r)
{
    buffer_text(r->out, cursor_take(r, "-") ? "-" : "");
    (void)cursor_take(r, "+");
    const bool zero = sees(r, "0");
    size_t whole = read_digits(r), part = 0;
    if (zero && whole > 1)
        return false;
    if (sees(r, ".")) {
        buffer_text(r->out, whole ? "." : "0.");
        r->at++;
        part = read_digits(r);
        buffer_text(r->out, part ? "" : "0");
    }
    if (whole + part == 0)
        return false;
    if (!cursor_take(r, "e") && !cursor_take(r, "E"))
        return true;
    buffer_text(r->out, cursor_take(r, "-") ? "e-" : "e");
    (void)cursor_take(r, "+");
    return read_digits(r) > 0;
}

/* Reads what follows the bracket that opens a list, or an object: a value has a key there. */
static bool read_items(struct cursor *r, const char *open, const char *close)
{
    buffer_text(r->out, open);
    for (const char *comma = "";; comma = ", ") {
        cursor_skip_space(r);
        if (cursor_take(r, close))
            break;
        buffer_text(r->out, comma);
        if (*open == '{') {
            if (!read_string(r))
                return false;
            cursor_skip_space(r);
            if (!cursor_take(r, ":"))
                return false;
            buffer_text(r->out, ": ");
        }
        if (!read_value(r))
            return false;
        cursor_skip_space(r);
        if (!cursor_take(r, ",") && !sees(r, close))
            return false;
    }
    buffer_text(r->out, close);
    return true;
}

static bool read_value(struct cursor *r)
{
    static const struct {
        const char *python, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                 {"true", "true"}, {"false", "false"}, {"null", "null"}};
    cursor_skip_space(r);
    if (sees(r, "\"'"))
        return read_string(r);
    if (cursor_take(r, "["))
        return read_items(r, "[", "]");
    if (cursor_take(r, "{"))
        return read_items(r, "{", "}");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (cursor_take(r, words[i].python)) {
            buffer_text(r->out, words[i].json);
            return true;
        }
    return read_number(r);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static const char malformed[] = "a call's arguments are not as Python writes them";
static const char nameless[] =
    "a call's arguments have no names, and the tool's schema does not say which they are";

/* The names of arguments by their place. */
struct places {
    const char *name[32];
    size_t bytes[32], n;
};

static bool is_required(const json_t *parameters, const char *key)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(parameters, "required"), i, item) {
        if (json_is_string(item) && strcmp(json_string_value(item), key) == 0)
            return true;
    }
    return false;
}

/* As in Python none that is required follows one that is not: else the schema does not say which they
 * are; nor does one that has so many that looking for each would take long. */
static void find_places(const json_t *parameters, struct places *ret)
{
    enum { MOST = sizeof(ret->name) / sizeof(ret->name[0]) };
    json_t *properties = json_object_get(parameters, "properties"), *schema;
    const char *key;
    bool optional = false;
    ret->n = 0;
    if (json_object_size(properties) > MOST ||
        json_array_size(json_object_get(parameters, "required")) > MOST)
        return;
    json_object_foreach(properties, key, schema) {
        const bool required = is_required(parameters, key);
        if (required && optional) {
            ret->n = 0;
            return;
        }
        optional |= !required;
        ret->name[ret->n] = key;
        ret->bytes[ret->n++] = strlen(key);
    }
}

/* A key, and what follows it up to the value; false: none stands here. */
static bool read_key(struct cursor *r, const char **ret, size_t *ret_bytes)
{
    const char *from = r->at;
    *ret_bytes = reader_python_key(from, (size_t)(r->end - from));
    *ret = from;
    r->at += *ret_bytes;
    cursor_skip_space(r);
    if (*ret_bytes && cursor_take(r, "=") && !sees(r, "="))
        return true;
    r->at = from;
    return false;
}

/* Is a key the name of one of the `given` arguments that have no key? */
static bool is_given(const struct places *places, size_t given, const char *key, size_t bytes)
{
    for (size_t i = 0; i < given; i++)
        if (places->bytes[i] == bytes && memcmp(places->name[i], key, bytes) == 0)
            return true;
    return false;
}

/* Reads the members of **{...}, into the object around them. */
static bool read_unpacked(struct cursor *r)
{
    size_t from = r->out->bytes;
    cursor_skip_space(r);
    if (!cursor_take(r, "{") || !read_items(r, "{", "}") || r->out->failed)
        return false;
    r->out->bytes -= 2;
    memmove(r->out->data + from, r->out->data + from + 1, r->out->bytes - from);
    return true;
}

/* Reads one argument after `given` that have no key. Returns NULL, or why it is none. */
static const char *read_argument(struct cursor *r, const struct places *places, size_t *given,
                                 bool *named)
{
    const char *key;
    size_t bytes;
    if (cursor_take(r, "**")) {
        *named = true;
        return read_unpacked(r) ? NULL : malformed;
    }
    if (read_key(r, &key, &bytes)) {
        *named = true;
        if (is_given(places, *given, key, bytes))
            return malformed;
    } else {
        const bool has_name = *given < places->n;
        if (!has_name || *named)
            return !read_value(r) || has_name ? malformed : nameless;
        key = places->name[*given];
        bytes = places->bytes[(*given)++];
    }
    quote_text(r->out, key, bytes);
    buffer_text(r->out, ": ");
    return read_value(r) ? NULL : malformed;
}

/* Reads arguments up to the bracket after them. Returns NULL, or why they are none. */
static const char *read_arguments(struct cursor *r, const json_t *parameters)
{
    struct places places;
    size_t given = 0;
    bool named = false;
    const char *fault = NULL;
    find_places(parameters, &places);
    buffer_text(r->out, "{");
    for (cursor_skip_space(r); !fault && !cursor_take(r, ")"); cursor_skip_space(r)) {
        size_t before = r->out->bytes, from;
        buffer_text(r->out, before > 1 ? ", " : "");
        from = r->out->bytes;
        fault = read_argument(r, &places, &given, &named);
        if (r->out->bytes == from) /* **{} */
            r->out->bytes = before;
        cursor_skip_space(r);
        if (!fault && !cursor_take(r, ",") && !sees(r, ")"))
            fault = malformed;
    }
    buffer_text(r->out, "}");
    return fault || r->at == r->end ? fault : malformed;
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool reader_step_python_name(struct reader *p)
{
    const char *text = reader_rest(p), *fault;
    size_t left = reader_left(p), end = 0, n;
    while (end < left && end < NAME_MOST && !is_one_of(text[end], "\"'()[]{}<>=,;"))
        end++;
    if (end == left && end < NAME_MOST && !p->ended)
        return false;
    if (end == left || text[end] != '(') {
        static const char begins[] = "a call does not begin as the model's template writes it";
        reader_break(p, end == left ? reader_cut_off
                                    : reader_or_cut_off(p, begins, &p->desc.form->close, 1));
        return true;
    }
    for (n = end; n && is_one_of(text[n - 1], spaces);)
        n--;
    fault = reader_name_fault(p, text, n);
    if (fault) {
        reader_break(p, fault);
        return true;
    }
    buffer_drop(&p->name, p->name.bytes);
    buffer_add(&p->name, text, n);
    p->at += end + 1;
    p->looked = 0;
    p->quote.n = 0;
    p->depth = 1;
    p->state = STATE_PYTHON;
    return true;
}

bool reader_step_python(struct reader *p)
{
    const char *close = p->desc.form->close;
    enum look found = find_end(p);
    p->mark_end =
        p->at + p->looked; /* if it is not a call, all is content: no part is read again */
    if (found == LOOK_MORE && !p->ended)
        return false;
    if (found != LOOK_YES) {
        bool broken = found == LOOK_NO ||
                      memmem(reader_rest(p), reader_left(p), close, strlen(close)) != NULL;
        reader_break(p, broken ? malformed : reader_cut_off);
        return true;
    }
    struct cursor r = {.at = reader_rest(p),
                       .end = reader_rest(p) + p->looked,
                       .out = &p->given,
                       .text = &p->word};
    buffer_drop(&p->given, p->given.bytes);
    const json_t *tool = reader_find_tool(p, p->name.data, p->name.bytes);
    const char *fault = read_arguments(&r, json_object_get(tool, "parameters"));
    if (fault) {
        reader_break(p, fault);
        return true;
    }
    reader_begin_call(p, p->name.data, p->name.bytes);
    reader_emit(p, READER_ARGUMENTS, p->given.data, p->given.bytes);
    reader_end_call(p);
    p->at += p->looked;
    p->state = STATE_BETWEEN;
    return true;
}
