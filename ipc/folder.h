/* folder: makes a folder. Any thread; blocks. */
#ifndef HEARTH_IPC_FOLDER_H
#define HEARTH_IPC_FOLDER_H

/* Makes it, mode 0700, and what is missing before it. Returns 0, also where it is there already, or
 * -errno. */
int folder_make(const char *path);

#endif
