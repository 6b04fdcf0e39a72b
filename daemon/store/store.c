/* store.c: the engine's side: what is found, read, offered and written, by the index and the buffers. */
#include "daemon/store/store.h"

#include "daemon/overflow_uid.h"
#include "daemon/policy/fault.h"
#include "daemon/store/io.h"
#include "daemon/store/seen.h"
#include "daemon/store/slots.h"
#include "daemon/store/text_key.h"
#include "kernels/base/fail.h"
#include "kernels/base/hash128.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { READS_BYTES = 8 << 20, READS_LEAST = 8 }; /* at once */

enum buffer_use { BUFFER_FREE, BUFFER_READS, BUFFER_READ, BUFFER_FILLS, BUFFER_WRITES };

struct store_buffer {
    uint32_t record;
    uint64_t cookie; /* of a read */
    enum buffer_use use;
};

struct store {
    struct files files;
    struct day day;
    struct store_index index;
    struct io io;
    uint8_t seed[16];
    size_t class_bytes[STORE_CLASSES];
    struct store_buffer buffers[IO_BUFFERS];
    uint32_t free[IO_BUFFERS], n_free;
    uint32_t n_writing; /* buffers that are filled or written */
    uint32_t pending;
    bool is_open;
    bool shared; /* store_share */
    struct store_counts counts;
};

/* ---- open and close ---------------------------------------------------------------------------- */

/* Room for one record of each class at least. */
static uint64_t least_bytes(const struct index_sizes *sizes)
{
    uint64_t least = 0;
    for (int i = 0; i < STORE_CLASSES; i++)
        if (sizes->classes[i].slot_bytes > 0)
            least += sizes->classes[i].slot_bytes + sizes->segment_bytes;
    return least;
}

static int set_sizes(const struct store_options *o, struct index_sizes *ret, char *err,
                     size_t err_bytes)
{
    *ret = (struct index_sizes){
        .bytes = o->bytes, .min_tokens = o->min_tokens, .segment_bytes = STORE_FILE_BLOCK};
    for (int i = 0; i < STORE_CLASSES; i++) {
        if (o->class_bytes[i] == 0)
            continue;
        if (o->class_bytes[i] > STORE_FILE_BYTES || format_slots(o->class_bytes[i]) == 0)
            return fail(err, err_bytes, -EINVAL,
                        "--kv-store: one state of this model is larger than a file of the store");
        ret->classes[i] = (struct index_size){.slot_bytes = format_slot_bytes(o->class_bytes[i]),
                                              .n_slots = format_slots(o->class_bytes[i])};
    }
    if (o->bytes < least_bytes(ret))
        return fail(err, err_bytes, -EINVAL,
                    "--kv-store-bytes %llu has no room for a page of this model: give %llu at the "
                    "least; what is in %s stays",
                    (unsigned long long)o->bytes, (unsigned long long)least_bytes(ret), o->path);
    return 0;
}

static size_t largest(const size_t class_bytes[STORE_CLASSES])
{
    size_t most = 0;
    for (int i = 0; i < STORE_CLASSES; i++)
        most = class_bytes[i] > most ? class_bytes[i] : most;
    return most;
}

static int open_parts(struct store *store, const struct store_options *o, char *err,
                      size_t err_bytes)
{
    const size_t most = largest(o->class_bytes);
    struct index_sizes sizes;
    int rc = set_sizes(o, &sizes, err, err_bytes);
    if (rc == 0)
        rc = files_open(&store->files, o->path, store->seed, o->model, err, err_bytes);
    if (rc < 0)
        return rc;
    memcpy(store->files.class_bytes, o->class_bytes, sizeof(o->class_bytes));
    store->files.cut = o->cut;
    rc = day_open(&store->day, store->files.folder, o->day_bytes, format_slot_bytes(most),
                  o->today ? o->today : day_today);
    if (rc < 0)
        return files_say(rc, o->path, "day", err, err_bytes);
    rc = index_init(&store->index, &sizes);
    if (rc == 0)
        rc = files_load(&store->files, &store->index);
    if (rc == 0)
        seen_load(&store->files, &store->index);
    if (rc == 0)
        rc = io_open(&store->io, &store->files, &store->day, most, o->plain, o->by_hand);
    return rc == 0 ? 0 : fail(err, err_bytes, rc, "%s: %s", o->path, strerror(-rc));
}

