/* A small table: looked through from one end to the other. */
#include "daemon/engine/grammars.h"

#include "daemon/overflow_uid.h"
#include "kernels/base/hash128.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Beside those in use and idle: one that is still being compiled after its request has ended. */
enum { ABANDONED = 1 };

/* Each ns takes 8 ns to pay off. A user may owe two seconds: a quarter of a second of compiling. */
enum { COMPILE_SHARE = 8 };
static const uint64_t COMPILE_CREDIT_NS = 2000000000;

int grammars_init(struct grammars *grammars, const struct grammar_vocab *vocab, uint32_t n_users,
                  uint64_t (*cpu_ns)(void))
{
    uint32_t n = n_users + GRAMMARS_IDLE + ABANDONED;
    compiler_init(&grammars->compiler, vocab, cpu_ns);
    grammars->entries = calloc(n, sizeof(*grammars->entries));
    grammars->users = calloc(n, sizeof(*grammars->users));
    grammars->n_entries = grammars->entries && grammars->users ? n : 0;
    return grammars->n_entries ? 0 : -ENOMEM;
}

static void entry_clear(struct grammars_entry *entry)
{
    grammar_close(entry->job.grammar);
    free(entry->job.text);
    *entry = (struct grammars_entry){0};
}

void grammars_fini(struct grammars *grammars)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        entry_clear(&grammars->entries[i]);
    free(grammars->entries);
    free(grammars->users);
    compiler_fini(&grammars->compiler);
    *grammars = (struct grammars){0};
}

/* May the result be kept for the next request? The job is read only once it is done. */
static bool is_lasting(const struct grammars_entry *entry)
{
    return overflow_uid_shares(entry->uid) &&
           (entry->state != GRAMMARS_DONE || entry->job.error != -ENOMEM);
}

static struct grammars_entry *find(struct grammars *grammars, const struct grammars_entry *key)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++) {
        struct grammars_entry *entry = &grammars->entries[i];
        if (entry->state != GRAMMARS_FREE && entry->uid == key->uid && is_lasting(entry) &&
            entry->job.bytes == key->job.bytes &&
            !memcmp(entry->hash, key->hash, sizeof(key->hash)) &&
            !memcmp(entry->job.text, key->job.text, key->job.bytes))
            return entry;
    }
    return NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_idle(const struct grammars_entry *entry)
{
    return entry->state == GRAMMARS_DONE && entry->users == 0;
}

static uint32_t count_idle(const struct grammars *grammars, uid_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        n += is_idle(&grammars->entries[i]) && grammars->entries[i].uid == uid;
    return n;
}

/* A free place, else the least recently used idle one of the user with the most of them: a user's
 * grammars do not push out those of another one with fewer. There is one: see grammars_init. */
static struct grammars_entry *find_place(struct grammars *grammars)
{
    struct grammars_entry *place = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < grammars->n_entries; i++) {
        struct grammars_entry *entry = &grammars->entries[i];
        if (entry->state == GRAMMARS_FREE)
            return entry;
        if (!is_idle(entry))
            continue;
        uint32_t n = place && place->uid == entry->uid ? most : count_idle(grammars, entry->uid);
        if (n > most || (n == most && entry->used < place->used)) {
            place = entry;
            most = n;
        }
    }
    assert(place);
    entry_clear(place);
    return place;
}

/* ---- in use ---------------------------------------------------------------------------------- */

int grammars_take(struct grammars *grammars, uid_t uid, const uint8_t *text, uint32_t bytes,
                  struct grammars_entry **ret)
{
    struct grammars_entry key = {.state = GRAMMARS_WAITING,
                                 .job = {.text = (uint8_t *)(uintptr_t)text, .bytes = bytes},
                                 .uid = uid};
    hash128(text, bytes, key.hash);
    struct grammars_entry *entry = find(grammars, &key);
    if (!entry) {
        uint8_t *copy = malloc(bytes);
        if (!copy)
            return -ENOMEM;
        key.job.text = memcpy(copy, text, bytes);
        key.used = ++grammars->serial;
        entry = find_place(grammars);
        *entry = key;
    }
    if (entry->state == GRAMMARS_DONE)
        entry->used = ++grammars->serial;
    entry->users++;
    *ret = entry;
    return 0;
}

