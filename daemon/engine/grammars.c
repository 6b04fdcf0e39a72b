/* A small table: looked through from one end to the other. */
#include "daemon/engine/grammars.h"

#include "daemon/cache/prefix.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grammars_entry {
    struct grammar *grammar; /* NULL: free */
    uint8_t *text;           /* [bytes] */
    uint32_t bytes;
    uint32_t users;
    uid_t uid;
    uint64_t used;
};

int grammars_init(struct grammars *grammars, const struct grammar_vocab *vocab, uint32_t n_users)
{
    grammars->vocab = vocab;
    grammars->entries = calloc(n_users + GRAMMARS_IDLE, sizeof(*grammars->entries));
    grammars->n_entries = grammars->entries ? n_users + GRAMMARS_IDLE : 0;
    return grammars->entries ? 0 : -ENOMEM;
}

static void entry_clear(struct grammars_entry *entry)
{
    grammar_close(entry->grammar);
    free(entry->text);
    *entry = (struct grammars_entry){0};
}

void grammars_fini(struct grammars *grammars)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        entry_clear(&grammars->entries[i]);
    free(grammars->entries);
    *grammars = (struct grammars){0};
}

static struct grammars_entry *find(struct grammars *grammars, uid_t uid, const uint8_t *text,
                                   uint32_t bytes)
{
    for (uint32_t i = 0; i < grammars->n_entries && prefix_shares(uid); i++) {
        struct grammars_entry *entry = &grammars->entries[i];
        if (entry->grammar && entry->uid == uid && entry->bytes == bytes &&
            !memcmp(entry->text, text, bytes))
            return entry;
    }
    return NULL;
}

/* A free place, else that of the idle one unused the longest. There is one: see grammars_init. */
static struct grammars_entry *find_place(struct grammars *grammars)
{
    struct grammars_entry *place = NULL;

    for (uint32_t i = 0; i < grammars->n_entries; i++) {
        struct grammars_entry *entry = &grammars->entries[i];
        if (!entry->grammar)
            return entry;
        if (entry->users == 0 && (!place || entry->used < place->used))
            place = entry;
    }
    assert(place);
    entry_clear(place);
    return place;
}

static int entry_open(struct grammars *grammars, struct grammars_entry *entry, uid_t uid,
                      const uint8_t *text, uint32_t bytes, char *err, size_t err_bytes)
{
    int rc =
        grammar_open(grammars->vocab, (const char *)text, bytes, &entry->grammar, err, err_bytes);

    entry->text = malloc(bytes);
    if (rc == 0 && !entry->text)
        rc = -ENOMEM;
    if (rc < 0 || !entry->text) {
        if (rc == -ENOMEM)
            snprintf(err, err_bytes, "not enough memory for the grammar: try again later");
        entry_clear(entry);
        return rc;
    }
    memcpy(entry->text, text, bytes);
    entry->bytes = bytes;
    entry->uid = uid;
    return 0;
}

int grammars_take(struct grammars *grammars, uid_t uid, const uint8_t *text, uint32_t bytes,
                  struct grammar **ret, char *err, size_t err_bytes)
{
    struct grammars_entry *entry = find(grammars, uid, text, bytes);

    if (!entry) {
        entry = find_place(grammars);
        int rc = entry_open(grammars, entry, uid, text, bytes, err, err_bytes);
        if (rc < 0)
            return rc;
    }
    entry->users++;
    entry->used = ++grammars->serial;
    *ret = entry->grammar;
    return 0;
}

void grammars_give(struct grammars *grammars, const struct grammar *grammar)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        if (grammars->entries[i].grammar == grammar)
            grammars->entries[i].users--;
}

void grammars_release(struct grammars *grammars)
{
    for (uint32_t i = 0; i < grammars->n_entries; i++)
        if (grammars->entries[i].users > 0)
            grammar_release(grammars->entries[i].grammar);
}
