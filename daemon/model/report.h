/* report.h: reports what is served and on which device: in the log when ready, and for --check.
 *
 * Main thread, after everything is loaded. Only reads. */
#ifndef HEARTH_DAEMON_MODEL_REPORT_H
#define HEARTH_DAEMON_MODEL_REPORT_H

#include "daemon/config.h"
#include "daemon/model/loaded_model.h"

#include <stdbool.h>

/* Writes to the log, with warnings about what could run better. */
void report_ready(const struct config *config, const struct loaded_model *loaded, bool own_socket);

/* Prints to stdout. */
void report_check(const struct loaded_model *loaded);

#endif
