/* report.c: formats what was loaded, as lines of the log or for --check. */
#include "daemon/model/report.h"

#include "daemon/json_escape.h"
#include "daemon/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void log_draft(const struct loaded_model *draft)
{
    char text[256];
    model_describe(draft->model, text, sizeof(text));
    log_info("draft model %s: %s", draft->name, text);
    log_info("draft model: %zu KiB of weights, KV pages of %zu KiB, context %u",
             draft->info.weight_bytes / 1024, draft->info.page_bytes / 1024, draft->limits.context);
    if (draft->info.note)
        log_info("draft model: %s", draft->info.note);
}

static struct budget chosen_of(const struct loaded_model *loaded)
{
    return (struct budget){loaded->limits.context, loaded->limits.pages,
                           loaded->limits.window_pages, loaded->limits.states};
}

static void describe_device(const struct loaded_model *loaded, char *text, size_t text_bytes)
{
    char windows[64] = "", states[64] = "";
    if (loaded->limits.states > 0)
        snprintf(states, sizeof(states), ", %u states of %zu KiB", loaded->limits.states,
                 (loaded->info.state_bytes + loaded->info.record_bytes) / 1024);
    if (loaded->limits.window_pages > 0)
        snprintf(windows, sizeof(windows), ", %u window pages of %zu KiB",
                 loaded->limits.window_pages, loaded->info.window_page_bytes / 1024);
    snprintf(text, text_bytes, "on %s (%s, %u threads), context %u, %u KV pages of %zu KiB%s%s",
             loaded->info.name, loaded->info.isa, loaded->info.threads, loaded->limits.context,
             loaded->limits.pages, loaded->info.page_bytes / 1024, windows, states);
}

/* Logs resident memory and how much of it is in huge pages: weights outside of huge pages are read
 * slower. */
static void log_memory(void)
{
    size_t resident = 0, anonymous = 0, mapped = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "re");

    while (file && fgets(line, sizeof(line), file)) {
        sscanf(line, "Rss: %zu kB", &resident);
        sscanf(line, "AnonHugePages: %zu kB", &anonymous);
        sscanf(line, "FilePmdMapped: %zu kB", &mapped);
    }
    if (file)
        fclose(file);
    log_info("%zu MiB resident, %zu of them in huge pages", resident >> 10,
             (anonymous + mapped) >> 10);
}

/* As a line of the log; where `print` is set, to stdout. */
static void report_weights(const struct loaded_model *loaded, bool print)
{
    char text[600];
    if (!loaded || !loaded->weights_dir)
        return;
    weights_cache_describe(&loaded->weights, text, sizeof(text));
    if (print)
        puts(text);
    else
        log_info("%s", text);
    report_weights(loaded->draft, print);
}

void report_ready(const struct config *config, const struct loaded_model *loaded, bool own_socket)
{
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t needed = loaded->info.weight_bytes + loaded->info.shadow_bytes + loaded->info.kv_bytes;
    const struct budget chosen = chosen_of(loaded);
    char text[256];
    model_describe(loaded->model, text, sizeof(text));
    log_info("%s: %s", loaded->name, text);
    if (loaded->device.why[0])
        log_info("%s", loaded->device.why);
    describe_device(loaded, text, sizeof(text));
    log_info("%s, %llu slots, numerics %s", text, (unsigned long long)config->slots,
             loaded->info.numerics);
    budget_describe(&loaded->facts, &chosen, text, sizeof(text));
    log_info("%s", text);
    if (loaded->info.note)
        log_info("%s", loaded->info.note);
    report_weights(loaded, false);
    if (loaded->info.fast == BACKEND_FAST_SHADOW)
        log_info("shadow: %zu MiB beside %zu MiB of weights", loaded->info.shadow_bytes >> 20,
                 loaded->info.weight_bytes >> 20);
    if (loaded->draft) {
        log_draft(loaded->draft);
        needed += loaded->draft->info.weight_bytes + loaded->draft->info.kv_bytes;
    }
    if (loaded->limits.context > loaded->model->n_context)
        log_warning("context %u is longer than the model's own %u: output past that position may "
                    "be garbage",
                    loaded->limits.context, loaded->model->n_context);
    if (loaded->ops == &backend_cpu && needed > memory)
        log_warning(
            "weights and a full KV cache need %zu MiB, but this machine has %zu: lower kv-bytes",
            needed >> 20, memory >> 20);
    if (loaded->info.host_bytes > memory)
        log_warning("experts beyond the GPU need %zu MiB, but this machine has %zu: use a smaller "
                    "model",
                    loaded->info.host_bytes >> 20, memory >> 20);
    if (config->log_level >= LOG_LEVEL_INFO)
        log_memory(); /* the kernel counts page by page, which takes time */
    if (config->idle_stop && own_socket)
        log_warning("idle-stop is ignored: it needs a socket of the service manager, which starts "
                    "hearthd again");
    log_info("ready at %s", config->socket);
}

void report_check(const struct loaded_model *loaded)
{
    char text[256], fingerprint[MODEL_FINGERPRINT_TEXT];
    model_describe(loaded->model, text, sizeof(text));
    model_fingerprint_text(loaded->fingerprint, fingerprint);
    printf("%s: %s\nfingerprint %s, numerics %s\n", loaded->name, text, fingerprint,
           loaded->info.numerics);
    describe_device(loaded, text, sizeof(text));
    puts(text);
    if (loaded->info.note)
        puts(loaded->info.note);
    if (loaded->draft) {
        model_describe(loaded->draft->model, text, sizeof(text));
        printf("draft model %s: %s\n", loaded->draft->name, text);
        if (loaded->draft->info.note)
            printf("draft model: %s\n", loaded->draft->info.note);
    }
    report_weights(loaded, true);
}

static const char *json_bool(bool is)
{
    return is ? "true" : "false";
}

void report_describe(const struct loaded_model *loaded)
{
    const struct model *model = loaded->model;
    const struct budget chosen = chosen_of(loaded);
    const struct vocab_string chat = vocab_template(&loaded->vocab, VOCAB_TEMPLATE_CHAT),
                              tools = vocab_template(&loaded->vocab, VOCAB_TEMPLATE_TOOLS);
    const bool has_tools = tools.bytes > 0 || strstr(chat.data, "tools");
    const uint64_t kv = budget_kv_bytes(&loaded->facts, &chosen), needs = loaded->facts.loaded + kv;
    char name[160];
    printf(
        "{\"model\":\"%s\",\"arch\":\"%s\",\"type\":\"%s\",\"parameters\":%llu,\"device\":\"%s\",",
        json_escape(loaded->name, name, sizeof(name)), model->arch, model_type_name(model),
        (unsigned long long)model->n_params, loaded->ops->name);
    printf("\"weight_bytes\":%llu,\"model_context\":%u,\"context\":%u,\"kv_bytes\":%llu,"
           "\"least_kv_bytes\":%llu,\"needs_bytes\":%llu,\"available_bytes\":%llu,\"fits\":%s,",
           (unsigned long long)model->tensor_bytes, model->n_context, chosen.context,
           (unsigned long long)kv, (unsigned long long)budget_least_bytes(&loaded->facts),
           (unsigned long long)needs, (unsigned long long)loaded->facts.available,
           json_bool(needs <= loaded->facts.available));
    printf("\"chat\":%s,\"tools\":%s,\"fim\":%s}\n", json_bool(chat.bytes > 0),
           json_bool(has_tools),
           json_bool(vocab_special(&loaded->vocab, VOCAB_FIM_PREFIX) != VOCAB_NONE));
}
