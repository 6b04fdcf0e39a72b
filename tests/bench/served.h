/* served.h: a private hearthd for a bench, and requests to it through the library.
 *
 * One daemon at a time, in its own folder. Any failure ends the process with one line, and the
 * daemon with it. One thread.
 */
#ifndef HEARTH_TESTS_BENCH_SERVED_H
#define HEARTH_TESTS_BENCH_SERVED_H

#include "client/hearth.h"
#include "ipc/layout.h"

#include <stdint.h>

/* Takes the path of build/bin; creates the folder. */
void served_init(const char *bin_folder);
void served_fini(void);

_Noreturn void served_fail(const char *what);

/* Starts hearthd --model MODEL with more arguments (NULL-ended, or NULL) and waits until it
 * listens. */
void served_start(const char *model, const char *const *arguments);
void served_stop(void);
int served_pid(void);

const char *served_socket(void);

/* The path of a program of build/bin. Static memory. */
const char *served_program(const char *name);

/* The model file's name without its folders. */
const char *served_name(const char *model);

struct hearth *served_connect(uint32_t slots);

/* Reads a slot's answer to its end. Returns its result; ids are valid until the next call. */
struct hearth_result served_answer(struct hearth *h, uint32_t slot);

/* One request to its end. */
struct hearth_result served_ask(struct hearth *h, uint32_t slot,
                                const struct hearth_request *request);

/* Tokens per second after the first one, by the daemon's own clock. */
double served_decode_rate(const struct hearth_result *r);

/* The daemon's counters, to be read at any moment without asking it (ipc/counters.h). Valid until
 * served_stop(). */
const struct ctl *served_ctl(void);

/* The median; sorts the values. */
double served_median(double *values, int n);

#endif
