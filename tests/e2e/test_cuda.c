/* The daemon with --device cuda, on the simulator (tests/cudasim): real models, the same ids as on
 * the CPU, with and without drafts and other clients; a lost device ends requests with a code; a
 * missing one is an error line. */
#include "tests/e2e/harness.h"
#include "kernels/quant/quant_types.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char bundled[] = "daemon/models/hearth-code-5m-f16.gguf";

/* An instance for few rows opens sooner: before the first request each kernel computes as many. */
#define FEW_ROWS "16"

static bool simulator(void)
{
    static char folder[512];
    const char *build = getenv("BUILD");

    (void)snprintf(folder, sizeof(folder), "%s/tests/cudasim", build ? build : "build");
    (void)setenv("HEARTH_PLUGINS", folder, 1);
    (void)strcat(folder, "/hearth-cuda.so");
    return access(folder, R_OK) == 0;
}

/* The ids of the last line of `hearth run --json`: "[1,2,3]", in the caller's buffer. */
static void ids_of(const struct harness_output *o, char *ret_ids, size_t bytes)
{
    char *last = strstr(o->out, "{\"event\":\"done\"");

    ck_assert_msg(o->code == 0 && last != NULL, "%s%s", o->out, o->error);
    last = strstr(last, "\"ids\":[");
    ck_assert_ptr_nonnull(last);
    (void)snprintf(ret_ids, bytes, "%.*s", (int)strcspn(last + 6, "]") + 1, last + 6);
}

static void answer(const char *model, const char *device, const char *kv, const char *prompt,
                   const char *n, char *ret_ids, size_t bytes)
{
    struct harness d = {0};

    harness_start(&d, model,
                  (const char *const[]){"--device", device, "--numerics", "portable", "--kv-type",
                                        kv, "--rows", FEW_ROWS, NULL});
    struct harness_output o =
        HARNESS_RUN(&d, NULL, "run", "--tokens", prompt, "--max-tokens", n, "--json");
    ids_of(&o, ret_ids, bytes);
    if (!strcmp(kv, "q8_0"))
        ck_assert_msg(strstr(o.out, "-kvq8\"") != NULL, "%s", o.out);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
}

static void same_answer(const char *model, const char *kv, const char *prompt, const char *n)
{
    char want[2000], got[2000];

    if (model == NULL) {
        fprintf(stderr,
                "skip: HEARTH_TESTDATA is not set: the CUDA backend did not run its models\n");
        return;
    }
    answer(model, "cpu", kv, prompt, n, want, sizeof(want));
    answer(model, "cuda", kv, prompt, n, got, sizeof(got));
    ck_assert_str_eq(got, want);
}

START_TEST(stories260k_gives_the_ids_of_the_cpu)
{
    const char *files[] = {"models/stories260K-f32.gguf", "models/stories260K-ff192-q8_0.gguf",
                           "models/stories260K-ff192-q4_0.gguf",
                           "models/stories260K-ff192-bf16.gguf"};

    same_answer(harness_data(files[_i]), "f16", "1,403,407,261,378,412,38,20,9,77,140,3,59,265",
                "24");
}
END_TEST

START_TEST(q8_0_kv_gives_the_ids_of_the_cpu)
{
    const char *model =
        _i == 0 ? harness_tiny_model() : harness_data("models/stories260K-f32.gguf");

    same_answer(model, "q8_0", "1,203,107,261,178,212,38,20,9,77,140,3,59,265", "30");
}
END_TEST

/* Beyond the windows of its local layers, in F16 and Q8_0. */
START_TEST(gemma3_gives_the_ids_of_the_cpu)
{
    same_answer(_i == 0 ? "tests/fixtures/oracle/gemma3.gguf"
                        : harness_tiny_model_of("gemma3", QUANT_Q8_0),
                "f16", "1,203,107,261,178,212,38,20,9,77,140,3,59,265", "48");
}
END_TEST

