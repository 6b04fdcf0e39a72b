/*
 * report: says what is served, and on what: when it is ready, and for --check.
 *
 * Main thread, when everything is loaded. Only reads.
 */
#ifndef HEARTH_DAEMON_MODEL_REPORT_H
#define HEARTH_DAEMON_MODEL_REPORT_H

#include "daemon/config.h"
#include "daemon/model/loaded_model.h"

#include <stdbool.h>

/* In the log; with warnings of what is not as one would wish. */
void report_ready(const struct config *config, const struct loaded_model *loaded, bool own_socket);

/* On stdout. */
void report_check(const struct loaded_model *loaded);

#endif
