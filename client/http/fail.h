/* fail: the error of a request, in OpenAI's form:
 *
 *   {"error": {"code": 400, "message": "'stop' must be ...", "type": "invalid_request_error"}}
 */
#ifndef HEARTH_CLIENT_HTTP_FAIL_H
#define HEARTH_CLIENT_HTTP_FAIL_H

#include <jansson.h>
#include <stdint.h>

/* The words of `type`, as llama-server and OpenAI use them. */
#define FAIL_INVALID "invalid_request_error"
#define FAIL_AUTHENTICATION "authentication_error"
#define FAIL_PERMISSION "permission_error"
#define FAIL_NOT_FOUND "not_found_error"
#define FAIL_NOT_SUPPORTED "not_supported_error"
#define FAIL_CONTEXT "exceed_context_size_error"
#define FAIL_UNAVAILABLE "unavailable_error"
#define FAIL_SERVER "server_error"

struct fail {
    unsigned status;  /* of HTTP; 0: nothing failed */
    const char *type; /* one of the words above */
    const char *code; /* a word in place of the status, or NULL */
    char message[480];
    int64_t n_prompt, n_context; /* tokens; reported where not 0, n_prompt only with n_context */
};

/* Fills *f. Returns -1, so that a reader of requests can return its result. */
__attribute__((format(printf, 4, 5))) int fail_set(struct fail *f, unsigned status,
                                                   const char *type, const char *format, ...);

/* A request named a model that is not served; `model` is, or, where it is NULL, those of a list. Returns -1. */
int fail_model(struct fail *f, const char *name, const char *model);

/* Turns an -errno of the library into an HTTP error; `what` is its line. Returns -1. */
int fail_library(struct fail *f, int code, const char *what);

/* The object above; NULL without memory. The caller owns it. */
json_t *fail_json(const struct fail *f);

#endif
