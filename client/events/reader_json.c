/* reader_json: calls that are JSON objects, and arguments that are. */
#include "client/events/reader_impl.h"

/* Reads one JSON value of the rest, as far as it has come. Returns how many bytes of the rest are
 * part of it; *ret says whether it ends there. */
static size_t scan(struct reader *p, enum json_scan_result *ret)
{
    size_t n = 0, left = reader_left(p);
    *ret = JSON_GOES_ON;
    while (n < left && *ret == JSON_GOES_ON)
        *ret = json_scan_byte(&p->scan, reader_rest(p)[n++]);
    if (*ret == JSON_BROKEN || *ret == JSON_ENDED_BEFORE)
        n--;
    return n;
}

/* Collects one JSON value in p->word. Returns 1: complete; 0: more is needed; -1: not JSON. */
static int collect(struct reader *p)
{
    enum json_scan_result result;
    size_t n = scan(p, &result);
    buffer_add(&p->word, reader_rest(p), n);
    p->at += n;
    return result == JSON_BROKEN ? -1 : result != JSON_GOES_ON;
}

static void begin_value(struct reader *p, enum reader_state state)
{
    buffer_drop(&p->word, p->word.bytes);
    p->scan = (struct json_scan){0};
    p->state = state;
}

static json_t *decoded(const struct buffer *word)
{
    return json_loadb(word->data, word->bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* The text of a JSON string that was collected; "" where it is something else. */
static void take_string(const struct buffer *word, struct buffer *to)
{
    json_t *s = decoded(word);
    buffer_drop(to, to->bytes);
    if (json_is_string(s))
        buffer_add(to, json_string_value(s), json_string_length(s));
    json_decref(s);
}

/* ---- arguments ------------------------------------------------------------------------------- */

bool reader_step_arguments(struct reader *p)
{
    enum json_scan_result result;
    if (!p->scan.depth)
        reader_skip_space(p);
    if (!reader_left(p))
        return false;
    if (!p->scan.depth && *reader_rest(p) != '{') {
        reader_break(p, "a call's arguments are not a JSON object");
        return true;
    }
    size_t n = scan(p, &result);
    reader_emit(p, READER_ARGUMENTS, reader_rest(p), n);
    p->at += n;
    if (result == JSON_BROKEN)
        reader_break(p, "a call's arguments are not JSON");
    else if (result != JSON_GOES_ON)
        p->state = p->desc.form->body == CALL_JSON ? STATE_MEMBER : STATE_AFTER;
    return result != JSON_GOES_ON;
}

/* Is it an object of JSON, also one with numbers or halves of characters that jansson does not
 * hold? */
static bool is_object(const struct buffer *text)
{
    static const char spaces[] = " \t\r\n";
    struct json_scan s = {0};
    enum json_scan_result result = JSON_GOES_ON;
    size_t i = text->bytes ? strspn(text->data, spaces) : 0;
    if (i == text->bytes || text->data[i] != '{')
        return false;
    while (i < text->bytes && result == JSON_GOES_ON)
        result = json_scan_byte(&s, text->data[i++]);
    return result == JSON_ENDS && i + strspn(text->data + i, spaces) == text->bytes;
}

/* Takes arguments that came before the name, or as the text of an object. Returns whether they are
 * an object or absent. */
static bool given_object(struct reader *p)
{
    json_t *value = p->given.bytes ? decoded(&p->given) : NULL;
    if (json_is_string(value)) {
        buffer_drop(&p->given, p->given.bytes);
        buffer_add(&p->given, json_string_value(value), json_string_length(value));
        json_decref(value);
        value = p->given.bytes ? decoded(&p->given) : NULL;
    }
    bool none = !p->given.bytes || json_is_null(value);
    json_decref(value);
    if (none) {
        buffer_drop(&p->given, p->given.bytes);
        buffer_text(&p->given, "{}");
    }
    return none || is_object(&p->given);
}

/* ---- the object of a call -------------------------------------------------------------------- */

static void end_object(struct reader *p)
{
    p->at++;
    if (!p->in_call) {
        const char *fault = reader_name_fault(p, p->name.data ? p->name.data : "", p->name.bytes);
        if (fault) {
            reader_break(p, fault);
            return;
        }
        if (!given_object(p)) {
            reader_break(p, "a call's arguments are not a JSON object");
            return;
        }
        reader_begin_call(p, p->name.data, p->name.bytes);
        reader_emit(p, READER_ARGUMENTS, p->given.data, p->given.bytes);
    }
    reader_end_call(p);
    p->state = STATE_BETWEEN;
}

/* A comma too many before the end is forgiven. */
bool reader_step_member(struct reader *p)
{
    reader_skip_space(p);
    if (!reader_left(p))
        return false;
    char c = *reader_rest(p);
    if (c == '}') {
        end_object(p);
    } else if (c == ',' && !p->is_first) {
        p->at++;
        p->is_first = true;
    } else if (c == '"' && p->is_first) {
        p->is_first = false;
        begin_value(p, STATE_KEY);
    } else {
        reader_break(p, "a call is not JSON");
    }
    return true;
}

bool reader_step_key(struct reader *p)
{
    int done = collect(p);
    if (done < 0)
        reader_break(p, "a call is not JSON");
    else if (done > 0)
        p->state = STATE_COLON;
    return done != 0;
}

bool reader_step_colon(struct reader *p)
{
    static const struct {
        const char *key;
        enum call_member member;
    } known[] = {{"\"name\"", MEMBER_NAME},
                 {"\"tool_name\"", MEMBER_NAME},
                 {"\"arguments\"", MEMBER_ARGUMENTS},
                 {"\"parameters\"", MEMBER_ARGUMENTS}};
    reader_skip_space(p);
    if (!reader_left(p))
        return false;
    if (*reader_rest(p) != ':') {
        reader_break(p, "a call is not JSON");
        return true;
    }
    p->at++;
    p->member = MEMBER_OTHER;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (p->word.bytes == strlen(known[i].key) &&
            memcmp(p->word.data, known[i].key, p->word.bytes) == 0)
            p->member = known[i].member;
    begin_value(p, STATE_MEMBER_VALUE);
    return true;
}

bool reader_step_member_value(struct reader *p)
{
    if (!p->word.bytes) {
        reader_skip_space(p);
        if (!reader_left(p))
            return false;
        bool named = !reader_name_fault(p, p->name.data ? p->name.data : "", p->name.bytes);
        if (p->member == MEMBER_ARGUMENTS && named && !p->in_call && !p->has_arguments &&
            *reader_rest(p) == '{') {
            p->has_arguments = true;
            reader_begin_call(p, p->name.data, p->name.bytes);
            p->state = STATE_ARGUMENTS;
            return true;
        }
    }
    int done = collect(p);
    if (done < 0)
        reader_break(p, "a call is not JSON");
    if (done <= 0)
        return done < 0;
    if (p->member == MEMBER_NAME && !p->in_call)
        take_string(&p->word, &p->name);
    else if (p->member == MEMBER_ARGUMENTS && !p->in_call) {
        buffer_drop(&p->given, p->given.bytes);
        buffer_add(&p->given, p->word.data, p->word.bytes);
    }
    p->state = STATE_MEMBER;
    return true;
}
