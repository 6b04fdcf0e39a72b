/* fail: see fail.h. */
#include "client/http/fail.h"

#include "client/hearth.h"
#include "client/http/token_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fail_set(struct fail *f, unsigned status, const char *type, const char *format, ...)
{
    va_list args;
    *f = (struct fail){.status = status, .type = type};
    va_start(args, format);
    vsnprintf(f->message, sizeof(f->message), format, args);
    va_end(args);
    return -1;
}

int fail_model(struct fail *f, const char *name, const char *model)
{
    if (model)
        fail_set(f, 404, FAIL_NOT_FOUND,
                 "the model '%.120s' does not exist here: this is '%.200s'; name that, or leave "
                 "'model' out",
                 name, model);
    else
        fail_set(f, 404, FAIL_NOT_FOUND,
                 "the model '%.120s' does not exist here: GET /v1/models lists those that do",
                 name);
    f->code = "model_not_found";
    return -1;
}

int fail_library(struct fail *f, int code, const char *what)
{
    const char *text = what && *what ? what : hearth_strerror(code);
    switch (code) {
    case -EINVAL:
    case -ERANGE:
        return fail_set(f, 400, FAIL_INVALID, "%s", text);
    case -E2BIG:
        return fail_set(f, 400, FAIL_CONTEXT, "%s", text);
    case -ENOTSUP:
        return fail_set(f, 501, FAIL_NOT_SUPPORTED, "%s", text);
    case -EBUSY:
    case -EAGAIN:
    case -ENOSPC:
    case -ECONNRESET:
    case -ESHUTDOWN:
    case -ENOENT:
    case -ENOTDIR:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
    case -EACCES:
        return fail_set(f, 503, FAIL_UNAVAILABLE, "%s", text);
    default:
        return fail_set(f, 500, FAIL_SERVER, "%s", text);
    }
}

json_t *fail_json(const struct fail *f)
{
    json_t *code = f->code ? json_string(f->code) : json_integer(f->status);
    json_t *e = json_pack("{s:o, s:o, s:s}", "code", code, "message",
                          json_of_text(f->message, strlen(f->message)), "type",
                          f->type ? f->type : FAIL_SERVER);
    if (e && f->n_context) {
        if (f->n_prompt)
            json_object_set_new(e, "n_prompt_tokens", json_integer(f->n_prompt));
        json_object_set_new(e, "n_ctx", json_integer(f->n_context));
    }
    return json_pack("{s:o}", "error", e);
}
