/*
 * text_key: the hash that identifies a text: BLAKE2s (RFC 7693), unkeyed, with a digest of 128 bits.
 *
 * Clients choose the tokens. One that found two texts with the same key would get the KV of one of
 * them used for the other. hash128 (XXH3) does not resist that: a collision takes half a minute.
 * Pure; any thread.
 */
#ifndef HEARTH_DAEMON_STORE_TEXT_KEY_H
#define HEARTH_DAEMON_STORE_TEXT_KEY_H

#include <stddef.h>
#include <stdint.h>

void text_key(const void *data, size_t bytes, uint8_t ret[16]);

#endif
