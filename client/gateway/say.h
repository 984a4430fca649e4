/* The log of the gateway and the peer: lines on stderr. Any thread. */
#ifndef GB_SAY_H
#define GB_SAY_H

#include <stdbool.h>
#include <stdint.h>

/* One line, with the time in front: `gb_say("serving http url=%s", url)`. */
void gb_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Lines of one kind that a program can cause without end, such as one for each name: the log has 20
   of them in a minute. The struct is zeroed at first, and belongs to one thread. */
struct gb_said {
    uint64_t since_ms;
    unsigned count; /* since then */
};

/* Whether the log is to have one more. If not, a later call tells how many there were: "7 more
   names WHAT". */
static inline bool gb_say_another(struct gb_said *said, uint64_t now_ms, const char *what)
{
    enum { MOST = 20, WHILE_MS = 60000 };

    if (now_ms - said->since_ms >= WHILE_MS) {
        if (said->count > MOST)
            gb_say("%u more names %s", said->count - MOST, what);
        *said = (struct gb_said){.since_ms = now_ms};
    }
    return said->count++ < MOST;
}

#endif
