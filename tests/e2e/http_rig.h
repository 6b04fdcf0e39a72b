/* http_rig.h - the daemon with the bundled model and the gateway in front of it that tests of hearth-http work
 * on: one of each a test, checked for what they left behind. */
#ifndef HEARTH_TESTS_E2E_HTTP_RIG_H
#define HEARTH_TESTS_E2E_HTTP_RIG_H

#include "tests/e2e/gateway.h"
#include "tests/e2e/harness.h"

#include <stdbool.h>

extern struct harness rig_daemon;
extern struct gateway rig_gate;

/* The fixture: rig_setup for tests of what goes wrong (a long context, a gateway without options),
 * rig_setup_answers for tests of what is answered (few slots, small bodies, a chat template, also on a port).
 * The teardown looks that the gateway ends well and the daemon's slots are free. */
void rig_setup(void);
void rig_setup_answers(void);
void rig_teardown(void);

/* After harness_kill(): another daemon on the same socket. */
void rig_restart_daemon(void);

/* In place of the gateway one that gives running answers ten minutes to end. */
void rig_start_patient(void);

/* Asks for an answer that ends with the context only; `more` goes behind the request's members. Returns
 * its connection. */
int rig_send_forever(const char *more);

/* Did something come on this connection? Waits for nothing. */
bool rig_has_answer(int fd);

/* Asks until /health answers `status`, for two minutes. Returns the last one. */
int rig_wait_health(int status);

/* Fewer of them under sanitizers, which compute at a hundredth of the speed. */
int rig_fewer(int n);

/* The answer to a request that is well: JSON, or the library's to the same. The caller frees. */
json_t *rig_json(const char *path, const char *body);
char *rig_library_text(const char *prompt, float temperature, uint64_t seed, uint32_t n);

#endif
