/* attack: see attack.h. */
#include "tests/hostile/attack.h"

#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

const struct attack attacks[ATTACKS] = {
    {"words", "words overwritten", 40, attack_words, NULL},
    {"cells", "mutated cells", 12, attack_cells, NULL},
    {"holes", "holes punched", 30, attack_holes, NULL},
    {"generations", "generations stored", 30, attack_generations, NULL},
    {"grammars", "grammars that do not compile", 2, attack_grammars, NULL},
    {"messages", "mutated messages", 1500, attack_messages, NULL},
    {"floods", "handshakes", 10, attack_floods, NULL},
    {"silence", "silent connections", 4, attack_silence, NULL},
    {"forks", "children left with the descriptors", 8, attack_forks, NULL},
    {"passed", "descriptors passed", 60, attack_passed, NULL},
    {"bells", "rings and changes of a bell", 60, attack_bells, NULL},
    {"dups", "descriptors of a notify socket watched", 1, attack_dups, NULL},
    {"seals", "attempts to write what is sealed", 60, attack_seals, NULL},
    {"fuse", "descriptors of slow files", 6, attack_fuse, attack_fuse_prepare},
};

void attack_sleep_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

void attack_forbidden(int succeeded, const char *what)
{
    if (!succeeded)
        return;
    fprintf(stderr, "succeeded, and must not: %s\n", what);
    _exit(3);
}

void attack_become(uid_t uid)
{
    struct rlimit files;

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (getuid() == 0 && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0))
        _exit(4);
    prctl(PR_SET_DUMPABLE, 1); /* our own /proc/self stays ours */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
}

bool attack_chosen(const struct attack *attack)
{
    const char *name = getenv("HEARTH_ATTACK");

    return !name || !strcmp(name, attack->name);
}

pid_t attack_start(const struct attack *attack, struct attack_state *a, uint64_t times)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (attack->prepare)
        attack->prepare();
    attack_become(ATTACK_USER);
    for (uint64_t i = 0; i < times && !atomic_load(&a->stop); i++)
        attack->once(a);
    _exit(0);
}
