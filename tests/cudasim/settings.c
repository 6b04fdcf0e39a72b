/* Settings from the environment (listed in README.md), and random numbers. */
#include "tests/cudasim/sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t random_state;

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;

    if (text == NULL || text[0] == '\0')
        return otherwise;
    uint64_t value = strtoull(text, &end, 0);
    if (*end == '\0')
        return value;
    fprintf(stderr, "cudasim: %s=%s is not a number\n", name, text);
    abort();
}

static void read_environment(void)
{
    const char *order = getenv("HEARTH_CUDASIM_ORDER");

    settings.order = SIM_ORDER_UP;
    if (order != NULL && strcmp(order, "down") == 0) {
        settings.order = SIM_ORDER_DOWN;
    } else if (order != NULL && order[0] != '\0' && strcmp(order, "up") != 0) {
        settings.order = SIM_ORDER_SHUFFLED;
        settings.seed = number("HEARTH_CUDASIM_ORDER", 0);
    }
    settings.processors = (unsigned)number("HEARTH_CUDASIM_SMS", 3);
    settings.arch = (unsigned)number("HEARTH_CUDASIM_ARCH", 90);
    settings.memory_bytes = (size_t)number("HEARTH_CUDASIM_MEMORY", (uint64_t)1 << 30);
    settings.devices = (unsigned)number("HEARTH_CUDASIM_DEVICES", 1);
    settings.stack_bytes = (size_t)number("HEARTH_CUDASIM_STACK", 0);
    settings.blocking = number("CUDA_LAUNCH_BLOCKING", 0) != 0;
    settings.races = number("HEARTH_CUDASIM_RACES", 1) != 0;
    random_state = settings.seed;
}

const struct sim_settings *sim_settings(void)
{
    pthread_once(&once, read_environment);
    return &settings;
}

void sim_random_reset(void)
{
    random_state = sim_settings()->seed;
}

/* splitmix64. */
uint64_t sim_random(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
