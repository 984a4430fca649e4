/*
 * Checks that must hold whatever the input is: libFuzzer reports the trap as a finding and keeps
 * the input.
 */
#ifndef GB_TESTS_FUZZ_DEMAND_H
#define GB_TESTS_FUZZ_DEMAND_H

#include <stdio.h>

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

#endif
