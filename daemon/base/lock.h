/*
 * Locks on files. The lock of a daemon that was killed may be held a moment longer: processes that
 * share its descriptors (serve/closer.h) end after it. May block for seconds: for the start only.
 */
#ifndef GB_LOCK_H
#define GB_LOCK_H

/* Locks the file and writes our pid into it. False, with errno: EWOULDBLOCK if a living process has
   the lock, or if that of a dead one is still held after some seconds. */
_Bool gb_lock_acquire(int fd);

#endif
