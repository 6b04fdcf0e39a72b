/* chat_talk: a conversation: messages, their tokens, answers.
 *
 * The slot keeps the KV of prompt and answer. A conversation that is rendered anew and tokenized
 * anew may cut the answer into other tokens than the model wrote, and all from there on would be
 * computed again. So where the new tokens spell what the slot holds and go on from there, the
 * slot's own ids stay, and only what was said since is new. */
#include "client/cli/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 4096 };

/* Adds a message. Returns 0 or an exit code. */
static int add_message(struct talk *t, const char *role, const char *text, size_t bytes)
{
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", text ? text : "", bytes);
    if (!m)
        return cli_fail(CLI_BAD_INPUT, "the text is not UTF-8: give UTF-8 text");
    return json_array_append_new(t->messages, m) ? cli_no_memory() : CLI_OK;
}

static void drop_last(struct talk *t)
{
    (void)json_array_remove(t->messages, json_array_size(t->messages) - 1);
}

int talk_reset(struct talk *t)
{
    const char *system = t->options->system;
    json_array_clear(t->messages);
    t->sequence.n = 0;
    return system ? add_message(t, "system", system, strlen(system)) : CLI_OK;
}

int talk_open(struct talk *t, const struct cli_options *o)
{
    *t = (struct talk){.options = o, .messages = json_array()};
    show_open(&t->show, o->json);
    int code = t->messages ? cli_connect(o, 1, &t->hearth) : cli_no_memory();
    if (!code && hearth_tokenize(t->hearth, "a", 1, 0, &t->anchor, 1) < 1)
        code = cli_fail(CLI_BAD_INPUT, "%s", hearth_error(t->hearth));
    return code ? code : talk_reset(t);
}

