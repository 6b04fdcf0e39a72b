/* fim: fill-in-the-middle prompts.
 *
 * The prompt is what the cache has to keep between two keystrokes, so nothing in it may depend on
 * the cursor but the tokens at the cursor: chunks come first, in the caller's order; lengths that
 * decide what is left out are rounded up to eighths of the room, so that the cut stays in its place
 * for a while; and the prefix is cut at a line's end. */
#include "client/prompt/fim.h"

#include "client/lib/fim_form.h"
#include "client/lib/handle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    STEPS = 8,           /* lengths are rounded up to the room divided by this */
    BYTES_PER_TOKEN = 8, /* rarely more: text beyond is left out before it is tokenized */
    NEAR_PART = 8,       /* a line that begins or ends in this part of what is kept is near */
};

/* ---- the parts, in tokens -------------------------------------------------------------------- */

/* What a prompt is put together from. */
struct parts {
    const struct vocab *v;
    struct fim_text *text;
    struct token_list prefix, suffix, middle, chunks; /* chunks: with their separators */
    char *err;
    size_t err_bytes;
};

static int push(struct token_list *l, uint32_t id)
{
    return id == VOCAB_NONE ? 0 : token_list_push(l, id);
}

static int add(struct parts *p, const char *text, size_t bytes, unsigned flags,
               struct token_list *out)
{
    return fim_text_add(p->text, p->v, text, bytes, flags, out, p->err, p->err_bytes);
}

/* A prefix of many times the room loses its beginning before it is tokenized, in steps of the
 * room, up to a line's beginning that is near. */
static size_t far_bytes(const char *prefix, size_t bytes, size_t room)
{
    size_t most = room * BYTES_PER_TOKEN;
    if (bytes <= 2 * most)
        return 0;
    size_t skip = (bytes - most) / most * most;
    const char *end = memchr(prefix + skip, '\n', most / NEAR_PART);
    return end ? (size_t)(end - prefix) + 1 : skip;
}

static int add_prefix(struct parts *p, const struct hearth_fim *f, size_t room)
{
    size_t skip = far_bytes(f->prefix, f->prefix_bytes, room);
    return add(p, f->prefix + skip, f->prefix_bytes - skip, 0, &p->prefix);
}

static int add_suffix(struct parts *p, const struct hearth_fim *f, size_t room)
{
    size_t bytes = f->suffix_bytes, most = room * BYTES_PER_TOKEN;
    if (bytes > most) {
        const size_t near = most / NEAR_PART;
        const char *end = memrchr(f->suffix + most - near, '\n', near);
        bytes = end ? (size_t)(end - f->suffix) + 1 : most;
    }
    return add(p, f->suffix, bytes, TOKENIZE_CONTINUE, &p->suffix);
}

/* "name\ntext\n" after the file separator, where there is one. */
static int add_file(struct parts *p, const char *name, const char *text, size_t bytes)
{
    uint32_t file = vocab_special(p->v, VOCAB_FIM_FILE);
    unsigned flags = file == VOCAB_NONE && !p->chunks.n ? 0 : TOKENIZE_CONTINUE;
    int rc = push(&p->chunks, file);
    if (!rc && name)
        rc = add(p, name, strlen(name), flags, &p->chunks);
    if (!rc && name)
        rc = add(p, "\n", 1, TOKENIZE_CONTINUE, &p->chunks);
    if (!rc && bytes)
        rc = add(p, text, bytes, name ? TOKENIZE_CONTINUE : flags, &p->chunks);
    if (!rc && bytes && text[bytes - 1] != '\n')
        rc = add(p, "\n", 1, TOKENIZE_CONTINUE, &p->chunks);
    return rc;
}

/* The repository's name, chunks as long as there is room for whole ones, and the name of the file
 * that is edited. */
static int add_chunks(struct parts *p, const struct hearth_fim *f, size_t room)
{
    uint32_t repo = vocab_special(p->v, VOCAB_FIM_REPO);
    int has_file = vocab_special(p->v, VOCAB_FIM_FILE) != VOCAB_NONE;
    int rc = 0;
    if (has_file && repo != VOCAB_NONE && f->repo && *f->repo) {
        rc = push(&p->chunks, repo);
        if (!rc)
            rc = add(p, f->repo, strlen(f->repo), TOKENIZE_CONTINUE, &p->chunks);
        if (!rc)
            rc = add(p, "\n", 1, TOKENIZE_CONTINUE, &p->chunks);
    }
    size_t own = p->chunks.n; /* the name of the edited file comes last: its room is kept */
    if (!rc && has_file && f->name)
        rc = add_file(p, f->name, NULL, 0);
    own = p->chunks.n - own;
    p->chunks.n -= own;
    if (!rc && p->chunks.n + own > room) {
        p->chunks.n = 0;
        return 0;
    }
    for (uint32_t i = 0; i < f->n_extra && !rc; i++) {
        const struct hearth_chunk *c = &f->extra[i];
        size_t before = p->chunks.n;
        if (c->text_bytes > room * BYTES_PER_TOKEN)
            break;
        rc = add_file(p, c->name, c->text, c->text_bytes);
        if (!rc && p->chunks.n + own > room) {
            p->chunks.n = before;
            break;
        }
    }
    return !rc && own ? add_file(p, f->name, NULL, 0) : rc;
}

