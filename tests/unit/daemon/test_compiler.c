/* The compiler's thread: a job's result is whole when its state says that it is over. */
#include "daemon/engine/compiler.h"
#include "daemon/engine/waker.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

enum { JOBS = 200 };

/* One thread gives and looks, as the engine does; under the thread sanitizer a race would show. */
START_TEST(jobs_come_back_whole)
{
    static char good[] = "root ::= [a-z]{1,9} \"!\"", bad[] = "root ::= nothing";
    const struct grammar_token token = {.bytes = "a", .n_bytes = 1};
    struct grammar_vocab *vocab;
    struct mailbox box;
    struct compiler compiler;

    ck_assert_int_eq(grammar_vocab_open(&token, 1, 1, &vocab), 0);
    ck_assert_int_eq(mailbox_init(&box, 16), 0);
    compiler_init(&compiler, vocab, waker_cpu_ns);
    ck_assert_int_eq(compiler_open(&compiler, &box), 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        char *text = i % 2 ? bad : good;
        struct compiler_job job = {.text = (uint8_t *)text, .bytes = (uint32_t)strlen(text)};
        compiler_start(&compiler, &job);
        while (!compiler_finish(&compiler))
            sched_yield();
        ck_assert_int_eq(job.error, i % 2 ? -EINVAL : 0);
        ck_assert((job.grammar == NULL) == (i % 2 != 0) && (job.line[0] != 0) == (i % 2 != 0));
        if (job.grammar)
            grammar_close(job.grammar);
    }
    compiler_close(&compiler);
    compiler_fini(&compiler);
    mailbox_fini(&box);
    grammar_vocab_close(vocab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compiler");
    TCase *tcase = tcase_create("compiler");

    tcase_add_test(tcase, jobs_come_back_whole);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
