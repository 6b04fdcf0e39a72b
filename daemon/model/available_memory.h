/*
 * available_memory: how much memory this process can have without swapping, page cache included.
 *
 * The least of what the machine has (MemAvailable) and what is left of the limit of each control
 * group (version 2) that the process is in, as in a container or a unit with MemoryMax=.
 */
#ifndef HEARTH_DAEMON_MODEL_AVAILABLE_MEMORY_H
#define HEARTH_DAEMON_MODEL_AVAILABLE_MEMORY_H

#include <stdint.h>

/* Bytes. `root` is "" but in tests: the folder that has proc/ and sys/. What cannot be read does not
 * limit. Any thread. */
uint64_t available_memory(const char *root);

#endif
