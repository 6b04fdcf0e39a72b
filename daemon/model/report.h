/* report.h: reports what is served and on which device: in the log when ready, for --check and for
 * --describe.
 *
 * Main thread, after everything is loaded; --describe loads nothing. Only reads. */
#ifndef HEARTH_DAEMON_MODEL_REPORT_H
#define HEARTH_DAEMON_MODEL_REPORT_H

#include "daemon/config.h"
#include "daemon/model/loaded_model.h"

#include <stdbool.h>

/* Writes to the log, with warnings about what could run better. */
void report_ready(const struct config *config, const struct loaded_model *loaded, bool own_socket);

/* Prints to stdout. */
void report_check(const struct loaded_model *loaded);

/* Prints one line of JSON to stdout, after loaded_model_plan, with the vocabulary built:
 *
 *   {"model":"Qwen3 8B","arch":"qwen3","type":"Q4_K","parameters":8190735360,"device":"cpu",
 *    "weight_bytes":5021100032,"model_context":40960,"context":40960,"kv_bytes":6039797760,
 *    "least_kv_bytes":603979776,"needs_bytes":11300000000,"available_bytes":20000000000,
 *    "fits":true,"chat":true,"tools":true,"fim":false}
 *
 * context: the one asked for, else what memory holds, at least BUDGET_LEAST_CONTEXT; kv_bytes: with
 * that context; least_kv_bytes: the least that --kv-bytes takes; needs_bytes: weights, scratch, KV and
 * the draft model; fits: that is available. */
void report_describe(const struct loaded_model *loaded);

#endif
