/* format: what is written into segments (ipc/store_file.h) and what of it is believed. Pure. */
#ifndef HEARTH_DAEMON_STORE_FORMAT_H
#define HEARTH_DAEMON_STORE_FORMAT_H

#include "daemon/store/store.h"
#include "ipc/store_file.h"

/* Bytes of a slot with its entry, and how many fit into a segment: 0 if the payload is too large. */
uint64_t format_slot_bytes(size_t payload_bytes);
uint32_t format_slots(size_t payload_bytes);

/* The header that the segment has; any other one is refused as a whole. PRECOND: a slot fits. */
void format_header(struct store_file_header *ret, const uint8_t seed[16], enum store_class class,
                   uid_t uid, size_t payload_bytes);

/* Where in the file. */
uint64_t format_entry_at(uint32_t slot);
uint64_t format_slot_at(const struct store_file_header *header, uint32_t slot);

/* An entry without its hashes; with them, for this payload [header->payload_bytes]. */
void format_entry(struct store_file_entry *ret, enum store_class class,
                  const struct store_text *text, uint64_t cost_ns, double inflation);
void format_seal(struct store_file_entry *entry, const struct store_file_header *header,
                 const void *payload);

/* Is the entry whole, of a segment with that header? *ret is its text then. */
bool format_read(const struct store_file_entry *entry, const struct store_file_header *header,
                 struct store_text *ret);

/* Is that the hash of the payload? */
bool format_payload_is(const void *payload, size_t bytes, const uint8_t hash[16]);

#endif
