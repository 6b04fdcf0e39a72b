/* hearth: checks at the start of each call, and facts about a handle. */
#include "client/lib/fim_form.h"
#include "client/lib/handle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_TIMEOUT_MS = 5000 };

int handle_fail(struct hearth *h, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(h->error, sizeof(h->error), format, args);
    va_end(args);
    return code;
}

void handle_hex(const uint8_t hash[16], char to[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++)
        to[i] = digits[hash[i / 2] >> (i % 2 ? 0 : 4) & 15];
    to[32] = 0;
}

int handle_check_fork(struct hearth *h)
{
    if (*h->not_forked)
        return 0;
    return handle_fail(h, -EPERM,
                       "this connection belongs to the parent process: connect again after fork");
}

int handle_check(struct hearth *h)
{
    int rc = handle_check_fork(h);
    if (rc || !h->connecting)
        return rc;
    if (h->connecting < 0) /* the line is there */
        return h->connecting;
    return handle_fail(h, -EAGAIN, "the daemon at %s has not answered yet: see hearth_ready()",
                       h->path);
}

int handle_check_slot(struct hearth *h, uint32_t slot)
{
    int rc = handle_check(h);
    if (rc)
        return rc;
    if (!h->n_slots)
        return handle_fail(h, -EINVAL, "this connection has no slots: connect with at least one");
    if (slot >= h->n_slots)
        return handle_fail(h, -ERANGE, "slot %u is out of range: this connection has %u", slot,
                           h->n_slots);
    return 0;
}

/* A structure of ours, cut to what the caller's header knew. */
static void fill(void *to, const void *from, size_t to_bytes, size_t from_bytes)
{
    memset(to, 0, to_bytes);
    memcpy(to, from, to_bytes < from_bytes ? to_bytes : from_bytes);
    memcpy(to, &(uint32_t){(uint32_t)to_bytes}, sizeof(uint32_t));
}

void hearth_options_init(struct hearth_options *options, size_t size)
{
    const struct hearth_options defaults = {
        .slots = 1, .connect_timeout_ms = 30000, .resume_ms = 30000};
    fill(options, &defaults, size, sizeof(defaults));
}

void hearth_request_init(struct hearth_request *request, size_t size)
{
    const struct hearth_request defaults = {
        .text_flags = HEARTH_ADD_BOS,
        .max_tokens = 256,
        .deterministic = 1,
        .logprobs = -1,
        .top_p = 1,
        .typical_p = 1,
        .repeat_penalty = 1,
        .penalty_last_n = 64,
    };
    fill(request, &defaults, size, sizeof(defaults));
}

void hearth_fim_init(struct hearth_fim *fim, size_t size)
{
    const struct hearth_fim defaults = {.order = HEARTH_FIM_AUTO};
    fill(fim, &defaults, size, sizeof(defaults));
}

/* ---- facts about a handle -------------------------------------------------------------------- */

static int32_t role(const struct hearth *h, enum vocab_role which)
{
    uint32_t id = vocab_special(&h->vocab, which);
    return id == VOCAB_NONE ? -1 : (int32_t)id;
}

int hearth_info(struct hearth *h, struct hearth_info *info)
{
    int rc = handle_check(h);
    if (rc)
        return rc;
    if (info->size < sizeof(info->size))
        return handle_fail(h, -EINVAL, "hearth_info: set size to sizeof(struct hearth_info) first");
    enum fim_form fim = fim_find(&h->vocab, HEARTH_FIM_AUTO);
    const struct hearth_info all = {
        .context = h->welcome.limits.context,
        .slots = h->n_slots,
        .n_vocab = h->welcome.n_vocab,
        .bos = role(h, VOCAB_BOS),
        .eos = role(h, VOCAB_EOS),
        .server_pid = h->welcome.daemon_pid,
        .model = h->welcome.model,
        .numerics = h->welcome.numerics,
        .fingerprint = h->fingerprint,
        .server_version = h->welcome.daemon,
        .socket_path = h->path,
        .is_away = h->resume.away != 0,
        .resumes = h->resume.times,
        .fim = fim == FIM_NONE  ? 0
               : fim == FIM_PSM ? 1
                                : 2,
        .chat_template = vocab_template(&h->vocab, VOCAB_TEMPLATE_CHAT).data,
    };
    fill(info, &all, info->size, sizeof(all));
    return 0;
}

int hearth_fd(struct hearth *h)
{
    int rc = handle_check_fork(h);
    if (rc)
        return rc;
    if (h->poll_fd < 0)
        return handle_fail(h, -EINVAL, "no descriptor to poll: connect with HEARTH_POLLABLE");
    return h->poll_fd;
}

int64_t hearth_status(struct hearth *h, char *json, size_t max)
{
    int rc = handle_check(h);
    if (rc)
        return rc;
    char *text = malloc(HELLO_STATUS_MAX);
    if (!text)
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    rc = hello_status(h->socket_fd, h->status_number++, text, HELLO_STATUS_MAX, STATUS_TIMEOUT_MS);
    if (rc >= 0 && max) {
        size_t n = (size_t)rc < max ? (size_t)rc : max - 1;
        memcpy(json, text, n);
        json[n] = 0;
    }
    free(text);
    return rc >= 0
               ? rc
               : handle_fail(h, rc == -ETIMEDOUT ? rc : -ECONNRESET,
                             "the daemon at %s does not answer: see whether hearthd runs", h->path);
}

const char *hearth_error(const struct hearth *h)
{
    return h->error;
}

const char *hearth_strerror(int code)
{
    static const struct {
        int code;
        const char *text;
    } texts[] = {
        {0, "no error"},
        {-ENOENT, "no daemon there"},
        {-ECONNREFUSED, "no daemon there"},
        {-ECONNRESET, "the daemon is gone"},
        {-EBUSY, "busy, try again"},
        {-EPROTO, "not a hearth daemon, or a damaged connection"},
        {-EPROTONOSUPPORT, "the daemon speaks another version"},
        {-EACCES, "the socket is not for this user"},
        {-EPERM, "the handle belongs to the parent process"},
        {-EINVAL, "a value that makes no sense"},
        {-ERANGE, "a token or slot out of range"},
        {-E2BIG, "longer than the context"},
        {-ENOMEM, "out of memory"},
        {-ETIMEDOUT, "no answer in time"},
        {-EINTR, "interrupted by a signal"},
        {-ENAMETOOLONG, "the socket's path is too long"},
        {-ENOTSUP, "not something this model can do"},
        {-EAGAIN, "not done yet, call again"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].code == code)
            return texts[i].text;
    const char *text = code < 0 ? strerrordesc_np(-code) : NULL;
    return text ? text : "unknown error";
}
