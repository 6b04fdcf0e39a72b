/* json_read: reads JSON strictly, value by value: for known shapes.
 *
 * A reader walks over text that it neither owns nor trusts: no byte after `end` is
 * touched, nothing recurses, and what is not exactly JSON is refused. The first error is kept, so a
 * caller may continue and check once. Each call skips blanks before what it reads and returns 0,
 * or -EBADMSG with `why` and `at` set, or -ENOMEM.
 *
 * Why not jansson, which reads all other JSON here: a record must give back exactly what was asked,
 * and jansson refuses two things that a request may hold: seeds from 2^63 on (its integers are
 * signed) and bytes that are not UTF-8 (written as half of a pair, see json_read_text). */
#ifndef HEARTH_CLIENT_CLI_JSON_READ_H
#define HEARTH_CLIENT_CLI_JSON_READ_H

#include "client/cli/cli.h"

struct json_reader {
    const char *start, *p, *end;
    int rc;          /* 0, or the first error */
    const char *why; /* of -EBADMSG: what was expected */
    size_t at;       /* the byte where */
};

void json_reader_init(struct json_reader *r, const char *text, size_t bytes);

/* Keeps the first error, at the place that was reached. Returns it. */
int json_read_fail(struct json_reader *r, int rc, const char *why);

/* '{', ':', ... */
int json_read_mark(struct json_reader *r, char mark);

/* Between items: returns 1 after a comma, 0 after `close`, or an error. *count is the caller's
 * number of items so far and is counted up, so that the first item needs no comma. */
int json_read_next(struct json_reader *r, char close, uint32_t *count);

/* Blanks and then the end of the text. */
int json_read_end(struct json_reader *r);

int json_read_unsigned(struct json_reader *r, uint64_t most, uint64_t *ret);
int json_read_signed(struct json_reader *r, int32_t *ret);
int json_read_float(struct json_reader *r, float *ret); /* finite as a float */
int json_read_bool(struct json_reader *r, uint32_t *ret);

/* Adds a string's bytes to *ret. \udc80 to \udcff alone stand for the bytes 0x80 to 0xff, as
 * quote_bytes() writes them; a 0 byte and other halves of a pair are refused. */
int json_read_text(struct json_reader *r, struct buffer *ret);

#endif
