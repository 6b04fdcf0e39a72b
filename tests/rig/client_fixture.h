/* client_fixture.h - a library handle connected to a fake daemon, for the tests of the library.
 *
 * fixture_setup() makes the daemon's socket; connect_with() connects `h` to it. One thread, one of
 * each.
 */
#ifndef HEARTH_TESTS_RIG_CLIENT_FIXTURE_H
#define HEARTH_TESTS_RIG_CLIENT_FIXTURE_H

#include "client/hearth.h"
#include "tests/rig/fake_daemon.h"

extern struct fake_daemon fake;
extern struct hearth *h;
extern char err[512];
extern int32_t resume_ms; /* of connect_with(); 0 unless a test sets it */
extern const uint32_t prompt[3];

void fixture_setup(void);
void fixture_teardown(void);

/* Connects h; fails the test where that fails. flags: enum hearth_connect_flags. */
void connect_with(uint32_t slots, uint32_t flags);

/* Submits a prompt of ids on a slot (cookie 99), or a request on slot 0, and takes the cell. */
struct submit_cell submit_ids(uint32_t slot, const uint32_t *ids, uint32_t n);
struct submit_cell submit_request(struct hearth_request *r);

/* A request for a text, otherwise the defaults. */
struct hearth_request text_request(const char *text);

/* The next event that has already arrived, or NULL. */
const struct hearth_event *next(uint32_t slot);

#endif