/* Its text repeats, so there are drafts. */
START_TEST(the_bundled_model_gives_the_ids_of_the_cpu)
{
    same_answer(bundled, "f16", "1,2,3,40,50,60,7,8,90,100", "12");
}
END_TEST

/* A number of the last line. */
static long number_of(const struct harness_output *o, const char *name)
{
    char key[64];
    const char *last = strstr(o->out, "{\"event\":\"done\"");

    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    ck_assert_ptr_nonnull(last);
    last = strstr(last, key);
    ck_assert_ptr_nonnull(last);
    return strtol(last + strlen(key), NULL, 10);
}

/* Rejected drafts leave KV that is overwritten. */
START_TEST(rolled_back_drafts_keep_the_ids)
{
    static const char prompt[] = "1,2,3,2,3,4,2,3,5,2,3";
    const char *model = harness_data("models/stories260K-ff192-q8_0.gguf");
    const char *const devices[] = {"cpu", "cuda", "cuda"};
    char ids[3][2000];

    if (model == NULL) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set: no drafts were rolled back\n");
        return;
    }
    for (int i = 0; i < 3; i++) {
        struct harness d = {0};
        harness_start(&d, model, (const char *const[]){"--device", devices[i], NULL});
        struct harness_output o =
            HARNESS_RUN(&d, NULL, "run", "--tokens", prompt, "--max-tokens", "90", "--json",
                        "--proposer", i < 2 ? "lookup" : "none");
        ids_of(&o, ids[i], sizeof(ids[i]));
        if (i < 2)
            ck_assert_int_gt(number_of(&o, "rollbacks"), 0);
        harness_output_fini(&o);
        ck_assert_int_eq(harness_stop(&d), 0);
    }
    ck_assert_str_eq(ids[1], ids[0]);
    ck_assert_str_eq(ids[2], ids[0]);
}
END_TEST

/* ---- native numerics ---- */

static void start_native(struct harness *d, const char *numerics)
{
    *d = (struct harness){0};
    harness_start(d, bundled,
                  (const char *const[]){"--device", "cuda", "--numerics", numerics, "--context",
                                        "128", "--slots", "3", "--rows", FEW_ROWS, NULL});
}

/* The same ids with drafts and without, under an id of their own; a record is replayed under it and
 * no other. */
START_TEST(native_numerics_are_reproducible_under_their_own_id)
{
    static const char prompt[] = "1,2,3,40,50,2,3,40,50,2,3,40";
    const char *const proposers[] = {"none", "lookup"};
    char ids[2][2000], record[128];
    struct harness d;

    (void)snprintf(record, sizeof(record), "/tmp/hearth-native-%d.json", (int)getpid());
    start_native(&d, "native");
    for (int i = 0; i < 2; i++) {
        struct harness_output o =
            HARNESS_RUN(&d, NULL, "run", "--tokens", prompt, "--max-tokens", "24", "--json",
                        "--proposer", proposers[i], "--record", record);
        ids_of(&o, ids[i], sizeof(ids[i]));
        ck_assert_msg(strstr(o.out, "\"numerics\":\"native-2-sm90\"") != NULL, "%s", o.out);
        ck_assert_msg(strstr(o.out, ":native-2-sm90:") != NULL, "%s", o.out); /* the receipt */
        if (i == 1)
            ck_assert_int_gt(number_of(&o, "rollbacks"), 0);
        harness_output_fini(&o);
    }
    ck_assert_str_eq(ids[1], ids[0]);
    struct harness_output o = HARNESS_RUN(&d, NULL, "replay", record);
    ck_assert_msg(o.code == 0 && strstr(o.out, ": equal: "), "%s%s", o.out, o.error);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
    start_native(&d, "portable");
    o = HARNESS_RUN(&d, NULL, "replay", record);
    ck_assert_int_eq(o.code, 65);
    ck_assert_msg(strstr(o.error, "recorded with other numerics: native-2-sm90, the daemon has "
                                  "cpu-float-1\n") != NULL,
                  "%s", o.error);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
    (void)unlink(record);
}
END_TEST

