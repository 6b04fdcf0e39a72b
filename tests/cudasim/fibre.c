/* Fibres: stacks from a pool with a guard page below each, and the switch between two of them. On
 * x86-64 the switch saves only the callee-saved registers (no signal mask: a system call each way
 * is what makes swapcontext slow); elsewhere it is swapcontext. */
#include "tests/cudasim/sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Stacks begin at 64 different lines of a page, so that those of a block's threads do not share a few sets of the cache. */
enum { GUARD_BYTES = 4096, LINE_BYTES = 64, NEXT_LINE = 13 * LINE_BYTES };

static struct sim_fibre *pool; /* the thread that runs grids owns it */
static unsigned opened;

static struct sim_fibre *fibre_open(void)
{
    struct sim_fibre *fibre = calloc(1, sizeof(*fibre));
    char *memory = mmap(NULL, GUARD_BYTES + SIM_STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (fibre == NULL || memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
        fprintf(stderr, "cudasim: no memory for one more simulated thread\n");
        abort();
    }
    fibre->stack = memory + GUARD_BYTES;
    fibre->top = fibre->stack + SIM_STACK_BYTES - opened++ * NEXT_LINE % 4096;
    return fibre;
}

#if defined(__x86_64__) && !defined(HEARTH_CUDASIM_UCONTEXT)

void sim_switch_stack(void **save, void *load) SIM_HIDDEN;

__asm__(".text\n"
        ".hidden sim_switch_stack\n"
        ".globl sim_switch_stack\n"
        ".type sim_switch_stack, @function\n"
        "sim_switch_stack:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size sim_switch_stack, . - sim_switch_stack\n");

/* What the first switch pops: six registers, the entry, and an unused return address. */
static void prepare(struct sim_fibre *fibre, void (*enter)(void))
{
    void **top = (void **)(void *)fibre->top;

    *--top = NULL; /* at entry the stack pointer is 8 below a multiple of 16 */
    *--top = (void *)enter;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    fibre->stack_pointer = top;
}

void sim_fibre_switch(struct sim_fibre *from, struct sim_fibre *to)
{
    sim_switch_stack(&from->stack_pointer, to->stack_pointer);
}

#else

static ucontext_t *context_of(struct sim_fibre *fibre)
{
    if (fibre->stack_pointer == NULL)
        fibre->stack_pointer = calloc(1, sizeof(ucontext_t));
    if (fibre->stack_pointer == NULL)
        abort();
    return fibre->stack_pointer;
}

static void prepare(struct sim_fibre *fibre, void (*enter)(void))
{
    ucontext_t *context = context_of(fibre);

    (void)getcontext(context);
    context->uc_stack.ss_sp = fibre->stack;
    context->uc_stack.ss_size = (size_t)(fibre->top - fibre->stack);
    context->uc_link = NULL;
    makecontext(context, enter, 0);
}

void sim_fibre_switch(struct sim_fibre *from, struct sim_fibre *to)
{
    (void)swapcontext(context_of(from), context_of(to));
}

#endif

struct sim_fibre *sim_fibre_take(void (*enter)(void))
{
    struct sim_fibre *fibre = pool;

    if (fibre == NULL)
        fibre = fibre_open();
    else
        pool = fibre->next;
    prepare(fibre, enter);
    return fibre;
}

void sim_fibre_give(struct sim_fibre *fibre)
{
    fibre->next = pool;
    pool = fibre;
}
