/* The limits in effect: those of the protocol, maybe lowered or raised by `--limit NAME=VALUE`. */
#ifndef GB_EFFECTIVE_LIMITS_H
#define GB_EFFECTIVE_LIMITS_H

#include <stdint.h>

#include "proto/limits.h"

struct gb_limits {
#define GB_LIMIT_MEMBER(name, value, text) uint64_t name;
    GB_LIMIT_MAP(GB_LIMIT_MEMBER)
#undef GB_LIMIT_MEMBER
};

#endif
