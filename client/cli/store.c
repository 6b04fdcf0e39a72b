/* store: `hearth store`: what hearthd keeps in the folder of its KV store, of which model and user; and
 * removes it. */
#include "client/base/printable.h"
#include "client/cli/cli.h"
#include "client/cli/json.h"
#include "client/cli/models.h"
#include "ipc/store_file.h"
#include "ipc/store_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 256, MOST_SLOTS = 1 << 16 };

struct store_row {
    char id[STORE_FOLDER_NAME];          /* of the model's folder */
    char model[STORE_FOLDER_MODEL_TEXT]; /* its name */
    uid_t uid;
    uint64_t bytes, records;
    int64_t written_s; /* since 1970 */
    bool served;       /* by a hearthd that runs */
};

struct store_list {
    struct store_row *rows; /* [n] */
    uint32_t n;
    struct store_row model;              /* that is being looked at */
    char strange[2 * STORE_FOLDER_NAME]; /* below the folder: what could not be looked at */
    bool all_users, clears;
    uid_t only;       /* the user, if not all */
    uint64_t cleared; /* bytes */
};

/* ---- counting ---------------------------------------------------------------------------------- */

static uint64_t count_entries(int fd, uint32_t n_slots)
{
    static struct store_file_entry entries[ENTRIES];
    uint64_t found = 0;
    for (uint32_t i = 0; i < n_slots; i += ENTRIES) {
        ssize_t n = pread(fd, entries, sizeof(entries),
                          (off_t)(STORE_FILE_BLOCK + (uint64_t)i * sizeof(*entries)));
        for (uint32_t k = 0; n >= (ssize_t)((k + 1) * sizeof(*entries)) && i + k < n_slots; k++)
            found += entries[k].used == STORE_FILE_USED;
    }
    return found;
}

static int count_segment(void *context, int folder, const char *name)
{
    struct store_row *row = context;
    struct store_file_header header;
    struct stat st;
    uint32_t number;
    int fd =
        store_folder_is_segment(name, &number) ? store_folder_file(folder, name, O_RDONLY) : -1;
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && st.st_mtim.tv_sec > row->written_s)
        row->written_s = st.st_mtim.tv_sec;
    if (pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
        !memcmp(header.magic, STORE_FILE_MAGIC, sizeof(header.magic)) &&
        header.version == STORE_FILE_VERSION && header.n_slots <= MOST_SLOTS)
        row->records += count_entries(fd, header.n_slots);
    close(fd);
    return 0;
}

static int add_row(struct store_list *list, const struct store_row *row)
{
    void *rows = list->rows;
    int rc = cli_grow(&rows, list->n, sizeof(*list->rows));
    list->rows = rows;
    if (rc == 0)
        list->rows[list->n++] = *row;
    return rc;
}

static int add_user(void *context, int folder, const char *name)
{
    struct store_list *list = context;
    struct store_row row = list->model;
    if (!store_folder_is_user(name, &row.uid) || (!list->all_users && row.uid != list->only))
        return 0;
    int fd = store_folder_enter(folder, name, false);
    int rc = fd < 0 ? fd : store_folder_bytes(fd, &row.bytes);
    if (fd < 0)
        snprintf(list->strange, sizeof(list->strange), "/%s/%.40s", row.id, name);
    if (rc == 0)
        rc = store_folder_list(fd, count_segment, &row);
    if (fd >= 0)
        close(fd);
    return rc == 0 ? add_row(list, &row) : rc;
}

/* ---- models ------------------------------------------------------------------------------------ */

static void read_name(int folder, char name[STORE_FOLDER_MODEL_TEXT])
{
    int fd = store_folder_file(folder, "model", O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, name, STORE_FOLDER_MODEL_TEXT - 1);
    if (fd >= 0)
        close(fd);
    name[n > 0 ? n : 0] = 0;
    name[strcspn(name, "\n")] = 0;
    printable_mask(name); /* it goes to a terminal, and root's shows other users' files */
    if (!*name)
        snprintf(name, STORE_FOLDER_MODEL_TEXT, "?");
}

static int add_model(void *context, int folder, const char *name)
{
    struct store_list *list = context;
    if (!store_folder_is_model(name))
        return 0;
    int fd = store_folder_enter(folder, name, false);
    if (fd < 0) {
        snprintf(list->strange, sizeof(list->strange), "/%.40s", name);
        return fd;
    }
    list->model = (struct store_row){.served = store_folder_is_locked(fd)};
    snprintf(list->model.id, sizeof(list->model.id), "%s", name);
    read_name(fd, list->model.model);
    const uint32_t before = list->n;
    int rc = store_folder_list(fd, add_user, list);
    close(fd);
    if (rc == 0 && list->n == before && list->clears && list->all_users)
        rc = add_row(list, &list->model); /* it has no users, and is cleared as well */
    return rc;
}

static int by_model_and_user(const void *a, const void *b)
{
    const struct store_row *x = a, *y = b;
    int order = strcmp(x->model, y->model);
    if (order == 0)
        order = strcmp(x->id, y->id);
    return order ? order : x->uid < y->uid ? -1 : x->uid > y->uid;
}

/* ---- printing ---------------------------------------------------------------------------------- */

/* 0: of nothing. */
static const char *age(int64_t since_s, char *text, size_t text_bytes)
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}};
    const int64_t s = since_s ? time(NULL) - since_s : 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (s >= units[i].seconds) {
            snprintf(text, text_bytes, "%lld %s", (long long)(s / units[i].seconds), units[i].unit);
            return text;
        }
    return since_s ? "now" : "-";
}

static int name_width(const struct store_list *list)
{
    size_t most = strlen("MODEL");
    for (uint32_t i = 0; i < list->n; i++)
        most = strlen(list->rows[i].model) > most ? strlen(list->rows[i].model) : most;
    return most < 60 ? (int)most : 60;
}

