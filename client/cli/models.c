/* models: `hearth models`: the models on this disk, what each is, and whether it fits. */
#include "client/cli/models.h"

#include "client/base/printable.h"
#include "client/cli/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_find_hearthd(char ret[PATH_MAX])
{
    if (describe_find_own("hearthd", ret) == 0)
        return 0;
    return cli_fail(CLI_SYSTEM, "hearthd is neither in hearth's folder nor in $PATH: install it");
}

const char *cli_bytes(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    int i = 0;
    for (; value >= 1000 && i < 3; i++)
        value /= 1024;
    snprintf(text, text_bytes, "%.*f %s", value < 10 ? 1 : 0, value, units[i]);
    return text;
}

/* How a program that is installed here would download a model. */
static const char *downloading(void)
{
    static const struct {
        const char *program, *hint;
    } programs[] = {
        {"hf", "; to download one: hf download PUBLISHER/REPOSITORY FILE.gguf"},
        {"huggingface-cli",
         "; to download one: huggingface-cli download PUBLISHER/REPOSITORY FILE.gguf"},
        {"ollama", "; to download one: ollama pull NAME"},
        {"lms", "; to download one: lms get NAME"},
    };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
        if (describe_find_program(programs[i].program, path) == 0)
            return programs[i].hint;
    return "";
}

/* As in the list, and nothing that controls a terminal. */
static void name_file(const char *path, char *ret, size_t bytes)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    snprintf(ret, bytes, "%.*s", (int)models_stem(file), file);
    printable_mask(ret);
}

int cli_find_model(const struct models *models, const char *name, char ret_path[PATH_MAX],
                   char *ret_name, size_t name_bytes)
{
    const struct model_file *file;
    char err[1024];
    const size_t bytes = strlen(name);
    const int rc = models_choose(models, name, &file, err, sizeof(err));
    const bool is_name = rc == 0 && name[0] != '/' && strcasecmp(file->name, name) == 0;
    const bool is_path = strchr(name, '/') && access(name, F_OK) == 0;
    if (!is_name && (is_path || (bytes > 5 && strcmp(name + bytes - 5, ".gguf") == 0))) {
        if (!realpath(name, ret_path))
            return cli_fail(CLI_NO_INPUT, "%s: %s", name, strerror(errno));
        if (ret_name)
            name_file(name, ret_name, name_bytes);
        return 0;
    }
    if (rc == -EEXIST)
        return cli_fail(CLI_BAD_INPUT, "%s", err);
    if (rc)
        return cli_fail(CLI_NO_INPUT, "%s%s", err, downloading());
    snprintf(ret_path, PATH_MAX, "%s", file->path);
    if (ret_name)
        snprintf(ret_name, name_bytes, "%s", file->name);
    return 0;
}

/* ---- the list --------------------------------------------------------------------------------- */

static void add_json_text(struct buffer *out, const char *name, const char *text)
{
    buffer_format(out, ",\"%s\":", name);
    json_text(out, text, strlen(text));
}

static void add_json(struct buffer *out, const struct model_file *file, const struct description *d)
{
    buffer_text(out, "{\"name\":");
    json_text(out, file->name, strlen(file->name));
    add_json_text(out, "path", file->path);
    add_json_text(out, "source", file->source);
    buffer_format(out, ",\"bytes\":%llu", (unsigned long long)file->bytes);
    if (d->refused[0]) {
        add_json_text(out, "refused", d->refused);
        buffer_text(out, "}\n");
        return;
    }
    add_json_text(out, "model", d->model);
    add_json_text(out, "arch", d->arch);
    add_json_text(out, "type", d->type);
    buffer_format(out,
                  ",\"parameters\":%llu,\"weight_bytes\":%llu,\"model_context\":%u,\"context\":%u,"
                  "\"kv_bytes\":%llu,\"needs_bytes\":%llu,\"available_bytes\":%llu",
                  (unsigned long long)d->parameters, (unsigned long long)d->weight_bytes,
                  d->model_context, d->context, (unsigned long long)d->kv_bytes,
                  (unsigned long long)d->needs_bytes, (unsigned long long)d->available_bytes);
    buffer_format(out, ",\"fits\":%s,\"chat\":%s,\"tools\":%s,\"fim\":%s,\"agents\":%s}\n",
                  d->fits ? "true" : "false", d->chat ? "true" : "false",
                  d->tools ? "true" : "false", d->fim ? "true" : "false",
                  description_for_agents(d) ? "true" : "false");
}

static void add_head(struct buffer *out, int name_columns)
{
    buffer_format(out, "%-*s  %-12s %-7s %9s %8s  %s\n", name_columns, "NAME", "ARCH", "TYPE",
                  "SIZE", "CONTEXT", "FOR");
}

static void add_row(struct buffer *out, int name_columns, const struct model_file *file,
                    const struct description *d)
{
    char size[32], needs[32], available[32];
    cli_bytes(file->bytes, size, sizeof(size));
    if (d->refused[0]) {
        buffer_format(out, "%-*s  %-12s %-7s %9s %8s  not served: %s\n", name_columns, file->name,
                      "-", "-", size, "-", d->refused);
        return;
    }
    buffer_format(out, "%-*s  %-12s %-7s %9s %8u  ", name_columns, file->name, d->arch, d->type,
                  size, d->context);
    if (!d->fits)
        buffer_format(out, "too large: it needs %s of %s",
                      cli_bytes(d->needs_bytes, needs, sizeof(needs)),
                      cli_bytes(d->available_bytes, available, sizeof(available)));
    else
        buffer_format(out, "text%s%s%s", d->chat ? ", chat" : "",
                      description_for_agents(d) ? ", agents" : "", d->fim ? ", fim" : "");
    buffer_text(out, "\n");
}

static int name_width(const struct models *models)
{
    size_t most = strlen("NAME");
    for (size_t i = 0; i < models->n; i++)
        most = strlen(models->files[i].name) > most ? strlen(models->files[i].name) : most;
    return most < 60 ? (int)most : 60;
}

static int list(const struct cli_options *o, const struct models *models)
{
    struct description_wish wish = {.context = o->context};
    char hearthd[PATH_MAX], draft[PATH_MAX], err[PATH_MAX + 128];
    struct buffer out = {0};
    const int width = name_width(models);
    int code = cli_find_hearthd(hearthd);
    if (!code && o->draft) {
        code = cli_find_model(models, o->draft, draft, NULL, 0);
        wish.draft = draft;
    }
    if (code)
        return code;
    if (!o->json)
        add_head(&out, width);
    for (size_t i = 0; i < models->n; i++) {
        struct description d;
        if (describe_file(hearthd, models->files[i].path, &wish, &d, err, sizeof(err)) < 0) {
            buffer_fini(&out);
            return cli_fail(CLI_SYSTEM, "%s", err);
        }
        if (o->json)
            add_json(&out, &models->files[i], &d);
        else
            add_row(&out, width, &models->files[i], &d);
    }
    return cli_print(&out);
}

int cli_models(const struct cli_options *o)
{
    struct models models;
    int code;
    cli_stop_at_once(1); /* half of a list would look like all of it */
    if (models_find(&models) < 0)
        code = cli_no_memory();
    else if (models.n == 0 && !o->json)
        code = cli_fail(CLI_NO_INPUT,
                        "no GGUF file lies where models are looked for: put one into "
                        "~/.local/share/hearth/models, or set HEARTH_MODELS%s",
                        downloading());
    else
        code = list(o, &models);
    models_fini(&models);
    return code;
}
