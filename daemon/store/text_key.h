/*
 * text_key: the hash that texts are named by: BLAKE2s (RFC 7693) of 128 bits without a key.
 *
 * Clients choose tokens, and one that could find two texts of one key would have what was computed
 * for the one used for the other. hash128 (XXH3) tells apart what nobody chose: two such texts of
 * it are found in half a minute. Pure; any thread.
 */
#ifndef HEARTH_DAEMON_STORE_TEXT_KEY_H
#define HEARTH_DAEMON_STORE_TEXT_KEY_H

#include <stddef.h>
#include <stdint.h>

void text_key(const void *data, size_t bytes, uint8_t ret[16]);

#endif
