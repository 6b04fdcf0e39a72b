/* store_folder.h: opens, lists and empties the folder of the KV store (store_file.h) safely.
 *
 * Nothing is followed out of it: each folder and file is opened by one name, beneath the descriptor of the
 * folder that it lies in, without following links; it must belong to the owner of DIR, and others may not
 * have any right to it, and a file has one name. Any thread; blocks; owns nothing between calls. */
#ifndef HEARTH_IPC_STORE_FOLDER_H
#define HEARTH_IPC_STORE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STORE_FOLDER_SEEN "seen" /* a file of a model's folder */

enum {
    STORE_FOLDER_NAME = 48, /* bytes of any name here, with the 0 */
    STORE_FOLDER_MODEL_TEXT = 128,
};

/* Opens DIR; `make`: it is made, and what is missing before it, mode 0700, if it does not exist. It must be ours; `any_owner`: root may look into
 * anyone's. Returns a descriptor; -EPERM: it is not private or not ours; -ELOOP: a link; -errno. */
int store_folder_open(const char *path, bool make, bool any_owner);

/* A folder in a folder, a file in a folder: a descriptor, or -errno; -EPERM: it is not private, or not the owner's,
 * or not a regular file with one name. `flags` as for open(2), O_CREAT for a new file of mode 0600. */
int store_folder_enter(int folder, const char *name, bool make);
int store_folder_file(int folder, const char *name, int flags);

/* Is it such a name? */
bool store_folder_is_model(const char *name);
bool store_folder_is_user(const char *name, uid_t *ret);
bool store_folder_is_segment(const char *name, uint32_t *ret);
void store_folder_segment_name(uint32_t number, char ret[STORE_FOLDER_NAME]);

/* Calls `each` for every name in the folder but . and .. until it returns other than 0, which is returned then; else 0
 * or -errno. Names that `each` removes may be removed. */
int store_folder_list(int folder, int (*each)(void *context, int folder, const char *name),
                      void *context);

/* Locks a model's folder for the life of the descriptor that is returned: of the file `model` there, which is
 * made if `make`. -EBUSY: a running hearthd has it; -errno. */
int store_folder_lock(int model_folder, bool make);

/* Has a running process locked it? */
bool store_folder_is_locked(int model_folder);

/* Bytes on the disk of a user's files, all of them. */
int store_folder_bytes(int user_folder, uint64_t *ret);

/* Removes what the store keeps of a user, and the folder, and which short texts were seen, of any user; of a model
 * likewise, which the caller has locked. Files that are not the store's stay, and their folders then. Returns 0 or -errno. */
int store_folder_clear_user(int model_folder, const char *user);
int store_folder_clear_model(int folder, const char *model);

#endif
