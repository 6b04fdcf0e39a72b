/* scan: what models.c is made of: a list that grows, and each kind of place. */
#ifndef HEARTH_CLIENT_MODELS_SCAN_H
#define HEARTH_CLIENT_MODELS_SCAN_H

#include "client/models/models.h"

/* Adds a file, unless it is there already, by device and inode; or nothing, where `path` is not a
 * file. `name` [bytes]. Returns 0 or -ENOMEM. */
int scan_add(struct models *models, const char *source, const char *folder, const char *name,
             size_t name_bytes, const char *path);

/* Adds the GGUF files below `root`. Returns 0 or -ENOMEM. */
int scan_folder(struct models *models, const char *source, const char *root);

/* Adds what the manifests below ROOT/manifests name. Returns 0 or -ENOMEM. */
int scan_ollama(struct models *models, const char *root);

#endif
