/*
 * Attacks of bench_hostile that need more than a text which is sent again and again. A process
 * each; none returns.
 */
#ifndef ATTACKS_H
#define ATTACKS_H

#include <stdbool.h>
#include <stddef.h>

/* The daemon's socket; to be set before the others are called. */
extern const char *attacked;

/* A connection to it that does not block, or does; -1: it takes none. */
int join(void);
int join_blocking(void);
/* All of a text on one that blocks; false if it ends before. */
bool send_all(int fd, const char *text, size_t length);

/* Descriptors that a daemon has no use for (foreign.c). */
void lingers(void);     /* sockets whose last close lasts a second */
void descriptors(void); /* sixteen of the wrong kind with each message */

/* Gateways in trouble beside it (gateways.c). */
void gateway_killed(void);  /* twenty times a second */
void gateway_hung(void);    /* stopped, while there are thousands of events a second to tell it */
void gateway_flooded(void); /* as many half requests and lists of all objects as it accepts */

/* Clients that keep what others lack (keepers.c). */
void holders(void);  /* a reader that holds what its publisher replaces, until all is full */
void slots(void);    /* 64 sessions with a slot of an object that is replaced again and again */
void segments(void); /* objects with a segment each, as many as a user may have and more */
void parks(void);    /* 1024 leases that are parked, and taken up again */
void churn(void);    /* segments that come and go; a service manager is told of each */
void lives(void); /* a live object that is replaced again and again, with writers of 16 versions */
void joins(void); /* a reader that takes part in a stream, and leaves it, again and again */
void rings(void); /* 4000 threads that sleep where the daemon rings, and writers that come and go */
void claims(void); /* as many claims as may wait; each is given back, and asked for again */

#endif
