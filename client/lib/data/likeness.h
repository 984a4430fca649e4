/* Whether two versions can take each other's place in memory: the same types, shapes and places.
   Pure; any thread. */
#ifndef GB_LIB_LIKENESS_H
#define GB_LIB_LIKENESS_H

#include "client/lib/data/manifest.h"
#include "proto/layout/layout.h"

/* A layout in a segment of its own, and for a bundle the bytes before its data, and what they
   say. */
struct gb_likeness {
    const struct gb_layout *layout;
    unsigned char *head; /* NULL: no bundle */
    uint64_t head_bytes;
    struct gb_manifest manifest;
};

/* 0, or GPUBUF_E_UNSUPPORTED: *error names the first member that differs, as it is in `there` and
   as it was in `was`. */
int gb_likeness_compare(const struct gb_likeness *was, const struct gb_likeness *there,
                        struct gb_error *error);
void gb_likeness_end(struct gb_likeness *likeness);

/* Gives the columns of `layout` the null counts of the like columns of `from`. */
void gb_likeness_counts(struct gb_layout *layout, const struct gb_layout *from);

#endif
