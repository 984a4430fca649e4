/* Descriptors that a daemon has no use for: attacks of bench_hostile. A process each; none
   returns. */
#ifndef FOREIGN_H
#define FOREIGN_H

/* Sets the daemon's socket. To be called before the others. */
void foreign_beside(const char *socket);

/* A connection to it that does not block; -1: it takes none. */
int join_daemon(const char *socket);

void lingers(void);     /* sockets whose last close lasts a second */
void descriptors(void); /* sixteen of the wrong kind with each message */

#endif
