/* scan_ollama: MANIFESTS/HOST/NAMESPACE/NAME/TAG is a JSON text whose layer of the model names a blob. */
#include "client/models/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEVEL_TAG = 4, MAX_MANIFEST = 1 << 20 };

/* The digest of a manifest's model, "sha256:...", or NULL. */
static const char *find_digest(json_t *manifest)
{
    size_t i;
    json_t *layer;
    json_array_foreach(json_object_get(manifest, "layers"), i, layer) {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        const char *digest = json_string_value(json_object_get(layer, "digest"));
        if (type && digest && strcmp(type, "application/vnd.ollama.image.model") == 0)
            return strncmp(digest, "sha256:", strlen("sha256:")) == 0 && !strchr(digest, '/')
                       ? digest
                       : NULL;
    }
    return NULL;
}

json_t *scan_manifest(const char *path)
{
    struct stat st;
    json_t *manifest = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_MANIFEST)
        manifest = json_loadfd(fd, 0, NULL);
    close(fd);
    return manifest;
}

/* `below`: HOST/NAMESPACE/NAME/TAG. As Ollama shows it: NAME:TAG of its own library. */
static void write_name(const char *below, char *name, size_t name_bytes)
{
    static const char *const shortened[] = {"registry.ollama.ai/library/", "registry.ollama.ai/"};
    for (size_t i = 0; i < sizeof(shortened) / sizeof(*shortened); i++)
        if (strncmp(below, shortened[i], strlen(shortened[i])) == 0) {
            below += strlen(shortened[i]);
            break;
        }
    snprintf(name, name_bytes, "%s", below);
    char *slash = strrchr(name, '/');
    if (slash)
        *slash = ':';
}

static int add_manifest(struct models *models, const char *root, const FTSENT *entry,
                        size_t root_bytes)
{
    char name[512], *path = NULL;
    json_t *manifest = scan_manifest(entry->fts_path);
    const char *digest = find_digest(manifest);
    int rc = 0;
    if (digest && asprintf(&path, "%s/blobs/sha256-%s", root, digest + strlen("sha256:")) < 0)
        rc = -ENOMEM;
    else if (digest) {
        write_name(entry->fts_path + root_bytes, name, sizeof(name));
        rc = scan_add(models, "ollama", "ollama", name, strlen(name), path);
        free(path);
    }
    json_decref(manifest);
    return rc;
}

int scan_ollama(struct models *models, const char *root)
{
    char *manifests;
    if (asprintf(&manifests, "%s/manifests", root) < 0)
        return -ENOMEM;
    char *const roots[] = {manifests, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;
    void *folders = NULL;
    int rc = tree || errno != ENOMEM ? 0 : -ENOMEM;
    while (tree && rc == 0 && (entry = fts_read(tree))) {
        if (entry->fts_info == FTS_D)
            (void)scan_enters(&folders, tree, entry, LEVEL_TAG);
        else if (entry->fts_info == FTS_F && entry->fts_level == LEVEL_TAG)
            rc = add_manifest(models, root, entry, strlen(manifests) + 1);
    }
    if (tree)
        fts_close(tree);
    tdestroy(folders, free);
    free(manifests);
    return rc;
}