/* ---- what is left out ------------------------------------------------------------------------ */

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static int ends_line(const struct vocab *v, uint32_t id)
{
    uint32_t n;
    const char *bytes = vocab_bytes(v, id, &n);
    return n && memchr(bytes, '\n', n) != NULL;
}

/* Leaves out the beginning, a multiple of `step` and what is left of the line. */
static void cut_prefix(const struct vocab *v, struct token_list *l, size_t room, size_t step)
{
    if (l->n <= room)
        return;
    size_t at = round_up(l->n - room, step);
    if (at >= l->n)
        at = l->n - room;
    size_t line = at;
    while (line < l->n && line - at < step && !ends_line(v, l->ids[line - 1]))
        line++;
    if (line < l->n && line - at < step)
        at = line;
    memmove(l->ids, l->ids + at, (l->n - at) * sizeof(*l->ids));
    l->n -= at;
}

/* Leaves out the end, from a line's end on where one is near. */
static void cut_suffix(const struct vocab *v, struct token_list *l, size_t room, size_t step)
{
    if (l->n <= room)
        return;
    size_t line = room;
    while (line && room - line < step && !ends_line(v, l->ids[line - 1]))
        line--;
    l->n = line && room - line < step ? line : room;
}

/* The suffix gets what the prefix leaves, at least a quarter; the prefix what is left then. */
static void share(struct parts *p, size_t room, size_t step)
{
    size_t prefix = round_up(p->prefix.n, step);
    size_t suffix = prefix < room ? room - prefix : 0;
    if (suffix < room / 4)
        suffix = room / 4;
    cut_suffix(p->v, &p->suffix, suffix, step);
    cut_prefix(p->v, &p->prefix, room - p->suffix.n, step);
}

/* ---- putting together ------------------------------------------------------------------------ */

static int assemble(const struct parts *p, enum fim_form form, struct token_list *out)
{
    uint32_t pre = vocab_special(p->v, VOCAB_FIM_PREFIX);
    uint32_t suf = vocab_special(p->v, VOCAB_FIM_SUFFIX);
    uint32_t mid = vocab_special(p->v, VOCAB_FIM_MIDDLE);
    const struct token_list nothing = {0};
    const struct {
        uint32_t token; /* VOCAB_NONE: none */
        const struct token_list *text;
    } order[][3] = {
        [FIM_PSM] = {{pre, &p->prefix}, {suf, &p->suffix}, {mid, &p->middle}},
        [FIM_SPM] = {{suf, &p->suffix}, {pre, &p->prefix}, {mid, &p->middle}},
        [FIM_SPM_MID_BEFORE] = {{suf, &p->suffix}, {mid, &p->prefix}, {VOCAB_NONE, &p->middle}},
        [FIM_SPM_WITHOUT_MID] = {{suf, &p->suffix}, {pre, &p->prefix}, {VOCAB_NONE, &p->middle}},
        [FIM_PLAIN] = {{VOCAB_NONE, &p->prefix}, {VOCAB_NONE, &p->middle}, {VOCAB_NONE, &nothing}},
    };
    int rc = token_list_append(out, p->chunks.ids, p->chunks.n);
    if (!rc && form == FIM_SPM_MID_BEFORE)
        rc = push(out, pre);
    for (int i = 0; i < 3 && !rc; i++) {
        const struct token_list *text = order[form][i].text;
        rc = push(out, order[form][i].token);
        if (!rc)
            rc = token_list_append(out, text->ids, text->n);
    }
    return rc;
}

