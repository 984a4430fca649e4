/*
 * Lines of the log that other machines, strangers or programs can cause as often as they like. On
 * the loop's thread.
 */
#ifndef GB_PEER_SELDOM_H
#define GB_PEER_SELDOM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/log.h"

/* Whether the log is to have a line of that kind and machine: `most` a minute. `left_out`: how many
   more there were in the minute of the line before. `who`: the machine's node; NULL: any, or
   somebody who has not shown a certificate. `kind` is a text of this program, or of a library:
   nobody else chooses it. */
bool gb_peer_seldom(uint64_t now_ms, const char *who, const char *kind, unsigned most,
                    uint64_t *left_out);

#define GB_PEER_LOG_SOME(level, now_ms, who, kind, most, event, ...)                               \
    do {                                                                                           \
        const char *kind_ = kind;                                                                  \
        uint64_t left_out_;                                                                        \
        if (gb_peer_seldom(now_ms, who, kind_ ? kind_ : event, most, &left_out_))                  \
            gb_log(level, event, __VA_ARGS__, GB_LOG_NUMBER("left_out", left_out_));               \
    } while (0)

/* gb_log, once a minute for each machine and kind; NULL: the event is the kind. */
#define gb_peer_log_seldom(level, now_ms, who, kind, event, ...)                                   \
    GB_PEER_LOG_SOME(level, now_ms, who, kind, 1, event, __VA_ARGS__)

/* gb_log, for an event that comes once for each name: 20 times a minute. */
#define gb_peer_log_another(level, now_ms, event, ...)                                             \
    GB_PEER_LOG_SOME(level, now_ms, NULL, NULL, 20, event, __VA_ARGS__)

#endif
