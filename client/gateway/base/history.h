/*
 * How much of each device was used in the last ten minutes, for the page. The feed notes it once a
 * second, and each step of five seconds keeps the last figure. Any thread.
 */
#ifndef GB_GATEWAY_HISTORY_H
#define GB_GATEWAY_HISTORY_H

#include <pthread.h>

#include "proto/wire/json.h"

#define GB_GATEWAY_HISTORY_STEPS 120
#define GB_GATEWAY_HISTORY_STEP_MS 5000
#define GB_GATEWAY_HISTORY_DEVICES 64 /* further ones have none */

struct gb_gateway_history_device {
    char id[64];
    int64_t step; /* the last one noted */
    uint64_t
        used[GB_GATEWAY_HISTORY_STEPS]; /* by the step's number; UINT64_MAX: nothing was heard */
};

struct gb_gateway_history {
    pthread_mutex_t lock;
    struct gb_gateway_history_device devices[GB_GATEWAY_HISTORY_DEVICES];
    unsigned count;
};

void gb_gateway_history_init(struct gb_gateway_history *history);
void gb_gateway_history_end(struct gb_gateway_history *history);
/* Another daemon: what is known is of the former one. */
void gb_gateway_history_clear(struct gb_gateway_history *history);
/* Notes the bytes in objects of a device. */
void gb_gateway_history_note(struct gb_gateway_history *history, const struct gb_string *id,
                             uint64_t used, int64_t now_ms);
/* Writes the answer of /api/history. */
void gb_gateway_history_write(struct gb_gateway_history *history, struct gb_writer *writer,
                              int64_t now_ms);

#endif