static int tokenize_parts(struct parts *p, const struct hearth_fim *f, size_t most,
                          size_t *ret_room)
{
    size_t fixed = 4; /* bos and three tokens */
    int rc = add(p, f->middle, f->middle_bytes, TOKENIZE_CONTINUE, &p->middle);
    if (rc)
        return rc;
    if (p->middle.n + fixed + 2 * STEPS > most) {
        snprintf(p->err, p->err_bytes,
                 "%zu tokens of middle do not fit a prompt of %zu: give less, or raise max_tokens",
                 p->middle.n, most);
        return -E2BIG;
    }
    *ret_room = most - fixed - p->middle.n;
    rc = add_suffix(p, f, *ret_room);
    return rc ? rc : add_prefix(p, f, *ret_room);
}

static int make(struct parts *p, const struct hearth_fim *f, enum fim_form form, size_t most,
                struct token_list *out)
{
    uint32_t bos = vocab_special(p->v, VOCAB_BOS);
    size_t room;
    int rc = tokenize_parts(p, f, most, &room);
    if (rc)
        return rc;
    size_t step = room / STEPS, used = round_up(p->prefix.n, step) + p->suffix.n;
    if (used < room)
        rc = add_chunks(p, f, room - used);
    if (rc)
        return rc;
    share(p, room - p->chunks.n, step);
    out->n = 0;
    rc = p->v->flags & VOCAB_ADD_BOS ? push(out, bos) : 0;
    return rc ? rc : assemble(p, form, out);
}

/* The fields as this library's header knows them, checked. */
static int read_fim(const struct hearth_fim *from, struct hearth_fim *f, char *err,
                    size_t err_bytes)
{
    hearth_fim_init(f, sizeof(*f));
    if (from->size < sizeof(from->size)) {
        snprintf(err, err_bytes, "hearth_fim: prepare it with hearth_fim_init");
        return -EINVAL;
    }
    memcpy(f, from, from->size < sizeof(*f) ? from->size : sizeof(*f));
    if ((!f->prefix && f->prefix_bytes) || (!f->suffix && f->suffix_bytes) ||
        (!f->middle && f->middle_bytes) || (!f->extra && f->n_extra)) {
        snprintf(err, err_bytes, "hearth_fim: a text of NULL with a length: give both or none");
        return -EINVAL;
    }
    if (f->order == HEARTH_FIM_PLAIN)
        f->suffix_bytes = 0;
    f->prefix = f->prefix ? f->prefix : "";
    f->suffix = f->suffix ? f->suffix : "";
    f->middle = f->middle ? f->middle : "";
    if (f->order > HEARTH_FIM_PLAIN) {
        snprintf(err, err_bytes, "order %u: give HEARTH_FIM_AUTO, _PSM, _SPM or _PLAIN", f->order);
        return -EINVAL;
    }
    return 0;
}

int fim_prompt(const struct vocab *v, struct fim_text *text, const struct hearth_fim *from,
               uint32_t context, struct token_list *out, char *err, size_t err_bytes)
{
    struct hearth_fim f;
    int rc = read_fim(from, &f, err, err_bytes);
    if (rc)
        return rc;
    enum fim_form form = fim_find(v, f.order);
    if (form == FIM_NONE) {
        snprintf(err, err_bytes,
                 "this model has no fill-in-the-middle tokens: complete the prefix alone "
                 "as plain text (order plain), or serve one that was trained for it");
        return -ENOTSUP;
    }
    size_t most = context - (context / 4 < 512 ? context / 4 : 512);
    if (f.max_tokens)
        most = f.max_tokens < context ? f.max_tokens : context;
    struct parts p = {.v = v, .text = text, .err = err, .err_bytes = err_bytes};
    fim_text_begin(text, f.step_bytes);
    rc = make(&p, &f, form, most, out);
    if (rc == -ENOMEM)
        snprintf(err, err_bytes, "out of memory: free some and try again");
    token_list_fini(&p.prefix);
    token_list_fini(&p.suffix);
    token_list_fini(&p.middle);
    token_list_fini(&p.chunks);
    return rc;
}

static void close_cache(void *cache)
{
    fim_text_close(cache);
}

int64_t hearth_fim(struct hearth *h, const struct hearth_fim *fim, uint32_t *ids, size_t max)
{
    int rc = handle_check(h);
    if (rc)
        return rc;
    if (!h->prompt_cache) {
        h->prompt_cache = fim_text_open();
        h->prompt_cache_close = close_cache;
    }
    if (!h->prompt_cache)
        return handle_fail(h, -ENOMEM, "out of memory: free some and try again");
    char err[sizeof(h->error)];
    rc = fim_prompt(&h->vocab, h->prompt_cache, fim, h->welcome.limits.context, &h->scratch, err,
                    sizeof(err));
    if (rc)
        return handle_fail(h, rc, "%s", err);
    return text_from_scratch(h, ids, max);
}
