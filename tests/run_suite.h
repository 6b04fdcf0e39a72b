/* The end of every test's main: runs the suite, frees it, and gives the exit code. */
#ifndef HEARTH_TESTS_RUN_SUITE_H
#define HEARTH_TESTS_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);

    srunner_run_all(runner, CK_ENV); /* CK_VERBOSITY counts; normal without it */
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
