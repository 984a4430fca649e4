/* The log of the gateway and the peer: lines on stderr. Any thread. */
#ifndef GB_SAY_H
#define GB_SAY_H

/* One line, with the time in front: `gb_say("serving http url=%s", url)`. */
void gb_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
