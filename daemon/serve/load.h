/*
 * The figures of providers, by prefix: how many names that are opened were there, and how long
 * the others took. For the metrics, whose labels must be few: of the prefixes that are provided the
 * first GB_LOADS are counted. A prefix keeps its figures when nobody provides it any more, until
 * another one needs their place. The loop's thread.
 */
#ifndef GB_LOAD_H
#define GB_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/limits.h"

#define GB_LOADS 32

struct gb_load {
    unsigned sessions; /* that provide it */
    size_t length;
    char prefix[GB_LIMIT(name_bytes) + 1];
    uint64_t hits, misses; /* names with it, and with no longer one of these, in `open` */
    uint64_t provided, provided_ms;
};

/* Zeroed: none. */
struct gb_loads {
    struct gb_load all[GB_LOADS];
    unsigned count; /* with a prefix */
};

/* A session provides the prefix from now on, or no longer. */
void gb_loads_begin(struct gb_loads *loads, const char *prefix, size_t length);
void gb_loads_end(struct gb_loads *loads, const char *prefix, size_t length);

/* The name was asked for, and was there or not. */
void gb_loads_opened(struct gb_loads *loads, const char *name, size_t length, bool hit);
/* A provider of the prefix made a name. */
void gb_loads_provided(struct gb_loads *loads, const char *prefix, size_t length, uint64_t ms);

#endif
