/* client_fixture.c - see client_fixture.h. */
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <string.h>

struct fake_daemon fake;
struct hearth *h;
char err[512];
int32_t resume_ms;

void fixture_setup(void)
{
    fake_open(&fake);
    h = NULL;
    resume_ms = 0;
}

void fixture_teardown(void)
{
    hearth_close(h);
    fake_close(&fake);
}

void connect_with(uint32_t slots, uint32_t flags)
{
    struct hearth_options o;
    hearth_options_init(&o, sizeof(o));
    o.slots = slots;
    o.flags = flags;
    o.resume_ms = resume_ms;
    fake_start(&fake);
    int rc = hearth_connect(fake.path, &o, &h, err, sizeof(err));
    fake_join(&fake);
    ck_assert_msg(rc == 0, "%s", err);
    ck_assert_int_eq(hearth_ready(h), 1); /* with HEARTH_NONBLOCK too: the reply has arrived */
}

/* Submits a prompt of ids on a slot and takes the cell. */
struct submit_cell submit_ids(uint32_t slot, const uint32_t *ids, uint32_t n)
{
    struct hearth_request r;
    struct submit_cell cell;
    hearth_request_init(&r, sizeof(r));
    r.tokens = ids;
    r.n_tokens = n;
    r.cookie = 99;
    ck_assert_msg(hearth_submit(h, slot, &r) == 0, "%s", hearth_error(h));
    ck_assert_int_eq(fake_take(&fake, &cell), 1);
    return cell;
}

struct submit_cell submit_request(struct hearth_request *r)
{
    struct submit_cell cell;
    ck_assert_msg(hearth_submit(h, 0, r) == 0, "%s", hearth_error(h));
    ck_assert_int_eq(fake_take(&fake, &cell), 1);
    return cell;
}

struct hearth_request text_request(const char *text)
{
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.text = text;
    r.text_bytes = strlen(text);
    return r;
}

const uint32_t prompt[3] = {FAKE_BOS, FAKE_ONCE, FAKE_UPON};

const struct hearth_event *next(uint32_t slot)
{
    const struct hearth_event *e;
    int rc = hearth_next(h, slot, &e, 0);
    ck_assert_msg(rc >= 0, "%s", hearth_error(h));
    return rc ? e : NULL;
}
