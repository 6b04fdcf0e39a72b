/* fields: see fields.h. */
#include "client/http/fields.h"

#include <math.h>

const char *field_type(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

/* The member into *ret: its type is one of `types`, bits 1 << json_type, which are called
 * `wanted`. */
static int find(const json_t *o, const char *name, unsigned types, const char *wanted, json_t **ret,
                struct fail *f)
{
    json_t *v = json_object_get(o, name);
    if (!v || json_is_null(v))
        return 0;
    if (!(types >> json_typeof(v) & 1u))
        return fail_set(f, 400, FAIL_INVALID, "'%s' must be %s, not %s", name, wanted,
                        field_type(v));
    *ret = v;
    return 1;
}

int field_bool(const json_t *o, const char *name, bool *ret, struct fail *f)
{
    json_t *v = NULL;
    int rc = find(o, name, 1u << JSON_TRUE | 1u << JSON_FALSE, "true or false", &v, f);
    if (rc > 0)
        *ret = json_is_true(v);
    return rc;
}

int field_int(const json_t *o, const char *name, int64_t least, int64_t most, int64_t *ret,
              struct fail *f)
{
    json_t *v = NULL;
    int rc = find(o, name, 1u << JSON_INTEGER | 1u << JSON_REAL, "a whole number", &v, f);
    if (rc <= 0)
        return rc;
    double real = json_number_value(v);
    if (json_is_real(v) && (real != floor(real) || fabs(real) > 9e15))
        return fail_set(f, 400, FAIL_INVALID, "'%s' must be a whole number, not %g", name, real);
    int64_t value = json_is_real(v) ? (int64_t)real : json_integer_value(v);
    if (value < least || value > most)
        return fail_set(f, 400, FAIL_INVALID, "'%s' must be %lld to %lld, not %lld", name,
                        (long long)least, (long long)most, (long long)value);
    *ret = value;
    return 1;
}

int field_float(const json_t *o, const char *name, double least, double most, float *ret,
                struct fail *f)
{
    json_t *v = NULL;
    int rc = find(o, name, 1u << JSON_INTEGER | 1u << JSON_REAL, "a number", &v, f);
    if (rc <= 0)
        return rc;
    double value = json_number_value(v);
    if (!(value >= least && value <= most))
        return fail_set(f, 400, FAIL_INVALID, "'%s' must be %g to %g, not %g", name, least, most,
                        value);
    *ret = (float)value;
    return 1;
}

int field_text(const json_t *o, const char *name, const char **ret, size_t *ret_bytes,
               struct fail *f)
{
    json_t *v = NULL;
    int rc = find(o, name, 1u << JSON_STRING, "a string", &v, f);
    if (rc <= 0)
        return rc;
    *ret = json_string_value(v);
    if (ret_bytes)
        *ret_bytes = json_string_length(v);
    return 1;
}

int field_array(const json_t *o, const char *name, json_t **ret, struct fail *f)
{
    return find(o, name, 1u << JSON_ARRAY, "an array", ret, f);
}

int field_object(const json_t *o, const char *name, json_t **ret, struct fail *f)
{
    return find(o, name, 1u << JSON_OBJECT, "an object", ret, f);
}