/* Of some 250 drafts for them about ten are wrong, so that some are however long the windows get,
 * which depends on how long passes take. */
enum { SEEDS = 6 };

/* The ids of SEEDS answers sampled so that nearly every token could differ. Returns how many drafts
 * were rolled back. */
static long sampled(const char *arch, const char *device, const char *proposer,
                    char ids[SEEDS][2000])
{
    static const char prompt[] = "1,70,80,90,33,14";
    static const char *const seeds[SEEDS] = {"7", "8", "9", "10", "11", "12"};
    struct harness d = {0};
    long rollbacks = 0;

    harness_start(&d, harness_tiny_model_of(arch, QUANT_BF16),
                  (const char *const[]){"--device", device, "--numerics", "portable", "--context",
                                        "256", NULL});
    for (int i = 0; i < SEEDS; i++) {
        struct harness_output o = HARNESS_RUN(
            &d, NULL, "run", "--tokens", prompt, "--max-tokens", "60", "--json", "--logit-bias",
            "2=-inf", "--temperature", "9", "--seed", seeds[i], "--proposer", proposer);
        ids_of(&o, ids[i], sizeof(ids[i]));
        rollbacks += number_of(&o, "rollbacks");
        harness_output_fini(&o);
    }
    ck_assert_int_eq(harness_stop(&d), 0);
    return rollbacks;
}

/* Fast passes draft, canonical ones verify: some drafts are wrong, and the ids are the CPU's
 * without any. */
START_TEST(fast_drafts_are_rolled_back_and_keep_the_ids)
{
    static char want[SEEDS][2000], got[SEEDS][2000];
    const char *arch = _i == 0 ? NULL : "gemma3";

    ck_assert_int_eq(sampled(arch, "cpu", "none", want), 0);
    ck_assert_int_gt(sampled(arch, "cuda", "fast", got), 0);
    for (int i = 0; i < SEEDS; i++)
        ck_assert_str_eq(got[i], want[i]);
}
END_TEST

enum { MIXED = 4 }; /* runs at the same time: two seeds of sampled(), verified and not */

/* Runs them and keeps the last lines. */
static void run_mixed(const struct harness *d, char ret_last[MIXED][4000])
{
    static const char *const seeds[] = {"7", "8"}, *const flags[] = {"yes", "no"};
    pid_t pid[MIXED];
    int fd[MIXED];

    for (int i = 0; i < MIXED; i++)
        pid[i] = harness_spawn(
            d, &fd[i],
            (const char *const[]){"run", "--tokens", "1,70,80,90,33,14", "--max-tokens", "60",
                                  "--json", "--logit-bias", "2=-inf", "--temperature", "9",
                                  "--seed", seeds[i / 2], "--deterministic", flags[i % 2], NULL});
    for (int i = 0; i < MIXED; i++) {
        static char text[1 << 17];
        size_t n = 0;
        for (ssize_t got = 1; got > 0 && n<sizeof(text) - 1; n += got> 0 ? (size_t)got : 0)
            got = read(fd[i], text + n, sizeof(text) - 1 - n);
        text[n] = 0;
        (void)close(fd[i]);
        ck_assert_int_eq(harness_wait(pid[i]), 0);
        const char *last = strstr(text, "{\"event\":\"done\"");
        ck_assert_ptr_nonnull(last);
        (void)snprintf(ret_last[i], 4000, "%s", last);
    }
}

/* Non-deterministic answers come from fast passes and say so; the verified answers beside them, for
 * which those passes draft, equal the CPU's. */