int store_open(struct store **ret_store, const struct store_options *options, char *err,
               size_t err_bytes)
{
    struct store *store = calloc(1, sizeof(*store));
    *ret_store = NULL;
    if (!store)
        return fail(err, err_bytes, -ENOMEM, "no memory for the KV store");
    store->files.folder = store->files.model_folder = store->files.lock = -1;
    store->day.fd = store->io.event_fd = store->io.done_fd = -1;
    memcpy(store->class_bytes, options->class_bytes, sizeof(store->class_bytes));
    hash128(options->seed, options->seed_bytes, store->seed);
    int rc = open_parts(store, options, err, err_bytes);
    if (rc < 0) {
        store_close(store);
        return rc;
    }
    for (; store->n_free < store->io.n_buffers; store->n_free++)
        store->free[store->n_free] = store->n_free;
    store->is_open = true;
    *ret_store = store;
    return 0;
}

void store_share(struct store *store)
{
    store->shared = true;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    io_close(&store->io);
    if (store->is_open)
        seen_save(&store->files, &store->index);
    day_close(&store->day);
    files_close(&store->files);
    index_fini(&store->index);
    free(store);
}

/* ---- texts ------------------------------------------------------------------------------------- */

void store_begin(const struct store *store, uid_t uid, struct store_text *ret)
{
    struct {
        uint8_t seed[16];
        uint64_t user;
    } named = {.user = uid};
    *ret = (struct store_text){.uid = uid};
    memcpy(named.seed, store->seed, sizeof(named.seed));
    text_key(&named, sizeof(named), (uint8_t *)ret->key.words);
}

void store_follow(struct store_text *text, const uint32_t *tokens)
{
    store_follow_part(text, tokens, STORE_TOKENS);
}

void store_follow_part(struct store_text *text, const uint32_t *tokens, uint32_t n)
{
    struct {
        struct store_key parent;
        uint32_t tokens[STORE_TOKENS];
    } named;
    assert(text->end % STORE_TOKENS == 0 && n <= STORE_TOKENS);
    text->parent = text->key;
    memcpy(text->tokens, tokens, n * sizeof(*tokens));
    for (uint32_t i = n; i < STORE_TOKENS; i++)
        text->tokens[i] = STORE_NO_TOKEN;
    named.parent = text->parent;
    memcpy(named.tokens, text->tokens, sizeof(named.tokens));
    text_key(&named, sizeof(named), (uint8_t *)text->key.words);
    text->end += n;
}

/* ---- buffers ----------------------------------------------------------------------------------- */

/* A job that will end has a place in the queue for what it may have to let go of. */
static bool is_room(struct store *store, uint32_t jobs)
{
    return store->n_free > 0 && io_room(&store->io) > jobs + store->io.n_buffers;
}

static uint32_t n_reading(const struct store *store)
{
    return store->io.n_buffers - store->n_free - store->n_writing;
}

static uint32_t take_buffer(struct store *store, uint32_t record, enum buffer_use use)
{
    const uint32_t id = store->free[--store->n_free];
    store->buffers[id] = (struct store_buffer){.record = record, .use = use};
    store->io.into[id] = NULL;
    return id;
}

static void free_buffer(struct store *store, uint32_t id)
{
    const enum buffer_use use = store->buffers[id].use;
    store->n_writing -= use == BUFFER_FILLS || use == BUFFER_WRITES;
    store->buffers[id].use = BUFFER_FREE;
    store->free[store->n_free++] = id;
}

static uint32_t buffer_of(const struct store *store, const void *payload, enum buffer_use use)
{
    const size_t id = (size_t)((const uint8_t *)payload - store->io.payloads) / store->io.stride;
    assert(id < store->io.n_buffers && store->buffers[id].use == use);
    return (uint32_t)id;
}

static void let_go(struct store *store)
{
    for (uint32_t i = 0; i < store->index.n_gone; i++) {
        const struct io_job job = {.kind = IO_LET_GO, .gone = store->index.gone[i]};
        io_post(&store->io, &job);
    }
    store->index.n_gone = 0;
}

static void post(struct store *store, uint32_t id, enum io_kind kind)
{
    const struct index_record *r = &store->index.records[store->buffers[id].record];
    const struct io_job job = {
        .kind = kind,
        .class = r->class,
        .fault = fault_hits(FAULT_STORE_FAIL)                       ? IO_FAILS
                 : kind == IO_WRITE && fault_hits(FAULT_STORE_TEAR) ? IO_TORN
                 : fault_hits(FAULT_STORE_SLOW)                     ? IO_SLOW
                                                                    : IO_SOUND,
        .buffer = id,
        .segment = r->segment,
        .slot = r->slot,
        .number = store->index.segments[r->segment].number,
        .uid = r->text.uid,
    };
    io_post(&store->io, &job);
    store->pending++;
}

