/*
 * signals: what ends the daemon, as a descriptor.
 *
 * Main thread, before the socket is made: until then a signal ends the process as it ends any other, so nobody
 * waits for a model to be loaded only to stop it.
 */
#ifndef HEARTH_DAEMON_CONTROL_SIGNALS_H
#define HEARTH_DAEMON_CONTROL_SIGNALS_H

/* SIGTERM, SIGINT and SIGHUP make the descriptor readable from now on; SIGINT and SIGHUP only where whoever
 * started us has not had them ignored (nohup, a shell's `&`). Returns it (an eventfd, non-blocking), or
 * -errno. Once a process. */
int signals_open(void);

#endif
