/* reader_harmony: gpt-oss's answers: messages, each with a header that says whom it is for.
 *
 *   <|channel|>analysis<|message|>thoughts<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>content<|return|>
 *
 * Source: https://cookbook.openai.com/articles/openai-harmony */
#include "client/events/reader_impl.h"

enum { HEADER_MOST = 512 };

static const char channel_mark[] = "<|channel|>", to_mark[] = "to=", functions[] = "functions.";

/* The word after the last such mark in a header; 0 bytes: none. */
static const char *word_after(const char *text, size_t bytes, const char *mark, size_t *ret_bytes)
{
    const char *at = NULL, *end = text + bytes, *next = text;
    *ret_bytes = 0;
    while ((next = memmem(next, (size_t)(end - next), mark, strlen(mark))) != NULL)
        at = next += strlen(mark);
    if (!at)
        return text;
    while (at + *ret_bytes < end && (!at[*ret_bytes] || !strchr(" \t\r\n<", at[*ret_bytes])))
        ++*ret_bytes;
    return at;
}

/* Is the message for a tool, not for a part of the conversation? */
static bool is_tool(const char *to, size_t bytes)
{
    static const char *const others[] = {"assistant", "user", "all"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (bytes == strlen(others[i]) && memcmp(to, others[i], bytes) == 0)
            return false;
    return bytes > 0;
}

/* Does an answer without a header stand here? */
static bool is_plain(const struct reader *p)
{
    static const char *const begins[] = {"<|channel|>", "<|start|>", "<|message|>", " to=", "to="};
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        if (reader_look(p, begins[i]) != LOOK_NO)
            return false;
    return reader_left(p) > 0;
}

static void begin_message(struct reader *p, enum reader_kind kind)
{
    p->message = kind;
    p->trims = false;
    p->scan = (struct json_scan){0};
    p->in_object = p->has_arguments = p->is_broken = false;
    p->is_marked = false;
    p->state = STATE_MESSAGE;
}

bool reader_step_header(struct reader *p)
{
    static const char *const message_mark = "<|message|>";
    const char *text = reader_rest(p);
    size_t end, bytes;
    if (!reader_left(p))
        return false;
    if (is_plain(p)) {
        begin_message(p, READER_CONTENT);
        return true;
    }
    enum look look = reader_find_within(p, HEADER_MOST, &message_mark, 1, &end);
    if (look == LOOK_MORE)
        return false;
    if (look ==
        LOOK_NO) { /* its first byte is content, whatever it may begin, and so is the rest */
        p->reason = p->reason ? p->reason : "a message has no end of its header";
        begin_message(p, READER_CONTENT);
        reader_emit(p, READER_CONTENT, text, 1);
        p->at++;
        return true;
    }
    const char *to = word_after(text, end, to_mark, &bytes);
    if (is_tool(to, bytes)) {
        size_t skip = bytes > strlen(functions) && memcmp(to, functions, strlen(functions)) == 0
                          ? strlen(functions)
                          : 0;
        const char *fault = reader_name_fault(p, to + skip, bytes - skip);
        begin_message(p, fault ? READER_CONTENT : READER_ARGUMENTS);
        if (fault) { /* its header is content, too: it has the name */
            p->reason = p->reason ? p->reason : fault;
            reader_emit(p, READER_CONTENT, text, end + strlen(message_mark));
        } else {
            reader_begin_call(p, to + skip, bytes - skip);
        }
        p->at += end + strlen(message_mark);
        return true;
    }
    const char *channel = word_after(text, end, channel_mark, &bytes);
    bool thinks = bytes == strlen("analysis") && memcmp(channel, "analysis", bytes) == 0;
    begin_message(p, thinks && p->desc.thoughts ? READER_THOUGHT : READER_CONTENT);
    p->at += end + strlen(message_mark);
    return true;
}

/* Arguments are an object of JSON up to the mark. */
static void emit_arguments(struct reader *p, size_t n)
{
    const char *text = reader_rest(p);
    for (size_t i = 0; i < n && !p->is_broken; i++) {
        enum json_scan_result result = JSON_BROKEN;
        const bool is_space = text[i] && strchr(" \t\r\n", text[i]);
        p->in_object |= text[i] == '{';
        if (p->in_object && !p->has_arguments)
            result = json_scan_byte(&p->scan, text[i]);
        else if (is_space)
            result = JSON_GOES_ON;
        p->has_arguments |= result == JSON_ENDS;
        p->is_broken = result == JSON_BROKEN || result == JSON_ENDED_BEFORE;
    }
    if (p->is_broken && !p->reason)
        p->reason = "a call's arguments are not a JSON object";
    reader_emit(p, READER_ARGUMENTS, text, n);
    p->at += n;
}

bool reader_step_message(struct reader *p)
{
    enum { START = 3, N_ENDS };
    static const char *const ends[N_ENDS] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    size_t left = reader_left(p), held = 0, mark = 0, which;
    size_t first = reader_find_first(p, left, ends, N_ENDS, &which);
    for (size_t i = 0; i < N_ENDS; i++) {
        size_t may = reader_may_begin(p, ends[i]);
        held = may > held ? may : held;
    }
    if (first < left && which != START) /* that one begins the next header */
        mark = strlen(ends[which]);
    size_t n = first < left ? first : left - held;
    if (p->message == READER_ARGUMENTS) {
        emit_arguments(p, n);
    } else {
        reader_emit(p, p->message, reader_rest(p), n);
        p->at += n;
    }
    if (first == left && !(p->ended && p->in_call))
        return false;
    if (p->in_call) {
        if (mark && !p->in_object && !p->is_broken) { /* an empty message */
            reader_emit(p, READER_ARGUMENTS, "{}", 2);
            p->has_arguments = true;
        }
        if (!p->has_arguments && !p->reason)
            p->reason = reader_cut_off;
        reader_end_call(p);
    }
    p->at += mark;
    p->state = STATE_HEADER;
    return first < left;
}
