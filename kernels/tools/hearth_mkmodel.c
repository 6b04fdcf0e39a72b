/* hearth_mkmodel.c: writes GGUF models for benches and tests: random weights of real shapes, or a
 * copy of another file's model in another type. The same options give the same bytes on any
 * machine. */
#include "kernels/gguf/gguf.h"
#include "kernels/model/model_arch.h"
#include "kernels/tools/gguf_out.h"
#include "kernels/tools/quantized_copy.h"
#include "kernels/tools/random_model.h"
#include "kernels/tools/shape.h"
#include "kernels/tools/tool.h"
#include "kernels/tools/type_mix.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

static struct mkmodel_options {
    struct tool_common common;
    const char *arch, *shape, *type, *from;
    uint64_t seed, threads, layers;
    float acceptance;
    int peaked, mtp;
} options;

static const struct option_row table[] = {
#define O(...) OPTION(struct mkmodel_options, __VA_ARGS__)
    O(shape, "shape", 0, OPTION_TEXT, "NAME", NULL, 0, 0,
      "sizes of a real model, one of the shapes above"),
    O(arch, "arch", 0, OPTION_TEXT, "ARCH", NULL, 0, 0, "architecture (default: the shape's own)"),
    O(type, "type", 0, OPTION_TEXT, "TYPE", NULL, 0, 0, "type of the weights, one of those above"),
    O(seed, "seed", 0, OPTION_U64, "S", "1", 0, OPTION_U64_MAX, "other seeds give other weights"),
    O(layers, "layers", 0, OPTION_U64, "N", "0", 0, 512, "only N layers; 0: the shape's"),
    O(peaked, "peaked", 0, OPTION_FLAG, NULL, NULL, 0, 0,
      "make next tokens clear: low-bit copies agree"),
    O(mtp, "mtp", 0, OPTION_FLAG, NULL, NULL, 0, 0, "add a next-token layer (qwen35*, qwen3next)"),
    O(acceptance, "mtp-acceptance", 0, OPTION_F32, "P", "1", 0, 1,
      "so many of its drafts are right: with --peaked"),
    O(from, "from", 0, OPTION_TEXT, "FILE", NULL, 0, 0, "copy this F32, F16 or BF16 model instead"),
    O(threads, "threads", 't', OPTION_U64, "N", NULL, 0, 256, "compute threads; 0: one per core"),
    TOOL_COMMON_ROWS(struct mkmodel_options)
#undef O
};

static char usage[2048];

static const struct tool tool = {"hearth-mkmodel", usage, table, sizeof(table) / sizeof(table[0]),
                                 &options};

/* Adds "WHAT: a, b, ..." to the usage text; lines have at most 80 bytes, including a comma after
 * the last name. */
static void add_list(const char *what, char *names)
{
    enum { INDENT = 8, WIDTH = 80 };
    char *save = NULL;
    size_t at = strlen(usage), column = INDENT;
    at += (size_t)snprintf(usage + at, sizeof(usage) - at, "%-*s", INDENT, what);
    for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        bool first = usage[at - 1] == ' ', wraps = column + strlen(name) + 3 > WIDTH;
        const char *between = first ? "" : wraps ? ",\n        " : ", ";
        column = (wraps ? INDENT : column + strlen(between)) + strlen(name);
        at += (size_t)snprintf(usage + at, sizeof(usage) - at, "%s%s", between, name);
    }
    snprintf(usage + at, sizeof(usage) - at, "\n");
}

static void fill_usage(void)
{
    char shape_list[512], type_list[512];
    shape_names(shape_list, sizeof(shape_list));
    type_mix_names(type_list, sizeof(type_list));
    snprintf(usage, sizeof(usage),
             "usage: hearth-mkmodel --shape NAME --type TYPE [OPTIONS] OUT.gguf\n"
             "       hearth-mkmodel --from FILE.gguf --type TYPE OUT.gguf\n"
             "Writes a GGUF model: random weights of a real model's sizes, or a copy of FILE\n"
             "in another type.\n");
    add_list("shapes:", shape_list);
    add_list("types:", type_list);
}

