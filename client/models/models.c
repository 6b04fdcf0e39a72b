/* models: see models.h. */
#include "client/models/models.h"

#include "client/base/printable.h"
#include "client/models/scan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int scan_place(struct models *models, const char *source, const char *root);

static int scan_ollama_place(struct models *models, const char *source, const char *root)
{
    (void)source;
    return scan_ollama(models, root);
}

/* Where programs keep models: in the folder that the variable names, if it is set; below it if
 * `below` is set; else in each of these. `~c`: the user's folder for caches, `~d` for data, `~` home. */
static const struct place {
    const char *source;
    const char *variables[2];
    const char *below[2];
    const char *folders[4];
    scan_place *scan;
} places[] = {
    {"hearth",
     {"HEARTH_MODELS"},
     {""},
     {"~d/hearth/models", "/var/lib/hearth", "/usr/local/share/hearth", "/usr/share/hearth"},
     scan_folder},
    {"hugging-face",
     {"HF_HUB_CACHE", "HF_HOME"},
     {"", "/hub"},
     {"~c/huggingface/hub"},
     scan_folder},
    {"llama.cpp", {"LLAMA_CACHE"}, {""}, {"~c/llama.cpp"}, scan_folder},
    {"lm-studio", {NULL}, {NULL}, {"~/.lmstudio/models", "~c/lm-studio/models"}, scan_folder},
    {"ollama",
     {"OLLAMA_MODELS"},
     {""},
     {"~/.ollama/models", "/usr/share/ollama/.ollama/models"},
     scan_ollama_place},
};
enum { N_PLACES = sizeof(places) / sizeof(*places) };

/* A variable that is set to something, or NULL. */
static const char *variable(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

/* The place that a text of the table stands for: malloc'ed; NULL without memory, "" without a home. */
static char *expand(const char *folder)
{
    const char *home = variable("HOME"), *own = NULL, *below = "";
    char *path;
    if (folder[0] != '~')
        return strdup(folder);
    if (folder[1] == 'c') {
        own = variable("XDG_CACHE_HOME");
        below = "/.cache";
    } else if (folder[1] == 'd') {
        own = variable("XDG_DATA_HOME");
        below = "/.local/share";
    }
    if (!own && !home)
        return strdup("");
    if (asprintf(&path, "%s%s%s", own ? own : home, own ? "" : below, strchr(folder, '/')) < 0)
        return NULL;
    return path;
}

/* A list of folders, separated by colons, each with `below` after it. */
static int scan_list(struct models *models, const struct place *place, const char *list,
                     const char *below)
{
    int rc = 0;
    while (rc == 0 && *list) {
        const size_t bytes = strcspn(list, ":");
        char *root;
        if (asprintf(&root, "%.*s%s", (int)bytes, list, below) < 0)
            return -ENOMEM;
        if (bytes > 0)
            rc = place->scan(models, place->source, root);
        free(root);
        list += bytes + (list[bytes] == ':');
    }
    return rc;
}

static int scan(struct models *models, const struct place *place)
{
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        const char *list = variable(place->variables[i]);
        if (list)
            return scan_list(models, place, list, place->below[i]);
    }
    for (int i = 0; rc == 0 && i < 4 && place->folders[i]; i++) {
        char *root = expand(place->folders[i]);
        if (!root)
            return -ENOMEM;
        if (*root)
            rc = place->scan(models, place->source, root);
        free(root);
    }
    return rc;
}

static int compare_names(const void *a, const void *b)
{
    const struct model_file *x = a, *y = b;
    int order = strcasecmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path);
}

static bool same_name(const struct models *models, size_t i, size_t j)
{
    return i < models->n && j < models->n &&
           strcasecmp(models->files[i].name, models->files[j].name) == 0;
}

static void drop(struct models *models, size_t i)
{
    struct model_file *file = &models->files[i];
    free(file->name);
    free(file->path);
    free(file->folder);
    models->n--;
    memmove(file, file + 1, (models->n - i) * sizeof(*file));
}

/* Puts folders before names that are there several times. */
static int tell_apart(struct models *models)
{
    for (size_t i = 0, end; i < models->n; i = end) {
        for (end = i + 1; same_name(models, i, end);)
            end++;
        for (size_t j = i; end > i + 1 && j < end; j++) {
            struct model_file *file = &models->files[j];
            char *name;
            if (asprintf(&name, "%s/%s", file->folder, file->name) < 0)
                return -ENOMEM;
            free(file->name);
            file->name = name;
        }
    }
    return 0;
}

/* Names a file by its path: its folder has the same name in another place. */
static int name_by_path(struct model_file *file)
{
    const char *slash = strrchr(file->path, '/'), *last = slash ? slash + 1 : file->path;
    char *name = strndup(file->path, (size_t)(last - file->path) + models_stem(last));
    if (!name)
        return -ENOMEM;
    printable_mask(name);
    free(file->name);
    file->name = name;
    return 0;
}

