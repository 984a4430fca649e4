#include "client/lib/wire/progress.h"

#include "client/lib/base/clock.h"
#include "client/lib/wire/report.h"

#define WORTH_A_LOOK (UINT64_C(256) << 10) /* at the clock, which costs more than a small copy */

/* Of the thread's calls, whichever client they are of. */
static _Thread_local int64_t asked_ms[2]; /* while it waited, while it copied */
static _Thread_local uint64_t copied;

int gb_progress(struct gpubuf_client *client, uint64_t bytes)
{
    if (!client->progress.report)
        return 0;
    copied += bytes;
    if (bytes > 0 && copied < WORTH_A_LOOK)
        return 0;
    int64_t now = gb_now_ms();
    if (now < asked_ms[bytes > 0] + GB_PROGRESS_MS)
        return 0;
    asked_ms[bytes > 0] = now;
    bytes = copied;
    copied = 0;
    if (client->progress.report(client->progress.arg, bytes) == 0)
        return 0;
    return gb_report_text(client, GPUBUF_E_CANCELED, "the program has ended the call");
}
