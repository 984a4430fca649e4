/* Clients that keep what others lack: attacks of bench_hostile. A process each; none returns. */
#ifndef KEEPERS_H
#define KEEPERS_H

/* Sets the daemon's socket. To be called before the others. */
void keepers_beside(const char *socket);

void holders(void); /* a reader that holds what its publisher replaces, until all is full */
void slots(void);   /* 64 sessions with a slot of an object that is replaced again and again */
void churn(void);   /* segments that come and go; a service manager is told of each */
void lives(void); /* a live object that is replaced again and again, with writers of 16 versions */
void joins(void); /* a reader that takes part in a stream, and leaves it, again and again */
void claims(
    void); /* as many claims as a session may wait for; each is given back, and asked for again */

#endif