START_TEST(unverified_answers_say_so_and_leave_verified_ones_alone)
{
    static char want[SEEDS][2000], last[MIXED][4000];
    char ids[2000];
    struct harness d = {0};
    int other = 0;

    ck_assert_int_eq(sampled(NULL, "cpu", "none", want), 0);
    harness_start(&d, harness_tiny_model_of(NULL, QUANT_BF16),
                  (const char *const[]){"--device", "cuda", "--numerics", "portable", "--context",
                                        "256", NULL});
    run_mixed(&d, last);
    for (int i = 0; i < MIXED; i++) {
        const bool fast = i % 2 == 1;
        ids_of(&(struct harness_output){.out = last[i], .error = ""}, ids, sizeof(ids));
        ck_assert_msg((strstr(last[i], "\"numerics\":\"cpu-float-1+fast\"") != NULL) == fast, "%s",
                      last[i]);
        ck_assert_msg((strstr(last[i], ":cpu-float-1+fast:") != NULL) == fast, "%s",
                      last[i]); /* the receipt */
        if (fast)
            other += strcmp(ids, want[i / 2]) != 0;
        else
            ck_assert_str_eq(ids, want[i / 2]);
    }
    ck_assert_int_gt(other, 0);
    ck_assert_int_eq(harness_counter(&d, "streamed_tokens"),
                     MIXED / 2 * 59); /* the first one is canonical */
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

/* With log-probabilities, penalties, a grammar and a stop text. Replay names its record as
 * non-deterministic, also on a daemon without fast passes. */
START_TEST(unverified_answers_take_every_request_option)
{
    char record[128];
    struct harness d = {0};
    const char *model = harness_tiny_model_of(NULL, QUANT_F16);

    (void)snprintf(record, sizeof(record), "/tmp/hearth-fast-%d.json", (int)getpid());
    harness_start(&d, model,
                  (const char *const[]){"--device", "cuda", "--numerics", "portable", "--context",
                                        "128", NULL});
    struct harness_output o =
        HARNESS_RUN(&d, NULL, "run", "--tokens", "1,70,80,90,33,14", "--max-tokens", "20", "--json",
                    "--logprobs", "2", "--repeat-penalty", "1.3", "--grammar", "root ::= [a-z ]*",
                    "--stop", "zzzzzz", "--deterministic", "no", "--record", record);
    ck_assert_msg(o.code == 0 && strstr(o.out, "\"numerics\":\"cpu-float-1+fast\"") != NULL, "%s%s",
                  o.out, o.error);
    ck_assert_msg(strstr(o.out, "\"logprobs\"") != NULL, "%s", o.out);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "replay", record);
    ck_assert_msg(o.code == 0 || o.code == 1, "%s%s", o.out, o.error);
    ck_assert_msg(strstr(o.out, "; it was not deterministic: ") != NULL, "%s%s", o.out, o.error);
    ck_assert_msg((strstr(o.out, ": equal: ") != NULL) == (o.code == 0), "%s", o.out);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
    d = (struct harness){0};
    harness_start(&d, model, (const char *const[]){"--device", "cpu", "--context", "128", NULL});
    o = HARNESS_RUN(&d, NULL, "replay", record);
    ck_assert_msg(o.code == 1 && strstr(o.out, "; it was not deterministic: ") != NULL, "%s%s",
                  o.out, o.error);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
    (void)unlink(record);
}
END_TEST

/* A draft model in F16 reads a prompt of more rows than hearth's own kernels take, by the
 * simulator's cuBLAS: the log says so, the drafts are verified, and the ids equal the CPU's without
 * drafts. */
START_TEST(a_draft_model_reads_by_cublas_and_keeps_the_ids)
{
    enum { PROMPT = 60 };
    char draft[512], prompt[4 * PROMPT + 1] = "1", want[2000], got[2000];
    struct harness d = {0};

    (void)snprintf(draft, sizeof(draft), "%s", harness_tiny_model_of(NULL, QUANT_F16));
    for (unsigned i = 1; i < PROMPT; i++)
        (void)snprintf(prompt + strlen(prompt), 5, ",%u", 3 + 7 * i % 200);
    const char *model = harness_tiny_model();
    struct harness_output o = harness_run_hearthd((const char *const[]){
        "--check", "--model", model, "--device", "cuda", "--draft", draft, NULL});
    ck_assert_msg(o.code == 0 && strstr(o.out, "draft model: matmuls of more than 32 rows by "
                                               "cuBLAS\n") != NULL,
                  "%s%s", o.out, o.error);
    harness_output_fini(&o);
    answer(model, "cpu", "f16", prompt, "40", want, sizeof(want));
    harness_start(&d, model, (const char *const[]){"--device", "cuda", "--draft", draft, NULL});
    o = HARNESS_RUN(&d, NULL, "run", "--tokens", prompt, "--max-tokens", "40", "--json",
                    "--proposer", "draft");
    ids_of(&o, got, sizeof(got));
    harness_output_fini(&o);
    ck_assert_int_ge(harness_counter(&d, "draft_rows"), PROMPT);
    ck_assert_int_eq(harness_stop(&d), 0);
    ck_assert_str_eq(got, want);
}
END_TEST

