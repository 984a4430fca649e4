/* Sizes: as people write them, and rounded. */
#ifndef GB_SIZE_H
#define GB_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Reads "512M", "2G", "1048576" (binary units); false if the text is no size or overflows. */
bool gb_size_parse(const char *text, uint64_t *bytes);

static inline uint64_t gb_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

#endif
