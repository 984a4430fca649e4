#include "daemon/base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool gb_size_parse(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    uint64_t value;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno)
        return false;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));

        if (!unit ||
            __builtin_mul_overflow(value, (uint64_t)1 << (10 * (unit - units + 1)), &value))
            return false;
        end++;
        if (end[0] == 'i')
            end++;
        if (end[0] == 'B')
            end++;
    }
    if (*end)
        return false;
    *bytes = value;
    return true;
}
