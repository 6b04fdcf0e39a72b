/* doctor: `hearth doctor`: what on this machine helps or hinders hearth, and how to fix it.
 *
 * Two steps, so that each can be tried without such a machine: facts are gathered (files below a
 * root, system calls, the daemon's answer), then judged, which is pure. */
#ifndef HEARTH_CLIENT_CLI_DOCTOR_H
#define HEARTH_CLIENT_CLI_DOCTOR_H

#include "client/cli/cli.h"

#include <stdint.h>

enum { DOCTOR_LINES = 20, DOCTOR_TEXT = 256 };

enum doctor_isa { DOCTOR_NO_ISA, DOCTOR_AVX2, DOCTOR_AVXVNNI, DOCTOR_AVX512 };

/* Unknown or missing: numbers are 0, texts empty. */
struct doctor_facts {
    char kernel[65];     /* release */
    int seal_error;      /* errno of sealing a memfd against later writers; 0: it works */
    int uring_error;     /* errno of io_uring_setup */
    int uring_disabled;  /* sysctl kernel.io_uring_disabled: 0, 1, 2 */
    int pidfd_error;     /* errno of pidfd_open */
    char huge_pages[16]; /* the word in brackets in transparent_hugepage/enabled */
    enum doctor_isa isa; /* best that hearth has kernels for */
    uint32_t cores;      /* that this process may use */
    char governor[24];   /* of the first processor's clock */
    uint64_t memory_kib, available_kib;
    uint64_t files;    /* most descriptors that a process may raise its limit to */
    uint64_t memlock;  /* most bytes that it may lock; UINT64_MAX: all */
    int old_kernel;    /* io_uring counts as locked memory there: before 5.12 */
    int has_nvidia;    /* /dev/nvidia0 is there */
    int nvidia_error;  /* errno of opening /dev/nvidiactl */
    int has_libcuda;   /* the driver's library is there */
    int has_libcublas; /* cuBLAS: looked for where the driver is */

    int in_group; /* the machine's daemon has a group: 1 we are in it, 0 not, -1: no such group,
                           or we are root */
    char socket_folder[128]; /* where a daemon of ours would listen */
    int folder_error;        /* why it cannot be used, an errno: EACCES: it is not ours, EPERM:
                                others may write to it; 0: it can, or it can be made */
    int daemon_error;        /* -errno of connecting; 0: it answers */
    char daemon_problem[DOCTOR_TEXT]; /* in words */
    char model[64], daemon_version[32], socket[128];
    uint64_t resident_kib, huge_kib; /* of the daemon; 0: another user's */
};

enum doctor_verdict {
    DOCTOR_OK,
    DOCTOR_NOTE, /* it runs, slower or with less than it could */
    DOCTOR_BAD,  /* hearthd cannot run like this */
};

struct doctor_line {
    enum doctor_verdict verdict;
    const char *name;
    char text[DOCTOR_TEXT];
    char mend[DOCTOR_TEXT]; /* a command, or advice; "" when all is well */
};

/* Fills all but what the daemon says. `root` stands before /proc, /sys and /dev: "" for the machine
 * itself. */
void doctor_gather(const char *root, struct doctor_facts *ret_facts);

/* The daemon's part, through a connection without slots. */
void doctor_ask(const struct cli_options *o, const char *root, struct doctor_facts *facts);

/* Returns the number of lines. */
uint32_t doctor_judge(const struct doctor_facts *facts, struct doctor_line lines[DOCTOR_LINES]);

#endif
