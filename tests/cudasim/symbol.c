/* Names for reports, from the symbol table of the code's object: kernels are hidden or static, so
 * the dynamic linker does not know them. Also tells which addresses are constants of that
 * object. */
#include "tests/cudasim/sim.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the object of an address ---- */

struct object {
    uintptr_t address; /* sought */
    uintptr_t base;    /* of the object that has it */
    char path[512];
    ElfW(Phdr) headers[24];
    unsigned n_headers;
};

static bool holds(const ElfW(Phdr) * header, uintptr_t base, uintptr_t address, size_t bytes)
{
    const uintptr_t begin = base + header->p_vaddr;

    return address >= begin && address - begin < header->p_memsz &&
           bytes <= header->p_memsz - (address - begin);
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct object *object = data;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD ||
            !holds(&info->dlpi_phdr[i], info->dlpi_addr, object->address, 1))
            continue;
        const char *path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
        (void)snprintf(object->path, sizeof(object->path), "%s", path);
        object->base = info->dlpi_addr;
        object->n_headers = info->dlpi_phnum < 24 ? info->dlpi_phnum : 24;
        memcpy(object->headers, info->dlpi_phdr, object->n_headers * sizeof(ElfW(Phdr)));
        return 1;
    }
    return 0;
}

static bool find_object(const void *address, struct object *ret_object)
{
    *ret_object = (struct object){.address = (uintptr_t)address};
    return dl_iterate_phdr(visit, ret_object) == 1;
}

bool sim_symbol_constant(const void *function, uintptr_t address, size_t bytes)
{
    static struct object object; /* of the last kernel: grids run one at a time */

    if (object.address != (uintptr_t)function && !find_object(function, &object))
        return false;
    for (unsigned i = 0; i < object.n_headers; i++) {
        const ElfW(Phdr) *header = &object.headers[i];

        if ((header->p_type == PT_GNU_RELRO ||
             (header->p_type == PT_LOAD && (header->p_flags & PF_W) == 0)) &&
            holds(header, object.base, address, bytes))
            return true;
    }
    return false;
}

/* ---- names ---- */

static const char *find_in(const ElfW(Ehdr) * file, size_t bytes, uintptr_t value)
{
    const char *at = (const char *)file;
    const ElfW(Shdr) *sections = (const void *)(at + file->e_shoff);

    for (unsigned s = 0; file->e_shoff < bytes && s < file->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB)
            continue;
        const ElfW(Sym) *symbols = (const void *)(at + sections[s].sh_offset);
        const char *strings = at + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
            if ((symbols[i].st_info & 15) == STT_FUNC && symbols[i].st_value == value)
                return strings + symbols[i].st_name;
        }
    }
    return NULL;
}

/* The C++ runtime's. */
char *__cxa_demangle(const char *symbol, char *buffer, size_t *bytes, int *ret_status);

static void put_demangled(const char *symbol, char *ret_name, size_t bytes)
{
    int status = -1;
    char *name = __cxa_demangle(symbol, NULL, NULL, &status);

    (void)snprintf(ret_name, bytes, "%s", name != NULL ? name : symbol);
    free(name);
    char *end = strrchr(ret_name, '(');
    if (end != NULL && end != ret_name)
        *end = '\0';
}

void sim_symbol_name(const void *function, char *ret_name, size_t bytes)
{
    struct object object;
    struct stat status;

    (void)snprintf(ret_name, bytes, "?");
    const int fd = find_object(function, &object) ? open(object.path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && status.st_size > (off_t)sizeof(ElfW(Ehdr))) {
        void *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file != MAP_FAILED) {
            const char *symbol =
                find_in(file, (size_t)status.st_size, (uintptr_t)function - object.base);
            if (symbol != NULL)
                put_demangled(symbol, ret_name, bytes);
            (void)munmap(file, (size_t)status.st_size);
        }
    }
    (void)close(fd);
}

/* ---- lines ---- */

/* The innermost inlined frame outside the simulator's headers. */
static bool first_line(FILE *lines, char *ret_line, size_t bytes)
{
    char text[512];

    while (fgets(text, sizeof(text), lines) != NULL) {
        text[strcspn(text, "\n(")] = '\0';
        if (strncmp(text, "??", 2) == 0 || strstr(text, "cudasim/include/") != NULL)
            continue;
        const char *source = strstr(text, "kernels/cuda/");
        source = source != NULL ? source : strstr(text, "tests/cudasim/");
        (void)snprintf(ret_line, bytes, "%s", source != NULL ? source : text);
        return true;
    }
    return false;
}

bool sim_symbol_line(const void *code, char *ret_line, size_t bytes)
{
    struct object object;
    char command[640];

    if (!find_object(code, &object))
        return false;
    char *path = realpath(object.path, NULL);
    if (path == NULL)
        return false;
    /* the call's own line, not that of what comes after it */
    (void)snprintf(command, sizeof(command), "exec addr2line -i -e '%s' 0x%lx 2>/dev/null", path,
                   (unsigned long)((uintptr_t)code - object.base - 1));
    free(path);
    FILE *lines = popen(command, "re");
    if (lines == NULL)
        return false;
    const bool found = first_line(lines, ret_line, bytes);
    (void)pclose(lines);
    return found;
}