static int write_out(struct gguf_out *out, gguf_out_row *row, void *arg)
{
    char err[512];
    int rc = gguf_out_write(out, row, arg, tool_threads(options.threads), err, sizeof(err));
    if (rc)
        return tool_fail(&tool, tool_exit(rc), "%s", err);
    rc = gguf_out_commit(out, err, sizeof(err));
    return rc ? tool_fail(&tool, EX_CANTCREAT, "%s", err) : 0;
}

static const char *arch_of(const struct model_shape *shape)
{
    return options.arch ? options.arch : shape->arch;
}

static int make_random(const struct type_mix *mix, struct gguf_out *out)
{
    struct model_shape shape = *shape_find(options.shape);
    struct random_model model = {.shape = &shape,
                                 .arch = arch_of(&shape),
                                 .mix = mix,
                                 .seed = options.seed,
                                 .peaked = options.peaked,
                                 .mtp = options.mtp,
                                 .acceptance = options.acceptance};
    shape.n_layer = options.layers ? (uint32_t)options.layers : shape.n_layer;
    int rc = random_model_list(&model, out);
    return rc ? tool_fail(&tool, tool_exit(rc), "not enough memory")
              : write_out(out, random_model_row, &model);
}

static int make_copy(const struct type_mix *mix, struct gguf_out *out)
{
    struct gguf *from;
    char err[512];
    int rc = gguf_open_parts(options.from, &from, err, sizeof(err));
    if (rc)
        return tool_fail(&tool, tool_exit(rc), "%s: %s", options.from, err);
    struct quantized_copy copy = {from, mix};
    rc = gguf_has_data(from) ? quantized_copy_list(&copy, out, err, sizeof(err)) : 0;
    if (!gguf_has_data(from))
        rc = tool_fail(&tool, EX_DATAERR, "%s: no tensors to copy", options.from);
    else if (rc)
        rc = tool_fail(&tool, tool_exit(rc), "%s: %s", options.from, err);
    else
        rc = write_out(out, quantized_copy_row, &copy);
    gguf_close(from);
    return rc;
}

static int check_options(const char *path)
{
    char names[512];
    if (!path || !*path)
        return tool_fail(&tool, EX_USAGE, "give the file to write (see --help)");
    if (!options.from == !options.shape)
        return tool_fail(&tool, EX_USAGE, "give either --shape or --from (see --help)");
    if (options.from && (options.arch || options.peaked || options.mtp))
        return tool_fail(&tool, EX_USAGE,
                         "--arch, --peaked and --mtp are for random weights: not with --from");
    if (options.from && gguf_out_overwrites(path, options.from))
        return tool_fail(&tool, EX_USAGE,
                         "%s would be overwritten: it is the temporary name of %s: rename it first",
                         options.from, path);
    shape_names(names, sizeof(names));
    if (options.shape && !shape_find(options.shape))
        return tool_fail(&tool, EX_USAGE, "unknown shape %s; known: %s", options.shape, names);
    if (options.arch && !random_model_arch_valid(options.arch))
        return tool_fail(&tool, EX_USAGE, "unknown architecture %s; known: %s", options.arch,
                         model_arch_names());
    if (options.mtp && !random_model_arch_mtp(arch_of(shape_find(options.shape))))
        return tool_fail(&tool, EX_USAGE,
                         "--mtp: %s has no next-token layer in hearth: take qwen35",
                         arch_of(shape_find(options.shape)));
    if (options.acceptance < 1 && !(options.mtp && options.peaked))
        return tool_fail(&tool, EX_USAGE, "--mtp-acceptance needs --mtp and --peaked");
    type_mix_names(names, sizeof(names));
    if (!options.type)
        return tool_fail(&tool, EX_USAGE, "give --type, one of %s", names);
    if (!type_mix_find(options.type))
        return tool_fail(&tool, EX_USAGE, "unknown type %s; known: %s", options.type, names);
    return 0;
}

int main(int argc, char **argv)
{
    const char *path;
    struct gguf_out *out = NULL;
    char err[512];
    fill_usage();
    int rc = tool_parse(&tool, argc, argv, &path);
    if (!rc)
        rc = check_options(path);
    if (rc)
        return rc;
    if (gguf_out_open(path, &out, err, sizeof(err)))
        return tool_fail(&tool, EX_CANTCREAT, "%s", err);
    const struct type_mix *mix = type_mix_find(options.type);
    rc = options.from ? make_copy(mix, out) : make_random(mix, out);
    gguf_out_close(out);
    return rc;
}
