/* The log, and lines of it that a user can cause without end. Any thread may log. */
#ifndef GB_LOG_LIMITED_H
#define GB_LOG_LIMITED_H

#include <sys/types.h>

#include "daemon/base/clock.h"
#include "proto/wire/log.h"

#define GB_LOG_PAUSE_MS 60000 /* between two lines of one kind that one user causes */
#define GB_NOBODY ((uid_t)-1)

/* gb_log() for lines that a user can cause as often as it likes: of one event and one user one line
   a minute is written. It has `left_out`, the number of those that were not written since the last
   one. The loss of an object is no such line. */
#define gb_log_limited(level, uid, event, ...)                                                     \
    do {                                                                                           \
        uint64_t left_out_;                                                                        \
        if (gb_log_enabled(level) && gb_log_may(event, uid, gb_now_ms(), &left_out_))              \
            gb_log_write((level),                                                                  \
                         (const struct gb_log_field[]){GB_LOG_TEXT("event", event),                \
                                                       ##__VA_ARGS__,                              \
                                                       GB_LOG_NUMBER("left_out", left_out_),       \
                                                       {0}});                                      \
    } while (0)

/* Whether a line of the event, which that user causes, may be written now. `event` is static. The
   last of many users that cause lines within a minute are one to it. */
bool gb_log_may(const char *event, uid_t uid, uint64_t now_ms, uint64_t *left_out);

#endif
