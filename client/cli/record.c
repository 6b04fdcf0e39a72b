/* record: see record.h. */
#include "client/cli/record.h"

#include "client/cli/json.h"
#include "client/cli/json_read.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind {
    MEMBER_U32,
    MEMBER_I32,
    MEMBER_U64,
    MEMBER_F32,
    MEMBER_BOOL,  /* a uint32_t */
    MEMBER_FLAG,  /* the same, not there where it is 0 */
    MEMBER_TEXT,  /* const char * */
    MEMBER_MAYBE, /* the same, NULL where the member is not there */
    MEMBER_IDS,   /* const uint32_t * */
    MEMBER_TEXTS, /* const char *const * */
    MEMBER_BIAS,  /* const struct hearth_bias *, as [[ID,VALUE],...] */
    MEMBER_MARKS, /* const struct hearth_mark *, as [[KIND,OPEN,TOKENS,"TEXT"],...]; not there where
                     there are none */
    MEMBER_CLOSING /* as MEMBER_IDS, not there where there are none */
};

struct member {
    const char *name;
    enum kind kind;
    size_t field, count; /* offsets in struct record */
};

static const struct member members[] = {
#define M(name, kind, field, count)                                                                \
    {name, kind, offsetof(struct record, field), offsetof(struct record, count)},
    RECORD_MEMBERS(M)
#undef M
};
enum { N_MEMBERS = sizeof(members) / sizeof(members[0]) };
_Static_assert(N_MEMBERS <= 32, "a bit each");

enum { HASHES_BYTES = 65, FINGERPRINT_BYTES = 32 };

/* ---- writing --------------------------------------------------------------------------------- */

static void write_texts(struct buffer *out, const char *const *texts, uint32_t n)
{
    buffer_text(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        buffer_text(out, i ? "," : "");
        quote_bytes(out, texts[i], strlen(texts[i]));
    }
    buffer_text(out, "]");
}

static void write_bias(struct buffer *out, const struct hearth_bias *bias, uint32_t n)
{
    buffer_text(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        double value = (double)bias[i].value;
        buffer_format(out, "%s[%u,", i ? "," : "", bias[i].token);
        json_number(out, isinf(value) ? -10000 : value); /* what -INFINITY means */
        buffer_text(out, "]");
    }
    buffer_text(out, "]");
}

static void write_marks(struct buffer *out, const struct hearth_mark *marks, uint32_t n)
{
    buffer_text(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        buffer_format(out, "%s[%u,%u,%d,", i ? "," : "", marks[i].kind, marks[i].open,
                      marks[i].tokens);
        quote_bytes(out, marks[i].text, strlen(marks[i].text));
        buffer_text(out, "]");
    }
    buffer_text(out, "]");
}

static void write_member(struct buffer *out, const struct member *m, const void *field, uint32_t n)
{
    switch (m->kind) {
    case MEMBER_U32:
        buffer_format(out, "%u", *(const uint32_t *)field);
        return;
    case MEMBER_I32:
        buffer_format(out, "%d", *(const int32_t *)field);
        return;
    case MEMBER_U64:
        buffer_format(out, "%llu", (unsigned long long)*(const uint64_t *)field);
        return;
    case MEMBER_F32:
        json_number(out, (double)*(const float *)field); /* 9 digits: the same float again */
        return;
    case MEMBER_BOOL:
    case MEMBER_FLAG:
        buffer_text(out, *(const uint32_t *)field ? "true" : "false");
        return;
    case MEMBER_TEXT:
    case MEMBER_MAYBE:
        quote_bytes(out, *(const char *const *)field, strlen(*(const char *const *)field));
        return;
    case MEMBER_MARKS:
        write_marks(out, *(const struct hearth_mark *const *)field, n);
        return;
    case MEMBER_IDS:
    case MEMBER_CLOSING:
        json_ids(out, *(const uint32_t *const *)field, n);
        return;
    case MEMBER_TEXTS:
        write_texts(out, *(const char *const *const *)field, n);
        return;
    case MEMBER_BIAS:
        write_bias(out, *(const struct hearth_bias *const *)field, n);
        return;
    }
}

static int may_be_left_out(const struct member *m)
{
    return m->kind == MEMBER_MAYBE || m->kind == MEMBER_FLAG || m->kind == MEMBER_MARKS ||
           m->kind == MEMBER_CLOSING;
}