/* What is not used, and will not be, goes. */
static void entry_tidy(struct grammars_entry *entry)
{
    if (entry->users == 0 &&
        (entry->state == GRAMMARS_WAITING || (entry->state == GRAMMARS_DONE && !is_lasting(entry))))
        entry_clear(entry);
}

void grammars_give(struct grammars_entry *entry)
{
    entry->users--;
    entry_tidy(entry);
}

static bool is_lent(const struct grammars_entry *entry)
{
    return entry->users > 0 && entry->state == GRAMMARS_DONE && entry->job.grammar;
}

void grammars_release(struct grammars *grammars)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        if (is_lent(&grammars->entries[i]))
            grammar_release(grammars->entries[i].job.grammar);
}

/* ---- compiling ------------------------------------------------------------------------------- */

static struct grammars_user *find_user(const struct grammars *grammars, uid_t uid)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        if (grammars->users[i].uid == uid)
            return &grammars->users[i];
    return NULL;
}

/* Gives the user a place where it has none: that of the debt that is paid first. */
static void charge(struct grammars *grammars, uid_t uid, uint64_t ns, uint64_t now_ns)
{
    struct grammars_user *user = find_user(grammars, uid);
    if (!user) {
        user = &grammars->users[0];
        for (uint32_t i = 1; i < grammars->n_entries; i++)
            if (grammars->users[i].compiling.paid_ns < user->compiling.paid_ns)
                user = &grammars->users[i];
        *user = (struct grammars_user){.uid = uid};
    }
    debt_charge(&user->compiling, ns, COMPILE_SHARE, COMPILE_CREDIT_NS, now_ns);
}

/* When the user owes little enough for its next grammar. */
static uint64_t due_ns(const struct grammars *grammars, uid_t uid)
{
    const struct grammars_user *user = find_user(grammars, uid);
    uint64_t paid_ns = user ? user->compiling.paid_ns : 0;
    return paid_ns > COMPILE_CREDIT_NS ? paid_ns - COMPILE_CREDIT_NS : 0;
}

/* The job of the next user after the last one's, in the circle of their numbers, that does not owe too
 * much. */
static struct grammars_entry *find_job(struct grammars *grammars, uint64_t now_ns)
{
    struct grammars_entry *job = NULL;
    uid_t nearest = 0;
    for (uint32_t i = 0; i < grammars->n_entries; i++) {
        struct grammars_entry *entry = &grammars->entries[i];
        uid_t distance = entry->uid - grammars->turn - 1;
        if (entry->state != GRAMMARS_WAITING || due_ns(grammars, entry->uid) > now_ns)
            continue;
        if (!job || distance < nearest || (distance == nearest && entry->used < job->used)) {
            job = entry;
            nearest = distance;
        }
    }
    return job;
}

bool grammars_look(const struct grammars *grammars)
{
    return compiler_done(&grammars->compiler);
}

uint64_t grammars_deadline(const struct grammars *grammars)
{
    uint64_t first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < grammars->n_entries && !grammars->compiling; i++) {
        const struct grammars_entry *entry = &grammars->entries[i];
        if (entry->state == GRAMMARS_WAITING && due_ns(grammars, entry->uid) < first_ns)
            first_ns = due_ns(grammars, entry->uid);
    }
    return first_ns;
}

bool grammars_step(struct grammars *grammars, uint64_t now_ns)
{
    bool done = compiler_finish(&grammars->compiler);
    if (done) {
        struct grammars_entry *entry = grammars->compiling;
        charge(grammars, entry->uid, entry->job.took_ns, now_ns);
        entry->state = GRAMMARS_DONE;
        entry_tidy(entry);
        grammars->compiling = NULL;
    }
    struct grammars_entry *next = grammars->compiling ? NULL : find_job(grammars, now_ns);
    if (next) {
        grammars->turn = next->uid;
        grammars->compiling = next;
        next->state = GRAMMARS_COMPILING;
        compiler_start(&grammars->compiler, &next->job);
    }
    return done;
}
