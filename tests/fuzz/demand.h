/*
 * Checks that must hold whatever the input is: libFuzzer reports the trap as a finding and keeps
 * the input.
 */
#ifndef GB_TESTS_FUZZ_DEMAND_H
#define GB_TESTS_FUZZ_DEMAND_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

#endif
