/* top_sample: a status as numbers, see top_sample.h. */
#include "client/cli/top_sample.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number_of(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

/* Copies a text so that a terminal can show it: control characters of ASCII and Latin-1 (0xc2 0x80
 * ..) become '?', and half a character at the end is cut. jansson has checked that it is UTF-8. */
static void word_of(const json_t *object, const char *name, char ret[TOP_WORD_BYTES])
{
    const char *text = json_string_value(json_object_get(object, name));
    size_t n = 0;
    for (; text && *text && n + 1 < TOP_WORD_BYTES; text++) {
        unsigned char byte = (unsigned char)*text;
        int latin = byte == 0xc2 && (unsigned char)text[1] < 0xa0;
        ret[n++] = byte < 0x20 || byte == 0x7f || latin ? '?' : *text;
        text += latin;
    }
    if (text && *text)
        while (n && ((unsigned char)*text & 0xc0) == 0x80)
            text -= 1, n--;
    ret[n] = 0;
}

static void read_slot(const json_t *row, struct top_slot *ret)
{
    *ret = (struct top_slot){
        .client = number_of(row, "client"),
        .slot = number_of(row, "slot"),
        .uid = number_of(row, "uid"),
        .pid = number_of(row, "pid"),
        .prompt = number_of(row, "prompt"),
        .prefix_break = number_of(row, "prefix_break"),
        .prefix_lost = number_of(row, "prefix_lost"),
        .kv = number_of(row, "kv"),
        .output = number_of(row, "output"),
        .outputs = number_of(row, "outputs"),
        .rate = -1,
    };
    word_of(row, "name", ret->name);
    word_of(row, "state", ret->state);
    word_of(row, "priority", ret->priority);
    snprintf(ret->user, sizeof(ret->user), "%llu", (unsigned long long)ret->uid);
}

int top_sample_read(const char *json, size_t bytes, uint64_t at_ns, struct top_sample *ret)
{
    json_t *status = json_loadb(json, bytes, 0, NULL);
    int rc = json_is_object(status) ? 0 : -EBADMSG;
    *ret = (struct top_sample){.at_ns = at_ns};
#define TOP_NUMBER(name) ret->name = number_of(status, #name);
#define TOP_WORD(name) word_of(status, #name, ret->name);
    TOP_NUMBERS(TOP_NUMBER)
    TOP_WORDS(TOP_WORD)
#undef TOP_NUMBER
#undef TOP_WORD
    const json_t *rows = json_object_get(status, "slots");
    size_t n = json_array_size(rows);
    ret->slots = n ? calloc(n, sizeof(*ret->slots)) : NULL;
    if (n && !ret->slots)
        rc = -ENOMEM;
    for (size_t i = 0; i < n && !rc; i++)
        read_slot(json_array_get(rows, i), &ret->slots[ret->n_slots++]);
    json_decref(status);
    return rc;
}

void top_sample_fini(struct top_sample *sample)
{
    free(sample->slots);
    *sample = (struct top_sample){0};
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const struct top_slot *find(const struct top_sample *sample, const struct top_slot *slot)
{
    for (uint32_t i = 0; i < sample->n_slots; i++)
        if (sample->slots[i].client == slot->client && sample->slots[i].slot == slot->slot)
            return &sample->slots[i];
    return NULL;
}

/* Busy slots first, then the fastest, then in a fixed order. */
static int compare_slots(const void *a, const void *b)
{
    const struct top_slot *x = a, *y = b;
    int idle_x = !strcmp(x->state, "idle"), idle_y = !strcmp(y->state, "idle");
    if (idle_x != idle_y)
        return idle_x - idle_y;
    if (x->rate < y->rate || x->rate > y->rate)
        return x->rate < y->rate ? 1 : -1;
    if (x->client != y->client)
        return x->client < y->client ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

void top_sample_compare(struct top_sample *now, const struct top_sample *before)
{
    double seconds = before ? (double)(now->at_ns - before->at_ns) * 1e-9 : 0;
    for (uint32_t i = 0; i < now->n_slots; i++) {
        struct top_slot *slot = &now->slots[i];
        const struct top_slot *was = before ? find(before, slot) : NULL;
        uint64_t from = was ? was->outputs : 0; /* a client that came since then began at 0 */
        slot->rate =
            seconds > 0 && slot->outputs >= from ? (double)(slot->outputs - from) / seconds : -1;
    }
    if (now->n_slots)
        qsort(now->slots, now->n_slots, sizeof(*now->slots), compare_slots);
}