START_TEST(the_cpu_has_no_native_numerics)
{
    struct harness_output o =
        harness_run_hearthd((const char *const[]){"--model", bundled, "--socket", "/nonexistent/s",
                                                  "--device", "cpu", "--numerics", "native", NULL});

    ck_assert_int_eq(o.code, 65);
    ck_assert_msg(strstr(o.error, "the CPU has no native numerics: use --numerics portable, or "
                                  "--device cuda\n") != NULL,
                  "%s", o.error);
    harness_output_fini(&o);
}
END_TEST

/* An F32 model has portable numerics; the log says so, and what would have native ones. */
START_TEST(kv_in_f32_has_no_native_numerics)
{
    static const char line[] =
        "an F32 model has KV in f32: native ones are there with --kv-type q8_0";

    for (int q8_0 = 0; q8_0 < 2; q8_0++) {
        struct harness_output o = harness_run_hearthd((const char *const[]){
            "--check", "--model", harness_tiny_model_of("llama", QUANT_F32), "--device", "cuda",
            "--numerics", "native", "--kv-type", q8_0 ? "q8_0" : "f16", NULL});
        ck_assert_int_eq(o.code, 0);
        ck_assert_msg((strstr(o.out, "numerics native-2-sm") != NULL) == q8_0, "%s", o.out);
        ck_assert_msg((strstr(o.out, line) != NULL) == !q8_0, "%s", o.out);
        harness_output_fini(&o);
    }
}
END_TEST

/* A --gpu-bytes with which some experts do not fit: between what is too little for the rest, and enough for all. */
static void find_gpu_bytes(const char *model, char *ret_bytes, size_t bytes)
{
    unsigned long too_few = 0, enough = 64 << 20;

    for (bool found = false; !found;) {
        const unsigned long tried = (too_few + enough) / 2;
        ck_assert_msg(enough - too_few > 1024, "no experts are left out at %lu bytes", tried);
        (void)snprintf(ret_bytes, bytes, "%lu", tried);
        struct harness_output o = harness_run_hearthd((const char *const[]){
            "--check", "--model", model, "--device", "cuda", "--gpu-bytes", ret_bytes, "--context",
            "128", "--slots", "2", "--kv-bytes", "200K", "--rows", FEW_ROWS, NULL});
        found = strstr(o.out, "layers do not fit the GPU: the CPU computes them") != NULL;
        ck_assert_msg(o.code == 0 || strstr(o.error, "MiB free (gpu-bytes)"), "%s", o.error);
        if (o.code != 0)
            too_few = tried;
        else
            enough = tried;
        harness_output_fini(&o);
    }
}

static void answer_of_experts(const char *model, const char *device, const char *gpu_bytes,
                              char *ret_ids, size_t bytes)
{
    struct harness d = {0};

    harness_start(&d, model,
                  (const char *const[]){"--device", device, "--gpu-bytes", gpu_bytes, "--context",
                                        "128", "--slots", "2", "--kv-bytes", "200K", "--rows",
                                        FEW_ROWS, NULL});
    struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--tokens", "1,203,107,261,178,212,38",
                                          "--max-tokens", "20", "--json");
    ids_of(&o, ret_ids, bytes);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "status", "--json");
    ck_assert_msg((strstr(o.out, "\"host_layers\":0") == NULL) == !strcmp(device, "cuda"), "%s",
                  o.out);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
}

