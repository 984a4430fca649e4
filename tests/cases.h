/*
 * Tests that say themselves that they are run: TEST(test_name), with a body, is a function that
 * takes `void **state`, and RUN_TESTS at the end of a program is its main(). They run in the order
 * in which they stand. This brings all headers that cmocka wants, and those of the system that most
 * tests do.
 */
#ifndef GB_TEST_CASES_H
#define GB_TEST_CASES_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* cmocka passes over what is unset. */
static __attribute__((unused)) struct CMUnitTest listed_tests[64];

static __attribute__((unused)) void add_case(struct CMUnitTest added)
{
    size_t i = 0;

    while (listed_tests[i].name)
        if (++i == sizeof(listed_tests) / sizeof(*listed_tests))
            abort();
    listed_tests[i] = added;
}

/* A test with fixtures of its own, or NULL. */
#define TEST_WITH(test, set_up, tear_down)                                                         \
    static void test(void **state);                                                                \
    __attribute__((constructor)) static void add_##test(void)                                      \
    {                                                                                              \
        add_case((struct CMUnitTest){#test, test, set_up, tear_down, NULL});                       \
    }                                                                                              \
    static void test(__attribute__((unused)) void **state)

#define TEST(test) TEST_WITH(test, NULL, NULL)

/* main(), with fixtures of the whole program, or NULL. */
#define RUN_TESTS(set_up, tear_down)                                                               \
    int main(void)                                                                                 \
    {                                                                                              \
        return cmocka_run_group_tests(listed_tests, set_up, tear_down);                            \
    }

#endif
