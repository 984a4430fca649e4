/* The tiers as the configuration has them. */
#ifndef GB_SPILL_SETTINGS_H
#define GB_SPILL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define GB_TIER_LEAST (UINT64_C(2) << 20) /* bytes */

struct gb_spill_settings {
    uint64_t host;         /* bytes of the host tier; 0: there is none */
    uint64_t disk;         /* bytes of the disk tier; or */
    unsigned disk_percent; /* of its file system; 0: in bytes */
    char *dir;             /* its directory; owned; NULL: there is none */
    char *text; /* how the disk tier was asked for, for sentences: "c.conf:3: tier = …"; owned */
    unsigned low_watermark, high_watermark; /* percent */
    bool follows; /* an earlier daemon has left objects, which must be served */
};

#endif