START_TEST(experts_beyond_gpu_bytes_give_the_ids_of_the_cpu)
{
    const char *model = harness_tiny_model_of("qwen3moe", QUANT_Q8_0);
    char gpu_bytes[32], want[2000], got[2000];

    find_gpu_bytes(model, gpu_bytes, sizeof(gpu_bytes));
    answer_of_experts(model, "cpu", gpu_bytes, want, sizeof(want));
    answer_of_experts(model, "cuda", gpu_bytes, got, sizeof(got));
    ck_assert_str_eq(got, want);
}
END_TEST

enum { CROWD = 5 };

/* The last lines of CROWD concurrent answers. */
static void crowd(const char *device, char ids[CROWD][2000])
{
    struct harness d = {0};
    pid_t pid[CROWD];
    int fd[CROWD];

    harness_start(&d, harness_tiny_model(),
                  (const char *const[]){"--device", device, "--numerics", "portable", "--context",
                                        "128", "--slots", "5", "--kv-bytes", "90K", NULL});
    for (int i = 0; i < CROWD; i++) {
        char prompt[64];
        (void)snprintf(prompt, sizeof(prompt), "1,%d,3,%d,5,6,7,%d", i + 2, 9 * i + 4, 20 - i);
        pid[i] = harness_spawn(&d, &fd[i],
                               (const char *const[]){"run", "--tokens", prompt, "--max-tokens",
                                                     "100", "--json", NULL});
    }
    for (int i = 0; i < CROWD; i++) {
        static char text[1 << 16];
        size_t n = 0;
        for (ssize_t got = 1; got > 0 && n<sizeof(text) - 1; n += got> 0 ? (size_t)got : 0)
            got = read(fd[i], text + n, sizeof(text) - 1 - n);
        text[n] = 0;
        (void)close(fd[i]);
        ck_assert_int_eq(waitpid(pid[i], NULL, 0), pid[i]);
        ids_of(&(struct harness_output){.out = text, .error = ""}, ids[i], sizeof(ids[i]));
    }
    if (!strcmp(device, "cuda")) /* the CPU may finish one before the next one comes */
        ck_assert_int_gt(harness_counter(&d, "evictions"), 0);
    ck_assert_int_eq(harness_stop(&d), 0);
}

/* Fewer pages than the answers need at once: some are evicted and computed again. */
START_TEST(many_clients_short_of_pages_get_the_ids_of_the_cpu)
{
    static char want[CROWD][2000], got[CROWD][2000];

    crowd("cpu", want);
    crowd("cuda", got);
    for (int i = 0; i < CROWD; i++)
        ck_assert_str_eq(got[i], want[i]);
}
END_TEST

/* The daemon must have exited by itself with this code, and logged the line. */
static void check_ended(struct harness *d, int code, const char *line)
{
    char log[4000] = "";
    FILE *file;

    ck_assert_int_eq(harness_wait(d->pid), code);
    d->pid = 0;
    file = fopen(d->log, "r");
    ck_assert_ptr_nonnull(file);
    log[fread(log, 1, sizeof(log) - 1, file)] = 0;
    (void)fclose(file);
    ck_assert_msg(strstr(log, line) != NULL, "%s", log);
    (void)unlink(d->log);
    (void)rmdir(d->directory);
}

/* Every running answer ends with a code and the line; the daemon exits, so that its supervisor
 * restarts it. */
