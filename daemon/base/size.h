/* Sizes as people write them. */
#ifndef GB_SIZE_H
#define GB_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Reads "512M", "2G", "1048576" (binary units); false if it is none or overflows. */
bool gb_size_parse(const char *text, uint64_t *bytes);

#endif
