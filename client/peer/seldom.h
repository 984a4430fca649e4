/*
 * Lines of the log that other machines, or strangers, can cause as often as they like: one a minute
 * of each kind and machine. The next one tells how many were left out. On the loop's thread.
 */
#ifndef GB_PEER_SELDOM_H
#define GB_PEER_SELDOM_H

#include <stdint.h>

/* `who`: the machine's node; "": somebody who has not shown a certificate. `kind` is a text of this
   program's own, or of a library: nobody else chooses it. */
void gb_say_seldom(uint64_t now_ms, const char *who, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
