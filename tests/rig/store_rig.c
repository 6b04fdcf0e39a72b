/* store_rig.c: see store_rig.h. */
#include "tests/rig/store_rig.h"

#include <check.h>
#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SEED[] = "a model, its numerics and sizes";

void store_rig_init(struct store_rig *rig)
{
    *rig = (struct store_rig){
        .root = "/tmp/hearth-store-XXXXXX",
        .options = {.model = "a model",
                    .seed = SEED,
                    .seed_bytes = sizeof(SEED),
                    .class_bytes = {300000, 5000, 70001},
                    .bytes = 64 << 20,
                    .day_bytes = 1 << 30,
                    .min_tokens = 64,
                    .by_hand = true},
    };
    ck_assert_ptr_nonnull(mkdtemp(rig->root));
    snprintf(rig->path, sizeof(rig->path), "%s/store", rig->root);
    rig->options.path = rig->path;
}

void store_rig_fini(struct store_rig *rig)
{
    char command[128];
    store_rig_close(rig);
    snprintf(command, sizeof(command), "rm -rf %s", rig->root);
    ck_assert_int_eq(system(command), 0);
}

int store_rig_try(struct store_rig *rig)
{
    store_rig_close(rig);
    return store_open(&rig->store, &rig->options, rig->err, sizeof(rig->err));
}

void store_rig_open(struct store_rig *rig)
{
    int rc = store_rig_try(rig);
    ck_assert_msg(rc == 0, "%d: %s", rc, rig->err);
}

void store_rig_close(struct store_rig *rig)
{
    store_close(rig->store);
    rig->store = NULL;
}

struct store_text store_rig_text(const struct store_rig *rig, uid_t uid, uint32_t number,
                                 uint32_t end)
{
    struct store_text text;
    store_begin(rig->store, uid, &text);
    while (text.end < end) {
        uint32_t tokens[STORE_TOKENS];
        for (uint32_t i = 0; i < STORE_TOKENS; i++)
            tokens[i] = (text.end < 64 ? number / 10 * 10 : number) * 1000 + text.end + i;
        store_follow(&text, tokens);
    }
    return text;
}

void store_rig_fill(void *payload, size_t bytes, enum store_class class,
                    const struct store_text *text)
{
    uint64_t state = text->key.words[0] ^ text->key.words[1] ^ (uint64_t) class;
    uint8_t *to = payload;
    for (size_t i = 0; i < bytes; i++) {
        if (i % 8 == 0)
            state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = (uint8_t)(state >> (i % 8 * 8));
    }
}

void store_rig_wait(struct store_rig *rig)
{
    struct pollfd done = {.fd = store_event_fd(rig->store), .events = POLLIN};
    store_submit(rig->store);
    if (rig->options.by_hand)
        while (store_work(rig->store, 1000) > 0)
            ;
    else
        ck_assert_int_eq(poll(&done, 1, -1), 1);
}

/* The payload that a read brings, or NULL with its status. */
static const void *take(struct store_rig *rig, struct store_done *ret)
{
    while (store_pending(rig->store) > 0) {
        store_rig_wait(rig);
        if (store_take(rig->store, ret))
            return ret->payload;
    }
    ret->status = 0;
    return NULL;
}

bool store_rig_put_wanted(struct store_rig *rig, enum store_class class,
                          const struct store_text *text, uint64_t cost_ns, bool wanted)
{
    struct store_done done;
    void *payload = store_offer(rig->store, class, text, cost_ns, wanted);
    if (!payload)
        return false;
    store_rig_fill(payload, rig->options.class_bytes[class], class, text);
    store_write(rig->store, payload);
    ck_assert_ptr_null(take(rig, &done));
    return true;
}

bool store_rig_put(struct store_rig *rig, enum store_class class, const struct store_text *text)
{
    return store_rig_put_wanted(rig, class, text, 1000000, false);
}

int store_rig_get(struct store_rig *rig, enum store_class class, const struct store_text *text)
{
    const size_t bytes = rig->options.class_bytes[class];
    uint8_t *want = malloc(bytes);
    struct store_done done;
    uint32_t record = store_find(rig->store, class, text);
    ck_assert_ptr_nonnull(want);
    if (record == STORE_NONE) {
        free(want);
        return -ENOENT;
    }
    ck_assert(store_reads_more(rig->store));
    store_read(rig->store, record, 7, NULL);
    const void *payload = take(rig, &done);
    ck_assert_uint_eq(done.cookie, 7);
    ck_assert_int_eq(done.class, class);
    ck_assert_int_eq(payload == NULL, done.status != 0);
    if (payload) {
        store_rig_fill(want, bytes, class, text);
        ck_assert_mem_eq(payload, want, bytes);
        store_release(rig->store, payload);
    }
    free(want);
    return done.status;
}

static const char *below(const struct store_rig *rig, const char *format, va_list args)
{
    static char text[256];
    int n = snprintf(text, sizeof(text), "%s/", rig->path);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    return text;
}

const char *store_rig_in(const struct store_rig *rig, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = below(rig, format, args);
    va_end(args);
    return text;
}

const char *store_rig_found(const struct store_rig *rig, const char *format, ...)
{
    static char text[256];
    va_list args;
    glob_t found;
    va_start(args, format);
    const int rc = glob(below(rig, format, args), 0, NULL, &found);
    va_end(args);
    text[0] = 0;
    if (rc == 0) {
        ck_assert_uint_eq(found.gl_pathc, 1);
        snprintf(text, sizeof(text), "%s", found.gl_pathv[0]);
        globfree(&found);
    }
    return text[0] ? text : NULL;
}
