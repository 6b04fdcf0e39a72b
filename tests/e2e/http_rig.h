/* http_rig: the fixture of hearth-http's tests: a daemon with the bundled model and a gateway in
 * front of it, new for each test, and checked for leaks at its end. */
#ifndef HEARTH_TESTS_E2E_HTTP_RIG_H
#define HEARTH_TESTS_E2E_HTTP_RIG_H

#include "tests/e2e/gateway.h"
#include "tests/e2e/harness.h"

#include <stdbool.h>

extern struct harness rig_daemon;
extern struct gateway rig_gate;

/* The fixture: rig_setup for tests of failures (a long context, a gateway without options),
 * rig_setup_answers for tests of answers (few slots, small bodies, a chat template, also on a
 * port). The teardown checks that the gateway exits with 0 and the daemon's slots are free. */
void rig_setup(void);
void rig_setup_answers(void);
void rig_teardown(void);

/* Replaces the gateway by one whose template, in a file, writes tools, calls and thoughts; NULL-ended options,
 * or NULL. With rig_calls the bundled model thinks "so", says "Yes." and calls f with {"a": DIGIT}:
 * members of a request, to follow others. */
void rig_start_with_tools(const char *const *options);
extern const char rig_calls[];

/* After harness_kill(): another daemon on the same socket. */
void rig_restart_daemon(void);

/* Replaces the gateway by one that gives running answers ten minutes to end. */
void rig_start_patient(void);

/* Requests an answer that only ends with the context; `more` is appended to the request's members.
 * Returns the connection. */
int rig_send_forever(const char *more);

/* True when this connection has something to read. Does not wait. */
bool rig_has_answer(int fd);

/* Polls /health until it answers `status`, for at most two minutes. Returns the last status. */
int rig_wait_health(int status);

/* n, or fewer under sanitizers, which run at a hundredth of the speed. */
int rig_fewer(int n);

/* The response to a valid request: JSON; and the library's answer to the same. The caller frees. */
json_t *rig_json(const char *path, const char *body);
char *rig_library_text(const char *prompt, float temperature, uint64_t seed, uint32_t n);

#endif
