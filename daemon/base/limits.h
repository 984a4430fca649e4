/* The limits in effect: those of the protocol, unless `--limit NAME=VALUE` changed them. */
#ifndef GB_EFFECTIVE_LIMITS_H
#define GB_EFFECTIVE_LIMITS_H

#include <stdint.h>

#include "proto/base/limits.h"

struct gb_limits {
#define GB_LIMIT_MEMBER(name, value, text) uint64_t name;
    GB_LIMIT_MAP(GB_LIMIT_MEMBER)
#undef GB_LIMIT_MEMBER
};

#endif
