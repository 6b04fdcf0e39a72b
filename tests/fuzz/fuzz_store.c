/* Fuzzes the files that a store finds at its start. By the first byte of the input the rest is
 *
 *   0   a segment, as it is
 *   1   the entries of a segment whose header is right, as they are
 *   2   the same with key, hash and user set so that they are believed: records that nobody wrote
 *   3   a file of slots, as it is; 4: with its hash set
 *
 * The store then finds, reads, offers and keeps within its bytes, whatever is there. */
#include "daemon/log.h"
#include "daemon/store/format.h"
#include "daemon/store/slots.h"
#include "ipc/store_folder.h"
#include "kernels/base/hash128.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { USER = 1000, PAGE_BYTES = 1 << 20, MOST = 8 << 20 };

static const char SEED[] = "a model";
static char path[] = "/tmp/hearth-fuzz-store-XXXXXX";
static uint8_t seed[16];

static void must(int condition)
{
    if (!condition)
        abort();
}

static void remove_folder(void)
{
    int folder = store_folder_open(path, false, false);
    struct files files;
    char err[256];
    if (folder < 0)
        return;
    must(files_open(&files, path, seed, "x", err, sizeof(err)) == 0);
    store_folder_clear_model(folder, files.model);
    files_close(&files);
    unlinkat(folder, "day", 0);
    close(folder);
    rmdir(path);
}

static struct store *open_store(void)
{
    const struct store_options options = {.path = path,
                                          .model = "a model",
                                          .seed = SEED,
                                          .seed_bytes = sizeof(SEED),
                                          .class_bytes = {PAGE_BYTES, 0, 3 * PAGE_BYTES},
                                          .bytes = MOST,
                                          .day_bytes = (uint64_t)1 << 40,
                                          .by_hand = true};
    struct store *store;
    char err[512];
    must(store_open(&store, &options, err, sizeof(err)) == 0);
    return store;
}

/* The user's folder, as the store would have it. */
static int user_folder(void)
{
    struct files files;
    char err[256];
    must(files_open(&files, path, seed, "x", err, sizeof(err)) == 0);
    int folder = store_folder_enter(files.model_folder, "1000", true);
    files_close(&files);
    must(folder >= 0);
    return folder;
}

static void write_all(int folder, const char *name, const void *bytes, size_t n, off_t at)
{
    int fd = store_folder_file(folder, name, O_RDWR | O_CREAT);
    must(fd >= 0 && pwrite(fd, bytes, n, at) == (ssize_t)n);
    close(fd);
}

/* As format_seal, but that nobody knows the payload. */
static void believe(struct store_file_entry *entry, const struct store_file_header *header)
{
    struct store_text text = {.uid = USER};
    struct hash128 hash;
    entry->used = STORE_FILE_USED;
    entry->uid = USER;
    entry->class = header->class;
    entry->end = entry->end % 64 * STORE_TOKENS + STORE_TOKENS;
    memcpy(text.key.words, entry->parent, sizeof(entry->parent));
    store_follow(&text, entry->tokens);
    memcpy(entry->key, text.key.words, sizeof(entry->key));
    hash128_init(&hash);
    hash128_update(&hash, header->seed, sizeof(header->seed));
    hash128_update(&hash, entry, offsetof(struct store_file_entry, hash));
    hash128_final(&hash, entry->hash);
}

static void write_entries(int folder, const uint8_t *data, size_t size, bool believed)
{
    struct store_file_header header;
    struct store_file_entry entry;
    format_header(&header, seed, size % 2 ? STORE_STATE : STORE_PAGE, USER,
                  size % 2 ? 3 * PAGE_BYTES : PAGE_BYTES);
    write_all(folder, "0001.kv", &header, sizeof(header), 0);
    for (uint32_t i = 0; i < header.n_slots && size > 0; i++) {
        const size_t n = size < sizeof(entry) ? size : sizeof(entry);
        memset(&entry, 0, sizeof(entry));
        memcpy(&entry, data, n);
        if (believed)
            believe(&entry, &header);
        write_all(folder, "0001.kv", &entry, sizeof(entry), (off_t)format_entry_at(i));
        data += n;
        size -= n;
    }
    if (believed) /* the file is as long as it says */
        write_all(folder, "0001.kv", "", 1, (off_t)format_slot_at(&header, 40));
}