static int is_empty(const struct member *m, const struct record *c)
{
    return m->kind == MEMBER_MAYBE ? !*(const char *const *)((const char *)c + m->field)
                                   : !*(const uint32_t *)((const char *)c + m->count);
}

void record_write(const struct record *c, struct buffer *out)
{
    for (int i = 0; i < N_MEMBERS; i++) {
        const struct member *m = &members[i];
        if (may_be_left_out(m) && is_empty(m, c))
            continue;
        buffer_format(out, "%s\"%s\":", i ? "," : "{", m->name);
        write_member(out, m, (const char *)c + m->field,
                     *(const uint32_t *)((const char *)c + m->count));
    }
    buffer_text(out, "}\n");
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_u32(struct json_reader *r, uint32_t *ret)
{
    uint64_t value;
    int rc = json_read_unsigned(r, UINT32_MAX, &value);
    *ret = rc ? 0 : (uint32_t)value;
    return rc;
}

/* A text of its own, to be freed. */
static int read_text(struct json_reader *r, const char **ret)
{
    struct buffer text = {0};
    int rc = json_read_text(r, &text);
    buffer_add(&text, "", 1);
    if (!rc && text.failed)
        rc = json_read_fail(r, -ENOMEM, "out of memory");
    if (rc)
        buffer_fini(&text);
    *ret = text.data;
    return rc;
}

static int read_mark(struct json_reader *r, struct hearth_mark *mark)
{
    (void)json_read_mark(r, '[');
    (void)read_u32(r, &mark->kind);
    (void)json_read_mark(r, ',');
    (void)read_u32(r, &mark->open);
    (void)json_read_mark(r, ',');
    (void)json_read_signed(r, &mark->tokens);
    (void)json_read_mark(r, ',');
    int rc = read_text(r, &mark->text);
    if (!rc && (rc = json_read_mark(r, ']')))
        free((char *)(uintptr_t)mark->text); /* the mark is not in the list yet */
    return rc;
}

/* One item of a list, into the room that is there for it. */
static int read_item(struct json_reader *r, enum kind kind, void *items, uint32_t i)
{
    if (kind == MEMBER_MARKS)
        return read_mark(r, (struct hearth_mark *)items + i);
    if (kind == MEMBER_IDS || kind == MEMBER_CLOSING)
        return read_u32(r, (uint32_t *)items + i);
    if (kind == MEMBER_TEXTS)
        return read_text(r, (const char **)items + i);
    struct hearth_bias *bias = (struct hearth_bias *)items + i;
    (void)json_read_mark(r, '[');
    (void)read_u32(r, &bias->token);
    (void)json_read_mark(r, ',');
    (void)json_read_float(r, &bias->value);
    return json_read_mark(r, ']');
}

/* *ret_items and *ret_n always say what to free, also after an error. */
static int read_list(struct json_reader *r, enum kind kind, void **ret_items, uint32_t *ret_n)
{
    size_t bytes = kind == MEMBER_TEXTS   ? sizeof(const char *)
                   : kind == MEMBER_BIAS  ? sizeof(struct hearth_bias)
                   : kind == MEMBER_MARKS ? sizeof(struct hearth_mark)
                                          : sizeof(uint32_t);
    uint32_t count = 0;
    int more = json_read_mark(r, '[');
    if (more)
        return more;
    while ((more = json_read_next(r, ']', &count)) > 0) {
        if (cli_grow(ret_items, *ret_n, bytes))
            return json_read_fail(r, -ENOMEM, "out of memory");
        int rc = read_item(r, kind, *ret_items, *ret_n);
        if (rc)
            return rc;
        ++*ret_n;
    }
    return more;
}

static int read_member(struct json_reader *r, const struct member *m, struct record *c)
{
    void *field = (char *)c + m->field, *items = NULL;
    int rc;
    switch (m->kind) {
    case MEMBER_U32:
        return read_u32(r, field);
    case MEMBER_I32:
        return json_read_signed(r, field);
    case MEMBER_U64:
        return json_read_unsigned(r, UINT64_MAX, field);
    case MEMBER_F32:
        return json_read_float(r, field);
    case MEMBER_BOOL:
    case MEMBER_FLAG:
        return json_read_bool(r, field);
    case MEMBER_TEXT:
    case MEMBER_MAYBE:
        return read_text(r, field);
    case MEMBER_IDS:
    case MEMBER_TEXTS:
    case MEMBER_BIAS:
    case MEMBER_MARKS:
    case MEMBER_CLOSING:
        rc = read_list(r, m->kind, &items, (uint32_t *)((char *)c + m->count));
        memcpy(field, &items, sizeof(items));
        return rc;
    }
    return -EBADMSG;
}

static const struct member *find_member(const struct buffer *name)
{
    for (int i = 0; i < N_MEMBERS; i++)
        if (strlen(members[i].name) == name->bytes && name->bytes &&
            memcmp(members[i].name, name->data, name->bytes) == 0)
            return &members[i];
    return NULL;
}

/* Reads a name and its value; `name` is a buffer for the name. */
static int read_pair(struct json_reader *r, struct buffer *name, struct record *c,
                     uint32_t *ret_seen)
{
    name->bytes = 0;
    if (json_read_text(r, name))
        return r->rc;
    const struct member *m = find_member(name);
    if (!m)
        return json_read_fail(r, -EBADMSG, "a record has no member of that name");
    uint32_t bit = 1u << (m - members);
    if (*ret_seen & bit)
        return json_read_fail(r, -EBADMSG, "that member was there already");
    *ret_seen |= bit;
    return json_read_mark(r, ':') ? r->rc : read_member(r, m, c);
}

/* The whole text: the members, each once. */
static int read_members(struct json_reader *r, struct record *c, uint32_t *ret_seen)
{
    struct buffer name = {0};
    uint32_t count = 0;
    (void)json_read_mark(r, '{');
    while (json_read_next(r, '}', &count) > 0)
        if (read_pair(r, &name, c, ret_seen))
            break;
    buffer_fini(&name);
    return json_read_end(r);
}

static const char fast[] =
    "+fast"; /* follows the numerics id of the pass that computed the prompt */

int record_is_fast(const struct record *c)
{
    size_t bytes = strlen(c->numerics), end = sizeof(fast) - 1;
    return bytes > end && strcmp(c->numerics + bytes - end, fast) == 0;
}

int record_has_numerics(const struct record *c, const char *numerics)
{
    size_t bytes = strlen(c->numerics) - (record_is_fast(c) ? sizeof(fast) - 1 : 0);
    return strlen(numerics) == bytes && memcmp(c->numerics, numerics, bytes) == 0;
}

const char *record_hashes(const char *receipt)
{
    static const char hex[] = "0123456789abcdef";
    size_t bytes = strlen(receipt);
    const char *hashes = receipt + bytes - HASHES_BYTES;
    if (bytes <= HASHES_BYTES || hashes[-1] != ':' || strspn(hashes, hex) != 32 ||
        hashes[32] != ':' || strspn(hashes + 33, hex) != 32)
        return NULL;
    return hashes;
}

/* Is the receipt one for this model and these numerics? */
static int receipt_fits(const struct record *c)
{
    static const char first[] = "hearth1:";
    size_t numerics = strlen(c->numerics);
    const char *at = c->receipt;
    if (strlen(at) != sizeof(first) - 1 + FINGERPRINT_BYTES + 1 + numerics + 1 + HASHES_BYTES)
        return 0;
    if (memcmp(at, first, sizeof(first) - 1) != 0 || !record_hashes(at))
        return 0;
    at += sizeof(first) - 1;
    return memcmp(at, c->fingerprint, FINGERPRINT_BYTES) == 0 && at[FINGERPRINT_BYTES] == ':' &&
           memcmp(at + FINGERPRINT_BYTES + 1, c->numerics, numerics) == 0;
}

/* Checks the members against each other. Returns NULL, or what is wrong. */
static const char *find_fault(const struct record *c)
{
    if (strlen(c->fingerprint) != FINGERPRINT_BYTES)
        return "fingerprint: 32 hex digits expected";
    if (strcmp(c->reason, "eos") != 0 && strcmp(c->reason, "stop") != 0 &&
        strcmp(c->reason, "length") != 0)
        return "reason: eos, stop or length expected";
    if (!receipt_fits(c))
        return "receipt: it is not one for that fingerprint and numerics";
    return NULL;
}

static int check_members(const struct record *c, uint32_t seen, char *err, size_t err_bytes)
{
    for (int i = 0; i < N_MEMBERS; i++)
        if (!(seen >> i & 1) && !may_be_left_out(&members[i])) {
            snprintf(err, err_bytes, "no member %s", members[i].name);
            return -EBADMSG;
        }
    if (c->version != RECORD_VERSION) {
        snprintf(err, err_bytes, "version %u: this hearth reads version %d", c->version,
                 RECORD_VERSION);
        return -EBADMSG;
    }
    const char *fault = find_fault(c);
    if (fault)
        snprintf(err, err_bytes, "%s", fault);
    return fault ? -EBADMSG : 0;
}

int record_read(const char *text, size_t bytes, struct record *ret, char *err, size_t err_bytes)
{
    struct json_reader r;
    uint32_t seen = 0;
    memset(ret, 0, sizeof(*ret));
    hearth_request_init(&ret->request, sizeof(ret->request));
    json_reader_init(&r, text, bytes);
    int rc = read_members(&r, ret, &seen);
    if (rc == -ENOMEM)
        snprintf(err, err_bytes, "out of memory: free some and try again");
    else if (rc)
        snprintf(err, err_bytes, "byte %zu: %s", r.at, r.why);
    else
        rc = check_members(ret, seen, err, err_bytes);
    if (rc)
        record_fini(ret);
    ret->request.grammar = ret->grammar;
    ret->request.grammar_bytes = ret->grammar ? strlen(ret->grammar) : 0;
    return rc;
}

void record_fini(struct record *c)
{
    for (int i = 0; i < N_MEMBERS; i++) {
        const struct member *m = &members[i];
        void *field = (char *)c + m->field, *data;
        if (m->kind < MEMBER_TEXT)
            continue;
        memcpy(&data, field, sizeof(data));
        uint32_t n = *(uint32_t *)((char *)c + m->count);
        for (uint32_t k = 0; m->kind == MEMBER_TEXTS && k < n; k++)
            free(((char **)data)[k]);
        for (uint32_t k = 0; m->kind == MEMBER_MARKS && k < n; k++)
            free((char *)(uintptr_t)((const struct hearth_mark *)data)[k].text);
        free(data);
    }
    memset(c, 0, sizeof(*c));
}

/* ---- the file -------------------------------------------------------------------------------- */

static int fail_path(const char *path, int error)
{
    return cli_fail(CLI_CANNOT_MAKE, "%s: cannot be written: %s: give --record another path", path,
                    strerror(error));
}

int record_check_path(const char *path)
{
    struct stat st;
    if (strcmp(path, "-") == 0)
        return cli_fail(CLI_USAGE, "--record -: stdout holds the answer: give a file");
    int there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return fail_path(path, EISDIR);
    if (there && !S_ISREG(st.st_mode))
        return access(path, W_OK) ? fail_path(path, errno) : CLI_OK;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int rc = !folder ? ENOMEM : access(folder, W_OK | X_OK) ? errno : 0;
    free(folder);
    return rc ? fail_path(path, rc) : CLI_OK;
}

int record_save(const char *path, struct hearth *h, const struct hearth_request *request,
                const struct hearth_result *result)
{
    struct hearth_info info = {.size = sizeof(info)};
    struct buffer text = {0};
    if (hearth_info(h, &info))
        return cli_fail(CLI_SYSTEM, "%s", hearth_error(h));
    struct record c = {.version = RECORD_VERSION,
                       .model = result->model,
                       .fingerprint = info.fingerprint,
                       .numerics = result->numerics,
                       .request = *request,
                       .grammar = request->grammar,
                       .ids = result->ids,
                       .n_ids = result->n_ids,
                       .reason = json_reason(result->reason),
                       .receipt = result->receipt};
    /* The context also ends an answer; a daemon with a larger one must end it at the same place. */
    if (c.request.max_tokens > info.context - request->n_tokens)
        c.request.max_tokens = info.context - request->n_tokens;
    record_write(&c, &text);
    int rc = text.failed ? -ENOMEM : cli_save(path, text.data, text.bytes);
    buffer_fini(&text);
    if (rc == -EINTR)
        return CLI_INTERRUPTED;
    return rc ? fail_path(path, -rc) : CLI_OK;
}