/* ---- from the store ---------------------------------------------------------------------------- */

uint32_t store_find(const struct store *store, enum store_class class,
                    const struct store_text *text)
{
    return index_find(&store->index, class, text);
}

bool store_find_begun(const struct store *store, const struct store_text *text,
                      const uint32_t *tokens, uint32_t n, struct store_text *ret, uint32_t *ret_n)
{
    const uint32_t page = index_find_begun(&store->index, text, tokens, n, ret_n);
    if (page != STORE_NONE)
        *ret = store->index.records[page].text;
    return page != STORE_NONE;
}

/* That many bytes keep the disk busy, and the buffers stay in the processor's cache until they are taken. */
uint32_t store_reads(const struct store *store)
{
    const uint32_t half = store->io.n_buffers / 2;
    uint32_t enough = (uint32_t)(READS_BYTES / store->io.stride);
    enough = enough > READS_LEAST ? enough : READS_LEAST;
    return half < enough ? half : enough;
}

bool store_reads_more(struct store *store)
{
    return n_reading(store) < store_reads(store) && is_room(store, 1);
}

void store_read(struct store *store, uint32_t record, uint64_t cookie, void *into)
{
    const uint32_t id = take_buffer(store, record, BUFFER_READS);
    store->buffers[id].cookie = cookie;
    store->io.into[id] = into;
    memcpy(store->io.entries[id].payload, store->index.records[record].hash, 16);
    index_read(&store->index, record);
    post(store, id, IO_READ);
}

static void charge(struct store *store, uint32_t record, int64_t bytes)
{
    index_charge(&store->index, record, atomic_load(&store->day.last), bytes);
}

/* What was not written was not spent: a full disk would spend the day. */
static void wrote(struct store *store, uint32_t id, const struct io_done *done)
{
    const uint32_t record = store->buffers[id].record;
    if (done->status == 0) {
        store->counts.written++;
        store->counts.written_bytes += store->class_bytes[store->index.records[record].class];
        index_stored(&store->index, record, store->io.entries[id].payload);
    } else {
        store->counts.failed++;
        day_unspend(&store->day, done->unwritten);
        charge(store, record, -(int64_t)done->unwritten);
        index_forget(&store->index, record);
        let_go(store);
    }
    free_buffer(store, id);
}

static void has_read(struct store *store, uint32_t id, const struct io_done *done,
                     struct store_done *ret)
{
    struct store_buffer *b = &store->buffers[id];
    const struct index_record *r = &store->index.records[b->record];
    *ret = (struct store_done){
        .cookie = b->cookie, .class = r->class, .status = done->status, .took_ns = done->took_ns};
    index_unread(&store->index, b->record);
    if (done->status == 0) {
        store->counts.read++;
        store->counts.read_bytes += store->class_bytes[r->class];
        if (store->io.into[id]) {
            free_buffer(store, id);
            return;
        }
        b->use = BUFFER_READ;
        ret->payload = io_payload(&store->io, id);
        return;
    }
    store->counts.damaged += done->status == -EBADMSG;
    store->counts.failed += done->status != -EBADMSG;
    if (r->readers == 0) { /* else the last of them forgets it */
        index_forget(&store->index, b->record);
        let_go(store);
    }
    free_buffer(store, id);
}

bool store_take(struct store *store, struct store_done *ret)
{
    struct io_done done;
    while (io_take(&store->io, &done)) {
        store->pending--;
        if (store->buffers[done.buffer].use == BUFFER_READS) {
            has_read(store, done.buffer, &done, ret);
            return true;
        }
        wrote(store, done.buffer, &done);
    }
    return false;
}

void store_release(struct store *store, const void *payload)
{
    free_buffer(store, buffer_of(store, payload, BUFFER_READ));
}

bool store_ready(const struct store *store)
{
    return io_ready(&store->io);
}

uint32_t store_min_tokens(const struct store *store)
{
    return store->index.sizes.min_tokens;
}

int store_event_fd(const struct store *store)
{
    return store->io.done_fd;
}

