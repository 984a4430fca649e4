/*
 * Structured logs on stderr: one line an event, `key=value` text or JSON, with systemd's priority
 * prefix when stderr is the journal. The set-up is the process's, made once at the start. Any
 * thread may log.
 */
#ifndef GB_LOG_H
#define GB_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errors.h"

enum gb_log_level { GB_LOG_DEBUG, GB_LOG_INFO, GB_LOG_WARNING, GB_LOG_ERROR };

/* One `key=value` of a line. */
struct gb_log_field {
    const char *key;
    const char *text; /* NULL: the number is meant */
    int64_t number;
};

#define GB_LOG_TEXT(key_, text_) ((struct gb_log_field){.key = (key_), .text = (text_)})
#define GB_LOG_NUMBER(key_, n_) ((struct gb_log_field){.key = (key_), .number = (int64_t)(n_)})

/* Rows of a table of options (option.h): for an enum gb_log_level, and a bool. */
#define GB_LOG_LEVEL_OPTION(at)                                                                    \
    {                                                                                              \
        "log-level", "LEVEL", "debug, info, warning or error (default: info)",                     \
            .member = (at), .set = gb_log_read_level                                               \
    }
#define GB_LOG_FORMAT_OPTION(at)                                                                   \
    {                                                                                              \
        "log-format", "FORMAT", "text or json (default: text)", .member = (at),                    \
                                                                .set = gb_log_read_format          \
    }

int gb_log_read_level(void *at, const char *value, struct gb_error *error);
int gb_log_read_format(void *at, const char *value, struct gb_error *error);

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

#endif
