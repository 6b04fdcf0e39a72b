/* models: the models that lie on this disk, by name.
 *
 * Looked for, in this order, at each call, to a depth of some folders, links followed:
 *
 *   hearth        $HEARTH_MODELS (folders, separated by colons), else $XDG_DATA_HOME/hearth/models
 *                 (~/.local/share/hearth/models), /var/lib/hearth, /usr/local/share/hearth,
 *                 /usr/share/hearth
 *   hugging-face  $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub
 *   llama.cpp     $LLAMA_CACHE, else ~/.cache/llama.cpp
 *   lm-studio     ~/.lmstudio/models, ~/.cache/lm-studio/models
 *   ollama        $OLLAMA_MODELS, else ~/.ollama/models, /usr/share/ollama/.ollama/models
 *
 * ($XDG_CACHE_HOME in place of ~/.cache.) A name is the file's without `.gguf`, of a model in parts
 * also without `-00001-of-00003`; Ollama's is `name:tag`. Where two files have the same name, each
 * is preceded by its folder or repository, `publisher/repository/name`; where these are the same,
 * too, the first keeps that, and the others are called by their paths. Of several snapshots of a
 * repository one is listed. A file that is found twice, by links, is listed once.
 * Projectors (`mmproj`) and further parts are left out. No file is opened.
 *
 * Any thread. Never prints. */
#ifndef HEARTH_CLIENT_MODELS_MODELS_H
#define HEARTH_CLIENT_MODELS_MODELS_H

#include <stddef.h>
#include <stdint.h>

struct model_file {
    char *name;         /* unique, printable */
    char *path;         /* of the file, or of its first part */
    char *folder;       /* repository or folder that it lies in */
    const char *source; /* "hearth", "ollama", ...; static */
    uint64_t bytes;     /* of all parts */
    uint64_t device, inode;
};

struct models {
    struct model_file *files; /* [n] by name */
    size_t n;
};

/* Returns 0, or -ENOMEM. A folder that is not there, or that may not be read, holds none. Call fini
 * in either case. */
int models_find(struct models *ret);
void models_fini(struct models *models);

/* Bytes of a file's name, without folders, that are its model's. */
size_t models_stem(const char *file);

/* The model that `name` means: the one of that name, ignoring case; `name:latest`; else the only
 * one whose name, with or without its folder, begins with it. Returns 0; -EEXIST if it may mean
 * several, -ENOENT if none, both with one line that lists names that may have been meant. */
int models_choose(const struct models *models, const char *name, const struct model_file **ret,
                  char *err, size_t err_bytes);

#endif
