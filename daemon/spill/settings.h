/* The tiers as the configuration has them. */
#ifndef GB_SPILL_SETTINGS_H
#define GB_SPILL_SETTINGS_H

#include <stdint.h>

struct gb_spill_settings {
    uint64_t host;                          /* bytes of the host tier; 0: there is none */
    uint64_t disk;                          /* bytes of the disk tier */
    char *dir;                              /* its directory; owned; NULL: there is none */
    unsigned low_watermark, high_watermark; /* percent */
};

#endif
