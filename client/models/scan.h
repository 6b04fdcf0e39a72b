/* scan: what models.c is made of: a list that grows, and each kind of place. */
#ifndef HEARTH_CLIENT_MODELS_SCAN_H
#define HEARTH_CLIENT_MODELS_SCAN_H

#include "client/models/models.h"

#include <fts.h>
#include <jansson.h>
#include <stdbool.h>

/* Adds a file, unless it is there already, by device and inode; or nothing, where `path` is not a
 * file. `name` [bytes]. Returns 0 or -ENOMEM. */
int scan_add(struct models *models, const char *source, const char *folder, const char *name,
             size_t name_bytes, const char *path);

/* Adds the GGUF files below `root`. Returns 0 or -ENOMEM. */
int scan_folder(struct models *models, const char *source, const char *root);

/* Adds what the manifests below ROOT/manifests name. Returns 0 or -ENOMEM. */
int scan_ollama(struct models *models, const char *root);

/* What a manifest says, or NULL. It may be another user's, and have become a pipe, which would be waited
 * for, or anything else, since it was found. */
json_t *scan_manifest(const char *path);

/* Is this folder, found on the way down, to be read? Not at level `most`, nor again, unless it lies higher
 * now: links could lead to it in as many ways as one likes. If not it is skipped. *folders begins as NULL,
 * and is the caller's: tdestroy(folders, free). */
bool scan_enters(void **folders, FTS *tree, FTSENT *entry, int most);

#endif
