/*
 * A writer that several users share, for texts that are used up at once: one text at a time. A text
 * that begins while another is not used up yet would be written into that; builds for tests end
 * there. Not thread-safe.
 */
#ifndef GB_SHARED_WRITER_H
#define GB_SHARED_WRITER_H

#include <assert.h>

#include "proto/base/list.h"
#include "proto/wire/json.h"

struct gb_shared_writer {
    struct gb_writer writer;
    bool taken;
};

/* For whatever is shared in this way. */
static inline void gb_acquire_shared(bool *taken)
{
#ifdef GB_FAILPOINTS
    assert(!*taken);
#endif
    *taken = true;
}

/* The writer, empty. */
static inline struct gb_writer *gb_shared_writer_acquire(struct gb_shared_writer *shared)
{
    gb_acquire_shared(&shared->taken);
    gb_writer_reset(&shared->writer);
    return &shared->writer;
}

/* Its text is used up. */
static inline void gb_shared_writer_return(struct gb_writer *writer)
{
    GB_CONTAINER(writer, struct gb_shared_writer, writer)->taken = false;
}

#endif
