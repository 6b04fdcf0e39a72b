/* Fuzzes the records of answers: the input is a record, or, with bit 0 of its first byte set,
 * changes to a valid one, three bytes each: {u16 position, u8 value}. A refusal is one line; what
 * is accepted is written and read again as the same. The sources belong to the program, so they are
 * taken in here. */
#include "client/cli/json.c"
#include "client/cli/json_read.c"
#include "client/cli/options.c"
#include "client/cli/record.c"
#include "client/cli/util.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char valid[] =
    "{\"hearth_record\":1,\"model\":\"a\",\"fingerprint\":\"0123456789abcdef0123456789abcdef\","
    "\"numerics\":\"n-1\",\"prompt\":[1,0,4294967295],\"max_tokens\":9,\"temperature\":0.8,"
    "\"top_k\":40,\"top_p\":1,\"min_p\":0,\"typical_p\":1,\"repeat_penalty\":1.1,"
    "\"frequency_penalty\":0,\"presence_penalty\":-99.9,\"penalty_last_n\":-1,"
    "\"seed\":18446744073709551615,\"logit_bias\":[[3,-10],[4,0.5]],\"stop\":[\"\\n\","
    "\"\\udcff\\u00e9\"],\"stop_tokens\":[2],\"logprobs\":-1,\"deterministic\":true,"
    "\"grammar\":\"root ::= \\\"a\\\"\",\"ids\":[7,8],\"reason\":\"stop\",\"receipt\":\"hearth1:"
    "0123456789abcdef0123456789abcdef:n-1:00112233445566778899aabbccddeeff:"
    "ffeeddccbbaa99887766554433221100\"}\n";

static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_again(const struct record *c)
{
    struct buffer out = {0}, again = {0};
    struct record d;
    char err[256] = "";
    record_write(c, &out);
    must(!out.failed && record_read(out.data, out.bytes, &d, err, sizeof(err)) == 0);
    record_write(&d, &again);
    must(again.bytes == out.bytes && memcmp(again.data, out.data, out.bytes) == 0);
    must(record_hashes(c->receipt) != NULL);
    record_fini(&d);
    buffer_fini(&out);
    buffer_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t bytes = size > 0 ? size - 1 : 0;
    struct record c;
    char err[256] = "";
    if (size == 0)
        return 0;
    bool changed = data[0] & 1;
    char *text = malloc(sizeof(valid) + bytes); /* the reader must not go past what it is told */
    must(text != NULL);
    memcpy(text, changed ? valid : (const char *)data + 1, changed ? sizeof(valid) - 1 : bytes);
    for (size_t i = 1; changed && i + 3 <= size; i += 3)
        text[((size_t)data[i] << 8 | data[i + 1]) % (sizeof(valid) - 1)] = (char)data[i + 2];
    bytes = changed ? sizeof(valid) - 1 : bytes;
    text = realloc(text, bytes + !bytes);
    int rc = record_read(text, bytes, &c, err, sizeof(err));
    free(text);
    must((rc == 0) == (err[0] == 0) && strchr(err, '\n') == NULL);
    must(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
    if (rc == 0)
        check_again(&c);
    must(!changed || size > 1 || rc == 0);
    record_fini(&c);
    return 0;
}
