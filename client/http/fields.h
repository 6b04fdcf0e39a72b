/* fields: reads members of a request's JSON object.
 *
 * Each call returns 1 when the member is there and has the type, 0 when it is absent or null (the
 * value stays as it was), -1 when it is something else: then *f says what it must be. */
#ifndef HEARTH_CLIENT_HTTP_FIELDS_H
#define HEARTH_CLIENT_HTTP_FIELDS_H

#include "client/http/fail.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int field_bool(const json_t *o, const char *name, bool *ret, struct fail *f);

/* A whole number in [least, most]; also written 12.0. */
int field_int(const json_t *o, const char *name, int64_t least, int64_t most, int64_t *ret,
              struct fail *f);

/* A number in [least, most]. */
int field_float(const json_t *o, const char *name, double least, double most, float *ret,
                struct fail *f);

/* A string of the object, valid as long as the object. */
int field_text(const json_t *o, const char *name, const char **ret, size_t *ret_bytes,
               struct fail *f);

/* An array or an object, borrowed. */
int field_array(const json_t *o, const char *name, json_t **ret, struct fail *f);
int field_object(const json_t *o, const char *name, json_t **ret, struct fail *f);

/* A word for the type of a value: "a string". */
const char *field_type(const json_t *value);

#endif
