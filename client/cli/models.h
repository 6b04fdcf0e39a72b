/* models: what `hearth models` and `hearth serve` share. */
#ifndef HEARTH_CLIENT_CLI_MODELS_H
#define HEARTH_CLIENT_CLI_MODELS_H

#include "client/cli/cli.h"
#include "client/models/describe.h"
#include "client/models/models.h"

/* Finds hearthd. Returns 0, or an exit code with the error printed. */
int cli_find_hearthd(char ret[PATH_MAX]);

/* The file that a name or a path means: [PATH_MAX]. `ret_name`, may be NULL: the model's name. Returns
 * 0, or an exit code with the error printed. */
int cli_find_model(const struct models *models, const char *name, char ret_path[PATH_MAX],
                   char *ret_name, size_t name_bytes);

/* "4.7 GiB". Returns text. */
const char *cli_bytes(uint64_t bytes, char *text, size_t text_bytes);

#endif