static int print_table(const struct store_list *list)
{
    const int width = name_width(list);
    char size[32], text[32];
    struct buffer out = {0};
    buffer_format(&out, "%-*s  %-8s %10s %9s %8s %7s\n", width, "MODEL", "ID", "USER", "SIZE",
                  "RECORDS", "WRITTEN");
    for (uint32_t i = 0; i < list->n; i++) {
        const struct store_row *row = &list->rows[i];
        buffer_format(&out, "%-*s  %.8s %10u %9s %8llu %7s%s\n", width, row->model, row->id,
                      row->uid, cli_bytes(row->bytes, size, sizeof(size)),
                      (unsigned long long)row->records, age(row->written_s, text, sizeof(text)),
                      row->served ? "  served" : "");
    }
    return cli_print(&out);
}

static int print_json(const struct store_list *list)
{
    struct buffer out = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        const struct store_row *row = &list->rows[i];
        buffer_text(&out, "{\"model\":");
        json_text(&out, row->model, strlen(row->model));
        buffer_format(&out,
                      ",\"id\":\"%s\",\"user\":%u,\"bytes\":%llu,\"records\":%llu,"
                      "\"written\":%lld,\"served\":%s}\n",
                      row->id, row->uid, (unsigned long long)row->bytes,
                      (unsigned long long)row->records, (long long)row->written_s,
                      row->served ? "true" : "false");
    }
    return cli_print(&out);
}

/* ---- clearing ---------------------------------------------------------------------------------- */

/* A user's folder in a model's; and that one, if it is all users', which are cleared one after the other.
 * No hearthd starts with it meanwhile. -EBUSY: one runs with it. */
static int clear_row(const struct store_list *list, int folder, const struct store_row *row)
{
    char user[STORE_FOLDER_NAME];
    int model = store_folder_enter(folder, row->id, false);
    if (model < 0)
        return model;
    int lock = store_folder_lock(model, false), rc = lock == -EBUSY ? lock : 0;
    snprintf(user, sizeof(user), "%u", row->uid);
    if (rc == 0)
        rc = store_folder_clear_user(model, user);
    if (list->all_users && (rc == 0 || rc == -ENOENT))
        rc = store_folder_clear_model(folder, row->id);
    if (lock >= 0)
        close(lock);
    close(model);
    return rc;
}

static int clear(struct store_list *list, int folder, bool json)
{
    char size[32];
    const char *served = "", *last = "";
    struct buffer out = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        const struct store_row *row = &list->rows[i];
        int rc = clear_row(list, folder, row);
        if (rc == -EBUSY)
            served = row->model;
        else if (rc < 0 &&
                 !(rc == -ENOENT && !strcmp(last, row->id))) /* else the row before did it */
            return cli_fail(CLI_SYSTEM, "%s cannot be cleared: %s", row->model, strerror(-rc));
        else
            list->cleared += row->bytes;
        last = row->id;
    }
    if (json)
        buffer_format(&out, "{\"cleared_bytes\":%llu}\n", (unsigned long long)list->cleared);
    else
        buffer_format(&out, "cleared %s\n", cli_bytes(list->cleared, size, sizeof(size)));
    int code = cli_print(&out);
    if (code == 0 && *served)
        code = cli_fail(CLI_BUSY, "%s: a hearthd serves it: stop that, then clear it", served);
    return code;
}

/* ------------------------------------------------------------------------------------------------ */

static int open_folder(const struct cli_options *o, char path[PATH_MAX], int *ret)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (o->dir)
        snprintf(path, PATH_MAX, "%s", o->dir);
    else if (cache && *cache)
        snprintf(path, PATH_MAX, "%s/hearth/kv", cache);
    else
        snprintf(path, PATH_MAX, "%s/.cache/hearth/kv", home ? home : "");
    *ret = store_folder_open(path, false, true);
    if (*ret == -ENOENT)
        return cli_fail(CLI_NO_INPUT,
                        "%s does not exist: give --dir DIR, as hearthd has it in --kv-store", path);
    if (*ret == -EPERM)
        return cli_fail(CLI_SYSTEM, "%s is not yours alone, so not a KV store of yours", path);
    return *ret < 0 ? cli_fail(CLI_SYSTEM, "%s: %s", path, strerror(-*ret)) : 0;
}

static int fail_list(const char *path, const char *strange, int rc)
{
    if (rc == -EPERM || (*strange && (rc == -ELOOP || rc == -ENOTDIR)))
        return cli_fail(CLI_SYSTEM,
                        "%s%s is not its user's alone: make it that, a folder mode 0700, a file "
                        "0600, no link; or remove it",
                        path, strange);
    return cli_fail(CLI_SYSTEM, "%s%s: %s", path, strange, strerror(-rc));
}

int cli_store(const struct cli_options *o)
{
    struct store_list list = {.all_users = !o->user, .clears = o->clear};
    char path[PATH_MAX];
    int folder, code;
    if (o->user && !store_folder_is_user(o->user, &list.only))
        return cli_fail(CLI_USAGE, "--user '%s': give a user's number, as id -u prints it",
                        o->user);
    code = open_folder(o, path, &folder);
    if (code)
        return code;
    int rc = store_folder_list(folder, add_model, &list);
    if (list.n > 0)
        qsort(list.rows, list.n, sizeof(*list.rows), by_model_and_user);
    if (rc < 0)
        code = fail_list(path, list.strange, rc);
    else if (o->clear)
        code = clear(&list, folder, o->json);
    else
        code = o->json ? print_json(&list) : print_table(&list);
    free(list.rows);
    close(folder);
    return code;
}
