/* names: preloaded into a program, it makes each look-up of a name write a byte to the socket of descriptor
 * HEARTH_TEST_NAMES, and wait for one from there, or for its end: then the name is unknown. */
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    const char *text = getenv("HEARTH_TEST_NAMES");
    int fd = text ? (int)strtol(text, NULL, 10) : -1;
    char byte = 'x';

    (void)name, (void)service, (void)hints, (void)ret;
    (void)!write(fd, &byte, 1);
    (void)!read(fd, &byte, 1);
    return EAI_NONAME;
}