START_TEST(a_lost_device_ends_every_request_with_a_code)
{
    enum { RUNNING = 4 };
    static char text[1 << 16];
    struct harness d = {0};
    pid_t pid[RUNNING];
    int fd[RUNNING];

    static const char *const fails[] = {"graph@150=719", "graph@150=700"};

    (void)setenv("HEARTH_CUDASIM_FAIL", fails[_i], 1);
    harness_start(&d, harness_tiny_model(), (const char *const[]){"--device", "cuda", NULL});
    for (int i = 0; i < RUNNING; i++) {
        char prompt[32];
        (void)snprintf(prompt, sizeof(prompt), "1,%d,3,%d", i + 2, 9 * i + 4);
        pid[i] = harness_spawn(&d, &fd[i],
                               (const char *const[]){"run", "--tokens", prompt, "--max-tokens",
                                                     "400", "--json", "--logit-bias", "2=-inf",
                                                     "--proposer", "none", NULL});
    }
    for (int i = 0; i < RUNNING; i++) {
        size_t n = 0;
        for (ssize_t got = 1; got > 0 && n<sizeof(text) - 1; n += got> 0 ? (size_t)got : 0)
            got = read(fd[i], text + n, sizeof(text) - 1 - n);
        text[n] = 0;
        (void)close(fd[i]);
        ck_assert_int_eq(harness_wait(pid[i]), 71);
        ck_assert_msg(strstr(text, "\"reason\":\"error\"") != NULL, "client %d: %s", i, text);
    }
    check_ended(&d, 71,
                _i % 2 == 0 ? "the GPU failed in a pass: unspecified launch failure"
                            : "the GPU failed in a pass: an illegal memory access");
}
END_TEST

static void check_refused(const char *line)
{
    struct harness_output o = harness_run_hearthd((const char *const[]){
        "--model", bundled, "--socket", "/nonexistent/s", "--device", "cuda", NULL});

    ck_assert_int_ne(o.code, 0);
    ck_assert_msg(strstr(o.error, line) != NULL, "%s", o.error);
    harness_output_fini(&o);
}

START_TEST(a_missing_device_is_one_line_without_fallback)
{
    (void)setenv("HEARTH_CUDASIM_DEVICES", "0", 1);
    check_refused("--device cuda");
}
END_TEST

START_TEST(too_little_memory_is_one_line)
{
    (void)setenv("HEARTH_CUDASIM_MEMORY", "1000000", 1);
    check_refused("MiB");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda");
    TCase *tests = tcase_create("cuda"), *native = tcase_create("native");

#ifdef __SANITIZE_THREAD__
    printf("skip: the thread sanitizer does not follow the simulator's threads\n");
    return EXIT_SUCCESS;
#endif
    if (!simulator()) {
        printf("skip: no C++ compiler, so no simulated GPU\n");
        return EXIT_SUCCESS;
    }
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, stories260k_gives_the_ids_of_the_cpu, 0, 4);
    tcase_add_loop_test(tests, q8_0_kv_gives_the_ids_of_the_cpu, 0, 2);
    tcase_add_loop_test(tests, gemma3_gives_the_ids_of_the_cpu, 0, 2);
    tcase_add_test(tests, the_bundled_model_gives_the_ids_of_the_cpu);
    tcase_add_test(tests, experts_beyond_gpu_bytes_give_the_ids_of_the_cpu);
    tcase_add_test(tests, rolled_back_drafts_keep_the_ids);
    tcase_add_test(tests, many_clients_short_of_pages_get_the_ids_of_the_cpu);
    tcase_add_loop_test(tests, a_lost_device_ends_every_request_with_a_code, 0, 2);
    tcase_add_test(tests, a_missing_device_is_one_line_without_fallback);
    tcase_add_test(tests, too_little_memory_is_one_line);
    tcase_set_timeout(native, 300);
    tcase_add_test(native, native_numerics_are_reproducible_under_their_own_id);
    tcase_add_loop_test(native, fast_drafts_are_rolled_back_and_keep_the_ids, 0, 2);
    tcase_add_test(native, unverified_answers_say_so_and_leave_verified_ones_alone);
    tcase_add_test(native, unverified_answers_take_every_request_option);
    tcase_add_test(native, a_draft_model_reads_by_cublas_and_keeps_the_ids);
    tcase_add_test(native, the_cpu_has_no_native_numerics);
    tcase_add_test(native, kv_in_f32_has_no_native_numerics);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, native);
    return run_suite(suite);
}
