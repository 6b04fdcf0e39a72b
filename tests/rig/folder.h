/* folder: a temporary folder that is home to the programs of a test. */
#ifndef HEARTH_TESTS_RIG_FOLDER_H
#define HEARTH_TESTS_RIG_FOLDER_H

enum { FOLDER_BYTES = 64 };

/* Makes a folder, its path in path[FOLDER_BYTES], which is HOME and XDG_RUNTIME_DIR from then on; no
 * variable names a socket, or a folder of models, of this machine's user. */
void folder_make_home(char *path);

/* Removes it with all that it holds; follows no link. */
void folder_remove(const char *path);

#endif
