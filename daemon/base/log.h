/*
 * Structured logs on stderr: one line an event, `key=value` text or JSON, with systemd's priority
 * prefix when stderr is the journal. The set-up is the process's, made once at the start. Any
 * thread may log.
 */
#ifndef GB_LOG_H
#define GB_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/clock.h"

#define GB_LOG_PAUSE_MS 60000 /* between two lines of one kind that one user causes */
#define GB_NOBODY ((uid_t)-1)

enum gb_log_level { GB_LOG_DEBUG, GB_LOG_INFO, GB_LOG_WARNING, GB_LOG_ERROR };

/* One `key=value` of a line. */
struct gb_log_field {
    const char *key;
    const char *text; /* NULL: the number is meant */
    int64_t number;
};

#define GB_LOG_TEXT(key_, text_) ((struct gb_log_field){.key = (key_), .text = (text_)})
#define GB_LOG_NUMBER(key_, n_) ((struct gb_log_field){.key = (key_), .number = (int64_t)(n_)})

void gb_log_setup(enum gb_log_level level, bool json);
bool gb_log_enabled(enum gb_log_level level);

/* `fields` begins with the event and ends with an entry whose key is NULL. */
void gb_log_write(enum gb_log_level level, const struct gb_log_field *fields);

/* gb_log(GB_LOG_INFO, "listening", GB_LOG_TEXT("socket", path)); nothing is evaluated when the
   level is off. */
#define gb_log(level, event, ...)                                                                  \
    do {                                                                                           \
        if (gb_log_enabled(level))                                                                 \
            gb_log_write((level), (const struct gb_log_field[]){                                   \
                                      GB_LOG_TEXT("event", event), ##__VA_ARGS__, {0}});           \
    } while (0)

/* The same for lines that a user can cause as often as it likes: of one event and one user one line
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
