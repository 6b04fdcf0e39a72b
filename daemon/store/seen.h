/* seen: which texts were too short and offered once (index.h, seen), from one start to the next: the file `seen` of the
 * model's folder. A hint: what cannot be read or written is left out without a word. Main thread. */
#ifndef HEARTH_DAEMON_STORE_SEEN_H
#define HEARTH_DAEMON_STORE_SEEN_H

#include "daemon/store/files.h"

void seen_save(const struct files *files, const struct store_index *index);
void seen_load(const struct files *files, struct store_index *index);

#endif
