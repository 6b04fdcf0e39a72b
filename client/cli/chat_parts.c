/* chat_parts: an answer that may call tools, in parts: see chat.h. */
#include "client/cli/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int chat_parts_open(struct chat_parts *p, struct hearth *h, const struct hearth_chat *chat,
                    struct hearth_request *request)
{
    *p = (struct chat_parts){.calls = json_array()};
    int rc = p->calls ? hearth_chat_open(h, chat, &p->reader) : -ENOMEM;
    if (rc == -ENOMEM)
        return cli_no_memory();
    if (rc)
        return cli_fail(CLI_BAD_INPUT, "%s", hearth_error(h));
    rc = hearth_chat_request(p->reader, request); /* no call is required */
    return rc ? cli_no_memory() : CLI_OK;
}

void chat_parts_close(struct chat_parts *p)
{
    hearth_chat_close(p->reader);
    buffer_fini(&p->content);
    buffer_fini(&p->thoughts);
    buffer_fini(&p->arguments);
    buffer_fini(&p->fresh);
    json_decref(p->calls);
}

/* Returns 0, or -1 without memory, as jansson does. */
static int begin_call(struct chat_parts *p, const struct hearth_chat_event *e)
{
    char id[16];
    snprintf(id, sizeof(id), "call%05u",
             e->call % 100000u); /* nine letters: all templates take it */
    buffer_drop(&p->arguments, p->arguments.bytes);
    return json_array_append_new(p->calls, json_pack("{s:s, s:s, s:{s:s%, s:s}}", "id", id, "type",
                                                     "function", "function", "name", e->text,
                                                     e->text_bytes, "arguments", ""));
}

static int end_call(struct chat_parts *p)
{
    json_t *call = json_array_get(p->calls, json_array_size(p->calls) - 1);
    return json_object_set_new(
        json_object_get(call, "function"), "arguments",
        json_stringn(p->arguments.data ? p->arguments.data : "", p->arguments.bytes));
}

int chat_parts_take(struct chat_parts *p, const struct hearth_event *e)
{
    struct hearth_chat_event part = {.size = sizeof(part)};
    buffer_drop(&p->fresh, p->fresh.bytes);
    if (hearth_chat_feed(p->reader, e->text, e->text_bytes, e->kind == HEARTH_DONE))
        return -ENOMEM;
    int rc = 0;
    while (!rc && hearth_chat_next(p->reader, &part)) {
        struct buffer *to[] = {[HEARTH_CHAT_CONTENT] = &p->fresh,
                               [HEARTH_CHAT_REASONING] = &p->thoughts,
                               [HEARTH_CHAT_ARGUMENTS] = &p->arguments,
                               [HEARTH_CHAT_CALL_END] = NULL};
        if (part.kind == HEARTH_CHAT_CALL)
            rc = begin_call(p, &part);
        else if (part.kind == HEARTH_CHAT_CALL_END)
            rc = end_call(p);
        else if (to[part.kind])
            buffer_add(to[part.kind], part.text, part.text_bytes);
    }
    buffer_add(&p->content, p->fresh.data, p->fresh.bytes);
    return rc || p->content.failed || p->thoughts.failed || p->arguments.failed || p->fresh.failed
               ? -ENOMEM
               : 0;
}

json_t *chat_parts_message(const struct chat_parts *p, int calls)
{
    json_t *m = json_pack("{s:s, s:s%}", "role", "assistant", "content",
                          p->content.data ? p->content.data : "", p->content.bytes);
    int rc = m ? 0 : -1;
    if (!rc && p->thoughts.bytes)
        rc = json_object_set_new(m, "reasoning_content",
                                 json_stringn(p->thoughts.data, p->thoughts.bytes));
    if (!rc && calls && json_array_size(p->calls))
        rc = json_object_set(m, "tool_calls", p->calls);
    if (!rc)
        return m;
    json_decref(m);
    return NULL;
}
