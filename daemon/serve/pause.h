/*
 * Long requests let others have their turn. What takes long is to read a text of up to a mebibyte, or
 * to answer for thousands of names; most who ask want one object. So a request that has had its slice
 * of time pauses every 50 us where it can (gb_call_share, gb_call_pause), and those who lately asked for
 * little at a time, and have sent something, are served in between: once each, up to a few KiB, with
 * scratch of their own. Their requests do not pause in turn.
 *
 * To them it is as if their requests had come before the long one, or between two parts of it that
 * stand for themselves. A session does not end while its request pauses; others may, if that is quick.
 */
#ifndef GB_PAUSE_H
#define GB_PAUSE_H

#define GB_PAUSE_NS 50000u
#define GB_PAUSE_SESSIONS 64

struct gb_server;

/* Does nothing unless it is time. */
void gb_pause(struct gb_server *server);

#endif
