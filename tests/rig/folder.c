/* folder: see folder.h. */
#include "tests/rig/folder.h"

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 16 };

void folder_make_home(char *path)
{
    static const char *const own[] = {
        "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HF_HUB_CACHE",
        "HF_HOME",        "LLAMA_CACHE",   "OLLAMA_MODELS",  "HEARTH_MODELS",   "HEARTH_SOCKET"};
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
        unsetenv(own[i]);
    snprintf(path, FOLDER_BYTES, "/tmp/hearth-home-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
    setenv("HOME", path, 1);
    setenv("XDG_RUNTIME_DIR", path, 1);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void folder_remove(const char *path)
{
    (void)nftw(path, remove_entry, DEPTH, FTW_DEPTH | FTW_PHYS);
}