/* ---- into the store ---------------------------------------------------------------------------- */

static bool is_busy(struct store *store, uint32_t buffers)
{
    return store->n_writing >= buffers || !is_room(store, INDEX_GONE + 1);
}

static uint64_t bytes_of(const struct store *store, enum store_class class)
{
    return store->index.sizes.classes[class].slot_bytes;
}

/* The first time that it is refused, the thread is told to look for another day. */
static bool spend(struct store *store, uid_t uid, uint64_t bytes)
{
    const uint64_t day = atomic_load(&store->day.last);
    const uint64_t own = store->shared ? index_written(&store->index, uid, day) : 0;
    const bool was_short = atomic_load(&store->day.short_of);
    const bool spent = day_spend(&store->day, bytes, own);
    store->io.posted |= !spent && !was_short;
    return spent;
}

/* `buffers`: that writes may have. */
static void *offer(struct store *store, enum store_class class, const struct store_text *text,
                   uint64_t cost_ns, bool wanted, uint32_t buffers)
{
    uint64_t *refused = NULL;
    uint32_t record = STORE_NONE;
    assert(store->class_bytes[class] > 0 && text->end > 0);
    enum index_answer answer = index_wants(&store->index, class, text, wanted);
    if (answer == INDEX_HAS)
        return NULL;
    if (answer == INDEX_SHORT)
        refused = &store->counts.too_short;
    else if (is_busy(store, buffers))
        refused = &store->counts.busy;
    else if (!spend(store, text->uid, bytes_of(store, class)))
        refused = &store->counts.day_spent;
    if (refused) {
        (*refused)++;
        return NULL;
    }
    record = index_add(&store->index, class, text, cost_ns);
    let_go(store);
    if (record == STORE_NONE) {
        day_unspend(&store->day, bytes_of(store, class));
        store->counts.no_room++;
        return NULL;
    }
    charge(store, record, (int64_t)bytes_of(store, class));
    store->n_writing++;
    return io_payload(&store->io, take_buffer(store, record, BUFFER_FILLS));
}

void *store_offer(struct store *store, enum store_class class, const struct store_text *text,
                  uint64_t cost_ns, bool wanted)
{
    return offer(store, class, text, cost_ns, wanted, store->io.n_buffers / 2);
}

void *store_offer_spare(struct store *store, enum store_class class, const struct store_text *text,
                        uint64_t cost_ns, bool wanted)
{
    return index_has_room(&store->index, class) && day_has_half(&store->day)
               ? offer(store, class, text, cost_ns, wanted, store->io.n_buffers / 4)
               : NULL;
}

void store_write(struct store *store, void *payload)
{
    const uint32_t id = buffer_of(store, payload, BUFFER_FILLS);
    const struct index_record *r = &store->index.records[store->buffers[id].record];
    format_entry(&store->io.entries[id], r->class, &r->text, r->cost_ns,
                 store->index.users[r->user].inflation);
    store->buffers[id].use = BUFFER_WRITES;
    post(store, id, IO_WRITE);
}

void store_withdraw(struct store *store, void *payload)
{
    const uint32_t id = buffer_of(store, payload, BUFFER_FILLS), record = store->buffers[id].record;
    const uint64_t bytes = bytes_of(store, store->index.records[record].class);
    day_unspend(&store->day, bytes);
    charge(store, record, -(int64_t)bytes);
    index_forget(&store->index, record);
    let_go(store);
    free_buffer(store, id);
}

void store_submit(struct store *store)
{
    io_submit(&store->io);
}

void store_abandon(struct store *store)
{
    io_abandon(&store->io);
}

uint32_t store_pending(const struct store *store)
{
    return store->pending;
}

/* ---- the rest ---------------------------------------------------------------------------------- */

void store_counts(const struct store *store, struct store_counts *ret)
{
    *ret = store->counts;
    ret->records = store->index.n_stored;
    ret->bytes = store->index.bytes;
    ret->other_bytes = store->index.other_bytes;
    ret->evicted = store->index.evicted;
}

int store_save_slots(struct store *store, const struct store_slot *slots, uint32_t n)
{
    return slots_save(&store->files, slots, n);
}

int store_load_slots(struct store *store,
                     void (*each)(void *context, const struct store_slot *slot), void *context)
{
    return slots_load(&store->files, each, context);
}

uint32_t store_work(struct store *store, uint32_t n)
{
    return io_work(&store->io, n);
}
