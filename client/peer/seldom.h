/*
 * Lines of the log that other machines, strangers or programs can cause as often as they like. On
 * the loop's thread.
 */
#ifndef GB_PEER_SELDOM_H
#define GB_PEER_SELDOM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/log.h"

/* Whether the log is to have a line of that kind and machine: one a minute. `left_out`: how many
   there were since the last one. `who`: the machine's node; NULL: somebody who has not shown a
   certificate. `kind` is a text of this program's own, or of a library: nobody else chooses it. */
bool gb_peer_seldom(uint64_t now_ms, const char *who, const char *kind, uint64_t *left_out);

/* gb_log, once a minute for each machine and kind; NULL: the event is the kind. */
#define gb_peer_log_seldom(level, now_ms, who, kind, event, ...)                                   \
    do {                                                                                           \
        const char *kind_ = kind;                                                                  \
        uint64_t left_out_;                                                                        \
        if (gb_peer_seldom(now_ms, who, kind_ ? kind_ : event, &left_out_))                        \
            gb_log(level, event, __VA_ARGS__, GB_LOG_NUMBER("left_out", left_out_));               \
    } while (0)

/* Lines of one kind, such as one for each name: the log has 20 of them in a minute. The struct is
   zeroed at first. */
struct gb_peer_another {
    uint64_t since_ms;
    unsigned count; /* since then */
};

/* Whether the log is to have one more. A later call logs how many of `event` there were not. */
bool gb_peer_another(struct gb_peer_another *counted, uint64_t now_ms, const char *event);

/* gb_log, as often as that. */
#define gb_peer_log_another(level, now_ms, counted, event, ...)                                    \
    do {                                                                                           \
        if (gb_peer_another(counted, now_ms, event))                                               \
            gb_log(level, event, __VA_ARGS__);                                                     \
    } while (0)

#endif
