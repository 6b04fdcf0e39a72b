/* json_scan: finds where a JSON value ends, byte by byte, and that it is one (RFC 8259; bytes above
 * 0x7f are taken as they are). Constant memory; one caller at a time. */
#ifndef HEARTH_CLIENT_EVENTS_JSON_SCAN_H
#define HEARTH_CLIENT_EVENTS_JSON_SCAN_H

#include <stdint.h>

enum { JSON_SCAN_DEPTH = 128 };

enum json_scan_result {
    JSON_GOES_ON,
    JSON_ENDS,         /* this byte is the value's last one */
    JSON_ENDED_BEFORE, /* the byte before it was: numbers, true, false, null */
    JSON_BROKEN
};

/* All zero: before a value. */
struct json_scan {
    uint64_t lists[JSON_SCAN_DEPTH / 64]; /* a bit for each level: it is a list */
    uint8_t depth, state, left;           /* left: hex digits, letters */
    const char *word;                     /* the rest of true, false or null */
};

enum json_scan_result json_scan_byte(struct json_scan *s, char byte);

#endif
