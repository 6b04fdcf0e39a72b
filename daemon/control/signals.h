/* signals.h: the signals that end the daemon, as a descriptor.
 *
 * Main thread, before the socket is made: until then a signal ends the process at once, so stopping
 * does not wait for a model to be loaded. */
#ifndef HEARTH_DAEMON_CONTROL_SIGNALS_H
#define HEARTH_DAEMON_CONTROL_SIGNALS_H

/* From now on SIGTERM, SIGINT and SIGHUP make the descriptor readable; SIGINT and SIGHUP only if
 * they were not ignored at our start (nohup, a shell's `&`). Returns it (an eventfd, non-blocking),
 * or -errno. Once per process. */
int signals_open(void);

/* Ends the daemon as a signal does. Any thread. PRECOND: signals_open was called. */
void signals_stop(void);

#endif