static void write_slots(int folder, const uint8_t *data, size_t size, bool believed)
{
    struct slots_header header = {.magic = SLOTS_MAGIC, .version = STORE_FILE_VERSION, .uid = USER};
    uint8_t image[8192] = {0};
    size = size < 4096 ? size : 4096;
    if (!believed) {
        write_all(folder, "slots", data, size, 0);
        return;
    }
    header.n = size > 0 ? data[0] % 8 : 0;
    memcpy(header.seed, seed, sizeof(seed));
    memcpy(image, &header, sizeof(header));
    memcpy(image + sizeof(header), data, size);
    hash128(image, sizeof(header) + size, image + sizeof(header) + size);
    write_all(folder, "slots", image, sizeof(header) + size + 16, 0);
}

static void look_at_slot(void *context, const struct store_slot *slot)
{
    uint64_t *sum = context;
    must(slot->uid == USER && memchr(slot->name, 0, sizeof(slot->name)) && slot->name[0]);
    for (uint32_t i = 0; i < slot->n_tokens; i++)
        *sum += slot->tokens[i];
}

static void drain(struct store *store)
{
    struct store_done done;
    while (store_pending(store) > 0) {
        store_work(store, 1000);
        while (store_take(store, &done))
            if (done.payload)
                store_release(store, done.payload);
    }
}

/* Finds and reads what the input names, and adds records until some must go. */
static void use(struct store *store, const uint8_t *data, size_t size)
{
    struct store_counts counts;
    for (; size >= sizeof(struct store_file_entry);
         data += sizeof(struct store_file_entry), size -= sizeof(struct store_file_entry)) {
        struct store_file_entry entry;
        struct store_text text = {.uid = USER};
        memcpy(&entry, data, sizeof(entry));
        text.end = entry.end % 64 * STORE_TOKENS;
        memcpy(text.key.words, entry.parent, sizeof(entry.parent));
        store_follow(&text, entry.tokens);
        for (int class = 0; class < STORE_CLASSES; class += 2) {
            uint32_t record = store_find(store, class, &text);
            if (record != STORE_NONE && store_reads_more(store)) {
                store_read(store, record, 1, NULL);
                drain(store);
            }
        }
    }
    for (uint32_t i = 0; i < 10; i++) {
        struct store_text text;
        uint32_t tokens[STORE_TOKENS] = {i};
        store_begin(store, USER + i % 2, &text);
        store_follow(&text, tokens);
        void *payload = store_offer(store, STORE_PAGE, &text, i, true);
        if (payload && i % 3 == 0)
            store_withdraw(store, payload);
        else if (payload)
            store_write(store, payload);
        drain(store);
        store_counts(store, &counts);
        must(counts.bytes <= MOST);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;
    uint64_t sum = 0;
    if (!is_ready) {
        log_init(LOG_LEVEL_ERROR);
        hash128(SEED, sizeof(SEED), seed);
        must(mkdtemp(path) != NULL);
        atexit(remove_folder);
        is_ready = true;
    }
    if (size < 1)
        return 0;
    int folder = user_folder();
    if (data[0] == 0)
        write_all(folder, "0001.kv", data + 1, size - 1, 0);
    else if (data[0] <= 2)
        write_entries(folder, data + 1, size - 1, data[0] == 2);
    else
        write_slots(folder, data + 1, size - 1, data[0] % 2 == 0);
    close(folder);
    struct store *store = open_store();
    must(store_load_slots(store, look_at_slot, &sum) == 0);
    use(store, data + 1, size - 1);
    store_close(store);
    remove_folder();
    mkdir(path, 0700);
    return 0;
}
