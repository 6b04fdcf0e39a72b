/* catalog: see catalog.h. */
#include "client/http/catalog.h"

#include "client/http/dispatch.h"

static void look_work(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct exchange *x = dispatch_exchange(t);
    (void)h, (void)rc, (void)err;
    x->found = disk_list(&x->server->launcher.disk);
}

static void looked(struct task *t)
{
    struct exchange *x = dispatch_exchange(t);
    if (dispatch_is_back(x))
        x->tell(x);
}

void catalog_look(struct exchange *x, void (*tell)(struct exchange *x))
{
    if (!x->server->launcher.server) {
        tell(x);
        return;
    }
    x->tell = tell;
    x->task = (struct task){.work = look_work, .done = looked, .alone = true};
    x->worker = &x->server->launcher.disk.worker;
    worker_give(x->worker, &x->task);
}

static struct catalog_entry entry_of_file(const json_t *file)
{
    return (struct catalog_entry){.name = json_string_value(json_object_get(file, "name")),
                                  .bytes =
                                      (uint64_t)json_integer_value(json_object_get(file, "bytes"))};
}

/* Of the file that it serves, where the list of the disk has it by its name. */
static uint64_t served_file_bytes(const struct exchange *x, const struct served *d)
{
    json_t *file;
    size_t i;
    json_array_foreach(x->found, i, file) {
        const struct catalog_entry e = entry_of_file(file);
        if (served_is_named(d, e.name))
            return e.bytes;
    }
    return 0;
}

static void add_served(struct exchange *x, json_t *list,
                       json_t *(*object)(const struct catalog_entry *e))
{
    struct server *s = x->server;
    const struct option_texts *aliases = &s->config->aliases;
    served_look(s);
    for (struct served *d = s->served; d; d = d->next) {
        struct catalog_entry e = {.name = served_name(d), .served = served_is_asleep(d) ? NULL : d};
        if (!served_is_listed(d))
            continue;
        e.bytes = served_file_bytes(x, d);
        json_array_append_new(list, object(&e));
        for (uint32_t i = 0; d == s->served && i < aliases->n; i++) {
            e.name = aliases->items[i];
            json_array_append_new(list, object(&e));
        }
    }
}

json_t *catalog_list(struct exchange *x, json_t *(*object)(const struct catalog_entry *e))
{
    const struct upstreams *upstreams = x->server->config->upstreams;
    json_t *list = json_array(), *file;
    size_t i;
    add_served(x, list, object);
    for (uint32_t k = 0; upstreams && k < upstreams->n; k++) {
        const struct catalog_entry e = {.name = upstreams->all[k].name, .is_upstream = true};
        json_array_append_new(list, object(&e));
    }
    json_array_foreach(x->found, i, file) {
        const struct catalog_entry e = entry_of_file(file);
        if (!served_is_known(x->server, e.name))
            json_array_append_new(list, object(&e));
    }
    return list;
}