void talk_close(struct talk *t)
{
    hearth_close(t->hearth);
    json_decref(t->messages);
    chat_tools_close(&t->tools);
    free(t->sequence.items);
    show_close(&t->show);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Makes room for n ids, as cli_grow does. Returns whether there is memory. */
static int reserve_ids(struct cli_ids *ids, size_t n)
{
    size_t room = 1;
    while (room < n)
        room *= 2;
    uint32_t *items = n > UINT32_MAX / 2 ? NULL : realloc(ids->items, room * sizeof(*items));
    if (items)
        ids->items = items;
    return items != NULL;
}

/* The conversation, in these messages. */
static struct hearth_chat chat_of(const struct talk *t, const char *messages)
{
    struct hearth_chat chat;
    hearth_chat_init(&chat, sizeof(chat));
    chat.messages = messages;
    chat.messages_bytes = strlen(messages);
    chat.tools = t->tools.description;
    chat.tools_bytes = t->tools.description ? strlen(t->tools.description) : 0;
    chat.chat_template = t->chat_template;
    chat.chat_template_bytes = t->template_bytes;
    return chat;
}

/* The conversation as tokens. Returns 0 or an exit code. */
static int render(struct talk *t, struct cli_ids *ret)
{
    char *messages = json_dumps(t->messages, JSON_COMPACT);
    if (!messages)
        return cli_no_memory();
    struct hearth_chat chat = chat_of(t, messages);
    size_t room = chat.messages_bytes + ROOM;
    int64_t n = -ENOMEM;
    while (reserve_ids(ret, room)) {
        n = hearth_chat_tokens(t->hearth, &chat, ret->items, room);
        if (n <= (int64_t)room)
            break;
        room = (size_t)n;
        n = -ENOMEM;
    }
    free(messages);
    ret->n = n < 0 ? 0 : (uint32_t)n;
    if (n == -ENOMEM)
        return cli_no_memory();
    return n < 0 ? cli_fail(cli_exit_request((int)n), "%s", hearth_error(t->hearth)) : CLI_OK;
}

/* The bytes that a token stands for in the middle of a text, appended to *b; control tokens as
 * their texts. Some vocabularies drop a blank at a text's beginning: so the token is put after
 * another one. */
static void spell(const struct talk *t, uint32_t id, struct buffer *b)
{
    const uint32_t two[2] = {t->anchor, id};
    char text[1024], *bytes = text;
    int64_t n_anchor = hearth_detokenize(t->hearth, two, 1, HEARTH_SPECIAL, NULL, 0);
    int64_t n = hearth_detokenize(t->hearth, two, 2, HEARTH_SPECIAL, text, sizeof(text));
    if (n > (int64_t)sizeof(text)) {
        bytes = malloc((size_t)n);
        if (bytes)
            n = hearth_detokenize(t->hearth, two, 2, HEARTH_SPECIAL, bytes, (size_t)n);
        else
            b->failed = 1;
    }
    if (bytes && n >= n_anchor && n_anchor >= 0)
        buffer_add(b, bytes + n_anchor, (size_t)(n - n_anchor));
    if (bytes != text)
        free(bytes);
}

/* How many of ids spell exactly what the slot's sequence spells; 0 where none do. */
static uint32_t find_end(const struct talk *t, const struct cli_ids *ids)
{
    const struct cli_ids *old = &t->sequence;
    struct buffer a = {0}, b = {0};
    uint32_t same = 0, i;
    while (same < old->n && same < ids->n && old->items[same] == ids->items[same])
        same++;
    for (i = same; i < old->n; i++)
        spell(t, old->items[i], &a);
    for (i = same; i < ids->n && b.bytes < a.bytes && !b.failed; i++)
        spell(t, ids->items[i], &b);
    int equal = !a.failed && !b.failed && a.bytes == b.bytes &&
                (!a.bytes || memcmp(a.data, b.data, a.bytes) == 0);
    buffer_fini(&a);
    buffer_fini(&b);
    return equal ? i : 0;
}

/* Replaces the ids that spell the slot's text by the slot's own. Returns 0 or an exit code. */
static int keep_sequence(struct talk *t, struct cli_ids *ids)
{
    uint32_t end = find_end(t, ids), n = t->sequence.n;
    if (!end || !n)
        return CLI_OK;
    uint32_t rest = ids->n - end;
    if (!reserve_ids(ids, (size_t)n + rest))
        return cli_no_memory();
    memmove(ids->items + n, ids->items + end, rest * sizeof(*ids->items));
    memcpy(ids->items, t->sequence.items, n * sizeof(*ids->items));
    ids->n = n + rest;
    return CLI_OK;
}

/* ---- the answer ------------------------------------------------------------------------------ */

struct answering {
    struct talk *talk;
    struct buffer text;      /* so far */
    struct chat_parts parts; /* the same, where there are tools */
    int cancelled;
    int late; /* a delay of its end was reported */
};

/* Adds an answer that has ended to the conversation, and its ids to the slot's sequence. */
static int finish(struct answering *a, const struct hearth_result *r, struct cli_ids *ids)
{
    struct talk *t = a->talk;
    if (r->reason == HEARTH_ERROR)
        return cli_fail(cli_exit_request(r->error), "%s", r->error_text);
    show_end(&t->show);
    if (!reserve_ids(ids, (size_t)ids->n + r->n_ids))
        return cli_no_memory();
    if (r->n_ids)
        memcpy(ids->items + ids->n, r->ids, r->n_ids * sizeof(*ids->items));
    ids->n += r->n_ids;
    free(t->sequence.items);
    t->sequence = *ids;
    *ids = (struct cli_ids){0};
    if (!a->parts.reader)
        return add_message(t, "assistant", a->text.data, a->text.bytes);
    json_t *m = chat_parts_message(&a->parts, !a->cancelled);
    return !m || json_array_append_new(t->messages, m) ? cli_no_memory() : CLI_OK;
}

/* Writes an event's text; of an answer that is read in parts, only its content. Returns 0 or
 * -errno. */
static int show_answer(struct answering *a, const struct hearth_event *e)
{
    struct hearth_event content = *e;
    if (!a->parts.reader)
        return show_event(&a->talk->show, e);
    int rc = chat_parts_take(&a->parts, e);
    if (rc || a->talk->show.json)
        return rc ? rc : show_event(&a->talk->show, e);
    content.text = a->parts.fresh.data;
    content.text_bytes = a->parts.fresh.bytes;
    return show_event(&a->talk->show, &content);
}

/* Runs until the answer has ended. Ctrl-C ends it early, after the pass that is being computed; if
 * that takes long, a second Ctrl-C ends the conversation. Returns 0 or an exit code. */
static int stream(struct answering *a, struct cli_ids *ids)
{
    struct hearth *h = a->talk->hearth;
    struct show *show = &a->talk->show;
    for (;;) {
        const struct hearth_event *e;
        int rc = hearth_next(h, 0, &e, SHOW_LOOK_MS), written = 0;
        if (rc < 0 && rc != -EINTR) {
            show_clear(show);
            return cli_fail(cli_exit_request(rc), "%s", hearth_error(h));
        }
        if (rc == 1 && e->kind == HEARTH_PROGRESS) {
            show_progress(show, e);
        } else if (rc == 1) {
            buffer_add(&a->text, e->text, e->text_bytes);
            written = a->text.failed ? -ENOMEM : show_answer(a, e);
        }
        if (written || cli_stop_requested() || (rc <= 0 && show_is_unread())) {
            (void)hearth_cancel(h, 0);
            (void)hearth_next(h, 0, &e, SHOW_FAREWELL_MS);
            return written ? cli_exit_output(written) : CLI_INTERRUPTED;
        }
        if (rc == 1 && e->kind == HEARTH_DONE)
            return finish(a, e->result, ids);
        if (rc == 0 && a->cancelled && !a->late) {
            a->late = 1;
            show_clear(show);
            (void)cli_write(STDERR_FILENO, "\n", 1); /* the terminal has written ^C */
            (void)cli_fail(CLI_OK,
                           "the daemon has not ended the answer yet, as in a pass that takes "
                           "long: wait, or press Ctrl-C again to leave");
        }
        if (a->talk->keeps_on && chat_line_interrupted()) {
            if (a->late)
                return cli_fail(CLI_NO_DAEMON, "the daemon does not end the answer: hearth status "
                                               "says whether it runs");
            a->cancelled = 1;
            (void)hearth_cancel(h, 0);
        }
    }
}

/* Ends a conversation that became too long. Returns 0 or an exit code. */
static int check_length(struct talk *t, const struct cli_ids *ids)
{
    struct hearth_info info = {.size = sizeof(info)};
    if (!t->sequence.n || hearth_info(t->hearth, &info) || ids->n <= info.context)
        return CLI_OK;
    return cli_fail(CLI_BAD_INPUT,
                    "the conversation has %u tokens now, the context holds %u: /reset starts over, "
                    "or start hearthd with a larger --context",
                    ids->n, info.context);
}

static int ask(struct talk *t, struct cli_ids *ids)
{
    struct hearth_request request = cli_request(t->options);
    struct answering a = {.talk = t};
    t->show.ends_line = 0; /* an empty answer has a line, too */
    request.tokens = ids->items;
    request.n_tokens = ids->n;
    request.grammar = t->grammar;
    request.grammar_bytes = t->grammar_bytes;
    int code = CLI_OK, rc = 0;
    struct hearth_chat chat = chat_of(t, "[]");
    if (t->tools.list)
        code = chat_parts_open(&a.parts, t->hearth, &chat, &request);
    if (!code)
        rc = hearth_submit(t->hearth, 0, &request);
    if (!code)
        code = rc ? cli_fail(cli_exit_request(rc), "%s", hearth_error(t->hearth)) : stream(&a, ids);
    chat_parts_close(&a.parts);
    buffer_fini(&a.text);
    return code;
}

/* Asks with the conversation as it stands. Returns 0 or an exit code. */
static int answer(struct talk *t)
{
    struct cli_ids ids = {0};
    int code = render(t, &ids);
    if (!code)
        code = check_length(t, &ids);
    if (!code)
        code = keep_sequence(t, &ids);
    if (!code)
        code = ask(t, &ids);
    free(ids.items);
    return code;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int stopped; /* Ctrl-C was pressed while a call was made */

static int look_stop(void)
{
    int now = chat_line_interrupted();
    stopped |= now;
    return now;
}

/* Makes the calls of the last message, and adds a message with the result of each. Returns 0 or an
 * exit code. */
static int make_calls(struct talk *t, const json_t *calls)
{
    size_t i;
    const json_t *call;
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        const char *arguments = json_string_value(json_object_get(function, "arguments"));
        char *said = stopped
                         ? strdup("not run: the user stopped")
                         : chat_tools_call(&t->tools, name, arguments ? arguments : "", look_stop);
        json_t *m = said ? json_pack("{s:s, s:O, s:s, s:s}", "role", "tool", "tool_call_id",
                                     json_object_get(call, "id"), "name", name, "content", said)
                         : NULL;
        free(said);
        if (!m || json_array_append_new(t->messages, m))
            return cli_no_memory();
    }
    return CLI_OK;
}

/* Goes on as long as answers call tools. Returns 0 or an exit code. */
static int go_on(struct talk *t)
{
    stopped = 0;
    (void)chat_line_interrupted();
    for (int round = 1;; round++) {
        const json_t *last = json_array_get(t->messages, json_array_size(t->messages) - 1);
        const json_t *calls = json_object_get(last, "tool_calls");
        if (!json_array_size(calls))
            return CLI_OK;
        stopped |= round > CHAT_TOOLS_ROUNDS;
        if (round > CHAT_TOOLS_ROUNDS)
            (void)cli_fail(CLI_OK, "%d answers in a row called tools: say how to go on",
                           CHAT_TOOLS_ROUNDS);
        int code = make_calls(t, calls);
        if (cli_stop_requested())
            return CLI_INTERRUPTED;
        if (code || stopped)
            return code;
        code = answer(t);
        if (code)
            return code;
    }
}

int talk_try(struct talk *t)
{
    struct cli_ids ids = {0};
    int code = add_message(t, "user", "Hi", 2);
    if (!code) {
        code = render(t, &ids);
        drop_last(t);
    }
    free(ids.items);
    return code;
}

int talk_say(struct talk *t, const char *text, size_t bytes)
{
    size_t before = json_array_size(t->messages);
    int code = add_message(t, "user", text, bytes);
    if (!code)
        code = answer(t);
    if (!code && t->tools.list)
        code = go_on(t);
    while (code && json_array_size(t->messages) > before)
        drop_last(t);
    return code;
}