/* Of what has one name even so the first keeps it. Another snapshot of a repository is the same
 * model. */
static int tell_rest_apart(struct models *models)
{
    int rc = 0;
    for (size_t first = 0, i = 1; i < models->n && rc == 0;)
        if (!same_name(models, first, i))
            first = i++;
        else if (strstr(models->files[i].path, "/snapshots/"))
            drop(models, i);
        else
            rc = name_by_path(&models->files[i++]);
    return rc;
}

int models_find(struct models *ret)
{
    int rc = 0;
    *ret = (struct models){0};
    for (int i = 0; rc == 0 && i < N_PLACES; i++)
        rc = scan(ret, &places[i]);
    if (ret->n == 0)
        return rc;
    qsort(ret->files, ret->n, sizeof(*ret->files), compare_names);
    if (rc == 0)
        rc = tell_apart(ret);
    qsort(ret->files, ret->n, sizeof(*ret->files), compare_names);
    if (rc == 0)
        rc = tell_rest_apart(ret);
    qsort(ret->files, ret->n, sizeof(*ret->files), compare_names);
    return rc;
}

void models_fini(struct models *models)
{
    while (models->n > 0)
        drop(models, models->n - 1);
    free(models->files);
    *models = (struct models){0};
}

/* ---- choosing --------------------------------------------------------------------------------- */

enum { MAX_NAMED = 4 };

/* Adds a name to a line, the first MAX_NAMED of them. */
static void add_name(char *line, size_t line_bytes, const char *name, unsigned number)
{
    const size_t at = strlen(line);
    if (number < MAX_NAMED)
        snprintf(line + at, line_bytes - at, "%s%s", number ? ", " : "", name);
    else if (number == MAX_NAMED)
        snprintf(line + at, line_bytes - at, ", ...");
}

/* The part of a name after its folder. */
static const char *stem_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* How many letters two words have to change to be one: for names that are nearly right. */
static unsigned distance(const char *a, const char *b)
{
    enum { MOST = 63 };
    unsigned row[MOST + 1];
    const size_t n = strnlen(b, MOST);
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 0; a[i] && i < MOST; i++) {
        unsigned diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const unsigned changed = diagonal + ((a[i] | 0x20) != (b[j] | 0x20));
            const unsigned least = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = changed < least ? changed : least;
        }
    }
    return row[n];
}

/* Names a few that are most like `name`: those that contain it, else the nearest ones, if half of its
 * letters are right. */
static void name_nearest(const struct models *models, const char *name, char *line,
                         size_t line_bytes)
{
    unsigned number = 0, least = UINT32_MAX;
    for (size_t i = 0; i < models->n; i++)
        if (strcasestr(models->files[i].name, name))
            add_name(line, line_bytes, models->files[i].name, number++);
    for (size_t i = 0; number == 0 && i < models->n; i++) {
        const unsigned far = distance(name, stem_of(models->files[i].name));
        least = far < least ? far : least;
    }
    const bool any = number > 0 || least > strlen(name) / 2;
    for (size_t i = 0; !any && i < models->n; i++)
        if (distance(name, stem_of(models->files[i].name)) == least)
            add_name(line, line_bytes, models->files[i].name, number++);
}

/* Where `text` means the file exactly. */
static bool is_called(const struct model_file *file, const char *text)
{
    const size_t bytes = strlen(text);
    return strcasecmp(file->name, text) == 0 || (strncasecmp(file->name, text, bytes) == 0 &&
                                                 strcasecmp(file->name + bytes, ":latest") == 0);
}

int models_choose(const struct models *models, const char *name, const struct model_file **ret,
                  char *err, size_t err_bytes)
{
    const size_t bytes = strlen(name);
    char names[512] = "";
    unsigned number = 0;
    *ret = NULL;
    for (size_t i = 0; i < models->n; i++)
        if (is_called(&models->files[i], name)) {
            *ret = &models->files[i];
            return 0;
        }
    for (size_t i = 0; i < models->n && bytes > 0; i++)
        if (strncasecmp(models->files[i].name, name, bytes) == 0 ||
            strncasecmp(stem_of(models->files[i].name), name, bytes) == 0) {
            *ret = &models->files[i];
            add_name(names, sizeof(names), models->files[i].name, number++);
        }
    if (number == 1)
        return 0;
    *ret = NULL;
    if (number > 1) {
        snprintf(err, err_bytes, "%s may mean %s: give more of the name", name, names);
        return -EEXIST;
    }
    if (models->n == 0) {
        snprintf(err, err_bytes, "no model %s: no GGUF file lies where models are looked for",
                 name);
        return -ENOENT;
    }
    name_nearest(models, name, names, sizeof(names));
    snprintf(err, err_bytes, "no model %s%s%s: `hearth models` lists all", name,
             names[0] ? ", but " : "", names);
    return -ENOENT;
}
