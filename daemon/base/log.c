#include "daemon/base/log.h"

#include <pthread.h>
#include <string.h>

#define PAUSES 256 /* of event and user; the last is for all that the others have no room for */

struct pause {
    const char *event; /* NULL: unused */
    uid_t uid;
    uint64_t until, left_out;
};

static struct {
    pthread_mutex_t mutex;
    struct pause all[PAUSES];
} pauses = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The event's and the user's, or one that is unused or over. If all that are over have counts, the
   oldest of these is replaced: otherwise places of callers that never return would never become
   free. */
static struct pause *find_pause(const char *event, uid_t uid, uint64_t now)
{
    struct pause *unused = NULL, *oldest = &pauses.all[0];

    for (unsigned i = 0; i < PAUSES - 1; i++) {
        struct pause *pause = &pauses.all[i];

        if (pause->event && pause->uid == uid && strcmp(pause->event, event) == 0)
            return pause;
        if (!unused && (!pause->event || (pause->until <= now && pause->left_out == 0)))
            unused = pause;
        if (pause->until < oldest->until)
            oldest = pause;
    }
    if (!unused && oldest->until <= now)
        unused = oldest;
    if (!unused)
        return &pauses.all[PAUSES - 1];
    *unused = (struct pause){.event = event, .uid = uid};
    return unused;
}

bool gb_log_may(const char *event, uid_t uid, uint64_t now, uint64_t *left_out)
{
    struct pause *pause;
    bool may;

    pthread_mutex_lock(&pauses.mutex);
    pause = find_pause(event, uid, now);
    may = pause->until <= now;
    *left_out = pause->left_out;
    pause->left_out = may ? 0 : pause->left_out + 1;
    if (may)
        pause->until = now + GB_LOG_PAUSE_MS;
    pthread_mutex_unlock(&pauses.mutex);
    return may;
}
