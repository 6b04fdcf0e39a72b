/* metrics: see metrics.h. */
#include "client/http/metrics.h"

#include "client/http/state.h"
#include "ipc/bell.h"
#include "ipc/counters.h"

#include <stdio.h>

static void line(struct buffer *out, const char *name, const char *type, const char *help,
                 double value)
{
    buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name,
                  value);
}

static void llama_names(const struct server *s, struct buffer *out)
{
    const struct counters *c = &s->count;
    double prompt_s = (double)c->prefill_ns / 1e9, decode_s = (double)c->decode_ns / 1e9;
    line(out, "llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens processed.",
         (double)c->prompt_tokens);
    line(out, "llamacpp:prompt_seconds_total", "counter", "Prompt process time.", prompt_s);
    line(out, "llamacpp:tokens_predicted_total", "counter",
         "Number of generation tokens processed.", (double)c->output_tokens);
    line(out, "llamacpp:tokens_predicted_seconds_total", "counter", "Predict process time.",
         decode_s);
    line(out, "llamacpp:prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.",
         prompt_s > 0 ? (double)c->prompt_tokens / prompt_s : 0);
    line(out, "llamacpp:predicted_tokens_seconds", "gauge",
         "Average generation throughput in tokens/s.",
         decode_s > 0 ? (double)c->output_tokens / decode_s : 0);
    line(out, "llamacpp:requests_processing", "gauge", "Number of requests processing.",
         served_running(s));
    line(out, "llamacpp:requests_deferred", "gauge", "Number of requests deferred.",
         served_queued(s));
}

void metrics_own(const struct server *s, struct buffer *out)
{
    const struct counters *c = &s->count;
    line(out, "hearth_http_requests_total", "counter", "HTTP requests.", (double)c->requests);
    buffer_text(out, "# HELP hearth_http_responses_total HTTP responses by class of status.\n"
                     "# TYPE hearth_http_responses_total counter\n");
    for (unsigned i = 2; i < SERVER_CODES; i++)
        buffer_format(out, "hearth_http_responses_total{code=\"%uxx\"} %llu\n", i,
                      (unsigned long long)c->responses[i]);
    line(out, "hearth_http_dropped_total", "counter", "Answers whose client hung up.",
         (double)c->dropped);
    line(out, "hearth_http_connections_total", "counter", "Connections.", (double)c->connections);
    line(out, "hearth_http_connections", "gauge", "Connections that are open.", s->n_connections);
    line(out, "hearth_http_queued", "gauge", "Requests that wait for a slot.", served_queued(s));
    line(out, "hearth_http_launches", "gauge", "Models that are to be started.", s->launcher.n);
    line(out, "hearth_http_running", "gauge", "Requests that run.", served_running(s));
    line(out, "hearth_http_slots", "gauge", "Slots at the daemon that are open.",
         served_connected(s));
    line(out, "hearth_http_cached_tokens_total", "counter", "Prompt tokens found computed.",
         (double)c->cached_tokens);
    line(out, "hearth_http_stored_tokens_total", "counter",
         "Prompt tokens found computed in a daemon's store.", (double)c->stored_tokens);
    buffer_format(out,
                  "# HELP hearth_http_request_seconds From a request's last byte to its answer's.\n"
                  "# TYPE hearth_http_request_seconds summary\n"
                  "hearth_http_request_seconds_sum %.9g\nhearth_http_request_seconds_count %llu\n",
                  (double)c->seconds_ns / 1e9, (unsigned long long)c->n_seconds);
    line(out, "hearth_http_uptime_seconds", "counter", "Since the gateway started.",
         (double)(bell_now_ns() - s->start_ns) / 1e9);
    llama_names(s, out);
}

/* A label's value: quotes, backslashes and line ends escaped. */
static void label(struct buffer *out, const char *name, const char *value)
{
    buffer_format(out, "%s=\"", name);
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\' || *c == '\n')
            buffer_text(out, "\\");
        buffer_add(out, *c == '\n' ? "n" : c, 1);
    }
    buffer_text(out, "\"");
}

/* The daemon's counters; kinds and descriptions come from their table. */
static void counters(const json_t *status, struct buffer *out)
{
    for (int i = 0; i < COUNTERS_N; i++) {
        const struct counter_info *c = &counters_table[i];
        const json_t *v = json_object_get(status, c->name);
        bool is_gauge = c->kind == COUNTER_KIND_GAUGE;
        char name[80];
        if (!json_is_number(v))
            continue;
        snprintf(name, sizeof(name), "hearth_%s%s", c->name, is_gauge ? "" : "_total");
        line(out, name, is_gauge ? "gauge" : "counter", c->help, json_number_value(v));
    }
}

void metrics_daemon(const json_t *status, struct buffer *out)
{
    const char *name, *comma = "";
    json_t *v;
    line(out, "hearth_up", "gauge", "1: a daemon is there.", status ? 1 : 0);
    if (!status)
        return;
    counters(status, out);
    buffer_text(out, "# HELP hearth_info What runs.\n# TYPE hearth_info gauge\nhearth_info{");
    json_object_foreach((json_t *)(uintptr_t)status, name, v) {
        if (!json_is_string(v))
            continue;
        buffer_text(out, comma);
        label(out, name, json_string_value(v));
        comma = ",";
    }
    buffer_text(out, "} 1\n");
}
