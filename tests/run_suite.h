/* run_suite: what the mains of tests share: cases that need HEARTH_TESTDATA, and running the
 * suite. */
#ifndef HEARTH_TESTS_RUN_SUITE_H
#define HEARTH_TESTS_RUN_SUITE_H

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* A case for tests that read the folder in HEARTH_TESTDATA. Prints a skip and returns NULL where it
 * is not set. */
static inline TCase *add_testdata_case(Suite *suite, double timeout_s)
{
    if (!getenv("HEARTH_TESTDATA")) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return NULL;
    }
    TCase *tcase = tcase_create("test data");
    tcase_set_timeout(tcase, timeout_s);
    suite_add_tcase(suite, tcase);
    return tcase;
}

/* The end of every test's main: runs the suite, frees it, and gives the exit code. */
static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);

    /* Programs that a test starts and ends by these inherit that they are ignored, and a suite may
     * have been started by nohup, or with & by a script. */
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    srunner_run_all(runner, CK_ENV); /* verbosity from CK_VERBOSITY */
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
