/* chat_reader: hearth_chat_open() and what follows it: the reader of an answer, for callers. */
#include "client/prompt/chat_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MARKS = 32 };

struct hearth_chat_reader {
    struct reader_desc desc; /* its tools are those below */
    struct reader *core;
    json_t *tools;
    uint32_t marks[MOST_MARKS], n_marks;
};

int hearth_chat_open(struct hearth *h, const struct hearth_chat *chat,
                     struct hearth_chat_reader **ret_reader)
{
    struct chat c = {0};
    struct hearth_chat least;
    *ret_reader = NULL;
    int rc = handle_check(h);
    if (!rc && chat->size < sizeof(chat->size))
        rc = handle_fail(h, -EINVAL, "set the chat up with hearth_chat_init()");
    if (rc)
        return rc;
    /* An answer's form does not depend on the messages, which are long. */
    hearth_chat_init(&least, sizeof(least));
    memcpy(&least, chat, chat->size < sizeof(least) ? chat->size : sizeof(least));
    least.size = sizeof(least);
    least.messages = CHAT_FORM_ASKED;
    least.messages_bytes = strlen(least.messages);
    rc = chat_init(h, &least, &c);
    if (!rc && json_array_size(c.tools) && !chat_form_has_tools(&c))
        rc = handle_fail(h, -ENOTSUP,
                         "the model's chat template does not write tools, so the model would not "
                         "see them: use a model or a template that does, or leave 'tools' out");
    if (!rc && (c.choice == HEARTH_TOOLS_REQUIRED || c.single_call || c.thinking_tokens >= 0))
        rc = handle_fail(h, -ENOTSUP,
                         "tool_choice, single_call and thinking_tokens are not bound yet: leave "
                         "them out");
    struct hearth_chat_reader *reader = rc ? NULL : calloc(1, sizeof(*reader));
    if (reader) {
        chat_form_find(&c, &reader->desc);
        reader->n_marks = chat_form_marks(&c, &reader->desc, reader->marks, MOST_MARKS);
        reader->n_marks = reader->n_marks < MOST_MARKS ? reader->n_marks : MOST_MARKS;
        reader->tools = json_incref(c.tools);
        reader->core = reader_open(&reader->desc);
    }
    chat_fini(&c);
    if (rc)
        return rc;
    if (!reader || !reader->core) {
        hearth_chat_close(reader);
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    }
    *ret_reader = reader;
    return 0;
}

int hearth_chat_another(const struct hearth_chat_reader *reader,
                        struct hearth_chat_reader **ret_reader)
{
    struct hearth_chat_reader *other = malloc(sizeof(*other));
    *ret_reader = NULL;
    if (!other)
        return -ENOMEM;
    *other = *reader;
    json_incref(other->tools);
    other->core = reader_open(&other->desc);
    if (!other->core) {
        hearth_chat_close(other);
        return -ENOMEM;
    }
    *ret_reader = other;
    return 0;
}

void hearth_chat_close(struct hearth_chat_reader *reader)
{
    if (!reader)
        return;
    reader_close(reader->core);
    json_decref(reader->tools);
    free(reader);
}

const uint32_t *hearth_chat_marks(const struct hearth_chat_reader *reader, uint32_t *ret_n)
{
    *ret_n = reader->n_marks;
    return reader->marks;
}

int hearth_chat_request(const struct hearth_chat_reader *reader, struct hearth_request *request)
{
    request->shown_tokens = reader->marks;
    request->n_shown_tokens = reader->n_marks;
    return 0;
}

int hearth_chat_feed(struct hearth_chat_reader *reader, const char *text, size_t bytes, int end)
{
    int rc = reader_feed(reader->core, text, bytes);
    return rc || !end ? rc : reader_finish(reader->core);
}

int hearth_chat_next(struct hearth_chat_reader *reader, struct hearth_chat_event *event)
{
    static const uint32_t kinds[] = {[READER_CONTENT] = HEARTH_CHAT_CONTENT,
                                     [READER_THOUGHT] = HEARTH_CHAT_REASONING,
                                     [READER_CALL] = HEARTH_CHAT_CALL,
                                     [READER_ARGUMENTS] = HEARTH_CHAT_ARGUMENTS,
                                     [READER_CALL_END] = HEARTH_CHAT_CALL_END};
    struct reader_event e;
    if (!reader_next(reader->core, &e))
        return 0;
    const struct hearth_chat_event all = {.size = event->size,
                                          .kind = kinds[e.kind],
                                          .call = e.call,
                                          .text = e.text,
                                          .text_bytes = e.bytes};
    memcpy(event, &all, event->size < sizeof(all) ? event->size : sizeof(all));
    return 1;
}

const char *hearth_chat_unparsed(const struct hearth_chat_reader *reader)
{
    return reader_reason(reader->core);
}
