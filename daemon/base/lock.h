/*
 * Locks on files. A daemon that was killed may keep one for a moment longer: processes
 * that share its descriptors (serve/closer.h) end after it. Blocks; for the start.
 */
#ifndef GB_LOCK_H
#define GB_LOCK_H

/* Locks the file, which notes whose it is. False, with errno: EWOULDBLOCK where a process that
   lives has it, after some seconds at most where what is left of a dead one has. */
_Bool gb_lock_take(int fd);

#endif
